"""Publishes a load from a real rclpy node."""

import importlib
import os
import threading
import time

import rclpy
import rclpy.executors
from publish_load import NODE, await_subscriptions, emit, largest_bytes, place_in, read_plan, send, stay, topic
from rclpy.duration import Duration
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

CORPUS_BYTES = 64 << 20


def type_of(name):
    package, _, message = name.split("/")
    return getattr(importlib.import_module(f"{package}.msg"), message)


def qos_of(group):
    qos = group["qos"]
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=qos["qos_depth"],
        reliability=ReliabilityPolicy.BEST_EFFORT if qos["qos_reliability"] == "best_effort" else ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if qos["qos_durability"] == "transient_local" else DurabilityPolicy.VOLATILE,
    )


def main():
    plan = read_plan()
    rclpy.init()
    node = rclpy.create_node(NODE)
    largest = largest_bytes(plan)
    window = min(CORPUS_BYTES, 4 * largest + (1 << 20))
    corpus = os.urandom(window + largest)
    publishers, message_bytes = [], []
    for group, frame in zip(plan["groups"], plan["frames"]):
        head, tail, bulk = bytes.fromhex(frame["head"]), bytes.fromhex(frame["tail"]), frame["bulk_bytes"]
        message_bytes.append(len(head) + bulk + len(tail))
        for place in range(group["publishers_count"]):
            publisher = node.create_publisher(type_of(group["msg_type"]), topic(group, place), qos_of(group))
            publishers.append((publisher, head, tail, bulk))
    created = time.monotonic()
    executor = rclpy.executors.SingleThreadedExecutor()
    executor.add_node(node)
    threading.Thread(target=executor.spin, daemon=True).start()
    emit(event="ready")
    matched = await_subscriptions(plan, created, [p[0].get_subscription_count for p in publishers])
    emit(event="started")

    def publish(index, number):
        publisher, head, tail, bulk = publishers[index]
        place = place_in(len(corpus) - bulk, index, number)
        publisher.publish(head + corpus[place : place + bulk] + tail)

    took = send(plan, publish)
    for publisher, *_ in publishers:
        publisher.wait_for_all_acked(Duration(seconds=5))
    emit(event="done", message_bytes=message_bytes, matched_s=matched, **took)
    stay()


if __name__ == "__main__":
    main()
