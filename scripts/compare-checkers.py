#!/usr/bin/env python3
"""Writes 40 bags with planted faults and 8 without, runs holdall and the checkers of bags from PyPI over them, and prints who finds what.

    .venv/bin/python scripts/compare-checkers.py FOLDER --holdall target/debug/holdall

Needs `rosbags`. The checkers are installed in environments in the folder. A checker is given all that its own rules can say of these bags, or
learns it from a good bag; a finding is a line that it does not print for any of four good bags. docs/contracts.md has the table. What each found
is kept in `found/`; a file that is deleted there is made anew.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from rosbags.interfaces import Qos, QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

# One environment for those that agree on their dependencies.
ENVIRONMENTS = {
    "main": [
        "rosbag-doctor==0.1.1", "clockdoctor==0.1.0", "baglint==0.2.1", "backplane-tracecheck==0.3.0", "robot-triage[ros2]==0.1.0",
        "bagx==0.6.0", "pymcap-cli==0.34.0", "rosbag-slam-lint==0.3.2", "deepen-grade==0.4.1", "rosbags==0.11.9",
    ],
    "deepen": ["deepen-bag-check==1.2.0"],
}  # fmt: skip
KINDS = ["rate", "gap", "freeze", "drift", "jump", "nan", "black", "tf", "type", "qos"]
PER_KIND = 4
GOOD = 8
START = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
LENGTH_S = 40
STORE = get_typestore(Stores.ROS2_JAZZY)
TYPE = STORE.types
# Topic, type, frame, and messages a second.
STREAMS = [
    ("/imu", "sensor_msgs/msg/Imu", "imu_link", 50),
    ("/odom", "nav_msgs/msg/Odometry", "odom", 20),
    ("/scan", "sensor_msgs/msg/LaserScan", "laser", 10),
    ("/camera/image_raw", "sensor_msgs/msg/Image", "camera", 10),
]
WRONG_TYPE = "geometry_msgs/msg/Vector3Stamped"
WIDTH, HEIGHT = 32, 24


def header(stamp, frame):
    return TYPE["std_msgs/msg/Header"](TYPE["builtin_interfaces/msg/Time"](stamp // SECOND, stamp % SECOND), frame)


def vector(x, y, z):
    return TYPE["geometry_msgs/msg/Vector3"](x, y, z)


def rotation():
    return TYPE["geometry_msgs/msg/Quaternion"](0.0, 0.0, 0.0, 1.0)


def message(of_type, head, time_s, rng, fault):
    """A message of a type with content of its own, bad where the fault says so."""
    bad = float("nan") if rng.random() < 0.5 else float("inf")
    x = bad if fault == "nan" else rng.gauss(0, 0.02)
    if of_type == "sensor_msgs/msg/Imu":
        cov = np.zeros(9)
        return TYPE[of_type](head, rotation(), cov, vector(x, 0.0, 0.1 + rng.gauss(0, 0.01)), cov, vector(rng.gauss(0, 0.1), 0.0, 9.81), cov)
    if of_type == "nav_msgs/msg/Odometry":
        at = TYPE["geometry_msgs/msg/Point"](bad if fault == "nan" else 0.5 * time_s, rng.gauss(0, 0.002), 0.0)
        pose = TYPE["geometry_msgs/msg/PoseWithCovariance"](TYPE["geometry_msgs/msg/Pose"](at, rotation()), np.zeros(36))
        twist = TYPE["geometry_msgs/msg/Twist"](vector(0.5 + rng.gauss(0, 0.01), 0.0, 0.0), vector(0.0, 0.0, 0.0))
        return TYPE[of_type](head, "base_link", pose, TYPE["geometry_msgs/msg/TwistWithCovariance"](twist, np.zeros(36)))
    if of_type == "sensor_msgs/msg/LaserScan":
        ranges = np.array([2 + rng.random() for _ in range(90)], dtype=np.float32)
        if fault == "nan":
            ranges[10:] = bad
        return TYPE[of_type](head, -1.5, 1.5, 0.033, 0.001, 0.1, 0.1, 30.0, ranges, np.zeros(0, dtype=np.float32))
    if of_type == "sensor_msgs/msg/Image":
        pixels = np.frombuffer(rng.randbytes(WIDTH * HEIGHT), dtype=np.uint8)
        pixels = pixels % 4 if fault == "black" else 20 + pixels % 200
        return TYPE[of_type](head, HEIGHT, WIDTH, "mono8", 0, WIDTH, pixels.astype(np.uint8))
    return TYPE[of_type](head, vector(x, rng.random(), 1.0))


def qos(is_reliable):
    reliability = QosReliability.RELIABLE if is_reliable else QosReliability.BEST_EFFORT
    none = QosTime(0, 0)
    return [Qos(QosHistory.KEEP_LAST, 10, reliability, QosDurability.VOLATILE, none, none, QosLiveliness.AUTOMATIC, none, False)]


def plan(kind, number):
    """What is wrong: topic, begin, end, and a size."""
    rng = random.Random(f"{kind}{number}")
    topics = {"nan": ["/imu", "/odom", "/scan"], "black": ["/camera/image_raw"], "tf": ["/tf"]}.get(kind, [name for name, *_ in STREAMS])
    topic, at = topics[number % len(topics)], START + rng.randrange(9, 14) * SECOND
    lasts = {"rate": rng.uniform(12, 18), "gap": rng.uniform(2, 3), "freeze": rng.uniform(3, 6), "black": rng.uniform(2, 5), "tf": rng.uniform(5, 9)}
    until = at + int(lasts[kind] * SECOND) if kind in lasts else START + 2 * LENGTH_S * SECOND
    if kind in ("drift", "type", "qos"):
        at = START
    if kind == "nan":
        until = at + SECOND // 4
    sign = 1 if number % 2 else -1
    return topic, at, until, {"drift": 50 * sign, "jump": int(sign * rng.uniform(0.4, 1.0) * SECOND)}.get(kind, 0)


def write(path, kind, number):
    """Writes a bag with a fault; returns its topic."""
    rng = random.Random(f"bag {kind}{number}")
    topic, at, until, size = plan(kind, number) if kind else ("", 0, 0, 0)
    events = []
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        for name, of_type, frame, hertz in STREAMS:
            is_wrong = name == topic
            of_type = WRONG_TYPE if is_wrong and kind == "type" else of_type
            to = writer.add_connection(name, of_type, typestore=STORE, offered_qos_profiles=qos(not (is_wrong and kind == "qos")))
            frozen = None
            for turn in range(LENGTH_S * hertz):
                time = START + turn * SECOND // hertz + rng.randrange(SECOND // hertz // 10)
                is_faulty = is_wrong and at <= time < until
                if is_faulty and (kind == "gap" or kind == "rate" and turn % 2):
                    continue
                stamp = time - 2_000_000 - rng.randrange(300_000)
                if is_faulty and kind == "drift":
                    stamp += (time - at) * size // 1_000_000
                if is_faulty and kind == "jump":
                    stamp += size
                body = message(of_type, header(stamp, frame), (time - START) / 1e9, rng, kind if is_faulty else None)
                if is_faulty and kind == "freeze":
                    # Two of the topics repeat the whole message, the others repeat its content under new stamps.
                    frozen = frozen or body
                    body = frozen
                    if number % 2:
                        body.header.stamp.sec, body.header.stamp.nanosec = stamp // SECOND, stamp % SECOND
                events.append((time, to, bytes(STORE.serialize_cdr(body, of_type))))
        tf = {name: writer.add_connection(name, "tf2_msgs/msg/TFMessage", typestore=STORE, offered_qos_profiles=qos(True)) for name in ("/tf", "/tf_static")}
        for turn in range(LENGTH_S * 20):
            time = START + turn * SECOND // 20 + rng.randrange(4_000_000)
            edges = [("map", "odom"), ("odom", "base_link")]
            if kind == "tf" and at <= time < until:
                edges = [] if number % 2 else edges[:1]
            if edges:
                events.append((time, tf["/tf"], transforms(time, edges)))
        fixed = [("base_link", frame) for frame in ("imu_link", "laser", "camera")]
        events.append((START + 1_000_000, tf["/tf_static"], transforms(START, fixed)))
        for time, to, payload in sorted(events, key=lambda event: event[0]):
            writer.write(to, time, payload)
    return topic


def transforms(time, edges):
    of = TYPE["geometry_msgs/msg/TransformStamped"]
    made = [of(header(time, parent), child, TYPE["geometry_msgs/msg/Transform"](vector(0.0, 0.1, 0.2), rotation())) for parent, child in edges]
    return bytes(STORE.serialize_cdr(TYPE["tf2_msgs/msg/TFMessage"](made), "tf2_msgs/msg/TFMessage"))


def contract():
    """What holdall is given."""
    lines = ["version: 1", "topics:"]
    for name, of_type, frame, hertz in STREAMS:
        lines += [
            f"  {name}:", "    required: true", f"    type: {of_type}", "    qos: {reliability: reliable}",
            f"    rate: {{min: {hertz * 0.8}, max: {hertz * 1.2}, window: 5s}}", "    gap: 1s", "    jump: 100ms", "    stamps: monotonic",
            "    drift: {ppm: 25, window: 15s}", "    frozen: 10", f"    frame: {frame}",
            "    image: {encoding: mono8, black: 95%}" if "Image" in of_type else "    non_finite: 0",
        ]  # fmt: skip
    return "\n".join([*lines, "bag:", "  tf: {connected: [map, base_link, laser, camera, imu_link], timeout: 1s}", ""])


def files(folder, good):
    """The other checkers' contracts, by their own documentation."""
    tracecheck = {
        name: {
            "required": True, "schema_name": of_type, "message_encoding": "cdr", "min_rate_hz": hertz * 0.9, "max_rate_hz": hertz * 1.1,
            "max_gap_ns": SECOND, "clock_confirmed": True, "check_regression": True,
        }
        for name, of_type, _, hertz in STREAMS
    }  # fmt: skip
    tracecheck["/tf"] = {"required": True, "min_rate_hz": 18, "max_gap_ns": SECOND, "clock_confirmed": True}
    (folder / "tracecheck.json").write_text(json.dumps({"version": 1, "name": "robot", "missing_crc": "ignore", "topics": tracecheck}))
    (folder / "triage.yaml").write_text(
        json.dumps({"detectors": {"freeze": {"min_freeze_s": 1.0, "min_count": 10}, "range": {"rules": RANGES}, "divergence": {"enabled": False}}})
    )
    spec = {"version": 1, "topics": {}}
    for name, of_type, frame, hertz in STREAMS:
        step = ".header.stamp.@to_nsec.@@delta"
        values = [f'.header.frame_id{{=="{frame}"}}', f"{step}.@@max{{<=200000000}}", f"{step}.@@min{{>=0}}", *VALUES[name]]
        spec["topics"][name.strip("/").replace("/", "_")] = {
            "topic": name, "schema": {"name": of_type}, "message_encoding": "cdr", "timeout": "1s", "values": values,
            "frequency": {"min": hertz * 0.8, "max": hertz * 1.2, "window": "5s"},
        }  # fmt: skip
    spec["topics"]["tf"] = {"topic": "/tf", "timeout": "1s", "values": [".transforms.@length{==2}"]}
    (folder / "pymcap.yaml").write_text(json.dumps(spec))
    (folder / "holdall.yaml").write_text(contract())
    learned = run([tool(folder, "main", "baglint"), good, "--init"])[0]
    frames = "[[base_link, map], [laser, map], [camera, map], [imu_link, map]]"
    checked = re.sub(r"( +)(max_gap_ms:.*)", r"\1\2\n\1check_stamps: true", learned)
    checked = re.sub(r"(/tf.*:\n(?: {4}.*\n)*? {4}max_gap_ms:.*)\n +check_stamps: true", r"\1", checked)
    (folder / "baglint.yaml").write_text(f"{checked}\ntransforms:\n  required: {frames}\n  max_stale_ms: 1000\n")
    run([tool(folder, "main", "rosbag-doctor"), "baseline", good.parent, "-o", folder / "doctor.yaml"])


VALUES = {
    "/imu": [".angular_velocity.x{>=-10 && <=10}", ".linear_acceleration.x.@@unchanged_for.@@max{<=0.5}"],
    "/odom": [".pose.pose.position.x{>=-1000 && <=1000}", ".pose.pose.position.x.@@unchanged_for.@@max{<=0.5}"],
    "/scan": [".ranges[20]{>=0 && <=30}", ".ranges[20].@@unchanged_for.@@max{<=0.5}"],
    "/camera/image_raw": [".data[50]{>=8}", ".data[50].@@unchanged_for.@@max{<=1}"],
}
RANGES = [
    {"topic": "/imu", "field": "angular_velocity.x", "low": -10, "high": 10, "label": "turn"},
    {"topic": "/odom", "field": "pose.pose.position.x", "low": -1000, "high": 1000, "label": "x"},
]


def tool(folder, environment, name):
    return folder / environment / "bin" / name


def run(command, cwd=None):
    wide = {**os.environ, "COLUMNS": "400"}
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600, cwd=cwd, env=wide)
    return done.stdout, done.stderr, done.returncode


def lines(text):
    """Lines without numbers, colours and frames of tables."""
    plain = re.sub(r"\x1b\[[0-9;]*m|[│┃|─━]", "", text)
    return {re.sub(r"\s+", " ", re.sub(r"[-+]?\d[\d.,]*", "#", line)).strip() for line in plain.splitlines()} - {""}


def holdall(folder, bag, program):
    out, error, code = run([program, "check", bag, "--contract", folder / "holdall.yaml", "--json"])
    if code not in (0, 4):
        raise RuntimeError(out + error)
    return {f"{rule['kind']} {rule['topic']}" for rule in json.loads(out)["contract"]["rules"] if rule["outcome"] == "failed"}


def checkers(folder, program):
    """Each checker's findings in a bag, in its own words."""
    main, mcap = folder / "main" / "bin", lambda bag: next(bag.glob("*.mcap"))

    def text(*command):
        out, error, _ = run(command, cwd=folder)
        if "Traceback" in error and not out:
            raise RuntimeError(error[-500:])
        return lines(out)

    def trace(bag):
        report = folder / "reports" / bag.name
        run(["rm", "-rf", report])
        text(main / "tracecheck", "check", bag, "--contract", folder / "tracecheck.json", "--out", report, "--quiet")
        checks = json.loads((report / "report.json").read_text())["checks"]
        return {f"{check['id']} {found.get('topic')}" for check in checks for found in check["findings"] if found["status"] == "fail"}

    def grade(bag):
        report = json.loads(run([main / "deepen", "grade", mcap(bag), "--json", "--quiet"])[0])
        defects = {name for name, found in report["defect_classes"].items() if found["defective"]}
        return defects | {f"{name} {sorted(found['counts'])}" for name, found in report["training_value"].items()}

    def clocks(bag):
        found = text(main / "clockdoctor", mcap(bag), "--out-dir", folder / "reports")
        return {line for line in found if line.startswith("[/") and "]" in line}

    return {
        "holdall": lambda bag: holdall(folder, bag, program),
        "rosbag-doctor": lambda bag: {
            f"{issue.get('code')} {issue.get('topic')}"
            for issue in json.loads(run([main / "rosbag-doctor", bag, "--config", folder / "doctor.yaml", "--format", "json"])[0])["issues"]
        },
        "baglint": lambda bag: {
            f"{found['code']} {found.get('topic')}"
            for found in json.loads(run([main / "baglint", mcap(bag), "-s", folder / "baglint.yaml", "-f", "json"])[0])["findings"]
        },
        "tracecheck": trace,
        "pymcap-cli check": lambda bag: {
            line for line in text(main / "pymcap-cli", "check", mcap(bag), "--spec", folder / "pymcap.yaml") if line.startswith("ERROR")
        },
        "robot-triage": lambda bag: {line for line in text(main / "triage", "run", mcap(bag), "--config", folder / "triage.yaml") if line.startswith("[")},
        "clockdoctor": clocks,
        "bagx": lambda bag: {line for line in text(main / "bagx", "eval", bag) if re.match(r"[⚠✗✘!]", line)},
        "deepen-bag-check": lambda bag: {line for line in text(folder / "deepen/bin/deepen-bag-check", mcap(bag)) if re.match(r"\[(WARN|FAIL)", line)},
        "deepen-grade": grade,
        "rosbag-slam-lint": lambda bag: {line for line in text(main / "rosbag-slam-lint", bag, "--fail-on", "none") if re.match(r"\[(WARN|ERROR)", line)},
    }


def install(folder):
    for name, packages in ENVIRONMENTS.items():
        if not (folder / name).exists():
            subprocess.run([sys.executable, "-m", "venv", folder / name], check=True)
            subprocess.run([folder / name / "bin/python", "-m", "pip", "install", "--quiet", *packages], check=True)


def compare(folder, program):
    bags = {}
    for kind, number in [("", n) for n in range(GOOD)] + [(kind, n) for kind in KINDS for n in range(PER_KIND)]:
        path = folder / "bags" / f"{kind or 'good'}{number}"
        bags[kind, number] = path
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            write(path, kind, number)
    files(folder, next(bags["", 0].glob("*.mcap")))
    for name in ("reports", "found"):
        (folder / name).mkdir(exist_ok=True)
    log, rows = [], []
    for name, check in checkers(folder, program).items():
        found, failed, kept = {}, set(), folder / "found" / f"{name}.json"
        known = json.loads(kept.read_text()) if kept.exists() else {}
        for bag, path in bags.items():
            if path.name in known:
                found[bag] = set(known[path.name])
                continue
            try:
                found[bag] = check(path)
            except (RuntimeError, ValueError, KeyError, OSError, subprocess.SubprocessError) as error:
                log.append(f"{name}: {path.name}: {error!r}"[:600])
                found[bag], failed = set(), failed | {path.name}
        kept.write_text(json.dumps({bags[bag].name: sorted(lines) for bag, lines in found.items() if bags[bag].name not in failed}))
        usual = set().union(*(found["", number] for number in range(GOOD // 2)))
        cells = []
        for kind in KINDS:
            new = [found[kind, number] - usual for number in range(PER_KIND)]
            cells.append(sum(bool(lines) for lines in new))
            log += [f"{name}: {kind}{number}: {sorted(lines)}" for number, lines in enumerate(new)]
        wrong = sum(bool(found["", number] - usual) for number in range(GOOD // 2, GOOD))
        # A checker that fails has not judged.
        label = f"{name} (failed on {len(failed)} bags)" if failed else name
        rows.append(f"| {label} | " + " | ".join(str(cell) if cell else "" for cell in cells) + f" | {wrong} |")
        print(rows[-1], flush=True)
    (folder / "log.txt").write_text("\n".join(log) + "\n")
    head = "| checker | " + " | ".join(KINDS) + f" | of {GOOD // 2} good |"
    (folder / "table.md").write_text("\n".join([head, "|---|" + "--:|" * (len(KINDS) + 1), *rows]) + "\n")
    print(f"\n{(folder / 'table.md').read_text()}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for bags, environments and results")
    parser.add_argument("--holdall", default="target/debug/holdall", help="the program")
    return parser.parse_args()


if __name__ == "__main__":
    given = parse()
    given.folder.mkdir(parents=True, exist_ok=True)
    install(given.folder.resolve())
    compare(given.folder.resolve(), Path(given.holdall).resolve())
