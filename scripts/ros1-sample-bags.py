#!/usr/bin/env python3
"""Writes the small ROS 1 bags of crates/holdall-storage/tests/data/rosbag1 with ROS 1's own library, and what rosbags makes of them.

    scripts/setup.sh nodes && .venv/bin/python scripts/ros1-sample-bags.py crates/holdall-storage/tests/data/rosbag1

Needs Debian's python3-rosbag beside the project's own venv.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

WRITING = sys.argv[1] == "--write"
if WRITING:  # in Debian's own Python, where ROS 1 lives
    import genpy
    import genpy.dynamic
    import rosbag
else:
    from rosbags.rosbag1 import Reader
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

LINE = "=" * 80
HEADER = f"\n{LINE}\nMSG: std_msgs/Header\nuint32 seq\ntime stamp\nstring frame_id\n"
DEFINITIONS = {
    "std_msgs/String": "string data\n",
    "sample_msgs/All": "Header header  # when and where\nuint8 LIMIT=7\nstring NAME=it is # not a comment\n\nbool flag\nbyte small\nchar letter\n"
    "int8 i8\nuint8 u8\nint16 i16\nuint16 u16\nint32 i32\nuint32 u32\nint64 i64\nuint64 u64\nfloat32 f32\nfloat64 f64\n"
    "string text\ntime at\nduration span\nfloat64[] empty\nuint8[] bytes\nfloat64[3] three\nint16[] shorts\nstring[] texts\n"
    "time[] times\nPart part\nPart[] parts\nPart[2] two\nbool[] flags\nuint64 last\n"
    f"{HEADER}\n{LINE}\nMSG: sample_msgs/Part\nuint8 kind\nfloat64 value\nstring name\n",
    "geometry_msgs/PointStamped": f"Header header\nPoint point\n{HEADER}\n{LINE}\nMSG: geometry_msgs/Point\nfloat64 x\nfloat64 y\nfloat64 z\n",
}
TYPES = {}
for name, text in DEFINITIONS.items() if WRITING else ():
    TYPES[name] = genpy.dynamic.generate_dynamic(name, text)[name]


def header(number):
    filled = genpy.dynamic.generate_dynamic("sample_msgs/All", DEFINITIONS["sample_msgs/All"])["std_msgs/Header"]()
    filled.seq, filled.stamp, filled.frame_id = number, genpy.Time(1_500_000_000 + number, 123), "map"
    return filled


def everything(number):
    message = TYPES["sample_msgs/All"]()
    part_type = type(message.part)
    part = lambda n: part_type(n % 256, n / 8, "part " * (n % 3))
    message.header = header(number)
    message.flag, message.small, message.letter = number % 2 == 0, -number % 100, 200
    message.i8, message.u8, message.i16, message.u16 = -1, 255, -2, 65535
    message.i32, message.u32, message.i64, message.u64 = -3, 2**32 - 1, -(2**62), 2**64 - 1
    message.f32, message.f64, message.text = 0.5, -1e300, "häuser"[: number % 7]
    message.at, message.span = genpy.Time(1, 2), genpy.Duration(-1, 5)
    message.bytes, message.three = bytes(range(number % 9)), [1.0, 2.0, 3.0]
    message.shorts, message.texts = list(range(number % 4)), ["a" * n for n in range(number % 5)]
    message.times = [genpy.Time(n, n) for n in range(number % 3)]
    message.part, message.parts, message.two = part(number), [part(n) for n in range(number % 4)], [part(1), part(2)]
    message.flags, message.last = [True, False, True][: number % 4], number
    return message


def connection(topic, name, **more):
    return {"topic": topic, "type": name, "md5sum": TYPES[name]._md5sum, "message_definition": DEFINITIONS[name], **more}


def write(bag, count=24):
    latched = connection("/latched", "std_msgs/String", callerid="/map_server", latching="1")
    other = connection("/chatter", "geometry_msgs/PointStamped")
    # The library has one connection per topic; a recorder has one per publisher.
    known, others = bag._topic_connections, {}
    bag.write("/latched", TYPES["std_msgs/String"]("kept"), genpy.Time(1_500_000_000), connection_header=latched)
    for number in range(count):
        # Every fourth comes late, so that chunks overlap in time.
        at = genpy.Time(1_500_000_000 + number - (3 if number % 4 == 3 else 0), number)
        bag.write("/all", everything(number), at)
        bag.write("/chatter", TYPES["std_msgs/String"](f"hello {number}"), at)
        if number % 6 == 0:
            # Two types on one topic.
            point = type(TYPES["geometry_msgs/PointStamped"]().point)(1, 2, number)
            bag._topic_connections = others
            bag.write("/chatter", TYPES["geometry_msgs/PointStamped"](header(number), point), at, connection_header=other)
            bag._topic_connections = known


def converted(path):
    """What rosbags makes of every message of a whole bag."""
    store = get_typestore(Stores.ROS2_JAZZY)
    for name, text in DEFINITIONS.items():
        if name.startswith("sample_msgs"):
            package, kind = name.split("/")
            store.register({k: v for k, v in get_types_from_msg(text, f"{package}/msg/{kind}").items() if k not in store.fielddefs})
    found = []
    with Reader(path) as reader:
        for connection, stamp, raw in reader.messages():
            found.append({
                "topic": connection.topic,
                "type": connection.msgtype,
                "time": stamp,
                "ros1_md5": hashlib.md5(raw).hexdigest(),
                "cdr_md5": hashlib.md5(bytes(store.ros1_to_cdr(raw, connection.msgtype))).hexdigest(),
            })
    return found


def write_all(folder):
    for compression in ("none", "bz2", "lz4"):
        with rosbag.Bag(folder / f"{compression}.bag", "w", compression=compression, chunk_threshold=4000) as bag:
            write(bag)
    # A recorder that died: the process ends without closing the bag.
    for compression in ("none", "lz4"):
        if os.fork() == 0:
            bag = rosbag.Bag(folder / f"killed_{compression}.bag.active", "w", compression=compression, chunk_threshold=4000)
            write(bag, 12)
            bag._file.flush()
            os._exit(0)
        os.wait()


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["/usr/bin/python3", __file__, "--write", str(folder)], check=True)
    expected = {path.name: converted(path) for path in sorted(folder.glob("*.bag"))}
    assert expected["none.bag"] == expected["bz2.bag"] == expected["lz4.bag"]
    lines = ",\n".join(json.dumps(message) for message in expected["none.bag"])
    (folder / "expected.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    write_all(Path(sys.argv[2])) if WRITING else main(Path(sys.argv[1]))
