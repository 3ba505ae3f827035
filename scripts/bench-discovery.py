#!/usr/bin/env python3
"""How long a recorder takes to hear a node that publishes many topics, or to get the definition of a type that only its node has.

Usage: bench-discovery.py [--holdall PROGRAM] [--tries 50] [--topics 200] [--order recorder_first|node_first] [--dds fastdds|cyclone] [--definitions]

A try starts a recorder and a node in an order, in a domain of their own (LOCALHOST), and measures from the moment when all publishers exist
and a recorder listens to the moment when the last publisher has a subscription. The node is rclpy (Fast DDS), or pip `cyclonedds`.
With --definitions the node has a type that holdall does not bundle (tests/nodes/own_types.py), and the time is that from the recorder's line that it
records the topic to its line that a node has sent the definition.
Run it with a Python that has rclpy (.venv/bin/python of `make setup`), for Cyclone one that has cyclonedds.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from programs import lines_of, wait_for

OWN_TYPES = Path(__file__).parent.parent / "tests" / "nodes" / "own_types.py"


def fastdds_node(topics):
    import rclpy
    from std_msgs.msg import String

    rclpy.init()
    node = rclpy.create_node("bench_discovery")
    publishers = [node.create_publisher(String, f"/t{number}", 10) for number in range(topics)]
    return lambda: [publisher.get_subscription_count() > 0 for publisher in publishers], rclpy.shutdown


def cyclone_node(topics):
    from dataclasses import dataclass

    from cyclonedds.domain import DomainParticipant
    from cyclonedds.idl import IdlStruct
    from cyclonedds.pub import DataWriter
    from cyclonedds.topic import Topic

    @dataclass
    class String_(IdlStruct, typename="std_msgs::msg::dds_::String_"):
        data: str

    participant = DomainParticipant(int(os.environ["ROS_DOMAIN_ID"]))
    writers = [DataWriter(participant, Topic(participant, f"rt/t{number}", String_)) for number in range(topics)]
    return lambda: [writer.get_publication_matched_status().current_count > 0 if hasattr(writer, "get_publication_matched_status")
                    else len(writer.get_matched_subscriptions()) > 0 for writer in writers], lambda: None


def run_node(kind, topics):
    """Says `ready` when all publishers exist, and when each was matched, until standard input ends."""
    matched, leave = {"fastdds": fastdds_node, "cyclone": cyclone_node}[kind](topics)
    print(json.dumps({"ready": time.time()}), flush=True)
    first = None
    end = time.time() + 30
    while time.time() < end:
        count = sum(matched())
        if count and first is None:
            first = time.time()
        if count == topics:
            break
        time.sleep(0.002)
    print(json.dumps({"first": first, "all": time.time() if count == topics else None, "count": count}), flush=True)
    sys.stdin.read()
    leave()


def environment(number, folder, dds):
    """A domain of its own. The last part is as rmw_cyclonedds has it for LOCALHOST."""
    alone = "<General><AllowMulticast>false</AllowMulticast></General><Discovery><ParticipantIndex>auto</ParticipantIndex>"
    alone += "<MaxAutoParticipantIndex>32</MaxAutoParticipantIndex><Peers><Peer address='localhost'/></Peers></Discovery>"
    own = {"ROS_DOMAIN_ID": str(1 + (os.getpid() + number) % 100), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST", "ROS_LOG_DIR": folder}
    return {**os.environ, **own, "CYCLONEDDS_URI": alone if dds == "cyclone" else ""}


def one_try(options, number, folder):
    """Starts a recorder and a node, a moment apart; how long it took, and what was found."""
    env = environment(number, folder, options.dds)
    without = {"CYCLONEDDS_URI", "AMENT_PREFIX_PATH" if options.definitions else ""}
    recorder_env = {key: value for key, value in env.items() if key not in without}
    choice = ["--topics", "/own", "--log-level", "debug"] if options.definitions else ["-a"]
    record = [options.holdall, "record", *choice, "-o", os.path.join(folder, str(number)), "--disable-keyboard-controls"]
    own = [sys.executable, __file__, "--node", options.dds, "--topics", str(options.topics)]

    def start_node():
        node = subprocess.Popen([sys.executable, OWN_TYPES, "-"] if options.definitions else own, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if options.definitions:
            node.stdin.write(json.dumps({"rate_hz": 50}))
            node.stdin.close()
        return node

    def start_recorder():
        return subprocess.Popen(record, env=recorder_env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    order = [("recorder", start_recorder), ("node", start_node)]
    if options.order == "node_first":
        order.reverse()
    started, ready, lines = [], {}, {}
    try:
        for name, start in order:
            started.append(start())
            lines[name] = lines_of(started[-1])
            ready[name] = wait_for(lines[name], "Listening" if name == "recorder" else "ready")
            if name != order[-1][0]:
                time.sleep(0.3 + 0.1 * (number % 7))
        if options.definitions:
            found, _ = wait_for(lines["recorder"], "recording /own")
            return wait_for(lines["recorder"], "a node has sent its definition")[0] - found, 1
        begin = max(ready["recorder"][0], json.loads(ready["node"][1])["ready"])
        report = json.loads(wait_for(lines["node"], "all")[1])
        return (report["all"] or float("inf")) - begin, report["count"]
    finally:
        # Ended, not killed: both would leave shared memory.
        for process in started:
            if process.stdin and not options.definitions:
                process.stdin.close()
            else:
                process.send_signal(signal.SIGINT)
        for process in started:
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--holdall", default="target/release/holdall")
    parser.add_argument("--tries", type=int, default=50)
    parser.add_argument("--topics", type=int, default=200)
    parser.add_argument("--order", choices=["recorder_first", "node_first"], default="recorder_first")
    parser.add_argument("--dds", choices=["fastdds", "cyclone"], default="fastdds")
    parser.add_argument("--definitions", action="store_true", help="the definition of one type instead")
    parser.add_argument("--node", choices=["fastdds", "cyclone"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.node:
        return run_node(options.node, options.topics)
    wanted = 1 if options.definitions else options.topics
    with tempfile.TemporaryDirectory() as folder:
        took = []
        for number in range(options.tries):
            seconds, count = one_try(options, number, folder)
            took.append(seconds)
            print(f"{number}: {seconds:.3f} s ({count} of {wanted})", flush=True)
    took.sort()
    late = sum(seconds > 0.3 for seconds in took)
    print(f"{options.dds}, {options.order}: median {statistics.median(took):.3f} s, worst {took[-1]:.3f} s, above 0.3 s: {late} of {len(took)}")


if __name__ == "__main__":
    main()
