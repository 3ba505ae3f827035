"""Images as video inside bags, and back: judged by real ffmpeg, by `mcap` with its ROS 2 decoder, and by the pixels themselves."""

import io
import json
import re
import shutil
import stat
import struct
import subprocess

import DracoPy
import imageio_ffmpeg
import numpy as np
import pureini
import pytest
from mcap.reader import make_reader
from mcap.writer import Writer
from mcap_ros2.decoder import DecoderFactory
from PIL import Image
from test_video import HEADER, STAMP, cdr

FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()
START, STEP = 1_700_000_000_000_000_000, 50_000_000
SCHEMAS = {
    "sensor_msgs/msg/Image": "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\nuint8[] data"
    + HEADER
    + STAMP,
    "sensor_msgs/msg/CompressedImage": "std_msgs/Header header\nstring format\nuint8[] data" + HEADER + STAMP,
    "sensor_msgs/msg/PointCloud2": "std_msgs/Header header\nuint32 height\nuint32 width\nsensor_msgs/PointField[] fields\nbool is_bigendian\n"
    "uint32 point_step\nuint32 row_step\nuint8[] data\nbool is_dense\n" + "=" * 80 + "\nMSG: sensor_msgs/PointField\nstring name\nuint32 offset\nuint8 datatype\n"
    "uint32 count" + HEADER + STAMP,
}
CLOUD, PACKED = "sensor_msgs/msg/PointCloud2", "point_cloud_interfaces/msg/CompressedPointCloud2"
SCHEMAS[PACKED] = SCHEMAS[CLOUD].replace("uint8[] data\nbool is_dense\n", "uint8[] compressed_data\nbool is_dense\nstring format\n")
POINT = np.dtype({"names": ["x", "y", "z", "intensity", "ring", "time"], "formats": ["<f4"] * 4 + ["<u2", "<f8"], "offsets": [0, 4, 8, 16, 20, 24], "itemsize": 32})


def head(number):
    return [("i", 100 + number), ("I", 7 * number), ("s", f"lens_{number % 3}")]


def plain(number, encoding, pixels, step=None, height=None, is_bigendian=0):
    """A message with these pixels; `step` and `height` may lie."""
    data = pixels.tobytes()
    rows, width = pixels.shape[:2]
    step = step or len(data) // rows
    return cdr(*head(number), ("I", height or rows), ("I", width), ("s", encoding), ("B", is_bigendian), ("I", step), ("b", data))


def scene(number, width=320, height=240):
    """A textured ground that moves past, with a disc that moves across it: what a camera of a robot sees, not noise."""
    random = np.random.default_rng(5)
    coarse = random.integers(40, 200, (24, 48, 3)).astype(np.uint8)
    ground = np.asarray(Image.fromarray(coarse).resize((width * 2, height), Image.Resampling.BICUBIC)).astype(np.int16)
    fine = random.integers(-4, 5, ground.shape)
    picture = np.roll((ground + fine).clip(0, 255).astype(np.uint8), -2 * number, axis=1)[:, :width].copy()
    rows, columns = np.ogrid[:height, :width]
    disc = (rows - height // 2) ** 2 + (columns - (40 + 3 * number) % width) ** 2 < 30**2
    picture[disc] = (230, 60, 40)
    return picture


def depth(number, width=160, height=120):
    """A wall, a floor and a box in millimetres, with holes where nothing was measured."""
    rows, columns = np.mgrid[:height, :width]
    wall = 4000 + 2 * columns + 5 * number
    floor = 90_000 // (rows + 1)
    picture = np.minimum(wall, floor)
    picture[40:80, 30 + number : 60 + number] = 1500 + rows[40:80, :30]
    random = np.random.default_rng(number)
    picture = picture + random.integers(-3, 4, picture.shape)
    picture[random.random(picture.shape) < 0.05] = 0
    return picture.clip(0, 65535).astype("<u2")


def write(path, topics):
    """``topics``: by name, the type and payloads with their numbers."""
    with open(path, "wb") as stream:
        writer = Writer(stream)
        writer.start("ros2", "test")
        for topic, (kind, messages) in topics.items():
            schema = writer.register_schema(kind, "ros2msg", SCHEMAS[kind].encode())
            channel = writer.register_channel(topic, "cdr", schema)
            for number, payload in messages:
                time = START + number * STEP
                writer.add_message(channel, time, payload, time - 1000)
        writer.finish()
    return path


def read(bag):
    """By topic: type, log time, publish time, payload and decoded message, by a foreign reader."""
    found = {}
    (path,) = bag.glob("*.mcap") if bag.is_dir() else [bag]
    with open(path, "rb") as stream:
        reader = make_reader(stream, decoder_factories=[DecoderFactory()])
        for schema, channel, message, decoded in reader.iter_decoded_messages():
            found.setdefault(channel.topic, []).append((schema.name, message.log_time, message.publish_time, message.data, decoded))
    return found


def decoded(stream, codec, width, height):
    """All pictures, by ffmpeg, and their kinds."""
    command = [FFMPEG, "-loglevel", "info", "-f", codec, "-i", "-", "-vf", "showinfo", "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, input=stream, capture_output=True, check=True)
    kinds = re.findall(r"iskey:(\d) type:(\w)", done.stderr.decode())
    return np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3), kinds


def psnr(one, other):
    error = np.mean((one.astype(float) - other.astype(float)) ** 2)
    return 10 * np.log10(255**2 / error) if error else 100


def recoded(world, bag):
    shown = world.run("audit", bag, "--json").stdout
    return {one["topic"]: one for one in json.loads(shown)["recoded"]}


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_images_become_video_that_others_decode(tmp_path, world, ffmpeg, codec):
    count, pictures = 90, [scene(number) for number in range(90)]
    jpeg = io.BytesIO()
    Image.fromarray(pictures[0]).save(jpeg, "JPEG", quality=95)
    bag = write(
        tmp_path / "camera.mcap",
        {
            "/camera/image": ("sensor_msgs/msg/Image", [(n, plain(n, "bgr8", picture[:, :, ::-1])) for n, picture in enumerate(pictures)]),
            "/camera/jpeg": (
                "sensor_msgs/msg/CompressedImage",
                [(n, cdr(*head(n), ("s", "rgb8; jpeg compressed bgr8"), ("b", jpeg.getvalue()))) for n in range(count)],
            ),
            "/other": ("sensor_msgs/msg/Image", [(n, plain(n, "mono8", np.full((4, 4), n, np.uint8))) for n in range(5)]),
        },
    )
    done = world.run("compress", bag, "-o", world.folder / "small", "--video", f"/camera/.*={codec},quality=23")
    assert done.returncode == 0, done.stderr
    before, after = read(bag), read(world.folder / "small")
    assert after["/other"] == before["/other"] or [one[3] for one in after["/other"]] == [one[3] for one in before["/other"]]
    for topic in ("/camera/image", "/camera/jpeg"):
        assert [one[1:3] for one in after[topic]] == [one[1:3] for one in before[topic]], "stamps"
        for number, (kind, _, _, _, message) in enumerate(after[topic]):
            assert kind == "foxglove_msgs/msg/CompressedVideo" and message.format == codec
            assert (message.timestamp.sec, message.timestamp.nanosec, message.frame_id) == (100 + number, 7 * number, f"lens_{number % 3}")
            assert message.data[:4] == b"\0\0\0\1"
    stream = b"".join(one[4].data for one in after["/camera/image"])
    seen, kinds = decoded(stream, {"h265": "hevc"}.get(codec, codec), 320, 240)
    assert len(seen) == count and not [kind for _, kind in kinds if kind == "B"]
    keys = [number for number, (key, _) in enumerate(kinds) if key == "1"]
    # 20 pictures a second, and 30 where the rate is not known yet.
    assert keys[0] == 0 and all(b - a <= 30 for a, b in zip(keys, [*keys[1:], count], strict=True)), keys
    assert min(psnr(a, b) for a, b in zip(seen, pictures, strict=True)) > 30
    # Any key frame begins a decoder.
    tail, _ = decoded(b"".join(one[4].data for one in after["/camera/image"][keys[-1] :]), {"h265": "hevc"}.get(codec, codec), 320, 240)
    assert len(tail) == count - keys[-1] and psnr(tail[-1], pictures[-1]) > 30
    about = recoded(world, world.folder / "small")["/camera/image"]
    assert (about["codec"], about["exactness"], about["messages"], about["kept"]) == (codec, "lossy", count, 0)
    assert about["encoder"].startswith("ffmpeg version") and "crf 23" in about["settings"]
    assert about["bytes_before"] == sum(len(one[3]) for one in before["/camera/image"])
    assert about["bytes_after"] == sum(len(one[3]) for one in after["/camera/image"]) < about["bytes_before"] / 10
    assert about["likeness"]["psnr_min"] > 30 and about["likeness"]["ssim_min"] > 0.9, about["likeness"]
    shown = world.run("info", world.folder / "small").stdout
    assert re.search(rf"Other form: +/camera/image: 90 messages of sensor_msgs/msg/Image became .*\({codec}, lossy, crf 23", shown), shown
    # Pictures of the video are images for the export.
    export = world.run("export", world.folder / "small", "-f", "png", "-o", world.folder / "png", "-t", "/camera/image")
    assert export.returncode == 0, export.stderr
    image = np.asarray(Image.open(world.folder / f"png/camera.image/{START + 50 * STEP}.png"))
    assert psnr(image, pictures[50]) > 30
    # The same video as a file, with the times of the messages.
    export = world.run("export", world.folder / "small", "-f", "mp4", "-o", world.folder / "mp4")
    assert export.returncode == 0, export.stderr
    assert sorted(path.name for path in (world.folder / "mp4").iterdir()) == ["camera.image.mp4", "camera.jpeg.mp4"]
    command = [FFMPEG, "-loglevel", "info", "-i", world.folder / "mp4/camera.image.mp4", "-vf", "showinfo", "-fps_mode", "passthrough"]
    copy = subprocess.run([*command, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"], capture_output=True, check=True)
    assert copy.stdout == seen.tobytes()
    times = [float(found) for found in re.findall(r"pts_time:([\d.]+)", copy.stderr.decode())]
    assert times == pytest.approx([number * STEP / 1e9 for number in range(count)], abs=1e-5)
    restored = world.run("decompress", world.folder / "small", "-o", world.folder / "large")
    assert restored.returncode == 0, restored.stderr
    large = read(world.folder / "large")
    for number, (kind, *_, message) in enumerate(large["/camera/image"]):
        assert kind == "sensor_msgs/msg/Image" and message.encoding == "bgr8" and message.step == 960
        pixels = np.frombuffer(message.data, np.uint8).reshape(240, 320, 3)[:, :, ::-1]
        assert psnr(pixels, pictures[number]) > 30
    assert [one[1:3] for one in large["/camera/image"]] == [one[1:3] for one in before["/camera/image"]]
    # What was JPEG is JPEG again.
    assert [one[:3] for one in large["/camera/jpeg"]] == [one[:3] for one in before["/camera/jpeg"]]
    for *_, message in large["/camera/jpeg"]:
        assert message.format == "rgb8; jpeg compressed bgr8" and len(message.data) < 3 * len(jpeg.getvalue())
        assert psnr(np.asarray(Image.open(io.BytesIO(message.data))), pictures[0]) > 28


def test_lossless_forms_come_back_byte_for_byte(tmp_path, world, ffmpeg):
    bayer = np.random.default_rng(1).integers(0, 255, (48, 64), np.uint8)
    # A second of it has more decoded bytes than a segment may have.
    large = scene(0, 1920, 1080)[:, :, 0]
    topics = {
        "/rgb": [plain(n, "rgb8", scene(n)) for n in range(40)],
        "/bgr": [plain(n, "bgr8", scene(n, 65, 49)) for n in range(40)],
        "/mono": [plain(n, "mono8", scene(n)[:, :, 0]) for n in range(40)],
        "/large": [plain(n, "mono8", np.roll(large, 4 * n, axis=1)) for n in range(40)],
        "/bayer": [plain(n, "bayer_rggb8", np.roll(bayer, n)) for n in range(40)],
        "/depth": [plain(n, "16UC1", depth(n)) for n in range(40)],
        "/mono16": [plain(n, "mono16", depth(n).byteswap(), is_bigendian=1) for n in range(40)],
    }
    bag = write(tmp_path / "camera.mcap", {topic: ("sensor_msgs/msg/Image", list(enumerate(messages))) for topic, messages in topics.items()})
    done = world.run("compress", bag, "-o", world.folder / "small", "--video", ".*=lossless")
    assert done.returncode == 0, done.stderr
    for topic, about in recoded(world, world.folder / "small").items():
        assert (about["exactness"], about["messages"], about["kept"]) == ("lossless", 40, 0), about
        assert topic == "/bayer" or about["bytes_after"] < about["bytes_before"] / 1.5, about
    # The depth is what ROS 2's own transport plugin reads, and so do others.
    small = read(world.folder / "small")
    assert small["/depth"][0][0] == "sensor_msgs/msg/CompressedImage" and small["/depth"][0][4].format == "16UC1; compressedDepth rvl"
    restored = world.run("decompress", world.folder / "small", "-o", world.folder / "large")
    assert restored.returncode == 0, restored.stderr
    large, before = read(world.folder / "large"), read(bag)
    for topic in topics:
        assert [one[:4] for one in large[topic]] == [one[:4] for one in before[topic]], topic
    again = world.run("diff", bag, world.folder / "large")
    assert again.returncode == 0, again.stdout
    # What was done is kept, also by tools that copy.
    world.run("filter", world.folder / "large", "-o", world.folder / "part", "--topics", "/depth")
    shown = world.run("info", world.folder / "part").stdout
    assert "became sensor_msgs/msg/CompressedImage (rvl, lossless" in shown and "restored as sensor_msgs/msg/Image" in shown, shown
    assert "/rgb" not in shown


def test_what_cannot_be_encoded_stays_and_is_counted(tmp_path, world, ffmpeg):
    good = scene(0)
    topics = {
        "/odd": ([plain(n, "rgb8", scene(n, 65, 49)) for n in range(3)], 3, "its size of 65 x 49 is odd"),
        "/deep": ([plain(n, "16UC1", depth(n)) for n in range(3)], 3, "video has 8 bits"),
        "/signed": ([plain(n, "16SC1", depth(n)) for n in range(3)], 3, "signed pixels"),
        "/lying": ([plain(0, "rgb8", good)] + [plain(n, "rgb8", good, step=9999) for n in range(1, 4)], 3, "does not fit"),
        "/cut": ([plain(0, "rgb8", good)] + [plain(n, "rgb8", good)[:500] for n in range(1, 4)], 3, "more than the data can hold"),
        "/empty": ([cdr(*head(n), ("I", 0), ("I", 0), ("s", ""), ("B", 0), ("I", 0), ("b", b"")) for n in range(2)], 2, "encoding"),
        "/resized": ([plain(n, "rgb8", scene(n, *((64, 48) if n == 2 else (320, 240)))) for n in range(6)], 1, "it is 64 x 48 rgb8"),
        "/bayer": ([plain(n, "bayer_rggb8", good[:, :, 0]) for n in range(2)], 2, "mosaic"),
        "/glass": ([plain(n, "bgra8", np.dstack([good, np.full(good.shape[:2], 255 - n % 2, np.uint8)])) for n in range(6)], 3, "transparent pixels"),
    }
    bag = write(tmp_path / "bad.mcap", {topic: ("sensor_msgs/msg/Image", list(enumerate(messages))) for topic, (messages, _, _) in topics.items()})
    done = world.run("compress", bag, "-o", world.folder / "small", "--video", ".*=h264")
    assert done.returncode == 0, done.stderr
    before, after, about = read(bag), read(world.folder / "small"), recoded(world, world.folder / "small")
    for topic, (messages, kept, reason) in topics.items():
        assert (about[topic]["kept"], about[topic]["messages"]) == (kept, len(messages) - kept), about[topic]
        assert reason in str(about[topic]["reasons"]) and re.search(rf"{topic}: {kept} messages? kept as before .*{re.escape(reason)}", done.stderr)
        payloads = {one[1]: one[3] for one in before[topic]} if topic != "/cut" else {}
        stayed = [one for one in after[topic] if one[0] == "sensor_msgs/msg/Image"]
        assert topic == "/cut" or (len(stayed) == kept and all(payloads[one[1]] == one[3] for one in stayed))
    none = world.run("compress", bag, "-o", world.folder / "none", "--video", "/nothing=h264")
    assert none.returncode == 2 and 'no topic of images is named "/nothing"' in none.stderr and "/odd" in none.stderr
    wrong = world.run("compress", bag, "-o", world.folder / "none", "--video", "/odd=vp8")
    assert wrong.returncode == 2 and "expected h264, h265, av1, vp9 or lossless" in wrong.stderr


@pytest.mark.parametrize("carrier", ["foxglove", "compressed_image"])
def test_a_topic_whose_first_image_was_kept_is_video_for_all(tmp_path, world, ffmpeg, carrier):
    def jpeg(picture):
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "JPEG", quality=95)
        return file.getvalue()

    pictures = [scene(n, 65, 49) if n == 0 else scene(n) for n in range(40)]
    messages = [(n, cdr(*head(n), ("s", "jpeg"), ("b", jpeg(picture)))) for n, picture in enumerate(pictures)]
    bag = write(tmp_path / "camera.mcap", {"/jpeg": ("sensor_msgs/msg/CompressedImage", messages)})
    small = world.folder / "small"
    done = world.run("compress", bag, "-o", small, "--video", "/jpeg=h264,quality=18", "--as", carrier)
    assert done.returncode == 0 and "1 message kept as before (1: its size of 65 x 49 is odd)" in done.stderr, done.stderr
    done = world.run("export", small, "-f", "png", "-o", world.folder / "png")
    assert done.returncode == 0, done.stderr
    found = {int(path.stem): np.asarray(Image.open(path)) for path in (world.folder / "png").rglob("*.*") if path.is_file()}
    assert sorted(found) == [START + n * STEP for n in range(40)]
    assert all(psnr(found[START + n * STEP], picture) > 28 for n, picture in enumerate(pictures))
    played = world.run("play", small, "--decode-video", "--json", "-r", "20")
    assert played.returncode == 0 and json.loads(played.stdout)["published"] == 40 and "no video" not in played.stderr, played.stderr
    done = world.run("decompress", small, "-o", world.folder / "large")
    assert done.returncode == 0, done.stderr
    again = read(world.folder / "large")["/jpeg"]
    assert {one[0] for one in again} == {"sensor_msgs/msg/CompressedImage"} and again[0][3] == messages[0][1]
    assert all(psnr(np.asarray(Image.open(io.BytesIO(one[4].data))), picture) > 28 for one, picture in zip(again, pictures, strict=True))


def test_a_storage_with_one_type_for_each_topic_is_refused(tmp_path, world, ffmpeg):
    topics = {"/camera": ("sensor_msgs/msg/Image", [(n, plain(n, "rgb8", scene(n))) for n in range(3)])}
    done = world.run("convert", write(tmp_path / "camera.mcap", topics), "-o", world.folder / "rows", "-s", "sqlite3")
    assert done.returncode == 0, done.stderr
    for rule in (["--video", "/camera=h264"], ["--video", "/camera=h264", "--cloud", ".*=lossless"], ["--cloud", ".*=lossless"]):
        done = world.run("compress", world.folder / "rows", "-o", world.folder / "small", *rule)
        assert done.returncode == 2 and f"{rule[0]}: messages that cannot be encoded keep their type" in done.stderr, done.stderr
        assert "one type for each topic; convert the bag with --storage mcap before" in done.stderr and not (world.folder / "small").exists()


def test_two_videos_on_one_topic_are_restored_each_by_itself(tmp_path, world, ffmpeg):
    parts = []
    for place in range(2):
        path = tmp_path / f"part{place}.mcap"
        with open(path, "wb") as out:
            writer = Writer(out)
            writer.start("ros2", "test")
            schema = writer.register_schema("sensor_msgs/msg/Image", "ros2msg", SCHEMAS["sensor_msgs/msg/Image"].encode())
            channel = writer.register_channel("/camera", "cdr", schema, {"holdall.publisher": f"a{place}a{place}a{place}"})
            for n in range(60):
                time = START + n * STEP + place * STEP // 2
                writer.add_message(channel, time, plain(n, "rgb8", scene(n + 100 * place)), time)
            writer.finish()
        done = world.run("compress", path, "-o", world.folder / f"small{place}", "--video", "/camera=h264,quality=18")
        assert done.returncode == 0, done.stderr
        parts.append(world.folder / f"small{place}")
    done = world.run("merge", *parts, "-o", world.folder / "both")
    assert done.returncode == 0 and "its account counts" not in world.run("audit", world.folder / "both").stderr, done.stderr
    done = world.run("decompress", world.folder / "both", "-o", world.folder / "large")
    assert done.returncode == 0 and "kept" not in done.stderr, done.stderr
    images = read(world.folder / "large")["/camera"]
    assert len(images) == 120
    for _, time, _, _, message in images:
        number, place = divmod(time - START, STEP)
        picture = scene(number + 100 * bool(place))
        assert psnr(np.frombuffer(message.data, np.uint8).reshape(240, 320, 3), picture) > 30, (number, place)


BROKEN = {
    "missing": (None, "the program ffmpeg is not installed"),
    "dies": ('#!/bin/sh\n[ "$1" = -version ] && echo ffmpeg version 1 && exit\necho no such encoder >&2\nexit 1\n', "ffmpeg: no such encoder"),
    "garbage": ('#!/bin/sh\n[ "$1" = -version ] && echo ffmpeg version 1 && exit\ncat >/dev/null\nhead -c 100000 /dev/zero\n', "the encoder made 0 pictures of"),
    "half": (
        f'#!/bin/sh\n[ "$1" = -version ] && echo ffmpeg version 1 && exit\nhead -c 2000000 | {FFMPEG} "$@"\n',
        "pictures of",
    ),
    "hangs": ('#!/bin/sh\n[ "$1" = -version ] && echo ffmpeg version 1 && exit\nexec sleep 1000\n', "it did nothing for 20 s and was ended"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_encoder_costs_no_message(tmp_path, world, ffmpeg, how):
    script, reason = BROKEN[how]
    (ffmpeg / "ffmpeg").unlink()
    if script:
        (ffmpeg / "ffmpeg").write_text(script)
        (ffmpeg / "ffmpeg").chmod(stat.S_IRWXU)
    else:
        world.env["PATH"] = str(ffmpeg)
    messages = [plain(n, "rgb8", scene(n)) for n in range(20)]
    bag = write(tmp_path / "camera.mcap", {"/camera": ("sensor_msgs/msg/Image", list(enumerate(messages)))})
    # H.264 may have an encoder that needs no ffmpeg.
    done = world.run("compress", bag, "-o", world.folder / "small", "--video", "/camera=h265", timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"/camera: 20 messages kept as before \(.*{re.escape(reason)}", done.stderr), done.stderr
    assert [one[3] for one in read(world.folder / "small")["/camera"]] == messages
    shutil.rmtree(world.folder / "small")


@pytest.mark.parametrize(("how", "encoding"), [("missing", "bgr8"), ("dies", "mono8"), ("garbage", "bgr8")])
def test_a_computer_without_a_good_ffmpeg_makes_video_that_ffmpeg_decodes(tmp_path, world, ffmpeg, how, encoding):
    script, reason = BROKEN[how]
    known = world.run("compress", tmp_path, "-o", tmp_path / "none", "--video", "/a=h264,encoder=none").stderr
    if "openh264" not in known:
        pytest.skip("built without the feature openh264")
    (ffmpeg / "ffmpeg").unlink()
    if script:
        (ffmpeg / "ffmpeg").write_text(script)
        (ffmpeg / "ffmpeg").chmod(stat.S_IRWXU)
    else:
        world.env["PATH"] = str(ffmpeg)
    pictures = [scene(number) for number in range(70)]
    if encoding == "mono8":
        pictures = [np.repeat(picture[:, :, 1:2], 3, axis=2) for picture in pictures]
    images = [plain(n, encoding, picture[:, :, ::-1] if encoding == "bgr8" else picture[:, :, 0]) for n, picture in enumerate(pictures)]
    bag = write(tmp_path / "camera.mcap", {"/camera": ("sensor_msgs/msg/Image", list(enumerate(images)))})
    sizes = []
    for quality in (18, 30):
        small = world.folder / f"small{quality}"
        done = world.run("compress", bag, "-o", small, "--video", f"/camera=h264,quality={quality}")
        assert done.returncode == 0, done.stderr
        assert re.search(rf"libx264 does not work here \(.*{re.escape(reason)}.*\); openh264 encodes", done.stderr), done.stderr
        messages = read(small)["/camera"]
        assert {one[0] for one in messages} == {"foxglove_msgs/msg/CompressedVideo"}
        seen, kinds = decoded(b"".join(one[4].data for one in messages), "h264", 320, 240)
        assert len(seen) == len(pictures) and {kind for _, kind in kinds} == {"I", "P"}
        keys = [number for number, (key, _) in enumerate(kinds) if key == "1"]
        assert keys[0] == 0 and all(b - a <= 30 for a, b in zip(keys, [*keys[1:], 70], strict=True)), keys
        assert min(psnr(a, b) for a, b in zip(seen, pictures, strict=True)) > {18: 32, 30: 26}[quality]
        about = recoded(world, small)["/camera"]
        assert (about["messages"], about["kept"], about["exactness"]) == (70, 0, "lossy") and about["encoder"].startswith("openh264; libx264 does not work")
        assert about["settings"].startswith(f"qp {quality}, ")
        assert about["likeness"]["psnr_min"] > {18: 32, 30: 26}[quality]
        sizes.append(about["bytes_after"])
    assert sizes[1] < 0.7 * sizes[0], sizes
    # What may lose nothing, and other codecs, need ffmpeg.
    done = world.run("compress", bag, "-o", world.folder / "exact", "--video", "/camera=lossless")
    assert done.returncode == 0 and re.search(rf"70 messages kept as before \(\d+: .*{re.escape(reason)}", done.stderr), done.stderr


def scan(number, count=5000):
    """A turning scanner in a hall: x, y, z, four unused bytes, intensity, ring, two unused bytes, time."""
    random = np.random.default_rng(number)
    angle = np.arange(count) * 2 * np.pi * 16 / count
    ring = np.arange(count) % 16
    far = np.minimum(9 / np.abs(np.cos(angle)), 6 / np.abs(np.sin(angle) + 1e-9)) + random.normal(scale=0.01, size=count)
    points = np.zeros(count, POINT)
    points["x"], points["y"], points["z"] = far * np.cos(angle), far * np.sin(angle), far * (ring - 8) / 40
    points["x"][::101] = points["y"][::101] = points["z"][::101] = np.nan
    points["intensity"], points["ring"], points["time"] = random.integers(0, 255, count), ring, number + np.arange(count) * 1e-6
    return points


NUMBERS = {"|i1": 1, "|u1": 2, "<i2": 3, "<u2": 4, "<i4": 5, "<u4": 6, "<f4": 7, "<f8": 8}


def cloud(number, points, row_step=None, packed=None, form="cloudini"):
    """A message with these points, or with what they were packed to."""
    fields = []
    for name, (kind, offset) in points.dtype.fields.items():
        base, (count,) = kind.subdtype or (kind, (1,))
        fields += [("s", name), ("I", offset), ("B", NUMBERS[base.str]), ("I", count)]
    return cdr(
        *head(number), ("I", 1), ("I", len(points)), ("I", len(fields) // 4), *fields, ("?", False), ("I", points.dtype.itemsize),
        ("I", row_step or points.nbytes), ("b", points.tobytes() if packed is None else packed), ("?", False), *([] if packed is None else [("s", form)]),
    )  # fmt: skip


def test_clouds_keep_their_bound_or_every_bit(tmp_path, world):
    scans = [scan(number) for number in range(20)]
    dirty = scan(3).view(np.uint8).reshape(-1, 32).copy()
    dirty[:, 12:16] = 99
    far = scan(4)
    far["x"][5] = 3e9
    messages = [cloud(n, points) for n, points in enumerate(scans)]
    bad = [(20, cloud(20, far)), (21, cloud(21, scan(5), row_step=7))]
    bag = write(
        tmp_path / "lidar.mcap",
        {
            "/lidar": ("sensor_msgs/msg/PointCloud2", list(enumerate(messages)) + bad),
            "/exact": ("sensor_msgs/msg/PointCloud2", [*enumerate(messages), (20, cloud(20, dirty.view(POINT).ravel()))]),
        },
    )
    done = world.run("compress", bag, "-o", world.folder / "small", "--cloud", "/lidar=cloudini,resolution=0.002", "--cloud", "/exact=lossless")
    assert done.returncode == 0, done.stderr
    about = recoded(world, world.folder / "small")
    lossy, exact = about["/lidar"], about["/exact"]
    assert (lossy["messages"], lossy["kept"], exact["messages"], exact["kept"]) == (20, 2, 21, 0), about
    assert 0.0009 < lossy["error_max"] <= lossy["error_bound"] == pytest.approx(0.002) and "too large for multiples" in str(lossy["reasons"])
    assert lossy["bytes_after"] * 2.5 < lossy["bytes_before"] and exact["bytes_after"] * 1.4 < exact["bytes_before"], about
    small = {topic: [one for one in found if one[0].endswith("CompressedPointCloud2")] for topic, found in read(world.folder / "small").items()}
    assert {one[4].format for one in small["/lidar"]} == {"cloudini"} and small["/lidar"][3][4].header.frame_id == "lens_0"
    restored = world.run("decompress", world.folder / "small", "-o", world.folder / "large")
    assert restored.returncode == 0, restored.stderr
    large = read(world.folder / "large")
    assert [one[3] for one in large["/exact"][:20]] == messages
    assert bytes(large["/exact"][20][4].data) == cleaned(dirty).tobytes()
    for number, points in enumerate(scans):
        found = np.frombuffer(large["/lidar"][number][4].data, POINT)
        for name in POINT.names:
            bound = 0.002 if name in "xyz" else 0
            assert np.array_equal(np.isnan(found[name]), np.isnan(points[name])) and np.nanmax(np.abs(found[name] - points[name])) <= bound, name


def cleaned(points):
    points = points.copy()
    points[:, 12:16] = 0
    return points


def test_another_program_reads_the_cloudini_that_is_written(tmp_path, world):
    scans = [scan(number, 40_000) for number in range(3)]
    bag = write(tmp_path / "lidar.mcap", {"/lidar": (CLOUD, [(n, cloud(n, points)) for n, points in enumerate(scans)])})
    done = world.run("compress", bag, "-o", world.folder / "small", "--cloud", "/lidar=cloudini")
    assert done.returncode == 0, done.stderr
    for (_, _, _, _, message), points in zip(read(world.folder / "small")["/lidar"], scans, strict=True):
        data, info = pureini.PointcloudDecoder().decode(bytes(message.compressed_data))
        found = np.frombuffer(data, POINT)
        assert (info.width, info.point_step) == (40_000, 32)
        # Whole numbers as floats are stored as whole numbers.
        assert {field.name: field.resolution for field in info.fields} == {
            **{name: pytest.approx(0.001) for name in "xyz"}, "intensity": 1, "ring": None, "time": None,
        }  # fmt: skip
        for name in POINT.names:
            bound = 0.001 if name in "xyz" else 0
            assert np.array_equal(np.isnan(found[name]), np.isnan(points[name])) and np.nanmax(np.abs(found[name] - points[name])) <= bound, name


KINDS = ["<f4", "<f4", "<f4", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<f4", "<f4", "<f8", "<f8"]
EVERY = np.dtype(
    {
        "names": ["x", "y", "z", "i8", "u8", "i16", "ring", "i32", "t", "plain", "fine", "stamp", "coarse"],
        "formats": KINDS,
        "offsets": [0, 4, 8, 13, 14, 16, 18, 20, 24, 28, 32, 40, 48],
        "itemsize": 64,
    }
)
# Fields with a resolution: coordinates, and others of both widths.
RESOLUTIONS = {"x": 0.001, "y": 0.001, "z": 0.002, "fine": 0.25, "coarse": 0.001}


def every(count):
    """Points with a field of each type: few values, long runs, steps of one size and of any, floats that stay, turn and are no numbers."""
    random = np.random.default_rng(8)
    points, number = np.zeros(count, EVERY), np.arange(count)
    for name in "xyz":
        points[name] = 20 * np.cos(number / 900 + ord(name)) + random.normal(scale=0.02, size=count)
    points["i8"], points["u8"], points["i16"] = random.integers(-128, 128, count), number % 256, random.choice([-30_000, 5, 12_345], count)
    points["ring"], points["i32"], points["t"] = number % 16, (number // 700) * -7_654_321, np.cumsum(random.integers(0, 90_000, count))
    points["plain"], points["fine"] = random.normal(size=count) * 1e20, np.round(random.normal(size=count) * 40) / 4
    points["stamp"], points["coarse"] = 1.7e9 + number // 3 * 1e-4, random.normal(size=count) * 1e6
    for name in ("x", "z", "plain", "fine", "stamp", "coarse"):
        points[name][5::97] = np.nan
    points["plain"][:3] = np.inf, -0.0, -np.inf
    return points


def packed(points, version, encoding, compression):
    fields = [
        pureini.PointField(name, offset, pureini.FieldType(NUMBERS[kind.str]), RESOLUTIONS.get(name)) for name, (kind, offset) in points.dtype.fields.items()
    ]
    options = getattr(pureini.EncodingOptions, encoding), getattr(pureini.CompressionOption, compression)
    info = pureini.EncodingInfo(fields, len(points), 1, points.dtype.itemsize, *options, version)
    return pureini.PointcloudEncoder(info).encode(points.tobytes())


def test_cloudini_of_another_program_is_read_bit_for_bit_or_refused(tmp_path, world):
    points = every(35_000)
    ways = [(version, encoding, compression) for version in (3, 4, 5) for encoding in ("LOSSY", "LOSSLESS", "NONE") for compression in ("ZSTD", "LZ4", "NONE")]
    made = {f"/v{version}_{encoding}_{compression}": packed(points, version, encoding, compression) for version, encoding, compression in ways}
    messages = {topic: cloud(1, points, packed=data) for topic, data in made.items()}
    good = made["/v5_LOSSY_ZSTD"]
    refused = {topic: "in two ways in version 03" for topic in messages if topic.startswith("/v3_LOSSLESS")}
    others = {
        "/later": (cloud(1, points, packed=good.replace(b"CLOUDINI_V05", b"CLOUDINI_V06")), 'its head names version "06" of Cloudini'),
        "/binary": (cloud(1, points, packed=good.replace(b"CLOUDINI_V05\n", b"CLOUDINI_V05\0")), "or is not text"),
        "/unknown": (cloud(1, points, packed=good.replace(b"compression_opt: ZSTD", b"compression_opt: ZIP")), 'the line "compression_opt: ZIP"'),
        "/torn": (cloud(1, points, packed=good[:-9]), "cut off or damaged"),
        "/more": (cloud(1, points, packed=good + b"\0\0\0\0"), "data after its last point"),
        "/fewer": (cloud(1, points[:-1], packed=good), "not as the message has it"),
        "/moved": (cloud(1, points, packed=good.replace(b"offset: 13", b"offset: 12")), 'the line "    offset: 12"'),
        "/other": (cloud(1, points, packed=good, form="draco9"), 'clouds of format "draco9"'),
    }
    messages |= {topic: message for topic, (message, _) in others.items()}
    refused |= {topic: clause for topic, (_, clause) in others.items()}
    # Cloudini's own publisher names no format, and makes nothing of a cloud without points.
    messages["/unnamed"] = cloud(1, points, packed=good, form="")
    messages["/empty"] = cloud(1, points[:0], packed=b"")
    bag = write(tmp_path / "lidar.mcap", {topic: (PACKED, [(1, message)]) for topic, message in messages.items()})
    done = world.run("export", bag, "-f", "pcd", "-o", world.folder / "pcd", timeout=300)
    assert done.returncode == 1, done.stderr
    tight = np.dtype([(name, EVERY.fields[name][0]) for name in EVERY.names])
    for topic in messages:
        files = list((world.folder / "pcd" / topic[1:]).glob("*.pcd"))
        said = re.findall(rf"{topic}: 1 message could not be written; the first, of time \d+: (.*)", done.stderr)
        if topic in refused:
            assert not files and len(said) == 1 and refused[topic] in said[0], (topic, said, done.stderr)
            continue
        assert len(files) == 1 and not said, (topic, said)
        found = np.frombuffer(files[0].read_bytes().partition(b"DATA binary\n")[2], tight)
        wanted = {"/unnamed": good, "/empty": None}.get(topic, made.get(topic))
        expected = np.frombuffer(pureini.PointcloudDecoder().decode(wanted)[0] if wanted else b"", EVERY)
        assert len(found) == len(expected) == (35_000 if wanted else 0), topic
        for name in EVERY.names:
            assert found[name].tobytes() == expected[name].tobytes(), (topic, name)
            if "LOSSY" not in topic and wanted and topic != "/unnamed":
                assert found[name].tobytes() == points[name].tobytes(), (topic, name)


def layout(**formats):
    """Points with these fields, one after another."""
    offsets = np.cumsum([0] + [np.dtype(kind).itemsize for kind in formats.values()])
    return np.dtype({"names": list(formats), "formats": list(formats.values()), "offsets": offsets[:-1], "itemsize": offsets[-1] + 2})


def test_draco_of_another_program_is_read_as_that_reads_it_or_refused(tmp_path, world):
    count, random = 3000, np.random.default_rng(2)
    values = {
        "xyz": random.normal(size=(count, 3)).astype("<f4"),
        "rgb": random.integers(0, 256, (count, 3), np.uint8),
        "ring": (np.arange(count, dtype="<u4") % 32)[:, None],
        "intensity": random.normal(size=(count, 1)).astype("<f4"),
    }
    # Floats that are not quantized are stored one after another, all else as a tree.
    whole = layout(xyz=("<f4", 3), rgb=("|u1", 3), ring="<u4")
    floats = layout(xyz=("<f4", 3), rgb=("|u1", 3), ring="<u4", intensity="<f4")
    made, ways = {}, [{"quantization_bits": 14}, {"compression_level": 10}, {"quantization_bits": 0}, {"compression_level": 0, "preserve_order": True}]
    for place, kind in enumerate((whole, floats)):
        generic = {name: values[name] for name in kind.names[2:]}
        for number, way in enumerate(ways):
            made[f"/v{place}{number}"] = kind, DracoPy.encode(values["xyz"], colors=values["rgb"], generic_attributes=generic, **way)
    assert {data[8] for _, data in made.values()} == {0, 1}, "both ways are tried"
    good, nothing = made["/v00"][1], np.zeros(count, whole)
    turned = DracoPy.encode(values["xyz"], colors=values["rgb"], generic_attributes={1: values["ring"]})
    other = np.zeros(count, layout(xyz=("<f4", 3), rgb=("|u1", 3), ring="<f4"))
    refused = {
        "/fewer": (nothing[:-1], good, "over the caller's ceiling"),
        "/more": (np.zeros(count + 1, whole), good, f"{count} points of 3 fields, its message {count + 1} of 3"),
        "/fields": (np.zeros(count, floats), good, f"{count} points of 3 fields, its message {count} of 4"),
        "/type": (other, good, '"ring" has another type'),
        "/order": (nothing, turned, "in another order"),
        "/torn": (nothing, good[:-40], "its Draco data is"),
        "/empty": (nothing, b"", "its Draco data is"),
    }
    messages = {topic: cloud(1, np.zeros(count, kind), packed=data, form="draco") for topic, (kind, data) in made.items()}
    messages |= {topic: cloud(1, points, packed=data, form="draco") for topic, (points, data, _) in refused.items()}
    bag = write(tmp_path / "lidar.mcap", {topic: (PACKED, [(1, message)]) for topic, message in messages.items()})
    done = world.run("export", bag, "-f", "pcd", "-o", world.folder / "pcd")
    assert done.returncode == 1, done.stderr
    for topic, (kind, data) in made.items():
        (file,) = (world.folder / "pcd" / topic[1:]).glob("*.pcd")
        found = np.frombuffer(file.read_bytes().partition(b"DATA binary\n")[2], np.dtype([(name, kind.fields[name][0]) for name in kind.names]))
        for name, one in zip(kind.names, DracoPy.decode(data).attributes, strict=True):
            assert len(found) == count and found[name].tobytes() == one["data"].tobytes(), (topic, name)
        assert np.array_equal(np.sort(found["ring"]), np.sort(values["ring"][:, 0]))
    for topic, (_, _, clause) in refused.items():
        said = re.findall(rf"{topic}: 1 message could not be written; the first, of time \d+: (.*)", done.stderr)
        assert len(said) == 1 and clause in said[0], (topic, said, done.stderr)


def test_originals_go_only_after_every_message_was_compared(tmp_path, world, ffmpeg):
    topics = {
        "/camera": ("sensor_msgs/msg/Image", [(n, plain(n, "rgb8", scene(n))) for n in range(40)]),
        "/depth": ("sensor_msgs/msg/Image", [(n, plain(n, "16UC1", depth(n))) for n in range(40)]),
        "/lidar": ("sensor_msgs/msg/PointCloud2", [(n, cloud(n, scan(n))) for n in range(40)]),
    }
    how = ["--video", "/camera=h264", "--video", "/depth=lossless", "--cloud", "/lidar=cloudini", "--delete-original-after-verify"]
    bag = write(tmp_path / "camera.mcap", topics)
    done = world.run("compress", bag, "-o", world.folder / "small", *how)
    assert done.returncode == 0 and "120 messages compared, the originals deleted" in done.stdout, done.stderr + done.stdout
    assert not bag.exists() and len(read(world.folder / "small")["/camera"]) == 40
    # Neither a file that was not compared, nor a bag of which nothing was.
    again = ["compress", world.folder / "small", "-o", world.folder / "twice", "--delete-original-after-verify"]
    notes = world.folder / "small/notes.txt"
    notes.write_text("calibrated")
    done = world.run(*again)
    assert done.returncode == 2 and '"notes.txt" in it is not a part of the bag' in done.stderr and not (world.folder / "twice").exists(), done.stderr
    notes.unlink()
    done = world.run(*again)
    assert done.returncode == 0 and not (world.folder / "small").exists() and len(read(world.folder / "twice")["/camera"]) == 40, done.stderr
    empty = write(tmp_path / "empty.mcap", {})
    done = world.run("compress", empty, "-o", world.folder / "nothing", "--delete-original-after-verify")
    assert done.returncode != 0 and empty.exists(), done.stderr
    # An encoder that does its work, and a decoder that shows another picture than the one that was sampled.
    bag = write(tmp_path / "camera.mcap", topics)
    (ffmpeg / "ffmpeg").unlink()
    script = f'#!/bin/sh\nn=$(cat {tmp_path}/runs 2>/dev/null || echo 0); echo $((n + 1)) > {tmp_path}/runs\n'
    script += f'case "$*" in *image2pipe*) [ $n -gt 3 ] && exec {FFMPEG} -loglevel error -f h264 -i - -vf negate,settb=1/25,setpts=N -r 25 -c:v ppm -pix_fmt rgb24 -f image2pipe -;; esac\nexec {FFMPEG} "$@"\n'
    (ffmpeg / "ffmpeg").write_text(script)
    (ffmpeg / "ffmpeg").chmod(stat.S_IRWXU)
    done = world.run("compress", bag, "-o", world.folder / "again", *how)
    assert done.returncode == 1 and "the originals stay" in done.stderr and bag.exists(), done.stderr


def test_images_that_are_no_video_leave_no_file(tmp_path, world, ffmpeg):
    jpeg = io.BytesIO()
    Image.fromarray(scene(0)).save(jpeg, "JPEG")
    messages = [(n, cdr(*head(n), ("s", "jpeg"), ("b", jpeg.getvalue()))) for n in range(5)]
    bag = write(tmp_path / "camera.mcap", {"/jpeg": ("sensor_msgs/msg/CompressedImage", messages)})
    done = world.run("export", bag, "-f", "mp4", "-o", world.folder / "mp4")
    assert done.returncode == 2 and "no chosen topic has video" in done.stderr, (done.returncode, done.stderr)
    assert "/jpeg: nothing was written of 5 messages: it is not a picture of a video" in done.stderr, done.stderr
    assert not [path for path in (world.folder / "mp4").glob("*")]


@pytest.mark.parametrize("carrier, kind", [("ffmpeg_image_transport", "ffmpeg_image_transport_msgs/msg/FFMPEGPacket"), ("compressed_image", "sensor_msgs/msg/CompressedImage")])
def test_other_messages_carry_the_video(tmp_path, world, ffmpeg, carrier, kind):
    count, pictures = 50, [scene(number) for number in range(50)]
    topics = {"/camera": pictures, "/grey": [picture[:, :, 0] for picture in pictures]}
    encodings = {"/camera": "rgb8", "/grey": "mono8"}
    bag = write(
        tmp_path / "camera.mcap",
        {topic: ("sensor_msgs/msg/Image", [(n, plain(n, encodings[topic], picture)) for n, picture in enumerate(found)]) for topic, found in topics.items()},
    )
    done = world.run("compress", bag, "-o", world.folder / "small", "--video", "/camera=h264,quality=20", "--video", "/grey=lossless", "--as", carrier)
    assert done.returncode == 0, done.stderr
    before, after = read(bag), read(world.folder / "small")
    formats = {"/camera": "h264;yuv420p;rgb8;rgb8", "/grey": "h264;gray;mono8;mono8"}
    for topic in topics:
        assert [one[1:3] for one in after[topic]] == [one[1:3] for one in before[topic]]
        assert {one[0] for one in after[topic]} == {kind}
        messages = [one[4] for one in after[topic]]
        assert [(one.header.stamp.sec, one.header.frame_id) for one in messages] == [(100 + n, f"lens_{n % 3}") for n in range(count)]
        seen, kinds = decoded(b"".join(one.data for one in messages), "h264", 320, 240)
        assert len(seen) == count
        if carrier == "ffmpeg_image_transport":
            assert {(one.width, one.height, one.encoding) for one in messages} == {(320, 240, formats[topic])}
            assert [one.pts for one in messages] == list(range(count)) and [one.flags for one in messages] == [int(key) for key, _ in kinds]
        else:
            assert {one.format for one in messages} == {"h264"}
    export = world.run("export", world.folder / "small", "-f", "mp4", "-o", world.folder / "mp4")
    assert export.returncode == 0 and len(list((world.folder / "mp4").iterdir())) == 2, export.stderr
    restored = world.run("decompress", world.folder / "small", "-o", world.folder / "large")
    assert restored.returncode == 0, restored.stderr
    large = read(world.folder / "large")
    assert [one[3] for one in large["/grey"]] == [one[3] for one in before["/grey"]]
    assert all(one[0] == "sensor_msgs/msg/Image" for one in large["/camera"])
    assert min(psnr(np.frombuffer(one[4].data, np.uint8).reshape(240, 320, 3), picture) for one, picture in zip(large["/camera"], pictures, strict=True)) > 30


def test_a_smaller_bag_is_compared_with_its_original_by_what_it_shows(tmp_path, world, ffmpeg):
    pictures, scans = [scene(number) for number in range(40)], [scan(number, 800) for number in range(40)]
    original = write(
        tmp_path / "camera.mcap",
        {
            "/camera": ("sensor_msgs/msg/Image", [(n, plain(n, "bgr8", picture[:, :, ::-1])) for n, picture in enumerate(pictures)]),
            "/depth": ("sensor_msgs/msg/Image", [(n, plain(n, "16UC1", depth(n))) for n in range(40)]),
            "/lidar": ("sensor_msgs/msg/PointCloud2", [(n, cloud(n, points)) for n, points in enumerate(scans)]),
        },
    )
    small = world.folder / "small"
    rules = ["--video", "/camera=h264,quality=20", "--video", "/depth=lossless", "--cloud", "/lidar=cloudini,resolution=0.004"]
    assert world.run("compress", original, "-o", small, *rules).returncode == 0
    done = world.run("diff", original, small, "--decoded", "--json")
    assert done.returncode == 1, done.stderr
    found = {one["topic"]: one for one in json.loads(done.stdout)["decoded"]}
    assert {topic: (one["pairs"], one["beyond"]) for topic, one in found.items()} == {"/camera": (40, 40), "/depth": (40, 0), "/lidar": (40, 40)}
    # The same by numpy, of what decompress makes.
    large = world.folder / "large"
    assert world.run("decompress", small, "-o", large).returncode == 0
    messages = read(large)
    images = [np.frombuffer(one[4].data, np.uint8).reshape(240, 320, 3)[:, :, ::-1] for one in messages["/camera"]]
    errors = [np.abs(one.astype(int) - other).max() for one, other in zip(images, pictures, strict=True)]
    ratios = [psnr(one, other) for one, other in zip(images, pictures, strict=True)]
    assert found["/camera"]["error_max"] == max(errors) and found["/camera"]["psnr"] == pytest.approx([min(ratios), np.mean(ratios)], abs=1e-6)
    clouds = [np.frombuffer(one[4].data, POINT) for one in messages["/lidar"]]
    apart = max(np.nanmax(np.abs(one[name].astype(float) - other[name])) for one, other in zip(clouds, scans, strict=True) for name in "xyz")
    assert found["/lidar"]["error_max"] == pytest.approx(apart, abs=1e-9) and 0 < apart <= 0.004
    fine = world.run("diff", original, small, "--decoded", "--tolerance", "0.004", "--tolerance", "ssim=0.9", "--tolerance", "psnr=30")
    assert fine.returncode == 0 and "/camera: 40 pairs compared" in fine.stdout, fine.stdout
    assert world.run("diff", original, small, "--decoded", "--tolerance", "0.004", "--tolerance", "ssim=0.9999").returncode == 1
    assert world.run("diff", small, large, "--decoded").returncode == 0
    part = world.run("filter", large, "-o", world.folder / "part", "--topics", "/camera", "--start", f"@{(START + 10 * STEP) // 10**9}.{(START + 10 * STEP) % 10**9:09}")
    assert part.returncode == 0, part.stderr
    missing = world.run("diff", large, world.folder / "part", "--decoded")
    assert missing.returncode == 1 and "/camera: 30 pairs compared" in missing.stdout and "; 10 only in the first bag" in missing.stdout, missing.stdout
    for text in ("x", "ssim=-1", "mse=2"):
        refused = world.run("diff", large, small, "--decoded", "--tolerance", text)
        assert refused.returncode == 2 and text in refused.stderr, refused.stderr


def ivf(codec, pictures):
    """A file of these pictures, as ffmpeg's own IVF has them."""
    head = b"DKIF" + struct.pack("<HH4sHHIIII", 0, 32, {"av1": b"AV01", "vp9": b"VP90"}[codec], 320, 240, 25, 1, len(pictures), 0)
    return head + b"".join(struct.pack("<IQ", len(picture), number) + picture for number, picture in enumerate(pictures))


@pytest.mark.parametrize("codec", ["av1", "vp9"])
def test_images_become_av1_and_vp9_that_others_decode(tmp_path, world, ffmpeg, codec):
    count, pictures = 70, [scene(number) for number in range(70)]
    bag = write(tmp_path / "camera.mcap", {"/camera": ("sensor_msgs/msg/Image", [(n, plain(n, "rgb8", picture)) for n, picture in enumerate(pictures)])})
    done = world.run("compress", bag, "-o", world.folder / "small", "--video", f"/camera={codec},quality=24")
    assert done.returncode == 0, done.stderr
    before, after = read(bag), read(world.folder / "small")
    assert [one[1:3] for one in after["/camera"]] == [one[1:3] for one in before["/camera"]]
    assert {(one[0], one[4].format) for one in after["/camera"]} == {("foxglove_msgs/msg/CompressedVideo", codec)}
    data = [one[4].data for one in after["/camera"]]
    seen, kinds = decoded(ivf(codec, data), "ivf", 320, 240)
    keys = [number for number, (key, _) in enumerate(kinds) if key == "1"]
    assert len(seen) == count and keys[0] == 0 and all(b - a <= 30 for a, b in zip(keys, [*keys[1:], count], strict=True)), keys
    assert min(psnr(a, b) for a, b in zip(seen, pictures, strict=True)) > 28
    if codec == "av1":
        # The low-overhead format, each key frame with the parameters of its sequence (unit 1).
        assert all(one[0] & 0x82 == 2 for one in data) and all(b"\x0a" in data[key][:4] for key in keys)
    tail, _ = decoded(ivf(codec, data[keys[-1] :]), "ivf", 320, 240)
    assert len(tail) == count - keys[-1] and psnr(tail[-1], pictures[-1]) > 28
    about = recoded(world, world.folder / "small")["/camera"]
    assert (about["codec"], about["messages"], about["kept"]) == (codec, count, 0) and about["bytes_after"] * 10 < about["bytes_before"], about
    assert any(name in about["encoder"] for name in ("libsvtav1", "libaom-av1", "libvpx-vp9")), about
    export = world.run("export", world.folder / "small", "-f", "png", "-o", world.folder / "png")
    assert export.returncode == 0, export.stderr
    assert psnr(np.asarray(Image.open(world.folder / f"png/camera/{START + 50 * STEP}.png")), pictures[50]) > 28
    export = world.run("export", world.folder / "small", "-f", "mp4", "-o", world.folder / "mp4")
    assert export.returncode != 0 and f"video as {codec} is not written as MP4; H.264 and H.265 are" in export.stderr, export.stderr
    restored = world.run("decompress", world.folder / "small", "-o", world.folder / "large")
    assert restored.returncode == 0, restored.stderr
    for number, (kind, *_, message) in enumerate(read(world.folder / "large")["/camera"]):
        assert kind == "sensor_msgs/msg/Image" and psnr(np.frombuffer(message.data, np.uint8).reshape(240, 320, 3), pictures[number]) > 28


HARDWARE = {
    # As on this computer, which has none.
    "none": (f'exec {FFMPEG} "$@"', "hardware", "libx264", ["h264_nvenc", "h264_nvmpi", "h264_v4l2m2m", "h264_vaapi"]),
    "refused": ('case "$*" in *h264_nvenc*) echo "No capable devices found" >&2; exit 1;; esac\n' + f'exec {FFMPEG} "$@"', "h264_nvenc", "libx264", ["No capable devices"]),
    # One whose pictures are those of a library.
    "works": (f'for word do shift; [ "$word" = h264_v4l2m2m ] && word=libx264; set -- "$@" "$word"; done\nexec {FFMPEG} "$@"', "h264_v4l2m2m", "h264_v4l2m2m", []),
}


@pytest.mark.parametrize("how", HARDWARE)
def test_an_encoder_of_the_hardware_is_tried_and_named(tmp_path, world, ffmpeg, how):
    script, encoder, chosen, words = HARDWARE[how]
    (ffmpeg / "ffmpeg").unlink()
    (ffmpeg / "ffmpeg").write_text(f"#!/bin/sh\n{script}\n")
    (ffmpeg / "ffmpeg").chmod(stat.S_IRWXU)
    bag = write(tmp_path / "camera.mcap", {"/camera": ("sensor_msgs/msg/Image", [(n, plain(n, "rgb8", scene(n))) for n in range(40)])})
    done = world.run("compress", bag, "-o", world.folder / "small", "--video", f"/camera=h264,encoder={encoder}")
    assert done.returncode == 0, done.stderr
    about = recoded(world, world.folder / "small")["/camera"]
    assert (about["messages"], about["kept"]) == (40, 0), about
    assert about["encoder"].split(";")[0].endswith(f" {chosen}") and all(word in about["encoder"] for word in words), about["encoder"]
    assert all(word in done.stderr for word in words), done.stderr
    seen, _ = decoded(b"".join(one[4].data for one in read(world.folder / "small")["/camera"]), "h264", 320, 240)
    assert len(seen) == 40
