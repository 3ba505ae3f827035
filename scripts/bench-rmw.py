#!/usr/bin/env python3
"""What is recorded through the user's own ROS 2 (`--transport rmw`, Fast DDS): messages, processor time, and the same over DDS or without storing.

Usage: bench-rmw.py [--holdall PROGRAM] [--case megabyte|images] [--by SHM LARGE_DATA DEFAULT UDPv4 server] [--how rmw dds limit] [--seconds 5] [--rounds 1] [--segment MIB] [--folder FOLDER]

`megabyte` is one reliable publisher of 1 MB at 100 Hz, `images` are four of 6 220 800 bytes at 30 Hz, each a process (rclpy, depth 100 and 10). `--by` is what reaches
them: FASTDDS_BUILTIN_TRANSPORTS of recorder and publishers, or a discovery server. `--how`: recorded through rmw, over DDS, or `limit`: a reader of the same messages that stores nothing
(an rclpy listener that takes them serialized). `--segment` gives both sides shared memory of that size for each participant (an XML profile) in place of the builtin 512 KiB.
Each combination runs in turn, as many rounds; prints a line for each. Run it with a Python that has rclpy.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from pathlib import Path

from programs import Child

ROOT = Path(__file__).resolve().parent.parent
NODES = ROOT / "tests" / "nodes"
PREFIX = Path(sys.prefix)
CASES = {
    "megabyte": (1, {"type": "std_msgs/msg/UInt8MultiArray", "size": 1_000_000, "rate_hz": 100, "hash": False, "qos": {"depth": 100}}),
    "images": (4, {"type": "sensor_msgs/msg/Image", "rate_hz": 30, "hash": False, "qos": {"depth": 10}}),
}
PROFILE = """<?xml version="1.0" encoding="UTF-8"?>
<dds xmlns="http://www.eprosima.com/XMLSchemas/fastRTPS_Profiles"><profiles>
<transport_descriptors><transport_descriptor><transport_id>memory</transport_id><type>SHM</type><segment_size>{bytes}</segment_size><maxMessageSize>{message}</maxMessageSize>
</transport_descriptor></transport_descriptors>
<participant profile_name="all" is_default_profile="true"><rtps><userTransports><transport_id>memory</transport_id></userTransports>
<useBuiltinTransports>false</useBuiltinTransports></rtps></participant>
</profiles></dds>
"""


def environment(folder, by, segment):
    libraries = [PREFIX / "lib", *sorted(PREFIX.glob("lib/python*/site-packages/*.libs"))]
    env = {
        **os.environ,
        "ROS_DOMAIN_ID": "77",
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET",
        "AMENT_PREFIX_PATH": str(PREFIX),
        "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        "ROS_LOG_DIR": folder,
    }
    if segment:
        profile = Path(folder) / "profile.xml"
        profile.write_text(PROFILE.format(bytes=segment << 20, message=min(segment << 19, 16 << 20)))
        env["FASTDDS_DEFAULT_PROFILES_FILE"] = str(profile)
    elif by != "server":
        env["FASTDDS_BUILTIN_TRANSPORTS"] = by
    return env


def discovery_server(env):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Child([PREFIX / "bin/fast-discovery-server", "-i", "0", "-l", "127.0.0.1", "-p", str(port)], env)
    server.wait_for("Server is running")
    env["ROS_DISCOVERY_SERVER"] = f"127.0.0.1:{port}"
    return server


def node(script, plan, env):
    child = Child([sys.executable, str(NODES / script), "-"], env)
    json.dump(plan, child.process.stdin)
    child.process.stdin.close()
    return child


def reader(how, topics, kind, options, folder, env):
    """Who gets the messages, and the function that ends it: (what it got, its processor time)."""
    if how == "limit":
        listener = node("listener.py", {"subscriptions": [{"topic": topic, "type": kind, "qos": {"depth": 1000}} for topic in topics]}, env)
        listener.wait_for('"ready"')
        ready = listener
    else:
        flags = ["--transport", how, "--disable-keyboard-controls", "--json"]
        ready = Child([options.holdall, "record", "-a", "-o", f"{folder}/bag", *flags], env)
        ready.wait_for("Listening")

    def end():
        ready.process.send_signal(signal.SIGINT)
        said, cpu, rss = ready.end()
        if how == "limit":
            done = json.loads(next(line for line in said if '"done"' in line))["received"]
            return sum(done[topic]["count"] for topic in topics if topic in done), cpu, rss, ""
        text = "".join(said)
        report = json.loads(text[text.index("{\n") : text.rindex("\n}") + 2])
        counts = [report["topics"].get(topic, {}) for topic in topics]
        lost = {name: value for name, value in report.get("lost_by_stage", {}).items() if value} or report.get("lost")
        return sum(one.get("message_count", 0) for one in counts), cpu, rss, f", lost {lost}, not heard {len(report['not_heard'])}"

    return end


def run(case, by, how, options):
    folder = tempfile.mkdtemp(dir=options.folder)
    children = []
    try:
        env = environment(folder, by, options.segment)
        if by == "server":
            children.append(discovery_server(env))
        publishers, plan = CASES[case]
        topics = [f"/t{number}" for number in range(publishers)]
        plan = {**plan, "count": plan["rate_hz"] * options.seconds}
        end = reader(how, topics, plan["type"], options, folder, env)
        waits = {} if how == "dds" and by in ("SHM", "LARGE_DATA", "server") else {"wait_for_subscriptions": 1}
        talkers = [node("talker.py", {"publishers": [{"topic": topic, **plan}], **waits}, env) for topic in topics]
        sent = [json.loads(talker.wait_for('"done"'))["sent"] for talker in talkers]
        cpu_of_publishers = sum(talker.end()[1] for talker in talkers)
        count = sum(one["count"] for topics in sent for one in next(iter(topics.values())))
        got, cpu, rss, more = end()
        segment = f" segment {options.segment} MiB" if options.segment else ""
        print(f"{case} {by}{segment} {how}: {got} of {count}{more}, CPU {cpu:.2f} s, memory {rss >> 10} MiB, publishers {cpu_of_publishers:.2f} CPU s, load {os.getloadavg()[0]:.1f}",
              flush=True)  # fmt: skip
    finally:
        for child in children:
            child.process.kill()
            child.process.wait()
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--holdall", default=str(ROOT / "target/release/holdall"))
    parser.add_argument("--case", choices=CASES, default="megabyte")
    parser.add_argument("--by", nargs="+", default=["SHM", "LARGE_DATA", "DEFAULT", "UDPv4", "server"])
    parser.add_argument("--how", nargs="+", choices=["rmw", "dds", "limit"], default=["rmw"])
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--segment", type=int, help="MiB of shared memory for each participant")
    parser.add_argument("--folder", default="/tmp")
    options = parser.parse_args()
    for _ in range(options.rounds):
        for by in options.by:
            for how in options.how:
                run(options.case, by, how, options)


if __name__ == "__main__":
    main()
