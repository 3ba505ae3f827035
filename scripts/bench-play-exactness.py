#!/usr/bin/env python3
"""How exactly `holdall play` keeps its times, beside how exactly this machine wakes a program that only sleeps.

    scripts/bench-play-exactness.py HOLDALL [--repeat 3] [--hertz 1000] [--images FOLDER] [--loop SECONDS]

First ten seconds of messages of 100 bytes at 1000 Hz (or --hertz) over DDS to `holdall record`, in turn with a loop that sleeps until each of the same
times. With --images also 800 images of 6.2 MB at 1.5 GB/s over iceoryx2 and 560 at 700 MB/s over DDS, from the page cache, recorded to memory; FOLDER
needs 9 GB. With --loop these bags are played in a loop for so long, and recorded to a ring of three files of 1 GB.
Needs the project's .venv (mcap). One line for each run.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

PROFILE = "- history: keep_last\n  depth: 10\n  reliability: reliable\n  durability: volatile\n"
IMAGE_BYTES = 1080 * 1920 * 3
IMAGE_DEFINITION = "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\nuint8[] data\n" + (
    "=" * 80
    + "\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n"
    + "=" * 80
    + "\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
)  # fmt: skip


def write_bag(path, topic, type_name, definition, count, hertz, payload):
    from mcap.writer import CompressionType, Writer

    if path.exists():
        return path
    with open(path, "wb") as file:
        writer = Writer(file, compression=CompressionType.NONE)
        writer.start("ros2", "bench-play-exactness")
        schema = writer.register_schema(type_name, "ros2msg", definition.encode())
        channel = writer.register_channel(topic, "cdr", schema, {"offered_qos_profiles": PROFILE})
        for number in range(count):
            stamp = 1_700_000_000_000_000_000 + int(number * 1e9 / hertz)
            writer.add_message(channel, stamp, payload, stamp)
        writer.finish()
    return path


def image():
    head = b"\0\1\0\0" + bytes(8) + (4).to_bytes(4, "little") + b"cam\0"
    head += (1080).to_bytes(4, "little") + (1920).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"rgb8\0\0"
    head += bytes(-(len(head) - 4) % 4)
    return head + (5760).to_bytes(4, "little") + IMAGE_BYTES.to_bytes(4, "little") + os.urandom(IMAGE_BYTES)


def quantiles(seconds):
    ordered = sorted(seconds)
    return " / ".join(f"{ordered[int((len(ordered) - 1) * q)] * 1e6:.0f}" for q in (0.5, 0.99, 1))


def sleep_limit(count, hertz):
    """Lateness and spacing error of a loop that only sleeps."""
    start = time.monotonic()
    late = []
    for number in range(1, count + 1):
        due = start + number / hertz
        time.sleep(max(0.0, due - time.monotonic()))
        late.append(time.monotonic() - due)
    spacing = [abs(after - before) for before, after in zip(late, late[1:], strict=False)]
    print(f"only sleep               late {quantiles(late)} µs | spacing error {quantiles(spacing)} µs", flush=True)


def play(name, program, transport, bag, topic, loop_s=None):
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    environment = {
        **os.environ,
        "ROS_DOMAIN_ID": str(1 + os.getpid() % 100),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
    }
    quiet = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    record = [program, "record", "--transport", transport, topic, "-o", str(folder / "bag"), "--disk-mode", "buffered", "--disable-keyboard-controls"]
    if loop_s:
        record += ["-b", "1GB", "--max-bag-files", "3"]
    recorder = subprocess.Popen([*record, "--json"], stdout=subprocess.PIPE, text=True, **quiet)
    try:
        command = [program, "play", "--transport", transport, str(bag), "--wait-for-subscribers", "1", "--timeout", "20", "--json"]
        command += ["--disable-keyboard-controls"] + ["--loop"] * bool(loop_s)
        player = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **quiet)
        if loop_s:
            time.sleep(loop_s)
            player.send_signal(signal.SIGINT)
        played, _ = player.communicate(timeout=120)
        recorder.send_signal(signal.SIGINT)
        recorded, _ = recorder.communicate(timeout=60)
        report, found = json.loads(played), json.loads(recorded)["message_count"]
    finally:
        if recorder.poll() is None:
            recorder.kill()
        shutil.rmtree(folder)

    def three(key):
        return " / ".join(f"{report[key][name] * 1e6:.0f}" for name in ("p50_s", "p99_s", "max_s"))

    rate = report["published_bytes"] / report["elapsed_s"] / 1e6
    print(
        f"{name:24} late {three('lateness')} µs | spacing error {three('spacing_error')} µs | {rate:.0f} MB/s, "
        f"{report['read_too_late']} read too late, {found} of {report['published']} recorded",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--hertz", type=int, default=1000)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--loop", type=float)
    arguments = parser.parse_args()
    program = arguments.program
    with tempfile.TemporaryDirectory() as folder:
        small = b"\0\1\0\0" + (100).to_bytes(4, "little") + b"x" * 99 + b"\0"
        hertz = arguments.hertz
        steady = write_bag(Path(folder) / "steady.mcap", "/steady", "std_msgs/msg/String", "string data\n", 10 * hertz, hertz, small)
        for _ in range(arguments.repeat):
            sleep_limit(10 * hertz, hertz)
            play(f"{hertz} Hz over DDS", program, "dds", steady, "/steady")
    if arguments.images is None:
        return
    arguments.images.mkdir(parents=True, exist_ok=True)
    for transport, count, hertz in (("iceoryx2", 800, 241), ("dds", 560, 112.5)):
        path = arguments.images / f"{transport}.mcap"
        write_bag(path, "/image", "sensor_msgs/msg/Image", IMAGE_DEFINITION, count, hertz, image())
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass
        for _ in range(arguments.repeat):
            play(f"images over {transport}", program, transport, path, "/image", arguments.loop)


if __name__ == "__main__":
    main()
