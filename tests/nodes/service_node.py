"""A real rclpy node that serves or calls a service of type test_msgs/srv/BasicTypes.

Usage: service_node.py PLAN.json    (or `-` for standard input)

PLAN: {"serve": NAME} answers each request with its own number and its text twice, until SIGINT or SIGTERM.
PLAN: {"call": NAME, "count": N, "text": TEXT} calls it N times, one after the other, and expects the same answers. Each event is one JSON object on a
line of standard output: {"event": "ready"} once it serves, or at the end {"event": "done", "right": N, "milliseconds": [...]}.
With "introspection" its events have contents; with "rate_hz" calls are due at that rate, and take the time since then; with "recorders" the first one
waits for that many subscriptions of the events.
"""

import json
import signal
import sys
import threading
import time

import rclpy
import rclpy.executors
from rclpy.qos import QoSProfile
from rclpy.service_introspection import ServiceIntrospectionState
from test_msgs.srv import BasicTypes

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from talker import tell as report  # noqa: E402

# A call without an answer must not block the test for ever.
DEADLINE_S = 20.0


def answer(request, response):
    response.int64_value = request.int64_value
    response.string_value = request.string_value * 2
    return response


def introspect(side, node, plan):
    if plan.get("introspection"):
        side.configure_introspection(node.get_clock(), QoSProfile(depth=100), ServiceIntrospectionState.CONTENTS)


def call(node, plan):
    client = node.create_client(BasicTypes, plan["call"])
    introspect(client, node, plan)
    assert client.wait_for_service(timeout_sec=DEADLINE_S), "there is no such service"
    end = time.monotonic() + DEADLINE_S
    while node.count_subscribers(f"{plan['call']}/_service_event") < plan.get("recorders", 0):
        assert time.monotonic() < end, "nothing records the events"
        time.sleep(0.005)
    executor = rclpy.executors.SingleThreadedExecutor()
    executor.add_node(node)
    right, took, start = 0, [], time.monotonic()
    for number in range(plan["count"]):
        began = time.monotonic()
        if "rate_hz" in plan:
            due = start + number / plan["rate_hz"]
            time.sleep(max(0, due - began))
            began = due
        future = client.call_async(BasicTypes.Request(int64_value=number, string_value=plan["text"]))
        executor.spin_until_future_complete(future, timeout_sec=DEADLINE_S)
        took.append(1e3 * (time.monotonic() - began))
        result = future.result() if future.done() else None
        right += result is not None and (result.int64_value, result.string_value) == (number, plan["text"] * 2)
    report(event="done", right=right, milliseconds=took)


def serve(node, plan, stop):
    introspect(node.create_service(BasicTypes, plan["serve"], answer), node, plan)
    executor = rclpy.executors.SingleThreadedExecutor()
    executor.add_node(node)
    spinner = threading.Thread(target=executor.spin)
    spinner.start()
    report(event="ready")
    # A wait without a limit can sleep on past a signal that comes just before it (seen once in 4 500 signals).
    while not stop.wait(0.05):
        pass
    executor.shutdown()
    spinner.join()


def main():
    plan = json.load(sys.stdin if sys.argv[1] == "-" else open(sys.argv[1]))
    stop = threading.Event()
    rclpy.init(signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    node = rclpy.create_node("service_node", enable_rosout=False)
    if "serve" in plan:
        serve(node, plan, stop)
    else:
        call(node, plan)
    rclpy.try_shutdown()


if __name__ == "__main__":
    main()
