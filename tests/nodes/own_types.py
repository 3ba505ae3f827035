"""A real ROS 2 node with types that holdall does not bundle: a message, a service with introspection, an action's feedback.

Usage: own_types.py PLAN.json    (or `-` for standard input)

PLAN: {"rate_hz": N, "spin": bool, "service": bool, "action": bool, "large": BYTES}
Publishes test_msgs/msg/Builtins on /own, with "large" also test_msgs/msg/UnboundedSequences on /own_large, until SIGINT or SIGTERM. A node answers questions for its types only while it spins: without "spin" it
begins to spin at SIGUSR1. Prints {"event": "ready"}, and at the end {"event": "done", "sent": N}.
"""

import array
import json
import signal
import sys
import threading

import rclpy
import rclpy.executors
from rclpy.qos import qos_profile_system_default
from rclpy.service_introspection import ServiceIntrospectionState
from test_msgs.action import Fibonacci
from test_msgs.msg import Builtins, UnboundedSequences
from test_msgs.srv import BasicTypes

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from talker import tell  # noqa: E402


def main():
    plan = json.load(sys.stdin if sys.argv[1] == "-" else open(sys.argv[1]))
    stop, spin = threading.Event(), threading.Event()
    rclpy.init(signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    signal.signal(signal.SIGUSR1, lambda *_: spin.set())
    if plan.get("spin", True):
        spin.set()
    node = rclpy.create_node("own_types", enable_rosout=False)
    own = node.create_publisher(Builtins, "/own", 10)
    feedback = node.create_publisher(Fibonacci.Impl.FeedbackMessage, "/count/_action/feedback", 10) if plan.get("action") else None
    large = node.create_publisher(UnboundedSequences, "/own_large", 100) if plan.get("large") else None
    values = UnboundedSequences(uint8_values=array.array("B", bytes(plan.get("large", 0))))
    client = None
    if plan.get("service"):
        service = node.create_service(BasicTypes, "/basic", lambda request, response: response)
        service.configure_introspection(node.get_clock(), qos_profile_system_default, ServiceIntrospectionState.CONTENTS)
        client = node.create_client(BasicTypes, "/basic")
    executor = rclpy.executors.SingleThreadedExecutor()
    executor.add_node(node)

    def spin_when_told():
        while not stop.is_set() and not spin.wait(0.05):
            pass
        if not stop.is_set():
            executor.spin()

    spinner = threading.Thread(target=spin_when_told)
    spinner.start()
    tell(event="ready")
    sent = 0
    while not stop.wait(1 / plan.get("rate_hz", 50)):
        message = Builtins()
        message.time_value.sec = sent
        own.publish(message)
        sent += 1
        if large:
            large.publish(values)
        if feedback:
            feedback.publish(Fibonacci.Impl.FeedbackMessage())
        if client and client.service_is_ready():
            client.call_async(BasicTypes.Request())
    tell(event="done", sent=sent)
    spin.set()
    executor.shutdown()
    rclpy.try_shutdown()
    spinner.join()


if __name__ == "__main__":
    main()
