"""Images of each encoding and clouds as video, columns and Cloudini, and back: each frame equals its source, of which ffmpeg, pureini and numpy are the judges."""

import collections
import io
import json
import os
import subprocess

import numpy as np
import pureini
import pytest
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer
from PIL import Image
from test_small import CLOUD, FFMPEG, PACKED, POINT, SCHEMAS, START, cloud, head, plain, psnr, read, recoded, scan
from test_video import cdr

# The documentation has the figures of a run with `HOLDALL_FRAMES=200000`.
FRAMES = int(os.environ.get("HOLDALL_FRAMES", "400"))
# Frames of a turn through all encodings, and topics of a bag: what is on the disk at a time.
TURN, TOPICS = 4000, 10
IMAGE, FILE = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"
LOSSY = ["h264", "h265", "av1", "vp9"]
# Codecs that an encoding can have; in each turn it has the next one. Still images are encoded alone or stay, in any case bit for bit.
WAYS = {
    **dict.fromkeys(["mono8", "8UC1", "rgb8", "bgr8", "8UC3", "rgba8", "bgra8", "8UC4"], ["lossless", *LOSSY]),
    **dict.fromkeys(["bayer_rggb8", "bayer_bggr8", "bayer_gbrg8", "bayer_grbg8", "mono16", "16UC1"], ["lossless"]),
    **dict.fromkeys(["yuv422", "uyvy", "yuv422_yuy2", "yuyv", "nv12", "nv21", "nv24"], ["still", *LOSSY]),
    **dict.fromkeys(["jpeg", "png"], LOSSY),
    **dict.fromkeys(["bayer_rggb16", "bayer_bggr16", "bayer_gbrg16", "bayer_grbg16", "rgb16", "bgr16", "16UC3", "rgba16", "bgra16", "16UC4", "32FC1", "8SC1", "64FC1"], ["still"]),
    "cloud": ["columns", "cloudini"],
}
# Others are a fifth of the frames of an encoding without loss.
SHARES = {"lossless": 5, "still": 1}
# No picture of a video is less like its image; what the program says of all of them is compared with what numpy says, too.
PSNR_LEAST = 24
BLACK, WHITE = 60, 180
RESOLUTION = 0.001


class Source:
    """A topic: what is sent as its n-th message, and what that shows."""

    def __init__(self, place, turn, encoding, codec):
        self.encoding, self.codec, self.seed = encoding, codec, (turn, place)
        self.topic = f"/{encoding}"
        random = np.random.default_rng(self.seed)
        self.kind = {"jpeg": FILE, "png": FILE, "cloud": CLOUD}.get(encoding, IMAGE)
        # Lossy video has even sizes; the encoders of AV1 and H.265 want some pixels.
        self.size = tuple(int(2 * random.integers(32, most // 2 + 1) if codec in LOSSY or codec == "still" else random.integers(1, most + 1)) for most in (120, 160))
        self.contents = random.choice(["moving", "night", "bars", "flat"] + ["noise"] * (codec not in LOSSY))
        coarse = random.integers(30, 220, (6, 9, 3)).astype(np.uint8)
        self.ground = np.asarray(Image.fromarray(coarse).resize((2 * self.size[1], self.size[0]), Image.Resampling.BICUBIC))
        self.is_big = int(random.integers(0, 2)) if "16" in encoding else 0

    def colours(self, number):
        """What the camera sees."""
        height, width = self.size
        random = np.random.default_rng((*self.seed, number))
        if self.contents == "noise":
            return random.integers(0, 256, (height, width, 3), np.uint8)
        seen = np.roll(self.ground, -2 * number, 1)[:, :width].astype(np.int16)
        if self.contents == "night":
            seen = seen // 6
        elif self.contents == "bars":
            seen = np.broadcast_to((80 + 80 * ((np.arange(width) + number) // 6 % 2))[None, :, None], seen.shape)
        elif self.contents == "flat":
            seen = np.full_like(seen, 20 + 3 * number % 200)
        seen = seen + random.integers(-2, 3, seen.shape)
        if self.codec in LOSSY:
            # Squares of 8 pixels: also one that looks like its neighbour has its own number.
            seen[:8, :64] = np.repeat(BLACK + (WHITE - BLACK) * (number >> np.arange(8) & 1), 8)[None, :, None]
        return seen.clip(0, 255).astype(np.uint8)

    def brightness_and_differences(self, number):
        """Y, U and V in the limited range of BT.601, with fewer differences where the encoding has fewer."""
        colours = self.colours(number).astype(int)
        rows, columns = {"nv12": (2, 2), "nv21": (2, 2), "nv24": (1, 1)}.get(self.encoding, (1, 2))
        blue, red = ((128 + (colours[::rows, ::columns, channel] - 128) // 8) for channel in (2, 0))
        return colours[:, :, 1].clip(16, 235), blue, red, (rows, columns)

    def points(self, number):
        return scan(1000 * self.seed[0] + number, 100 + number)

    def shown(self, number):
        """Red, green and blue, or the one channel, as a decoder of the message has them."""
        if self.encoding in ("mono8", "8UC1") or self.encoding.startswith("bayer"):
            return self.colours(number)[:, :, 1]
        if self.encoding == "jpeg":
            return np.asarray(Image.open(io.BytesIO(self.file(number))))
        if not self.encoding.startswith(("nv", "yu", "uy")):
            return self.colours(number)
        y, blue, red, (rows, columns) = self.brightness_and_differences(number)
        y, blue, red = 1.164383 * (y - 16), *(one.repeat(rows, 0).repeat(columns, 1) - 128.0 for one in (blue, red))
        colours = np.dstack([y + 1.596027 * red, y - 0.391762 * blue - 0.812968 * red, y + 2.017232 * blue])
        return colours.round().clip(0, 255).astype(np.uint8)

    def file(self, number):
        file = io.BytesIO()
        Image.fromarray(self.colours(number)).save(file, self.encoding, quality=92)
        return file.getvalue()

    def samples(self, number):
        """The pixels of a plain image, row by row."""
        colours, encoding, order = self.colours(number), self.encoding.lower(), ">" if self.is_big else "<"
        grey, alpha = colours[:, :, 1], np.full(self.size, 255, np.uint8)
        if encoding.startswith(("nv", "yu", "uy")):
            y, blue, red, _ = (one.astype(np.uint8) if isinstance(one, np.ndarray) else one for one in self.brightness_and_differences(number))
            if encoding.startswith("nv"):
                pairs = np.dstack([red, blue] if encoding == "nv21" else [blue, red])
                return np.concatenate([y, pairs.reshape(-1, self.size[1])])
            four = [blue, y[:, ::2], red, y[:, 1::2]] if encoding in ("yuv422", "uyvy") else [y[:, ::2], blue, y[:, 1::2], red]
            return np.dstack(four).reshape(*self.size, 2)
        if encoding.startswith(("rgba", "bgra", "8uc4", "16uc4")):
            found = np.dstack([colours if encoding[0] == "r" else colours[:, :, ::-1], alpha])
        elif encoding.startswith(("rgb", "bgr", "8uc3", "16uc3")):
            found = colours if encoding[0] == "r" else colours[:, :, ::-1]
        else:
            found = grey
        if "16" in encoding:
            found = (found.astype(np.uint16) * 250 + number).astype(order + "u2")
            return np.where(grey % 7 == 0, 0, found).astype(found.dtype) if found.ndim == 2 else found
        return found.astype({"32fc1": "<f4", "64fc1": "<f8", "8sc1": "|i1"}.get(encoding, "|u1"))

    def message(self, number):
        if self.kind == CLOUD:
            return cloud(number, self.points(number))
        if self.kind == FILE:
            return cdr(*head(number), ("s", self.encoding), ("b", self.file(number)))
        samples = self.samples(number)
        height, width = self.size
        return plain(number, self.encoding, samples, step=samples.nbytes // len(samples), height=height, is_bigendian=self.is_big)

    def rule(self):
        if self.kind == CLOUD:
            return ["--cloud", f"{self.topic}={'lossless' if self.codec == 'columns' else f'cloudini,resolution={RESOLUTION}'}"]
        how = f"{self.codec},quality={20 if self.codec in ('h264', 'h265') else 28}" if self.codec in LOSSY else "lossless"
        return ["--video", f"{self.topic}={how}"]


def pictures_of(source, messages):
    """What ffmpeg makes of the stream."""
    data = [bytes(one[4].data) for one in messages]
    height, width = source.size
    if source.codec in ("av1", "vp9"):
        start = b"DKIF" + np.array([0, 32], "<u2").tobytes() + {"av1": b"AV01", "vp9": b"VP90"}[source.codec]
        start += np.array([width, height], "<u2").tobytes() + np.array([25, 1, len(data), 0], "<u4").tobytes()
        data = [start, *(np.array([len(one), number, 0], "<u4").tobytes() + one for number, one in enumerate(data))]
    form = {"h264": "h264", "h265": "hevc", "lossless": "h264"}.get(source.codec, "ivf")
    channels = 1 if source.codec == "lossless" and source.shown(0).ndim == 2 else 3
    command = [FFMPEG, "-loglevel", "error", "-threads", "1", "-f", form, "-i", "-", "-fps_mode", "passthrough", "-f", "rawvideo"]
    done = subprocess.run([*command, "-pix_fmt", {1: "gray", 3: "rgb24"}[channels], "-"], input=b"".join(data), capture_output=True, check=True)
    return np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, channels)


def judge_video(source, messages, stated):
    seen = pictures_of(source, messages)
    assert len(seen) == len(messages), (source.topic, len(seen))
    if source.codec == "lossless":
        assert all(np.array_equal(picture.squeeze(-1) if picture.shape[-1] == 1 else picture, source.shown(n)) for n, picture in enumerate(seen)), source.topic
        return
    ratios = []
    for number, picture in enumerate(seen):
        squares = picture[2:6, :64, 1].reshape(4, 8, 8)[:, :, 2:6].mean((0, 2)) > (BLACK + WHITE) / 2
        assert np.packbits(squares, bitorder="little")[0] == number % 256, (source.topic, source.codec, number)
        shown = source.shown(number)
        ratios.append(psnr(picture[:, :, 1] if shown.ndim == 2 else picture, shown))
    # Files and other models of colour are decoded by two programs, which round in two ways.
    apart = 1e-6 if source.kind == IMAGE and not source.encoding.startswith(("nv", "yu", "uy")) or source.encoding == "png" else 0.5
    assert stated["pairs"] == len(seen) and stated["psnr"][0] == pytest.approx(min(ratios), abs=apart), (source.topic, source.codec, stated, min(ratios))
    assert min(ratios) >= PSNR_LEAST, (source.topic, source.codec, source.contents, source.size, min(ratios))


def judge_clouds(source, messages, about, stated):
    worst = 0
    for number, (*_, message) in enumerate(messages):
        points, found = source.points(number), np.frombuffer(pureini.PointcloudDecoder().decode(bytes(message.compressed_data))[0], POINT)
        for name in POINT.names:
            is_rounded = name in "xyz"
            assert np.array_equal(np.isnan(found[name]), np.isnan(points[name])) and (is_rounded or np.array_equal(found[name], points[name]))
            worst = max(worst, np.nanmax(np.abs(found[name].astype(float) - points[name]))) if is_rounded else worst
    assert about["error_bound"] == pytest.approx(RESOLUTION) and worst <= about["error_bound"], (worst, about)
    assert worst == pytest.approx(about["error_max"], abs=1e-9) == pytest.approx(stated["error_max"], abs=1e-9), (worst, about, stated)


def compared(world, bag, small):
    """By topic, what the program itself says of all frames."""
    done = world.run("diff", bag, small, "--decoded", "--json", "--tolerance", f"psnr={PSNR_LEAST}", "--tolerance", str(RESOLUTION), timeout=600)
    found = {one["topic"]: one for one in json.loads(done.stdout)["decoded"]}
    assert done.returncode == 0, [one for one in found.values() if one["beyond"] or one["not_compared"]]
    return found


def judge_smaller(small, counts, about, stated):
    """The streams and clouds as they are in the bag."""
    found = read(small)
    for source, count in counts.items():
        messages = found[source.topic]
        one = about[source.topic]
        assert (one["messages"], one["kept"]) == (count, 0), (source.size, one)
        if source.codec == "still":
            assert len(messages) == count and len({message[0] for message in messages}) == 1
        elif source.kind == CLOUD:
            assert {message[0] for message in messages} == {PACKED}
            if source.codec == "cloudini":
                judge_clouds(source, messages, one, stated[source.topic])
        elif one["codec"] != "rvl":
            judge_video(source, messages, stated[source.topic])


def judge_restored(large, counts, step):
    """What comes back bit for bit."""
    by_topic, seen = {source.topic: source for source in counts}, collections.Counter()
    (path,) = large.glob("*.mcap")
    with open(path, "rb") as stream:
        for schema, channel, message in make_reader(stream).iter_messages():
            source = by_topic[channel.topic]
            number, rest = divmod(message.log_time - START, step)
            assert rest == 0 and number == seen[source] and schema.name == source.kind
            seen[source] += 1
            if source.codec in ("lossless", "columns", "still"):
                assert message.data == source.message(number), (source.topic, source.contents, number)
    assert seen == counts


def write(path, counts, step):
    with open(path, "wb") as stream:
        writer = Writer(stream, compression=CompressionType.NONE)
        writer.start("ros2", "test")
        schemas = {kind: writer.register_schema(kind, "ros2msg", SCHEMAS[kind].encode()) for kind in (IMAGE, FILE, CLOUD)}
        channels = {source: writer.register_channel(source.topic, "cdr", schemas[source.kind]) for source in counts}
        for number in range(max(counts.values())):
            for source, channel in channels.items():
                if number < counts[source]:
                    time = START + number * step
                    writer.add_message(channel, time, source.message(number), time - 1000)
        writer.finish()
    return path


def turns():
    """For each bag its topics, with the number of their messages."""
    count = -(-FRAMES // TURN)
    for turn in range(count):
        sources = [Source(place, turn, encoding, ways[(turn + place) % len(ways)]) for place, (encoding, ways) in enumerate(WAYS.items())]
        shares = {source: SHARES.get(source.codec, 1) for source in sources}
        each = FRAMES / count / sum(shares.values())
        # Topics of one codec are apart.
        apart = [source for first in range(TOPICS) for source in sources[first::TOPICS]]
        for first in range(0, len(apart), TOPICS):
            yield turn, {source: max(3, round(each * shares[source])) for source in apart[first : first + TOPICS]}


def test_each_frame_of_each_encoding_equals_its_source_within_what_the_bag_states(tmp_path, world, ffmpeg):
    shown = collections.Counter()
    for number, (turn, counts) in enumerate(turns()):
        step = 10**9 // [100, 30, 10, 250][number % 4]
        carrier = ["foxglove", "ffmpeg_image_transport", "compressed_image"][turn % 3]
        bag, small, large = tmp_path / "frames.mcap", world.folder / "small", world.folder / "large"
        write(bag, counts, step)
        rules = [word for source in counts for word in source.rule()]
        done = world.run("compress", bag, "-o", small, *rules, "--as", carrier, timeout=600)
        assert done.returncode == 0, (number, done.stderr)
        judge_smaller(small, counts, recoded(world, small), compared(world, bag, small))
        bag.unlink()
        done = world.run("decompress", small, "-o", large, timeout=600)
        assert done.returncode == 0, (number, done.stderr)
        judge_restored(large, counts, step)
        for folder in (small, large):
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
        shown.update({(source.encoding, source.codec): count for source, count in counts.items()})
        print(f"bag {number}: {sum(shown.values())} frames", flush=True)
    for (encoding, codec), count in sorted(shown.items()):
        print(f"{encoding:13} {codec:9} {count}")
    assert sum(shown.values()) >= 0.95 * FRAMES
