#!/usr/bin/env python3
"""How long `holdall play` takes to a random time of a long bag.

    scripts/bench-seek.py HOLDALL FOLDER [--gigabytes 100] [--seeks 200]

The bag has 200 IMU messages and 10 images of 6.2 MB a second, and one latched message at its beginning. The images' pixels are holes of a sparse
file, so it occupies little of FOLDER; its index is as long as that of any bag of this size. A seek is a request on the control socket, and
`play_next` after it: the time until the first message is published there. One line: opening, seek alone, seek and first message.
"""

import argparse
import json
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

IMAGE_BYTES = 1080 * 1920 * 3
START = 1_700_000_000_000_000_000
LATCHED = "- history: keep_last\n  depth: 1\n  reliability: reliable\n  durability: transient_local\n"


def text(value):
    data = value.encode()
    return struct.pack("<I", len(data)) + data


def record(opcode, body):
    return struct.pack("<BQ", opcode, len(body)) + body


def schema(number, name):
    return record(3, struct.pack("<H", number) + text(name) + text("ros2msg") + struct.pack("<I", 0))


def channel(number, topic, qos=""):
    pair = text("offered_qos_profiles") + text(qos)
    return record(4, struct.pack("<HH", number, number) + text(topic) + text("cdr") + struct.pack("<I", len(pair)) + pair)


class Sparse:
    """An MCAP file whose large payloads are holes."""

    def __init__(self, path):
        self.file = open(path, "wb")
        self.file.write(b"\x89MCAP0\r\n" + record(1, text("ros2") + text("bench-seek")))
        self.chunks, self.counts, self.last = [], {}, START
        self.definitions = schema(1, "sensor_msgs/msg/Imu") + channel(1, "/imu") + schema(2, "sensor_msgs/msg/Image") + channel(2, "/image")
        self.definitions += schema(3, "tf2_msgs/msg/TFMessage") + channel(3, "/tf_static", LATCHED)

    def chunk(self, number, stamps, payload, hole=0):
        """A chunk of one channel: a message at each stamp; with a hole of so many bytes there is one message."""
        parts = [] if self.chunks else [self.definitions]
        at, entries = sum(map(len, parts)), []
        for stamp in stamps:
            head = struct.pack("<BQHIQQ", 5, 22 + len(payload) + hole, number, 0, stamp, stamp) + payload
            entries.append((stamp, at))
            parts.append(head)
            at += len(head) + hole
        size = at
        start = self.file.tell()
        body = struct.pack("<QQQI", stamps[0], stamps[-1], size, 0) + text("") + struct.pack("<Q", size)
        self.file.write(struct.pack("<BQ", 6, len(body) + size) + body + b"".join(parts))
        self.file.seek(hole, os.SEEK_CUR)
        length = self.file.tell() - start
        index_at = self.file.tell()
        pairs = b"".join(struct.pack("<QQ", *entry) for entry in entries)
        self.file.write(record(7, struct.pack("<HI", number, len(pairs)) + pairs))
        offsets = struct.pack("<HQ", number, index_at)
        index = struct.pack("<QQQQ", stamps[0], stamps[-1], start, length) + struct.pack("<I", len(offsets)) + offsets
        index += struct.pack("<Q", self.file.tell() - index_at) + text("") + struct.pack("<QQ", size, size)
        self.chunks.append(record(8, index))
        self.counts[number] = self.counts.get(number, 0) + len(stamps)
        self.last = max(self.last, stamps[-1])

    def finish(self):
        self.file.write(record(15, struct.pack("<I", 0)))
        summary = self.file.tell()
        counts = b"".join(struct.pack("<HQ", *item) for item in self.counts.items())
        statistics = struct.pack("<QHIIIIQQ", sum(self.counts.values()), 3, 3, 0, 0, len(self.chunks), START, self.last)
        self.file.write(self.definitions + b"".join(self.chunks) + record(11, statistics + struct.pack("<I", len(counts)) + counts))
        self.file.write(record(2, struct.pack("<QQI", summary, 0, 0)) + b"\x89MCAP0\r\n")
        self.file.close()


def write_bag(path, gigabytes):
    """The bag; returns its length in seconds."""
    bag = Sparse(path)
    bag.chunk(3, [START], b"\0\1\0\0" + bytes(4))
    head = b"\0\1\0\0" + bytes(8) + struct.pack("<I", 1) + bytes(4) + struct.pack("<II", 1080, 1920) + struct.pack("<I", 5) + b"rgb8\0" + bytes(3)
    head += struct.pack("<II", 5760, IMAGE_BYTES)
    seconds = int(gigabytes * 1e9 / (10 * IMAGE_BYTES))
    for second in range(seconds):
        begin = START + second * 1_000_000_000
        for image in range(10):
            bag.chunk(2, [begin + image * 100_000_000], head, IMAGE_BYTES)
        bag.chunk(1, [begin + n * 5_000_000 for n in range(200)], b"\0\1\0\0" + bytes(320))
    bag.finish()
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=100)
    parser.add_argument("--seeks", type=int, default=200)
    arguments = parser.parse_args()
    environment = {**os.environ, "ROS_DOMAIN_ID": str(1 + os.getpid() % 100), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path, control = Path(folder) / "long.mcap", Path(folder) / "control"
        seconds = write_bag(path, arguments.gigabytes)
        command = [arguments.program, "play", str(path), "--start-paused", "--persistent", "--control-socket", str(control)]
        begin = time.monotonic()
        player = subprocess.Popen(
            [*command, "--disable-keyboard-controls"], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            stream = socket.socket(socket.AF_UNIX)
            while True:
                try:
                    stream.connect(str(control))
                    break
                except OSError:
                    assert player.poll() is None, "the player has ended"
                    time.sleep(0.005)
            lines = stream.makefile("rw")

            def ask(**request):
                lines.write(json.dumps(request) + "\n")
                lines.flush()
                answer = json.loads(lines.readline())
                assert answer["ok"], answer

            while True:
                try:
                    ask(request="play_next")
                    break
                except AssertionError:
                    time.sleep(0.005)
            opened = time.monotonic() - begin
            chance = random.Random(1)
            alone, whole = [], []
            for _ in range(arguments.seeks):
                target = chance.uniform(0, seconds - 1)
                start = time.monotonic()
                ask(request="seek", time=target)
                alone.append(time.monotonic() - start)
                ask(request="play_next")
                whole.append(time.monotonic() - start)
        finally:
            player.terminate()
            player.wait()

    def three(values):
        ordered = sorted(values)
        return " / ".join(f"{ordered[int((len(ordered) - 1) * q)] * 1e3:.1f}" for q in (0.5, 0.99, 1))

    print(
        f"{arguments.gigabytes:.0f} GB, {seconds} s: first message after {opened:.2f} s; {len(alone)} seeks: answered {three(alone)} ms, "
        f"first message {three(whole)} ms (p50 / p99 / max)"
    )


if __name__ == "__main__":
    sys.exit(main())
