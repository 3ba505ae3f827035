"""Images that are encoded while they are recorded: from real rclpy publishers, judged by real ffmpeg and by `mcap`."""

import json
import os
import signal
import struct
import sys
import time

import imageio_ffmpeg
import numpy as np
import pytest
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from served import until
from test_latched import files_of
from test_ring import recorded
from test_small import decoded, recoded

IMAGE, VIDEO, PACKET = "sensor_msgs/msg/Image", "foxglove_msgs/msg/CompressedVideo", "ffmpeg_image_transport_msgs/msg/FFMPEGPacket"
CLOUD, PACKED_CLOUD = "sensor_msgs/msg/PointCloud2", "point_cloud_interfaces/msg/CompressedPointCloud2"
FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()
WIDTH, HEIGHT = 320, 240


def camera(topic, count=None, rate_hz=30, **plan):
    return {"topic": topic, "type": IMAGE, "width": WIDTH, "height": HEIGHT, "count": count, "rate_hz": rate_hz, "qos": {"depth": 100}, **plan}


def record(world, *arguments):
    recorder = world.holdall("record", "-a", "-o", world.folder / "bag", *arguments)
    recorder.wait_until_says("Listening for topics")
    return recorder


def read(bag):
    """For each file, by topic: type, number by the stamp, and message; by a foreign reader, in the order of the file."""
    files = []
    for path in files_of(bag)[0]:
        found = {}
        with open(path, "rb") as stream:
            reader = make_reader(stream, decoder_factories=[DecoderFactory()])
            for schema, channel, _, message in reader.iter_decoded_messages(log_time_order=False):
                if schema.name in (IMAGE, VIDEO, PACKET):
                    stamp = message.timestamp if schema.name == VIDEO else message.header.stamp
                    number = (stamp.sec * 1_000_000_000 + stamp.nanosec) // 1_000_000
                    found.setdefault(channel.topic, []).append((schema.name, number, message))
        files.append(found)
    return files


def numbers(files, topic):
    return [number for file in files for _, number, _ in file.get(topic, [])]


def audit(world):
    done = world.run("audit", "--json", world.folder / "bag")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_images_are_recorded_as_video_and_each_file_begins_with_a_key_frame(world, ffmpeg):
    recorder = record(world, "-d", "2", "--video", "/camera/left=h264,quality=20", "--video", "/camera/.*=lossless,preset=ultrafast")
    count, topics = 150, ["/camera/left", "/camera/right"]
    cameras = world.talker(*(camera(topic, count) for topic in topics), {"topic": "/imu", "type": "sensor_msgs/msg/Imu", "count": 500, "rate_hz": 100})
    cameras.done()
    code, said = recorder.stop()
    assert code == 0, said
    bag = world.folder / "bag"
    files = read(bag)
    assert len(files) > 1
    for topic in topics:
        assert numbers(files, topic) == list(range(count)), topic
        for file in files:
            messages = file.get(topic, [])
            assert {kind for kind, _, _ in messages} <= {VIDEO} and {one.frame_id for _, _, one in messages} <= {"camera"}
            if messages:
                # Any file on its own.
                pictures, kinds = decoded(b"".join(one.data for _, _, one in messages), "h264", WIDTH, HEIGHT)
                assert len(pictures) == len(messages) and kinds[0][0] == "1" and "B" not in [kind for _, kind in kinds]
                assert max(abs(int(pictures[0][100, x, 0]) - x * 255 // WIDTH) for x in range(20, WIDTH)) < 12
    about = recoded(world, bag)
    for topic, exactness in zip(topics, ("lossy", "lossless"), strict=True):
        one = about[topic]
        assert (one["from"], one["into"], one["messages"], one["kept"], one["exactness"]) == (IMAGE, VIDEO, count, 0, exactness), one
        assert one["bytes_after"] < one["bytes_before"] / 20 and one["encoder"].startswith("ffmpeg version"), one
    assert about["/camera/left"]["likeness"]["psnr_min"] > 30
    assert audit(world)["topics"]["/camera/left"]["recorded"] == count
    check = world.run("check", bag)
    assert check.returncode == 0, check.stdout + check.stderr
    restored = world.run("decompress", bag, "-o", world.folder / "images")
    assert restored.returncode == 0, restored.stderr
    back = read(world.folder / "images")
    assert sorted(numbers(back, "/camera/right")) == list(range(count))
    for kind, number, message in back[0]["/camera/right"]:
        # The publisher writes the number into the first pixels.
        assert kind == IMAGE and bytes(message.data[:8]) == number.to_bytes(8, "little") and len(message.data) == 3 * WIDTH * HEIGHT


def stand_in(world, script):
    """An ffmpeg of the test, first in the PATH; it says its version itself."""
    programs = world.folder / "programs"
    programs.mkdir(exist_ok=True)
    world.env["PATH"] = f"{programs}:/usr/bin:/bin"
    (programs / "ffmpeg").unlink(missing_ok=True)
    (programs / "ffmpeg").write_text(f'#!/bin/sh\n[ "$1" = -version ] && echo ffmpeg version 0.1 of a test && exit\n{script}\n')
    (programs / "ffmpeg").chmod(0o755)


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


FAULTS = {
    "none": (None, "the program ffmpeg is not installed"),
    "dies": ("exit 1", "ffmpeg"),
    "hangs": ('echo $$ >> "$0.pids"; exec sleep 100', "too slow"),
    "lies": ("cat > /dev/null; echo no video", "pictures of"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_encoded_is_recorded_as_it_is_and_counted(world, fault):
    script, reason = FAULTS[fault]
    if script:
        stand_in(world, script)
    else:
        world.env["PATH"] = "/usr/bin:/bin"
    # H.264 may have an encoder that needs no ffmpeg.
    recorder = record(world, "--video", ".*=h265")
    count = 210 if fault == "hangs" else 60
    world.talker(camera("/camera", count)).done()
    begun = time.monotonic()
    code, said = recorder.stop()
    assert code == 0 and time.monotonic() - begun < 15, said
    assert "/camera: recorded without another form" in said, said
    files = read(world.folder / "bag")
    assert numbers(files, "/camera") == list(range(count))
    assert {kind for kind, _, _ in files[0]["/camera"]} == {IMAGE}
    about = audit(world)["recoded"][0]
    assert (about["messages"], about["kept"]) == (0, count) and sum(about["reasons"].values()) == count
    assert any(reason in found for found in about["reasons"]), about["reasons"]
    if fault == "hangs":
        # A person is not sent to look for a slow disk, and no program outlives the recorder.
        assert "messages of /camera have waited for their encoder for" in said, said
        pids = [int(pid) for pid in (world.folder / "programs/ffmpeg.pids").read_text().split()]
        assert pids and not any(is_running(pid) for pid in pids), pids
        assert about["steps"][0]["what"].startswith("images as they come, "), about


def test_an_encoder_that_failed_is_tried_again(world):
    failed = 'n=$(cat "$0.count" 2> /dev/null || echo 0); echo $((n + 1)) > "$0.count"; [ $n -lt 3 ] && echo no memory >&2 && exit 1'
    stand_in(world, f'case "$*" in *rawvideo*) {failed};; esac; exec {FFMPEG} "$@"')
    # H.264 may have an encoder that needs no ffmpeg.
    recorder = record(world, "--video", ".*=h265,preset=ultrafast")
    count = 300
    world.talker(camera("/camera", count)).done()
    code, said = recorder.stop()
    assert code == 0, said
    files = read(world.folder / "bag")
    assert sorted(numbers(files, "/camera")) == list(range(count))
    about = audit(world)["recoded"][0]
    # Images of five seconds stay, those after them are encoded.
    assert about["messages"] > 30 and about["kept"] > 90 and about["messages"] + about["kept"] == count, about
    assert [step["what"] for step in about["steps"]] == ["images as they come, ffmpeg: no memory, 3 times in a row", "encoded again"], about
    assert files[0]["/camera"][0][0] == IMAGE and files[-1]["/camera"][-1][0] == VIDEO


@pytest.mark.parametrize("window", ["2s", "500ms"])
def test_an_encoder_of_the_hardware_that_hangs_is_replaced(world, window):
    # With the shorter window it is given up before its trial is over.
    stand_in(world, f'case "$*" in *h264_nvenc*) echo $$ >> "$0.pids"; exec sleep 100;; esac; exec {FFMPEG} "$@"')
    recorder = record(world, "--video", ".*=h264,preset=ultrafast,encoder=h264_nvenc", "--max-loss-window", window)
    count = 300
    world.talker(camera("/camera", count)).done()
    code, said = recorder.stop()
    assert code == 0 and "h264_nvenc does not work here" in said, said
    files = read(world.folder / "bag")
    assert sorted(numbers(files, "/camera")) == list(range(count))
    about = audit(world)["recoded"][0]
    assert about["messages"] > 30 and about["messages"] + about["kept"] == count, about
    assert " libx264; h264_nvenc does not work here (" in about["encoder"], about
    pids = [int(pid) for pid in (world.folder / "programs/ffmpeg.pids").read_text().split()]
    assert len(pids) == 1 and not is_running(pids[0]), pids


def test_a_camera_that_comes_back_with_another_size_is_encoded_further(world, ffmpeg):
    recorder = record(world, "--video", "/camera=h264,preset=ultrafast")
    world.talker(camera("/camera", 60)).done()
    world.talker({**camera("/camera", 200), "width": 160, "height": 120}).done()
    code, said = recorder.stop()
    assert code == 0, said
    about = audit(world)["recoded"][0]
    assert about["messages"] > 90 and about["messages"] + about["kept"] == 260 and about["sizes"] == [[160, 120]], about
    assert "images of 160 x 120 pixels" in [step["what"] for step in about["steps"]], about
    restored = world.run("decompress", world.folder / "bag", "-o", world.folder / "images")
    assert restored.returncode == 0, restored.stderr
    images = [(kind, number, len(message.data)) for file in read(world.folder / "images") for kind, number, message in file["/camera"]]
    sizes = [(IMAGE, number, 3 * width * height) for count, width, height in ((60, 320, 240), (200, 160, 120)) for number in range(count)]
    assert sorted(images) == sorted(sizes)


def test_after_a_kill_what_the_encoder_had_is_there_as_images(world, ffmpeg):
    recorder = record(world, "--video", "/camera=h264,preset=ultrafast")
    count = 100
    talker = world.talker(camera("/camera", count), linger=True)
    talker.wait_for("done")
    recorder.process.send_signal(signal.SIGKILL)
    recorder.process.wait()
    talker.interrupt()
    repaired = world.repair(world.folder / "bag")
    assert repaired.returncode in (0, 3), repaired.stdout + repaired.stderr
    files = read(world.folder / "bag")
    found = numbers(files, "/camera")
    assert sorted(found) == list(range(count)), (len(found), repaired.stdout, repaired.stderr)
    kinds = {kind: sum(one[0] == kind for file in files for one in file.get("/camera", [])) for kind in (IMAGE, VIDEO)}
    assert kinds[VIDEO] > 0 and kinds[IMAGE] > 0, kinds
    assert audit(world)["topics"]["/camera"]["recorded"] == count
    about = audit(world)["recoded"][0]
    assert (about["codec"], about["messages"], about["kept"]) == ("h264", kinds[VIDEO], kinds[IMAGE]), about
    # What the bag says of its video is enough to make images of it again.
    restored = world.run("decompress", world.folder / "bag", "-o", world.folder / "images")
    assert restored.returncode == 0, restored.stderr
    back = read(world.folder / "images")
    assert sorted(numbers(back, "/camera")) == list(range(count))
    assert {kind for file in back for kind, _, _ in file["/camera"]} == {IMAGE}


@pytest.mark.parametrize("codec", ["h264,preset=ultrafast", "lossless,preset=ultrafast"])
def test_a_kill_while_images_come_costs_none_of_those_that_were_received(world, ffmpeg, codec):
    log = world.folder / "sent"
    recorder = record(world, "--video", f"/camera={codec}", "--control-socket", world.folder / "s")
    talker = world.talker(camera("/camera", log=str(log)))
    until(lambda: recorded(world) >= 100, "images")
    received = recorded(world)
    recorder.process.send_signal(signal.SIGKILL)
    recorder.process.wait()
    talker.interrupt()
    talker.done()
    sent = [number for number, _ in struct.iter_unpack("<Qd", log.read_bytes())]
    repaired = world.repair(world.folder / "bag")
    assert repaired.returncode in (0, 3), repaired.stdout + repaired.stderr
    files = read(world.folder / "bag")
    found = sorted(numbers(files, "/camera"))
    # What was received is all that was sent before some moment.
    assert received <= len(found) <= len(sent) and found == sent[: len(found)], (received, found[-1], len(sent), repaired.stderr)
    kinds = {kind: sum(one[0] == kind for file in files for one in file.get("/camera", [])) for kind in (IMAGE, VIDEO)}
    assert all(kinds.values()), kinds
    about = audit(world)
    assert about["topics"]["/camera"]["recorded"] == len(found)
    assert [(one["messages"], one["kept"]) for one in about["recoded"]] == [(kinds[VIDEO], kinds[IMAGE])], about["recoded"]
    restored = world.run("decompress", world.folder / "bag", "-o", world.folder / "images")
    assert restored.returncode == 0, restored.stderr
    back = [one for file in read(world.folder / "images") for one in file["/camera"]]
    assert sorted(number for _, number, _ in back) == found
    if codec.startswith("lossless"):
        # The publisher writes the number into the first pixels.
        assert all(bytes(message.data[:8]) == number.to_bytes(8, "little") for _, number, message in back)


def test_one_encoder_runs_on_from_second_to_second(world):
    stand_in(world, f'echo "$*" >> "$0.starts"; exec {FFMPEG} "$@"')
    recorder = record(world, "--video", "/camera=h264,preset=ultrafast")
    count = 240
    world.talker(camera("/camera", count)).done()
    code, said = recorder.stop()
    assert code == 0, said
    (file,) = read(world.folder / "bag")
    assert [number for _, number, _ in file["/camera"]] == list(range(count)) and {kind for kind, _, _ in file["/camera"]} == {VIDEO}
    pictures, kinds = decoded(b"".join(one.data for _, _, one in file["/camera"]), "h264", WIDTH, HEIGHT)
    keys = [number for number, (key, _) in enumerate(kinds) if key == "1"]
    assert len(pictures) == count and keys[0] == 0 and len(keys) >= 7, keys
    starts = (world.folder / "programs/ffmpeg.starts").read_text().splitlines()
    encoders, decoders = ([one for one in starts if ("rawvideo" in one) == is_raw] for is_raw in (True, False))
    # One for each of eight seconds before; more than one where the computer is busy and images come unevenly.
    assert 1 <= len(encoders) <= 5 and len(decoders) <= len(encoders), starts


def test_images_of_a_slow_camera_are_recorded_as_video(world, ffmpeg):
    recorder = record(world, "--video", "/camera/one=h264,preset=ultrafast", "--video", "/camera/two=lossless,preset=ultrafast")
    count, topics = 50, ["/camera/one", "/camera/two"]
    world.talker(*(camera(topic, count, rate_hz=8) for topic in topics)).done()
    code, said = recorder.stop()
    assert code == 0, said
    (file,) = read(world.folder / "bag")
    for topic in topics:
        assert [(kind, number) for kind, number, _ in file[topic]] == [(VIDEO, number) for number in range(count)]
        about = recoded(world, world.folder / "bag")[topic]
        assert (about["messages"], about["kept"]) == (count, 0), about


def test_what_is_encoded_starts_and_stops_episodes_and_events(world, ffmpeg):
    when = "/camera: header.stamp.nanosec >= 60000000 and header.stamp.nanosec < 90000000"
    recorder = record(world, "--video", "/camera=h264,preset=ultrafast", "--episode-when", when)
    world.talker(camera("/camera", 120)).done()
    code, said = recorder.stop()
    assert code == 0, said
    (file,) = read(world.folder / "bag")
    assert [number for _, number, _ in file["/camera"]] == list(range(120))
    (episode,) = world.info(world.folder / "bag")["episodes"]
    times = {}
    with open(files_of(world.folder / "bag")[0][0], "rb") as stream:
        for _, _, message, one in make_reader(stream, decoder_factories=[DecoderFactory()]).iter_decoded_messages(topics=["/camera"]):
            stamp = one.timestamp if hasattr(one, "timestamp") else one.header.stamp
            times[(stamp.sec * 1_000_000_000 + stamp.nanosec) // 1_000_000] = message.log_time
    assert episode["start_ns"] == times[60] and times[89] <= episode["end_ns"] <= times[90], (episode, said)


def test_events_see_images_that_are_encoded(world, ffmpeg):
    event = "/camera: header.stamp.nanosec == 60000000"
    recorder = record(world, "--video", "/camera=h264,preset=ultrafast", "--trigger", event, "--before", "0.5", "--after", "500ms")
    world.talker(camera("/camera", 120)).done()
    code, said = recorder.stop()
    assert code == 0 and "recording around it" in said, said
    found = numbers(read(world.folder / "bag"), "/camera")
    assert 60 in found and len(found) < 90 and found == list(range(found[0], found[-1] + 1)), found


# Takes so many images a second where this is in the arguments.
SLOW = """case "$*" in *rawvideo*"{pattern}"*) {python} -c '
import sys, time
while image := sys.stdin.buffer.read({size}):
    sys.stdout.buffer.write(image); sys.stdout.buffer.flush(); time.sleep({pause})
' | {ffmpeg} "$@" ;; *) exec {ffmpeg} "$@" ;; esac"""


@pytest.mark.parametrize("policy", ["quality", "rate"])
def test_an_encoder_that_does_not_follow_gets_less_to_do_until_it_does(world, policy):
    pattern = "-preset superfast" if policy == "quality" else "-i"
    stand_in(world, SLOW.format(pattern=pattern, python=sys.executable, size=3 * WIDTH * HEIGHT, pause=1 / 12, ffmpeg=FFMPEG))
    recorder = record(world, "--video", "/camera=h264,preset=superfast", "--video-when-behind", policy)
    count = 600
    world.talker(camera("/camera", count)).done()
    code, said = recorder.stop()
    assert code == 0, said
    about = audit(world)["recoded"][0]
    steps = [step["what"] for step in about["steps"]]
    files = read(world.folder / "bag")
    found = numbers(files, "/camera")
    assert about["messages"] + about["kept"] + about["left_out"] == count and len(found) == count - about["left_out"], about
    assert found == sorted(set(found)) and about["messages"] > count / 10, about
    if policy == "quality":
        assert steps[0] == "a quality 1 step lower, its encoder is behind" and "the quality that was requested again, its encoder follows" in steps, steps
        assert found == list(range(count)) and about["left_out"] == 0
    else:
        assert steps[0] == "one of 2 images, its encoder is behind" and about["left_out"] > 100, steps
    markers = [marker["name"] for marker in world.info(world.folder / "bag")["markers"]]
    assert markers == [f"/camera: {step}" for step in steps], (markers, steps)
    totals = audit(world)["topics"]["/camera"]
    assert totals["recorded"] == len(found), totals


def test_clouds_and_packets_are_recorded_as_compress_makes_them(world, ffmpeg):
    recorder = record(world, "--video", "/camera=h264,preset=ultrafast", "--as", "ffmpeg_image_transport", "--cloud", "/lidar=cloudini,resolution=0.01")
    world.talker(camera("/camera", 60), {"topic": "/lidar", "type": CLOUD, "count": 40, "rate_hz": 20, "points": 2000}).done()
    code, said = recorder.stop()
    assert code == 0, said
    (file,) = read(world.folder / "bag")
    assert [number for _, number, _ in file["/camera"]] == list(range(60)) and {kind for kind, _, _ in file["/camera"]} == {PACKET}
    assert [one.pts for _, _, one in file["/camera"]] == list(range(60))
    assert len(decoded(b"".join(one.data for _, _, one in file["/camera"]), "h264", WIDTH, HEIGHT)[0]) == 60
    about = recoded(world, world.folder / "bag")
    assert (about["/camera"]["into"], about["/camera"]["messages"]) == (PACKET, 60), about
    lidar = about["/lidar"]
    assert (lidar["into"], lidar["messages"], lidar["kept"], lidar["error_bound"]) == (PACKED_CLOUD, 40, 0, pytest.approx(0.01)), lidar
    assert lidar["bytes_after"] < lidar["bytes_before"] and lidar["error_max"] <= 0.01
    restored = world.run("decompress", world.folder / "bag", "-o", world.folder / "large")
    assert restored.returncode == 0, restored.stderr
    clouds = 0
    with open(files_of(world.folder / "large")[0][0], "rb") as stream:
        for schema, channel, _, message in make_reader(stream, decoder_factories=[DecoderFactory()]).iter_decoded_messages():
            if channel.topic == "/lidar":
                clouds += 1
                assert schema.name == CLOUD and len(message.data) == message.row_step and np.isfinite(np.frombuffer(message.data, "<f4")).any()
    assert clouds == 40
