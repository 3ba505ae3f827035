"""H.264 and H.265 in messages become images by real ffmpeg: the grey level of each is the number of its message."""

import json
import os
import re
import struct
import subprocess

import imageio_ffmpeg
import numpy as np
import pytest
from mcap.writer import Writer
from PIL import Image

FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()
START, STEP = 1_700_000_000_000_000_000, 33_333_333
WIDTH, HEIGHT = 64, 48
STAMP = "\n================================================================================\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
HEADER = "\n================================================================================\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n"
SCHEMAS = {
    "sensor_msgs/msg/CompressedImage": "std_msgs/Header header\nstring format\nuint8[] data" + HEADER + STAMP,
    "foxglove_msgs/msg/CompressedVideo": "builtin_interfaces/Time timestamp\nstring frame_id\nuint8[] data\nstring format" + STAMP,
    "ffmpeg_image_transport_msgs/msg/FFMPEGPacket": "std_msgs/Header header\nint32 width\nint32 height\nstring encoding\nuint64 pts\nuint8 flags\n"
    "bool is_bigendian\nuint8[] data" + HEADER + STAMP,
}


def grey(number):
    return 20 + number * 7 % 200


def encode(codec, count, size=(WIDTH, HEIGHT), gop=20, bframes=0):
    """A message for each picture."""
    pixels = b"".join(np.full((size[1], size[0], 3), grey(number), np.uint8).tobytes() for number in range(count))
    name = {"h264": "libx264", "hevc": "libx265"}[codec]
    command = [FFMPEG, "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{size[0]}x{size[1]}", "-r", "30", "-i", "-"]
    command += ["-c:v", name, "-g", str(gop), "-bf", str(bframes), "-qp" if codec == "h264" else "-crf", "4", "-pix_fmt", "yuv420p"]
    keys = "log-level=none:repeat-headers=1:keyint={0}:min-keyint={0}:scenecut=0:open-gop=0:bframes={1}".format(gop, bframes)
    command += ["-x265-params", keys] if codec == "hevc" else ["-sc_threshold", "0"]
    stream = subprocess.run([*command, "-f", codec, "-"], input=pixels, capture_output=True, check=True).stdout
    places = [found.start() for found in re.finditer(b"\0?\0\0\1", stream)]
    messages, current, has_picture = [], b"", False
    for begin, end in zip(places, [*places[1:], len(stream)], strict=True):
        unit = stream[begin:end]
        head = unit.index(b"\1") + 1
        kind = unit[head] & 31 if codec == "h264" else unit[head] >> 1 & 63
        is_picture = kind in (1, 5) if codec == "h264" else kind < 32
        is_first = is_picture and bool(unit[head + (1 if codec == "h264" else 2)] & 0x80)
        if has_picture and (is_first or not is_picture):
            messages.append(current)
            current, has_picture = b"", False
        current += unit
        has_picture |= is_picture
    messages.append(current)
    assert len(messages) == count
    return messages


def cdr(*values):
    out = bytearray()
    for kind, value in values:
        size = {"s": 4, "b": 4}.get(kind) or struct.calcsize(kind)
        out += bytes(-len(out) % size)
        if kind == "s":
            out += struct.pack("<I", len(value) + 1) + value.encode() + b"\0"
        elif kind == "b":
            out += struct.pack("<I", len(value)) + value
        else:
            out += struct.pack("<" + kind, value)
    return b"\0\1\0\0" + bytes(out)


def message(kind, form, data):
    stamp = [("i", 1), ("I", 2), ("s", "camera")]
    if kind.startswith("sensor"):
        return cdr(*stamp, ("s", form), ("b", data))
    if kind.startswith("foxglove"):
        return cdr(*stamp, ("b", data), ("s", form))
    return cdr(*stamp, ("i", WIDTH), ("i", HEIGHT), ("s", form), ("Q", 5), ("B", 1), ("?", False), ("b", data))


def write(path, topics):
    """``topics``: type, format and data of messages, each with its number."""
    with open(path, "wb") as stream:
        writer = Writer(stream)
        writer.start("ros2", "test")
        for topic, (kind, form, messages) in topics.items():
            schema = writer.register_schema(kind, "ros2msg", SCHEMAS[kind].encode())
            channel = writer.register_channel(topic, "cdr", schema)
            for number, data in messages:
                time = START + number * STEP
                writer.add_message(channel, time, message(kind, form, data), time)
        writer.finish()
    return path


@pytest.fixture
def ffmpeg(tmp_path, world):
    """The PATH of the program has the ffmpeg of the package imageio-ffmpeg."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "ffmpeg").symlink_to(FFMPEG)
    world.env["PATH"] = f"{programs}:{os.environ['PATH']}"


def assert_images(folder, numbers, size=(WIDTH, HEIGHT), form="png"):
    assert sorted(path.name for path in folder.iterdir()) == [f"{START + number * STEP}.{form}" for number in sorted(numbers)]
    for number in numbers:
        image = Image.open(folder / f"{START + number * STEP}.{form}")
        assert image.size == size and image.mode == "RGB"
        assert abs(np.asarray(image).mean() - grey(number)) < 2.5, number


ALL = {
    "/isaac": ("sensor_msgs/msg/CompressedImage", "h264", "h264"),
    "/isaac265": ("sensor_msgs/msg/CompressedImage", "h265", "hevc"),
    "/foxglove": ("foxglove_msgs/msg/CompressedVideo", "h264", "h264"),
    "/foxglove265": ("foxglove_msgs/msg/CompressedVideo", "h265", "hevc"),
    "/packet": ("ffmpeg_image_transport_msgs/msg/FFMPEGPacket", "libx264;yuv420p;bgr8", "h264"),
    "/packet265": ("ffmpeg_image_transport_msgs/msg/FFMPEGPacket", "hevc_nvenc", "hevc"),
}


def test_each_picture_has_the_time_of_its_message(tmp_path, world, ffmpeg):
    """The recordings begin within a group: all before the next key frame is left out. 700 pictures are three segments."""
    topics = {topic: (kind, form, list(enumerate(encode(codec, 700)))[7:]) for topic, (kind, form, codec) in ALL.items()}
    bag = write(tmp_path / "video.mcap", topics)
    told = world.run("export", bag, "-f", "png", "-o", world.folder / "out", "--json")
    assert told.returncode == 0, told.stderr
    for one in json.loads(told.stdout)["exported"]:
        assert (one["messages"], one["failed"], one["left_out"]) == (680, 0, 13), one
        assert f"{one['topic']}: 13 messages of video before the first key frame or without a picture" in told.stderr
        assert_images(world.folder / "out" / one["topic"][1:], range(20, 700))
    again = world.run("export", bag, "-f", "png", "-o", world.folder / "out", "-t", "/isaac")
    assert again.returncode == 2 and "already exists" in again.stderr
    assert world.run("export", bag, "-f", "png", "-o", world.folder / "out", "-t", "/isaac", "--overwrite").returncode == 0
    jpeg = world.run("export", bag, "-f", "jpeg", "-o", world.folder / "jpeg", "-t", "/foxglove")
    assert jpeg.returncode == 0
    assert_images(world.folder / "jpeg/foxglove", range(20, 700), form="jpg")


def test_parameters_may_be_a_message_of_their_own_and_may_change(tmp_path, world, ffmpeg):
    small, large = encode("h264", 30), encode("h264", 30, size=(128, 96))
    place = small[0].index(b"\0\0\1\x65")
    split = [(0, small[0][:place]), (1, small[0][place:])]
    messages = split + [(number + 1, data) for number, data in enumerate(small)][1:] + [(number + 31, data) for number, data in enumerate(large)]
    bag = write(tmp_path / "video.mcap", {"/camera": ("foxglove_msgs/msg/CompressedVideo", "h264", messages)})
    told = world.run("export", bag, "-f", "png", "-o", world.folder / "out", "--json")
    assert told.returncode == 0, told.stderr
    (one,) = json.loads(told.stdout)["exported"]
    assert (one["messages"], one["failed"], one["left_out"]) == (60, 0, 1)
    for number in range(60):
        image = Image.open(world.folder / f"out/camera/{START + (number + 1) * STEP}.png")
        assert image.size == ((64, 48) if number < 30 else (128, 96))
        assert abs(np.asarray(image).mean() - grey(number % 30)) < 2.5, number


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_a_gap_never_puts_images_under_wrong_times(tmp_path, world, ffmpeg, codec):
    """A lost key frame makes ffmpeg leave pictures out: the segment is refused, the ones before and after it are whole."""
    messages = list(enumerate(encode(codec, 900)))
    del messages[400]
    bag = write(tmp_path / "video.mcap", {"/camera": ("foxglove_msgs/msg/CompressedVideo", "h265" if codec == "hevc" else codec, messages)})
    told = world.run("export", bag, "-f", "png", "-o", world.folder / "out", "--json")
    (one,) = json.loads(told.stdout)["exported"]
    assert told.returncode == 1, told.stderr
    assert one["failed"] >= 299 and one["messages"] + one["failed"] == 899
    assert re.search(rf"/camera: \d+ messages could not be written; the first, of time {START + 300 * STEP}: ffmpeg gave \d+ images for \d+ pictures of video", told.stderr), (
        told.stderr
    )
    written = [(int(path.stem) - START) // STEP for path in (world.folder / "out/camera").iterdir()]
    assert set(range(300)) <= set(written)
    assert_images(world.folder / "out/camera", written)


def test_what_cannot_be_decoded_has_one_sentence(tmp_path, world, ffmpeg):
    video = "foxglove_msgs/msg/CompressedVideo"
    pair = encode("h264", 4)
    cases = {
        "/garbage": (video, "h264", [(0, b"nonsense")], 'begins with "6e6f6e73656e7365", expected a start code'),
        "/damaged": (video, "h264", [(n, b"\0\0\1\x67abc\0\0\1\x65\x88" + bytes([n + 1]) * 500) for n in range(3)], "ffmpeg gave 0 images for 3 pictures of video"),
        "/vp9": (video, "vp9", [(0, b"abc")], 'video of format "vp9" is not decoded; H.264 and H.265 are'),
        "/two": (video, "h264", [(0, pair[0] + pair[1])], "video with 2 pictures in a message"),
        "/b264": (video, "h264", list(enumerate(encode("h264", 40, bframes=2))), "video with B-frames"),
        "/b265": (video, "h265", list(enumerate(encode("hevc", 40, bframes=2))), "video with B-frames"),
        "/no_key": (video, "h264", list(enumerate(pair))[1:], "no message has a key frame with its parameters"),
    }
    for topic, (kind, form, messages, expected) in cases.items():
        bag = write(tmp_path / f"{topic[1:]}.mcap", {topic: (kind, form, messages)})
        told = world.run("export", bag, "-f", "png", "-o", world.folder / topic[1:])
        assert told.returncode == 1 and f"{topic}: " in told.stderr and expected in told.stderr, (topic, told.stderr)
        assert "of time 17" in told.stderr


def test_without_ffmpeg_video_is_refused(tmp_path, world):
    bag = write(tmp_path / "video.mcap", {"/camera": ("foxglove_msgs/msg/CompressedVideo", "h264", list(enumerate(encode("h264", 3))))})
    empty = tmp_path / "empty"
    empty.mkdir()
    world.env["PATH"] = str(empty)
    told = world.run("export", bag, "-f", "png", "-o", world.folder / "out")
    assert told.returncode == 2 and "needs the program ffmpeg" in told.stderr and "install it" in told.stderr
    assert not list((world.folder / "out").rglob("*.*"))
