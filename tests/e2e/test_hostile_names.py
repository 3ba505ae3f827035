"""Names of live nodes that would act on a terminal: neither log lines nor tables nor reports write them raw, over any transport."""

import json
import socket
import sys
import time

from conftest import DEADLINE_S, NODES, cdr_string
from test_iceoryx2 import shm  # noqa: F401
from test_zenoh import DOMAIN, STRING_HASH, meeting  # noqa: F401

# C0 with an end of line, C1, changes of direction.
HOSTILE = "\x1b[31mRED\x1b]0;title\x07\nINJECTED\r\x9b2J\u202egnp\u2066\x7f"
ESCAPED = "\\u001b[31mRED\\u001b]0;title\\u0007\\nINJECTED\\r\\u009b2J\\u202egnp\\u2066\\u007f"
DIRECTIONS = "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"


def is_plain(*texts):
    """Nothing acts on a terminal, and no name began a line."""
    for line in (line for text in texts for line in text.split("\n")):
        acting = [letter for letter in line if (letter != "\t" and ord(letter) < 32) or 0x7F <= ord(letter) < 0xA0 or letter in DIRECTIONS]
        assert not acting and not line.startswith("INJECTED"), ascii(line)


def hostile_participant(world):
    node = world.program([sys.executable, str(NODES / "hostile_participant.py"), world.env["ROS_DOMAIN_ID"], HOSTILE])
    node.wait_until_says('"ready"')


def await_topics(world, received, known):
    """Until three messages of `received` came, and the topic `known` is in the status."""
    end = time.monotonic() + DEADLINE_S
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(str(world.folder / "control"))
        replies = control.makefile()
        while True:
            control.sendall(b'{"request": "status"}\n')
            topics = json.loads(replies.readline())["status"]["topics"]
            if all(topics.get(name, {}).get("received", 0) >= 3 for name in received) and known in topics:
                return
            assert time.monotonic() < end, ascii(topics)
            time.sleep(0.05)


def bag_is_plain(world, bag, *shown):
    """Every verb shows the bag in plain text; `shown` is in what `info -v` writes."""
    for verb in [("info", "-v"), ("info", "--json"), ("list", "topics"), ("check",), ("audit",), ("audit", "--json"), ("cat",)]:
        told = world.run(*verb, bag)
        is_plain(told.stdout, told.stderr)
        if verb == ("info", "-v"):
            for text in shown:
                assert text in told.stdout, told.stdout


def test_names_of_a_dds_participant_reach_neither_terminal_nor_log(world, terminal):
    hostile_participant(world)
    bag, control = world.folder / "bag", ("--control-socket", world.folder / "control")
    recorder = world.holdall("record", "-a", "-v", "-o", bag, *control)
    recorder.wait_until_says("Listening for topics")
    await_topics(world, ["/plain", "/typed"], "/topic" + HOSTILE)
    _, said = recorder.stop()
    is_plain(said)
    assert "/topic" + ESCAPED in said and "T" + ESCAPED in said, said
    bag_is_plain(world, bag, "Node: /" + ESCAPED + "/node" + ESCAPED, "Host: host" + ESCAPED, "T" + ESCAPED)
    told = world.run("play", "-v", bag)
    is_plain(told.stdout, told.stderr)

    # On a terminal our own colours and status lines are the only sequences.
    window = terminal("record", "-a", "-v", "-o", world.folder / "seen", *control, columns=200)
    window.wait_until_shows("Listening for topics")
    await_topics(world, ["/plain"], "/topic" + HOSTILE)
    window.interrupt()
    window.wait()
    assert ESCAPED in window.text, ascii(window.text)
    for sequence in ("\x1b[31mRED", "\x1b]0;", "\x9b", "\u202e", "\u2066", "\x7f", "\x07", "\nINJECTED"):
        assert sequence not in window.text, ascii(sequence)


def test_names_of_a_zenoh_node_reach_neither_terminal_nor_log(meeting):  # noqa: F811
    node = meeting.host(node="talker")
    name, there = "talker" + HOSTILE, f"@ros2_lv/{DOMAIN}/{node.opened['zid']}/7"
    node.do("token", key=f"{there}/8/MP/%/%/{name}/%chat{HOSTILE}/p::msg::dds_::T{HOSTILE}_/{STRING_HASH}/::,7:,:,:,,")
    node.do("token", key=f"{there}/9/MP/%/%/{name}/%broken{HOSTILE}/{HOSTILE}")
    node.advertise("/plain", by="plain")
    recorder = meeting.record("-a", "-v")
    node.do("await_subscription", topic="/plain")
    node.publish("/plain", cdr_string("x"))
    meeting.await_received("/plain", 1)
    recorder.wait_until_says("/chat")
    _, said = recorder.stop()
    is_plain(said)
    assert "/chat" + ESCAPED in said and "T" + ESCAPED in said, said
    bag_is_plain(meeting.world, meeting.world.folder / "bag", "/chat" + ESCAPED)


def test_names_of_iceoryx2_services_reach_neither_terminal_nor_log(shm):  # noqa: F811
    # What its names can hold.
    hostile = "\x1b[31mRED\x07\nINJECTED\r\x7f"
    recorder = shm.record("-a", "-v")
    attributes = {"ros_type": "p/msg/T" + hostile}
    peers = [shm.peer("publish", "Lidar" + hostile, count=50, rate_hz=50, stay=1, wait_for_subscriber=False)]
    peers.append(shm.peer("publish", "ros2://topics/camera", count=50, rate_hz=50, stay=1, wait_for_subscriber=False, attributes=attributes))
    for peer in peers:
        peer.done()
    _, said = recorder.stop()
    is_plain(said)
    # iceoryx2 cannot open the first service by its name, which the log has; it escapes the second one's type itself.
    for line in ("Lidar\\", "recording /camera [p/msg/T\\"):
        assert any(line in one and "INJECTED" in one for one in said.split("\n")), said
    bag_is_plain(shm, shm.folder / "bag", "p/msg/T\\")
