"""A simulator: publishes /clock and after each step a message with its number, run after run; each run begins at a time of its own.

The plan: `runs` (seconds on /clock at which each begins), `steps` of each, `step_s` of /clock, `every_s` of real time, `topic`."""

import json
import sys
import time

import rclpy
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock
from std_msgs.msg import String


def say(**what):
    print(json.dumps(what), flush=True)


plan = json.load(sys.stdin)
rclpy.init()
node = rclpy.create_node("simulator")
clock = node.create_publisher(Clock, "/clock", QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT))
messages = node.create_publisher(String, plan["topic"], 10)
while clock.get_subscription_count() == 0:
    time.sleep(0.01)
sent = 0
for run, begin in enumerate(plan["runs"]):
    for step in range(plan["steps"]):
        now = Clock()
        nanos = round((begin + step * plan["step_s"]) * 1e9)
        now.clock.sec, now.clock.nanosec = divmod(nanos, 10**9)
        clock.publish(now)
        time.sleep(plan["every_s"] / 2)
        if messages.get_subscription_count():
            messages.publish(String(data=f"{run} {sent}"))
            sent += 1
        time.sleep(plan["every_s"] / 2)
say(event="done", sent=sent)
node.destroy_node()
rclpy.shutdown()
