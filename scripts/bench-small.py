"""What `holdall compress --video` and `--cloud` make of a moving synthetic world: ratio, processor time, likeness. Prints a table for docs/tools.md.

    python scripts/bench-small.py target/release/holdall --seconds 10
"""

import argparse
import json
import os
import resource
import subprocess
import tempfile
from pathlib import Path

import imageio_ffmpeg
import numpy as np
from mcap.writer import Writer

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
    out = Cdr().head(nanos).put("<u4", 1).put("<u4", len(points)).put("<u4", 6)
    for name, (kind, offset) in points.dtype.fields.items():
        number = {"<f4": 7, "<u2": 4}[kind.str]
        out.text({"i": "intensity", "r": "ring", "t": "time"}.get(name, name)).put("<u4", offset).put("u1", number).put("<u4", 1)
    return out.put("u1", 0).put("<u4", 22).put("<u4", points.nbytes).data(points.tobytes()).put("u1", 1).bytes()


def scenes(seconds):
    """By name: type, rate, a message at a time."""
    large, small = World(1920, 1080), World(640, 480)
    random = np.random.default_rng(3)
    return {
        "rgb8 1920 x 1080": ("sensor_msgs/msg/Image", 30, min(seconds, 4), lambda t, at: image(at, "rgb8", large.picture(t))),
        "rgb8 640 x 480": ("sensor_msgs/msg/Image", 30, seconds, lambda t, at: image(at, "rgb8", small.picture(t))),
        "mono8 640 x 480": ("sensor_msgs/msg/Image", 30, seconds, lambda t, at: image(at, "mono8", small.picture(t)[:, :, 1].copy())),
        "16UC1 640 x 480": ("sensor_msgs/msg/Image", 30, seconds, lambda t, at: image(at, "16UC1", small.depth(t))),
        "lidar 57 600 points": ("sensor_msgs/msg/PointCloud2", 10, seconds, lambda t, at: cloud_message(at, cloud(random, t))),
    }


CASES = {
    "rgb8": ["--video=h264", "--video=h264,quality=18", "--video=h264,quality=14", "--video=h265", "--video=lossless"],
    "mono8": ["--video=h264", "--video=lossless"],
    "16UC1": ["--video=lossless"],
    "lidar": ["--cloud=cloudini,resolution=0.001", "--cloud=lossless"],
}
# `ffmpeg` on the pixels alone: their format, and the forms with their arguments.
ALONE = {
    "rgb8": (
        "rgb24",
        {
            "h264": ["-c:v", "libx264", "-preset", "veryfast", "-crf", "23", "-pix_fmt", "yuv420p", "-f", "h264"],
            "lossless": ["-c:v", "libx264rgb", "-preset", "veryfast", "-qp", "0", "-f", "h264"],
            "ffv1": ["-c:v", "ffv1", "-level", "3", "-f", "nut"],
            "png": ["-c:v", "png", "-f", "image2pipe"],
        },
    ),
    "16UC1": ("gray16le", {"ffv1": ["-c:v", "ffv1", "-level", "3", "-f", "nut"], "png": ["-c:v", "png", "-f", "image2pipe"]}),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("holdall")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--only", default="")
    parser.add_argument("--flag", action="append")
    arguments = parser.parse_args()
    print("| scene | form | times smaller | with zstd | CPU s / GB | back, CPU s / GB | PSNR dB (worst) | SSIM (worst) |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "ffmpeg").symlink_to(imageio_ffmpeg.get_ffmpeg_exe())
        env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}

        def timed(*command):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            said = subprocess.run([str(word) for word in command], env=env, capture_output=True, check=True).stdout
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return said, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        def run(*words):
            said, spent = timed(arguments.holdall, *words, "--json")
            return json.loads(said), spent

        for scene, (kind, rate, seconds, message) in scenes(arguments.seconds).items():
            if arguments.only not in scene:
                continue
            pixel_format, alone = ALONE.get(scene.split()[0], ("", {}))
            with open(folder / "bag.mcap", "wb") as stream, open(folder / "raw", "wb") as raw:
                writer = Writer(stream, compression=0)
                writer.start("ros2")
                channel = writer.register_channel("/topic", "cdr", writer.register_schema(kind, "ros2msg", SCHEMAS[kind].encode()))
                for number in range(rate * seconds):
                    at = START + number * 10**9 // rate
                    payload = message(number / rate, at)
                    writer.add_message(channel, at, payload, at)
                    if alone:
                        _, width, _, height = scene.split()
                        raw.write(payload[-int(width) * int(height) * {"rgb24": 3, "gray16le": 2}[pixel_format] :])
                writer.finish()
            _, plain = run("compress", folder / "bag.mcap", "-o", folder / "zstd")
            zstd = sum(path.stat().st_size for path in (folder / "zstd").glob("*.mcap"))
            total = (folder / "bag.mcap").stat().st_size
            print(f"| {scene} | zstd alone | {total / zstd:.1f} | {total / zstd:.1f} | {plain / total * 1e9:.1f} | | | |")
            for case in arguments.flag or CASES[scene.split()[0]]:
                flag, _, how = case.partition("=")
                written, spent = run("compress", folder / "bag.mcap", "-o", folder / "small", flag, f"/topic={how}")
                _, back = run("decompress", folder / "small", "-o", folder / "large")
                (one,) = written["recoded"]
                assert one["kept"] == 0, one
                like = one.get("likeness")
                shown = f"{like['psnr_sum'] / like['samples']:.1f} ({like['psnr_min']:.1f}) | {like['ssim_sum'] / like['samples']:.3f} ({like['ssim_min']:.3f})" if like else "|"
                print(
                    f"| {scene} | {how} | {one['bytes_before'] / one['bytes_after']:.2f} | {total / written['bytes']:.1f} | {spent / total * 1e9:.1f} | {back / total * 1e9:.1f} | {shown} |",
                    flush=True,
                )
                subprocess.run(["rm", "-r", folder / "small", folder / "large"], check=True)
            subprocess.run(["rm", "-r", folder / "zstd"], check=True)
            for form, how in alone.items():
                source = ["-f", "rawvideo", "-pix_fmt", pixel_format, "-video_size", f"{width}x{height}", "-framerate", rate, "-i", folder / "raw"]
                made, spent = timed(folder / "ffmpeg", "-loglevel", "error", *source, *how, "-")
                size = (folder / "raw").stat().st_size
                print(f"| {scene} | ffmpeg {form} | {size / len(made):.2f} | | {spent / size * 1e9:.1f} | | | |", flush=True)


if __name__ == "__main__":
    main()
