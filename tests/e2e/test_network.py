"""What the recorder does to the network, and what the network does to it: in network namespaces of the test's own, with real nodes.

They need root, or a system that lets its users make namespaces; else the tests are skipped.
"""

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import conftest
import pytest
from conftest import DEADLINE_S, HOLDALL, NODES, Node, Program

PAYLOAD_BYTES = 500_000
MESSAGES = 40
# Bytes on the wire for each byte of payload: 1.01 on loopback, 1.02 on a network. What a busy machine's socket buffer drops of a reliable publisher is sent
# again; a best-effort one sends nothing twice. With two addresses it would be 2.0.
MOST_SENT = {"best_effort": 1.05, "reliable": 1.3}


class Host:
    """A network namespace with loopback, as a host of its own. Only root can make one; others make a user namespace first, which all hosts of a test share."""

    def __init__(self, world, first=None):
        self.world = world
        is_root = os.geteuid() == 0
        make = ("unshare", "-n") if is_root else ("unshare", "-rn") if first is None else (*first.enter("-U"), "unshare", "-n")
        self.keeper = subprocess.Popen(
            [*make, "sh", "-c", "echo made; exec sleep infinity"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        if self.keeper.stdout.readline() != "made\n":
            pytest.skip(f"no network namespace can be made: {self.keeper.stderr.read().strip()}")
        self.namespaces = ("-n",) if is_root else ("-U", "-n")
        self.ip("link", "set", "lo", "up")

    def enter(self, *namespaces):
        keep = ("--preserve-credentials",) if "-U" in namespaces else ()
        return ("nsenter", "-t", str(self.keeper.pid), *namespaces, *keep)

    def ip(self, *arguments):
        subprocess.run(self.inside("ip", *arguments), check=True, capture_output=True, text=True)

    def link(self, name, address, other=None, other_address=None, other_name=None):
        """An interface with an address; with another host at its other end."""
        if other is None:
            self.ip("link", "add", name, "type", "veth", "peer", "name", f"{name}-far")
            self.ip("link", "set", f"{name}-far", "up")
        else:
            other_name = other_name or name
            self.ip("link", "add", name, "type", "veth", "peer", "name", other_name, "netns", str(other.keeper.pid))
            other.ip("addr", "add", other_address, "dev", other_name)
            other.ip("link", "set", other_name, "up")
        self.ip("addr", "add", address, "dev", name)
        self.ip("link", "set", name, "up")
        # The system takes up to a second to see that both ends are up.
        deadline = time.monotonic() + DEADLINE_S
        for host, end in ((self, name), (other or self, other_name if other else f"{name}-far")):
            while "NO-CARRIER" in subprocess.run(host.inside("ip", "link", "show", end), check=True, capture_output=True, text=True).stdout:
                assert time.monotonic() < deadline, f"{end} has no carrier"
                time.sleep(0.02)

    def inside(self, *command):
        return (*self.enter(*self.namespaces), *command)

    def holdall(self, *arguments, **env):
        program = Program(arguments, {**self.world.env, **env}, program=self.inside(HOLDALL))
        return self.world._keep(program)

    def record(self, *arguments, **env):
        return self.holdall("record", "--disable-keyboard-controls", *arguments, **env)

    def talker(self, *publishers, env=(), **plan):
        return self.node("talker.py", {"publishers": list(publishers), **plan}, env)

    def node(self, script, plan, env=()):
        return self.world._keep(Node(script, plan, {**self.world.env, **dict(env)}, prefix=self.inside()))

    def sent_bytes(self, interface):
        text = subprocess.run(self.inside("cat", "/proc/net/dev"), check=True, capture_output=True, text=True).stdout
        line = next(line for line in text.splitlines() if line.strip().startswith(f"{interface}:"))
        return int(line.split(":")[1].split()[8])

    def remove(self):
        self.keeper.kill()
        self.keeper.wait(DEADLINE_S)


@pytest.fixture
def bare_hosts(world):
    """Makes hosts with loopback only."""
    made = []

    def make(count):
        for _ in range(count):
            made.append(Host(world, made[0] if made else None))
        return made

    yield make
    for process in world.started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait(DEADLINE_S)
    for host in reversed(made):
        host.remove()


@pytest.fixture
def hosts(bare_hosts):
    """Makes one or two hosts; each has an address on one common network: 10.88.0.1, 10.88.0.2."""

    def make(count):
        made = bare_hosts(count)
        made[0].link("eth0", "10.88.0.1/24", *((made[1], "10.88.0.2/24") if count == 2 else ()))
        for host in made:
            host.ip("route", "add", "default", "dev", "eth0")
        return made

    return make


def big(topic, count=MESSAGES, **qos):
    return {"topic": topic, "type": "std_msgs/msg/UInt8MultiArray", "size": PAYLOAD_BYTES, "count": count, "rate_hz": 20, "qos": {"depth": 100, **qos}}


@pytest.mark.parametrize("discovery_range", ["LOCALHOST", "SUBNET"])
@pytest.mark.parametrize("reliability", ["reliable", "best_effort"])
def test_a_publisher_of_this_host_sends_each_byte_once(hosts, tmp_path, discovery_range, reliability):
    (host,) = hosts(1)
    env = {"ROS_AUTOMATIC_DISCOVERY_RANGE": discovery_range}
    recorder = host.record("--topics", "/big", "-o", tmp_path / "bag", **env)
    recorder.wait_until_says("Listening for topics")
    # Before the first message, so that none is left out; discovery is a thousandth of the payload.
    before = host.sent_bytes("lo")
    talker = host.talker(big("/big", reliability=reliability), env=env, wait_for_subscriptions=1)
    talker.done()
    sent = host.sent_bytes("lo") - before
    code, said = recorder.stop()
    assert code in (0, 3) and "recorded" in said, said
    payload = MESSAGES * PAYLOAD_BYTES
    assert payload <= sent < MOST_SENT[reliability] * payload, f"{sent / payload:.3f} bytes on loopback for each byte of payload"


def test_a_publisher_of_another_host_sends_nothing_to_its_own_loopback(hosts, tmp_path):
    here, there = hosts(2)
    env = {"ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET"}
    recorder = here.record("--topics", "/local", "/remote", "-o", tmp_path / "bag", **env)
    recorder.wait_until_says("Listening for topics")
    talkers = [
        here.talker(big("/local"), env=env, wait_for_subscriptions=1),
        there.talker(big("/remote"), env=env, wait_for_subscriptions=1),
    ]
    for talker in talkers:
        talker.done()
    code, said = recorder.stop()
    assert code in (0, 3) and "of 2 topics" in said, said
    payload = MESSAGES * PAYLOAD_BYTES
    sent = {name: host.sent_bytes(interface) / payload for name, host, interface in
            [("own loopback", here, "lo"), ("its loopback", there, "lo"), ("its network", there, "eth0")]}
    assert sent["its loopback"] < 0.1 and sent["own loopback"] < 1.3 and sent["its network"] < 1.3, sent


def test_nodes_of_this_host_are_recorded_while_the_network_goes_and_comes(hosts, tmp_path):
    (host,) = hosts(1)
    env = {"ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET"}
    recorder = host.record("--topics", "/tick", "-o", tmp_path / "bag", **env)
    recorder.wait_until_says("Listening for topics")
    tick = {"topic": "/tick", "type": "std_msgs/msg/String", "count": None, "rate_hz": 20, "qos": {"depth": 100}}
    talker = host.talker(tick, env=env, wait_for_subscriptions=1)
    talker.wait_for("matched")
    host.ip("link", "set", "eth0", "down")
    # Longer than the lease of 10 s after which DDS gives up a participant that it does not hear.
    deadline = time.monotonic() + 13
    while time.monotonic() < deadline:
        assert recorder.process.poll() is None
        time.sleep(0.1)
    host.ip("link", "set", "eth0", "up")
    talker.interrupt()
    sent = talker.done()["sent"]["/tick"][0]["count"]
    code, said = recorder.stop()
    assert code == 0 and "lost: none" in said, said
    assert f"recorded {sent:_} messages".replace("_", " ") in said, (sent, said)


def test_a_peer_whose_name_has_no_address_keeps_nothing_else_from_being_recorded(world, tmp_path):
    talker = world.talker({"topic": "/tick", "type": "std_msgs/msg/String", "count": 5, "rate_hz": 20}, wait_for_subscriptions=1)
    world.env["ROS_STATIC_PEERS"] = "no-such-robot.invalid;localhost"
    recorder = world.holdall("record", "--topics", "/tick", "-o", tmp_path / "bag", "--disable-keyboard-controls")
    recorder.wait_until_says("no-such-robot.invalid has no address")
    talker.done()
    code, said = recorder.stop()
    assert code == 0 and "recorded 5 messages" in said, said
    assert said.count("no-such-robot.invalid has no address") == 1, said


def test_a_peer_is_heard_once_its_name_has_an_address(hosts, tmp_path):
    here, there = hosts(2)
    names, servers = tmp_path / "hosts", tmp_path / "resolv.conf"
    names.write_text("127.0.0.1 localhost\n")
    servers.write_text("nameserver 127.0.0.1\n")
    # Names are those of a file of the test's own, and no name server answers.
    with_names = ("unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/hosts && mount --bind "$1" /etc/resolv.conf && shift && exec "$@"', str(names), str(servers))

    def record(bag, **env):
        arguments = ["record", "--topics", "/tick", "-o", tmp_path / bag, "--disable-keyboard-controls"]
        env = {**here.world.env, "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST", **env}
        recorder = here.world._keep(Program(arguments, env, program=here.inside(*with_names, HOLDALL)))
        recorder.wait_until_says("Listening for topics")
        return recorder

    recorder = record("named", ROS_STATIC_PEERS="robot")
    without_peers = record("unnamed")
    recorder.wait_until_says("robot has no address")
    tick = {"topic": "/tick", "type": "std_msgs/msg/String", "count": 5, "rate_hz": 20}
    talker = there.talker(tick, env={"ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET"}, wait_for_subscriptions=1)
    talker.wait_for("ready")
    # The same file, as it is what the recorder sees.
    with open(names, "a") as file:
        file.write("10.88.0.2 robot\n")
    talker.done()
    code, said = recorder.stop()
    assert code == 0 and "recorded 5 messages" in said, said
    # Nothing but the peer's name leads there.
    code, said = without_peers.stop()
    assert "recorded 0 messages" in said, (code, said)


@pytest.mark.parametrize(
    "uri",
    [
        "<Discovery><Peers><Peer address='no-such-robot.invalid'/></Peers></Discovery>",
        "<General><Transport>udp6</Transport></General>",
        "<General><Transport>tcp</Transport></General>",
        "<General><Interfaces><NetworkInterface name='nothing0'/></Interfaces></General>",
        "<General><Interfaces><NetworkInterface address='1.2.3.4'/><NetworkInterface name='lo'/></Interfaces></General>",
        "<General><ExternalNetworkAddress>nonsense</ExternalNetworkAddress></General>",
        "<Discovery><SPDPMulticastAddress>10.0.0.1</SPDPMulticastAddress></Discovery>",
        "<Discovery><ParticipantIndex>99999</ParticipantIndex></Discovery>",
        "<Internal><SocketReceiveBufferSize min='900GB'/></Internal>",
        "<Nonsense",
        "<Nonsense/>",
        "file:///no/such/file.xml",
        "/dev/null",
        "/",
        "%s%n\x01",
    ],
)
def test_no_configuration_of_dds_crashes_the_recorder(world, tmp_path, uri):
    world.env["CYCLONEDDS_URI"] = uri
    recorder = world.holdall("record", "-a", "-o", tmp_path / "bag", "--disable-keyboard-controls")
    deadline = time.monotonic() + DEADLINE_S
    while recorder.process.poll() is None and not any("Listening" in line for line in recorder.lines):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    code, said = recorder.stop(signal.SIGINT)
    # Either it records with what Cyclone makes of it, or it says what is wrong and leaves nothing.
    assert code in (0, 1, 2), (code, said)
    if code != 0:
        assert "holdall:" in said and not (tmp_path / "bag").exists(), said


def receive_buffers(pid):
    """Bytes that the kernel allows to wait in each UDP socket of a program, by the kernel's own list; it counts twice what was asked for."""
    lines = subprocess.run(["ss", "-uanpmO"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [int(line.split(",rb")[1].split(",")[0]) // 2 for line in lines if f"pid={pid}," in line]


@pytest.mark.parametrize("uri", ["<Internal><SocketReceiveBufferSize max='150000B'/></Internal>", None])
def test_the_users_receive_buffer_is_kept(world, tmp_path, uri):
    if uri is not None:
        world.env["CYCLONEDDS_URI"] = uri
    recorder = world.holdall("record", "-a", "-o", tmp_path / "bag", "--disable-keyboard-controls")
    recorder.wait_until_says("Listening")
    buffers = receive_buffers(recorder.process.pid)
    code, said = recorder.stop()
    assert code == 0 and buffers, said
    limit = int(open("/proc/sys/net/core/rmem_max").read())
    if uri is not None:
        assert max(buffers) <= 150_000 and "DDS sockets can hold" not in said, (buffers, said)
    else:
        # Root gets what it asks for, and others as much as the system allows, which is said.
        assert max(buffers) > limit or "DDS sockets can hold" in said or limit >= 64 << 20, (buffers, said)


@pytest.mark.parametrize("descriptors", [8, 10, 11, 12, 13, 14, 16, 17, 20, 24, 30, 40])
def test_too_few_descriptors_are_a_sentence_and_no_empty_folder(world, tmp_path, descriptors):
    limited = ("prlimit", f"--nofile={descriptors}", HOLDALL)
    recorder = world._keep(
        Program(["record", "-a", "-o", tmp_path / "bag", "--disable-keyboard-controls"], world.env, program=limited)
    )
    deadline = time.monotonic() + DEADLINE_S
    while recorder.process.poll() is None and not any("Listening" in line for line in recorder.lines):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    code, said = recorder.stop()
    assert code in (1, 2), (code, said)
    assert "ulimit -n" in said and not (tmp_path / "bag").exists(), said


def test_a_host_without_any_interface_is_a_sentence(hosts, world, tmp_path):
    (host,) = hosts(1)
    host.ip("link", "set", "eth0", "down")
    host.ip("link", "set", "lo", "down")
    recorder = host.record("-a", "-o", tmp_path / "bag")
    code, said = recorder.wait()
    assert code in (1, 2) and "network interface" in said and not (tmp_path / "bag").exists(), (code, said)


def data_ports(process, domain):
    """The ports on which a process receives the messages of this ROS domain from its host; discovery has others (RTPS 2.5, 9.6.2.3)."""
    own = {link.resolve().name for link in Path(f"/proc/{process.pid}/fd").iterdir()}
    lines = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
    places = {int(line[1].split(":")[1], 16) - 7400 - 250 * domain for line in lines if f"socket:[{line[9]}]" in own}
    return [7400 + 250 * domain + place for place in places if 11 <= place < 250 and place % 2 == 1]


@contextlib.contextmanager
def flooded(ports):
    """Packets that take their receiver longer than their sender: 15 000 empty submessages (INFO_TS) each."""
    packet = b"RTPS\2\1\1\x10" + bytes(12) + b"\x09\x03\0\0" * 15_000
    is_over = threading.Event()

    def flood():
        with socket.socket(type=socket.SOCK_DGRAM) as sender:
            while not is_over.is_set():
                for port in ports:
                    sender.sendto(packet, ("127.0.0.1", port))

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_flood_on_one_socket_keeps_no_participant_from_being_found(world, tmp_path):
    recorder = world.holdall("record", "--topics", "/tick", "-o", tmp_path / "bag", "--disable-keyboard-controls")
    recorder.wait_until_says("Listening for topics")
    ports = data_ports(recorder.process, int(world.env["ROS_DOMAIN_ID"]))
    assert ports
    with flooded(ports):
        talker = world.talker({"topic": "/tick", "type": "std_msgs/msg/String", "count": 300, "rate_hz": 100, "qos": {"depth": 300}})
        talker.wait_for("matched", DEADLINE_S)
    sent = talker.done()["sent"]["/tick"][0]
    code, said = recorder.stop()
    assert code == 0 and "lost: none" in said, said
    got = conftest.messages_of(tmp_path / "bag")["/tick"]
    assert hashlib.md5(b"".join(got)).hexdigest() == sent["md5"], (len(got), sent)


def test_the_account_stays_sane_under_mutated_packets(hosts, world, tmp_path):
    (host,) = hosts(1)
    bag = tmp_path / "bag"
    recorder = host.record("--topics", "/tick", "/calm", "-o", bag)
    recorder.wait_until_says("Listening for topics")
    plan = {"type": "std_msgs/msg/String", "count": None, "rate_hz": 100, "qos": {"depth": 1000}}
    talker = host.talker({"topic": "/tick", **plan}, wait_for_subscriptions=1)
    talker.wait_for("matched")
    mutator = subprocess.run(
        host.inside(sys.executable, str(NODES / "rtps_mutator.py"), "100000", "5"), capture_output=True, text=True, timeout=300
    )
    assert '"sent": 100000' in mutator.stdout, mutator.stdout + mutator.stderr
    # A publisher that nobody forged is recorded whole beside the other one.
    calm = host.talker({"topic": "/calm", **plan, "count": 100}, wait_for_subscriptions=1)
    calm.done()
    talker.interrupt()
    sent = talker.done()["sent"]["/tick"][0]["count"]
    code, said = recorder.stop()
    assert code in (0, 3), said
    assert said.count("malformed") <= 5, said
    audit = world.run("audit", "--json", bag)
    assert audit.returncode in (0, 3), audit.stdout + audit.stderr
    told = json.loads(audit.stdout)
    assert told["topics"]["/calm"]["recorded"] == 100, told
    tick = told["topics"]["/tick"]
    lost = sum(tick["lost_by_stage"].values())
    # Forged numbers can look like real ones nearby; those that no publisher reaches add one each at most.
    assert lost < 1_000_000_000, tick
    assert tick["recorded"] <= 2 * sent + 100_000, (sent, tick)


def messages_of(world, bag):
    """Messages in a bag that is being recorded."""
    return json.loads(world.run("info", "--json", bag).stdout)["message_count"]


@pytest.mark.parametrize("reliability", ["reliable", "best_effort"])
def test_forged_numbers_stop_no_publisher_and_leave_the_rest_of_its_account_right(hosts, world, tmp_path, reliability):
    from mcap.reader import make_reader

    (host,) = hosts(1)
    bag = tmp_path / "bag"
    recorder = host.record("--topics", "/tick", "-o", bag, "--stats-max-publishing-rate", "0")
    recorder.wait_until_says("Listening for topics")
    qos = {"depth": 1000, "reliability": reliability}
    talker = host.talker(
        {"topic": "/tick", "type": "std_msgs/msg/String", "count": None, "rate_hz": 100, "qos": qos}, wait_for_subscriptions=1
    )
    talker.wait_for("matched")
    mutator = subprocess.run(
        host.inside(sys.executable, str(NODES / "rtps_mutator.py"), "3000", "7", "far"), capture_output=True, text=True, timeout=300
    )
    assert '"sent": 3000' in mutator.stdout, mutator.stdout + mutator.stderr

    def numbers():
        with open(bag / "bag_0.mcap", "rb") as stream:
            return {message.sequence for _, _, message in make_reader(stream).iter_messages(topics=["/tick"])}

    # Once the forger is silent the recorder hears what is real again.
    deadline = time.monotonic() + DEADLINE_S
    recorded = messages_of(world, bag)
    while messages_of(world, bag) < recorded + 300:
        assert time.monotonic() < deadline, "nothing that is real was recorded after the forged packets"
        time.sleep(0.1)
    talker.interrupt()
    sent = talker.done()["sent"]["/tick"][0]["count"]
    code, said = recorder.stop()
    assert code == 3, said
    tick = json.loads(world.run("audit", "--json", bag).stdout)["topics"]["/tick"]
    # Forged messages are in the bag, with numbers that this publisher never had.
    real = {number for number in numbers() if number <= sent}
    lost = sum(count for stage, count in tick["lost_by_stage"].items() if stage != "not_believable")
    assert tick["lost_by_stage"]["not_believable"] > 0, tick
    assert len(real) + lost + tick.get("sent_before_match", 0) == sent, (len(real), sent, tick)
    assert set(range(sent - 90, sent + 1)) <= real, (sent, sorted(set(range(1, sent + 1)) - real)[-5:])
