"""`--foxglove`, `bridge` and `serve`: what a viewer gets over a real connection, compared with what was sent and recorded."""

import contextlib
import hashlib
import json
import random
import re
import socket
import struct
import time

import pytest
from conftest import DEADLINE_S, Node, messages_of
from test_small import plain, read, scene, write
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

STRING = "std_msgs/msg/String"
SUBPROTOCOLS = ["foxglove.sdk.v1", "foxglove.websocket.v1"]


def link(program):
    """Where a program serves viewers."""
    program.wait_until_says("Foxglove: ws://")
    (line,) = [line for line in program.lines if "Foxglove: ws://" in line]
    return re.search(r"ws://\S+", line).group()


class Viewer:
    """A client of the protocol that keeps all that it gets."""

    def __init__(self, address, subprotocol=SUBPROTOCOLS[0], **how):
        self.socket = connect(address, subprotocols=[subprotocol], max_size=None, open_timeout=DEADLINE_S, close_timeout=1, legacy=True, **how)
        assert self.socket.subprotocol == subprotocol
        self.channels, self.messages, self.states, self.statuses, self.graphs = {}, {}, [], [], []
        self.taken = {}
        self.info = None
        self.times, self.assets = [], {}
        self.until(lambda: self.info, "the server's info")

    def read(self):
        got = self.socket.recv(timeout=DEADLINE_S)
        if isinstance(got, bytes):
            if got[0] == 1:
                subscription, at = struct.unpack_from("<IQ", got, 1)
                self.messages.setdefault(self.taken[subscription], []).append((at, got[13:]))
            elif got[0] == 2:
                self.times.append(struct.unpack_from("<Q", got, 1)[0])
            elif got[0] == 4:
                request, status, length = struct.unpack_from("<IBI", got, 1)
                self.assets[request] = (status, got[10 : 10 + length].decode(), got[10 + length :])
            elif got[0] == 5:
                status, at, speed, jumped, length = struct.unpack_from("<BQfBI", got, 1)
                self.states.append((status, at, speed, jumped, got[19 : 19 + length].decode()))
                if jumped:
                    # As viewers do: what came before is of another time.
                    self.messages.clear()
            return
        message = json.loads(got)
        match message["op"]:
            case "serverInfo":
                self.info = message
            case "advertise":
                self.channels.update({channel["topic"]: channel for channel in message["channels"]})
            case "unadvertise":
                self.channels = {name: c for name, c in self.channels.items() if c["id"] not in message["channelIds"]}
            case "status":
                self.statuses.append(message)
            case "connectionGraphUpdate":
                self.graphs.append(message)

    def until(self, ready, what):
        end = time.monotonic() + DEADLINE_S
        while not ready():
            assert time.monotonic() < end, f"never came: {what}"
            self.read()

    def request(self, **fields):
        self.socket.send(json.dumps(fields))

    def take(self, topic):
        self.until(lambda: topic in self.channels, f"a channel of {topic}")
        number = len(self.taken) + 100
        self.taken[number] = topic
        self.request(op="subscribe", subscriptions=[{"id": number, "channelId": self.channels[topic]["id"]}])

    def steer(self, play, speed=1.0, seek=None, request="r"):
        self.socket.send(struct.pack("<BBfBQI", 3, 0 if play else 1, speed, seek is not None, seek or 0, len(request)) + request.encode())
        self.until(lambda: any(state[4] == request for state in self.states), f"the answer to {request}")
        return next(state for state in self.states if state[4] == request)

    def payloads(self, topic):
        return [payload for _, payload in self.messages.get(topic, [])]


@pytest.fixture
def viewer():
    with contextlib.ExitStack() as opened:

        def view(*arguments, **how):
            one = Viewer(*arguments, **how)
            opened.callback(one.socket.close)
            return one

        yield view


@pytest.mark.parametrize("subprotocol", SUBPROTOCOLS)
def test_a_bridge_brings_each_byte_of_a_topic_and_its_definition(world, viewer, subprotocol):
    bridge = world.holdall("bridge", "--foxglove", "127.0.0.1:0")
    # It waits for the viewer's subscription.
    talker = world.talker({"topic": "/chatter", "type": STRING, "count": 300, "rate_hz": 300, "qos": {"depth": 1000}})
    seen = viewer(link(bridge), subprotocol)
    seen.take("/chatter")
    channel = seen.channels["/chatter"]
    assert (channel["encoding"], channel["schemaName"], channel["schemaEncoding"]) == ("cdr", STRING, "ros2msg")
    assert "string data" in channel["schema"]
    sent = talker.done()["sent"]["/chatter"][0]
    seen.until(lambda: len(seen.payloads("/chatter")) == 300, "all messages")
    assert hashlib.md5(b"".join(seen.payloads("/chatter"))).hexdigest() == sent["md5"]
    code, said = bridge.stop()
    assert code == 0, said


def test_a_viewer_publishes_and_sees_the_graph(world, viewer):
    bridge = world.holdall("bridge", "--foxglove", "127.0.0.1:0", "--foxglove-control")
    seen = viewer(link(bridge))
    assert "clientPublish" in seen.info["capabilities"] and seen.info["supportedEncodings"] == ["cdr"]
    listener = world.listener({"topic": "/goal", "type": STRING}, expect={"/goal": 1})
    listener.wait_for("ready")
    seen.request(op="subscribeConnectionGraph")
    seen.until(lambda: any(t["name"] == "/goal" for g in seen.graphs for t in g["subscribedTopics"]), "the listener in the graph")
    seen.request(op="advertise", channels=[{"id": 7, "topic": "/goal", "encoding": "cdr", "schemaName": STRING}])
    seen.request(op="advertise", channels=[{"id": 8, "topic": "/other", "encoding": "json", "schemaName": STRING}])
    seen.until(lambda: any("must be cdr" in status["message"] for status in seen.statuses), "a refusal of JSON")
    message = b"\x00\x01\x00\x00\x03\x00\x00\x00hi\x00\x00"
    end = time.monotonic() + DEADLINE_S
    # A volatile subscription gets only what comes after it is matched.
    while listener.told.empty():
        assert time.monotonic() < end, "the listener heard nothing"
        seen.socket.send(struct.pack("<BI", 1, 7) + message)
        time.sleep(0.02)
    assert listener.done()["received"]["/goal"]["count"] >= 1

    def is_gone(graph):
        return "/goal" in graph["removedTopics"] or {"name": "/goal", "subscriberIds": []} in graph["subscribedTopics"]

    seen.until(lambda: any(map(is_gone, seen.graphs)), "the end of the listener in the graph")


def test_what_is_latched_reaches_each_viewer_once_as_long_as_its_publisher_is_there(world, viewer):
    bridge = world.holdall("bridge", "--foxglove", "127.0.0.1:0")
    latched = {"durability": "transient_local", "depth": 5}
    world.talker({"topic": "/tick", "type": STRING, "count": None, "rate_hz": 50}, node="clock", wait_for_subscriptions=0)
    servers = {}
    for name in ("one", "two"):
        # Ten are sent, of which the last five are kept.
        servers[name] = world.talker({"topic": "/map", "type": STRING, "count": 10, "text": name + " {n}", "qos": latched}, node=name, wait_for_subscriptions=0, linger=True)
        servers[name].wait_for("done")

    def visit(count):
        """A page that is opened, or loaded anew; half a second more passes when it has everything."""
        seen = viewer(link(bridge))
        seen.take("/map")
        seen.take("/tick")
        seen.until(lambda: len(seen.payloads("/map")) >= count, f"{count} latched messages")
        ticks = len(seen.payloads("/tick"))
        seen.until(lambda: len(seen.payloads("/tick")) > ticks + 25, "half a second more")
        assert len(set(seen.payloads("/map"))) == len(seen.payloads("/map")) == count
        return seen

    for _ in range(3):
        visit(10).socket.close()
    first = visit(10)
    visit(10)
    ticks = len(first.payloads("/tick"))
    first.until(lambda: len(first.payloads("/tick")) > ticks + 25, "what came meanwhile")
    assert len(first.payloads("/map")) == 10, "another page is no reason to send it again"
    servers["one"].interrupt()
    servers["one"].process.wait(DEADLINE_S)
    seen = visit(5)
    assert all(b"two" in payload for payload in seen.payloads("/map"))
    assert bridge.stop()[0] == 0


def test_viewers_beside_a_recording_take_nothing_from_it(world, viewer):
    size = 300_000
    recorder = world.holdall("record", "-a", "-o", world.folder / "bag", "--foxglove", "127.0.0.1:0")
    address = link(recorder)
    talker = world.talker(
        {"topic": "/big", "type": "std_msgs/msg/UInt8MultiArray", "count": 200, "rate_hz": 50, "size": size},
        {"topic": "/small", "type": STRING, "count": 200, "rate_hz": 50},
        wait_for_subscriptions=2,
    )
    fast, slow = viewer(address), viewer(address)
    for one in (fast, slow):
        one.take("/big")
        one.take("/small")
    # The slow one reads nothing until all is sent.
    fast.until(lambda: len(fast.payloads("/small")) >= 100, "messages")
    talker.done()
    slow.until(lambda: len(slow.payloads("/big")) >= 1, "the newest")
    fast.until(lambda: len(fast.payloads("/small")) >= 200 or not fast.channels, "the rest")
    code, said = recorder.stop()
    assert code == 0, said
    recorded = messages_of(world.folder / "bag")
    assert len(recorded["/big"]) == 200 and len(recorded["/small"]) == 200
    assert set(fast.payloads("/small")) <= set(recorded["/small"])
    assert set(fast.payloads("/big")) | set(slow.payloads("/big")) <= set(recorded["/big"])


def test_viewers_have_the_time_of_a_simulation(world, viewer):
    """The viewer gets the time of /clock as the server's, and each message with it: from 100 s on in steps of 0.2 s."""
    program = world.holdall("bridge", "--foxglove", "127.0.0.1:0", "--use-sim-time")
    seen = viewer(link(program))
    assert "time" in seen.info["capabilities"], seen.info
    plan = {"runs": [100], "steps": 3000, "step_s": 0.2, "every_s": 0.02, "topic": "/chatter"}
    world._keep(Node("simulator.py", plan, world.env))
    seen.take("/chatter")
    seen.until(lambda: len(seen.times) > 20 and len(seen.messages.get("/chatter", [])) > 20, "times and messages")

    def is_simulated(nanos):
        return 100e9 <= nanos <= 700e9 and nanos % 200_000_000 == 0

    assert all(map(is_simulated, seen.times)) and seen.times == sorted(seen.times), seen.times
    assert all(is_simulated(at) for at, _ in seen.messages["/chatter"]), seen.messages
    program.stop()


def test_viewers_fetch_meshes_only_where_that_is_asked_for(world, viewer):
    prefix = world.folder / "install"
    meshes = prefix / "share" / "arm" / "meshes"
    meshes.mkdir(parents=True)
    mesh = random.Random(3).randbytes(3_000_000)
    (meshes / "hand.dae").write_bytes(mesh)
    (prefix / "share" / "arm" / "secret.yaml").write_text("password: x")
    world.env["AMENT_PREFIX_PATH"] = str(prefix)
    uris = ["package://arm/meshes/hand.dae", "package://arm/secret.yaml", "package://arm/../../x.png", "file:///etc/passwd"]
    for flags in ([], ["--foxglove-assets"]):
        program = world.holdall("bridge", "--foxglove", "127.0.0.1:0", *flags)
        seen = viewer(link(program))
        assert ("assets" in seen.info["capabilities"]) == bool(flags), seen.info
        for number, uri in enumerate(uris):
            seen.request(op="fetchAsset", uri=uri, requestId=number)
        seen.until(lambda: len(seen.assets) == len(uris), "answers")
        status, reason, content = seen.assets[0]
        assert (status, content) == ((0, mesh) if flags else (1, b"")), reason
        assert all(seen.assets[number][0] == 1 and not seen.assets[number][2] for number in (1, 2, 3)), seen.assets
        program.stop()


def served_bag(world, count=400, rate=200):
    talker = world.talker({"topic": "/chatter", "type": STRING, "count": count, "rate_hz": rate, "qos": {"depth": 1000}})
    talker.wait_for("ready")
    recorder = world.holdall("record", "--topics", "/chatter", "-o", world.folder / "bag")
    talker.done()
    code, said = recorder.stop()
    assert code == 0, said
    from mcap.reader import make_reader

    with open(world.folder / "bag" / "bag_0.mcap", "rb") as stream:
        return [(message.log_time, message.data) for _, _, message in make_reader(stream).iter_messages()]


@pytest.mark.parametrize("subprotocol", SUBPROTOCOLS)
def test_a_served_bag_is_played_and_sought_by_the_viewers_timeline(world, viewer, subprotocol):
    recorded = served_bag(world)
    server = world.holdall("serve", world.folder / "bag", "--foxglove", "127.0.0.1:0")
    seen = viewer(link(server), subprotocol)
    assert "playbackControl" in seen.info["capabilities"]
    nanos = lambda stamp: stamp["sec"] * 1_000_000_000 + stamp["nsec"]
    start, end = nanos(seen.info["dataStartTime"]), nanos(seen.info["dataEndTime"])
    assert start == recorded[0][0] and end >= recorded[-1][0]
    seen.take("/chatter")
    assert seen.steer(True, 4.0, start, "all")[0] in (0, 2)
    seen.until(lambda: len(seen.messages.get("/chatter", [])) >= len(recorded), "all messages")
    assert seen.messages["/chatter"] == recorded, "times and bytes are those of the bag"
    seen.until(lambda: seen.states[-1][0] == 3, "the end")
    # Also after the end a jump begins with the first message at or after its time.
    chosen = random.Random(7)
    for number in range(100):
        at = chosen.randint(start, recorded[-1][0])
        state = seen.steer(True, 1.0, at, f"jump {number}")
        assert state[3] == 1, f"jump {number} to {at - start} was none"
        expected = next(entry for entry in recorded if entry[0] >= at)
        seen.until(lambda: seen.messages.get("/chatter"), f"a message after jump {number}")
        behind = [entry for entry in seen.messages["/chatter"] if entry[0] < at]
        assert not behind and expected == seen.messages["/chatter"][0], f"jump {number}"
    assert seen.steer(False, 1.0, None, "pause")[0] in (1, 3)
    code, said = server.stop()
    assert code in (0, 3), said


def small_bag(world, tmp_path):
    """A bag with video, and what a viewer is to get: log times and payloads, which RTPS pads to four bytes."""
    video = {"/camera": ("sensor_msgs/msg/Image", [(n, plain(n, "rgb8", scene(n, 160, 120))) for n in range(60)])}
    bag = world.folder / "small"
    done = world.run("compress", write(tmp_path / "camera.mcap", video), "-o", bag, "--video", "/camera=h264")
    assert done.returncode == 0, done.stderr
    return bag, [(time, data) for _, time, _, data, _ in read(bag)["/camera"]]


def assert_is_video(channel):
    assert (channel["encoding"], channel["schemaName"], channel["schemaEncoding"]) == ("cdr", "foxglove_msgs/msg/CompressedVideo", "ros2msg")
    assert all(field in channel["schema"] for field in ("timestamp", "string frame_id", "uint8[] data", "string format"))


def test_viewers_of_a_played_bag_get_its_video_unchanged(world, viewer, ffmpeg, tmp_path):
    bag, stored = small_bag(world, tmp_path)
    server = world.holdall("serve", bag, "--foxglove", "127.0.0.1:0")
    seen = viewer(link(server))
    seen.take("/camera")
    assert_is_video(seen.channels["/camera"])
    assert seen.steer(True, 4.0, stored[0][0], "all")[0] in (0, 2)
    seen.until(lambda: len(seen.messages.get("/camera", [])) >= len(stored), "all pictures")
    assert seen.messages["/camera"] == stored
    assert server.stop()[0] in (0, 3)


def test_viewers_beside_a_recording_get_video_unchanged(world, viewer, ffmpeg, tmp_path):
    bag, stored = small_bag(world, tmp_path)
    recorder = world.holdall("record", "-a", "-o", world.folder / "bag", "--foxglove", "127.0.0.1:0")
    seen = viewer(link(recorder))
    player = world.holdall("play", bag, "-p", "--wait-for-subscribers", "/camera=1", "--control-socket", world.folder / "play.sock", "--disable-keyboard-controls")
    seen.take("/camera")
    assert_is_video(seen.channels["/camera"])
    # Requests are answered one after the other: after this refusal the viewer has its subscription.
    seen.request(op="subscribe", subscriptions=[{"id": 1, "channelId": 99999}])
    seen.until(lambda: seen.statuses, "a refusal")
    assert world.run("control", world.folder / "play.sock", "resume").returncode == 0
    code, said = player.wait()
    assert code == 0, said
    sent = [data + bytes(-len(data) % 4) for _, data in stored]
    seen.until(lambda: len(seen.payloads("/camera")) >= len(sent), "all pictures")
    assert [data + bytes(-len(data) % 4) for data in seen.payloads("/camera")] == sent
    code, said = recorder.stop()
    assert code == 0, said
    assert [data + bytes(-len(data) % 4) for data in messages_of(world.folder / "bag")["/camera"]] == sent


def test_clients_that_are_no_viewers_are_refused_in_a_sentence(world, viewer):
    bridge = world.holdall("bridge", "--foxglove", "127.0.0.1:0")
    address = link(bridge)
    with pytest.raises(InvalidStatus) as refused:
        connect(address, subprotocols=["other"], open_timeout=DEADLINE_S)
    assert refused.value.response.status_code == 400
    with pytest.raises(InvalidStatus) as refused:
        connect(address, subprotocols=SUBPROTOCOLS, origin="https://evil.example", open_timeout=DEADLINE_S)
    assert refused.value.response.status_code == 403
    host, port = re.search(r"ws://([\d.]+):(\d+)/", address).groups()
    garbage = socket.create_connection((host, int(port)), timeout=DEADLINE_S)
    with garbage, contextlib.suppress(OSError):
        garbage.sendall(b"\x16\x03\x01" * 10_000)
        garbage.recv(1000)
    seen = viewer(address)
    # A frame that claims 1 GiB ends its connection, and nothing else.
    seen.socket.socket.sendall(b"\x82\xff" + struct.pack(">Q", 1 << 30) + b"\0\0\0\0")
    with pytest.raises(ConnectionClosed):
        while True:
            seen.socket.recv(timeout=DEADLINE_S)
    again = viewer(address)
    again.request(op="subscribe", subscriptions=[{"id": 1, "channelId": 99}])
    again.socket.send("no JSON")
    again.until(lambda: len(again.statuses) >= 2, "two refusals")
    assert "there is no channel 99" in again.statuses[0]["message"] and "not a request" in again.statuses[1]["message"]
    code, said = bridge.stop()
    assert code == 0, said


def test_hostile_viewers_do_not_touch_the_recording(world, viewer):
    recorder = world.holdall("record", "-a", "-o", world.folder / "bag", "--foxglove", "127.0.0.1:0")
    address = link(recorder)
    talker = world.talker(
        {"topic": "/big", "type": "std_msgs/msg/UInt8MultiArray", "count": 150, "rate_hz": 50, "size": 500_000},
        {"topic": "/small", "type": STRING, "count": 600, "rate_hz": 200},
        wait_for_subscriptions=2,
    )
    # One takes all and reads nothing, until the end.
    deaf = viewer(address)
    for topic in ("/big", "/small"):
        deaf.take(topic)
    host, port = re.search(r"ws://([\d.]+):(\d+)/", address).groups()
    silent = [socket.create_connection((host, int(port)), timeout=DEADLINE_S) for _ in range(1000)]
    with pytest.raises(InvalidStatus):
        # The page is foreign.
        connect(address, subprotocols=SUBPROTOCOLS, origin="https://evil.example", open_timeout=DEADLINE_S)
    # The silent ones keep no viewer out.
    viewer(address)
    for one in silent[:20]:
        # Many have been hung up on.
        with contextlib.suppress(OSError):
            one.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: " + b"y" * 100_000)
    sent = talker.done()["sent"]
    for one in silent:
        one.close()
    code, said = recorder.stop()
    assert code == 0, said
    recorded = messages_of(world.folder / "bag")
    assert {topic: len(recorded[topic]) for topic in sent} == {topic: entries[0]["count"] for topic, entries in sent.items()}
