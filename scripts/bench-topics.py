#!/usr/bin/env python3
"""How much memory a recording takes by the number of its topics, and how much of a processor while nothing is published.

    scripts/bench-topics.py PROGRAM... [--topics 1 1000 5000] [--publishers] [--threads]

Without --publishers the topics are subscribed to from a file and nothing publishes; with it a Fast DDS node (rclpy, of the project's .venv) has a
silent publisher of each. For each number of topics and program one line: resident memory in KiB once it has stayed the same for 3 s,
and the share of one processor in the 20 s after that; with --threads also that of each thread, and how often a second it ran.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NODE = """
import rclpy, sys, time
from std_msgs.msg import String
rclpy.init()
node = rclpy.create_node("silent")
publishers = [node.create_publisher(String, f"/t{number}", 10) for number in range(int(sys.argv[1]))]
print("ready", flush=True)
time.sleep(3600)
"""
FIELDS = ("VmRSS", "RssAnon", "RssFile", "RssShmem")
SAME_KIB = 200
TRIES_MAX = 120
REST_S = 20


def settled(pid):
    """Resident memory of a process that does not change any more."""
    last, same = None, 0
    for _ in range(TRIES_MAX):
        time.sleep(0.7)
        text = Path(f"/proc/{pid}/status").read_text()
        now = {field: int(re.search(field + r":\s+(\d+)", text)[1]) for field in FIELDS}
        same = same + 1 if last and abs(last["VmRSS"] - now["VmRSS"]) < SAME_KIB else 0
        last = now
        if same == 4:
            break
    return last


def run_times(pid):
    """By thread: its name, nanoseconds on a processor, and how often it ran."""
    threads = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        nanoseconds, _, times = map(int, (task / "schedstat").read_text().split())
        threads[task.name] = (task / "comm").read_text().strip(), nanoseconds, times
    return threads


def at_rest(pid):
    """Name, share of one processor and runs a second of each thread, the busiest first; threads do not end at rest."""
    before = run_times(pid)
    time.sleep(REST_S)
    shares = []
    for thread, (name, nanoseconds, times) in run_times(pid).items():
        _, nanoseconds_before, times_before = before.get(thread, ("", 0, 0))
        shares.append((name, (nanoseconds - nanoseconds_before) / 1e9 / REST_S, (times - times_before) / REST_S))
    return sorted(shares, key=lambda thread: -thread[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--topics", nargs="+", type=int, default=[1, 1000, 5000])
    parser.add_argument("--publishers", action="store_true")
    parser.add_argument("--threads", action="store_true")
    options = parser.parse_args()
    environment = {**os.environ, "ROS_DOMAIN_ID": "86", "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    quiet = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for topics in options.topics:
        for program in options.programs:
            with tempfile.TemporaryDirectory() as folder:
                listed = Path(folder) / "topics.yaml"
                lines = [f"  - [/t{number}, std_msgs/msg/String]\n" for number in range(topics)]
                listed.write_text("static_topics_and_types_list:\n" + "".join(lines))
                which, node = ["--no-discovery", "--static-topics-path", str(listed)], None
                if options.publishers:
                    which = ["-a"]
                    node = subprocess.Popen([sys.executable, "-c", NODE, str(topics)], env=environment, stdout=subprocess.PIPE)
                    node.stdout.readline()
                recorder = subprocess.Popen([program, "record", *which, "-o", f"{folder}/bag"], **quiet)
                memory = settled(recorder.pid)
                threads = at_rest(recorder.pid)
                whole = sum(share for _, share, _ in threads)
                print(topics, program, memory, f"at rest {whole:.3%} of a processor", flush=True)
                if options.threads:
                    for name, share, runs in threads:
                        print(f"    {name:16} {share:.3%} {runs:.1f}/s", flush=True)
                recorder.terminate()
                recorder.wait()
                if node:
                    node.kill()
                    node.wait()


main()
