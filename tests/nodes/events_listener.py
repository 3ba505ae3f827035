"""A real rclpy node that receives a recorder's messages on `events/...`, whose types no Python package has: it takes them serialized.

Usage: events_listener.py PLAN.json    (or `-` for standard input)

PLAN: {"subscriptions": [{"topic": NAME, "type": "package/msg/Type"}...]}
Each event is one JSON object on a line of standard output: {"event": "ready"}, {"event": "heard", "topic", "data" (hexadecimal CDR)}; SIGINT ends it.

rclpy subscribes with the type support of a generated class. Here it gets that of std_msgs/msg/String under another type's name: a
subscription that takes serialized messages uses nothing of it but the name.
"""

import ctypes
import json
import os
import signal
import sys
import threading

import rclpy
import rclpy.executors
from rclpy.qos import QoSProfile, ReliabilityPolicy
from std_msgs.msg import String

FAST_DDS = b"rosidl_typesupport_fastrtps_c"
# Names and functions of a type in Fast DDS's type support; the bytes after the names are copied unchanged.
CALLBACK_WORDS = 10
kept = []


HANDLE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)


class TypeSupport(ctypes.Structure):
    """`rosidl_message_type_support_t`."""

    _fields_ = [
        ("identifier", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("handle", ctypes.c_void_p),
        ("hash", ctypes.c_void_p),
        ("description", ctypes.c_void_p),
        ("sources", ctypes.c_void_p),
    ]


def pointer_in(capsule):
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype, api.PyCapsule_GetPointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))


def capsule_of(structure):
    api = ctypes.pythonapi
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return api.PyCapsule_New(ctypes.addressof(structure), None, None)


def class_named(type_name):
    """A message class that rclpy takes, with String's type support under another name."""
    package, _, name = type_name.split("/")
    String.__class__.__import_type_support__()
    address = pointer_in(String.__class__._TYPE_SUPPORT)
    generic = TypeSupport.from_address(address)
    of_string = HANDLE(generic.handle)
    inner = TypeSupport.from_address(of_string(address, FAST_DDS))
    callbacks = (ctypes.c_void_p * CALLBACK_WORDS)()
    ctypes.memmove(callbacks, inner.data, ctypes.sizeof(callbacks))
    separator = "__" if b"__" in ctypes.string_at(callbacks[0]) else "::"
    names = [ctypes.create_string_buffer(text.encode()) for text in (f"{package}{separator}msg", name)]
    callbacks[0], callbacks[1] = (ctypes.addressof(text) for text in names)
    renamed = TypeSupport(FAST_DDS, ctypes.addressof(callbacks), None, generic.hash, generic.description, generic.sources)
    handle = HANDLE(lambda _, identifier: ctypes.addressof(renamed) if identifier == FAST_DDS else of_string(address, identifier))
    renamed.handle = ctypes.cast(handle, ctypes.c_void_p).value
    kept.extend([of_string, callbacks, names, renamed, handle])
    of_class = {key: getattr(String.__class__, key) for key in dir(String.__class__) if key.startswith("_") and key.isupper()}
    return type("Metaclass_" + name, (type,), {**of_class, "_TYPE_SUPPORT": capsule_of(renamed)})(name, (), {})


def tell(**event):
    # One write: lines of several threads do not mix.
    os.write(1, json.dumps(event).encode() + b"\n")


def main():
    plan = json.load(sys.stdin if sys.argv[1] == "-" else open(sys.argv[1]))
    stop = threading.Event()
    rclpy.init(signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    node = rclpy.create_node("events_listener")
    qos = QoSProfile(depth=100, reliability=ReliabilityPolicy.RELIABLE)
    for wanted in plan["subscriptions"]:
        topic = wanted["topic"]
        hear = lambda data, topic=topic: tell(event="heard", topic=topic, data=data.hex())  # noqa: E731
        node.create_subscription(class_named(wanted["type"]), topic, hear, qos, raw=True)
    executor = rclpy.executors.SingleThreadedExecutor()
    executor.add_node(node)
    spinner = threading.Thread(target=executor.spin)
    spinner.start()
    tell(event="ready")
    # A wait without a limit can sleep on past a signal that comes just before it (seen once in 4 500 signals).
    while not stop.wait(0.05):
        pass
    executor.shutdown()
    rclpy.try_shutdown()
    spinner.join()


if __name__ == "__main__":
    main()
