"""The verbs that work on bags, as a user runs them, judged by third-party readers."""

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
from conftest import HOLDALL
from mcap.reader import make_reader
from mcap.writer import CompressionType
from mcap.writer import Writer as McapWriter
from rosbags.rosbag2 import Reader, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

SAMPLE_BAGS = Path(__file__).resolve().parents[2] / "crates/holdall/tests/data/rosbag2"
START = 1_700_000_000_000_000_000


def manifest():
    return json.loads((SAMPLE_BAGS / "manifest.json").read_text())


def holdall(*arguments, **options):
    return subprocess.run([HOLDALL, *map(str, arguments)], capture_output=True, text=True, timeout=120, **options)


def done(*arguments):
    told = holdall(*arguments)
    assert told.returncode == 0, told.stderr
    return told


def digests(bag):
    """Count and md5 of all payloads of each topic, read with pip rosbags."""
    found = {}
    with Reader(bag) as reader:
        for connection, _, payload in reader.messages():
            count, digest = found.get(connection.topic, (0, hashlib.md5()))
            digest.update(payload)
            found[connection.topic] = (count + 1, digest)
    return {topic: (count, digest.hexdigest()) for topic, (count, digest) in found.items()}


def digests_by_mcap(bag):
    found = {}
    for path in sorted(Path(bag).glob("*.mcap"), key=lambda path: int(path.stem.rsplit("_", 1)[1])):
        with open(path, "rb") as file:
            for _, channel, message in make_reader(file, validate_crcs=True).iter_messages():
                count, digest = found.get(channel.topic, (0, hashlib.md5()))
                digest.update(message.data)
                found[channel.topic] = (count + 1, digest)
    return {topic: (count, digest.hexdigest()) for topic, (count, digest) in found.items()}


@pytest.mark.parametrize("name", sorted(manifest()))
def test_every_sample_bag_is_read_by_others_in_every_storage(tmp_path, name):
    expected = {topic: (told["count"], told["md5"]) for topic, told in manifest()[name]["topics"].items() if told["count"]}
    for storage, more in [("mcap", []), ("sqlite3", []), ("mcap", ["--compression", "zstd"]), ("sqlite3", ["--compression-mode", "file"])]:
        out = tmp_path / "_".join([storage, *(word.strip("-") for word in more)])
        done("convert", SAMPLE_BAGS / name, "-o", out, "-s", storage, *more)
        assert digests(out) == expected, (storage, more)
        if storage == "mcap":
            assert digests_by_mcap(out) == expected
        done("check", out)
    levels = tmp_path / "levels"
    done("convert", SAMPLE_BAGS / name, "-o", levels, "-s", "leveldb")
    assert "sound" in done("check", levels).stdout
    for storage in ["sqlite3", "mcap"]:
        back = tmp_path / f"back_{storage}"
        done("convert", levels, "-o", back, "-s", storage)
        assert digests(back) == expected, storage


def write_bag(path, topics, count, start=START, padding=0):
    store = get_typestore(Stores.ROS2_JAZZY)
    string = store.types["std_msgs/msg/String"]
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connections = [writer.add_connection(topic, "std_msgs/msg/String", typestore=store) for topic in topics]
        for number in range(count):
            text = f"{number} " + "x" * padding
            writer.write(
                connections[number % len(topics)], start + number * 10_000_000, store.serialize_cdr(string(text), "std_msgs/msg/String")
            )
    return path


def test_the_verbs_of_a_day(tmp_path):
    a = write_bag(tmp_path / "a", ["/x", "/y"], 100)
    b = write_bag(tmp_path / "b", ["/z"], 100, START + 5_000_000)
    merged = tmp_path / "merged"
    told = json.loads(done("merge", a, b, "-o", merged, "--json").stdout)
    assert told["message_count"] == 200
    with Reader(merged) as reader:
        stamps = [stamp for _, stamp, _ in reader.messages()]
        assert stamps == sorted(stamps) and len(stamps) == 200
        assert {connection.topic for connection in reader.connections} == {"/x", "/y", "/z"}
    parts = tmp_path / "parts"
    assert len(json.loads(done("split", merged, "-o", parts, "--max-bag-messages", 50, "--json").stdout)["files"]) == 4
    assert digests(parts) == digests(merged)
    some = tmp_path / "some"
    done("filter", merged, "-o", some, "--topics", "/x", "/z", "--start", "+0.2", "--end", "+0.5")
    with Reader(some) as reader:
        found = [(connection.topic, stamp) for connection, stamp, _ in reader.messages()]
    assert {topic for topic, _ in found} == {"/x", "/z"}
    assert all(START + 200_000_000 <= stamp <= START + 500_000_000 for _, stamp in found)
    fields = tmp_path / "fields"
    done("filter", merged, "-o", fields, "--topics", "/z", "-w", "/z: data == '7 '")
    assert digests(fields)["/z"][0] == 1
    small = tmp_path / "small"
    done("compress", merged, "-o", small)
    assert digests(small) == digests(merged)
    plain = tmp_path / "plain"
    done("decompress", small, "-o", plain)
    assert digests(plain) == digests(merged)
    (plain / "metadata.yaml").unlink()
    done("reindex", plain)
    assert digests(plain) == digests(merged)
    for bag in [merged, parts, some, fields, small, plain]:
        done("check", bag)


def test_rosbag2s_yaml_makes_what_it_says(tmp_path):
    write_bag(tmp_path / "a", ["/x", "/y"], 50)
    write_bag(tmp_path / "b", ["/z"], 50)
    (tmp_path / "out.yaml").write_text(
        "output_bags:\n- uri: all\n  storage_id: sqlite3\n  all: true\n"
        "- uri: some\n  topics: [/x, /z]\n  compression_mode: message\n  compression_format: zstd\n"
    )
    told = holdall("convert", "-i", "a", "-i", "b", "mcap", "-o", "out.yaml", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert {topic: count for topic, (count, _) in digests(tmp_path / "all").items()} == {"/x": 25, "/y": 25, "/z": 50}
    assert {topic: count for topic, (count, _) in digests(tmp_path / "some").items()} == {"/x": 25, "/z": 50}
    with sqlite3.connect(next((tmp_path / "all").glob("*.db3"))) as database:
        assert database.execute("SELECT schema_version FROM schema").fetchone() == (4,)


def write_foreign(path, profile):
    """An MCAP file that has nothing of ROS 2, with an attachment and a metadata record."""
    path.parent.mkdir()
    with open(path, "wb") as file:
        writer = McapWriter(file, compression=CompressionType.LZ4, chunk_size=2000)
        writer.start(profile, "x")
        schemas = [
            writer.register_schema("foxglove.Log", "jsonschema", b'{"type":"object"}'),
            writer.register_schema("my.Proto", "protobuf", bytes(range(256))),
            writer.register_schema("std_msgs/String", "ros1msg", b"string data\n"),
            0,
        ]
        encodings = ["json", "protobuf", "ros1", ""]
        channels = [writer.register_channel(f"/{n}", e, s, {"k": str(n)}) for n, (e, s) in enumerate(zip(encodings, schemas))]
        for number in range(300):
            for channel in channels:
                writer.add_message(channel, 1000 + number, b'{"n":%d}' % number, 900 + number, number)
        writer.add_metadata("mine", {"a": "b"})
        writer.add_attachment(5, 6, "cal.bin", "application/octet-stream", bytes(range(200)))
        writer.finish()


def everything(paths):
    found = []
    for path in sorted(paths):
        with open(path, "rb") as file:
            reader = make_reader(file, validate_crcs=True)
            found += [reader.get_header().profile]
            for schema, channel, message in reader.iter_messages():
                about = schema and (schema.name, schema.encoding, schema.data)
                found.append((about, channel.topic, channel.message_encoding, channel.metadata, message.log_time, message.publish_time, message.sequence, message.data))
        with open(path, "rb") as file:
            found += [(one.name, one.media_type, one.log_time, one.data) for one in make_reader(file).iter_attachments()]
        with open(path, "rb") as file:
            found += [(one.name, one.metadata) for one in make_reader(file).iter_metadata() if one.name != "rosbag2"]
    return sorted(found, key=repr)


@pytest.mark.parametrize("profile", ["", "ros1", "protobuf"])
def test_what_is_not_ros_goes_through_byte_for_byte_or_is_refused(tmp_path, profile):
    file = tmp_path / "bag" / "x_0.mcap"
    write_foreign(file, profile)
    expected = everything([file])
    shown = done("info", file).stdout
    assert "foxglove.Log" in shown and "protobuf" in shown and "Messages:          1200" in shown
    more = [["convert"], ["merge"], ["filter", "-x", "nothing"], ["compress"], ["decompress"], ["convert", "--compression", "zstd"]]
    for number, (verb, *arguments) in enumerate(more):
        out = tmp_path / f"out_{number}"
        done(verb, file, "-o", out, *arguments)
        assert everything(out.glob("*.mcap")) == expected, (verb, arguments)
        assert "sound" in done("check", out).stdout
    for arguments in (["split", "--max-bag-messages", "100"], ["filter", "--max-rate", "5"], ["compress", "--mode", "message"]):
        out = tmp_path / "refused"
        told = holdall(arguments[0], file, "-o", out, *arguments[1:])
        assert told.returncode == 2 and "jsonschema" in told.stderr and not out.exists(), told
    told = done("convert", file, "-o", tmp_path / "sqlite", "-s", "sqlite3")
    assert "has no place" in told.stderr


def test_a_dash_is_standard_input_and_output(tmp_path):
    a = write_bag(tmp_path / "a", ["/x", "/y"], 100)
    data = next(a.glob("*.mcap")).read_bytes()

    def piped(*arguments, given=data):
        told = subprocess.run([HOLDALL, *map(str, arguments)], input=given, capture_output=True, timeout=60)
        assert told.returncode == 0, told.stderr
        return told.stdout

    made = piped("filter", "-", "-o", "-", "--topics", "/x")
    assert len(made) < len(data) and made.startswith(b"\x89MCAP0\r\n") and made.endswith(b"\x89MCAP0\r\n")
    assert piped("convert", "-", "-o", "-", "-s", "sqlite3", given=made).startswith(b"SQLite format 3\0")
    assert b"50 messages" in piped("check", "-", given=made)
    assert b"/x" in piped("info", "-", given=made) and b"/x" in piped("list", "topics", "-", given=made)
    assert piped("cat", "--json", "-", given=made).count(b"\n") == 50
    assert piped("diff", "-", a) == b""
    alone = {**os.environ, "ROS_AUTOMATIC_DISCOVERY_RANGE": "OFF"}
    told = subprocess.run([HOLDALL, "play", "--json", "--rate", "100", "-"], input=made, env=alone, capture_output=True, timeout=60)
    assert told.returncode == 0 and list(json.loads(told.stdout)["topics"]) == ["/x"], told
    piped("merge", "-", a, "-o", tmp_path / "merged")
    assert digests(tmp_path / "merged")["/x"][0] == 100
    for refused in (["merge", "-", "-", "-o", "-"], ["split", "-", "-o", "-", "--max-bag-messages", "5"], ["convert", "-", "-o", "-", "-s", "leveldb"]):
        told = subprocess.run([HOLDALL, *refused], input=data, capture_output=True, timeout=60)
        assert told.returncode == 2 and told.stdout == b"", told


@pytest.mark.parametrize("arguments", [["merge", "-o", "out"], ["convert", "-s", "sqlite3", "-o", "out"], ["export", "-f", "csv", "-o", "out"]])
def test_an_interrupted_verb_leaves_nothing_behind(tmp_path, arguments):
    a = write_bag(tmp_path / "a", ["/x", "/y"], 20_000, padding=2000)
    process = subprocess.Popen([HOLDALL, arguments[0], *["a"] * 8, *arguments[1:]], cwd=tmp_path, stdout=subprocess.DEVNULL)

    def hidden():
        return [name for folder in (tmp_path, tmp_path / "out") if folder.exists() for name in os.listdir(folder) if name.startswith(".")]

    end = time.monotonic() + 60
    while not hidden() and process.poll() is None and time.monotonic() < end:
        pass
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == -signal.SIGINT, "as any program that is interrupted"
    assert not hidden()
    assert not any((tmp_path / "out").glob("*")) and (a / "metadata.yaml").exists()


def test_killed_at_any_moment_the_output_is_absent_or_complete(tmp_path):
    a = write_bag(tmp_path / "a", ["/x", "/y"], 2000, padding=4000)
    b = write_bag(tmp_path / "b", ["/x", "/z"], 2000, padding=4000)
    before = {path: hashlib.md5(path.read_bytes()).hexdigest() for bag in (a, b) for path in bag.iterdir()}
    out = tmp_path / "out"
    outcomes = set()
    # The last one ends by itself, however busy the machine is.
    for wait_s in [0.0, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, None]:
        arguments = ["merge", a, b, "-o", out] if wait_s != 0.0 else ["convert", a, b, "-o", out, "-s", "sqlite3"]
        process = subprocess.Popen([HOLDALL, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if wait_s is not None:
            time.sleep(wait_s)
            process.send_signal(signal.SIGKILL)
        process.wait(60)
        if out.exists():
            outcomes.add("complete")
            done("check", out)
            subprocess.run(["rm", "-r", out], check=True)
        else:
            outcomes.add("absent")
    assert outcomes == {"absent", "complete"}
    assert before == {path: hashlib.md5(path.read_bytes()).hexdigest() for bag in (a, b) for path in bag.iterdir()}
    done("merge", a, b, "-o", out)
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "out"], "what killed runs left is gone"


@pytest.mark.parametrize("verb", ["check", "convert", "merge", "filter", "reindex"])
def test_bad_input_is_one_sentence(tmp_path, verb):
    good = write_bag(tmp_path / "good", ["/x"], 20)
    data = next(good.glob("*.mcap")).read_bytes()
    def bag(name, change):
        path = tmp_path / name
        path.mkdir()
        for file in good.iterdir():
            (path / file.name).write_bytes(file.read_bytes())
        change(path)
        return path
    metadata = (good / "metadata.yaml").read_text()
    file_name = next(good.glob("*.mcap")).name
    at = 8
    while data[at] != 6:  # the first chunk
        at += 9 + int.from_bytes(data[at + 1 : at + 9], "little")
    bags = [
        bag("missing", lambda path: (path / file_name).unlink()),
        bag("outside", lambda path: (path / "metadata.yaml").write_text(metadata.replace(file_name, "../good/" + file_name))),
        bag("empty", lambda path: (path / file_name).write_bytes(b"")),
        bag("noise", lambda path: (path / file_name).write_bytes(os.urandom(5000))),
        bag("lying", lambda path: (path / file_name).write_bytes(data[: at + 1] + b"\xff" * 8 + data[at + 9 :])),
        bag("cut", lambda path: (path / file_name).write_bytes(data[: len(data) // 2])),
        tmp_path / "none",
    ]
    for path in bags:
        output = [] if verb in ("check", "reindex") else ["-o", tmp_path / f"out_{path.name}"]
        told = holdall(verb, path, *output)
        assert "panicked" not in told.stderr, told.stderr
        if verb == "reindex" and path.exists():
            # It fixes the metadata; faults of files are reported; without a storage file there is nothing to index.
            assert told.returncode == 2 if path.name == "missing" else told.returncode in (0, 1, 3), (path, told.stderr)
            continue
        # Of a file that was cut off what can be read is copied, and the rest is named.
        is_copied = path.name == "cut" and verb != "check"
        expected = 3 if is_copied else 1 if path.exists() else 2
        assert told.returncode == expected, (path, told.returncode, told.stderr, told.stdout)
        if verb == "check":
            assert told.stdout or told.stderr.count("\n") == 1
        elif is_copied:
            assert "is damaged at byte" in told.stderr and (tmp_path / f"out_{path.name}").exists(), told.stderr
        else:
            assert [line for line in told.stderr.splitlines() if line.startswith("holdall: ")], told.stderr
            assert not (tmp_path / f"out_{path.name}").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")], "nothing is left behind"


def test_manual_pages_come_from_the_program(tmp_path):
    done("man", "--dir", tmp_path)
    pages = {path.name for path in tmp_path.iterdir()}
    assert {"holdall.1", "holdall-record.1", "holdall-convert.1", "holdall-bench.1"} <= pages
    assert ".TH" in (tmp_path / "holdall-convert.1").read_text()


def service_event(kind, client, sequence, version):
    """A serialized ServiceEventInfo with two empty sequences, in the first or second version of CDR."""
    head = bytes([0, {1: 1, 2: 7}[version], 0, 0])
    aligned = b"\0" * (4 if version == 1 else 0)
    return head + bytes([kind, 0, 0, 0]) + b"\1\0\0\0\2\0\0\0" + bytes([client] * 16) + aligned + sequence.to_bytes(8, "little") + b"\0" * 8


@pytest.mark.parametrize("version", [1, 2])
def test_info_counts_each_call_once_whatever_the_version_of_its_encoding(tmp_path, version):
    path = tmp_path / "calls.mcap"
    with open(path, "wb") as file:
        writer = McapWriter(file)
        writer.start(profile="ros2")
        schema = writer.register_schema("example_interfaces/srv/AddTwoInts_Event", "ros2msg", b"int32 unused\n")
        channel = writer.register_channel("/add/_service_event", "cdr", schema)
        for sequence in range(5):
            for kind in range(4):
                stamp = START + sequence * 4 + kind
                writer.add_message(channel, stamp, service_event(kind, 3, sequence, version), stamp)
        writer.finish()
    shown = json.loads(done("info", "-v", "--json", path).stdout)
    assert shown["calls_by_event_topic"] == {"/add/_service_event": {"requests": 5, "responses": 5}}


def write_large(path):
    """An MCAP file of 80 MB with an index: `/steady` all the time, `/early` in its first quarter."""
    with open(path, "wb") as file:
        writer = McapWriter(file, compression=CompressionType.NONE)
        writer.start(profile="ros2")
        schema = writer.register_schema("std_msgs/msg/UInt8MultiArray", "ros2msg", b"uint8[] data\n")
        early = writer.register_channel("/early", "cdr", schema)
        steady = writer.register_channel("/steady", "cdr", schema)
        payload = bytes([0, 1, 0, 0]) + bytes(200_000)
        for number in range(320):
            stamp = START + number * 10_000_000
            writer.add_message(steady, stamp, payload, stamp)
            if number < 80:
                writer.add_message(early, stamp, payload, stamp)
        writer.finish()
    assert path.stat().st_size > 64_000_000


def bytes_read(process, count="rchar"):
    """Bytes that a process has read so far, from whatever it reads; `read_bytes` are those that came from a disk."""
    counts = dict(line.split(": ") for line in Path(f"/proc/{process}/io").read_text().splitlines())
    return int(counts[count])


def read_by(*command):
    """What a run shows, and the bytes that it reads, from whatever it reads and from a disk."""
    program = subprocess.Popen([HOLDALL, *command], stdout=subprocess.PIPE, text=True, errors="replace")
    shown = program.stdout.read()
    # The process has ended and is not yet waited for: its count of bytes is still kept.
    os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
    read, from_disk = bytes_read(program.pid), bytes_read(program.pid, "read_bytes")
    assert program.wait() == 0
    return shown, read, from_disk


def forget(path):
    """Drops a file from the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_a_timeline_comes_from_the_index(tmp_path):
    path = tmp_path / "large.mcap"
    write_large(path)
    shown, read, _ = read_by("info", "--timeline", path)
    lanes = {line.split(" ")[0]: line.split("|")[1] for line in shown.splitlines() if line.startswith(("/early", "/steady"))}
    assert lanes["/steady"].count("█") == len(lanes["/steady"]), shown
    assert lanes["/early"].rstrip() == "█" * (len(lanes["/early"]) // 4), shown
    assert read < 8_000_000


def test_a_copy_reads_its_input_once(tmp_path):
    """A file larger than the page cache would come from the disk twice."""
    path = tmp_path / "large.mcap"
    write_large(path)
    _, read, _ = read_by("convert", path, "-o", tmp_path / "copy")
    assert path.stat().st_size < read < 1.1 * path.stat().st_size
    payload = bytes([0, 1, 0, 0]) + bytes(200_000)
    assert digests(tmp_path / "copy") == {topic: (count, hashlib.md5(payload * count).hexdigest()) for topic, count in (("/early", 80), ("/steady", 320))}


def test_one_message_of_a_cold_bag_reads_little_of_it(tmp_path):
    path = tmp_path / "large.mcap"
    write_large(path)
    for begin in "0", "1.5":
        forget(path)
        _, read, from_disk = read_by("cat", "--raw", "-n", "1", "--start-offset", begin, path)
        # What the system itself reads ahead is counted, too.
        assert read < 8_000_000 and from_disk < 16_000_000, (begin, read, from_disk)
