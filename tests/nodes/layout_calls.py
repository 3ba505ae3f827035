"""Calls services as a node of a distribution does, with types that ROS's own generators made from that distribution's texts.

Usage: layout_calls.py PLAN.json    (or `-` for standard input)

PLAN: {"types": TEXTS, "folder": FOLDER, "hashes": bool, "client": "rclpy" | "cyclone", "events": {TOPIC: TYPE...},
       "calls": [{"service", "type", "request": {...}}...]}
TEXTS are made into FOLDER first (see generated_types.py). Without "hashes" the endpoints announce none, as in Humble. Prints {"event": "answered",
"service", "reply": {...} or null} for each call, {"event": "heard", "topic", "message"} for each message of `events` until SIGTERM, and {"event": "done"}
when all calls are made.
"""

import ctypes
import glob
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from service_calls import DEADLINE_S, LOCALHOST, report  # noqa: E402

PACKAGE = "rosbag2_interfaces"


def fields_of(message):
    """A generated message as a dictionary."""
    if isinstance(message, list):
        return [fields_of(each) for each in message]
    if not hasattr(message, "get_fields_and_field_types"):
        return message
    return {name: fields_of(getattr(message, name)) for name in message.get_fields_and_field_types()}


def fill(message, values):
    for name, value in values.items():
        if isinstance(value, dict):
            fill(getattr(message, name), value)
        else:
            setattr(message, name, value)
    return message


def rclpy_calls(plan):
    import importlib

    import rclpy

    services = importlib.import_module(f"{PACKAGE}.srv")
    messages = importlib.import_module(f"{PACKAGE}.msg")
    rclpy.init(signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
    node = rclpy.create_node("caller", enable_rosout=False)
    executor = rclpy.executors.SingleThreadedExecutor()
    executor.add_node(node)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    for topic, kind in plan.get("events", {}).items():

        def heard(message, topic=topic):
            report(event="heard", topic=topic, message=fields_of(message))

        node.create_subscription(getattr(messages, kind), topic, heard, 10)
    clients = {}
    for call in plan["calls"]:
        kind = getattr(services, call["type"])
        client = clients.setdefault(call["service"], node.create_client(kind, call["service"]))
        reply = None
        if client.wait_for_service(timeout_sec=DEADLINE_S):
            future = client.call_async(fill(kind.Request(), call.get("request", {})))
            executor.spin_until_future_complete(future, timeout_sec=plan.get("wait", DEADLINE_S))
            reply = fields_of(future.result()) if future.done() else None
        report(event="answered", service=call["service"], reply=reply)
    report(event="done")
    while plan.get("events") and not stop.is_set():
        executor.spin_once(timeout_sec=0.05)
    executor.shutdown()
    node.destroy_node()
    rclpy.try_shutdown()


def cyclone_calls(plan):
    os.environ["CYCLONEDDS_URI"] = LOCALHOST
    import types

    import cyclonedds.idl.annotations as annotations
    from cyclonedds.core import Policy, Qos
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.idl import IdlStruct
    from cyclonedds.idl.types import array, int32, int64, sequence, uint64
    from cyclonedds.pub import DataWriter
    from cyclonedds.sub import DataReader
    from cyclonedds.topic import Topic
    from cyclonedds.util import duration
    from generated_types import texts_in

    plain = {"int32": int32, "uint64": uint64, "string": str, "bool": bool, "builtin_interfaces/Time": array[int32, 2]}
    zero = {"int32": 0, "string": "", "bool": False, "builtin_interfaces/Time": [0, 0]}
    texts = texts_in(plan["types"])
    participant = DomainParticipant(int(os.environ.get("ROS_DOMAIN_ID", 0)))

    def struct(type_name, known):
        made = types.new_class("Sample", (IdlStruct,), {"typename": type_name}, lambda space: space.update(__annotations__=known))
        return annotations.final(dataclass(made))

    def parsed(text):
        return [line.split() for line in text.splitlines() if line.strip() and "=" not in line]

    def type_of(name):
        """A plain type, one of the package's own, or a sequence of it."""
        if name.endswith("[]"):
            return sequence[type_of(name[:-2])]
        if name not in plain:
            plain[name] = struct(f"{PACKAGE}.msg.dds_.{name}_", {field: type_of(kind) for kind, field in parsed(texts[f"msg/{name}"])})
        return plain[name]

    def value_of(sample):
        if isinstance(sample, list):
            return [value_of(each) for each in sample]
        if hasattr(sample, "__dataclass_fields__"):
            return {name: value_of(getattr(sample, name)) for name in sample.__dataclass_fields__}
        return sample

    reliable = Policy.Reliability.Reliable(duration(seconds=1)), Policy.DataRepresentation(use_cdrv0_representation=True)
    events = {}
    for topic, kind in plan.get("events", {}).items():
        event = type_of(kind)
        events[topic] = DataReader(participant, Topic(participant, f"rt{topic}", event), qos=Qos(*reliable, Policy.History.KeepLast(10)))
    for call in plan["calls"]:
        kind = call["type"]
        parts = {}
        for part, text in zip(("Request", "Response"), texts[f"srv/{kind}"].split("---")):
            fields = parsed(text)
            known = {"guid": uint64, "number": int64, **{name: plain[type_name] for type_name, name in fields}}
            parts[part] = struct(f"{PACKAGE}.srv.dds_.{kind}_{part}_", known), {name: zero[type_name] for type_name, name in fields}

        def qos(part):
            hashed = f"typehash={type_hash(plan['folder'], f'{kind}_{part}')};" if plan.get("hashes", True) else ""
            identity = ".".join(f"{byte:x}" for byte in os.urandom(16))
            return Qos(
                *reliable,
                Policy.History.KeepLast(10),
                Policy.Userdata(f"clientid={identity};{hashed}".encode()),
            )

        below = call["service"].lstrip("/")
        request, values = parts["Request"]
        writer = DataWriter(participant, Topic(participant, f"rq/{below}Request", request), qos=qos("Request"))
        reader = DataReader(participant, Topic(participant, f"rr/{below}Reply", parts["Response"][0]), qos=qos("Response"))
        end = time.monotonic() + DEADLINE_S
        while not (writer.get_matched_subscriptions() and reader.get_matched_publications()) and time.monotonic() < end:
            time.sleep(0.002)
        guid = int.from_bytes(os.urandom(8), "little")
        given = {name: [value["sec"], value["nanosec"]] if isinstance(value, dict) else value for name, value in call.get("request", {}).items()}
        writer.write(request(guid=guid, number=1, **{**values, **given}))
        reply = None
        while reply is None and time.monotonic() < end:
            for sample in reader.take(10):
                if getattr(sample, "guid", None) == guid:
                    reply = {name: getattr(sample, name) for name in parts["Response"][1]}
            time.sleep(0.0005)
        report(event="answered", service=call["service"], reply=reply)
    report(event="done")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    while events and not stop.wait(0.02):
        for topic, reader in events.items():
            for sample in reader.take(10):
                if hasattr(sample, "__dataclass_fields__"):
                    report(event="heard", topic=topic, message=value_of(sample))


def type_hash(folder, name):
    """What rosidl computed."""
    described = json.load(open(f"{folder}/{PACKAGE}/srv/{name.split('_')[0]}.json"))
    return next(each["hash_string"] for each in described["type_hashes"] if each["type_name"] == f"{PACKAGE}/srv/{name}")


def main():
    plan = json.load(sys.stdin if sys.argv[1] == "-" else open(sys.argv[1]))
    without = [] if plan.get("hashes", True) else ["--without-hashes"]
    made = subprocess.run(
        [sys.executable, f"{HERE}/generated_types.py", PACKAGE, plan["types"], plan["folder"], *without], stdout=subprocess.DEVNULL, check=False
    )
    assert made.returncode == 0, "the types cannot be made"
    sys.path.insert(0, plan["folder"])
    for library in glob.glob(f"{plan['folder']}/lib*__*.so"):
        ctypes.CDLL(library)
    {"rclpy": rclpy_calls, "cyclone": cyclone_calls}[plan["client"]](plan)


if __name__ == "__main__":
    main()
