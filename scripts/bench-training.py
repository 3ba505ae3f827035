"""How long `holdall export -f lerobot` and `-f webdataset` take, for numbers and for images, beside a plain read of the same bag in the same run.

    scripts/bench-training.py --holdall target/release/holdall [--bytes 500e6] [--rounds 3]

Bags: joints of 1 KiB at 1000 Hz; a camera of 640 x 480 rgb8 at 30 Hz with joints at 200 Hz. Frames at 30 Hz. Output: JSON, seconds for each GB of the bag.
"""

import argparse
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mcap.writer import CompressionType, Writer

START = 1_700_000_000_000_000_000
HEADER = "std_msgs/Header header\n"
SEPARATOR = "\n" + "=" * 80 + "\n"
HEADER_TYPE = f"{SEPARATOR}MSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n{SEPARATOR}MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
IMAGE = HEADER + "uint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\nuint8[] data" + HEADER_TYPE
# Stamp, and an empty frame.
HEAD = b"\0\1\0\0" + struct.pack("<iII", 0, 0, 1) + b"\0"


def pixels(noise):
    """Smooth colours with a little noise: as compressible as a camera's."""
    rows = [bytes((row // 3 + column // 5 + channel * 40) & 255 for column in range(640) for channel in range(3)) for row in range(480)]
    plain = bytearray(b"".join(rows))
    for place in range(0, len(plain), 7):
        plain[place] = (plain[place] + noise.randrange(6)) & 255
    return bytes(plain)


def image_message(data):
    head = HEAD + b"\0" * 3 + struct.pack("<III", 480, 640, 5) + b"rgb8\0" + b"\0"
    head += b"\0" * (-(len(head) - 4) % 4) + struct.pack("<II", 1920, len(data))
    return head + data


def write(path, size, has_camera):
    noise = random.Random(3)
    images = [image_message(pixels(noise)) for _ in range(4)] if has_camera else []
    with open(path, "wb") as file:
        writer = Writer(file, chunk_size=4 << 20, compression=CompressionType.NONE)
        writer.start("ros2")
        joints = writer.register_schema("std_msgs/msg/Float64MultiArray", "ros2msg", b"float64[] data")
        joints = writer.register_channel("/joints", "cdr", joints)
        camera = writer.register_schema("sensor_msgs/msg/Image", "ros2msg", IMAGE.encode())
        camera = writer.register_channel("/camera", "cdr", camera)
        period = 5_000_000 if has_camera else 1_000_000
        number, next_image = 0, 0
        while file.tell() < size:
            at = START + number * period
            if has_camera and number * period >= next_image:
                writer.add_message(camera, at, images[number % 4], at)
                next_image += 33_333_333
            writer.add_message(joints, at, b"\0\1\0\0" + struct.pack("<I4x128d", 128, *[number * 0.001 + place for place in range(128)]), at)
            number += 1
        writer.finish()


MAPPING = "fps: 30\nfeatures:\n  observation.state: {topic: /joints, fields: ['data[0:14]']}\n  action: {topic: /joints, fields: ['data[14:28]']}\n"


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--holdall", required=True)
    options.add_argument("--bytes", type=float, default=500e6)
    options.add_argument("--rounds", type=int, default=3)
    options = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-training-"))
    found = {"load": os.getloadavg()[0], "cores": os.cpu_count(), "bytes": options.bytes, "rounds": []}
    try:
        for kind in ("numbers", "camera"):
            write(folder / f"{kind}.mcap", int(options.bytes), kind == "camera")
            more = "  observation.images.top: {topic: /camera}\n" if kind == "camera" else ""
            (folder / f"{kind}.yaml").write_text(MAPPING + more)
        for _ in range(options.rounds):
            one = {}
            for kind in ("numbers", "camera"):
                bag = folder / f"{kind}.mcap"
                gigabytes = bag.stat().st_size / 1e9
                for name, words in {
                    "read": ["check", bag],
                    "lerobot": ["export", bag, "-f", "lerobot", "--mapping", folder / f"{kind}.yaml", "-o", folder / "out"],
                    "webdataset": ["export", bag, "-f", "webdataset", "--mapping", folder / f"{kind}.yaml", "-o", folder / "out"],
                }.items():
                    began, before = time.monotonic(), os.times()
                    subprocess.run([options.holdall, *map(str, words)], check=True, stdout=subprocess.DEVNULL)
                    after = os.times()
                    one[f"{kind}_{name}_s_per_gb"] = (time.monotonic() - began) / gigabytes
                    one[f"{kind}_{name}_cpu_s_per_gb"] = (after[2] + after[3] - before[2] - before[3]) / gigabytes
                    shutil.rmtree(folder / "out", ignore_errors=True)
            found["rounds"].append(one)
    finally:
        shutil.rmtree(folder)
    json.dump(found, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
