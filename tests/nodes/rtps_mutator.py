"""Listens to the RTPS packets on loopback and sends mutated copies of them to where they went.

Usage: rtps_mutator.py COUNT SEED [far]    (inside a network namespace of a test, as root)

With "far" all that changes are sequence numbers of user data, to such as no publisher reaches.

Says {"event": "ready"}, then {"event": "done", "sent": N, "captured": M}. Most copies keep the packet's header, so that they count as their real sender's.
"""

import json
import random
import socket
import struct
import sys
import time

CAPTURED_MAX = 400


def udp_payload(frame):
    """(destination port, payload) of an IPv4 UDP packet to this host that holds RTPS."""
    if frame[12:14] != b"\x08\x00" or frame[23] != 17:
        return None
    header = 14 + 4 * (frame[14] & 15)
    payload = frame[header + 8 :]
    return (struct.unpack_from("!H", frame, header + 2)[0], payload) if payload[:4] == b"RTPS" else None


def far(chance, packet, users_only=False):
    """Sets a sequence number of a DATA or HEARTBEAT submessage far away; of a HEARTBEAT the last, or with `users_only` sometimes both."""
    at = 20
    while at + 24 <= len(packet):
        kind, length = packet[at], struct.unpack_from("<H", packet, at + 2)[0]
        writer = packet[at + (15 if kind == 0x15 else 11)]
        is_chosen = writer in (2, 3) if users_only else chance.random() < 0.8
        if kind in (0x15, 0x07) and is_chosen:
            offset = at + (16 if kind == 0x15 else 20)
            if offset + 8 <= len(packet):
                number = struct.pack("<iI", chance.choice([1 << 20, 0x7FFFFFFF, 1 << 8]), chance.getrandbits(32))
                packet[offset : offset + 8] = number
                if users_only and kind == 0x07 and chance.random() < 0.5:
                    packet[offset - 8 : offset] = number
        if length == 0:
            break
        at += 4 + length


def main():
    count, chance = int(sys.argv[1]), random.Random(int(sys.argv[2]))
    is_far = sys.argv[3:] == ["far"]
    listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    listener.bind(("lo", 0))
    listener.settimeout(0.02)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    print(json.dumps({"event": "ready"}), flush=True)
    captured, sent, last_listen = [], 0, 0.0
    own = sender.getsockname
    while sent < count:
        if not captured or time.monotonic() - last_listen > 0.2:
            last_listen = time.monotonic()
            try:
                for _ in range(50):
                    frame, address = listener.recvfrom(65536)
                    found = udp_payload(frame)
                    # Each packet on loopback is seen twice, and our own too: those have our port as source.
                    header = 14 + 4 * (frame[14] & 15)
                    if found and address[2] == socket.PACKET_OUTGOING and struct.unpack_from("!H", frame, header)[0] != own()[1]:
                        captured.append(found)
            except TimeoutError:
                pass
            captured = captured[-CAPTURED_MAX:]
            if not captured:
                continue
        port, payload = chance.choice(captured)
        packet = bytearray(payload)
        kind = 0 if is_far else chance.randrange(10)
        if kind < 2:
            far(chance, packet, users_only=is_far)
        elif kind == 2:
            packet = packet[: chance.randrange(len(packet))]
        elif kind == 3:
            packet[20:] = chance.randbytes(len(packet) - 20)
        else:
            for _ in range(chance.randint(1, 4)):
                packet[chance.randrange(20 if kind < 9 else 0, len(packet))] = chance.randrange(256)
        if packet == payload:
            continue
        try:
            sender.sendto(packet, ("127.0.0.1", port))
        except OSError:
            continue
        sent += 1
    print(json.dumps({"event": "done", "sent": sent, "captured": len(captured)}), flush=True)


main()
