"""A publisher or subscriber of iceoryx2's own Python package: no code of holdall in it. Reads its plan as JSON from standard input.

Publisher: {"role": "publish", "service", "type", "size", "fixed", "header": "known"|"other"|"none", "attributes", "count", "rate_hz",
"buffer", "borrow", "subscribers", "events", "skip": [sequence, ...], "hold": true}; message n has sequence n (1, 2, ...) and its bytes come from `payload`.
Unless "buffer" is set a subscriber's buffer holds all messages, so that none is lost however late it comes to them.
Subscriber: {"role": "subscribe", "service", "header", "type", "fixed", "size", "count"}; prints what it received.
"""

import ctypes
import hashlib
import json
import sys
import time

import iceoryx2 as iox2


class Known(ctypes.Structure):
    """The header of rmw_iceoryx2."""

    _fields_ = [("source_timestamp", ctypes.c_int64), ("sequence", ctypes.c_uint64)]

    @staticmethod
    def type_name():
        return "rmw_iceoryx2/MessageInfoHeader"


class Other(ctypes.Structure):
    """A header of an application."""

    _fields_ = [("temperature", ctypes.c_double), ("sequence", ctypes.c_uint64), ("flags", ctypes.c_uint32)]

    @staticmethod
    def type_name():
        return "CameraInfo"


def tell(event, **more):
    print(json.dumps({"event": event, **more}), flush=True)


def payload(number, size):
    """Message `number`: its number, then bytes that differ from message to message."""
    return (number.to_bytes(8, "little") + bytes([number % 251]) * size)[:size]


def payload_type(plan):
    """Bytes under the plan's type name, one element or a struct of them."""
    name = plan.get("type", "u8")
    if plan.get("fixed"):
        fields = {"_fields_": [("bytes", ctypes.c_uint8 * plan["size"])], "type_name": staticmethod(lambda: name)}
        return type("Fixed", (ctypes.Structure,), fields)
    if name == "u8":
        return iox2.Slice[ctypes.c_uint8]
    fields = {"_fields_": [("byte", ctypes.c_uint8)], "type_name": staticmethod(lambda: name)}
    return iox2.Slice[type("Element", (ctypes.Structure,), fields)]


def service_of(node, plan):
    builder = node.service_builder(iox2.ServiceName.new(plan["service"])).publish_subscribe(payload_type(plan))
    header = {"known": Known, "other": Other, "none": None}[plan.get("header", "known")]
    if header is not None:
        builder = builder.user_header(header)
    if plan["role"] == "subscribe":
        return builder.open(), header
    builder = builder.subscriber_max_buffer_size(plan.get("buffer", max(32, min(plan["count"], 1000)))).subscriber_max_borrowed_samples(plan.get("borrow", 32))
    if "subscribers" in plan:
        builder = builder.max_subscribers(plan["subscribers"])
    attributes = iox2.AttributeVerifier.new()
    for key, value in plan.get("attributes", {}).items():
        attributes = attributes.require(iox2.AttributeKey.new(key), iox2.AttributeValue.new(value))
    return builder.open_or_create_with_attributes(attributes), header


def publish(node, plan):
    service, header = service_of(node, plan)
    factory = service.publisher_builder()
    if not plan.get("fixed"):
        factory = factory.initial_max_slice_len(plan["size"])
    publisher = factory.create()
    notifier = None
    if plan.get("events"):
        events = node.service_builder(iox2.ServiceName.new(plan["service"])).event().open_or_create()
        notifier = events.notifier_builder().create()
    tell("ready")
    if plan.get("wait_for_subscriber", True):
        while service.dynamic_config.number_of_subscribers == 0:
            time.sleep(0.01)
    digest = hashlib.md5()
    start = time.monotonic()
    for number in range(1, plan["count"] + 1):
        if plan.get("rate_hz"):
            time.sleep(max(0.0, start + (number - 1) / plan["rate_hz"] - time.monotonic()))
        if number in plan.get("skip", []):
            continue
        sample = publisher.loan_uninit() if plan.get("fixed") else publisher.loan_slice_uninit(plan["size"])
        if header is not None:
            facts = sample.user_header().contents
            facts.sequence = number
            if header is Known:
                facts.source_timestamp = time.time_ns()
            else:
                facts.temperature, facts.flags = 21.5, 7
        data = payload(number, plan["size"])
        ctypes.memmove(sample.payload_ptr, data, len(data))
        if number == plan.get("hold_at"):
            tell("holding")
            time.sleep(3600)
        sample.assume_init().send()
        digest.update(data)
        if notifier is not None:
            notifier.notify()
    late = time.monotonic() - start - (plan["count"] - 1) / plan["rate_hz"] if plan.get("rate_hz") else 0.0
    tell("done", md5=digest.hexdigest(), late_s=late)
    if plan.get("stay"):
        time.sleep(plan["stay"])


def subscribe(node, plan):
    while True:
        try:
            service, header = service_of(node, plan)
            break
        except iox2.PublishSubscribeOpenError:
            time.sleep(0.02)
    subscriber = service.subscriber_builder().create()
    tell("ready")
    digest, sequences, headers = hashlib.md5(), [], []
    while len(sequences) < plan["count"]:
        sample = subscriber.receive()
        if sample is None:
            time.sleep(0.0005)
            continue
        digest.update(ctypes.string_at(sample.payload_ptr, plan["size"]))
        if header is not None:
            facts = sample.user_header().contents
            sequences.append(facts.sequence)
            headers.append([facts.temperature, facts.flags] if header is Other else [])
        else:
            sequences.append(len(sequences) + 1)
        sample.delete()
    tell("done", md5=digest.hexdigest(), sequences=sequences, headers=headers)


def main():
    plan = json.load(sys.stdin)
    iox2.set_log_level(iox2.LogLevel.Fatal)
    node = iox2.NodeBuilder.new().name(iox2.NodeName.new(plan.get("node", "peer"))).create(iox2.ServiceType.Ipc)
    publish(node, plan) if plan["role"] == "publish" else subscribe(node, plan)


if __name__ == "__main__":
    main()
