"""Calls services of any type as real ROS 2 clients do: rclpy on Fast DDS, or pip's cyclonedds in the form of rmw_cyclonedds.

Usage: service_calls.py PLAN.json    (or `-` for standard input)

PLAN: {"client": "rclpy" | "cyclone", "definitions": FILE, "calls": [{"service", "type", "request": {...}, "raw": HEX, "count": N}...], "fresh": N}
Each call is made `count` times, one after the other, or "fresh" times with a client of its own node each. Each event is one JSON object on a line of
standard output: {"event": "answered", "service", "reply": {...}, "milliseconds": [...], "answered": N}; {"event": "done"} at the end.

No Python package has these types. The definitions are those that holdall carries; requests and replies are serialized with them by `rosbags`. rclpy gets
a type support whose only field is bytes, and hands the serialized body through, as events_listener.py does for messages.
"""

import array
import ctypes
import json
import os
import sys
import time
import types
from dataclasses import dataclass

from rosbags.typesys import Stores, get_types_from_msg, get_typestore

sys.path.insert(0, __file__.rsplit("/", 1)[0])

DEADLINE_S = 20.0
STORE = get_typestore(Stores.ROS2_JAZZY)


def report(**event):
    # One write: lines of several threads do not mix.
    os.write(1, json.dumps(event).encode() + b"\n")


def definition_of(path, name):
    """Request and response of a service in holdall's own text of definitions."""
    data = open(path, "rb").read()
    mark = data.index(b"\n@@ " + name.encode() + b" ") + 1
    head, body = data[mark:].split(b"\n", 1)
    text = body[: int(head.split(b" ")[4])].decode()
    request, _, response = text.partition("---\n")
    return request, response


def register(path, name):
    """Names in `rosbags` of a service's request and response."""
    names = []
    for part, text in zip(("Request", "Response"), definition_of(path, name)):
        package, _, kind = name.split("/")
        message = f"{package}/msg/{kind}_{part}"
        if message not in STORE.fielddefs:
            STORE.register(get_types_from_msg(text if text.strip() else "uint8 structure_needs_at_least_one_member\n", message))
        names.append(message)
    return names


def value_of(type_name, fields):
    """A message with these fields; all others are zero."""
    members = {}
    for name, (kind, detail) in STORE.fielddefs[type_name][1]:
        given = fields.get(name)
        members[name] = field_of(kind, detail, given)
    return STORE.types[type_name](**members)


def field_of(kind, detail, given):
    if kind == 1:
        zero = "" if detail[0] in ("string", "wstring") else False if detail[0] == "bool" else 0
        return zero if given is None else given
    if kind == 2:
        return value_of(detail, given or {})
    return [field_of(*detail[0], each) for each in given or []]


def fields_of(message):
    if hasattr(message, "__msgtype__"):
        return {name: fields_of(getattr(message, name)) for name, _ in STORE.fielddefs[message.__msgtype__][1]}
    if isinstance(message, (list, tuple)):
        return [fields_of(each) for each in message]
    return message.tolist() if hasattr(message, "tolist") else message


class Call:
    """One kind of call: its serialized request, and how its replies are read."""

    def __init__(self, plan, definitions):
        self.service, self.type = plan["service"], plan["type"]
        request, self.response = register(definitions, self.type)
        self.count = plan.get("count", 1)
        if "raw" in plan:
            self.body = bytes.fromhex(plan["raw"])
        else:
            self.body = bytes(STORE.serialize_cdr(value_of(request, plan.get("request", {})), request))[4:]

    def reply(self, body):
        padded = b"\0\1\0\0" + body
        return fields_of(STORE.deserialize_cdr(padded, self.response))


# rclpy -------------------------------------------------------------------------------------------------------------------------------------

FAST_DDS = b"rosidl_typesupport_fastrtps_c"
# Of the buffer in `eprosima::fastcdr::Cdr` (Fast-CDR 2.2).
BUFFER_OFFSET = 112
kept = []


class MessageSupport(ctypes.Structure):
    """`rosidl_message_type_support_t`."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("identifier", "data", "handle", "hash", "description", "sources")]


class Bytes(ctypes.Structure):
    """`std_msgs__msg__UInt8MultiArray`: a layout (a sequence and a number), then the bytes."""

    _fields_ = [
        ("dimensions", ctypes.c_void_p * 3),
        ("offset", ctypes.c_uint32),
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("capacity", ctypes.c_size_t),
    ]


def raw_callbacks(namespace, name):
    """Fast DDS's type support of a type whose body is passed through."""
    cdr = ctypes.CDLL(next(path for path in maps() if "libfastcdr" in path))
    runtime = ctypes.CDLL(next(path for path in maps() if "librosidl_runtime_c" in path))
    put = getattr(cdr, "_ZN8eprosima7fastcdr3Cdr15serialize_arrayEPKcm")
    put.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    put.restype = ctypes.c_void_p
    init = runtime.rosidl_runtime_c__uint8__Sequence__init
    init.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    init.restype = ctypes.c_bool
    fini = runtime.rosidl_runtime_c__uint8__Sequence__fini
    fini.argtypes = [ctypes.c_void_p]

    def serialize(message, stream):
        source = Bytes.from_address(message)
        put(stream, source.data, source.size)
        return True

    def deserialize(stream, message):
        # Cdr has pointers to seven member functions, then the reference to its buffer, which has address and size after its functions; 4 bytes of
        # encapsulation precede the body.
        buffer = ctypes.c_void_p.from_address(stream + BUFFER_OFFSET).value
        begin, size = (ctypes.c_size_t.from_address(buffer + 8 * word).value for word in (1, 2))
        sequence = message + Bytes.data.offset
        fini(sequence)
        assert init(sequence, size - 4)
        ctypes.memmove(Bytes.from_address(message).data, begin + 4, size - 4)
        return True

    functions = [
        ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p)(serialize),
        ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p)(deserialize),
        ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)(lambda message: Bytes.from_address(message).size),
        ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p)(lambda _: 1 << 16),
    ]
    texts = [ctypes.create_string_buffer(text.encode()) for text in (namespace, name)]
    words = (ctypes.c_void_p * 10)()
    words[0], words[1] = (ctypes.addressof(text) for text in texts)
    for index, function in enumerate(functions):
        words[2 + index] = ctypes.cast(function, ctypes.c_void_p)
    kept.extend([functions, texts, words])
    return ctypes.addressof(words)


def maps():
    return dict.fromkeys(line.split()[-1] for line in open("/proc/self/maps") if ".so" in line)


def service_class(type_name):
    """A service class that rclpy takes, with bytes as request and response under the service's name."""
    from events_listener import capsule_of, pointer_in
    from rcl_interfaces.srv import GetParameters
    from std_msgs.msg import UInt8MultiArray

    package, _, kind = type_name.split("/")
    UInt8MultiArray.__class__.__import_type_support__()
    GetParameters.__class__.__import_type_support__()
    handle_type = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
    message = MessageSupport.from_address(pointer_in(UInt8MultiArray.__class__._TYPE_SUPPORT))
    identifier = ctypes.create_string_buffer(FAST_DDS)
    members = []
    for part in ("Request", "Response"):
        support = MessageSupport(
            ctypes.addressof(identifier), raw_callbacks(f"{package}::srv", f"{kind}_{part}"), None, message.hash, message.description, message.sources
        )
        members.append(support)
    texts = [ctypes.create_string_buffer(text.encode()) for text in (f"{package}::srv", kind)]
    service = (ctypes.c_void_p * 4)(*(ctypes.addressof(each) for each in (*texts, *members)))
    # `rosidl_service_type_support_t` has 11 words; the first three are the identifier, the data and how another one is found.
    address = pointer_in(GetParameters.__class__._TYPE_SUPPORT)
    words = (ctypes.c_void_p * 11)()
    ctypes.memmove(words, address, ctypes.sizeof(words))
    handle = handle_type(lambda _, wanted: ctypes.addressof(words) if wanted == FAST_DDS else None)
    words[0], words[1], words[2] = ctypes.addressof(identifier), ctypes.addressof(service), ctypes.cast(handle, ctypes.c_void_p).value
    kept.extend([identifier, members, texts, service, words, handle])
    of_class = {key: getattr(GetParameters.__class__, key) for key in dir(GetParameters.__class__) if key.startswith("_") and key.isupper()}
    meta = type("Metaclass_" + kind, (type,), {**of_class, "_TYPE_SUPPORT": capsule_of(words)})
    return meta(kind, (), {"Request": UInt8MultiArray, "Response": UInt8MultiArray, "Event": UInt8MultiArray})


class Rclpy:
    """One rclpy node and its client."""

    def __init__(self, call):
        import rclpy

        self.rclpy = rclpy
        self.context = rclpy.Context()
        self.context.init()
        self.node = rclpy.create_node("caller", context=self.context, enable_rosout=False)
        self.executor = rclpy.executors.SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.client = self.node.create_client(service_class(call.type), call.service)
        self.is_there = self.client.wait_for_service(timeout_sec=DEADLINE_S)

    def call(self, body):
        from std_msgs.msg import UInt8MultiArray

        future = self.client.call_async(UInt8MultiArray(data=array.array("B", body)))
        self.executor.spin_until_future_complete(future, timeout_sec=DEADLINE_S)
        return bytes(future.result().data) if future.done() and future.result() else None

    def close(self):
        self.executor.shutdown()
        self.node.destroy_node()
        self.context.try_shutdown()


# cyclonedds --------------------------------------------------------------------------------------------------------------------------------


# Other participants of this host only, as ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST does it for rmw_cyclonedds.
LOCALHOST = (
    "<General><Interfaces><NetworkInterface name='lo' multicast='true'/></Interfaces></General><Discovery><ParticipantIndex>auto</ParticipantIndex>"
    "<MaxAutoParticipantIndex>32</MaxAutoParticipantIndex><Peers><Peer address='127.0.0.1'/></Peers></Discovery>"
)


class Cyclone:
    """A participant of Cyclone DDS with a client as rmw_cyclonedds makes it: its number and the request's precede the body."""

    def __init__(self, call):
        os.environ["CYCLONEDDS_URI"] = LOCALHOST
        import cyclonedds.idl.annotations as annotations
        from cyclonedds.core import Policy, Qos
        from cyclonedds.domain import DomainParticipant
        from cyclonedds.idl import IdlStruct
        from cyclonedds.idl.types import array as idl_array
        from cyclonedds.idl.types import int64, uint8, uint64
        from cyclonedds.pub import DataWriter
        from cyclonedds.sub import DataReader
        from cyclonedds.topic import Topic
        from cyclonedds.util import duration

        package, _, kind = call.type.split("/")
        self.types = {}
        for part in ("Request", "Response"):
            name = f"{package}.srv.dds_.{kind}_{part}_"
            fields = {"guid": uint64, "number": int64, **body_fields(call, part, idl_array, uint8)}
            made = types.new_class("Sample", (IdlStruct,), {"typename": name}, lambda space, fields=fields: space.update(__annotations__=fields))
            self.types[part] = annotations.final(dataclass(made))
        self.participant = DomainParticipant(int(os.environ.get("ROS_DOMAIN_ID", 0)))
        self.guid = int.from_bytes(os.urandom(8), "little")
        qos = Qos(
            Policy.Reliability.Reliable(duration(seconds=1)),
            Policy.History.KeepLast(10),
            Policy.Userdata(b"clientid=" + ".".join(f"{byte:x}" for byte in os.urandom(16)).encode() + b";"),
            Policy.DataRepresentation(use_cdrv0_representation=True),
        )
        below = call.service.lstrip("/")
        self.writer = DataWriter(self.participant, Topic(self.participant, f"rq/{below}Request", self.types["Request"]), qos=qos)
        self.reader = DataReader(self.participant, Topic(self.participant, f"rr/{below}Reply", self.types["Response"]), qos=qos)
        self.number = 0
        self.fields = call.fields
        end = time.monotonic() + DEADLINE_S
        # As rmw_cyclonedds's service_is_available.
        while not (self.writer.get_matched_subscriptions() and self.reader.get_matched_publications()):
            if time.monotonic() > end:
                break
            time.sleep(0.002)
        self.is_there = time.monotonic() <= end

    def call(self, _):
        self.number += 1
        self.writer.write(self.types["Request"](guid=self.guid, number=self.number, **self.fields))
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            for sample in self.reader.take(10):
                if getattr(sample, "guid", None) == self.guid and sample.number == self.number:
                    return {name: getattr(sample, name) for name in sample.__annotations__ if name not in ("guid", "number")}
            time.sleep(0.0005)
        return None

    def close(self):
        self.participant.__del__()


def body_fields(call, part, idl_array, uint8):
    """The fields of a request or a response, for plain types and texts."""
    from cyclonedds.idl.types import float64, int32, sequence, uint64

    plain = {"bool": bool, "string": str, "float64": float64, "int32": int32, "uint64": uint64, "uint8": uint8}
    package, _, kind = call.type.split("/")
    fields = {}
    for name, (form, detail) in STORE.fielddefs[f"{package}/msg/{kind}_{part}"][1]:
        if form == 1:
            fields[name] = plain[detail[0]]
        elif form == 2:
            fields[name] = idl_array[int32, 2]
        else:
            fields[name] = sequence[plain[detail[0][1][0]]]
    return fields


def main():
    plan = json.load(sys.stdin if sys.argv[1] == "-" else open(sys.argv[1]))
    kind = {"rclpy": Rclpy, "cyclone": Cyclone}[plan["client"]]
    for planned in plan["calls"]:
        call = Call(planned, plan["definitions"])
        call.fields = {**zeros(call), **planned.get("request", {})}
        fresh = plan.get("fresh")
        took, reply, answered, there = [], None, 0, 0
        client = None
        for _ in range(fresh or call.count):
            if client is None or fresh:
                client = kind(call)
                there += client.is_there
            began = time.monotonic()
            body = client.call(call.body)
            took.append(1e3 * (time.monotonic() - began))
            if body is not None:
                answered += 1
                reply = body if isinstance(body, dict) else call.reply(body)
            if fresh:
                client.close()
        if not fresh:
            client.close()
        report(event="answered", service=call.service, reply=reply, milliseconds=took, answered=answered, there=there)
    report(event="done")


def zeros(call):
    """Fields of a request for cyclonedds: a time is two numbers."""
    package, _, kind = call.type.split("/")
    fields = {}
    for name, (form, detail) in STORE.fielddefs[f"{package}/msg/{kind}_Request"][1]:
        fields[name] = ("" if detail[0] == "string" else False if detail[0] == "bool" else 0) if form == 1 else [0, 0] if form == 2 else []
    return fields


if __name__ == "__main__":
    main()
