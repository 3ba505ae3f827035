"""Secured domains (SROS 2): nodes of both vendors are recorded and played to, and what cannot be heard is refused or named."""

import json
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import DEADLINE_S, HOLDALL, NODES, Node, Program, messages_of, text_of
from keystore import Keystore
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

SOURCES = NODES / "secured"
PLUGINS = Path("/usr/lib/x86_64-linux-gnu/libddsc0debian")
STRING = "std_msgs/msg/String"
COUNT = 1000
# The lower subject of two certificates proposes the handshake's algorithms: the recorder, and the node.
ENCLAVES = {"recorder_proposes": ("/a", "/lidar"), "node_proposes": ("/recorder", "/alpha")}
LOOPBACK = (
    '<General><Interfaces><NetworkInterface address="127.0.0.1"/></Interfaces><AllowMulticast>false</AllowMulticast></General><Discovery>'
    "<ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>32</MaxAutoParticipantIndex>"
    '<Peers><Peer address="127.0.0.1"/></Peers></Discovery>'
)


def built(folder, program, *command):
    """Compiles a peer once for a run, also when several processes test."""
    made = folder / program
    if not made.exists():
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def peers(tmp_path_factory):
    """Programs on Debian's Cyclone DDS and Fast DDS."""
    folder = tmp_path_factory.mktemp("peers")
    programs = {}
    if shutil.which("idlc") and PLUGINS.is_dir():
        generated = subprocess.run(["idlc", "-x", "final", "-l", "c", SOURCES / "text.idl"], cwd=folder, capture_output=True, text=True)
        assert generated.returncode == 0, generated.stderr
        programs["cyclone"] = built(folder, "cyclone_peer", "gcc", "-I.", "-o", "cyclone_peer", SOURCES / "cyclone_peer.c", "text.c", "-lddsc")
    if Path("/usr/include/fastdds").is_dir():
        command = ["g++", "-O0", "-std=c++17", "-o", "fast_peer", SOURCES / "fast_peer.cpp", "-lfastrtps", "-lfastcdr"]
        programs["fast"] = built(folder, "fast_peer", *command)
    return programs


class Secured:
    """A domain with a keystore."""

    def __init__(self, world, peers):
        self.world, self.peers = world, peers
        self.keystore = Keystore(world.folder / "keystore")

    def holdall(self, enclave, *arguments, **variables):
        env = {**self.world.env, **self.keystore.variables(enclave), **variables}
        return self.world._keep(Program(arguments, env))

    def recorder(self, enclave, *arguments, **variables):
        recorder = self.holdall(
            enclave, "record", "-a", "-o", self.world.folder / "bag", "--json", "--disable-keyboard-controls", *arguments, **variables
        )
        recorder.wait_until_says("Listening for topics")
        return recorder

    def peer(self, vendor, enclave, does, count=COUNT, topic="rt/chatter"):
        if vendor not in self.peers:
            pytest.skip(f"this distribution has no {vendor}")
        folder = self.keystore.folder / "enclaves" / enclave.strip("/")
        uri = f"<Domain>{LOOPBACK}</Domain>"
        process = Peer([self.peers[vendor], does, topic, str(count), folder, *([PLUGINS] if vendor == "cyclone" else [])],
                       {**self.world.env, "CYCLONEDDS_URI": uri})  # fmt: skip
        self.world._keep(process)
        process.wait_for("ready")
        return process


class Peer(Node):
    """A program that reports as the nodes do, and ends when its standard input does."""

    def __init__(self, command, env):
        import queue
        import threading

        self.process = subprocess.Popen([*map(str, command)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.told = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()


@pytest.fixture
def secured(world, peers):
    return Secured(world, peers)


def not_heard(said):
    return [line for line in said.splitlines() if "not heard: " in line]


@pytest.mark.parametrize("proposes", ENCLAVES)
@pytest.mark.parametrize("vendor", ["cyclone", "fast"])
def test_a_secured_node_of_each_vendor_is_recorded_whole_and_played_to(secured, vendor, proposes):
    ours, theirs = ENCLAVES[proposes]
    secured.keystore.enclave(ours)
    secured.keystore.enclave(theirs)
    recorder = secured.recorder(ours)
    talker = secured.peer(vendor, theirs, "talk")
    assert talker.wait_for("done")["count"] == COUNT
    code, said = recorder.stop()
    assert code == 0 and not not_heard(said), said
    texts = [text_of(message) for message in messages_of(secured.world.folder / "bag")["/chatter"]]
    assert texts == [f"{vendor} {number}" for number in range(COUNT)]
    assert not secured.world.info(secured.world.folder / "bag").get("not_heard")
    talker.process.kill()
    talker.process.wait()

    listener = secured.peer(vendor, theirs, "listen")
    player = secured.holdall(ours, "play", secured.world.folder / "bag", "--rate", "10", "--wait-for-subscribers", "1", "--disable-keyboard-controls")
    heard = [listener.wait_for("heard")["text"] for _ in range(COUNT)]
    assert heard == texts
    code, said = player.wait()
    assert code == 0, said


def test_two_secured_programs_exchange_everything_and_one_without_security_names_them(secured):
    world = secured.world
    for enclave in ("/recorder", "/player"):
        secured.keystore.enclave(enclave)
    plan = {"publishers": [{"topic": "/t", "type": STRING, "count": 200, "rate_hz": 200}], "wait_for_subscriptions": 1}
    plain = world.holdall("record", "-a", "-o", world.folder / "plain", "--disable-keyboard-controls")
    plain.wait_until_says("Listening for topics")
    talker = world.talker(*plan["publishers"], wait_for_subscriptions=1)
    talker.done()
    assert plain.stop()[0] == 0
    sent = messages_of(world.folder / "plain")["/t"]

    outside = world.holdall("record", "-a", "-o", world.folder / "outside", "--disable-keyboard-controls")
    outside.wait_until_says("Listening for topics")
    recorder = secured.recorder("/recorder")
    player = secured.holdall("/player", "play", world.folder / "plain", "--wait-for-subscribers", "1", "--disable-keyboard-controls")
    assert player.wait()[0] == 0
    code, said = recorder.stop()
    assert code == 0 and messages_of(world.folder / "bag")["/t"] == sent, said
    outside.wait_until_says("it takes part in a secured domain (SROS 2), but this recording does not")
    code, said = outside.stop()
    assert code == 0 and "recorded 0 messages" in said, said


def test_nodes_that_are_not_secured_or_of_another_authority_are_named(secured, tmp_path):
    world = secured.world
    secured.keystore.enclave("/recorder")
    other = Keystore(tmp_path / "other")
    other.enclave("/stranger")
    recorder = secured.recorder("/recorder")
    world.talker({"topic": "/open", "type": STRING, "count": None, "rate_hz": 10})
    env = {**world.env, **other.variables("/stranger")}
    world._keep(Program(("record", "-a", "-o", world.folder / "strange", "--disable-keyboard-controls"), env))
    recorder.wait_until_says("it is not secured, and shows nothing to this recording")
    recorder.wait_until_says("its certificate or permissions are of another authority")
    code, said = recorder.stop()
    kinds = {one["kind"] for one in world.info(world.folder / "bag")["not_heard"]}
    assert code == 0 and kinds == {"secured", "not_secured"}, said


def refusal(secured, enclave="/recorder", **variables):
    env = {**secured.world.env, **secured.keystore.variables(enclave), **variables}
    command = [HOLDALL, "record", "-a", "-o", str(secured.world.folder / "refused"), "--disable-keyboard-controls"]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert not (secured.world.folder / "refused").exists()
    return done.stderr


def test_what_the_keystore_forbids_or_lacks_is_refused_with_the_reason(secured):
    keystore = secured.keystore
    folder = keystore.enclave("/recorder")
    keystore.enclave("/expired", certificate_days=-1)
    said = refusal(secured, "/expired")
    assert "cannot be joined as enclave /expired" in said and "certificate has expired" in said, said
    keystore.enclave("/late", permissions_seconds=-60)
    assert "ermission" in refusal(secured, "/late")
    assert "has no enclave /nobody" in refusal(secured, "/nobody")
    assert "names no keystore" in refusal(secured, ROS_SECURITY_KEYSTORE="")

    signed = (folder / "governance.p7s").read_text()
    (folder / "governance.p7s").write_text(signed.replace("<allow_unauthenticated_participants>false", "<allow_unauthenticated_participants>true"))
    said = refusal(secured)
    assert "overnance" in said or "PKCS7" in said, said
    (folder / "governance.p7s").write_text(signed)
    (folder / "identity_ca.cert.pem").write_text("x")
    assert "certificate" in refusal(secured)
    (folder / "permissions.p7s").unlink()
    assert "lacks" in refusal(secured) and "permissions.p7s" in refusal(secured)

    # Permissive, it goes without, and names that.
    permissive = secured.recorder("/recorder", ROS_SECURITY_STRATEGY="Permissive")
    code, said = permissive.stop()
    assert code == 0 and "only what is not secured is reached" in said, said


def test_topics_that_the_permissions_forbid_are_named(secured):
    graph = ["ros_discovery_info", "rq/*", "rr/*", "rt/*/*"]
    secured.keystore.enclave("/recorder", subscribe=[*graph, "rt/allowed"])
    secured.keystore.enclave("/node")
    recorder = secured.recorder("/recorder")
    for topic in ("rt/allowed", "rt/forbidden"):
        secured.peer("cyclone", "/node", "talk", topic=topic)
    recorder.wait_until_says("recording /allowed")
    recorder.wait_until_says("/forbidden")
    code, said = recorder.stop()
    assert "cannot use topic /forbidden: the permissions of this enclave do not allow it" in said, said
    (named,) = secured.world.info(secured.world.folder / "bag")["not_heard"]
    assert (named["kind"], named["topics"]) == ("refused", ["/forbidden"]), named
    assert "the permissions of this enclave" in named["reason"], named
    shown = secured.world.run("info", secured.world.folder / "bag").stdout
    assert "/forbidden: the permissions of this enclave do not allow it" in shown, shown


def test_a_service_in_a_secured_domain_is_called(secured):
    for enclave in ("/recorder", "/bridge"):
        secured.keystore.enclave(enclave)
    recorder = secured.recorder("/recorder")
    bridge = secured.holdall("/bridge", "bridge", "--foxglove", "127.0.0.1:0", "--foxglove-control")
    bridge.wait_until_says("Foxglove: ws://")
    address = re.search(r"Foxglove: (ws://\S+)", "\n".join(bridge.lines)).group(1)
    # It decrypts: who has no certificate needs its token.
    for origin in (None, "https://app.foxglove.dev"):
        with pytest.raises(InvalidStatus) as refused:
            connect(address.split("?")[0], subprotocols=["foxglove.websocket.v1"], origin=origin, open_timeout=DEADLINE_S)
        assert refused.value.response.status_code == 401
    with connect(address, subprotocols=["foxglove.websocket.v1"], max_size=None, open_timeout=DEADLINE_S, legacy=True) as viewer:

        def call(service, number, body):
            viewer.send(struct.pack("<BIII", 2, services[service], number, 3) + b"cdr\0\1\0\0" + body)
            while not (isinstance(got := viewer.recv(timeout=DEADLINE_S), bytes) and got[0] == 3):
                assert isinstance(got, bytes) or "serviceCallFailure" not in got, got
            assert struct.unpack_from("<II", got, 1) == (services[service], number)
            return got[13 + 3 + 4 :]

        services = {}
        names = [f"/rosbag2_recorder/{name}" for name in ("is_paused", "pause")]
        while not services.keys() >= {*names}:
            text = viewer.recv(timeout=DEADLINE_S)
            if isinstance(text, str) and json.loads(text)["op"] == "advertiseServices":
                services |= {one["name"]: one["id"] for one in json.loads(text)["services"]}
        is_paused, pause = names
        assert call(is_paused, 1, b"\0")[:1] == b"\0"
        call(pause, 2, b"\0")
        assert call(is_paused, 3, b"\0")[:1] == b"\1"
    recorder.wait_until_says("paused")
    code, said = recorder.stop()
    assert code == 0, said


def test_a_recording_whose_permissions_expire_ends_with_the_reason(secured):
    secured.keystore.enclave("/recorder", permissions_seconds=8)
    recorder = secured.recorder("/recorder")
    recorder.wait_until_says("have expired")
    code, said = recorder.wait()
    assert code != 0, said


def test_the_program_does_not_need_openssl_to_start():
    needed = subprocess.run(["readelf", "-d", HOLDALL], capture_output=True, text=True).stdout
    assert "NEEDED" in needed and "libssl" not in needed and "libcrypto" not in needed, needed
