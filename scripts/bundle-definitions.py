#!/usr/bin/env python3
"""Writes crates/holdall-model/data/definitions.txt: the interface definitions that holdall carries with it.

Real definition files are taken from the share folders that are given, those that are in none of them from the type
store of the Python package `rosbags`, which has no comments (and hashes `char` otherwise than ROS 2 does). Each entry has the RIHS01 hash that ROS 2's generator (or
rosbags) computed, so that a test can compare ours.

To write the file anew, with packages of ROS 2 Jazzy from PyPI in a virtual environment VENV:

    VENV/bin/pip install rosbags 'ros-jazzy-rclpy[fastrtps]' ros-jazzy-std-msgs ros-jazzy-sensor-msgs \
        ros-jazzy-nav-msgs ros-jazzy-diagnostic-msgs ros-jazzy-visualization-msgs ros-jazzy-stereo-msgs \
        ros-jazzy-trajectory-msgs ros-jazzy-shape-msgs ros-jazzy-std-srvs ros-jazzy-actionlib-msgs
    VENV/bin/python scripts/bundle-definitions.py VENV/share
"""

import argparse
import json
from pathlib import Path

from rosbags.typesys import Stores, get_types_from_msg, get_typestore

OUTPUT = Path(__file__).resolve().parent.parent / "crates/holdall-model/data/definitions.txt"
KINDS = ("msg", "srv", "action")
# Interfaces that only ROS 2's own tests use.
LEFT_OUT = {"test_msgs"}

# Of distributions after Jazzy, which holdall publishes where it is asked to. The hashes are those of rosbags.
NEWER = {
    "rosbag2_interfaces/msg/MessagesLostEventTopicStat": "string topic_name\nuint64 messages_lost_in_transport\nuint64 messages_lost_in_recorder\n",
    "rosbag2_interfaces/msg/MessagesLostEvent": "string node_name\nMessagesLostEventTopicStat[] messages_lost_statistics\n",
}

HEAD = """\
# Interface definitions of ROS 2 Jazzy, written by scripts/bundle-definitions.py: do not edit.
#
# Each entry begins with a line "@@ <type> <format> <hash> <bytes of text>"; the text and a newline follow.
# The texts belong to their packages: Apache-2.0 (common_interfaces, rcl_interfaces and others), BSD-3-Clause
# (unique_identifier_msgs, tf2_msgs). Those without comments come from rosbags (Apache-2.0).
"""


def installed(share):
    """Definitions in a share folder: (type, format) -> (hash, text)."""
    for path in sorted(share.glob("*/*/*")):
        package, kind = path.parent.parent.name, path.parent.name
        if kind not in KINDS or path.suffix != f".{kind}" or package in LEFT_OUT:
            continue
        name = f"{package}/{kind}/{path.stem}"
        hashes = json.loads(path.with_suffix(".json").read_text("utf-8"))["type_hashes"]
        type_hash = next(entry["hash_string"] for entry in hashes if entry["type_name"] == name)
        yield name, (kind, type_hash, path.read_text("utf-8"))


def stored():
    """Definitions in the type store of rosbags."""
    store = get_typestore(Stores.ROS2_JAZZY)
    for name in sorted(store.fielddefs):
        if "/msg/" in name:
            text, _ = store.gendefhash(name, {}, ros_version=2)
            yield name, ("msg", store.hash_rihs01(name), text)


def newer():
    """Definitions of newer distributions, with the hashes that rosbags computes."""
    store = get_typestore(Stores.ROS2_JAZZY)
    for name, text in NEWER.items():
        store.register(get_types_from_msg(text, name))
    for name, text in NEWER.items():
        yield name, ("msg", store.hash_rihs01(name), text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("share", type=Path, nargs="+", help="share folder of ROS 2 packages")
    definitions = dict(stored()) | dict(newer())
    rebuilt = set(definitions)
    for share in parser.parse_args().share:
        for name, definition in installed(share):
            if name in definitions and definitions[name][1] != definition[1]:
                print(f"{name}: the hash in {share} differs from that of an earlier source; the former is taken")
            definitions[name] = definition
            rebuilt.discard(name)
    with OUTPUT.open("w", encoding="utf-8", newline="") as output:
        output.write(HEAD)
        for name, (kind, type_hash, text) in sorted(definitions.items()):
            output.write(f"@@ {name} {kind} {type_hash} {len(text.encode('utf-8'))}\n{text}\n")
    print(f"{OUTPUT}: {len(definitions)} definitions, {OUTPUT.stat().st_size} bytes")
    print("without comments:", ", ".join(sorted(rebuilt)) or "none")


if __name__ == "__main__":
    main()
