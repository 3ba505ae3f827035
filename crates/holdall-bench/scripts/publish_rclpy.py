"""Publishes a load from a real rclpy node: the plan is one JSON line on standard input, events are JSON lines on standard output.

Stays until standard input ends, so that what was sent last can be sent again. The schedule is open-loop: who is late does not wait.
"""

import heapq
import importlib
import json
import os
import sys
import threading
import time

import rclpy
import rclpy.executors
from rclpy.duration import Duration
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

NODE = "rosbag2_performance_benchmarking_node"
CORPUS_BYTES = 64 << 20
MATCH_WAIT_S = 60


def tell(**event):
    print(json.dumps(event), flush=True)


def percentiles(seconds):
    if not seconds:
        return None
    nanos = sorted(round(s * 1e9) for s in seconds)
    at = lambda share: nanos[min(len(nanos) - 1, int(share * len(nanos)))]
    return {
        "count": len(nanos), "p50_ns": at(0.5), "p99_ns": at(0.99), "p99_9_ns": at(0.999), "p99_99_ns": at(0.9999), "max_ns": nanos[-1],
    }


def type_of(name):
    package, _, message = name.split("/")
    return getattr(importlib.import_module(f"{package}.msg"), message)


def main():
    plan = json.loads(sys.stdin.readline())
    rclpy.init()
    node = rclpy.create_node(NODE)
    largest = max((g["msg_size_bytes"] for g in plan["groups"]), default=0)
    corpus = os.urandom(min(CORPUS_BYTES, 4 * largest + (1 << 20)) + largest)
    publishers, message_bytes = [], []
    for group in plan["groups"]:
        head, tail = bytes.fromhex(group["head"]), bytes.fromhex(group.get("tail", ""))
        bulk = group["bulk_bytes"]
        message_bytes.append(len(head) + bulk + len(tail))
        qos = QoSProfile(
            history=HistoryPolicy.KEEP_LAST,
            depth=group["depth"],
            reliability=ReliabilityPolicy.BEST_EFFORT if group["is_best_effort"] else ReliabilityPolicy.RELIABLE,
            durability=DurabilityPolicy.TRANSIENT_LOCAL if group["is_transient_local"] else DurabilityPolicy.VOLATILE,
        )
        for place in range(group["publishers_count"]):
            topic = f"/{NODE}/{group['topic_root']}_{place + 1}"
            phase = place / group["publishers_count"] / group["rate_hz"]
            publisher = node.create_publisher(type_of(group["msg_type"]), topic, qos)
            publishers.append((publisher, head, tail, bulk, group["msg_count_each"], 1 / group["rate_hz"], phase))
    created = time.monotonic()
    executor = rclpy.executors.SingleThreadedExecutor()
    executor.add_node(node)
    threading.Thread(target=executor.spin, daemon=True).start()
    tell(event="ready")
    matched, waiting = [], [p[0] for p in publishers]
    while plan["wait_for_subscriptions"] and waiting and time.monotonic() < created + MATCH_WAIT_S:
        still = [p for p in waiting if p.get_subscription_count() == 0]
        matched += [time.monotonic() - created] * (len(waiting) - len(still))
        waiting = still
        time.sleep(0.002)
    if plan["wait_for_subscriptions"] and waiting:
        sys.exit(f"no subscription for {len(waiting)} of {len(publishers)} topics")
    tell(event="started")
    send(plan, publishers, corpus, matched, message_bytes)
    sys.stdin.read()
    os._exit(0)


def send(plan, publishers, corpus, matched, message_bytes):
    start = time.monotonic() + 0.02
    due = [(start + p[6], index, 0) for index, p in enumerate(publishers)]
    heapq.heapify(due)
    sent = [0] * len(publishers)
    late, offers = [], []
    places = max(1, len(corpus) - max((p[3] for p in publishers), default=0))
    cpu = time.thread_time()
    while due:
        at, index, number = due[0]
        now = time.monotonic()
        if at > now + 50e-6:
            time.sleep(at - now)
            now = time.monotonic()
        publisher, head, tail, bulk, count, period, phase = publishers[index]
        late.append(max(0.0, now - at))
        place = (number * 7919 * 64 + index * 4096) % places
        publisher.publish(head + corpus[place : place + bulk] + tail)
        offers.append(time.monotonic() - now)
        sent[index] += 1
        if number + 1 < count:
            heapq.heapreplace(due, (start + phase + (number + 1) * period, index, number + 1))
        else:
            heapq.heappop(due)
    elapsed = time.monotonic() - start
    cpu = time.thread_time() - cpu
    for publisher, *_ in publishers:
        publisher.wait_for_all_acked(Duration(seconds=5))
    tell(
        event="done", sent=sent, message_bytes=message_bytes, elapsed_s=elapsed, cpu_s=cpu, matched_s=matched,
        offer=percentiles(offers), lateness=percentiles(late),
    )


if __name__ == "__main__":
    main()
