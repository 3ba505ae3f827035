#!/usr/bin/env python3
"""Measures the Python package beside rosbags, mcap + mcap-ros2-support and small-mcap + mcap-ros2-support-fast, in one run.

    make wheel
    python -m venv v && v/bin/pip install target/wheels/holdall-*.whl numpy pyarrow rosbags mcap mcap-ros2-support small-mcap mcap-ros2-support-fast
    v/bin/python scripts/bench-python.py [--messages 100000] [--repeat 3] [--large-gb 10] [--out docs/benchmarks/python.md]

Each measurement is a process of its own: the bag is read once to warm it, then the processor time (of all threads) of the work is taken. The best of the repetitions counts, and its result is checked
before it counts. Messages per second of processor time are what the table has.
"""

import argparse
import json
import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

START = 1_700_000_000_000_000_000


def write_bag(path, messages, preset):
    import holdall

    pixels = os.urandom(640 * 480 * 3)
    covariance = [0.01, 0, 0, 0, 0.01, 0, 0, 0, 0.01]
    names = [f"joint_{number}" for number in range(7)]
    with holdall.create(path, preset=preset) as out:
        for number in range(messages):
            time_ns = START + number * 10_000_000
            header = {"stamp": {"sec": time_ns // 10**9, "nanosec": time_ns % 10**9}, "frame_id": "imu_link"}
            imu = {
                "header": header,
                "orientation": {"x": 0.0, "y": 0.0, "z": number * 1e-6, "w": 1.0},
                "orientation_covariance": covariance,
                "angular_velocity": {"x": 0.1, "y": number * 1e-3, "z": 0.3},
                "angular_velocity_covariance": covariance,
                "linear_acceleration": {"x": float(number), "y": 0.2, "z": 9.81},
                "linear_acceleration_covariance": covariance,
            }
            out.write("/imu", "sensor_msgs/msg/Imu", imu, time=time_ns)
            if number % 4 == 0:
                joints = {"header": header, "name": names, "position": [0.1 * number] * 7, "velocity": [0.0] * 7, "effort": [1.0] * 7}
                out.write("/joints", "sensor_msgs/msg/JointState", joints, time=time_ns)
            if number % 1000 == 0:
                image = {"header": header, "height": 480, "width": 640, "encoding": "rgb8", "step": 1920, "data": pixels}
                out.write("/camera", "sensor_msgs/msg/Image", image, time=time_ns)


# What is measured: functions of a bag and its number of Imu messages, which return a number that is checked.


def holdall_columns(path, count):
    import holdall

    return holdall.open(path)["/imu"].to_numpy("linear_acceleration")[:, 0].sum()


def holdall_all_columns(path, count):
    import holdall

    return holdall.open(path)["/imu"].to_numpy()["linear_acceleration"][:, 0].sum()


def holdall_arrow(path, count):
    import holdall
    import pyarrow as pa

    batches = pa.RecordBatchReader.from_stream(holdall.open(path)["/imu"])
    return sum(batch.column("linear_acceleration").field("x").to_numpy().sum() for batch in batches)


def holdall_objects(path, count):
    import holdall

    total = 0.0
    for message in holdall.open(path).messages("/imu"):
        total += message.msg.linear_acceleration.x
    return total


def holdall_raw(path, count):
    import holdall

    total = 0
    for message in holdall.open(path).messages("/imu"):
        total += len(message.raw)
    return total


def rosbags_objects(path, count):
    from rosbags.highlevel import AnyReader

    total = 0.0
    with AnyReader([Path(path)]) as reader:
        connections = [found for found in reader.connections if found.topic == "/imu"]
        for connection, _, raw in reader.messages(connections):
            total += reader.deserialize(raw, connection.msgtype).linear_acceleration.x
    return total


def rosbags_raw(path, count):
    from rosbags.highlevel import AnyReader

    total = 0
    with AnyReader([Path(path)]) as reader:
        connections = [found for found in reader.connections if found.topic == "/imu"]
        for _, _, raw in reader.messages(connections):
            total += len(raw)
    return total


def storage_file(path):
    return next(Path(path).glob("*.mcap"))


def mcap_objects(path, count):
    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory

    total = 0.0
    with storage_file(path).open("rb") as stream:
        for found in make_reader(stream, decoder_factories=[DecoderFactory()]).iter_decoded_messages(topics=["/imu"]):
            total += found.decoded_message.linear_acceleration.x
    return total


def mcap_raw(path, count):
    from mcap.reader import make_reader

    total = 0
    with storage_file(path).open("rb") as stream:
        for _, _, message in make_reader(stream).iter_messages(topics=["/imu"]):
            total += len(message.data)
    return total


def small_mcap_objects(path, count):
    from mcap_ros2_support_fast.decoder import DecoderFactory
    from small_mcap import include_topics, read_message_decoded

    total = 0.0
    with storage_file(path).open("rb") as stream:
        for found in read_message_decoded(stream, should_include=include_topics(["/imu"]), decoder_factories=[DecoderFactory()]):
            total += found.decoded_message.linear_acceleration.x
    return total


def small_mcap_raw(path, count):
    from small_mcap import include_topics, read_message

    total = 0
    with storage_file(path).open("rb") as stream:
        for _, _, message in read_message(stream, should_include=include_topics(["/imu"])):
            total += len(message.data)
    return total


def holdall_write_dict(path, count):
    import holdall

    message = {"header": {"stamp": {"sec": 1, "nanosec": 2}, "frame_id": "imu_link"}, "linear_acceleration": {"x": 1.0, "y": 0.2, "z": 9.81}}
    message["angular_velocity"] = {"x": 0.1, "y": 0.2, "z": 0.3}
    with tempfile.TemporaryDirectory() as folder, holdall.create(f"{folder}/out", preset="none") as out:
        for number in range(count):
            out.write("/imu", "sensor_msgs/msg/Imu", message, START + number)
        return out.count


def holdall_write_raw(path, count):
    import holdall

    payload = bytes([0, 1, 0, 0]) + bytes(312)
    with tempfile.TemporaryDirectory() as folder, holdall.create(f"{folder}/out", preset="none") as out:
        for number in range(count):
            out.write("/imu", "sensor_msgs/msg/Imu", payload, START + number)
        return out.count


def rosbags_write_raw(path, count):
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    store, payload = get_typestore(Stores.ROS2_JAZZY), bytes([0, 1, 0, 0]) + bytes(312)
    with tempfile.TemporaryDirectory() as folder, Writer(Path(folder) / "out", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connection = writer.add_connection("/imu", "sensor_msgs/msg/Imu", typestore=store)
        for number in range(count):
            writer.write(connection, START + number, payload)
    return count


def verb(words, **options):
    """Runs the program; its processor time counts as that of a child."""
    import holdall

    return subprocess.run([holdall.program(), *map(str, words)], check=True, stdin=subprocess.DEVNULL, **options)


def holdall_export(form, path, count):
    with tempfile.TemporaryDirectory() as folder:
        verb(["export", "-f", form, "-t", "/imu", "-o", f"{folder}/out", "--", path], stdout=subprocess.DEVNULL)
        return count if (Path(folder) / "out" / f"imu.{form}").stat().st_size > 1000 else 0


def holdall_parquet(path, count):
    return holdall_export("parquet", path, count)


def holdall_csv(path, count):
    return holdall_export("csv", path, count)


def holdall_cat(path, count):
    done = verb(["cat", "--json", "-t", "/imu", "--", path], stdout=subprocess.PIPE)
    return done.stdout.count(b"\n")


def holdall_where(path, count):
    done = verb(["cat", "--json", "-t", "/imu", "--where", f"/imu: linear_acceleration.x >= {count - 1}", "--", path], stdout=subprocess.PIPE)
    return count if done.stdout.count(b"\n") == 1 else 0


# Opening a long bag: sparse, so that it takes no room on the disk. Its summary and its index are those of 100 GB in chunks of 1 MiB.

LONG_BYTES = 100_000_000_000
LONG_CHUNK_BYTES = 1 << 20
LONG_TOPICS = 8
LONG_PER_CHUNK = 20


def record(opcode, body):
    return struct.pack("<BQ", opcode, len(body)) + body


def text(value):
    return struct.pack("<I", len(value)) + value.encode()


def write_sparse(path):
    magic = b"\x89MCAP0\r\n"
    begin = magic + record(1, text("ros2") + text("bench"))
    schema = record(3, struct.pack("<H", 1) + text("std_msgs/msg/String") + text("ros2msg") + text("string data\n"))
    channels = b"".join(
        record(4, struct.pack("<HH", number, 1) + text(f"/topic_{number}") + text("cdr") + struct.pack("<I", 0)) for number in range(1, LONG_TOPICS + 1)
    )
    chunks = LONG_BYTES // LONG_CHUNK_BYTES
    counts = b"".join(struct.pack("<HQ", number, chunks * LONG_PER_CHUNK) for number in range(1, LONG_TOPICS + 1))
    statistics = struct.pack("<QHIIIIQQ", chunks * LONG_PER_CHUNK * LONG_TOPICS, 1, LONG_TOPICS, 0, 0, chunks, START, START + chunks * 10**8)
    statistics = record(11, statistics + struct.pack("<I", len(counts)) + counts)
    index_bytes = 15 + 16 * LONG_PER_CHUNK
    indexes = []
    for chunk in range(chunks):
        at, length = 4096 + chunk * LONG_CHUNK_BYTES, LONG_CHUNK_BYTES - 4096
        offsets = b"".join(struct.pack("<HQ", number, at + length + (number - 1) * index_bytes) for number in range(1, LONG_TOPICS + 1))
        times = struct.pack("<QQQQ", START + chunk * 10**8, START + (chunk + 1) * 10**8 - 1, at, length)
        sizes = struct.pack("<Q", LONG_TOPICS * index_bytes) + text("") + struct.pack("<QQ", length - 100, length - 100)
        indexes.append(record(8, times + struct.pack("<I", len(offsets)) + offsets + sizes))
    groups = [(3, schema), (4, channels), (11, statistics), (8, b"".join(indexes))]
    end = record(15, struct.pack("<I", 0))
    start, places, summary = LONG_BYTES + len(end), b"", b""
    for opcode, group in groups:
        places += record(14, struct.pack("<BQQ", opcode, start + len(summary), len(group)))
        summary += group
    footer = record(2, struct.pack("<QQI", start, start + len(summary), 0))
    with open(path, "wb") as file:
        file.write(begin)
        file.seek(LONG_BYTES)
        file.write(end + summary + places + footer + magic)


def measure_open(path, what):
    """Seconds of opening the long bag and of what a notebook or a terminal shows of it, the first time in a process."""
    import holdall

    began, spent = time.perf_counter(), time.process_time()
    bag = holdall.open(path)
    opened = time.perf_counter() - began
    shown = {"repr": repr, "html": lambda bag: bag._repr_html_()}[what](bag)
    whole, spent = time.perf_counter() - began, time.process_time() - spent
    assert f"/topic_{LONG_TOPICS}" in shown and ("█" in shown or "<svg" in shown), shown
    return {"opened": opened, "whole": whole, "spent": spent}


def measure_pass(path, what):
    """The peak of memory of a pass over all messages."""
    import holdall

    bag = holdall.open(path)
    before, read = peak_bytes(), 0
    if what == "messages":
        for message in bag.messages():
            read += len(message.raw)
    else:
        import pyarrow as pa

        for batch in pa.RecordBatchReader.from_stream(bag[what]):
            read += batch.nbytes
    return {"before": before, "peak": peak_bytes(), "read": read}


def write_large(path, size):
    import holdall

    pixels = os.urandom(1 << 20)
    with holdall.create(path, preset="none") as out:
        for number in range(size // (1 << 20)):
            time_ns = START + number * 10_000_000
            out.write("/camera", "sensor_msgs/msg/Image", {"height": 1024, "width": 1024, "encoding": "mono8", "step": 1024, "data": pixels}, time=time_ns)
            for place in range(10):
                out.write("/imu", "sensor_msgs/msg/Imu", {"linear_acceleration": {"x": float(number)}}, time=time_ns + place)


def alone(mode, path, what):
    """A measurement in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--alone", mode, str(path), what], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def more(folder, repeat, large_gb):
    lines = ["", "| work | measured |", "|---|---|"]
    sparse = folder / "long.mcap"
    write_sparse(sparse)
    alone("open", sparse, "repr")
    for what in ("repr", "html"):
        found = sorted((alone("open", sparse, what) for _ in range(max(repeat, 5))), key=lambda one: one["whole"])
        shown = {key: 1000 * found[len(found) // 2][key] for key in ("opened", "whole", "spent")}
        worst = 1000 * found[-1]["whole"]
        name = "`repr`" if what == "repr" else "`_repr_html_`"
        lines.append(
            f"| a bag of 100 GB (sparse, {LONG_TOPICS} topics, chunks of 1 MiB) opened, and {name}, the first time in a process "
            f"| opened {shown['opened']:.1f} ms, both {shown['whole']:.1f} ms (median; worst {worst:.1f}), {shown['spent']:.1f} ms of processor time |"
        )
        print(lines[-1], flush=True)
    sparse.unlink()
    for gigabytes in dict.fromkeys((1, large_gb)) if large_gb else ():
        path = folder / "large"
        write_large(path, gigabytes * 10**9)
        for what, name in (("messages", "all messages, one after another"), ("/imu", "`/imu` as an Arrow stream"), ("/camera", "`/camera` as an Arrow stream")):
            found = alone("pass", path, what)
            mib = {key: found[key] / (1 << 20) for key in ("before", "peak")}
            lines.append(f"| peak of memory of a pass over {gigabytes} GB: {name} | {mib['peak']:.0f} MiB ({mib['before']:.0f} MiB before it) |")
            print(lines[-1], flush=True)
        shutil.rmtree(path)
    return lines


WORK = {
    "three columns of Imu to numpy": {"holdall": holdall_columns},
    "all columns of Imu to numpy": {"holdall": holdall_all_columns},
    "all columns of Imu to Arrow": {"holdall": holdall_arrow},
    "objects, a field of each read": {
        "holdall": holdall_objects, "rosbags": rosbags_objects, "mcap-ros2-support": mcap_objects, "small-mcap + fast": small_mcap_objects,
    },
    "raw payloads": {"holdall": holdall_raw, "rosbags": rosbags_raw, "mcap": mcap_raw, "small-mcap": small_mcap_raw},
    "written: dicts": {"holdall": holdall_write_dict},
    "`export -f parquet`": {"holdall": holdall_parquet},
    "`export -f csv`": {"holdall": holdall_csv},
    "`cat --json`": {"holdall": holdall_cat},
    "`cat --where`, one message shown": {"holdall": holdall_where},
    "written: CDR bytes": {"holdall": holdall_write_raw, "rosbags": rosbags_write_raw},
}
RAW_BYTES = 324


def measure(function, path, count):
    """In a process of its own."""
    function(path, 100 if function not in (holdall_where, holdall_cat) else count)
    before, wall = processor_seconds(), time.perf_counter()
    result = function(path, count)
    spent, wall = processor_seconds() - before, time.perf_counter() - wall
    return {"seconds": spent, "wall": wall, "result": float(result), "peak": peak_bytes()}


def processor_seconds():
    """Of this process and of the programs that it ran."""
    return time.process_time() + sum(os.times()[2:4])


def peak_bytes():
    """Of this process alone; what getrusage has includes its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def expected(name, count):
    if name.startswith(("written", "`")):
        return count
    return None if name == "raw payloads" else sum(range(count))


def run(name, who, path, count, repeat):
    words = [sys.executable, __file__, "--one", name, who, str(path), str(count)]
    found = []
    for _ in range(repeat):
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            return None, done.stderr.strip().splitlines()[-1]
        found.append(json.loads(done.stdout.splitlines()[-1]))
    wanted = expected(name, count)
    wrong = [one["result"] for one in found if wanted is not None and one["result"] != wanted]
    if wrong:
        return None, f"its result is {wrong[0]}, not {wanted}"
    return found, None


def table(bags, count, repeat):
    lines = [f"| messages per processor second (best; worst) | by | {' | '.join(bags)} | peak memory |", "|---|---" + "|---" * len(bags) + "|---|"]
    sums = {}
    for name, candidates in WORK.items():
        for who in candidates:
            cells, peak = [], 0
            for kind, path in bags.items():
                if name.startswith("written") and kind != "uncompressed":
                    cells.append("")
                    continue
                found, why = run(name, who, path, count, repeat)
                if found is None:
                    cells.append(f"not measured: {why}")
                    continue
                if name == "raw payloads":
                    sums.setdefault(kind, {})[who] = found[0]["result"]
                rates = sorted(count / one["seconds"] for one in found)
                peak = max(peak, min(one["peak"] for one in found) / (1 << 20))
                cells.append(f"{rates[-1]:,.0f}; {rates[0]:,.0f}")
            lines.append(f"| {name} | {who} | {' | '.join(cells)} | {f'{peak:.0f} MiB' if peak else ''} |")
            print(lines[-1], flush=True)
    for kind, found in sums.items():
        assert len(set(found.values())) == 1, f"{kind}: readers do not agree on the payloads: {found}"
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--large-gb", type=int, default=0, help="also the memory of a pass over a bag of this size, which is made and deleted")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--alone", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        mode, path, what = arguments.alone
        print(json.dumps({"open": measure_open, "pass": measure_pass}[mode](path, what)))
        return
    if arguments.one:
        name, who, path, count = arguments.one
        print(json.dumps(measure(WORK[name][who], path, int(count))))
        return
    folder = Path(tempfile.mkdtemp(prefix="holdall-bench-python-"))
    try:
        bags = {"uncompressed": folder / "none", "zstd": folder / "zstd"}
        write_bag(bags["uncompressed"], arguments.messages, "none")
        write_bag(bags["zstd"], arguments.messages, "zstd_fast")
        lines = table(bags, arguments.messages, arguments.repeat)
        lines += more(folder, arguments.repeat, arguments.large_gb)
    finally:
        shutil.rmtree(folder)
    if arguments.out:
        write_page(arguments.out, lines, arguments)


def version(package):
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} not installed"


def write_page(path, lines, arguments):
    """Keeps what is around the measured part."""
    begin, end = "<!-- measured: begin -->", "<!-- measured: end -->"
    packages = ["holdall", "rosbags", "mcap", "mcap-ros2-support", "small-mcap", "mcap-ros2-support-fast", "numpy", "pyarrow"]
    facts = f"{time.strftime('%Y-%m-%d', time.gmtime())}, {platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}; "
    facts += ", ".join(map(version, packages)) + f"; {arguments.messages:,} Imu, {arguments.repeat} repetitions."
    measured = "\n".join([begin, "", facts, "", *lines, "", end])
    text = path.read_text() if path.exists() else f"# The Python package beside others\n\n{begin}{end}\n"
    path.write_text(text[: text.index(begin)] + measured + text[text.index(end) + len(end) :])


if __name__ == "__main__":
    main()
