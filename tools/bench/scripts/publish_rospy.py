"""Publishes a load from a real ROS 1 node (rospy, Debian's Python); messages wait in rospy's queue of the group's depth, as in ROS 1 nodes."""

import os
import time

import rospy
from publish_load import NODE, await_subscriptions, emit, largest_bytes, place_in, read_plan, send, stay, topic
from std_msgs.msg import UInt8MultiArray

# A node's server accepts few connections at a time, and the recorder connects to all new topics at once.
TOGETHER = 5


def await_connections(plan, publishers):
    end = time.monotonic() + 10
    while plan["wait_for_subscriptions"] and len(publishers) % TOGETHER == 0 and time.monotonic() < end:
        if all(p.get_num_connections() for p, _ in publishers):
            return
        time.sleep(0.002)


def main():
    plan = read_plan()
    rospy.init_node(NODE, disable_signals=True)
    corpus = os.urandom(4 * largest_bytes(plan) + (1 << 20))
    publishers, message_bytes = [], []
    for group in plan["groups"]:
        size = group["msg_size_bytes"]
        # Layout (count of dimensions, offset) and the array's count: 12 bytes in ROS 1's encoding.
        message_bytes.append(size + 12)
        for place in range(group["publishers_count"]):
            publisher = rospy.Publisher(topic(group, place), UInt8MultiArray, queue_size=group["qos"]["qos_depth"], tcp_nodelay=True)
            await_connections(plan, publishers)
            publishers.append((publisher, size))
    created = time.monotonic()
    emit(event="ready")
    matched = await_subscriptions(plan, created, [p.get_num_connections for p, _ in publishers])
    emit(event="started")

    def publish(index, number):
        publisher, size = publishers[index]
        place = place_in(len(corpus) - size, index, number)
        publisher.publish(UInt8MultiArray(data=corpus[place : place + size]))

    took = send(plan, publish)
    emit(event="done", message_bytes=message_bytes, matched_s=matched, **took)
    stay()


if __name__ == "__main__":
    main()
