#!/usr/bin/env python3
"""Camera loads over iceoryx2 and DDS, recorded by holdall to disk: what is lost, what the recorder costs, what the publishers notice.

Usage: bench-zero-copy.py --binaries target/release --folder SCRATCH [--seconds 20] CASE...

CASE is one of c1 (8 x 6 220 800 B x 30 Hz over iceoryx2), fastdds (4 of them over DDS from rclpy nodes), cyclone (the same from Cyclone DDS),
many (100 x 50 KB x 100 Hz), small (200 B, 100 000 msg/s), ladder-small, ladder-large and ladder-weak (the rate at which the first message is lost, with
and without a recorder; weak: small ones, best effort). Each is run without the recorder first (a subscriber that takes and drops; for c1 nobody listens), then with it. One
line of JSON each, with what the disk takes just before: four threads that write 4 MiB each past the caches.

Needs the examples built: cargo build --release -p holdall-transport --features dds,iceoryx2 --examples. rclpy from pip for `fastdds`. The bag is
a ring of four files of 1 GB that is removed afterwards: SCRATCH needs 6 GB.
"""

import argparse
import json
import mmap
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

DOMAIN = 76
IMAGE = 6_220_800
# Images as they are in CDR: encapsulation, header, sizes.
SERIALIZED = IMAGE + 56
BLOCK = 4 << 20

RCLPY_PUBLISHER = r"""
import sys, time, threading
import rclpy
from rclpy.qos import QoSProfile
from sensor_msgs.msg import Image
number, size, rate, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
rclpy.init()
node = rclpy.create_node(f"camera{number}")
publisher = node.create_publisher(Image, f"/rate/topic{number}", QoSProfile(depth=10))
# Handed over in CDR: what is measured is the middleware and the recorder, not Python's serialization.
image = bytes([0, 1, 0, 0]) + bytes(size - 4)
while publisher.get_subscription_count() == 0:
    time.sleep(0.01)
print("matched", flush=True)
sys.stdin.readline()
begin, period, sent, missed, last = time.monotonic() + number * 0.25 / rate, 1 / rate, 0, [], None
while sent < seconds * rate:
    left = begin + sent * period - time.monotonic()
    if left > 0:
        time.sleep(left)
    now = time.monotonic()
    if last is not None:
        missed.append(now - last)
    last = now
    publisher.publish(image)
    sent += 1
missed.sort()
print(f"sent {sent}, period p99 {missed[int(len(missed) * 0.99)] * 1e6:.0f} us, max {missed[-1] * 1e6:.0f} us", flush=True)
time.sleep(2)
node.destroy_node()
rclpy.shutdown()
"""


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def disk_limit(folder, megabytes=3072):
    """Bytes a second that go past the caches into a file that is there already, as the recorder's blocks do."""
    path = os.path.join(folder, "limit")
    out = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    try:
        total = megabytes << 20
        os.posix_fallocate(out, 0, total)
        places = iter(range(0, total, BLOCK))
        lock = threading.Lock()

        def write():
            block = mmap.mmap(-1, BLOCK)
            block.write(os.urandom(4096) * (BLOCK // 4096))
            while True:
                with lock:
                    place = next(places, None)
                if place is None:
                    return
                os.pwrite(out, block, place)

        begin = time.monotonic()
        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os.fdatasync(out)
        return total / (time.monotonic() - begin)
    finally:
        os.close(out)
        os.unlink(path)


class Recorder:
    """holdall record with a ring of files, and what it costs."""

    def __init__(self, options, transport):
        self.bag = os.path.join(options.folder, "zero-copy")
        shutil.rmtree(self.bag, ignore_errors=True)
        command = [os.path.join(options.binaries, "holdall"), "record", "-e", "^/(rate|camera)", "--transport", transport, "-o", self.bag]
        command += ["-b", "1GB", "--max-bag-files", "4", "--json", *options.argument]
        self.process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said, self.is_listening = [], threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        if not self.is_listening.wait(30):
            raise SystemExit("the recorder does not begin:\n" + "\n".join(self.said))

    def _read(self):
        for line in self.process.stderr:
            self.said.append(line.rstrip())
            if "Listening for topics" in line:
                self.is_listening.set()

    def stop(self):
        """What its report says."""
        self.process.send_signal(signal.SIGINT)
        out = self.process.stdout.read()
        self.process.wait(120)
        shutil.rmtree(self.bag, ignore_errors=True)
        told = json.loads(out)
        return {
            "exit_code": self.process.returncode,
            "recorded": told["message_count"],
            "lost_by_stage": told["lost_by_stage"],
            "said": [line for line in self.said if "WARN" in line or "ERROR" in line][:6],
        }


def environment():
    return {**os.environ, "ROS_DOMAIN_ID": str(DOMAIN), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}


def publisher_numbers(line):
    """Numbers with their names out of the line that a publisher prints at its end."""
    found = {"sent": int(re.search(r"sent (\d+)", line)[1])}
    for name, number in re.findall(r"(p99|max) (\d+) us", line):
        found[f"period_{name}_us"] = int(number)
    return found


class Load:
    """Publishers as processes of their own, and the recorder's processor time from their first message to their last."""

    def __init__(self, commands, begins):
        self.processes = [
            subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for command in commands
        ]
        self.begins = begins

    def run(self, pid):
        for process in self.processes:
            while self.begins not in (line := process.stdout.readline()):
                if not line:
                    raise SystemExit(f"a publisher ended before it had {self.begins}")
        before, start = cpu_seconds(pid) if pid else 0, time.monotonic()
        for process in self.processes:
            process.stdin.write("\n")
            process.stdin.flush()
        told = []
        for process in self.processes:
            while "sent " not in (line := process.stdout.readline()):
                if not line:
                    raise SystemExit("a publisher ended early")
            told.append(publisher_numbers(line))
        span = time.monotonic() - start
        used = cpu_seconds(pid) - before if pid else 0
        for process in self.processes:
            process.wait(30)
        report = {"sent": sum(one["sent"] for one in told), "span_s": round(span, 2)}
        for name in ("period_p99_us", "period_max_us"):
            if name in told[0]:
                report[name] = max(one[name] for one in told)
        if pid:
            report["recorder_cores"] = round(used / span, 3)
        return report


def load_of(case, options, seconds):
    def binary(name):
        return os.path.join(options.binaries, "examples", name)

    def dds(topics, size, rate, *more):
        arguments = {"topics": topics, "bytes": size, "rate-hz": rate, "seconds": seconds, "domain": DOMAIN}
        flat = [text for key, value in arguments.items() for text in (f"--{key}", str(value))]
        return [binary("dds_rate"), *flat, *more]

    if case == "c1":
        return [[binary("iceoryx2_rate"), "8", str(IMAGE), "30", str(seconds)]], "iceoryx2", "begin", IMAGE
    if case == "fastdds":
        script = [sys.executable, "-c", RCLPY_PUBLISHER]
        return [[*script, str(n), str(SERIALIZED), "30", str(seconds)] for n in range(4)], "dds", "matched", SERIALIZED
    if case == "cyclone":
        return [dds(4, SERIALIZED, 30, "--publish")], "dds", "matched", SERIALIZED
    if case == "many":
        return [dds(100, 50_000, 100, "--publish")], "dds", "matched", 50_000
    if case == "small":
        return [dds(10, 200, 10_000, "--publish")], "dds", "matched", 200
    raise SystemExit(f"there is no case {case}")


def alone(case, options, commands, begins):
    """The same load without a recorder: what its publishers' periods are then, and what taking it costs."""
    if case == "c1":
        return Load(commands, begins).run(None)
    if case == "fastdds":
        # Takes and drops, for as long as they publish.
        taker = [os.path.join(options.binaries, "examples", "dds_rate"), "--topics", "4", "--bytes", "0", "--domain", str(DOMAIN), "--take"]
        taker = subprocess.Popen(taker, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        report = Load(commands, begins).run(taker.pid)
        taker.stdin.close()
        report["taken"] = taker.stdout.readline().strip()
        report["taker_cores"] = report.pop("recorder_cores")
        taker.wait(30)
        return report
    told = subprocess.run([text for text in commands[0] if text != "--publish"], env=environment(), capture_output=True, text=True, timeout=300)
    lines = told.stdout.splitlines()
    report = publisher_numbers(next(line for line in lines if line.startswith("sent ")))
    received = next(line for line in lines if line.startswith("received "))
    report["taken"] = int(re.search(r"received (\d+)", received)[1])
    report["taker_cores"] = float(re.search(r"([\d.]+) cores", received)[1])
    return report


def measure(case, options):
    commands, transport, begins, size = load_of(case, options, options.seconds)
    report = {"case": case, "disk_limit_mb_s": round(disk_limit(options.folder) / 1e6)}
    if not options.no_alone:
        report["without_recorder"] = alone(case, options, commands, begins)
    recorder = Recorder(options, transport)
    with_it = Load(commands, begins).run(recorder.process.pid)
    with_it.update(recorder.stop())
    with_it["offered_mb_s"] = round(with_it["sent"] * size / with_it["span_s"] / 1e6)
    with_it["recorded_percent"] = round(100 * with_it["recorded"] / with_it["sent"], 3)
    report["with_recorder"] = with_it
    if not options.no_alone and "period_p99_us" in with_it:
        report["period_p99_ratio"] = round(with_it["period_p99_us"] / report["without_recorder"]["period_p99_us"], 3)
    print(json.dumps(report), flush=True)


def ladder(case, options):
    """More from step to step, until the first message is lost: by a subscriber that takes and drops, and by the recorder."""
    binary = os.path.join(options.binaries, "examples", "dds_rate")
    small, weak = case != "ladder-large", case == "ladder-weak"
    steps = [100_000, 150_000, 200_000, 250_000, 300_000] if small else [60, 120, 180, 240, 300, 360]
    for taker in ("taken", "recorded"):
        for step in steps:
            topics, size, rate = (10, 200, step / 10) if small else (4, SERIALIZED, step / 4)
            command = [binary, "--topics", topics, "--bytes", size, "--rate-hz", rate, "--seconds", options.seconds, "--domain", DOMAIN]
            command = [str(part) for part in command] + ["--best-effort"] * weak
            if taker == "taken":
                lines = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300).stdout.splitlines()
                sent = publisher_numbers(next(line for line in lines if line.startswith("sent ")))["sent"]
                received = next(line for line in lines if line.startswith("received "))
                got, cores = int(re.search(r"received (\d+)", received)[1]), float(re.search(r"([\d.]+) cores", received)[1])
                stages = {}
            else:
                recorder = Recorder(options, "dds")
                told = Load([[*command, "--publish"]], "matched").run(recorder.process.pid)
                sent, cores = told["sent"], told["recorder_cores"]
                told = recorder.stop()
                got, stages = told["recorded"], told["lost_by_stage"]
            line = {"case": case, "who": taker, "asked_per_s": step, "sent_per_s": round(sent / options.seconds), "missing": sent - got}
            print(json.dumps({**line, "cores": cores, "lost_by_stage": stages}), flush=True)
            if got < sent:
                break


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", required=True, help="target/release, with the examples built")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--no-alone", action="store_true", help="only with the recorder")
    parser.add_argument("--argument", action="append", default=[], help="one more argument of holdall record")
    parser.add_argument("cases", nargs="+")
    options = parser.parse_args()
    for case in options.cases:
        if case.startswith("ladder"):
            ladder(case, options)
        else:
            measure(case, options)


if __name__ == "__main__":
    main()
