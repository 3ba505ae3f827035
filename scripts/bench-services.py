#!/usr/bin/env python3
"""Calls the services of a recorder and prints how many calls were answered and how soon: 100 calls of one client, and the first call of 50 fresh ones.
With --load rclpy nodes call each other's service instead, with and without a recorder of the calls, and its bag is counted by pip `mcap`.

To be run with the tests' Python, whose rclpy and cyclonedds it calls with (docs/services.md has the figures):

    VENV/bin/python scripts/bench-services.py target/release/holdall [--load CLIENTS --rate-hz 50 --seconds 10 --rounds 3]
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from mcap.reader import make_reader
from programs import Child

ROOT = Path(__file__).resolve().parent.parent
CALL = {"service": "/rosbag2_recorder/is_paused", "type": "rosbag2_interfaces/srv/IsPaused"}


def answered(env, client, **plan):
    plan = {"client": client, "definitions": str(ROOT / "crates/holdall-model/data/definitions.txt"), **plan}
    command = [sys.executable, str(ROOT / "tests/nodes/service_calls.py"), "-"]
    lines = subprocess.run(command, input=json.dumps(plan), env=env, capture_output=True, text=True, check=True).stdout.splitlines()
    return next(event for event in map(json.loads, lines) if event["event"] == "answered")


def node(env, **plan):
    child = Child([sys.executable, ROOT / "tests/nodes/service_node.py", "-"], env)
    json.dump({"introspection": True, **plan}, child.process.stdin)
    child.process.stdin.close()
    return child


def events_in(folder):
    """How many events of each type a bag has: request sent and received, response sent and received."""
    counts = [0] * 4
    for path in folder.glob("*.mcap"):
        with open(path, "rb") as file:
            for _, channel, message in make_reader(file).iter_messages(topics=["/load/_service_event"]):
                counts[message.data[4]] += 1
    return counts


def round_of_load(arguments, env, folder, is_recorded):
    """A row of the table: calls of some clients at a rate, and what a recorder has of them."""
    server = node(env, serve="/load")
    server.wait_for("ready")
    if is_recorded:
        recorder = Child([arguments.holdall, "record", "--services", "/load", "-o", folder / "bag", "--disable-keyboard-controls"], env)
        recorder.wait_for("recording /load/_service_event")
    plan = {"call": "/load", "count": int(arguments.rate_hz * arguments.seconds), "rate_hz": arguments.rate_hz, "text": "x" * 100, "recorders": int(is_recorded)}
    clients = [node(env, **plan) for _ in range(arguments.load)]
    done = [json.loads(client.wait_for('"done"')) for client in clients]
    for client in clients:
        client.end()
    took = sorted(milliseconds for one in done for milliseconds in one["milliseconds"])
    row = f"{sum(one['right'] for one in done)} of {len(took)} | {took[len(took) // 2]:.2f}, {took[int(0.99 * (len(took) - 1))]:.2f}"
    if is_recorded:
        recorder.process.send_signal(signal.SIGINT)
        said, cpu_s, memory_kib = recorder.end()
        lost = next((line.strip() for line in said if line.strip().startswith("lost:")), said[-1].strip())
        row += f" | {' + '.join(map(str, events_in(folder / 'bag')))}; {lost} | {cpu_s:.2f} s, {memory_kib >> 10} MiB"
    server.process.send_signal(signal.SIGTERM)
    server.end()
    return row


def measure_load(arguments, env):
    print(f"{arguments.load} clients, each {arguments.rate_hz:g} calls a second for {arguments.seconds:g} s, load of the machine {os.getloadavg()[0]:.1f}\n")
    print("| recorder | calls answered | from due, p50, p99, ms | events in the bag | processor time, memory |\n" + "|---" * 5 + "|")
    for _ in range(arguments.rounds):
        for is_recorded in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                row = round_of_load(arguments, env, Path(folder), is_recorded)
            print(f"| holdall | {row} |" if is_recorded else f"| none | {row} | | |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("holdall", type=Path, help="the program")
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--fresh", type=int, default=50)
    parser.add_argument("--load", type=int, metavar="CLIENTS", help="rclpy clients that call an rclpy server")
    parser.add_argument("--rate-hz", type=float, default=50, help="calls a second of each of them")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    env = {**os.environ, "ROS_DOMAIN_ID": str(1 + os.getpid() % 100), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    if arguments.load:
        return measure_load(arguments, env)
    with tempfile.TemporaryDirectory() as folder:
        command = [str(arguments.holdall), "record", "--topics", "/none", "-o", f"{folder}/bag"]
        recorder = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
        for line in recorder.stderr:
            if "Listening for topics" in line:
                break
        print("| client | calls answered | median, ms | p99, ms | first calls of fresh clients answered | slowest, ms |\n|---|---|---|---|---|---|")
        for client in ("rclpy", "cyclone"):
            many = answered(env, client, calls=[{**CALL, "count": arguments.calls}])
            first = answered(env, client, calls=[CALL], fresh=arguments.fresh)
            took = sorted(many["milliseconds"])
            print(
                f"| {client} | {many['answered']} of {len(took)} | {took[len(took) // 2]:.2f} | {took[int(0.99 * (len(took) - 1))]:.2f} "
                f"| {first['answered']} of {arguments.fresh} | {max(first['milliseconds']):.1f} |",
                flush=True,
            )
        recorder.send_signal(signal.SIGINT)
        recorder.wait()


if __name__ == "__main__":
    main()
