"""Images of any encoding without loss: byte for byte, decoded by a reader that was written from docs/formats/recoded.md, and by everything that reads images."""

import json
import shutil
import struct
from urllib.parse import quote

import numpy as np
import pytest
import zstandard
from mcap.reader import make_reader
from mcap.writer import Writer
from PIL import Image
from served import ask_bytes as ask
from served import served as served_at
from served import until
from test_play_video import md5
from test_small import START, STEP, depth, head, plain, read, recoded, scene, write
from test_video import cdr

IMAGE, FILE = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"
COUNT = 4
# What decides nothing by its value: NaNs with payloads, infinities, zeros of both signs, the smallest numbers.
PATTERNS = [0x7FC00001, 0xFFC0DEAD, 0x7F800001, 0x7F800000, 0xFF800000, 0x80000000, 0, 1, 0x80000001, 0x7F7FFFFF, 0xFFFFFFFF]


def metres(number):
    """Depth of a simulator or a stereo camera, with holes and what else a float may be."""
    found = (depth(number, 65, 49) / 1000).astype("<f4") + np.random.default_rng(number).normal(scale=1e-3, size=(49, 65)).astype("<f4")
    found[found < 0.1] = np.nan
    found.view("<u4")[7, 3 : 3 + len(PATTERNS)] = PATTERNS
    return found


def deep(number, channels):
    picture = scene(number, 64, 48).astype("<u2") * 257 + np.random.default_rng(number).integers(0, 256, (48, 64, 3), np.uint16)
    return np.dstack([picture, picture[:, :, 0]])[:, :, :channels].squeeze()


def flat(number, width, rows=48):
    """Bytes of images whose colours are not beside each other."""
    return np.ascontiguousarray(scene(number, width, rows)[:, :, 0])


PICTURES = {
    "32FC1": metres,
    "rgb16": lambda n: deep(n, 3),
    "bgr16": lambda n: deep(n, 3),
    "rgba16": lambda n: deep(n, 4),
    "bayer_rggb16": lambda n: deep(n, 1),
    "bayer_gbrg16": lambda n: deep(n, 1),
    "16SC1": lambda n: (depth(n) - 2000).astype("<i2"),
    "32SC2": lambda n: np.dstack([depth(n), -depth(n).astype("<i4")]).astype("<i4"),
    "64FC3": lambda n: scene(n, 33, 25).astype("<f8") / 3,
    "yuv422": lambda n: flat(n, 128).reshape(48, 64, 2),
    "yuv422_yuy2": lambda n: flat(n, 128).reshape(48, 64, 2),
    "rgba8": lambda n: np.dstack([scene(n, 64, 48), np.full((48, 64), 200 + n, np.uint8)]),
    "8UC2": lambda n: scene(n, 64, 48)[:, :, :2].copy(),
}
PLANES = {"nv12": 72, "nv21": 72, "nv24": 144}


def padded(number, encoding, pixels, more=5, is_bigendian=0):
    """Rows with bytes between them that mean nothing, and some after the last one."""
    random = np.random.default_rng(number)
    rows = np.ascontiguousarray(pixels).view("u1").reshape(len(pixels), -1)
    rows = np.hstack([rows, random.integers(0, 256, (len(rows), more), np.uint8)])
    return image(number, encoding, pixels.shape[:2], rows.shape[1], rows.tobytes() + b"end", is_bigendian)


def image(number, encoding, size, step, data, is_bigendian=0):
    return cdr(*head(number), ("I", size[0]), ("I", size[1]), ("s", encoding), ("B", is_bigendian), ("I", step), ("b", data))


def topics():
    """By topic its messages: each encoding, in both orders of bytes, and with padding."""
    found = {}
    for encoding, picture in PICTURES.items():
        # A token of a name does not begin with a number.
        name = f"e{encoding.lower()}"
        found[f"/{name}"] = [plain(n, encoding, picture(n)) for n in range(COUNT)]
        found[f"/{name}/padded"] = [padded(n, encoding, picture(n)) for n in range(COUNT)]
        if picture(0).itemsize > 1:
            found[f"/{name}/big"] = [plain(n, encoding, picture(n).byteswap(), is_bigendian=1) for n in range(COUNT)]
    for encoding, rows in PLANES.items():
        found[f"/{encoding}"] = [image(n, encoding, (48, 64), 64, flat(n, 64, rows).tobytes()) for n in range(COUNT)]
    found["/depth/padded"] = [padded(n, "16UC1", depth(n)) for n in range(COUNT)]
    found["/rgb/padded"] = [padded(n, "rgb8", scene(n, 65, 49)) for n in range(COUNT)]
    # Depth in both orders on one topic; the other one is not the account's.
    found["/mono16"] = [plain(n, "mono16", depth(n) if n % 2 else depth(n).byteswap(), is_bigendian=1 - n % 2) for n in range(COUNT)]
    # An image among them that is none: its rows lie. It comes back as it is.
    found["/lying"] = [plain(n, "32FC1", metres(n), step=9999 if n == 2 else None) for n in range(COUNT)]
    return found


def by_the_document(msg):
    """Encoding, size, step, order of bytes and data of an image, as docs/formats/recoded.md describes them."""
    encoding, _, name = msg.format.partition("; ")
    assert name == "holdall planes 1"
    content = zstandard.ZstdDecompressor().decompress(bytes(msg.data))
    width, height, step, is_bigendian, size, channels = struct.unpack_from("<IIIBBH", content)
    planes = np.frombuffer(content, np.uint8, offset=16)
    count, kind = len(planes) // size, np.dtype(f"<u{size}")
    folded = np.ascontiguousarray(planes[: size * count].reshape(size, count).T).view(kind).ravel()
    differences = (folded >> kind.type(1)) ^ (kind.type(0) - (folded & kind.type(1)))
    whole = np.concatenate([differences, np.zeros(-count % channels, kind)]).reshape(-1, channels)
    numbers = np.cumsum(whole, axis=0, dtype=kind).ravel()[:count]
    data = numbers.astype(kind.newbyteorder(">") if is_bigendian else kind).tobytes() + planes[size * count :].tobytes()
    return encoding, (height, width), step, is_bigendian, data


@pytest.fixture
def small(tmp_path, world):
    """A bag, and the same without loss; no program is needed for it."""
    world.env["PATH"] = str(tmp_path)
    bag = write(tmp_path / "camera.mcap", {topic: (IMAGE, list(enumerate(messages))) for topic, messages in topics().items()})
    done = world.run("compress", bag, "-o", world.folder / "small", "--video", ".*=lossless")
    assert done.returncode == 0 and "kept" not in done.stderr, done.stderr
    return bag, world.folder / "small"


def test_images_of_any_encoding_come_back_byte_for_byte(world, small):
    bag, folder = small
    before, after = read(bag), read(folder)
    for topic, about in recoded(world, folder).items():
        assert (about["codec"], about["exactness"], about["messages"], about["kept"]) == ("planes", "lossless", COUNT, 0), about
        assert about["bytes_after"] < about["bytes_before"], about
    assert set(after) == set(before)
    kinds = {}
    for topic, messages in after.items():
        for was, one in zip(before[topic], messages, strict=True):
            assert one[0] == FILE and one[1:3] == was[1:3] and one[4].header.frame_id == was[4].header.frame_id
            kinds.setdefault(one[4].format, []).append((one[4], was[4]))
    # Depth of which RVL has all is RVL.
    assert len(kinds.pop("mono16; compressedDepth rvl")) == COUNT // 2
    for pairs in kinds.values():
        for one, was in pairs:
            assert by_the_document(one) == (was.encoding, (was.height, was.width), was.step, was.is_bigendian, bytes(was.data)), one.format
    done = world.run("decompress", folder, "-o", world.folder / "large")
    assert done.returncode == 0, done.stderr
    large = read(world.folder / "large")
    for topic, messages in before.items():
        assert [one[:4] for one in large[topic]] == [one[:4] for one in messages], topic
    same = world.run("diff", bag, folder, "--decoded", "--json")
    assert same.returncode == 0, same.stdout
    # The originals go: every message was compared.
    done = world.run("compress", bag, "-o", world.folder / "only", "--video", ".*=lossless", "--delete-original-after-verify")
    assert done.returncode == 0 and not bag.exists(), done.stderr


def test_what_reads_images_reads_planes(world, small):
    bag, folder = small
    shown = [f"-t={topic}" for topic in topics() if not topic.startswith(("/e16s", "/e32s", "/e64f", "/e8uc2", "/lying"))]
    for name, source in (("before", bag), ("after", folder)):
        done = world.run("export", source, "-f", "png", "-o", world.folder / name, *shown)
        assert done.returncode == 0, done.stderr
    files = sorted(path.relative_to(world.folder / "before") for path in (world.folder / "before").rglob("*.png"))
    assert len(files) == COUNT * len(shown)
    for file in files:
        one, other = (np.asarray(Image.open(world.folder / name / file)) for name in ("before", "after"))
        assert one.dtype == other.dtype and np.array_equal(one, other), file
    # What no PNG can hold is refused in the words of the image itself.
    refused = [world.run("export", source, "-f", "png", "-o", world.folder / f"none{n}", "-t", "/e16sc1").stderr for n, source in enumerate(small)]
    assert all("signed pixels" in reason for reason in refused), refused
    web = world.holdall("web", world.folder, "127.0.0.1:0", "--foxglove", "127.0.0.1:0")
    address = served_at(web, "bags: ")
    until(lambda: json.loads(ask(address, "GET", "/api/bags")[1])["bags"], "the bag in the list")
    for topic in ("/e32fc1", "/ergb16/big", "/nv12", "/rgb/padded"):
        code, content = ask(address, "GET", f"/api/picture?bag=small&topic={quote(topic, safe='')}&at={START}")
        assert code == 200 and content[:3] in (b"\xff\xd8\xff", b"\x89PN"), (topic, content[:200])
    assert web.stop()[0] == 0


def test_planes_are_played_bit_for_bit(world, small):
    wanted = {topic: messages for topic, messages in topics().items() if topic.split("/")[1] in ("e32fc1", "ergb16", "nv12", "mono16")}
    listener = world.listener(*({"topic": topic, "type": IMAGE, "qos": {"depth": 100}} for topic in wanted), expect=dict.fromkeys(wanted, COUNT))
    listener.wait_for("ready")
    wait = ["--wait-for-subscribers", *(f"{topic}=1" for topic in wanted), "--wait-for-all-acked", "10000"]
    played = world.run("play", small[1], "--decode-video", "--topics", *wanted, *wait)
    assert played.returncode == 0, played.stderr
    received = listener.done()["received"]
    for topic, messages in wanted.items():
        assert (received[topic]["count"], received[topic]["md5"]) == (COUNT, md5(messages)), topic


def copied(source, target, change):
    """The bag with its account, and the data of its images changed."""
    (path,) = source.glob("*.mcap")
    target.mkdir()
    shutil.copy(source / "metadata.yaml", target)
    with open(path, "rb") as file, open(target / path.name, "wb") as out:
        reader, writer, made = make_reader(file), Writer(out), {}
        writer.start("ros2", "test")
        for schema, channel, message in reader.iter_messages():
            if channel.id not in made:
                made[channel.id] = writer.register_channel(channel.topic, "cdr", writer.register_schema(schema.name, schema.encoding, schema.data))
            # The data is the last field; its length is before it.
            begin = message.data.index(zstandard.FRAME_HEADER)
            data = change((message.log_time - START) // STEP, message.data[begin:])
            payload = message.data[: begin - 4] + struct.pack("<I", len(data)) + data
            writer.add_message(made[channel.id], message.log_time, payload, message.publish_time)
        writer.finish()
    return target


def flipped(data):
    return data[:-40] + bytes([data[-40] ^ 0x55]) + data[-39:]


def huge(_):
    """Some kilobytes that claim to be a gigabyte."""
    packer = zstandard.ZstdCompressor().compressobj(size=1 << 30)
    return b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(1 << 10)), packer.flush()])


def headless(_):
    return zstandard.ZstdCompressor().compress(bytes(13) + b"\x03\x01\0" + bytes(100))


def cut(data):
    return data[:-9]


def empty(_):
    return zstandard.ZstdCompressor().compress(b"")


@pytest.mark.parametrize("damage", [cut, flipped, huge, headless, empty])
def test_damaged_planes_are_refused_in_one_sentence(tmp_path, world, damage):
    bag = write(tmp_path / "camera.mcap", {"/e32fc1": (IMAGE, [(n, plain(n, "32FC1", metres(n))) for n in range(COUNT)])})
    done = world.run("compress", bag, "-o", world.folder / "small", "--video", ".*=lossless")
    assert done.returncode == 0, done.stderr
    broken = copied(world.folder / "small", world.folder / "broken", lambda number, data: damage(data) if number == 1 else data)
    done = world.run("export", broken, "-f", "png", "-o", world.folder / "png")
    assert done.returncode == 1 and done.stderr.count("an image of planes is cut off or damaged: ") == 1, done.stderr
    assert len(list((world.folder / "png").rglob("*.png"))) == COUNT - 1
    # The message stays in the form that it has, and is counted.
    done = world.run("decompress", broken, "-o", world.folder / "large")
    assert "an image of planes is cut off or damaged" in done.stderr and done.stderr.count("\n") <= 6, done.stderr
    stayed = [one[0] for one in read(world.folder / "large")["/e32fc1"]]
    assert sorted(stayed) == [FILE, *[IMAGE] * (COUNT - 1)]
