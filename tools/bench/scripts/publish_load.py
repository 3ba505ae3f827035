"""Shared by the publishers with ROS 1 and ROS 2 nodes: events, the wait for subscriptions, the open-loop schedule.

The plan is one JSON line on standard input, events are JSON lines on standard output.
"""

import heapq
import json
import os
import sys
import time

NODE = "rosbag2_performance_benchmarking_node"
MATCH_WAIT_S = 60


def read_plan():
    return json.loads(sys.stdin.readline())


def emit(**event):
    print(json.dumps(event), flush=True)


def topic(group, place):
    return f"/{NODE}/{group['topic_root']}_{place + 1}"


def largest_bytes(plan):
    return max((g["msg_size_bytes"] for g in plan["groups"]), default=0)


def percentiles(seconds):
    if not seconds:
        return None
    nanos = sorted(round(s * 1e9) for s in seconds)
    at = lambda share: nanos[min(len(nanos) - 1, int(share * len(nanos)))]
    return {
        "count": len(nanos), "p50_ns": at(0.5), "p99_ns": at(0.99), "p99_9_ns": at(0.999), "p99_99_ns": at(0.9999), "max_ns": nanos[-1],
    }


def await_subscriptions(plan, created, counts):
    """Seconds after which each of `counts`, functions that return a publisher's number of subscriptions, was first above zero."""
    matched, waiting = [], list(counts)
    while plan["wait_for_subscriptions"] and waiting:
        if time.monotonic() > created + MATCH_WAIT_S:
            sys.exit(f"no subscription for {len(waiting)} of {len(counts)} topics")
        still = [count for count in waiting if count() == 0]
        matched += [time.monotonic() - created] * (len(waiting) - len(still))
        waiting = still
        time.sleep(0.002)
    return matched


def send(plan, publish):
    """Calls `publish(index, number)` for each message of each publisher when it is due; a late one does not wait. Returns the figures."""
    # Publishers of a group start one after the other within a period: count, period, phase.
    turns = [
        (group["msg_count_each"], 1 / group["rate_hz"], place / group["publishers_count"] / group["rate_hz"])
        for group in plan["groups"]
        for place in range(group["publishers_count"])
    ]
    start = time.monotonic() + 0.02
    due = [(start + phase, index, 0) for index, (_, _, phase) in enumerate(turns)]
    heapq.heapify(due)
    sent, late, offers = [0] * len(turns), [], []
    cpu = time.thread_time()
    while due:
        at, index, number = due[0]
        now = time.monotonic()
        if at > now + 50e-6:
            time.sleep(at - now)
            now = time.monotonic()
        late.append(max(0.0, now - at))
        publish(index, number)
        offers.append(time.monotonic() - now)
        sent[index] += 1
        count, period, phase = turns[index]
        if number + 1 < count:
            heapq.heapreplace(due, (start + phase + (number + 1) * period, index, number + 1))
        else:
            heapq.heappop(due)
    elapsed_s, cpu_s = time.monotonic() - start, time.thread_time() - cpu
    return dict(sent=sent, elapsed_s=elapsed_s, cpu_s=cpu_s, offer=percentiles(offers), lateness=percentiles(late))


def place_in(corpus_bytes, index, number):
    """Where a payload begins: consecutive messages, and those of neighbouring publishers, differ."""
    return (number * 7919 * 64 + index * 4096) % max(1, corpus_bytes)


def stay():
    """Keeps the last messages available for retransmission until standard input ends."""
    sys.stdin.read()
    os._exit(0)
