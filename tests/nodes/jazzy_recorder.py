"""A real ROS 2 node that records as rosbag2 does: one type that it does not know ends its discovery, and it gets to no topic after that.

Usage: jazzy_recorder.py PLAN.json    (or `-` for standard input)

PLAN: {"known": [TYPE...]}: the types of its distribution.
rosbag2 0.26 subscribes to the topics of the graph in a loop; for a type without type support its loop ends with an exception, in each cycle of
discovery again. Prints {"event": "subscribed", "topic"} for each topic, {"event": "failed", "topic", "type"} at the first failure of each topic,
{"event": "heard", "topic"} at the first message of each, and at SIGINT or SIGTERM {"event": "done", "failed": [TOPIC...]}.
"""

import importlib
import json
import signal
import sys
import threading

import rclpy
import rclpy.executors

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from talker import qos_of, tell  # noqa: E402


def type_of(name):
    """The Python class of a type; `None` for one that exists in the distribution but is not installed here."""
    package, _, kind = name.split("/")
    try:
        return getattr(importlib.import_module(package + ".msg"), kind)
    except ModuleNotFoundError:
        return None


def main():
    plan = json.load(sys.stdin if sys.argv[1] == "-" else open(sys.argv[1]))
    known = set(plan["known"])
    stop = threading.Event()
    rclpy.init(signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    node = rclpy.create_node("jazzy_recorder", enable_rosout=False)
    executor = rclpy.executors.SingleThreadedExecutor()
    executor.add_node(node)
    spinner = threading.Thread(target=executor.spin)
    spinner.start()
    subscribed, failed, heard = set(), set(), set()

    def subscribe(topic, type_name):
        def on_message(_):
            if topic not in heard:
                heard.add(topic)
                tell(event="heard", topic=topic)

        kind = type_of(type_name)
        if kind:
            node.create_subscription(kind, topic, on_message, qos_of({"depth": 10, "reliability": "best_effort"}), raw=True)
        subscribed.add(topic)
        tell(event="subscribed", topic=topic)

    tell(event="ready")
    while not stop.wait(0.1):
        for topic, types in sorted(node.get_topic_names_and_types()):
            if types[0] not in known:
                if topic not in failed:
                    failed.add(topic)
                    tell(event="failed", topic=topic, type=types[0])
                break
            if topic not in subscribed:
                subscribe(topic, types[0])
    tell(event="done", failed=sorted(failed))
    executor.shutdown()
    rclpy.try_shutdown()
    spinner.join()


if __name__ == "__main__":
    main()
