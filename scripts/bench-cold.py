"""How fast a bag that is not in the page cache is read: `cat`, `play` and `check` of one or more programs, in turn, beside `dd`.

    .venv/bin/python scripts/bench-cold.py FOLDER HOLDALL [HOLDALL ...] [--gigabytes 4] [--rounds 3]

Makes an uncompressed MCAP bag of images of 1 and 6 MB in FOLDER, on the disk that is measured, and removes it. Prints medians and ranges in GB/s, and seconds of system time.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from mcap.writer import CompressionType, Writer

START = 1_700_000_000_000_000_000
DEFINITION = "uint8[] data\n"


def make(bag, gigabytes):
    noise = os.urandom(6 << 20)
    with bag.open("wb") as out:
        writer = Writer(out, chunk_size=1 << 20, compression=CompressionType.NONE)
        writer.start("ros2", "bench-cold")
        schema = writer.register_schema("test/msg/Blob", "ros2msg", DEFINITION.encode())
        channels = [writer.register_channel(topic, "cdr", schema, {"offered_qos_profiles": ""}) for topic in ("/small", "/large")]
        written = 0
        for number in itertools.count():
            size = 6 << 20 if number % 4 == 3 else 1 << 20
            payload = b"\0\1\0\0" + (size - 8).to_bytes(4, "little") + noise[: size - 8]
            writer.add_message(channels[size > 1 << 20], START + number * 5_000_000, payload, START, number)
            written += size
            if written >= gigabytes * 1e9:
                break
        writer.finish()


def forget(bag):
    """Takes the file out of the page cache."""
    with bag.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(command, env):
    begin = time.monotonic()
    child = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    # `check` reports the missing metadata.yaml and ends with 1.
    assert child.returncode == 0 or ("check" in command and child.returncode == 1), said.decode()
    return time.monotonic() - begin, used.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("programs", nargs="+", metavar="HOLDALL")
    parser.add_argument("--gigabytes", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    env = {**os.environ, "ROS_DOMAIN_ID": str(os.getpid() % 100 + 1), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        bag = Path(folder) / "bag.mcap"
        make(bag, args.gigabytes)
        commands = {"dd": ["dd", f"if={bag}", "of=/dev/null", "iflag=direct", "bs=8M"]}
        for program in args.programs:
            commands[f"{program} cat --raw"] = [program, "cat", "--raw", bag]
            commands[f"{program} play"] = [program, "play", bag, "-r", "1000", "--disable-keyboard-controls"]
            commands[f"{program} check"] = [program, "check", bag]
        found = {name: [] for name in commands}
        for _, (name, command) in itertools.product(range(args.rounds), commands.items()):
            forget(bag)
            found[name].append(timed(command, env))
        size = bag.stat().st_size / 1e9
        for name, runs in found.items():
            rates = sorted(size / seconds for seconds, _ in runs)
            print(f"{name:40} {statistics.median(rates):.2f} GB/s ({rates[0]:.2f} to {rates[-1]:.2f}), {statistics.median(system for _, system in runs):.2f} s of system time")


main()
