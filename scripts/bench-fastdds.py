#!/usr/bin/env python3
"""What it costs to record from Fast DDS publishers: CPU of recorder and publishers, bytes on loopback for each byte of payload, the publishers' own rate.

Usage: bench-fastdds.py PROGRAM... [--case images|megabytes|small|tiny] [--rate HZ] [--rounds 3] [--seconds 5] [--folder /tmp]

Runs each PROGRAM (holdall before and after a change; flags of `record` may follow in the same argument) in turn, as many rounds, each in a network namespace of its own (root), range LOCALHOST, with four
rclpy processes of one publisher each: `images` are 6 220 800 bytes at 30 Hz, `megabytes` 1 000 000 at 20 Hz, `small` are 1 KiB and `tiny` 200 bytes as fast as it goes; the PROGRAM `none` is no subscriber at all; --rate sets another rate for each publisher, for a ladder to the first loss. Prints a line for each run.
Run it with a Python that has rclpy (.venv/bin/python of `make setup`).
"""

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from programs import Child

TALKER = Path(__file__).parent.parent / "tests" / "nodes" / "talker.py"
PUBLISHERS = 4
CASES = {
    "images": {"type": "sensor_msgs/msg/Image", "rate_hz": 30, "hash": False, "qos": {"depth": 10}},
    "megabytes": {"type": "std_msgs/msg/UInt8MultiArray", "size": 1_000_000, "rate_hz": 20, "hash": False, "qos": {"depth": 100}},
    "tiny": {"type": "std_msgs/msg/UInt8MultiArray", "size": 200, "rate_hz": 0, "hash": False, "qos": {"depth": 1000}},
    "small": {"type": "std_msgs/msg/UInt8MultiArray", "size": 1024, "rate_hz": 0, "hash": False, "qos": {"depth": 1000}},
}


def sent_bytes():
    line = next(line for line in open("/proc/net/dev") if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[8])


def udp_drops():
    """What full receive buffers dropped, by the port of the socket: the recorder, started first, receives data at 7400 + 250 x domain + 11."""
    sockets = [line.split() for line in open("/proc/net/udp").readlines()[1:]]
    dropped = {}
    for socket in sockets:
        port = int(socket[1].split(":")[1], 16)
        dropped[port] = dropped.get(port, 0) + int(socket[12])
    return {port: drops for port, drops in dropped.items() if drops} or "none"


def inside(options):
    """One run, inside a network namespace of its own."""
    # Loopback and a network: with loopback alone there is but one address to send to.
    for command in (
        "link set lo up",
        "link add eth0 type veth peer name far0",
        "link set far0 up",
        "addr add 10.88.0.1/24 dev eth0",
        "link set eth0 up",
        "route add default dev eth0",
    ):
        subprocess.run(["ip", *command.split()], check=True)
    folder = tempfile.mkdtemp(dir=options.folder)
    env = {**os.environ, "ROS_DOMAIN_ID": "7", "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST", "ROS_LOG_DIR": folder}
    try:
        program, *flags = shlex.split(options.programs[0])
        recorder = None
        if program != "none":
            recorder = Child([program, "record", "-a", "-o", f"{folder}/bag", "--disable-keyboard-controls", *flags], env)
            recorder.wait_for("Listening")
        plan = dict(CASES[options.case])
        plan["rate_hz"] = plan["rate_hz"] if options.rate is None else options.rate
        plan["count"] = plan["rate_hz"] * options.seconds or None
        # Publishers begin as soon as they are matched, so discovery is counted too: some tens of kilobytes.
        before = sent_bytes()
        talkers = []
        for number in range(PUBLISHERS):
            talkers.append(Child([sys.executable, str(TALKER), "-"], env))
            json.dump({"publishers": [{"topic": f"/t{number}", **plan}], "wait_for_subscriptions": int(recorder is not None)}, talkers[-1].process.stdin)
            talkers[-1].process.stdin.close()
        for talker in talkers:
            talker.wait_for("matched")
        if plan["count"] is None:
            subprocess.run(["sleep", str(options.seconds)], check=True)
            for talker in talkers:
                talker.process.send_signal(signal.SIGINT)
        sent = [json.loads(talker.wait_for('"done"'))["sent"] for talker in talkers]
        on_loopback = sent_bytes() - before
        dropped = udp_drops()
        publishers = sum(talker.end()[1] for talker in talkers)
        said, cpu = ["recorded nothing"], 0.0
        if recorder:
            recorder.process.send_signal(signal.SIGINT)
            said, cpu, _ = recorder.end()
        streams = [stream for topics in sent for stream in next(iter(topics.values()))]
        payload = sum(stream["sizes_sum"] for stream in streams)
        recorded = next((line.strip() for line in said if line.startswith("recorded") or " recorded " in line), said[-1].strip())
        print(f"{options.programs[0]} {options.case}: sent {sum(stream['count'] for stream in streams)}, lo {on_loopback / payload:.3f} bytes/byte, "
              f"packets dropped by port: {dropped}, recorder {cpu:.2f} CPU s, publishers {publishers:.2f} CPU s; {recorded}", flush=True)
    finally:
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--case", choices=CASES, default="images")
    parser.add_argument("--rate", type=int, help="messages a second of each publisher")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--folder", default="/tmp")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return inside(options)
    for _ in range(options.rounds):
        for program in options.programs:
            rate = [] if options.rate is None else ["--rate", str(options.rate)]
            again = [sys.executable, __file__, program, "--inside", "--case", options.case, "--seconds", str(options.seconds), "--folder", options.folder, *rate]
            subprocess.run(["unshare", "-n", *again], check=True)


if __name__ == "__main__":
    main()
