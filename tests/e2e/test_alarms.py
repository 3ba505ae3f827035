"""Alarms of a recording: real nodes fall silent and lose messages, and commands, metrics, diagnostics, report and bag say so."""

import json
import shlex
import struct
import signal
import time

from conftest import messages_of
from mcap.reader import make_reader
from served import ask, served, until
from test_account import by_prometheus

STRING = "std_msgs/msg/String"
# More than a tiny cache takes while the disk writes.
FLOOD = {"topic": "/flood", "type": "std_msgs/msg/UInt8MultiArray", "size": 60_000, "count": 3000, "hash": False, "qos": {"depth": 5}}
TINY = ["--max-cache-size", "64KiB", "--cache-policy", "drop-new"]
# One line for each command: state, kind, topic, text twice (`{}` is the text).
NAMES = ("STATE", "KIND", "TOPIC", "TEXT", "SINCE")
OK, WARN, ERROR, STALE = range(4)


def command_into(log):
    words = [f'"$HOLDALL_ALARM_{name}"' for name in NAMES]
    return f"printf '%s|%s|%s|%s|%s|%s|%s\\n' {' '.join(words)} {{}} \"$HOLDALL_BAG\" >> {shlex.quote(str(log))}"


def reported(log):
    return [line.split("|") for line in log.read_text().splitlines()] if log.exists() else []


def metrics(address):
    code, text = ask(address, "GET", "/metrics")
    assert code == 200, text
    return by_prometheus(text)


def markers(bag):
    """The markers in a bag's files as pip mcap reads them: name -> time."""
    found = {}
    for file in sorted(bag.glob("*.mcap")):
        with open(file, "rb") as stream:
            for record in make_reader(stream).iter_metadata():
                if record.name == "holdall:marker":
                    found[record.metadata["name"]] = int(record.metadata["time"])
    return found


def last_sent(log):
    """When the sender handed over its last message, in ns since 1970, and how many there were: as its own log has it."""
    records = log.read_bytes()
    number, moment = struct.unpack("<Qd", records[-16:])
    return int((time.time() - time.monotonic() + moment) * 1e9), number + 1


def report_of(said):
    return json.loads(said[said.index("{\n") : said.rindex("}") + 1])


def test_a_topic_that_falls_silent_and_comes_back_is_one_alarm(world):
    log, sent = world.folder / "reported", world.folder / "sent"
    talker = world.talker(
        {"topic": "/scan", "type": STRING, "count": 100, "rate_hz": 50, "log": str(sent)},
        {"topic": "/alive", "type": STRING, "count": None, "rate_hz": 20},
        later=[{"topic": "/scan", "type": STRING, "count": None, "rate_hz": 50}],
    )
    talker.wait_for("ready")
    expression = "/scan silent 3s"
    bag = world.folder / "bag"
    recorder = world.holdall(
        "record", "-a", "-o", bag, "--json", "--alarm", expression, "--alarm", "/alive rate < 2", "--on-alarm", command_into(log), "--web", "127.0.0.1:0"
    )
    address = served(recorder)
    until(lambda: metrics(address).get("holdall_received_hertz", {}).get((("topic", "/alive"),), 0) > 10, "a rate")
    values = metrics(address)
    assert values["holdall_alarms_active"][(("kind", "silent"),)] == 0 and not reported(log)
    assert list(values["holdall_build_info"].values()) == [1]
    lines = until(lambda: reported(log), "a command")
    state, kind, topic, text, since, word, where = lines[0]
    assert (state, kind, topic, text, word, where) == ("begin", "silent", "/scan", expression, expression, str(bag))
    end, count = last_sent(sent)
    assert count == 100 and 3e9 <= int(since) - end < 10e9, (since, end)
    values = metrics(address)
    assert values["holdall_alarms_active"][(("kind", "silent"),)] == 1
    assert values["holdall_alarms_total"][(("kind", "silent"),)] == 1
    assert values["holdall_alarm_topic"] == {(("kind", "silent"), ("topic", "/scan")): 1}
    # Counters are read twice a second.
    assert values["holdall_last_message_age_seconds"][(("topic", "/scan"),)] >= 2.5
    assert values["holdall_last_message_age_seconds"][(("topic", "/alive"),)] < 3
    until(lambda: expression in json.loads(ask(address, "GET", "/api/status")[1])["status"]["alarms"], "an alarm on the page")
    talker.process.send_signal(signal.SIGUSR1)
    lines = until(lambda: len(reported(log)) > 1 and reported(log), "the end")
    assert [line[:4] for line in lines] == [["begin", "silent", "/scan", expression], ["end", "silent", "/scan", expression]], lines
    assert metrics(address)["holdall_alarms_active"][(("kind", "silent"),)] == 0
    code, said = recorder.stop()
    assert code == 0, said
    assert f"alarm: {expression}" in said and f"alarm over: {expression}" in said, said
    found = markers(bag)
    assert list(found) == [f"alarm: {expression}", f"alarm over: {expression}"], found
    assert 3e9 <= found[f"alarm: {expression}"] - end < 10e9
    alarms = report_of(said)["alarms"]
    assert alarms["begun"] == {"silent": 1} and not alarms["active"] and alarms["ended"][0]["text"] == expression, alarms
    assert len(reported(log)) == 2


def test_losses_are_an_alarm_without_a_request_and_the_end_waits_for_its_command(world):
    log = world.folder / "reported"
    talker = world.talker(FLOOD, linger=True)
    talker.wait_for("ready")
    recorder = world.holdall("record", "-a", "-o", world.folder / "bag", "--json", *TINY, "--on-alarm", "sleep 1; " + command_into(log))
    talker.wait_for("done")
    recorder.wait_until_says("lost so far")
    code, said = recorder.stop()
    assert code == 3, said
    begun = [line for line in reported(log) if line[0] == "begin"]
    assert [line[1:3] for line in begun] == [["loss", "/flood"]], (reported(log), said)
    report = report_of(said)
    assert report["lost"] > 0 and report["alarms"]["active"][0]["kind"] == "loss", report["alarms"]


def test_expressions_that_cannot_be_watched_are_refused(world):
    for flags, said in (
        (["--alarm", "/scan: x > 1"], "an alarm is silent or rate"),
        (["--alarm", "/scan quiet"], '--alarm "/scan quiet"'),
        (["--on-alarm", " "], "--on-alarm needs a command"),
    ):
        refused = world.run("record", "-a", "-o", world.folder / "bag", *flags)
        assert refused.returncode == 2 and said in refused.stderr, refused.stderr
        assert not (world.folder / "bag").exists()


def test_a_profile_has_alarms(world):
    profile = world.folder / "robot.yaml"
    profile.write_text("all: true\nalarm: ['/scan silent 2s', '/odom rate < 5']\non-alarm: 'true'\ndiagnostics: true\n")
    printed = world.run("record", "-a", "--alarm", "/scan silent 2s", "--on-alarm", "true", "--diagnostics", "--print-profile")
    assert "alarm: \"/scan silent 2s\"" in printed.stdout.replace("'", '"'), printed.stdout
    recorder = world.holdall("record", "--profile", profile, "-o", world.folder / "bag")
    recorder.wait_until_says("alarm /odom rate < 5: its topic has not appeared")
    assert recorder.stop()[0] == 0


class Diagnostics:
    """What a real rclpy node hears on /diagnostics, as another CDR library reads it."""

    def __init__(self, world, further=()):
        self.names = ["recording", "losses", "silent topics", "disk", *further]
        self.node = world.events_listener({"topic": "/diagnostics", "type": "diagnostic_msgs/msg/DiagnosticArray"})
        self.node.wait_for("ready")

    def next(self):
        from ros2_pyterfaces.cyclone.diagnostic_msgs.msg import DiagnosticArray

        array = DiagnosticArray.deserialize(bytes.fromhex(self.node.wait_for("heard")["data"]))
        stamp = array.header.stamp.sec * 1_000_000_000 + array.header.stamp.nanosec
        by_name = {}
        for status in array.status:
            node, _, name = status.name.partition(": ")
            assert node == "rosbag2_recorder"
            level = status.level if isinstance(status.level, int) else ord(status.level)
            by_name[name] = (level, status.message, {pair.key: pair.value for pair in status.values})
        assert list(by_name) == self.names
        return stamp, by_name

    def until(self, holds):
        for _ in range(60):
            stamp, status = self.next()
            if holds(status):
                return stamp, status
        raise AssertionError(status)


def test_a_node_hears_diagnostics_whose_levels_follow_what_happens(world):
    sent, flood = world.folder / "sent", world.folder / "flood"
    talker = world.talker(
        {"topic": "/scan", "type": STRING, "count": 400, "rate_hz": 50, "log": str(sent)},
        {"topic": "/alive", "type": STRING, "count": None, "rate_hz": 20},
        later=[{**FLOOD, "log": str(flood)}],
    )
    talker.wait_for("ready")
    bag = world.folder / "bag"
    watched = ["--alarm", "/scan silent 3s", "--alarm", "/never silent 3s"]
    recorder = world.holdall("record", "-a", "-o", bag, "--json", "--diagnostics", *TINY, *watched)
    diagnostics = Diagnostics(world)
    stamp, status = diagnostics.until(lambda status: status["recording"][0] == OK)
    assert abs(stamp - time.time_ns()) < 10e9
    assert status["losses"][:2] == (OK, "none known") and status["disk"][0] == OK, status
    assert status["silent topics"][:2] == (STALE, "/never was never heard"), status
    assert int(status["recording"][2]["recorded"]) > 0 and int(status["disk"][2]["available_bytes"]) > 0
    stamp, status = diagnostics.until(lambda status: status["silent topics"][0] == ERROR)
    assert status["silent topics"][1] == "/scan silent 3s"
    end, _ = last_sent(sent)
    assert 3e9 <= stamp - end < 12e9, (stamp, end)
    assert status["losses"][0] == OK
    talker.process.send_signal(signal.SIGUSR1)
    _, status = diagnostics.until(lambda status: status["losses"][0] == ERROR)
    assert status["losses"][1].startswith("/flood: "), status["losses"]
    # All that the sender has sent is stored or lost: what monitors hear is what its own log shows.
    until(lambda: last_sent(flood)[1] == FLOOD["count"], "the end of the flood")
    lost = [0]
    while len(lost) < 5 or len(set(lost[-4:])) > 1:
        lost.append(int(diagnostics.next()[1]["losses"][2]["/flood"]))
    # Two in a row are one second apart.
    first, second = diagnostics.next()[0], diagnostics.next()[0]
    assert 0.5e9 < second - first < 5e9
    code, said = recorder.stop()
    assert code == 3, said
    stored = messages_of(bag)
    assert len(stored["/flood"]) + lost[-1] == FLOOD["count"] and lost[-1] > 0, (len(stored["/flood"]), lost)
    assert len(stored["/scan"]) == 400
    assert "/diagnostics" not in stored, "a recorder does not record itself"


def test_a_playback_and_a_folder_have_metrics(world):
    talker = world.talker({"topic": "/scan", "type": STRING, "count": 50, "rate_hz": 50})
    recorder = world.holdall("record", "-a", "-o", world.folder / "bags" / "lab")
    talker.done()
    assert recorder.stop()[0] == 0
    player = world.holdall("play", world.folder / "bags" / "lab", "--web", "127.0.0.1:0", "-r", "0.1")
    address = served(player)
    values = until(lambda: metrics(address).get("holdall_play_published_messages_total", {}).get((), 0) > 0 and metrics(address), "messages")
    assert values["holdall_play_rate"] == {(): 0.1} and values["holdall_build_info"]
    server = world.holdall("web", world.folder / "bags", "127.0.0.1:0")
    values = metrics(served(server, "bags: "))
    assert values["holdall_running"][(("kind", "playback"),)] >= 1 and values["holdall_build_info"]
    assert server.stop()[0] == 0
    player.stop()
