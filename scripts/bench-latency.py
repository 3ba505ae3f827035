"""How long after its publication a message can be read in the file of a recording, and how long until it is durable. Seen from outside: small messages with a
tag of their own, sent by an rclpy node beside a load, are searched for in the growing MCAP file as another program finds it, up to the first place that is not
written yet; durable is what the recorder's control socket reports of their topic, asked every 2 ms.

    python scripts/bench-latency.py target/release/holdall --seconds 20 --load 0 --load 100MB --load 400MB [-- RECORD FLAGS]

RECORD FLAGS such as --max-loss-window 50ms, or -s sqlite3 (then only durable is measured).
"""

import argparse
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TAG = b"holdall-latency-"
TOPIC = "/latency_probe"
PIECE = 8 << 20
GAP = bytes(4096)
# A place that stays empty for so long is padding, not a write under way.
PADDING_S = 2.0
PRODUCERS = """
rosbag2_performance_benchmarking_node:
  ros__parameters:
    publishers:
      publisher_groups: [load]
      wait_for_subscriptions: true
      load: {publishers_count: 4, topic_root: load, msg_type: "std_msgs::msg::UInt8MultiArray", msg_size_bytes: 1000000, msg_count_each: %d, rate_hz: %g}
"""


def probe(hertz, watching, ready, stop, sent):
    import rclpy
    from rclpy.qos import QoSProfile
    from std_msgs.msg import String

    rclpy.init()
    publisher = rclpy.create_node("latency_probe").create_publisher(String, TOPIC, QoSProfile(depth=1000))
    while publisher.get_subscription_count() == 0:
        time.sleep(0.01)
    watching.wait()
    ready.set()
    times, due = [], time.monotonic()
    while not stop.is_set():
        times.append(time.monotonic_ns())
        publisher.publish(String(data=f"{TAG.decode()}{len(times) - 1:08d}"))
        due += 1 / hertz
        time.sleep(max(0.0, due - time.monotonic()))
    # The recorder may take its time for the last ones.
    time.sleep(5)
    sent.put(times)


def watch(bag, watching, stop, found):
    """When each tag was first seen, in nanoseconds."""
    seen, position, stuck = {}, 0, time.monotonic()
    while not (files := list(bag.glob("*.mcap"))):
        time.sleep(0.001)
    file = os.open(files[0], os.O_RDONLY)
    time.sleep(1)
    # The file's head has places that are filled at its end.
    position = len(os.pread(file, PIECE, 0).rstrip(b"\0")) // 4096 * 4096
    watching.set()
    while not stop.is_set():
        piece = os.pread(file, PIECE, position)
        now = time.monotonic_ns()
        gap = piece.find(GAP)
        text = piece if gap < 0 else piece[:gap]
        at = text.find(TAG)
        while 0 <= at <= len(text) - len(TAG) - 8:
            seen.setdefault(int(text[at + len(TAG) : at + len(TAG) + 8]), now)
            at = text.find(TAG, at + 1)
        if gap < 0 and len(piece) == PIECE:
            position, stuck = position + PIECE - 4096, time.monotonic()
            continue
        if len(text) > 8192:
            position, stuck = position + len(text) - 4096, time.monotonic()
        elif gap >= 0 and time.monotonic() - stuck > PADDING_S and (rest := piece[gap:].lstrip(b"\0")):
            position += len(piece) - len(rest)
        time.sleep(0.001)
    os.close(file)
    found.put(seen)


def ask(control, stop, found):
    """When each number of messages of the topic was first reported durable, in nanoseconds."""
    stream = socket.socket(socket.AF_UNIX)
    while True:
        try:
            stream.connect(str(control))
            break
        except OSError:
            time.sleep(0.01)
    lines, durable = stream.makefile("rw"), []
    while not stop.is_set():
        lines.write('{"request": "status"}\n')
        lines.flush()
        topics = json.loads(lines.readline())["status"]["topics"]
        now = time.monotonic_ns()
        # They are the first ones in the order of the bag, which is that of their numbers.
        durable += [now] * (topics.get(TOPIC, {}).get("durable", 0) - len(durable))
        time.sleep(0.002)
    found.put(dict(enumerate(durable)))


def has_places(flags):
    """Whether a message has a place in the file where it can be waited for: other storages than MCAP have none."""
    return not {"sqlite3", "leveldb"} & set(flags)


def run(holdall, load, seconds, hertz, flags):
    """Latencies in milliseconds, sorted, of all messages, until they could be read and until they were durable; infinite for those that never were."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", ".")) as folder:
        folder = Path(folder)
        env = {**os.environ, "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST", "ROS_DOMAIN_ID": str(40 + os.getpid() % 60)}
        os.environ.update(env)
        context = multiprocessing.get_context("spawn")
        watching, ready, stop, end = (context.Event() for _ in range(4))
        sent, found, durable = context.Queue(), context.Queue(), context.Queue()
        command = [holdall, "record", "-a", "-o", folder / "bag", "--control-socket", folder / "control", *flags]
        recorder = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        workers = [context.Process(target=probe, args=(hertz, watching, ready, stop, sent)), context.Process(target=ask, args=(folder / "control", end, durable))]
        if not has_places(flags):
            watching.set()
            found.put({})
        else:
            workers.append(context.Process(target=watch, args=(folder / "bag", watching, end, found)))
        for worker in workers:
            worker.start()
        ready.wait()
        publishers = None
        if load:
            rate = load / 4 / 1_000_000
            (folder / "load.yaml").write_text(PRODUCERS % (max(1, round(rate * seconds)), rate))
            publishers = subprocess.Popen([holdall, "bench", "publish", "--params-file", folder / "load.yaml"], env=env, stdout=subprocess.DEVNULL)
            publishers.wait()
        else:
            time.sleep(seconds)
        stop.set()
        times = sent.get()
        end.set()
        each = [found.get(), durable.get()]
        for worker in workers:
            worker.join()
        recorder.send_signal(signal.SIGINT)
        code = recorder.wait()
        return [sorted((seen[number] - at) / 1e6 if number in seen else float("inf") for number, at in enumerate(times)) for seen in each], code


def size(text):
    return int(float(text.removesuffix("MB")) * 1_000_000)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("holdall", type=Path)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--hertz", type=float, default=200)
    parser.add_argument("--load", type=size, action="append", help="bytes a second, such as 100MB; 0 for none")
    words, flags = sys.argv[1:], []
    if "--" in words:
        words, flags = words[: words.index("--")], words[words.index("--") + 1 :]
    given = parser.parse_args(words)
    print("| load | messages | until | p50 | p99 | p99.9 | p99.99 | longest, ms | exit code |\n|---|---|---|---|---|---|---|---|---|")
    for load in given.load or [0, size("100MB"), size("400MB")]:
        both, code = run(given.holdall.resolve(), load, given.seconds, given.hertz, flags)
        for what, latencies in zip(("read", "durable"), both):
            if what == "read" and not has_places(flags):
                continue
            of = [latencies[min(len(latencies) - 1, int(share * len(latencies)))] for share in (0.5, 0.99, 0.999, 0.9999, 1)]
            print(f"| {load // 1_000_000} MB/s | {len(latencies)} | {what} | " + " | ".join(f"{one:.1f}" for one in of) + f" | {code} |", flush=True)


if __name__ == "__main__":
    main()
