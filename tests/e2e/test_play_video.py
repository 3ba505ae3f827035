"""Bags with video and compressed clouds, played as images and clouds to real rclpy listeners: lossless ones bit for bit."""

import hashlib
import io
import json
import os
import re
import subprocess

import numpy as np
import pytest
from mcap.reader import make_reader
from mcap.writer import Writer
from PIL import Image
from test_play_control import asking, poll
from test_small import FFMPEG, START, STEP, cloud, decoded, depth, head, plain, psnr, read, scan, scene
from test_small import write as write_bag
from test_video import HEIGHT, WIDTH, cdr, encode, moving, turned, write_two

IMAGE, FILE, CLOUD = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage", "sensor_msgs/msg/PointCloud2"
COUNT = 60
QOS = {"depth": 1000}


def md5(payloads):
    """As the listener adds them up: each padded to a multiple of four bytes."""
    return hashlib.md5(b"".join(payload + bytes(-len(payload) % 4) for payload in payloads)).hexdigest()


def lossless(world, tmp_path, *more):
    """A bag of lossless video, depth and clouds; its messages as they were."""
    odd = plain(30, "mono8", np.full((4, 4), 9, np.uint8))
    topics = {
        "/rgb": (IMAGE, [plain(n, "rgb8", scene(n)) for n in range(COUNT)]),
        # One image stays an image between pictures of the video: it has another size.
        "/bgr": (IMAGE, [odd if n == 30 else plain(n, "bgr8", scene(n, 65, 49)) for n in range(COUNT)]),
        "/depth": (IMAGE, [plain(n, "16UC1", depth(n)) for n in range(COUNT)]),
        "/lidar": (CLOUD, [cloud(n, scan(n, 500)) for n in range(COUNT)]),
    }
    bag = write_bag(tmp_path / "camera.mcap", {topic: (kind, list(enumerate(messages))) for topic, (kind, messages) in topics.items()})
    done = world.run("compress", bag, "-o", world.folder / "small", "--video", ".*=lossless", "--cloud", ".*=lossless", *more)
    assert done.returncode == 0, done.stderr
    return topics


def play_to_listener(world, kinds, expect, *arguments):
    listener = world.listener(*({"topic": topic, "type": kind, "qos": QOS} for topic, kind in kinds.items()), expect=expect)
    listener.wait_for("ready")
    wait = ["--wait-for-subscribers", *(f"{topic}=1" for topic in kinds), "--wait-for-all-acked", "10000"]
    played = world.run("play", world.folder / "small", "--decode-video", *wait, *arguments)
    assert played.returncode == 0, played.stderr
    return listener.done()["received"], played


@pytest.mark.parametrize("skipped", [0, 7, 29, 43])
def test_lossless_video_depth_and_clouds_are_played_bit_for_bit_from_anywhere(tmp_path, world, ffmpeg, skipped):
    topics = lossless(world, tmp_path)
    expect = dict.fromkeys(topics, COUNT - skipped)
    received, played = play_to_listener(world, {topic: kind for topic, (kind, _) in topics.items()}, expect, "--start-offset", str(skipped * STEP / 1e9), "--json")
    for topic, (_, messages) in topics.items():
        assert (received[topic]["count"], received[topic]["md5"]) == (COUNT - skipped, md5(messages[skipped:])), topic
    report = json.loads(played.stdout)
    assert report["published"] == 4 * (COUNT - skipped), "one publisher has the images and the pictures"


def test_lossy_video_of_each_carrier_comes_back_as_the_type_that_it_was_made_of(tmp_path, world, ffmpeg):
    pictures = [scene(number) for number in range(COUNT)]

    def jpeg(picture):
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "JPEG", quality=95)
        return file.getvalue()

    files = [cdr(*head(n), ("s", "rgb8; jpeg compressed bgr8"), ("b", jpeg(picture))) for n, picture in enumerate(pictures)]
    for carrier in ("foxglove", "ffmpeg_image_transport", "compressed_image"):
        folder = tmp_path / f"raw-{carrier}"
        folder.mkdir()
        raw = {"/camera": (IMAGE, [(n, plain(n, "bgr8", picture[:, :, ::-1])) for n, picture in enumerate(pictures)]), "/jpeg": (FILE, list(enumerate(files)))}
        small = world.folder / carrier
        done = world.run("compress", write_bag(folder / "camera.mcap", raw), "-o", small, "--video", ".*=h264,quality=18", "--as", carrier)
        assert done.returncode == 0, done.stderr
        bag = world.folder / f"heard-{carrier}"
        recorder = world.holdall("record", "-o", bag, "--topics", "/camera", "/jpeg")
        recorder.wait_until_says("Listening for topics")
        played = world.run("play", small, "--decode-video", "--wait-for-subscribers", "/camera=1", "/jpeg=1", "--wait-for-all-acked", "10000")
        assert played.returncode == 0, played.stderr
        code, said = recorder.stop()
        assert code == 0, said
        heard = read(bag)
        assert {one[0] for one in heard["/camera"]} == {IMAGE} and {one[0] for one in heard["/jpeg"]} == {FILE}
        for topic in ("/camera", "/jpeg"):
            assert [(one[4].header.stamp.sec, one[4].header.frame_id) for one in heard[topic]] == [(100 + n, f"lens_{n % 3}") for n in range(COUNT)]
        for number, picture in enumerate(pictures):
            image = heard["/camera"][number][4]
            assert (image.encoding, image.step) == ("bgr8", 960)
            assert psnr(np.frombuffer(image.data, np.uint8).reshape(240, 320, 3)[:, :, ::-1], picture) > 30
            assert psnr(np.asarray(Image.open(io.BytesIO(heard["/jpeg"][number][4].data))), picture) > 28


def test_a_seek_goes_to_any_picture_and_leaves_no_decoder(tmp_path, world, ffmpeg):
    topics = lossless(world, tmp_path)
    kinds = {topic: kind for topic, (kind, _) in topics.items()}
    listener = world.listener(*({"topic": topic, "type": kind, "qos": QOS} for topic, kind in kinds.items()))
    listener.wait_for("ready")
    socket = world.folder / "play.sock"
    player = world.holdall("play", world.folder / "small", "--decode-video", "-p", "--control-socket", socket, "--disable-keyboard-controls", "--wait-for-subscribers", *(f"{t}=1" for t in kinds))
    player.wait_until_says("playing ")
    ask = asking(world, socket)
    poll(lambda: ask("status")["status"]["phase"], "playing")
    wanted = {topic: [] for topic in topics}
    for number in (50, 3, 31, 30, 59, 0):
        ask("seek", f"time_ns={START + number * STEP}")
        assert ask("burst", "4")["played"] == 4
        for topic, (_, messages) in topics.items():
            wanted[topic].append(messages[number])
    assert ask("stop") == {"ok": True}
    code, said = player.wait()
    assert code == 0, said
    listener.interrupt()
    received = listener.done()["received"]
    for topic, messages in wanted.items():
        assert (received[topic]["count"], received[topic]["md5"]) == (len(messages), md5(messages)), topic
    running = subprocess.run(["ps", "-o", "args=", "--ppid", str(os.getpid())], capture_output=True, text=True).stdout
    assert "-f h264 -i -" not in running, running


def test_foreign_video_with_few_key_frames_and_parameters_at_the_beginning_only_is_decoded(tmp_path, world, ffmpeg):
    pictures = [scene(number) for number in range(200)]
    encode = [FFMPEG, "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-video_size", "320x240", "-framerate", "20", "-i", "-", "-c:v", "libx264"]
    encode += ["-x264-params", "keyint=100:scenecut=0:bframes=0:aud=1", "-f", "h264", "-"]
    stream = subprocess.run(encode, input=b"".join(picture.tobytes() for picture in pictures), capture_output=True, check=True).stdout
    units = [b"\0\0\0\1\x09" + unit for unit in stream.split(b"\0\0\0\1\x09")[1:]]
    assert len(units) == len(pictures)
    # The second key frame loses its parameters.
    nals = re.split(rb"\x00\x00\x00?\x01", units[100])[1:]
    assert {7, 8} < {nal[0] & 31 for nal in nals}
    units[100] = b"".join(b"\0\0\0\1" + nal for nal in nals if nal[0] & 31 not in (7, 8))
    bag = write_bag(world.folder / "small", {"/camera": (FILE, [(n, cdr(*head(n), ("s", "h264"), ("b", unit))) for n, unit in enumerate(units)])})
    seen, _ = decoded(stream, "h264", 320, 240)
    for skipped in (0, 150):
        received, _ = play_to_listener(world, {"/camera": IMAGE}, {"/camera": 200 - skipped}, "--start-offset", str(skipped * STEP / 1e9), "-r", "4")
        assert received["/camera"]["md5"] == md5([plain(n, "rgb8", seen[n]) for n in range(skipped, 200)]), skipped
    # Without the flag it stays what it is.
    played = world.run("play", bag, "--json", "-r", "100")
    assert played.returncode == 0 and json.loads(played.stdout)["published"] == 200


def test_two_senders_of_video_on_one_topic_are_played_each_with_its_own_pictures(world, ffmpeg):
    size = (WIDTH, HEIGHT)
    streams = [encode("h264", 60, scene=moving), encode("h264", 60, scene=turned)]
    write_two(world.folder / "small", streams, step=STEP)
    seen = [decoded(b"".join(stream), "h264", *size)[0] for stream in streams]
    stamp = [("i", 1), ("s", "camera")]
    images = [
        cdr(stamp[0], ("I", number), stamp[1], ("I", HEIGHT), ("I", WIDTH), ("s", "rgb8"), ("B", 0), ("I", 3 * WIDTH), ("b", pictures[number].tobytes()))
        for number in range(60)
        for pictures in seen
    ]
    for skipped in (0, 25):
        received, _ = play_to_listener(world, {"/camera": IMAGE}, {"/camera": 2 * (60 - skipped)}, "--start-offset", str(skipped * STEP / 1e9))
        assert received["/camera"]["md5"] == md5(images[2 * skipped :]), skipped


def test_without_ffmpeg_or_video_it_says_so_before_it_begins(tmp_path, world, ffmpeg):
    lossless(world, tmp_path)
    here = world.env["PATH"]
    world.env["PATH"] = str(tmp_path)
    refused = world.run("play", world.folder / "small", "--decode-video")
    assert refused.returncode == 1, refused.stderr
    assert refused.stderr.splitlines()[-1] == "holdall: the video on /bgr cannot be decoded: the program ffmpeg is not installed"
    # Depth and clouds need no program.
    played = world.run("play", world.folder / "small", "--decode-video", "--topics", "/depth", "/lidar", "--json", "-r", "10")
    assert played.returncode == 0 and json.loads(played.stdout)["published"] == 2 * COUNT, played.stderr
    world.env["PATH"] = here
    other = write_bag(tmp_path / "plain.mcap", {"/rgb": (IMAGE, [(n, plain(n, "rgb8", scene(n, 16, 16))) for n in range(3)])})
    played = world.run("play", other, "--decode-video")
    assert played.returncode == 0 and "no video and no compressed clouds" in played.stderr, played.stderr


def test_a_damaged_picture_costs_its_group_and_is_reported(tmp_path, world, ffmpeg):
    lossless(world, tmp_path)
    (path,) = (world.folder / "small").glob("*.mcap")
    broken = tmp_path / "broken.mcap"
    with open(path, "rb") as source, open(broken, "wb") as target:
        writer, made, count = Writer(target), {}, 0
        writer.start("ros2", "test")
        for schema, channel, message in make_reader(source).iter_messages(topics=["/rgb"]):
            if channel.id not in made:
                kind = writer.register_schema(schema.name, schema.encoding, schema.data)
                made[channel.id] = writer.register_channel(channel.topic, "cdr", kind)
            data = bytearray(message.data)
            if count == 10:
                # No start code, so no picture.
                data[data.index(b"\0\0\0\1") : len(data) - 12] = bytes(len(data) - 12 - data.index(b"\0\0\0\1"))
            writer.add_message(made[channel.id], message.log_time, bytes(data), message.publish_time)
            count += 1
        writer.finish()
    played = world.run("play", broken, "--decode-video", "--json", "-r", "10")
    assert played.returncode == 1, played.stderr
    assert "/rgb" in played.stdout + played.stderr and json.loads(played.stdout)["published"] == COUNT - 16, played.stdout
