"""Publishes a load from a real ROS 1 node (rospy, Debian's Python): the plan is one JSON line on standard input, events are JSON lines.

Stays until standard input ends. The schedule is open-loop; messages wait in rospy's queue of the group's depth, as ROS 1 nodes have it.
"""

import heapq
import json
import os
import sys
import time

import rospy
from std_msgs.msg import UInt8MultiArray

NODE = "rosbag2_performance_benchmarking_node"
MATCH_WAIT_S = 60
# A node's server takes few connections at a time, and the recorder comes for all new topics at once.
TOGETHER = 5


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


def await_connections(plan, publishers):
    end = time.monotonic() + 10
    while plan["wait_for_subscriptions"] and len(publishers) % TOGETHER == 0 and time.monotonic() < end:
        if all(p[0].get_num_connections() for p in publishers):
            return
        time.sleep(0.002)


def main():
    plan = json.loads(sys.stdin.readline())
    rospy.init_node(NODE, disable_signals=True)
    largest = max((g["msg_size_bytes"] for g in plan["groups"]), default=0)
    corpus = os.urandom(4 * largest + (1 << 20))
    publishers, message_bytes = [], []
    for group in plan["groups"]:
        size = group["msg_size_bytes"]
        # Layout (count of dimensions, offset) and the array's count: 12 bytes in ROS 1's encoding.
        message_bytes.append(size + 12)
        for place in range(group["publishers_count"]):
            topic = f"/{NODE}/{group['topic_root']}_{place + 1}"
            publisher = rospy.Publisher(topic, UInt8MultiArray, queue_size=group["depth"], tcp_nodelay=True)
            phase = place / group["publishers_count"] / group["rate_hz"]
            await_connections(plan, publishers)
            publishers.append((publisher, size, group["msg_count_each"], 1 / group["rate_hz"], phase))
    created = time.monotonic()
    tell(event="ready")
    matched, waiting = [], [p[0] for p in publishers]
    while plan["wait_for_subscriptions"] and waiting:
        if time.monotonic() > created + MATCH_WAIT_S:
            sys.exit(f"no subscription for {len(waiting)} of {len(publishers)} topics")
        still = [p for p in waiting if p.get_num_connections() == 0]
        matched += [time.monotonic() - created] * (len(waiting) - len(still))
        waiting = still
        time.sleep(0.002)
    tell(event="started")
    start = time.monotonic() + 0.02
    due = [(start + p[4], index, 0) for index, p in enumerate(publishers)]
    heapq.heapify(due)
    sent, late, offers = [0] * len(publishers), [], []
    cpu = time.thread_time()
    while due:
        at, index, number = due[0]
        now = time.monotonic()
        if at > now + 50e-6:
            time.sleep(at - now)
            now = time.monotonic()
        publisher, size, count, period, phase = publishers[index]
        late.append(max(0.0, now - at))
        place = (number * 7919 * 64 + index * 4096) % (len(corpus) - size)
        publisher.publish(UInt8MultiArray(data=corpus[place : place + size]))
        offers.append(time.monotonic() - now)
        sent[index] += 1
        if number + 1 < count:
            heapq.heapreplace(due, (start + phase + (number + 1) * period, index, number + 1))
        else:
            heapq.heappop(due)
    tell(
        event="done", sent=sent, message_bytes=message_bytes, elapsed_s=time.monotonic() - start, cpu_s=time.thread_time() - cpu,
        matched_s=matched, offer=percentiles(offers), lateness=percentiles(late),
    )
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
