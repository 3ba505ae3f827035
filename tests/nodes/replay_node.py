"""A real rclpy node whose calls are recorded and replayed: servers of a service and of an action, and their introspection events.

Usage: replay_node.py PLAN.json    (or `-` for standard input)

PLAN, each part optional:
  {"serve": NAME, "introspection": "CONTENTS"|"METADATA", "calls": [[NUMBER, TEXT], ...], "silent": bool}
      a server of test_msgs/srv/BasicTypes that reports each {"event": "request", "number": N, "text": TEXT}; after {"event": "ready"} a line on
      SIGUSR1 makes the node call it itself, then {"event": "called"}; "silent" refuses to answer (it never returns), "lose": N refuses the Nth
      request alone, and with "leave_after": N the node ends after N requests
  {"action": NAME, "work_s": S} a server of test_msgs/action/Fibonacci that reports {"event": "goal", "order": N, "id": HEX} and, after that time,
      {"event": "finished", "id": HEX}; "lose": N does not finish the Nth goal
  {"goal_events": NAME, "orders": [N, ...]} publishes, on SIGUSR1, what the servers of an action with introspection publish (rclpy of Jazzy has none for actions),
      feedback included; then {"event": "published", "ids": [HEX, ...]}
Ends at SIGINT or SIGTERM.
"""

import itertools
import json
import signal
import sys
import threading
import time

import rclpy
import rclpy.executors
from rclpy.action import ActionServer
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.qos import QoSProfile, qos_profile_system_default
from rclpy.service_introspection import ServiceIntrospectionState
from test_msgs.action import Fibonacci
from test_msgs.srv import BasicTypes

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from talker import tell as report  # noqa: E402

REQUEST_RECEIVED, RESPONSE_SENT = 1, 2


def serve(node, plan, stop, begin):
    numbers = itertools.count(1)

    def answer(request, response):
        number = next(numbers)
        report(event="request", number=request.int64_value, text=request.string_value)
        if plan.get("silent") or number == plan.get("lose"):
            stop.wait()
        if number == plan.get("leave_after"):
            stop.set()
            begin.set()
        response.int64_value = request.int64_value
        return response

    # One that does not return must not hold back the others.
    group = ReentrantCallbackGroup() if "lose" in plan else None
    service = node.create_service(BasicTypes, plan["serve"], answer, callback_group=group)
    state = getattr(ServiceIntrospectionState, plan.get("introspection", "OFF"))
    service.configure_introspection(node.get_clock(), qos_profile_system_default, state)
    client = node.create_client(BasicTypes, plan["serve"])
    client.configure_introspection(node.get_clock(), qos_profile_system_default, state)

    def call():
        assert client.wait_for_service(timeout_sec=20)
        # Calls before the recorder is found are in no bag.
        while plan.get("introspection") and not node.count_subscribers(f"{plan['serve']}/_service_event"):
            time.sleep(0.005)
        for number, text in plan.get("calls", []):
            future = client.call_async(BasicTypes.Request(int64_value=number, string_value=text))
            while not future.done():
                time.sleep(0.005)
        report(event="called")

    return call


def act(node, plan, stop):
    numbers = itertools.count(1)

    def execute(goal):
        identity = bytes(goal.goal_id.uuid).hex()
        report(event="goal", order=goal.request.order, id=identity)
        time.sleep(plan.get("work_s", 0))
        if next(numbers) == plan.get("lose"):
            stop.wait()
        goal.succeed()
        report(event="finished", id=identity)
        return Fibonacci.Result(sequence=list(range(goal.request.order)))

    return ActionServer(node, Fibonacci, plan["action"], execute, callback_group=ReentrantCallbackGroup())


def goal_events(node, plan):
    name, ids = f"{plan['goal_events']}/_action", []
    send, get = Fibonacci.Impl.SendGoalService, Fibonacci.Impl.GetResultService
    sent = node.create_publisher(send.Event, f"{name}/send_goal/_service_event", QoSProfile(depth=100))
    got = node.create_publisher(get.Event, f"{name}/get_result/_service_event", QoSProfile(depth=100))
    feedback = node.create_publisher(Fibonacci.Impl.FeedbackMessage, f"{name}/feedback", QoSProfile(depth=100))

    def publish():
        # What is published before the recorder is found is in no bag.
        while not all(publisher.get_subscription_count() for publisher in (sent, got, feedback)):
            time.sleep(0.005)
        for place, order in enumerate(plan["orders"]):
            request, result, event = send.Request(), get.Request(), send.Event()
            request.goal.order = order
            request.goal_id.uuid[:] = result.goal_id.uuid[:] = [place + 1] * 16
            ids.append(bytes(request.goal_id.uuid).hex())
            event.info.event_type, event.request = REQUEST_RECEIVED, [request]
            sent.publish(event)
            event.info.event_type, event.request = RESPONSE_SENT, []
            sent.publish(event)
            feedback.publish(Fibonacci.Impl.FeedbackMessage())
            event = get.Event()
            event.info.event_type, event.request = REQUEST_RECEIVED, [result]
            got.publish(event)
            time.sleep(0.05)
        report(event="published", ids=ids)

    return publish


def main():
    plan = json.load(sys.stdin if sys.argv[1] == "-" else open(sys.argv[1]))
    stop, begin = threading.Event(), threading.Event()
    rclpy.init(signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: (stop.set(), begin.set()))
    signal.signal(signal.SIGUSR1, lambda *_: begin.set())
    node = rclpy.create_node("replay_node", enable_rosout=False)
    work = [serve(node, plan, stop, begin)] if "serve" in plan else []
    action = act(node, plan, stop) if "action" in plan else None
    work += [goal_events(node, plan)] if "goal_events" in plan else []
    executor = rclpy.executors.MultiThreadedExecutor(num_threads=4)
    executor.add_node(node)
    spinner = threading.Thread(target=executor.spin)
    spinner.start()
    report(event="ready")
    # A wait without a limit can sleep on past a signal that comes just before it (seen once in 4 500 signals).
    while not begin.wait(0.05):
        pass
    for do in work if not stop.is_set() else []:
        do()
    while not stop.wait(0.05):
        pass
    executor.shutdown()
    if action:
        action.destroy()
    node.destroy_node()
    rclpy.try_shutdown()
    spinner.join()


if __name__ == "__main__":
    main()
