"""One side of a run of `holdall bench run` over ROS 1: the same flags, lines and records as `holdall bench worker`.

  --role publisher|subscriber|idle --topic NAME --bytes N --rate HZ --count N --reliability NAME --depth N --records FILE
  [--master PORT]   be the master of both sides, too
  [--tuned 1]       without Nagle's algorithm, and a receive buffer in which a message fits

The defaults are those of rospy: a publisher with a queue of --depth, so that a thread of its own sends.
"""

import array
import json
import os
import queue
import random
import struct
import sys
import threading
import time

flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if "--master" in flags:
    import rosmaster.master

    rosmaster.master.Master(int(flags["--master"])).start()

import rospy  # noqa: E402
import std_msgs.msg  # noqa: E402

ROLE = flags["--role"]
BYTES, COUNT, DEPTH = int(flags["--bytes"]), int(flags["--count"]), int(flags["--depth"])
RATE = float(flags["--rate"])
# Of a serialized std_msgs/UInt8MultiArray without dimension: their number, the offset, the length.
HEAD_BYTES = 12
IS_TUNED = "--tuned" in flags

printing = threading.Lock()


def say(**event):
    with printing:
        os.write(1, (json.dumps(event) + "\n").encode())


def orders():
    """Lines of standard input; its end is an order to end."""
    lines = queue.Queue(16)

    def read():
        for line in sys.stdin:
            lines.put(line.split())
        lines.put(["end"])

    threading.Thread(target=read, daemon=True).start()
    return lines


def next_order(lines, within_s):
    try:
        return lines.get(timeout=within_s)
    except queue.Empty:
        return None


def store(records):
    with open(flags["--records"], "wb") as file:
        records.tofile(file)


def sleep_until(nanos):
    left = nanos - time.monotonic_ns()
    if left > 0:
        time.sleep(left / 1e9)


def publish(lines):
    publisher = rospy.Publisher(flags["--topic"], std_msgs.msg.UInt8MultiArray, queue_size=DEPTH, tcp_nodelay=IS_TUNED)
    content = bytearray(random.Random(1).getrandbits(8 * BYTES).to_bytes(BYTES, "little"))
    message = std_msgs.msg.UInt8MultiArray()
    say(event="ready")
    order = None
    is_matched = False
    while order is None:
        if not is_matched and publisher.get_num_connections() > 0:
            is_matched = True
            say(event="matched")
        order = next_order(lines, 0.005)
    records = array.array("Q")
    if order[0] == "start":
        start = int(order[1])
        end = start + int(COUNT * 1e9 / RATE)
        for number in range(COUNT):
            due = start + int(number * 1e9 / RATE)
            if time.monotonic_ns() >= end:
                break
            sleep_until(due)
            struct.pack_into("<Q", content, 0, number)
            message.data = bytes(content)
            before = time.monotonic_ns()
            connections = publisher.get_num_connections()
            try:
                publisher.publish(message)
                is_accepted = 1
            except rospy.ROSException:
                is_accepted = 0
            records.extend((due, before, time.monotonic_ns(), is_accepted | (2 if connections else 0)))
        say(event="sent")
        while lines.get()[0] != "end":
            pass
    store(records)


def subscribe(lines):
    records = array.array("Q")

    def note(message):
        at = time.monotonic_ns()
        records.extend((struct.unpack_from("<Q", message._buff, HEAD_BYTES)[0], at))

    buffer = max(65536, 2 * BYTES) if IS_TUNED else 65536
    subscriber = rospy.Subscriber(
        flags["--topic"], rospy.AnyMsg, note, queue_size=DEPTH, buff_size=buffer, tcp_nodelay=IS_TUNED
    )
    say(event="ready")
    is_matched = False
    while True:
        if not is_matched and subscriber.get_num_connections() > 0:
            is_matched = True
            say(event="matched")
        say(event="received", count=len(records) // 2)
        order = next_order(lines, 0.1)
        if order and order[0] == "end":
            break
    store(records[: len(records) // 2 * 2])


def idle(lines):
    say(event="ready")
    while True:
        order = lines.get()
        if order[0] == "end":
            return
        sleep_until(int(order[1]) + int(COUNT * 1e9 / RATE))
        say(event="sent")


rospy.init_node("bench_" + ROLE, anonymous=True, disable_signals=True)
{"publisher": publish, "subscriber": subscribe, "idle": idle}[ROLE](orders())
say(event="done")
# Threads of rospy wait for peers that a lossy link never answers for.
os._exit(0)
