"""A DDS participant made of hand-written RTPS packets whose every name is hostile to a terminal: topic, type, node, host, enclave, hash.

Usage: hostile_participant.py DOMAIN HOSTILE    (no library checks what it sends; loopback only)

It announces /plain [std_msgs/msg/String], /typed [p::msg::dds_::T+HOSTILE] and /topic+HOSTILE of the node /HOSTILE/node+HOSTILE and publishes on the
first two five times a second, on /typed only every third sequence number, until it is killed. Says {"event": "ready"}.
"""

import json
import os
import socket
import struct
import sys
import time

DOMAIN, HOSTILE = int(sys.argv[1]), sys.argv[2]
PREFIX = bytes([1, 66]) + os.urandom(10)
VENDOR = bytes([1, 66])
PARTICIPANT, SPDP, SEDP = b"\0\0\1\xc1", b"\0\1\0\xc2", b"\0\0\3\xc2"
GRAPH, PLAIN, TYPED, TOPIC = b"\0\0\1\3", b"\0\0\2\3", b"\0\0\3\3", b"\0\0\4\3"
FOREVER = struct.pack("<iI", 0x7FFFFFFF, 0xFFFFFFFF)


def text(value):
    data = value.encode() + b"\0"
    return struct.pack("<I", len(data)) + data + bytes(-len(data) % 4)


def octets(value):
    return struct.pack("<I", len(value)) + value + bytes(-len(value) % 4)


def parameters(*pairs):
    return b"\0\3\0\0" + b"".join(struct.pack("<HH", pid, len(value)) + value for pid, value in pairs) + struct.pack("<HH", 1, 0)


def locator(port):
    return struct.pack("<iI", 1, port) + bytes(12) + bytes([127, 0, 0, 1])


def data(writer, sequence, payload, reader=b"\0\0\0\0"):
    body = struct.pack("<HH", 0, 16) + reader + writer + struct.pack("<iI", 0, sequence) + payload
    return struct.pack("<BBH", 0x15, 0x05, len(body)) + body


def heartbeat(writer, first, last, count):
    body = bytes(4) + writer + struct.pack("<iIiII", 0, first, 0, last, count)
    return struct.pack("<BBH", 0x07, 0x03, len(body)) + body


def packet(*submessages):
    return b"RTPS\2\3" + VENDOR + PREFIX + b"".join(submessages)


def participant(port):
    return parameters(
        (0x15, b"\2\3\0\0"), (0x16, VENDOR + b"\0\0"), (0x0F, struct.pack("<I", DOMAIN)), (0x50, PREFIX + PARTICIPANT), (0x58, struct.pack("<I", 0xC3F)),
        (0x02, struct.pack("<iI", 100, 0)), (0x32, locator(port)), (0x31, locator(port)), (0x62, text("/" + HOSTILE)),
        (0x2C, octets(f"enclave=/{HOSTILE};".encode())),
        (0x59, struct.pack("<I", 2) + text("__Hostname") + text("host" + HOSTILE) + text("fastdds.physical_data.host") + text("host" + HOSTILE)),
    )  # fmt: skip


def publication(entity, topic, type_name, port, durability=0):
    user = f"typehash=RIHS01_{HOSTILE};".encode()
    return parameters(
        (0x5A, PREFIX + entity), (0x50, PREFIX + PARTICIPANT), (0x05, text(topic)), (0x07, text(type_name)), (0x15, b"\2\3\0\0"), (0x16, VENDOR + b"\0\0"),
        (0x1A, struct.pack("<I", 2) + FOREVER), (0x1D, struct.pack("<I", durability)), (0x2F, locator(port)), (0x2C, octets(user)),
    )  # fmt: skip


def graph():
    """rmw_dds_common/msg/ParticipantEntitiesInfo."""
    message = b"\0\1\0\0" + PREFIX + PARTICIPANT + struct.pack("<I", 1) + text("/" + HOSTILE) + text("node" + HOSTILE) + struct.pack("<II", 0, 3)
    return message + PREFIX + PLAIN + PREFIX + TYPED + PREFIX + TOPIC


def main():
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.bind(("127.0.0.1", 0))
    port = link.getsockname()[1]
    base = 7400 + 250 * DOMAIN
    announced = [
        publication(GRAPH, "ros_discovery_info", "rmw_dds_common::msg::dds_::ParticipantEntitiesInfo_", port, durability=1),
        publication(PLAIN, "rt/plain", "std_msgs::msg::dds_::String_", port),
        publication(TYPED, "rt/typed", f"p::msg::dds_::T{HOSTILE}_", port),
        publication(TOPIC, "rt/topic" + HOSTILE, "std_msgs::msg::dds_::String_", port),
    ]
    endpoints = [data(SEDP, place + 1, one, b"\0\0\3\xc7") for place, one in enumerate(announced)]
    print(json.dumps({"event": "ready"}), flush=True)
    for count in range(1, 1 << 20):
        body = b"\0\1\0\0" + text("hello")
        sent = [
            packet(data(SPDP, 1, participant(port), b"\0\1\0\xc7")),
            *(packet(one) for one in endpoints),
            packet(heartbeat(SEDP, 1, len(endpoints), count)),
            packet(data(GRAPH, 1, graph()), heartbeat(GRAPH, 1, 1, count)),
            packet(data(PLAIN, count, body), heartbeat(PLAIN, max(1, count - 1), count, count)),
            # Two of three are gone for ever.
            packet(data(TYPED, 3 * count, body), heartbeat(TYPED, 3 * count, 3 * count, count)),
        ]
        for one in sent:
            for index in range(8):
                for offset in (10, 11):
                    link.sendto(one, ("127.0.0.1", base + offset + 2 * index))
        time.sleep(0.2)


main()
