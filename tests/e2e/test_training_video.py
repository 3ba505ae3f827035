"""Recorded video in datasets of LeRobot: copied where each frame is the next picture, else encoded anew with a reason. ffmpeg judges what is in the files."""

import hashlib
import json
import re
import subprocess

import numpy as np
import pytest
from test_video import FFMPEG, HEIGHT, WIDTH, encode, moving, write, write_two

VIDEO, IMAGE, PACKET = "foxglove_msgs/msg/CompressedVideo", "sensor_msgs/msg/CompressedImage", "ffmpeg_image_transport_msgs/msg/FFMPEGPacket"
# Not before the time of its frame, so that there is one for the last picture.
STEP = 33_333_334
MAPPING = "fps: 30\nfeatures:\n  top: {topic: /camera, video: true}\n"


def export(world, bags, out, mapping=MAPPING, more=(), code=0):
    """The report, and all files of the camera."""
    path = world.folder / f"{out}.yaml"
    path.write_text(mapping)
    done = world.run("export", *bags, "-f", "lerobot", "--mapping", path, "-o", world.folder / out, "--json", *more)
    assert done.returncode == code, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report == json.loads((world.folder / out / "holdall.json").read_text())
    return report, sorted((world.folder / out / "videos/top").glob("*/*.mp4"))


def about(world, out):
    info = json.loads((world.folder / out / "meta/info.json").read_text())["features"]["top"]["info"]
    return info["video.codec"], info["video.pix_fmt"]


def ffmpeg_bytes(*words, stream=None):
    return subprocess.run([FFMPEG, "-v", "error", *map(str, words), "-"], input=stream, capture_output=True, check=True).stdout


def shown(path):
    """All pictures of a file, one after another, in its own format of pixels."""
    return ffmpeg_bytes("-i", path, "-fps_mode", "passthrough", "-f", "rawvideo")


def of_stream(codec, messages):
    return ffmpeg_bytes("-f", codec, "-i", "-", "-fps_mode", "passthrough", "-f", "rawvideo", stream=b"".join(messages))


def packet(message):
    """The bytes of a picture in a file: its units, each after its length."""
    units = [unit.rstrip(b"\0") for unit in message.split(b"\0\0\1")]
    return b"".join(len(unit).to_bytes(4, "big") + unit for unit in units if unit)


def packets(path):
    """Time and duration of each picture, the hash of its bytes, and the units of time in a second."""
    listed = ffmpeg_bytes("-i", path, "-c", "copy", "-f", "framehash", "-hash", "md5").decode()
    scale = re.search(r"#tb 0: 1/(\d+)", listed)
    rows = [line.replace(" ", "").split(",") for line in listed.splitlines() if not line.startswith("#")]
    return [(int(row[2]), int(row[3]), row[5]) for row in rows], int(scale[1])


@pytest.mark.parametrize("codec", ["h264", "hevc"])
@pytest.mark.parametrize("kind", [VIDEO, IMAGE, PACKET])
def test_a_dataset_has_the_recorded_pictures_bit_for_bit(tmp_path, world, ffmpeg, codec, kind):
    messages = encode(codec, 60, scene=moving)
    bag = write(tmp_path / "video.mcap", {"/camera": (kind, codec, list(enumerate(messages)))}, STEP)
    report, files = export(world, [bag, bag], "set")
    assert report["frames"] == 120 and report["features"][0]["video"] == {"copied": 2, "encoded": 0}
    assert about(world, "set") == (codec, "yuv420p") and len(files) == 1
    assert shown(files[0]) == 2 * of_stream(codec, messages)
    rows, scale = packets(files[0])
    # Each frame is shown for a thirtieth of a second, the last one too: readers compute numbers of frames from the mean.
    hashes = [hashlib.md5(packet(message)).hexdigest() for message in messages]
    assert scale == 30_000 and rows == [(1000 * number, 1000, known) for number, known in enumerate(2 * hashes)]
    described = subprocess.run([FFMPEG, "-hide_banner", "-i", files[0]], capture_output=True, text=True).stderr
    assert "Duration: 00:00:04.00" in described and " 30 fps" in described, described
    # Seeking begins at the key frame before.
    late = subprocess.run([FFMPEG, "-v", "error", "-ss", "2.5", "-i", files[0], "-frames:v", "1", "-f", "rawvideo", "-"], capture_output=True, check=True).stdout
    size = WIDTH * HEIGHT * 3 // 2
    assert late == shown(files[0])[75 * size : 76 * size]
    text = world.run("export", bag, "-f", "lerobot", "--mapping", world.folder / "set.yaml", "-o", world.folder / "again").stdout
    assert "; its video is copied in 1 episode" in text, text


def numbered(messages, numbers):
    return [(number, messages[number]) for number in numbers]


def gap():
    return numbered(encode("h264", 60, scene=moving), [number for number in range(60) if number != 33])


def full(message):
    """The same picture with parameters that say that its pixels have all values from 0 to 255."""
    bits = "h264_metadata=video_full_range_flag=1"
    return ffmpeg_bytes("-f", "h264", "-i", "-", "-c", "copy", "-bsf:v", bits, "-f", "h264", stream=message) if b"\0\0\1\x67" in message else message


def changed():
    return [(number, full(data) if number >= 40 else data) for number, data in whole()()]


def whole(codec="h264", **how):
    return lambda: list(enumerate(encode(codec, 60, scene=moving, **how)))


@pytest.mark.parametrize(
    ("make", "mapping", "more", "reason", "frames", "code"),
    [
        (gap, MAPPING, (), "episode 0: a frame repeats a picture: fewer come than fps, or one is missing", 60, 1),
        (whole(), MAPPING, ("--start-offset", "0.5"), "episode 0: it begins between two key frames", 45, 0),
        (changed, MAPPING, (), "episode 0: the parameters of its video change", 60, 0),
        (whole(), MAPPING.replace("30", "15"), (), "episode 0: a frame skips a picture: more come than fps", 30, 0),
        (whole(), MAPPING.replace("30", "60"), (), "episode 0: a frame repeats a picture: fewer come than fps, or one is missing", 119, 0),
        (whole(), MAPPING + "video: {crf: 20}\n", (), "the mapping sets how video is encoded", 60, 0),
        (whole(), MAPPING, ("-w", "/camera: frame_id == 'camera'"), "conditions leave out messages", 60, 0),
    ],
)
def test_video_that_does_not_fit_is_encoded_anew_with_the_reason(tmp_path, world, ffmpeg, make, mapping, more, reason, frames, code):
    bag = write(tmp_path / "video.mcap", {"/camera": (VIDEO, "h264", make())}, STEP)
    report, files = export(world, [bag], "set", mapping, more, code)
    assert report["features"][0]["video"] == {"copied": 0, "encoded": 1, "first_reason": reason}
    rows, _ = packets(files[0])
    assert report["frames"] == len(rows) == frames and about(world, "set") == ("av1", "yuv420p")


def test_a_camera_has_one_codec_where_only_some_episodes_are_copied(tmp_path, world, ffmpeg):
    messages = encode("h264", 60, scene=moving)
    fits = write(tmp_path / "fits.mcap", {"/camera": (VIDEO, "h264", list(enumerate(messages)))}, STEP)
    half = write(tmp_path / "half.mcap", {"/camera": (VIDEO, "h264", [*numbered(messages, range(40)), *((number + 1, messages[number]) for number in range(40, 60))])}, STEP)
    report, files = export(world, [fits, half, fits], "set")
    reason = "episode 1: a frame repeats a picture: fewer come than fps, or one is missing"
    assert report["features"][0]["video"] == {"copied": 2, "encoded": 1, "first_reason": reason}
    assert about(world, "set") == ("h264", "yuv420p") and len(files) == 3
    expected = np.frombuffer(of_stream("h264", messages), np.uint8)
    assert shown(files[0]) == shown(files[2]) == expected.tobytes()
    encoded = np.frombuffer(shown(files[1]), np.uint8).reshape(61, -1)
    apart = np.abs(encoded[:40].astype(int) - expected.reshape(60, -1)[:40]).mean()
    assert 0 < apart < 12, apart
    # Other parameters than those of the first copy, and pixels that an encoder here would not make.
    other = write(tmp_path / "other.mcap", {"/camera": (VIDEO, "h264", [(number, full(data)) for number, data in enumerate(messages)])}, STEP)
    for name, bags, copied, reason, pixels in (
        ("parameters", [fits, other], 1, "episode 1: its video has other parameters than that of copied episodes", ("h264", "yuv420p")),
        ("range", [other, other], 2, None, ("h264", "yuvj420p")),
        ("mixed", [other, half], 0, 'episode 1: a frame repeats a picture: fewer come than fps, or one is missing; so no episode is copied: h264 of "yuvj420p" is not encoded here', ("av1", "yuv420p")),
    ):
        report, files = export(world, bags, name)
        assert report["features"][0]["video"] == {"copied": copied, "encoded": 2 - copied} | ({"first_reason": reason} if reason else {}), name
        assert about(world, name) == pixels and sum(len(packets(file)[0]) for file in files) == report["frames"], name


def test_two_senders_on_one_topic_are_not_copied(tmp_path, world, ffmpeg):
    bag = write_two(tmp_path / "two.mcap", [encode("h264", 60, scene=moving), encode("h264", 60)], step=STEP)
    report, _ = export(world, [bag], "set", MAPPING.replace("30", "60"))
    assert report["features"][0]["video"] == {"copied": 0, "encoded": 1, "first_reason": "episode 0: its pictures are of several publishers"}


def test_a_picture_that_cannot_be_decoded_ends_the_copy(tmp_path, world, ffmpeg):
    messages = encode("hevc", 60, scene=moving)
    # The head of the slice is that of a picture, the rest is not.
    messages[30] = messages[30][:12] + bytes(byte ^ 0x5A for byte in messages[30][12:])
    bag = write(tmp_path / "video.mcap", {"/camera": (VIDEO, "h265", list(enumerate(messages)))}, STEP)
    report, files = export(world, [bag], "set", code=1)
    video = report["features"][0]["video"]
    assert (video["copied"], video["encoded"]) == (0, 1) and "picture" in video["first_reason"], video
    rows, _ = packets(files[0])
    assert report["features"][0]["failed"] > 0 and len(rows) == report["frames"] == 60
