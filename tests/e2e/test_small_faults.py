"""Encoders and decoders that do wrong, an old ffmpeg, images that change, are empty, or come in another order: judged by real ffmpeg, by `mcap` and by the pixels themselves."""

import re
import shutil
import stat
import sys

import imageio_ffmpeg
import numpy as np
import pytest
from mcap.writer import Writer
from rosbags.rosbag2 import Reader
from test_small import SCHEMAS, START, STEP, decoded, depth, head, plain, psnr, read, recoded, scene, write
from test_video import cdr

FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()
IMAGE = "sensor_msgs/msg/Image"


def stand_in(ffmpeg, script):
    """Another program named ffmpeg, for /bin/sh."""
    (ffmpeg / "ffmpeg").unlink()
    (ffmpeg / "ffmpeg").write_text(f"#!/bin/sh\n{script}\n")
    (ffmpeg / "ffmpeg").chmod(stat.S_IRWXU)


def camera(tmp_path, pictures, encoding="rgb8"):
    """A bag with these pictures."""
    images = [(n, plain(n, encoding, picture[:, :, ::-1] if encoding == "bgr8" else picture)) for n, picture in enumerate(pictures)]
    return write(tmp_path / "camera.mcap", {"/camera": (IMAGE, images)})


def shown(bag):
    """The pixels of a bag with images."""
    for *_, message in read(bag)["/camera"]:
        pixels = np.frombuffer(message.data, np.uint8).reshape(message.height, message.width, 3)
        yield pixels[:, :, ::-1] if message.encoding == "bgr8" else pixels


def test_the_worst_of_all_images_is_printed_and_kept(tmp_path, world, ffmpeg):
    pictures = [scene(number) for number in range(40)]
    bag, small = camera(tmp_path, pictures, "bgr8"), world.folder / "small"
    done = world.run("compress", bag, "-o", small, "--video", "/camera=h264", "--delete-original-after-verify")
    assert done.returncode == 0 and not bag.exists(), done.stderr
    assert world.run("decompress", small, "-o", world.folder / "large").returncode == 0
    ratios = [psnr(image, picture) for image, picture in zip(shown(world.folder / "large"), pictures, strict=True)]
    verified = recoded(world, small)["/camera"]["verified"]
    assert (verified["samples"], verified["psnr_min"]) == (40, pytest.approx(min(ratios))) and verified["psnr_sum"] == pytest.approx(sum(ratios))
    worst = f"PSNR at worst {min(ratios):.1f} dB and SSIM at worst {verified['ssim_min']:.4f}"
    assert f"/camera: 40 images with {worst}" in done.stdout and f"40 images verified with {worst}" in world.run("info", small).stdout, done.stdout


# Takes pictures with heads of some bytes, and shows others.
CHANGED = """
import sys
head, size, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
first = None
while part := sys.stdin.buffer.read(head + size):
    picture = part[head:]
    first = first or picture
    picture = {"black": bytes(size), "frozen": first, "foreign": picture[size // 2 :] + picture[: size // 2]}[how]
    sys.stdout.buffer.write(part[:head] + picture)
"""


@pytest.mark.parametrize("liar", ["encoder", "decoder"])
@pytest.mark.parametrize("how", ["black", "frozen", "foreign"])
def test_pictures_that_show_something_else_are_refused_also_at_night(tmp_path, world, ffmpeg, liar, how):
    nights = [scene(number) // 8 for number in range(40)]
    assert np.mean(nights) < 18 and psnr(nights[3], np.zeros_like(nights[3])) > 20
    bag, small, change = camera(tmp_path, nights), world.folder / "small", tmp_path / "change.py"
    change.write_text(CHANGED)
    changed = f"{sys.executable} {change}"
    scripts = {
        # The pictures are those of other images.
        "encoder": f'case "$*" in *rawvideo*) {changed} 0 230400 {how} | {FFMPEG} "$@"; exit;; esac',
        # The encoder passes its own check; the finished bag does not.
        "decoder": f'case "$*" in *image2pipe*) if [ -e {small}/metadata.yaml ]; then {FFMPEG} "$@" | {changed} 15 230400 {how}; exit; fi;; esac',
    }
    stand_in(ffmpeg, f'{scripts[liar]}\nexec {FFMPEG} "$@"')
    # H.264 may have an encoder that needs no ffmpeg.
    arguments = ["compress", bag, "-o", small, "--video", "/camera=h265", "--delete-original-after-verify"]
    done = world.run(*arguments)
    about = recoded(world, small)["/camera"]
    if liar == "encoder":
        assert done.returncode == 0 and (about["messages"], about["kept"]) == (0, 40), (done.stderr, about)
        assert all("one of its pictures was checked: decoded again it" in reason for reason in about["reasons"]), about
        assert [one[3] for one in read(small)["/camera"]] == [plain(n, "rgb8", picture) for n, picture in enumerate(nights)]
        return
    assert done.returncode == 1 and re.search("the originals stay: .*/camera.*decoded again it", done.stderr) and bag.exists(), done.stderr
    # The same, unchanged, is good enough.
    assert about["messages"] == 40, about
    stand_in(ffmpeg, f'exec {FFMPEG} "$@"')
    shutil.rmtree(small)
    done = world.run(*arguments)
    assert done.returncode == 0 and not bag.exists(), done.stderr


@pytest.mark.parametrize("how", ["h264", "h265", "av1", "vp9", "lossless"])
def test_an_old_ffmpeg_encodes_as_a_new_one(tmp_path, world, ffmpeg, how):
    # What came with ffmpeg 5 and later.
    new = "-fps_mode*|-svtav1-params|-readrate*|-enc_stats*|-stats_enc*|-shortest_buf*|-display_*"
    refusal = 'echo "Unrecognized option ${word#-}" >&2; exit 1'
    stand_in(ffmpeg, f'for word; do case "$word" in {new}) {refusal};; esac; done\nexec {FFMPEG} "$@"')
    pictures = [scene(number) for number in range(40)]
    bag = camera(tmp_path, pictures, "bgr8")
    done = world.run("compress", bag, "-o", world.folder / "small", "--video", f"/camera={how}")
    assert done.returncode == 0, done.stderr
    about = recoded(world, world.folder / "small")["/camera"]
    assert (about["messages"], about["kept"]) == (40, 0), about
    assert world.run("decompress", world.folder / "small", "-o", world.folder / "large").returncode == 0
    assert min(psnr(image, picture) for image, picture in zip(shown(world.folder / "large"), pictures, strict=True)) > 28


def test_a_camera_that_comes_back_and_another_size_are_encoded_further(tmp_path, world, ffmpeg):
    # Numbers, publisher, size; the second one comes back after a second, the third follows at once.
    parts = [(range(40), "0a0a0a", (320, 240)), (range(60, 160), "0b0b0b", (320, 240)), (range(160, 240), "0b0b0b", (160, 120))]
    pictures = {number: scene(number, *size) for numbers, _, size in parts for number in numbers}
    bag = tmp_path / "camera.mcap"
    with open(bag, "wb") as stream:
        writer = Writer(stream)
        writer.start("ros2", "test")
        schema = writer.register_schema(IMAGE, "ros2msg", SCHEMAS[IMAGE].encode())
        channels = {gid: writer.register_channel("/camera", "cdr", schema, {"holdall.publisher": gid}) for _, gid, _ in parts}
        for numbers, gid, _ in parts:
            for number in numbers:
                time = START + number * STEP
                writer.add_message(channels[gid], time, plain(number, "rgb8", pictures[number]), time)
        writer.finish()
    small = world.folder / "small"
    done = world.run("compress", bag, "-o", small, "--video", "/camera=h264", "--as", "ffmpeg_image_transport")
    assert done.returncode == 0, done.stderr
    about = recoded(world, small)["/camera"]
    # Two seconds after the last image that was encoded.
    kept = [*range(60, 80), *range(160, 200)]
    assert (about["messages"], about["kept"]) == (160, 60), about
    assert "another publisher" in str(about["reasons"]) and "it is 160 x 120 rgb8" in str(about["reasons"]), about
    assert [step["what"] for step in about["steps"]] == ["images of another publisher", "images of 160 x 120 pixels"]
    assert [(step["time"] - START) // STEP for step in about["steps"]] == [80, 200] and about["sizes"] == [[160, 120]]
    messages = read(small)["/camera"]
    assert [(one[1] - START) // STEP for one in messages if one[0] == IMAGE] == kept
    video = [((one[1] - START) // STEP, one[4]) for one in messages if one[0] != IMAGE]
    assert all((one.width, one.height) == pictures[number].shape[1::-1] for number, one in video)
    assert {number for number, one in video if one.flags == 1} >= {0, 80, 200}
    for numbers, size in ((range(80, 160), (320, 240)), (range(200, 240), (160, 120))):
        seen, _ = decoded(b"".join(one.data for number, one in video if number in numbers), "h264", *size)
        assert min(psnr(picture, pictures[number]) for picture, number in zip(seen, numbers, strict=True)) > 25
    restored = world.run("decompress", small, "-o", world.folder / "large")
    assert restored.returncode == 0, restored.stderr
    large = read(world.folder / "large")["/camera"]
    assert {one[0] for one in large} == {IMAGE} and len(large) == 220
    for _, time, _, _, message in large:
        picture = pictures[(time - START) // STEP]
        assert psnr(np.frombuffer(message.data, np.uint8).reshape(picture.shape), picture) > 25
    apart = world.run("diff", bag, small, "--decoded", "--tolerance", "psnr=25")
    assert apart.returncode == 0, apart.stdout
    verified = world.run("compress", bag, "-o", world.folder / "again", "--video", "/camera=h264", "--delete-original-after-verify")
    assert verified.returncode == 0 and not bag.exists(), verified.stderr


# Leaves out parameters that were sent before.
ONCE = """
import re, sys
seen = set()
for unit in re.split(rb"(?=\\x00\\x00\\x00?\\x01)", sys.stdin.buffer.read()):
    kind = unit.lstrip(bytes([0, 1]))[:1]
    kind = kind[0] & 31 if kind else 0
    if kind not in (7, 8) or kind not in seen:
        sys.stdout.buffer.write(unit)
    seen.add(kind)
"""
AS_LIBRARY = 'for word do shift; [ "$word" = h264_v4l2m2m ] && word=libx264; set -- "$@" "$word"; done'


def test_an_encoder_that_sends_its_parameters_once_is_refused(tmp_path, world, ffmpeg):
    # A player that begins at the second key frame would see nothing.
    script = f'case "$*" in *h264_v4l2m2m*) {AS_LIBRARY}\n{FFMPEG} "$@" | {sys.executable} -c \'{ONCE}\'; exit;; esac'
    stand_in(ffmpeg, f'{script}\nexec {FFMPEG} "$@"')
    bag = camera(tmp_path, [scene(number) for number in range(40)])
    done = world.run("compress", bag, "-o", world.folder / "small", "--video", "/camera=h264,encoder=h264_v4l2m2m")
    assert done.returncode == 0, done.stderr
    about = recoded(world, world.folder / "small")["/camera"]
    assert (about["messages"], about["kept"]) == (40, 0), about
    reason = "h264_v4l2m2m does not work here (picture 2 that the encoder made is not as its message needs it)"
    assert about["encoder"].split(";")[0].endswith(" libx264") and reason in about["encoder"] and f"{reason}; libx264 encodes" in done.stderr, about


def test_an_encoder_of_the_hardware_that_fails_later_is_replaced(tmp_path, world, ffmpeg):
    # It makes the pictures that it is tried with, and no others.
    script = f'case "$*" in *"h264_v4l2m2m -g 2 "*) {AS_LIBRARY};; *h264_v4l2m2m*) echo "no buffer is left" >&2; exit 1;; esac'
    stand_in(ffmpeg, f'{script}\nexec {FFMPEG} "$@"')
    bag = camera(tmp_path, [scene(number) for number in range(80)])
    done = world.run("compress", bag, "-o", world.folder / "small", "--video", "/camera=h264,encoder=h264_v4l2m2m")
    assert done.returncode == 0 and "h264_v4l2m2m does not work here (ffmpeg: no buffer is left, 3 times in a row)" in done.stderr, done.stderr
    about = recoded(world, world.folder / "small")["/camera"]
    assert about["messages"] > 40 and about["messages"] + about["kept"] == 80, about
    assert about["encoder"].split(";")[0].endswith(" libx264") and "h264_v4l2m2m does not work here" in about["encoder"], about


WAYS = {"h264": ("rgb8", "h264"), "lossless": ("rgb8", "lossless"), "depth": ("16UC1", "lossless")}


def pictures_in(bag):
    """By the number in its stamp: the pixels of an image."""
    for *_, message in read(bag)["/camera"]:
        kind, channels = ("<u2", ()) if message.encoding == "16UC1" else (np.uint8, (3,))
        yield message.header.stamp.sec - 100, np.frombuffer(message.data, kind).reshape(message.height, message.width, *channels)


def assert_restored(world, small, pictures, is_lossy):
    """Each number has its own picture, and none is missing; the one before or after it has a PSNR of 21 dB."""
    restored = world.run("decompress", small, "-o", world.folder / "large")
    assert restored.returncode == 0, restored.stderr
    found = list(pictures_in(world.folder / "large"))
    assert sorted(number for number, _ in found) == sorted(pictures)
    for number, image in found:
        assert psnr(image, pictures[number]) > 25 if is_lossy and image.size else np.array_equal(image, pictures[number]), number
    shutil.rmtree(world.folder / "large")


@pytest.mark.parametrize("how", WAYS)
def test_images_whose_stamps_and_times_go_back_or_stay_keep_their_pictures(tmp_path, world, ffmpeg, how):
    encoding, codec = WAYS[how]
    random = np.random.default_rng(4)
    # The file has the messages in the order of their numbers. Their log times jump back once, and two messages share each time.
    numbers, seconds = range(70), [n // 2 if n < 40 else n // 2 - 10 for n in range(70)]
    stamps = random.permutation(70)
    pictures = {int(stamp): depth(n) if how == "depth" else scene(n, 160, 120) for n, stamp in zip(numbers, stamps, strict=True)}
    bag, small = tmp_path / "camera.mcap", world.folder / "small"
    with open(bag, "wb") as stream:
        writer = Writer(stream)
        writer.start("ros2", "test")
        schema = writer.register_schema(IMAGE, "ros2msg", SCHEMAS[IMAGE].encode())
        channel = writer.register_channel("/camera", "cdr", schema)
        for stamp, second in zip(map(int, stamps), seconds, strict=True):
            time = START + second * STEP
            writer.add_message(channel, time, plain(stamp, encoding, pictures[stamp]), time)
        writer.finish()
    done = world.run("compress", bag, "-o", small, "--video", f"/camera={codec}")
    assert done.returncode == 0, done.stderr
    about = recoded(world, small)["/camera"]
    assert (about["messages"], about["kept"]) == (70, 0), about
    assert_restored(world, small, pictures, how == "h264")
    apart = world.run("diff", bag, small, "--decoded", *(["--tolerance", "psnr=25"] if how == "h264" else []))
    assert apart.returncode == 0, apart.stdout


@pytest.mark.parametrize("how", WAYS)
def test_empty_images_between_others_come_back(tmp_path, world, ffmpeg, how):
    encoding, codec = WAYS[how]
    empty = {0: (0, 0), 7: (0, 160), 8: (120, 0), 39: (0, 0)}
    sizes = {n: np.zeros((*empty[n], 3) if encoding == "rgb8" else empty[n], np.uint16 if how == "depth" else np.uint8) for n in empty}
    pictures = {n: sizes.get(n, depth(n) if how == "depth" else scene(n, 160, 120)) for n in range(40)}
    payloads = [cdr(*head(n), ("I", one.shape[0]), ("I", one.shape[1]), ("s", encoding), ("B", 0), ("I", one.nbytes // max(len(one), 1)), ("b", one.tobytes())) for n, one in pictures.items()]
    bag, small = write(tmp_path / "camera.mcap", {"/camera": (IMAGE, list(enumerate(payloads)))}), world.folder / "small"
    done = world.run("compress", bag, "-o", small, "--video", f"/camera={codec}")
    assert done.returncode == 0, done.stderr
    about = recoded(world, small)["/camera"]
    # Where each image is encoded alone, one without pixels is, too.
    kept = [] if how == "depth" else [payloads[n] for n in empty]
    assert (about["messages"], about["kept"], sum(about.get("reasons", {}).values())) == (40 - len(kept), len(kept), len(kept)), about
    assert not kept or re.search(r"/camera: 4 messages kept as before \(.*does not fit its 0 bytes of data", done.stderr), done.stderr
    assert [one[3] for one in read(small)["/camera"] if one[0] == IMAGE] == kept
    assert_restored(world, small, pictures, how == "h264")
    # What stayed is equal, though it shows nothing.
    apart = world.run("diff", bag, small, "--decoded", *(["--tolerance", "psnr=25"] if how == "h264" else []))
    assert apart.returncode == 0, apart.stdout


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
@pytest.mark.parametrize("gids", [("a1a1a1", "b2b2b2"), ("", "")])
def test_images_of_two_publishers_by_turns_are_one_video_or_stay(tmp_path, world, ffmpeg, gids, storage):
    pictures = {n: scene(n if n % 2 else 300 - n, 160, 120) for n in range(80)}
    payloads = {n: plain(n, "rgb8", picture) for n, picture in pictures.items()}
    bag, small = tmp_path / "camera.mcap", world.folder / "small"
    with open(bag, "wb") as stream:
        writer = Writer(stream)
        writer.start("ros2", "test")
        schema = writer.register_schema(IMAGE, "ros2msg", SCHEMAS[IMAGE].encode())
        channels = [writer.register_channel("/camera", "cdr", schema, {"holdall.publisher": gid} if gid else {}) for gid in gids]
        for n, payload in payloads.items():
            writer.add_message(channels[n % 2], START + n * STEP, payload, START + n * STEP)
        writer.finish()
    done = world.run("compress", bag, "-o", small, "--video", "/camera=h264,quality=18")
    assert done.returncode == 0, done.stderr
    about = recoded(world, small)["/camera"]
    # The bag distinguishes them or does not.
    kept = list(range(1, 80, 2)) if gids[0] else []
    assert (about["messages"], about["kept"]) == (80 - len(kept), len(kept)), about
    assert not kept or list(about["reasons"]) == ["it is from another publisher than the images before it"], about
    if storage == "sqlite3":
        converted = world.run("convert", small, "-o", world.folder / "rows", "-s", "sqlite3")
        assert converted.returncode == 0, converted.stderr
        small = world.folder / "rows"
        with Reader(small) as reader:
            found = [(connection.msgtype, time, data) for connection, time, data in reader.messages()]
    else:
        found = [(one[0], one[1], one[3]) for one in read(small)["/camera"]]
    assert [(time - START) // STEP for kind, time, _ in found if kind == IMAGE] == kept
    assert all(data == payloads[(time - START) // STEP] for kind, time, data in found if kind == IMAGE)
    if storage == "mcap":
        video = b"".join(one[4].data for one in read(small)["/camera"] if one[0] != IMAGE)
        seen, _ = decoded(video, "h264", 160, 120)
        assert min(psnr(picture, pictures[n]) for picture, n in zip(seen, sorted(set(pictures) - set(kept)), strict=True)) > 25
        assert_restored(world, small, pictures, is_lossy=True)
    apart = world.run("diff", bag, small, "--decoded", "--tolerance", "psnr=25")
    assert apart.returncode == 0, apart.stdout


@pytest.mark.parametrize("hz", [0.4, 5, 12])
def test_slow_cameras_become_video_and_come_back(tmp_path, world, ffmpeg, hz):
    # The time of a picture is longer than that of any film.
    step, codecs = int(1e9 / hz), ["h264", "h265", "av1", "vp9", "lossless"]
    pictures = {n: scene(n, 160, 120) for n in range(45)}
    bag, small = tmp_path / "camera.mcap", world.folder / "small"
    with open(bag, "wb") as stream:
        writer = Writer(stream)
        writer.start("ros2", "test")
        schema = writer.register_schema(IMAGE, "ros2msg", SCHEMAS[IMAGE].encode())
        channels = [writer.register_channel(f"/{codec}", "cdr", schema) for codec in codecs]
        for n, picture in pictures.items():
            for channel in channels:
                writer.add_message(channel, START + n * step, plain(n, "rgb8", picture), START + n * step)
        writer.finish()
    done = world.run("compress", bag, "-o", small, *(word for codec in codecs for word in ("--video", f"/{codec}={codec}")))
    assert done.returncode == 0, done.stderr
    for topic, about in recoded(world, small).items():
        assert (about["messages"], about["kept"]) == (45, 0), (topic, about)
    restored = world.run("decompress", small, "-o", world.folder / "large")
    assert restored.returncode == 0, restored.stderr
    for topic, messages in read(world.folder / "large").items():
        assert len(messages) == 45 and {one[0] for one in messages} == {IMAGE}
        for (*_, message), picture in zip(messages, pictures.values(), strict=True):
            image = np.frombuffer(message.data, np.uint8).reshape(120, 160, 3)
            assert np.array_equal(image, picture) if topic == "/lossless" else psnr(image, picture) > 24, topic
