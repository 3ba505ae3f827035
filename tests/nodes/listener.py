"""A real ROS 2 node that subscribes according to a JSON plan and reports what arrived.

Usage: listener.py PLAN.json    (or `-` for standard input)

PLAN: {"node": NAME, "subscriptions": [{"topic", "type", "qos": {...}}...]}
Prints {"event": "heard", "topic"} at the first message of each topic.
Runs until SIGINT or SIGTERM, or until `expect` ({topic: count}) is reached. Prints {"event": "ready"} when it listens, and at the end
{"event": "done", "received": {topic: {"count", "md5", "stamps"}}}: md5 over the serialized messages in the order of arrival, and with
`stamps` true the arrival times in ns (monotonic).
"""

import faulthandler
import hashlib
import importlib
import json
import signal
import sys
import threading
import time

import rclpy
import rclpy.executors

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from talker import qos_of, tell  # noqa: E402


def type_of(name):
    package, _, kind = name.split("/")
    return getattr(importlib.import_module(package + ".msg"), kind)


def main():
    plan = json.load(sys.stdin if sys.argv[1] == "-" else open(sys.argv[1]))
    stop = threading.Event()
    rclpy.init(signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    node = rclpy.create_node(plan.get("node", "listener"))
    received = {}
    expect = plan.get("expect")

    def subscribe(entry):
        account = received[entry["topic"]] = {"count": 0, "md5": hashlib.md5(), "stamps": []}

        def on_message(data):
            if not data:
                return  # Fast DDS 2.14.5 returns nothing, again and again, while a fragmented sample is incomplete.
            account["count"] += 1
            if account["count"] == 1:
                tell(event="heard", topic=entry["topic"])
            account["md5"].update(data)
            if plan.get("stamps"):
                account["stamps"].append(time.monotonic_ns())
            if expect and all(received[t]["count"] >= n for t, n in expect.items()):
                stop.set()

        qos = qos_of({"depth": 1000, **entry.get("qos", {})})
        node.create_subscription(type_of(entry["type"]), entry["topic"], on_message, qos, raw=True)

    for entry in plan["subscriptions"]:
        subscribe(entry)
    tell(event="ready")
    executor = rclpy.executors.SingleThreadedExecutor()
    executor.add_node(node)
    while not stop.is_set():
        executor.spin_once(timeout_sec=0.05)
    out = {t: {**a, "md5": a["md5"].hexdigest()} for t, a in received.items()}
    tell(event="done", received=out)
    # A node that hangs while it is taken down reports where, and is gone.
    faulthandler.dump_traceback_later(20, exit=True)
    node.destroy_node()
    rclpy.try_shutdown()


if __name__ == "__main__":
    main()
