"""A real ROS 2 node that publishes according to a JSON plan and reports what it sent.

Usage: talker.py PLAN.json    (or `-` for standard input)

PLAN: {"node": NAME, "publishers": [{"topic", "type", "count", "rate_hz", "qos": {...}, "size", "text"}...],
       "wait_for_subscriptions": N, "later": [...], "tell_when_alone": true, "linger": true}
`count` null publishes until SIGINT or SIGTERM. The publishers in `later` are created at SIGUSR1, each after its {"event": "later"}, and publish from their first match on. Each event is one JSON object on a line of standard output:
{"event": "ready"}, {"event": "matched"}, and at the end {"event": "done", "sent": {topic: {"count", "md5", "sizes_sum"}}}; if requested,
{"event": "alone"} when the last subscription is gone after that.
A publisher with "log": PATH writes for each message its number and the monotonic time before it was handed over (uint64, float64, little
endian), at once, so that the log is right up to the end even after a kill.
The md5 runs over the serialized messages (CDR, with encapsulation header) in the order of sending, each padded with zeros to a multiple
of four bytes: RTPS aligns its submessages, so this is what every raw subscription receives, rclpy's and rosbag2's too.
"""

import array
import faulthandler
import hashlib
import json
import os
import math
import signal
import struct
import sys
import threading
import time

import rclpy
import rclpy.executors
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import serialize_message
from sensor_msgs.msg import Image, Imu, LaserScan, PointCloud2, PointField
from std_msgs.msg import String, UInt8MultiArray


def tell(**event):
    # One write: lines of several threads do not mix.
    os.write(1, json.dumps(event).encode() + b"\n")


def qos_of(plan):
    return QoSProfile(
        history=HistoryPolicy.KEEP_ALL if plan.get("history") == "keep_all" else HistoryPolicy.KEEP_LAST,
        depth=plan.get("depth", 10),
        reliability=ReliabilityPolicy.BEST_EFFORT
        if plan.get("reliability") == "best_effort"
        else ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL
        if plan.get("durability") == "transient_local"
        else DurabilityPolicy.VOLATILE,
    )


class Source:
    """Makes the n-th message of one publisher; big fields are made once."""

    def __init__(self, plan):
        self.plan = plan
        self.kind = plan["type"]
        size = plan.get("size", 0)
        if self.kind == "sensor_msgs/msg/Image":
            width, height = plan.get("width", 1920), plan.get("height", 1080)
            self.message = Image(height=height, width=width, encoding="rgb8", step=3 * width)
            self.message.header.frame_id = "camera"
            row = bytes((x * 255 // width) & 0xFF for x in range(width) for _ in range(3))
            self.message.data = array.array("B", b"".join(bytes(row) for _ in range(height)))
        elif self.kind == "std_msgs/msg/UInt8MultiArray":
            self.message = UInt8MultiArray(data=array.array("B", bytes(i & 0xFF for i in range(size))))
        elif self.kind == "sensor_msgs/msg/LaserScan":
            self.message = LaserScan(angle_min=-math.pi, angle_max=math.pi, angle_increment=math.pi / 360, range_max=30.0)
            self.message.ranges = array.array("f", (2.0 + math.sin(i / 50) for i in range(720)))
        elif self.kind == "sensor_msgs/msg/PointCloud2":
            points = plan.get("points", 20000)
            fields = [PointField(name=n, offset=4 * i, datatype=PointField.FLOAT32, count=1) for i, n in enumerate("xyz")]
            self.message = PointCloud2(height=1, width=points, fields=fields, point_step=12, row_step=12 * points)
            self.message.data = array.array("B", bytes(12 * points))

    def nth(self, n):
        if self.kind == "std_msgs/msg/String":
            return String(data=self.plan.get("text", "hello {n}").format(n=n) + "x" * self.plan.get("size", 0))
        if self.kind == "sensor_msgs/msg/Imu":
            message = Imu()
            message.header.frame_id = "imu"
            message.angular_velocity.z = math.sin(n / 20)
            message.linear_acceleration.z = 9.81
            self.stamp(message, n)
            return message
        message = self.message
        if hasattr(message, "header"):
            self.stamp(message, n)
        if hasattr(message, "data") and len(message.data) >= 8:
            message.data[0:8] = array.array("B", n.to_bytes(8, "little"))
        return message

    @staticmethod
    def stamp(message, n):
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(n * 1_000_000, 1_000_000_000)


class Stream:
    """One publisher with its own pace and its own account of its messages."""

    def __init__(self, node, plan):
        self.plan = plan
        self.source = Source(plan)
        self.publisher = node.create_publisher(type(self.source.nth(0)), plan["topic"], qos_of(plan.get("qos", {})))
        self.count = 0
        self.sizes_sum = 0
        self.md5 = hashlib.md5()
        self.first = plan.get("first", 0)
        self.log = open(plan["log"], "wb", buffering=0) if "log" in plan else None

    def finished(self):
        return self.plan.get("count") is not None and self.count >= self.plan["count"]

    def send(self):
        data = serialize_message(self.source.nth(self.first + self.count))
        if self.log:
            self.log.write(struct.pack("<Qd", self.first + self.count, time.monotonic()))
        self.publisher.publish(data)
        on_the_wire = data + bytes(-len(data) % 4)
        self.count += 1
        self.sizes_sum += len(on_the_wire)
        if self.plan.get("hash", True):
            self.md5.update(on_the_wire)


def pace(stream, stop):
    rate = stream.plan.get("rate_hz", 0)
    start = time.monotonic()
    while not stop.is_set() and not stream.finished():
        stream.send()
        if rate:
            wait = start + stream.count / rate - time.monotonic()
            if wait > 0:
                stop.wait(wait)


def publish_later(node, plan, streams, wanted, stop):
    stream = Stream(node, plan)
    streams.append(stream)
    tell(event="later")
    while stream.publisher.get_subscription_count() < wanted and not stop.wait(0.01):
        pass
    pace(stream, stop)


def main():
    plan = json.load(sys.stdin if sys.argv[1] == "-" else open(sys.argv[1]))
    stop = threading.Event()
    rclpy.init(signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    later = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: later.set())
    node = rclpy.create_node(plan.get("node", "talker"))
    streams = [Stream(node, p) for p in plan["publishers"]]
    executor = rclpy.executors.SingleThreadedExecutor()
    executor.add_node(node)
    spinner = threading.Thread(target=executor.spin)
    spinner.start()
    tell(event="ready")
    wanted = plan.get("wait_for_subscriptions", 1)
    while not stop.is_set() and any(s.publisher.get_subscription_count() < wanted for s in streams):
        stop.wait(0.01)
    tell(event="matched")
    threads = [threading.Thread(target=pace, args=(s, stop)) for s in streams]
    for thread in threads:
        thread.start()
    # A wait without a limit can sleep on past a signal that comes just before it (seen once in 4 500 signals).
    for thread in threads:
        while thread.is_alive():
            thread.join(0.05)
            if later.is_set():
                later.clear()
                late = [threading.Thread(target=publish_later, args=(node, p, streams, wanted, stop)) for p in plan["later"]]
                for one in late:
                    one.start()
                threads.extend(late)
    for stream in streams:
        if not plan.get("hard_exit"):
            stream.publisher.wait_for_all_acked(rclpy.duration.Duration(seconds=10))
    sent = {}
    for s in streams:
        sent.setdefault(s.plan["topic"], []).append({"count": s.count, "md5": s.md5.hexdigest(), "sizes_sum": s.sizes_sum})
    tell(event="done", sent=sent)
    if plan.get("tell_when_alone"):
        while not stop.is_set() and any(s.publisher.get_subscription_count() for s in streams):
            stop.wait(0.01)
        tell(event="alone")
    if plan.get("linger"):
        while not stop.wait(0.05):
            pass
    # A node that hangs while it is taken down reports where, and is gone.
    faulthandler.dump_traceback_later(20, exit=True)
    executor.shutdown()
    rclpy.try_shutdown()
    spinner.join()


if __name__ == "__main__":
    main()
