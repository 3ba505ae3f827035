"""H.264 and H.265 in messages become images by real ffmpeg: the grey level of each is the number of its message."""

import http.client
import io
import json
import re
import struct
import subprocess
from urllib.parse import quote, unquote

import imageio_ffmpeg
import numpy as np
import pytest
from mcap.writer import Writer
from PIL import Image
from served import ask_bytes as ask
from served import served, until

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


def flat(number, size):
    return np.full((size[1], size[0], 3), grey(number), np.uint8)


def moving(number, size):
    """A pattern that moves."""
    pattern = np.random.default_rng(1).integers(0, 255, (20, 60, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    return np.roll(pattern, (number, 2 * number), (0, 1))[: size[1], : size[0]]


def encode(codec, count, size=(WIDTH, HEIGHT), gop=20, bframes=0, scene=flat):
    """A message for each picture."""
    pixels = b"".join(scene(number, size).tobytes() for number in range(count))
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


def message(kind, form, data, number=2):
    stamp = [("i", 1), ("I", number), ("s", "camera")]
    if kind.startswith("sensor"):
        return cdr(*stamp, ("s", form), ("b", data))
    if kind.startswith("foxglove"):
        return cdr(*stamp, ("b", data), ("s", form))
    return cdr(*stamp, ("i", WIDTH), ("i", HEIGHT), ("s", form), ("Q", 5), ("B", 1), ("?", False), ("b", data))


def write(path, topics, step=STEP):
    """``topics``: type, format and data of messages, each with its number."""
    with open(path, "wb") as stream:
        writer = Writer(stream)
        writer.start("ros2", "test")
        for topic, (kind, form, messages) in topics.items():
            schema = writer.register_schema(kind, "ros2msg", SCHEMAS[kind].encode())
            channel = writer.register_channel(topic, "cdr", schema)
            for number, data in messages:
                time = START + number * step
                writer.add_message(channel, time, message(kind, form, data, number), time)
        writer.finish()
    return path


def turned(number, size):
    """The same pattern, upside down and moving the other way."""
    return moving(-number, size)[::-1]


def write_two(path, streams, gids=("a1a1a1", "b2b2b2"), kind="foxglove_msgs/msg/CompressedVideo", step=STEP):
    """Two senders on one topic, the second half a step after the first; without `gids` the bag does not distinguish them."""
    with open(path, "wb") as out:
        writer = Writer(out)
        writer.start("ros2", "test")
        schema = writer.register_schema(kind, "ros2msg", SCHEMAS[kind].encode())
        channels = [writer.register_channel("/camera", "cdr", schema, {"holdall.publisher": gid} if gid else {}) for gid in gids]
        sent = [(START + number * step + place * step // 2, place, number, data) for place, stream in enumerate(streams) for number, data in enumerate(stream)]
        for time, place, number, data in sorted(sent):
            writer.add_message(channels[place], time, message(kind, "h264", data, number), time)
        writer.finish()
    return path


def served_video(world, topics, make=write):
    """A server of a folder with a bag of these."""
    (world.folder / "bags").mkdir()
    make(world.folder / "bags/video.mcap", topics)
    web = world.holdall("web", world.folder / "bags", "127.0.0.1:0", "--foxglove", "127.0.0.1:0")
    address = served(web, "bags: ")
    until(lambda: json.loads(ask(address, "GET", "/api/bags")[1])["bags"], "the bag in the list")
    return web, address


def seen(address, topic, number, more=""):
    """The grey level of a picture, and the number of its message; the server's words where it has none."""
    path = f"/api/picture?bag=video.mcap&topic={quote(topic)}&at={START + number * STEP}{more}"
    connection = http.client.HTTPConnection(*address, timeout=60)
    connection.request("GET", path, headers={"Authorization": f"Bearer {address.token}"})
    answer = connection.getresponse()
    content, about = answer.read(), answer.getheader("X-Holdall-About")
    connection.close()
    if answer.status != 200:
        return json.loads(content)["error"]
    picture = np.asarray(Image.open(io.BytesIO(content)))
    assert picture.shape == (HEIGHT, WIDTH, 3), picture.shape
    return picture.mean(), (int(json.loads(unquote(about))["time_ns"]) - START) // STEP


LOOKED = {
    **{topic: (kind, form, list(enumerate(encode(codec, 70)))[7:]) for topic, (kind, form, codec) in {
        "/isaac": ("sensor_msgs/msg/CompressedImage", "h264", "h264"),
        "/foxglove": ("foxglove_msgs/msg/CompressedVideo", "h264", "h264"),
        "/packet265": ("ffmpeg_image_transport_msgs/msg/FFMPEGPacket", "hevc_nvenc", "hevc"),
    }.items()},
    "/reordered": ("foxglove_msgs/msg/CompressedVideo", "h264", list(enumerate(encode("h264", 60, bframes=2)))),
    "/other": ("foxglove_msgs/msg/CompressedVideo", "vp8", [(0, b"\x12\0")]),
    "/torn": ("foxglove_msgs/msg/CompressedVideo", "h264", [(n, d if n < 25 else d[:40]) for n, d in enumerate(encode("h264", 60))]),
}  # fmt: skip


def test_a_page_gets_pictures_of_video_by_ffmpeg(world, ffmpeg):
    lossy = [(number, data) for number, data in enumerate(encode("h264", 60)) if number != 25]
    web, address = served_video(world, {**LOOKED, "/lost": ("foxglove_msgs/msg/CompressedVideo", "h264", lossy)})
    for topic in ("/isaac", "/foxglove", "/packet265"):
        for number in (20, 21, 39, 40, 59, 69):
            level, of = seen(address, topic, number)
            assert of == number and abs(level - grey(number)) < 2.5, (topic, number, level)
        # Key frames only: while somebody scrubs.
        level, of = seen(address, topic, 39, "&quick=1")
        assert of == 20 and abs(level - grey(20)) < 2.5
        assert "no key frame of this video" in seen(address, topic, 9)
    assert "B-frames" in seen(address, "/reordered", 7)
    assert "vp8" in seen(address, "/other", 0)
    assert [isinstance(seen(address, "/lost", number), str) for number in (24, 26, 39, 40)] == [False, True, True, False]
    assert seen(address, "/lost", 30) == "this picture depends on one that is missing"
    torn = seen(address, "/torn", 30)
    assert "ffmpeg" in torn if isinstance(torn, str) else torn[1] == 30, torn
    code, said = web.stop()
    assert code == 0, said


def without_parameters(codec, data):
    """A message without the parameters of its sequence and pictures."""
    places = [found.start() for found in re.finditer(b"\0?\0\0\1", data)]
    units = [data[begin:end] for begin, end in zip(places, [*places[1:], len(data)], strict=True)]
    kinds = {"h264": lambda byte: byte & 31 in (7, 8), "hevc": lambda byte: byte >> 1 & 63 in (32, 33, 34)}
    return b"".join(unit for unit in units if not kinds[codec](unit[unit.index(b"\1") + 1]))


def once(codec, **how):
    """Parameters in the first message only, as some encoders send them."""
    return [(n, d if n == 0 else without_parameters(codec, d)) for n, d in enumerate(encode(codec, 60, **how))]


def test_parameters_that_come_once_and_messages_that_do_not_fit_are_understood(world, ffmpeg):
    whole = encode("h264", 60)
    web, address = served_video(world, {
        "/once": ("foxglove_msgs/msg/CompressedVideo", "h264", once("h264")),
        "/once265": ("foxglove_msgs/msg/CompressedVideo", "h265", once("hevc")),
        "/reordered265": ("foxglove_msgs/msg/CompressedVideo", "h265", once("hevc", bframes=2)),
        "/two": ("foxglove_msgs/msg/CompressedVideo", "h264", [(n, whole[2 * n] + whole[2 * n + 1]) for n in range(30)]),
        # Damage in front of a key frame costs the pictures until then, no more.
        "/healed": ("foxglove_msgs/msg/CompressedVideo", "h264", [(n, b"damage" if n == 30 else d) for n, d in enumerate(whole)]),
    })  # fmt: skip
    for topic in ("/once", "/once265"):
        for number in (5, 25, 47):
            level, of = seen(address, topic, number)
            assert of == number and abs(level - grey(number)) < 2.5, (topic, number, level)
    assert "B-frames" in seen(address, "/reordered265", 47)
    assert "2 pictures" in seen(address, "/two", 12)
    level, of = seen(address, "/healed", 45)
    assert of == 45 and abs(level - grey(45)) < 2.5
    assert "start code" in seen(address, "/healed", 33)
    code, said = web.stop()
    assert code == 0, said


def test_without_ffmpeg_a_page_says_what_is_missing(world):
    (world.folder / "nothing").mkdir()
    world.env["PATH"] = str(world.folder / "nothing")
    web, address = served_video(world, {"/isaac": LOOKED["/isaac"]})
    assert "ffmpeg, which would, is not installed where holdall runs" in seen(address, "/isaac", 25)
    code, said = web.stop()
    assert code == 0, said


def test_a_browser_shows_video(world, ffmpeg, browser):
    web, address = served_video(world, LOOKED)
    browser.open(f"http://{address[0]}:{address[1]}/?token={address.token}")
    browser.script("location.hash = 'video.mcap'")
    until(lambda: browser.script("!!(chart && viewer)"), "the bag")
    pixel = "(() => { const c = document.querySelector('.picture canvas'), p = c.getContext('2d').getImageData(32, 24, 1, 1).data; return c.hidden ? -1 : (p[0] + p[1] + p[2]) / 3; })()"
    # Frames between key frames; H.265, which this one does not decode, comes by ffmpeg.
    for topic, numbers in (("/foxglove", (20, 47)), ("/isaac", (69,)), ("/packet265", (33,))):
        for number in numbers:
            browser.script(f"lookAt({{ name: '{topic}', type: '' }}, '{START + number * STEP}')")
            until(lambda: abs(browser.script(pixel) - grey(number)) < 4, f"{topic} {number}")  # noqa: B023
    # In messages of another order each still has its own picture.
    shown = set()
    for number in range(22, 28):
        browser.script(f"lookAt({{ name: '/reordered', type: '' }}, '{START + number * STEP}')")
        until(lambda: int(browser.script("document.querySelector('.picture canvas').dataset.time")) == START + number * STEP, f"reordered {number}")  # noqa: B023
        (of,) = [other for other in range(number - 4, number + 5) if abs(browser.script(pixel) - grey(other)) < 3]
        shown.add(of)
    assert len(shown) == 6, shown
    assert browser.script("[...notHere].join()") == "bag=video.mcap,topic=%2Fpacket265"
    until(lambda: browser.script("drawn.lanes.filter(lane => lane.thumbs).length") == 2, "pictures along the lanes")
    code, said = web.stop()
    assert code == 0, said


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
    # The first parameters again, in a message of their own.
    messages += [(61, small[0][:place]), (62, small[0][place:])]
    bag = write(tmp_path / "video.mcap", {"/camera": ("foxglove_msgs/msg/CompressedVideo", "h264", messages)})
    told = world.run("export", bag, "-f", "png", "-o", world.folder / "out", "--json")
    assert told.returncode == 0, told.stderr
    (one,) = json.loads(told.stdout)["exported"]
    assert (one["messages"], one["failed"], one["left_out"]) == (61, 0, 2)
    assert Image.open(world.folder / f"out/camera/{START + 62 * STEP}.png").size == (64, 48)
    for number in range(60):
        image = Image.open(world.folder / f"out/camera/{START + (number + 1) * STEP}.png")
        assert image.size == ((64, 48) if number < 30 else (128, 96))
        assert abs(np.asarray(image).mean() - grey(number % 30)) < 2.5, number


FORMS = {"h264": "h264", "hevc": "h265"}


def exported(world, bag, name, *more):
    """What the program said, its report, and the images by their number."""
    done = world.run("export", bag, "-f", "png", "-o", world.folder / name, "--json", *more)
    (report,) = json.loads(done.stdout)["exported"]
    files = {(int(path.stem) - START) // STEP: path.read_bytes() for path in (world.folder / name / "camera").iterdir()}
    return done, report, files


@pytest.mark.parametrize("codec", ["h264", "hevc"])
@pytest.mark.parametrize("lost", [47, 60], ids=["picture", "key"])
def test_a_lost_picture_costs_those_that_need_it_and_makes_no_wrong_ones(tmp_path, world, ffmpeg, codec, lost):
    messages = list(enumerate(encode(codec, 100, scene=moving)))
    kind = "foxglove_msgs/msg/CompressedVideo"
    _, _, wanted = exported(world, write(tmp_path / "whole.mcap", {"/camera": (kind, FORMS[codec], messages)}), "whole")
    assert set(wanted) == set(range(100))
    del messages[lost]
    done, report, files = exported(world, write(tmp_path / "video.mcap", {"/camera": (kind, FORMS[codec], messages)}), "out")
    need_it = range(lost, 60 if lost == 47 else 80)
    assert done.returncode == 1, done.stderr
    assert set(files) == set(range(100)) - set(need_it)
    assert (report["messages"], report["failed"]) == (100 - len(need_it), len(need_it) - 1)
    assert files == {number: wanted[number] for number in files}
    reason = "this picture depends on one that is missing" if codec == "h264" else "ffmpeg: .*"
    failed = rf"/camera: {report['failed']} messages could not be written; the first, of time {START + (lost + 1) * STEP}: {reason}"
    assert re.search(failed, done.stderr), done.stderr
    if codec == "h264":
        copied = world.run("export", tmp_path / "video.mcap", "-f", "mp4", "-o", world.folder / "mp4")
        assert copied.returncode == 1 and re.search(failed, copied.stderr), copied.stderr
        frames = subprocess.run(
            [ffmpeg / "ffmpeg", "-v", "error", "-i", world.folder / "mp4/camera.mp4", "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "gray", "-"],
            check=True, capture_output=True,
        )  # fmt: skip
        assert not frames.stderr and len(frames.stdout) == len(files) * WIDTH * HEIGHT


def images_of(world, bag, name, form="png"):
    """What the export said and the images by their time."""
    done = world.run("export", bag, "-f", form, "-o", world.folder / name)
    return done, {int(path.stem): path.read_bytes() for path in (world.folder / name / "camera").iterdir()}


@pytest.mark.parametrize("late", [0, 7])
def test_two_senders_on_one_topic_have_their_own_pictures(tmp_path, world, ffmpeg, late):
    """Their key frames come together, or not."""
    streams = [encode("h264", 60, scene=moving), encode("h264", 60 + late, scene=turned)[late:]]
    wanted = {}
    for place, stream in enumerate(streams):
        alone = write_two(tmp_path / f"alone{place}.mcap", [stream, []] if place == 0 else [[], stream])
        done, images = images_of(world, alone, f"alone{place}")
        assert done.returncode == 0 and len(images) == 60 - (20 - late) % 20 * place, done.stderr
        wanted |= images
    bag = write_two(tmp_path / "two.mcap", streams)
    done, images = images_of(world, bag, "two")
    assert done.returncode == 0 and images == wanted, done.stderr
    # One that begins anywhere.
    done = world.run("export", bag, "-f", "png", "-o", world.folder / "part", "--start", "1s")
    part = {int(path.stem): path.read_bytes() for path in (world.folder / "part/camera").iterdir()}
    assert done.returncode == 0 and part == {time: image for time, image in wanted.items() if time >= START + 10**9}, done.stderr
    # A file has one video; the pictures of the other one are counted.
    copied = world.run("export", bag, "-f", "mp4", "-o", world.folder / "mp4")
    assert copied.returncode == 1 and "it is of another publisher than the pictures before it" in copied.stderr, copied.stderr
    alone = world.run("export", tmp_path / "alone0.mcap", "-f", "mp4", "-o", world.folder / "mp4alone")
    assert alone.returncode == 0, alone.stderr
    frames = [
        subprocess.run([FFMPEG, "-v", "error", "-i", world.folder / name / "camera.mp4", "-fps_mode", "passthrough", "-f", "rawvideo", "-"], check=True, capture_output=True).stdout
        for name in ("mp4", "mp4alone")
    ]  # fmt: skip
    assert frames[0] == frames[1] and frames[0]


def test_two_senders_that_a_bag_does_not_distinguish_make_no_wrong_pictures(tmp_path, world, ffmpeg):
    streams = [encode("h264", 60, scene=moving), encode("h264", 60, scene=turned)]
    wanted = {}
    for place, stream in enumerate(streams):
        wanted |= images_of(world, write_two(tmp_path / f"alone{place}.mcap", [stream, []] if place == 0 else [[], stream]), f"alone{place}")[1]
    done, images = images_of(world, write_two(tmp_path / "two.mcap", streams, gids=("", "")), "two")
    assert done.returncode == 1 and "this picture depends on one that is missing" in done.stderr, done.stderr
    assert images == {time: wanted[time] for time in images}
    assert len(images) == 6, "the key frames of both"


def test_a_page_shows_the_picture_of_the_sender_of_a_message(world, ffmpeg):
    streams = [encode("h264", 60), encode("h264", 60, scene=lambda number, size: flat(number + 11, size))]
    # Each at a time of its own that `seen` can ask for.
    web, address = served_video(world, streams, make=lambda path, streams: write_two(path, streams, step=2 * STEP))
    for number in (0, 1, 19, 20, 47):
        for place, shift in enumerate((0, 11)):
            level, of = seen(address, "/camera", 2 * number + place)
            assert of == 2 * number + place and abs(level - grey(number + shift)) < 2.5, (number, place, level)
    code, said = web.stop()
    assert code == 0, said


def test_a_video_of_key_frames_does_not_begin_a_process_for_each(tmp_path, world, ffmpeg):
    """A damaged key frame costs only itself."""
    count, program = tmp_path / "count", ffmpeg / "ffmpeg"
    real = program.resolve()
    program.unlink()
    program.write_text(f'#!/bin/sh\necho >> {count}\nexec {real} "$@"\n')
    program.chmod(0o755)
    units = encode("h264", 200, gop=1, scene=moving)
    kind = "foxglove_msgs/msg/CompressedVideo"
    _, _, whole = exported(world, write(tmp_path / "whole.mcap", {"/camera": (kind, "h264", list(enumerate(units)))}), "whole")
    assert set(whole) == set(range(200))
    assert len(count.read_text()) <= 8, "ffmpeg was started for each key frame"
    units[70] = units[70][: units[70].rindex(b"\0\0\1") + 30]
    done, report, files = exported(world, write(tmp_path / "torn.mcap", {"/camera": (kind, "h264", list(enumerate(units)))}), "torn")
    assert (done.returncode, report["failed"]) == (1, 1), done.stderr
    assert files == {number: data for number, data in whole.items() if number != 70}


def test_a_part_and_a_choice_have_the_pictures_of_the_whole(tmp_path, world, ffmpeg):
    """Each is decoded from the key frame before it, also with pictures that are not chosen."""
    messages = list(enumerate(encode("h264", 100, scene=moving)))
    bag = write(tmp_path / "video.mcap", {"/camera": ("foxglove_msgs/msg/CompressedVideo", "h264", messages)})
    _, _, whole = exported(world, bag, "whole")
    done, report, part = exported(world, bag, "part", "--start", "1s", "--end", "2s")
    assert (done.returncode, report["messages"], report["left_out"]) == (0, 30, 0), done.stderr
    assert part == {number: whole[number] for number in range(31, 61)}
    done, report, some = exported(world, bag, "some", "-w", "/camera: timestamp.nanosec % 2 == 0")
    assert (done.returncode, report["failed"]) == (0, 0), done.stderr
    assert some == {number: whole[number] for number in range(0, 100, 2)}


def test_what_cannot_be_decoded_has_one_sentence(tmp_path, world, ffmpeg):
    video = "foxglove_msgs/msg/CompressedVideo"
    pair = encode("h264", 4)
    cases = {
        "/garbage": (video, "h264", [(0, b"nonsense")], 'begins with "6e6f6e73656e7365", expected a start code'),
        "/damaged": (video, "h264", [(n, b"\0\0\1\x67abc\0\0\1\x65\x88" + bytes([n + 1]) * 500) for n in range(3)], "ffmpeg: "),
        "/vp8": (video, "vp8", [(0, b"abc")], 'video of format "vp8" is not decoded; H.264, H.265, VP9 and AV1 are'),
        "/two": (video, "h264", [(0, pair[0] + pair[1])], "it has 2 pictures, expected one"),
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
