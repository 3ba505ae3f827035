#!/usr/bin/env python3
"""How exact the forecast of `holdall preflight` is: the load at which it predicts the first loss, beside the load at which a recording loses one.

Usage: bench-preflight.py [--holdall PROGRAM] [--workload small,images,mixed] [--rounds 3] [--base FACTOR] [--seconds 6] [--trial 8] [--folder /tmp]
                          [--transport dds] [--domain 83]

Each round of a workload: a trial while the load runs at --base times its rates, then a ladder of recordings, the first one at six tenths of the
predicted load, each 8 % above the one before, until one of them loses a message or the publishers cannot send as planned because the machine is full.
Two recordings without loss are needed for a step. Prints a line for each step, and for each round the predicted and the measured load in units of the
workload. Domain and folder are the caller's; everything is over loopback (LOCALHOST).
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from programs import lines_of


def group(name, count, size, hz, depth=100):
    return {
        "name": name,
        "publishers_count": count,
        "topic_root": name,
        "msg_size_bytes": size,
        "msg_type": "std_msgs/msg/UInt8MultiArray",
        "rate_hz": hz,
        "qos": {"qos_depth": depth, "qos_reliability": "reliable", "qos_durability": "volatile"},
    }


# At a factor of 1 each takes a part of two processors that is not small: far from the limit a message costs more, because threads sleep between two.
WORKLOADS = {
    "small": [group("small", 100, 256, 400)],
    "images": [group("image", 4, 1_000_000, 50)],
    "mixed": [group("small", 50, 256, 200), group("middle", 5, 20_000, 200), group("image", 2, 1_000_000, 40)],
}
# Lateness of the whole load from which the publishers count as unable to send it.
LATE = 1.05
STEP = 1.08
REPEATED = 2


def idle_s():
    """Seconds for which processors had no work since the machine started: what is not idle is busy, as in the trial."""
    idle, waiting = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[4:6])
    return (idle + waiting) / os.sysconf("SC_CLK_TCK")


class Load:
    """The publishers, in a process of their own."""

    def __init__(self, options, groups, factor, seconds):
        groups = [{**one, "rate_hz": one["rate_hz"] * factor, "msg_count_each": max(1, round(one["rate_hz"] * factor * seconds))} for one in groups]
        self.planned = sum(one["publishers_count"] * one["msg_count_each"] for one in groups)
        self.bytes_per_s = sum(one["publishers_count"] * one["rate_hz"] * one["msg_size_bytes"] for one in groups)
        self.hz = sum(one["publishers_count"] * one["rate_hz"] for one in groups)
        self.seconds = seconds
        plan = {"groups": groups, "wait_for_subscriptions": True, "seed": 1, "threads": 2}
        command = [options.holdall, "bench", "publish", "--transport", options.transport]
        self.process = subprocess.Popen(command, env=options.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(json.dumps(plan) + "\n")
        self.process.stdin.flush()
        self.lines = lines_of(self.process)

    def report(self):
        while True:
            _, line = self.lines.get(timeout=600)
            if line is None:
                raise SystemExit("the publishers ended early")
            event = json.loads(line)
            if event["event"] == "done":
                return event

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)


def predicted(options, groups):
    """The trial's JSON."""
    load = Load(options, groups, options.base, options.trial + 12)
    try:
        command = [options.holdall, "preflight", "-a", "--duration", str(options.trial), "-o", f"{options.folder}/bag", "--transport", options.transport, "--json"]
        reply = subprocess.run(command, env=options.env, capture_output=True, text=True, timeout=300)
        if reply.returncode not in (0, 3):
            raise SystemExit(reply.stderr)
        return json.loads(reply.stdout)
    finally:
        load.process.kill()
        load.process.wait()


def recorded(options, groups, factor):
    """One recording: how many messages were planned, sent, and are in the bag, and whether the publishers kept their pace."""
    bag = f"{options.folder}/bag-{time.monotonic_ns()}"
    command = [options.holdall, "record", "-a", "-o", bag, "--transport", options.transport, "--json", "--disable-keyboard-controls"]
    recorder = subprocess.Popen(command, env=options.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for line in recorder.stderr:
            if "Listening for topics" in line:
                break
        load = Load(options, groups, factor, options.seconds)
        began, idle = time.monotonic(), idle_s()
        report = load.report()
        busy = os.cpu_count() - (idle_s() - idle) / (time.monotonic() - began)
        time.sleep(1)
        recorder.send_signal(signal.SIGINT)
        out, _ = recorder.communicate(timeout=300)
        load.end()
        reply = json.loads(out)
        sent = sum(report["sent"])
        in_bag = sum(topic["message_count"] for name, topic in reply["topics"].items() if "benchmarking" in name)
        return {
            "planned": load.planned,
            "sent": sent,
            "in_bag": in_bag,
            # What was sent before the match is no loss.
            "lost": max(reply["lost"], sent - in_bag - reply["sent_before_match"]),
            "stages": "".join(f", {stage} {count}" for stage, count in reply["lost_by_stage"].items() if count),
            "late": report["elapsed_s"] / options.seconds,
            "bytes_per_s": load.bytes_per_s,
            "hz": load.hz,
            "busy": busy,
        }
    finally:
        if recorder.poll() is None:
            recorder.kill()
        shutil.rmtree(bag, ignore_errors=True)


def measured(options, name, groups, start):
    """The factor of the first step with a loss."""
    factor = start
    while True:
        for _ in range(REPEATED):
            run = recorded(options, groups, factor)
            why = "lost" if run["lost"] > 0 else "late" if run["late"] > LATE else None
            print(f"  {name} x {factor:.2f}: {run['hz']:.0f} Hz, {run['bytes_per_s'] / 2**20:.0f} MiB/s: sent {run['sent']}, in the bag {run['in_bag']}, "
                  f"lost {run['lost']}, {run['late']:.3f} of the time, {run['busy']:.2f} processors busy{run['stages']}{', ' + why if why else ''}", flush=True)
            if why:
                return factor, why
        factor *= STEP


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--holdall", default=str(Path(__file__).parent.parent / "target" / "release" / "holdall"))
    parser.add_argument("--workload", default=",".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--base", type=float, default=1.0, help="load of the trial")
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--trial", type=int, default=8)
    parser.add_argument("--folder", default=None)
    parser.add_argument("--transport", default="dds")
    parser.add_argument("--domain", default="83")
    options = parser.parse_args()
    options.env = {**os.environ, "ROS_DOMAIN_ID": options.domain, "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    scratch = tempfile.mkdtemp(dir=options.folder)
    options.folder = scratch
    try:
        for name in options.workload.split(","):
            groups, ratios = WORKLOADS[name], []
            for number in range(options.rounds):
                forecast = predicted(options, groups)
                margin, limit = forecast["margin"], forecast["limits"][0]["kind"]
                uses = ", ".join(f"{one['kind']} {one['margin']:.2f}" for one in forecast["limits"])
                print(f"{name} round {number + 1}: the trial predicts a loss at x {margin * options.base:.2f} ({uses}); load {os.getloadavg()[0]:.1f}", flush=True)
                factor, why = measured(options, name, groups, max(0.1, margin * options.base * 0.6))
                ratios.append(margin * options.base / factor)
                print(f"{name} round {number + 1}: predicted x {margin * options.base:.2f} ({limit}), first loss at x {factor:.2f} ({why}), ratio {ratios[-1]:.2f}", flush=True)
            print(f"{name}: predicted / measured {statistics.median(ratios):.2f} ({', '.join(f'{ratio:.2f}' for ratio in ratios)})", flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
