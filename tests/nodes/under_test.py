"""A real rclpy node of the kind that people test with bags: it answers each message of one topic with one of another.

Usage: under_test.py PLAN.json    (or `-` for standard input)

PLAN: {"input": TOPIC, "output": TOPIC}, and each optional:
  "delay_s": [MIN, MAX]   a random time of work for each message; "seed" makes it the same each time
  "gain": X               multiplies what it measures (default 1)
  "sim_time": true        follows /clock and writes its time into the answer
  "text": true            answers with a std_msgs/msg/String, which has no stamp
  "copies": N             answers with N messages
  "early": N              publishes N messages before the first input
  "crash_after": N        the process ends without a word after N messages
  "leave_after": N        the node is taken down after N messages
  "skip": N               it does not answer the Nth message
  "stale": N              its answer to the Nth message has a stamp long before it
  "best_effort": true     subscribes without acknowledgements
  "depth": N              it keeps N messages that wait (default 50)
  "latched": true         hears publishers alone whose durability is transient local
  "mute_after": N         it hears, and answers no more, after N messages
The input is a sensor_msgs/msg/Imu. The answer has its header, and a running mean, so that one message more, less or in another order is seen in all that follow.
It reports {"event": "ready"}, ends at SIGINT or SIGTERM, and then reports {"event": "done", "times": what its clock said at each answer, ns, with sim_time}.
"""

import json
import os
import random
import signal
import sys
import time

import rclpy
from builtin_interfaces.msg import Time
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Imu
from std_msgs.msg import String

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from talker import tell  # noqa: E402


class UnderTest:
    def __init__(self, plan):
        self.plan, self.random = plan, random.Random(plan.get("seed"))
        overrides = [Parameter("use_sim_time", value=bool(plan.get("sim_time")))]
        self.node = rclpy.create_node("under_test", enable_rosout=False, parameter_overrides=overrides)
        self.publisher = self.node.create_publisher(String if plan.get("text") else Imu, plan["output"], QoSProfile(depth=50))
        reliability = ReliabilityPolicy.BEST_EFFORT if plan.get("best_effort") else ReliabilityPolicy.RELIABLE
        durability = DurabilityPolicy.TRANSIENT_LOCAL if plan.get("latched") else DurabilityPolicy.VOLATILE
        qos = QoSProfile(depth=plan.get("depth", 50), reliability=reliability, durability=durability)
        self.node.create_subscription(Imu, plan["input"], self.hear, qos)
        self.heard, self.mean = 0, 0.0
        self.times = []
        self.stop = False

    def hear(self, message):
        plan = self.plan
        time.sleep(self.random.uniform(*plan.get("delay_s", (0, 0))))
        self.heard += 1
        self.mean = 0.9 * self.mean + 0.1 * plan.get("gain", 1) * message.angular_velocity.z
        if self.heard > plan.get("crash_after", sys.maxsize):
            os._exit(11)
        if self.heard > plan.get("leave_after", sys.maxsize):
            self.stop = True
            return
        if self.heard > plan.get("mute_after", sys.maxsize) or self.heard == plan.get("skip"):
            return
        answer = Imu(header=message.header)
        if self.heard == plan.get("stale"):
            # An answer without a stamp would answer.
            answer.header.stamp = Time(nanosec=1)
        answer.angular_velocity.z = self.mean
        answer.orientation.x = float(self.heard)
        if plan.get("sim_time"):
            self.times.append(self.node.get_clock().now().nanoseconds)
            answer.orientation.y = self.times[-1] * 1e-9
        if plan.get("text"):
            answer = String(data=f"{self.heard} {self.mean}")
        for _ in range(plan.get("copies", 1)):
            self.publisher.publish(answer)

    def run(self):
        tell(event="ready")
        for _ in range(self.plan.get("early", 0)):
            while not self.publisher.get_subscription_count():
                time.sleep(0.01)
            self.publisher.publish(String(data="early") if self.plan.get("text") else Imu())
        while rclpy.ok() and not self.stop:
            rclpy.spin_once(self.node, timeout_sec=0.1)
        self.node.destroy_node()


def main():
    plan = json.load(sys.stdin if sys.argv[1] == "-" else open(sys.argv[1]))
    rclpy.init(signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
    node = UnderTest(plan)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: setattr(node, "stop", True))
    node.run()
    tell(event="done", times=node.times)
    rclpy.try_shutdown()


if __name__ == "__main__":
    main()
