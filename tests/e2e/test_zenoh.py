"""Systems of rmw_zenoh: pyzeros and eclipse-zenoh publish and subscribe, pamoja-ros2 defines the keys, holdall records and plays."""

import json
import os
import socket
import struct
import subprocess
import sys
import time

import pytest
from conftest import DEADLINE_S, HOLDALL, NODES, cdr_string, messages_of

STRING = "std_msgs/msg/String"
STRING_HASH = "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18"
OTHER_HASH = "RIHS01_" + "ab" * 32
LATCHED = {"durability": 1, "depth": 3}
DOMAIN = 72


@pytest.fixture(scope="module", autouse=True)
def program_with_zenoh():
    """A build without zenoh has nothing to test here; the whole test run insists on one with it."""
    env = {**os.environ, "ROS_DOMAIN_ID": "no number"}
    said = subprocess.run([HOLDALL, "record", "-a", "--transport", "zenoh"], env=env, capture_output=True, text=True, timeout=DEADLINE_S).stderr
    if "has no zenoh" in said and not os.environ.get("HOLDALL_ALL_TRANSPORTS"):
        pytest.skip("this build has no zenoh")
    assert "ROS_DOMAIN_ID" in said


class ZenohNode:
    """tests/nodes/zenoh_node.py, controlled by one request at a time."""

    def __init__(self, **plan):
        self.process = subprocess.Popen(
            [sys.executable, str(NODES / "zenoh_node.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.opened = self.tell({"domain": DOMAIN, **plan})

    def tell(self, words):
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise AssertionError(f"the node ended (exit {self.process.wait()}) instead of doing {words}")

    def do(self, verb, **words):
        return self.tell({"do": verb, **words})

    def advertise(self, topic, type=STRING, hash=STRING_HASH, **how):
        return self.do("advertise", topic=topic, type=type, hash=hash, **how)

    def publish(self, topic, *payloads, **how):
        return self.do("publish", topic=topic, payloads=[p.hex() for p in payloads], **how)

    def close(self):
        self.process.kill()
        self.process.wait()


class Meeting:
    """A port of this machine where sessions meet, and everything that meets there."""

    def __init__(self, world):
        self.world = world
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.endpoint = f"tcp/127.0.0.1:{probe.getsockname()[1]}"
        self.nodes = []
        world.env.update(ROS_DOMAIN_ID=str(DOMAIN), RMW_IMPLEMENTATION="rmw_zenoh_cpp")
        self.configure()

    def configure(self, mode="peer", **further):
        settings = {
            "mode": mode,
            "connect/endpoints": [self.endpoint],
            "listen/endpoints": ["tcp/127.0.0.1:0"] if mode == "peer" else [],
            "connect/retry": {"period_init_ms": 50, "period_max_ms": 100, "period_increase_factor": 1.0},
            **further,
        }
        self.world.env["ZENOH_CONFIG_OVERRIDE"] = ";".join(f"{key}={json.dumps(value)}" for key, value in settings.items())

    def host(self, mode="peer", **plan):
        self.nodes.append(ZenohNode(mode=mode, listen=[self.endpoint], **plan))
        return self.nodes[-1]

    def guest(self, mode="peer", **plan):
        listen = ["tcp/127.0.0.1:0"] if mode == "peer" else []
        self.nodes.append(ZenohNode(mode=mode, connect=[self.endpoint], listen=listen, **plan))
        return self.nodes[-1]

    def record(self, *arguments):
        # Without --transport RMW_IMPLEMENTATION decides.
        control = self.world.folder / "control"
        recorder = self.world.holdall("record", "-o", self.world.folder / "bag", "--control-socket", control, *arguments)
        recorder.wait_until_says("Listening for topics")
        return recorder

    def await_status(self, is_reached):
        end = time.monotonic() + DEADLINE_S
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(str(self.world.folder / "control"))
            replies = control.makefile()
            while True:
                control.sendall(b'{"request": "status"}\n')
                status = json.loads(replies.readline())["status"]
                if is_reached(status):
                    return
                assert time.monotonic() < end, status

    def await_received(self, topic, count, counter="received"):
        self.await_status(lambda status: status["topics"].get(topic, {}).get(counter, 0) >= count)

    def bag(self):
        return messages_of(self.world.folder / "bag")

    def audit(self):
        told = self.world.run("audit", "--json", self.world.folder / "bag")
        audit = json.loads(told.stdout)
        assert audit["balanced"], audit
        return audit["topics"]


@pytest.fixture
def meeting(world):
    meeting = Meeting(world)
    yield meeting
    for node in meeting.nodes:
        node.close()


def strings(first, last):
    return [cdr_string(f"hello {n}") for n in range(first, last)]


def warnings(said):
    return [line for line in said.splitlines() if "warn:" in line]


def schema_of(bag, topic):
    from mcap.reader import make_reader

    with open(bag / "bag_0.mcap", "rb") as stream:
        summary = make_reader(stream).get_summary()
        return next(summary.schemas[c.schema_id] for c in summary.channels.values() if c.topic == topic)


def test_services_are_answered_with_the_attachment_of_the_request(meeting):
    caller = meeting.host()
    recorder = meeting.record("-a")
    payloads = []
    for service, kind in (("is_paused", "IsPaused"), ("pause", "Pause"), ("is_paused", "IsPaused")):
        reply = caller.do("call", service=f"/rosbag2_recorder/{service}", type=f"rosbag2_interfaces/srv/{kind}", payload="0001000000")
        assert reply["hash"].startswith("RIHS01_") and reply["sequence"] == 7 and reply["is_ours"], reply
        payloads.append(reply["payload"][8:10])
    assert payloads == ["00", "00", "01"], "paused after the call"
    assert recorder.stop()[0] == 0


def test_services_are_answered_under_the_hash_of_an_older_layout(meeting):
    """rmw_zenoh asks under the hash of the client's own type."""
    caller = meeting.host()
    recorder = meeting.record("-a")
    stop = {"service": "/rosbag2_recorder/stop", "type": "rosbag2_interfaces/srv/Stop", "payload": "0001000000"}
    # As rosidl computes it for rosbag2_interfaces 0.26.5, where the reply is empty.
    old = caller.do("call", **stop, hash="RIHS01_668ca94eac65895275ec6d59de0206e522deebe199d9978ffc5ddbaa84a3401e")
    new = caller.do("call", **stop)
    assert old["payload"] == "0001000000"
    assert new["payload"].startswith("0001000001000000"), "not recording any more"
    assert recorder.stop()[0] == 0


def test_messages_of_pyzeros_are_recorded_byte_exact_and_decoded_by_a_foreign_reader(meeting):
    talker = meeting.host()
    told = talker.advertise("/ns/chatter", qos={"depth": 7})
    assert told["key"] == f"{DOMAIN}/ns/chatter/std_msgs::msg::dds_::String_/{STRING_HASH}", "as pamoja-ros2 and pyzeros agree"
    recorder = meeting.record("-a")
    talker.do("await_subscription", topic="/ns/chatter")
    # pyzeros counts from 0; nothing may be missing before the first.
    talker.publish("/ns/chatter", *strings(0, 200))
    meeting.await_received("/ns/chatter", 200)
    code, said = recorder.stop()
    assert code == 0, said
    assert meeting.bag()["/ns/chatter"] == strings(0, 200)
    account = meeting.audit()["/ns/chatter"]
    assert (account["recorded"], account["lost"]) == (200, 0)
    assert account["publishers"][0]["gid"] == told["gid"], "the publisher's GID is that of its token"

    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory

    with open(meeting.world.folder / "bag" / "bag_0.mcap", "rb") as stream:
        decoded = [m.data for *_, m in make_reader(stream, decoder_factories=[DecoderFactory()]).iter_decoded_messages()]
    assert decoded == [f"hello {n}" for n in range(200)]
    info = meeting.world.info(meeting.world.folder / "bag")
    qos = info["topics_with_message_count"][0]["topic_metadata"]["offered_qos_profiles"][0]
    assert (qos["depth"], qos["reliability"]) == (7, "reliable"), "QoS of the token"


def test_malformed_attachments_and_tokens_are_told_once_and_everything_else_goes_on(meeting):
    talker = meeting.host()
    for topic in ("/whole", "/short", "/bare", "/broken"):
        talker.advertise(topic, by="plain")
    talker.do("token", key=f"@ros2_lv/{DOMAIN}/abc/0/1/MP/%/%/talker/%x")
    recorder = meeting.record("-a")
    for topic, attachment in (("/whole", "whole"), ("/short", "short"), ("/bare", None), ("/broken", "0102")):
        talker.do("await_subscription", topic=topic)
        talker.publish(topic, *strings(0, 5), attachment=attachment)
        meeting.await_received(topic, 5)
    code, said = recorder.stop()
    assert code == 0, said
    bag, audit = meeting.bag(), meeting.audit()
    assert all(bag[topic] == strings(0, 5) for topic in ("/whole", "/short", "/bare", "/broken"))
    assert len([line for line in warnings(said) if "/bare" in line and "no rmw_zenoh attachment" in line]) == 1, said
    assert len([line for line in warnings(said) if "/broken" in line and "malformed" in line]) == 1, said
    assert len([line for line in warnings(said) if "not a token" in line]) == 1, said
    for topic, unknown in (("/whole", False), ("/short", False), ("/bare", True), ("/broken", True)):
        assert audit[topic]["loss_unknown"] is unknown, (topic, audit[topic])


def test_a_gap_in_the_sequence_is_counted_and_publishers_that_disagree_are_told(meeting):
    # Peers learn of each other from a router.
    meeting.host("router", node="router")
    talker, other = meeting.guest(), meeting.guest(node="other")
    talker.advertise("/t", by="plain")
    recorder = meeting.record("-a")
    talker.do("await_subscription", topic="/t")
    gid = "ab" * 16
    for sequence in (1, 2, 7):
        talker.publish("/t", *strings(sequence, sequence + 1), attachment=(struct.pack("<qqB", sequence, 1, 16).hex() + gid))
    meeting.await_received("/t", 3)
    other.advertise("/t", hash=OTHER_HASH, by="plain")
    other.do("await_subscription", topic="/t")
    other.publish("/t", *strings(50, 51))
    meeting.await_received("/t", 4)
    code, said = recorder.stop()
    assert code == 3, said
    account = meeting.audit()["/t"]
    assert (account["recorded"], account["lost"]) == (4, 4), account
    assert len([line for line in warnings(said) if "disagree" in line]) == 1, said


def test_what_transient_local_publishers_keep_is_recorded_once(meeting):
    meeting.host("router", node="router")
    talker = meeting.guest()
    talker.advertise("/latched", qos=LATCHED, by="advanced")
    talker.publish("/latched", *strings(0, 5))
    recorder = meeting.record("-a")
    meeting.await_received("/latched", 3)
    talker.do("await_subscription", topic="/latched")
    talker.publish("/latched", *strings(5, 6))
    meeting.await_received("/latched", 4)
    late = meeting.guest(node="late")
    late.advertise("/latched", qos=LATCHED, by="advanced")
    late.publish("/latched", *strings(90, 92))
    meeting.await_received("/latched", 6)
    code, said = recorder.stop()
    assert code == 0, said
    assert sorted(meeting.bag()["/latched"]) == sorted(strings(2, 6) + strings(90, 92)), said


def test_a_definition_that_only_the_node_knows_is_asked_for(meeting):
    talker = meeting.host(node="talker")
    # Definition and hash of a type that no other node has, from rosbags.
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    kind, text = "only_here_msgs/msg/Pair", "int32 first\nint32 second\n"
    store = get_typestore(Stores.ROS2_JAZZY)
    store.register(get_types_from_msg(text, kind))
    digest = store.hash_rihs01(kind)
    talker.do("describe", type=kind, hash=digest, sources={kind: text})
    talker.advertise("/pair", type=kind, hash=digest)
    recorder = meeting.record("-a")
    talker.do("await_subscription", topic="/pair")
    talker.publish("/pair", b"\0\1\0\0" + struct.pack("<ii", 3, 4))
    # Messages wait for the definition of their topic.
    meeting.await_received("/pair", 1, counter="recorded")
    code, said = recorder.stop()
    assert code == 0, said
    assert schema_of(meeting.world.folder / "bag", "/pair").data.decode().startswith("int32 first"), said
    told = meeting.world.run("cat", meeting.world.folder / "bag", "--topics", "/pair")
    assert "second" in told.stdout and "4" in told.stdout, told


def test_a_router_that_goes_away_and_comes_back_leaves_a_counted_gap_and_two_lines(meeting):
    router = meeting.host("router")
    talker = meeting.guest("client")
    talker.advertise("/t", by="plain")
    meeting.configure("client")
    recorder = meeting.record("-a")
    talker.do("await_subscription", topic="/t")
    talker.publish("/t", *strings(0, 10))
    meeting.await_received("/t", 10)
    router.close()
    recorder.wait_until_says("lost zenoh router")
    talker.do("await_no_match", topic="/t")
    talker.publish("/t", *strings(10, 15))
    meeting.host("router")
    recorder.wait_until_says("is back")
    talker.do("await_subscription", topic="/t")
    talker.publish("/t", *strings(15, 25))
    meeting.await_received("/t", 20)
    code, said = recorder.stop()
    assert code == 3, said
    account = meeting.audit()["/t"]
    assert (account["recorded"], account["lost"]) == (20, 5), account
    assert meeting.bag()["/t"] == strings(0, 10) + strings(15, 25)
    assert len([line for line in warnings(said) if "router" in line]) == 2, said


def test_what_was_sent_before_the_match_is_counted_at_the_head(meeting):
    talker = meeting.host()
    recorder = meeting.record("-a")
    # Publishers that exist in the first two seconds may have sent for hours; later ones must
    # be recorded from their first message on.
    meeting.await_status(lambda status: status["elapsed_s"] > 2.1)
    gid = talker.advertise("/late", by="plain")["gid"]
    talker.do("await_subscription", topic="/late")
    # As if it had sent five before: whether really sent ones come before the match depends on microseconds.
    for sequence in range(6, 16):
        attachment = struct.pack("<qqB", sequence, 1, 16).hex() + gid
        talker.publish("/late", *strings(sequence - 1, sequence), attachment=attachment)
    meeting.await_received("/late", 10)
    code, said = recorder.stop()
    assert code == 0, said
    assert meeting.bag()["/late"] == strings(5, 15)
    account = meeting.audit()["/late"]
    assert (account["sent_before_match"], account["lost"], account["recorded"]) == (5, 0, 10), account


def test_a_publisher_in_shared_memory_that_dies_leaves_what_had_arrived(meeting):
    """Its images are still waiting for their definition when it is killed; the mapping outlives it."""
    victim = meeting.host(shared_memory=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        elsewhere = f"tcp/127.0.0.1:{probe.getsockname()[1]}"
    other = ZenohNode(mode="peer", listen=[elsewhere])
    meeting.nodes.append(other)
    meeting.configure(**{"connect/endpoints": [meeting.endpoint, elsewhere]})
    victim.advertise("/image", type="sensor_msgs/msg/Image", hash=OTHER_HASH, by="plain")
    other.advertise("/t", by="plain")
    recorder = meeting.record("-a")
    victim.do("await_subscription", topic="/image")
    other.do("await_subscription", topic="/t")
    victim.do("publish", topic="/image", size=2_000_000, count=5, shared=True)
    meeting.await_received("/image", 5)
    victim.close()
    other.publish("/t", *strings(0, 20))
    meeting.await_received("/t", 20)
    recorder.wait_until_says("1 publisher (/image) went silent without a farewell")
    code, said = recorder.stop()
    # It was reliable, and what it sent last is not known.
    assert code == 3, said
    assert meeting.bag()["/image"] == [n.to_bytes(8, "little") + bytes(2_000_000 - 8) for n in range(5)]
    assert meeting.bag()["/t"] == strings(0, 20)


def test_without_a_router_a_peer_says_so_once_and_goes_on_looking(meeting):
    meeting.configure("peer")
    recorder = meeting.record("-a")
    recorder.wait_until_says("router")
    meeting.host("router")
    talker = meeting.guest("client")
    talker.advertise("/t", by="plain")
    talker.do("await_subscription", topic="/t")
    talker.publish("/t", *strings(0, 10))
    meeting.await_received("/t", 10)
    code, said = recorder.stop()
    assert code == 0, said
    assert meeting.bag()["/t"] == strings(0, 10)


def test_images_in_shared_memory_are_recorded_byte_exact(meeting):
    talker = meeting.host(shared_memory=True)
    talker.advertise("/image", type="sensor_msgs/msg/Image", hash=OTHER_HASH, by="plain")
    recorder = meeting.record("-a")
    talker.do("await_subscription", topic="/image")
    talker.do("publish", topic="/image", size=2_000_000, count=30, shared=True)
    meeting.await_received("/image", 30)
    code, said = recorder.stop()
    assert code == 0, said
    wanted = [n.to_bytes(8, "little") + bytes(2_000_000 - 8) for n in range(30)]
    assert meeting.bag()["/image"] == wanted


def write_bag(path, topic, payloads, qos):
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connection = writer.add_connection(topic, STRING, typestore=get_typestore(Stores.ROS2_JAZZY), offered_qos_profiles=qos)
        for i, payload in enumerate(payloads):
            writer.write(connection, 1_700_000_000_000_000_000 + i * 1_000_000, payload)


def test_a_played_bag_is_taken_for_a_publisher_of_rmw_zenoh(meeting):
    listener = meeting.host(node="listener")
    listener.do("subscribe", topic="/t", type=STRING, hash=STRING_HASH)
    write_bag(meeting.world.folder / "theirs", "/t", strings(0, 50), [])
    played = meeting.world.run("play", meeting.world.folder / "theirs", "--wait-for-all-acked", "5000")
    assert played.returncode == 0, played.stderr
    messages = listener.do("await", topic="/t", count=50)["messages"]
    assert [bytes.fromhex(m["payload"]) for m in messages] == strings(0, 50)
    assert {m["key"] for m in messages} == {f"{DOMAIN}/t/std_msgs::msg::dds_::String_/{STRING_HASH}"}
    attached = [bytes.fromhex(m["attachment"]) for m in messages]
    assert all(len(a) == 33 and a[16] == 16 for a in attached)
    assert [struct.unpack_from("<q", a)[0] for a in attached] == list(range(1, 51))
    tokens = listener.do("tokens_seen", topic="/t")["tokens"]
    ours = [t for t in tokens if "/MP/" in t["key"]]
    assert [t["gid"] for t in ours] == [attached[0][17:].hex()], "the GID is the hash of the token, as xxhash and pyzeros have it"
    assert "/%t/std_msgs::msg::dds_::String_/" + STRING_HASH in ours[0]["key"]


def test_late_subscriptions_get_what_a_played_transient_local_topic_keeps(meeting):
    from rosbags.interfaces import Qos, QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime

    never = QosTime(9223372036, 854775807)
    latched = Qos(QosHistory.KEEP_LAST, 3, QosReliability.RELIABLE, QosDurability.TRANSIENT_LOCAL, never, never, QosLiveliness.AUTOMATIC, never, False)
    write_bag(meeting.world.folder / "theirs", "/map", strings(0, 1), [latched])
    listener = meeting.host(node="listener")
    player = meeting.world.holdall("play", meeting.world.folder / "theirs", "--loop", "--delay", "0")
    listener.do("await_publisher", topic="/map")
    listener.do("subscribe", topic="/map", type=STRING, hash=STRING_HASH, qos=LATCHED)
    messages = listener.do("await", topic="/map", count=1)["messages"]
    assert bytes.fromhex(messages[0]["payload"]) == strings(0, 1)[0]
    player.stop()


def test_bad_settings_are_refused_with_the_variable(meeting):
    for name, value in (
        ("ZENOH_CONFIG_OVERRIDE", "mode"),
        ("ZENOH_CONFIG_OVERRIDE", 'mode="captain"'),
        ("ZENOH_SESSION_CONFIG_URI", "/nonexistent.json5"),
        ("ZENOH_ROUTER_CHECK_ATTEMPTS", "often"),
        ("ROS_DOMAIN_ID", "233"),
    ):
        kept = meeting.world.env.get(name)
        meeting.world.env[name] = value
        told = meeting.world.run("record", "-a", "-o", meeting.world.folder / "never")
        assert told.returncode == 2 and name in told.stderr, (name, told)
        assert not (meeting.world.folder / "never").exists()
        if kept is None:
            del meeting.world.env[name]
        else:
            meeting.world.env[name] = kept
