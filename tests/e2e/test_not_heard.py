"""What a recording over DDS cannot hear is named: nodes without UDP, of discovery servers and secured domains, publishers that do not match."""

import json
import socket
import struct
import sys
from pathlib import Path

import pytest
from conftest import Node, cdr_string, messages_of

CAPTURED = Path(__file__).resolve().parents[2] / "crates/holdall-transport/src/dds/announcements/fast_dds_default.hex"
STRING = "std_msgs/msg/String"


@pytest.fixture
def wide(world):
    """With LOCALHOST, rmw_fastrtps takes UDP and shared memory whatever FASTDDS_BUILTIN_TRANSPORTS says."""
    world.env["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "SUBNET"
    return world


def a_node(world, topic, prefix=(), python=sys.executable, **variables):
    plan = {"node": topic.strip("/"), "publishers": [{"topic": topic, "type": STRING, "count": None, "rate_hz": 20}]}
    node = world._keep(Node("talker.py", plan, {**world.env, **variables}, prefix=prefix, python=python))
    node.wait_for("ready")
    return node


def secured_announcement(domain):
    """A real announcement with what only a secured participant adds: an identity token."""
    packet = bytearray.fromhex(CAPTURED.read_text())
    data, token = 32, struct.pack("<HHII", 0x1001, 8, 0, 0)
    packet[data + 28 : data + 28] = token
    struct.pack_into("<H", packet, data + 2, struct.unpack_from("<H", packet, data + 2)[0] + len(token))
    # The last of the ports that nodes without multicast announce themselves to.
    return bytes(packet), [("127.0.0.1", 7410 + 250 * domain + 2 * index) for index in range(32)]


def test_what_cannot_be_heard_is_named_in_log_status_report_and_info(wide):
    world, control = wide, wide.folder / "control"
    nodes = {
        "no_udp": a_node(world, "/shared", FASTDDS_BUILTIN_TRANSPORTS="SHM"),
        "no_udp ": a_node(world, "/large", FASTDDS_BUILTIN_TRANSPORTS="LARGE_DATA"),
        "discovery_server": a_node(world, "/served", ROS_DISCOVERY_SERVER="127.0.0.1:11999"),
    }
    heard = a_node(world, "/heard")
    (world.folder / "qos.yaml").write_text("/heard:\n  reliability: reliable\n  durability: transient_local\n")
    recorder = world.holdall(
        "record", "-a", "-o", world.folder / "bag", "--json", "--disable-keyboard-controls", "--control-socket", control,
        "--qos-profile-overrides-path", world.folder / "qos.yaml",
    )  # fmt: skip
    for kind, node in nodes.items():
        recorder.wait_until_says(f"not heard: process {node.process.pid} (talker.py): ")
    packet, ports = secured_announcement(int(world.env["ROS_DOMAIN_ID"]))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        for port in ports:
            out.sendto(packet, port)
    recorder.wait_until_says("secured domain (SROS 2)")
    recorder.wait_until_says("not heard: /heard on /heard: the QoS overrides ask for more durability than it offers")
    status = json.loads(world.run("control", control, "status").stdout)
    named = {(one["who"], one["kind"]) for one in status["status"]["not_heard"]}
    expected = {(f"process {node.process.pid} (talker.py)", kind.strip()) for kind, node in nodes.items()}
    assert expected <= named, named
    assert ("/heard", "incompatible_qos") in named and "secured" in {kind for _, kind in named}, named
    assert not any(str(heard.process.pid) in who for who, _ in named), named
    code, said = recorder.stop()
    assert code == 0 and said.count(f"not heard: process {nodes['no_udp'].process.pid} ") == 1, said
    assert '"not_heard": [' in said, said
    reported = {(one["who"], one["kind"]) for one in world.info(world.folder / "bag")["not_heard"]}
    assert reported == named
    shown = world.run("info", world.folder / "bag").stdout
    assert "Not heard:" in shown and "shared memory only" in shown, shown
    # A copy says it too.
    assert world.run("convert", world.folder / "bag", "-o", world.folder / "copy", "-s", "sqlite3").returncode == 0
    assert {(one["who"], one["kind"]) for one in world.info(world.folder / "copy")["not_heard"]} == named


def test_publishers_that_no_subscription_matches_and_nodes_without_their_publishers_are_named(world):
    odd = world._keep(Node("odd_publishers.py", {}, world.env))
    odd.wait_for("ready")
    recorder = world.holdall("record", "-a", "-o", world.folder / "bag", "--json", "--disable-keyboard-controls")
    # Both take time by themselves: a match may take ten seconds, the announcement of a publisher eight.
    recorder.wait_until_says("not heard: /absent: it announces publishers (ros_discovery_info) that discovery does not show")
    # By their QoS.
    for name in ("partitioned", "owned"):
        recorder.wait_until_says(f"not heard: /{name} on /{name}: it was discovered, but no subscription is matched")
    code, said = recorder.stop()
    assert code == 0, said
    named = {(one["who"], one["kind"]) for one in world.info(world.folder / "bag")["not_heard"]}
    unmatched = {(f"/{name}", "unmatched") for name in ("partitioned", "owned")}
    assert named == {("/absent", "not_discovered"), *unmatched}
    recorded = messages_of(world.folder / "bag")
    assert recorded["/keyed"], recorded.keys()
    assert set(recorded["/plain"]) == {cdr_string("plain")} and not recorded.get("/partitioned"), recorded.keys()
