"""Two networks between a publisher and the recorder, of which one goes: the messages go on over the other one, none is missing, and none comes twice."""

import contextlib
import hashlib
import json
import signal
import subprocess
import time

import pytest
from conftest import cdr_string, messages_of
from mcap.writer import Writer as McapWriter
from served import until
from test_interfaces import SUBNET, start, tick
from test_network import MOST_SENT, bare_hosts  # noqa: F401

NETWORKS = {"net-a": ("10.88.0.1/24", "10.88.0.2/24"), "net-b": ("10.99.0.1/24", "10.99.0.2/24")}
# Of each message; what discovery sends beside it is little.
BYTES = 20_000
PLAYED = 300


class Recording:
    """A recording here of a publisher there, over two networks."""

    def __init__(self, hosts, world, tmp_path, dds, reliability="reliable"):
        self.here, self.there = hosts(2)
        self.world, self.dds, self.bag, self.socket = world, dds, tmp_path / "bag", tmp_path / "socket"
        for name, (address, other) in NETWORKS.items():
            self.here.link(name, address, self.there, other)
        self.recorder = start(self.here, self.bag, "--control-socket", self.socket)
        if dds == "cyclone":
            plan = {"publish": "/tick", "interface": list(NETWORKS), "size": BYTES, "reliability": reliability, "later": "/big"}
            # Not before its match.
            plan["count"] = 1_000_000
            self.node = self.there.node("cyclone_node.py", plan)
        else:
            qos = {"depth": 10000, "reliability": reliability}
            publisher = tick(count=None, size=BYTES, qos=qos)
            self.node = self.there.talker(publisher, env=SUBNET, wait_for_subscriptions=1, later=[{**publisher, "topic": "/big"}])
        self.node.wait_for("ready")
        until(lambda: self.recorded() >= 20, "messages")

    def recorded(self):
        return json.loads(self.world.run("control", self.socket, "status").stdout)["status"]["recorded"]

    def sent_bytes(self):
        return {name: self.there.sent_bytes(name) for name in NETWORKS}

    def wait_for(self, more):
        """Waits for so many messages; returns what the publisher's computer has sent over each network for each byte of them."""
        before, begin = self.sent_bytes(), self.recorded()
        until(lambda: self.recorded() >= begin + more, f"{more} more messages")
        count = self.recorded() - begin
        return {name: (now - before[name]) / (count * BYTES) for name, now in self.sent_bytes().items()}

    def used(self):
        """The network that the publisher sends by, and the other one."""
        sent = self.wait_for(20)
        used, other = sorted(NETWORKS, key=lambda name: -sent[name])
        assert sent[other] < 0.2, sent
        return used, other

    def set(self, side, network, state):
        getattr(self, side).ip("link", "set", network, state)

    def end(self, first="node"):
        """Ends both; returns the number of messages sent, those in the bag, the exit code and the report."""
        ended = self.recorder.stop() if first == "recorder" else None
        self.node.interrupt()
        done = self.node.done()
        sent = done["count"] if self.dds == "cyclone" else done["sent"]["/tick"][0]["count"]
        self.sent_later = done["later"] if self.dds == "cyclone" else done["sent"].get("/big", [{"count": 0}])[0]["count"]
        code, said = ended or self.recorder.stop()
        messages = messages_of(self.bag)
        self.got_later = messages.get("/big", [])
        return sent, messages["/tick"], code, said


@pytest.mark.parametrize(
    "lost, side, first", [("used", "here", "recorder"), ("used", "here", "node"), ("used", "there", "node"), ("other", "here", "node")]
)
@pytest.mark.parametrize("dds", ["fastdds", "cyclone"])
def test_a_reliable_publisher_goes_on_over_the_other_network(bare_hosts, world, tmp_path, dds, lost, side, first):
    recording = Recording(bare_hosts, world, tmp_path, dds)
    used, other = recording.used()
    recording.set(side, used if lost == "used" else other, "down")
    recording.wait_for(100)
    sent, got, code, said = recording.end(first)
    assert code == 0 and "lost: none" in said and len(set(got)) == len(got), said
    # The recorder that ends first does not have what comes after.
    assert len(got) == sent or first == "recorder", (len(got), sent, said)


@pytest.mark.parametrize("dds", ["fastdds", "cyclone"])
def test_what_a_best_effort_publisher_sends_meanwhile_is_counted(bare_hosts, world, tmp_path, dds):
    recording = Recording(bare_hosts, world, tmp_path, dds, "best_effort")
    used, _ = recording.used()
    recording.set("here", used, "down")
    recording.wait_for(100)
    sent, got, code, said = recording.end()
    lost = json.loads(world.run("info", "--json", recording.bag).stdout)["lost"]
    # The other network may take over before the next message.
    assert code == (3 if lost else 0) and len(got) + lost == sent, (len(got), sent, said)


@pytest.mark.parametrize("dds", ["fastdds", "cyclone"])
def test_networks_that_come_and_go_in_turn_send_each_byte_once(bare_hosts, world, tmp_path, dds):
    recording = Recording(bare_hosts, world, tmp_path, dds)
    used, other = recording.used()
    for times, lost in enumerate((used, other, used), 1):
        recording.set("here", lost, "down")
        recording.wait_for(60)
        recording.set("here", lost, "up")
        until(lambda: sum("which has come" in line for line in recording.recorder.lines) == times, f"{lost} again")  # noqa: B023
        recording.wait_for(20)
        sent = recording.wait_for(40)
        assert sum(sent.values()) < MOST_SENT["reliable"], sent
    sent, got, code, said = recording.end()
    assert code == 0 and len(got) == sent == len(set(got)), (len(got), sent, said)


@pytest.mark.parametrize("wait_s", [0, 0.3, 0.6])
@pytest.mark.parametrize("dds", ["fastdds", "cyclone"])
def test_a_publisher_that_leaves_when_its_network_has_gone_is_whole_or_its_end_is_not_known(bare_hosts, world, tmp_path, dds, wait_s):
    recording = Recording(bare_hosts, world, tmp_path, dds)
    used, _ = recording.used()
    recording.set("here", used, "down")
    time.sleep(wait_s)
    sent, got, code, said = recording.end()
    assert code == (0 if len(got) == sent else 3) or code == 3 and "end unknown" in said, (len(got), sent, said)


@pytest.mark.parametrize("side", ["here", "there"])
@pytest.mark.parametrize("dds", ["fastdds", "cyclone"])
def test_a_publisher_that_is_created_after_its_network_has_gone_is_recorded(bare_hosts, world, tmp_path, dds, side):
    recording = Recording(bare_hosts, world, tmp_path, dds)
    used, _ = recording.used()
    recording.set(side, used, "down")
    # Three seconds.
    recording.wait_for(60)
    recording.node.process.send_signal(signal.SIGUSR1)
    recording.node.wait_for("later")
    recording.recorder.wait_until_says("recording /big")
    recording.wait_for(100)
    sent, got, code, said = recording.end()
    assert code == 0 and "lost: none" in said and len(got) == sent, (len(got), sent, said)
    later = recording.sent_later
    assert 20 <= later == len(recording.got_later), (later, len(recording.got_later), said)


def bag_of_ticks(folder, world):
    """Twenty messages a second, the n-th with the text n."""
    folder.mkdir()
    with open(folder / "bag_0.mcap", "wb") as stream:
        writer = McapWriter(stream)
        writer.start("ros2", "test")
        schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"string data\n")
        channel = writer.register_channel("/tick", "cdr", schema)
        for number in range(PLAYED):
            time_ns = 10**18 + number * 50_000_000
            writer.add_message(channel, time_ns, cdr_string(str(number).ljust(BYTES)), time_ns)
        writer.finish()
    assert world.run("reindex", folder).returncode == 0


@pytest.mark.parametrize("side, lost", [("here", "used"), ("there", "used"), ("here", "other")])
@pytest.mark.parametrize("dds", ["fastdds", "cyclone"])
def test_what_is_played_goes_on_over_the_other_network(bare_hosts, world, tmp_path, dds, side, lost):
    here, there = bare_hosts(2)
    for name, (address, other) in NETWORKS.items():
        here.link(name, address, there, other)
    bag_of_ticks(tmp_path / "bag", world)
    if dds == "cyclone":
        listener = there.node("cyclone_node.py", {"subscribe": "/tick", "interface": list(NETWORKS), "expect": PLAYED})
    else:
        plan = {"topic": "/tick", "type": "std_msgs/msg/String", "qos": {"depth": 1000}}
        listener = there.node("listener.py", {"subscriptions": [plan], "expect": {"/tick": PLAYED}}, SUBNET)
    listener.wait_for("ready")
    before = {name: here.sent_bytes(name) for name in NETWORKS}
    player = here.holdall("play", tmp_path / "bag", "--disable-keyboard-controls", "--wait-for-subscribers", "1", **SUBNET)
    sent = lambda: {name: here.sent_bytes(name) - before[name] for name in NETWORKS}  # noqa: E731
    until(lambda: sum(sent().values()) > 30 * BYTES, "messages on the wire")
    used, other = sorted(NETWORKS, key=lambda name: -sent()[name])
    host = here if side == "here" else there
    host.ip("link", "set", used if lost == "used" else other, "down")
    code, said = player.wait()
    # What was acknowledged is in its queue.
    with contextlib.suppress(subprocess.TimeoutExpired):
        listener.process.wait(20)
    listener.interrupt()
    heard = listener.done()
    if dds == "cyclone":
        assert heard["values"] == list(range(PLAYED)), said
    else:
        whole = hashlib.md5(b"".join(cdr_string(str(number).ljust(BYTES)) for number in range(PLAYED))).hexdigest()
        assert (heard["received"]["/tick"]["count"], heard["received"]["/tick"]["md5"]) == (PLAYED, whole), said
    assert code == 0, said
