#!/usr/bin/env python3
"""Writes crates/holdall-model/data/definitions.txt: the interface definitions that holdall carries with it, and distributions.txt beside it: in what
other distributions of ROS 2 differ.

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

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "crates/holdall-model/data/definitions.txt"
DISTRIBUTIONS = OUTPUT.with_name("distributions.txt")
KINDS = ("msg", "srv", "action")
# Interfaces that only ROS 2's own tests use.
LEFT_OUT = {"test_msgs"}
NAMES = ["foxy", "galactic", "humble", "iron", "jazzy", "kilted", "lyrical"]

# Of distributions after Jazzy, and of services that Jazzy has and PyPI lacks, which holdall offers; and holdall's own. The hashes are those of rosbags.
CODE = "int32 return_code\nstring error_string\n"
MODES = "int32 {0}_MODE_NODE_TIME=0\nint32 {0}_MODE_PUBLISH_TIME=1\nint32 {0}_MODE_RECEIVE_TIME=2\n"
NEWER = {
    "rosbag2_interfaces/msg/MessagesLostEventTopicStat": "string topic_name\nuint64 messages_lost_in_transport\nuint64 messages_lost_in_recorder\n",
    "rosbag2_interfaces/msg/MessagesLostEvent": "string node_name\nMessagesLostEventTopicStat[] messages_lost_statistics\n",
    "rosbag2_interfaces/msg/StopRecordingEvent": "string base_folder\nstring reason\nstring node_name\n",
    "rosbag2_interfaces/srv/Burst": "uint64 num_messages\n---\nuint64 actually_burst\n",
    "rosbag2_interfaces/srv/GetRate": "---\nfloat64 rate\n",
    "rosbag2_interfaces/srv/GetSubscribedTopics": "---\nstring[] topics\n",
    "rosbag2_interfaces/srv/GetUri": "---\nstring uri\n",
    "rosbag2_interfaces/srv/IsDiscoveryRunning": "---\nbool running\n",
    "rosbag2_interfaces/srv/IsPaused": "---\nbool paused\n",
    "rosbag2_interfaces/srv/IsRecording": "---\nbool recording\n",
    "rosbag2_interfaces/srv/Pause": "---\n",
    "rosbag2_interfaces/srv/Play": "builtin_interfaces/Time start_offset\nbuiltin_interfaces/Duration playback_duration\n"
    "builtin_interfaces/Time playback_until_timestamp\n---\nbool success\n",
    "rosbag2_interfaces/srv/PlayNext": "---\nbool success\n",
    "rosbag2_interfaces/srv/Record": "string uri\nbuiltin_interfaces/Time start_time\n---\n" + CODE,
    "rosbag2_interfaces/srv/Resume": MODES.format("RESUME")
    + "builtin_interfaces/Time resume_time\nint32 resume_mode\nstring tracking_topic_name\n---\n"
    "int32 RETURN_CODE_SUCCESS=0\nint32 RETURN_CODE_INVALID_RESUME_MODE=1\nint32 RETURN_CODE_INVALID_TRACKING_TOPIC=2\n"
    "int32 RETURN_CODE_RESUME_FAILED=3\n" + CODE,
    "rosbag2_interfaces/srv/Seek": "builtin_interfaces/Time time\n---\nbool success\n",
    "rosbag2_interfaces/srv/SetRate": "float64 rate\n---\nbool success\n",
    "rosbag2_interfaces/srv/Snapshot": "---\nbool success\n",
    "rosbag2_interfaces/srv/SplitBagfile": MODES.format("SPLIT")
    + "builtin_interfaces/Time split_time\nint32 split_mode\nstring tracking_topic_name\n---\n"
    "int32 RETURN_CODE_SUCCESS=0\nint32 RETURN_CODE_NOT_RECORDING=1\nint32 RETURN_CODE_INVALID_SPLIT_MODE=2\n"
    "int32 RETURN_CODE_INVALID_TRACKING_TOPIC=3\nint32 RETURN_CODE_SPLIT_FAILED=4\n" + CODE,
    "rosbag2_interfaces/srv/StartDiscovery": "---\n" + CODE,
    "rosbag2_interfaces/srv/Stop": "---\n" + CODE,
    "rosbag2_interfaces/srv/StopDiscovery": "---\n" + CODE,
    "rosbag2_interfaces/srv/SubscribeToTopics": "string[] topics\nstring[] topic_types\n---\n"
    + CODE + "string[] subscribed_topics\nstring[] unavailable_topics\n",
    "rosbag2_interfaces/srv/TogglePaused": "---\n",
    # The recorder's own.
    **{f"holdall_interfaces/srv/{path.stem}": path.read_text("utf-8") for path in sorted((ROOT / "ros/holdall_interfaces/srv").glob("*.srv"))},
}

# The services that not all distributions have, by the first one that does. All other services have one text from Foxy to Lyrical, by the branches of
# common_interfaces, rcl_interfaces and rosbag2 of 2024, Kilted's packages on PyPI (`tests/e2e/test_migrate.py` compares the hashes), and the documentation of
# rosbag2_interfaces 0.26.9 (Jazzy), 0.32.0 (Kilted) and 0.33.1 (Rolling, before Lyrical).
SINCE = {
    "galactic": "nav_msgs/LoadMap rosbag2_interfaces/GetRate rosbag2_interfaces/IsPaused rosbag2_interfaces/Pause rosbag2_interfaces/PlayNext "
    "rosbag2_interfaces/Resume rosbag2_interfaces/Seek rosbag2_interfaces/SetRate rosbag2_interfaces/TogglePaused",
    "humble": "rosbag2_interfaces/Burst rosbag2_interfaces/Snapshot",
    "iron": "rcl_interfaces/GetLoggerLevels rcl_interfaces/SetLoggerLevels rosbag2_interfaces/Play rosbag2_interfaces/SplitBagfile "
    "rosbag2_interfaces/Stop type_description_interfaces/GetTypeDescription",
    "jazzy": "rosbag2_interfaces/IsDiscoveryRunning rosbag2_interfaces/Record rosbag2_interfaces/StartDiscovery rosbag2_interfaces/StopDiscovery",
    "lyrical": "rosbag2_interfaces/GetSubscribedTopics rosbag2_interfaces/GetUri rosbag2_interfaces/IsRecording rosbag2_interfaces/SubscribeToTopics",
}
# What services were from the distribution in SINCE to Kilted.
UNTIL_KILTED = {
    "rosbag2_interfaces/srv/Record": "string uri\n---\n" + CODE,
    "rosbag2_interfaces/srv/Resume": "---\n",
    "rosbag2_interfaces/srv/SplitBagfile": "---\n",
    "rosbag2_interfaces/srv/Stop": "---\n",
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


def messages_of(name, text):
    """The messages of a definition: itself, or those that ROS 2 derives from a service."""
    if "/srv/" not in name:
        return {name: text}
    request, response = text.split("---\n")
    return {
        f"{name}_Request": request or "uint8 structure_needs_at_least_one_member\n",
        f"{name}_Response": response or "uint8 structure_needs_at_least_one_member\n",
        f"{name}_Event": f"service_msgs/msg/ServiceEventInfo info\n{name}_Request[<=1] request\n{name}_Response[<=1] response\n",
        name: f"{name}_Request request_message\n{name}_Response response_message\n{name}_Event event_message\n",
    }


def without_msg(value):
    """Fields as rosbags has them, where it takes each type for a message: `p/srv/msg/X` is `p/srv/X`."""
    if isinstance(value, str):
        return value.replace("/srv/msg/", "/srv/")
    if isinstance(value, tuple):
        return tuple(map(without_msg, value))
    return [without_msg(part) for part in value] if isinstance(value, list) else value


def hashed(texts):
    """Definitions by name with the hashes that rosbags computes."""
    store = get_typestore(Stores.ROS2_JAZZY)
    # To ROS 2's generator a `char` is a `uint8`.
    info = "uint8 event_type\nbuiltin_interfaces/Time stamp\nuint8[16] client_gid\nint64 sequence_number\n"
    del store.fielddefs["service_msgs/msg/ServiceEventInfo"]
    store.register(get_types_from_msg(info, "service_msgs/msg/ServiceEventInfo"))
    for name, text in texts.items():
        for message, fields in messages_of(name, text).items():
            types = get_types_from_msg(fields, message)
            store.register({without_msg(each): tuple(map(without_msg, types[each])) for each in types})
    for name, text in texts.items():
        yield name, ("srv" if "/srv/" in name else "msg", store.hash_rihs01(name), text)


DISTRIBUTIONS_HEAD = """\
# In what distributions of ROS 2 differ from Jazzy, written by scripts/bundle-definitions.py: do not edit.
#
# As in definitions.txt, with the first and the last distribution that has a definition at the end of an entry's first line; a hash of - says that
# these distributions do not have the type. Messages are from rosbags (Apache-2.0).
"""


def distributions(bundled):
    """The definitions that are not those of Jazzy, of which definitions.txt has `bundled`: (type, hash, text, first, last distribution)."""
    stores = {name: get_typestore(Stores[f"ROS2_{name.upper()}"]) for name in NAMES}
    types = sorted({each for store in stores.values() for each in store.fielddefs if "/msg/" in each})
    for each in types:
        # rosbags hashes `char` otherwise than ROS 2 does.
        if each.startswith("rmw_dds_common/"):
            continue
        had = [text_of(store, each) if each in store.fielddefs else None for store in stores.values()]
        jazzy, begin = had[NAMES.index("jazzy")], 0
        # Later packages of Jazzy have it, rosbags' do not.
        if jazzy is None and each in bundled:
            yield each, "-", "", NAMES[0], NAMES[NAMES.index("jazzy") - 1]
        for end in range(1, len(NAMES) + 1):
            if end == len(NAMES) or had[end] != had[begin]:
                if had[begin] != jazzy:
                    type_hash = stores[NAMES[begin]].hash_rihs01(each) if had[begin] is not None else "-"
                    yield each, type_hash, had[begin] or "", NAMES[begin], NAMES[end - 1]
                begin = end


def services():
    """The same of services."""
    first = {each.replace("/", "/srv/"): name for name, types in SINCE.items() for each in types.split()}
    for each, name in first.items():
        yield each, "-", "", NAMES[0], NAMES[NAMES.index(name) - 1]
    for each, (_, type_hash, text) in hashed(UNTIL_KILTED):
        yield each, type_hash, text, first[each], "kilted"


def text_of(store, name):
    """The text of a type alone, without those that it needs."""
    text, _ = store.gendefhash(name, {}, ros_version=2)
    return text


def write_distributions(bundled):
    with DISTRIBUTIONS.open("w", encoding="utf-8", newline="") as output:
        output.write(DISTRIBUTIONS_HEAD)
        entries = [*distributions(bundled), *services()]
        for name, type_hash, text, first, last in sorted(entries, key=lambda entry: (entry[0], NAMES.index(entry[3]))):
            output.write(f"@@ {name} {name.split('/')[1]} {type_hash} {len(text.encode('utf-8'))} {first} {last}\n{text}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("share", type=Path, nargs="+", help="share folder of ROS 2 packages")
    definitions = dict(stored()) | dict(hashed(NEWER))
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
    write_distributions(definitions)
    print("without comments:", ", ".join(sorted(rebuilt)) or "none")


if __name__ == "__main__":
    main()
