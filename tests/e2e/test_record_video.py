"""Images that are encoded while they are recorded: from real rclpy publishers, judged by real ffmpeg and by `mcap`."""

import json
import signal
import time

import pytest
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from test_latched import files_of
from test_small import decoded, recoded

IMAGE, VIDEO = "sensor_msgs/msg/Image", "foxglove_msgs/msg/CompressedVideo"
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
                if schema.name in (IMAGE, VIDEO):
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


FAULTS = {
    "none": (None, "the program ffmpeg is not installed"),
    "dies": ("exit 1", "ffmpeg"),
    "hangs": ("sleep 100", "too slow"),
    "lies": ("cat > /dev/null; echo no video", "pictures of"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_encoded_is_recorded_as_it_is_and_counted(world, fault):
    script, reason = FAULTS[fault]
    programs = world.folder / "programs"
    programs.mkdir()
    world.env["PATH"] = f"{programs}:/usr/bin:/bin"
    if script:
        (programs / "ffmpeg").write_text(f'#!/bin/sh\n[ "$1" = -version ] && echo ffmpeg version 0.1 of a test && exit\n{script}\n')
        (programs / "ffmpeg").chmod(0o755)
    recorder = record(world, "--video", ".*=h264")
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
