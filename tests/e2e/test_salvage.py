"""Damaged bags of every storage: no verb copies damage, each saves what can be read, names what is missing, and does not end with 0."""

import collections
import json
import os
import random
import shutil
import sqlite3
import struct
import subprocess
from pathlib import Path

import pytest
import yaml
from conftest import HOLDALL
from mcap.reader import make_reader
from mcap.writer import CompressionType
from mcap.writer import Writer as McapWriter

START = 1_700_000_000_000_000_000
STEP = 10_000_000
COUNT = 1200
TOPICS = ["/a", "/b"]
CODECS = {"none": CompressionType.NONE, "lz4": CompressionType.LZ4, "zstd": CompressionType.ZSTD}
CHUNK_HEADER = struct.Struct("<BQQQQI")


def holdall(*arguments):
    return subprocess.run([HOLDALL, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def payload(number):
    rest = random.Random(number).randbytes(60)
    text = b"%08d" % number + rest.hex().encode() + b"x" * 40
    return b"\0\1\0\0" + struct.pack("<I", len(text) + 1) + text + b"\0"


def message(number):
    return (TOPICS[number % 2], START + number * STEP, payload(number))


def write_mcap(path, codec, count=COUNT):
    """A file of a dozen chunks, each with some hundred messages; the numbers of the messages in each."""
    with open(path, "wb") as stream:
        writer = McapWriter(stream, chunk_size=20_000, compression=CODECS[codec])
        writer.start("ros2", "test")
        schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"string data\n")
        channels = {topic: writer.register_channel(topic, "cdr", schema) for topic in TOPICS}
        for number in range(count):
            topic, time, data = message(number)
            writer.add_message(channels[topic], time, data, time)
        writer.finish()
    with open(path, "rb") as stream:
        summary = make_reader(stream).get_summary()
    chunks = sorted(summary.chunk_indexes, key=lambda chunk: chunk.chunk_start_offset)
    first = [(chunk.message_start_time - START) // STEP for chunk in chunks] + [count]
    return chunks, [range(*span) for span in zip(first, first[1:], strict=False)]


def header_end(content, chunk):
    at = chunk.chunk_start_offset + CHUNK_HEADER.size
    return at + 4 + struct.unpack_from("<I", content, at)[0] + 8


def undecodable(content, chunk):
    begin, end = header_end(content, chunk), chunk.chunk_start_offset + chunk.chunk_length
    middle = (begin + end) // 2
    content[middle : middle + 400] = bytes(byte ^ 0x5A for byte in content[middle : middle + 400])


def one_bit(content, chunk):
    content[(header_end(content, chunk) + chunk.chunk_start_offset + chunk.chunk_length) // 2] ^= 1


def wrong_sum(content, chunk):
    content[chunk.chunk_start_offset + CHUNK_HEADER.size - 4] ^= 0xFF


def lying_record_length(content, chunk):
    at = chunk.chunk_start_offset + 1
    struct.pack_into("<Q", content, at, struct.unpack_from("<Q", content, at)[0] + 1000)


def huge_record_length(content, chunk):
    struct.pack_into("<Q", content, chunk.chunk_start_offset + 1, 1 << 60)


def lying_size(content, chunk):
    at = header_end(content, chunk) - 8
    struct.pack_into("<Q", content, at, struct.unpack_from("<Q", content, at)[0] + 77)


def zeros(content, chunk):
    begin, end = chunk.chunk_start_offset, chunk.chunk_start_offset + chunk.chunk_length
    content[begin:end] = bytes(end - begin)


KINDS = [undecodable, one_bit, wrong_sum, lying_record_length, huge_record_length, lying_size, zeros]
PLACES = {"first": [0], "middle": [5], "last": [-1], "several": [1, 2, 6]}

VERBS = {
    "convert": ["convert"],
    "merge": ["merge"],
    "filter": ["filter", "--start", "+0"],
    "filter-topic": ["filter", "--topics", "/a"],
    "split": ["split", "--max-bag-messages", "500"],
    "split-span": ["split", "-d", "3"],
    "compress": ["compress"],
    "decompress": ["decompress"],
    "to-sqlite3": ["convert", "-s", "sqlite3"],
    "repair": ["repair"],
}


def found_in(bag):
    """What foreign readers find in a bag or file: topic, time and payload of each message."""
    found = collections.Counter()
    files = sorted(bag.iterdir()) if bag.is_dir() else [bag]
    for path in files:
        head = path.read_bytes()[:16]
        if head.startswith(b"\x89MCAP"):
            with open(path, "rb") as stream:
                for _, channel, it in make_reader(stream, validate_crcs=True).iter_messages():
                    found[channel.topic, it.log_time, it.data] += 1
        elif head.startswith(b"SQLite format 3"):
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as base:
                assert base.execute("pragma integrity_check").fetchone() == ("ok",)
                for row in base.execute("select name, timestamp, data from messages join topics on topics.id = topic_id"):
                    found[row] += 1
    return found


def judge(verb, told, out, expected, missing):
    """The output has what can be read, no more; what is missing is named, with its number."""
    text = told.stdout + told.stderr
    if not expected:
        assert told.returncode == 1, (verb, told)
        return
    assert told.returncode == (3 if missing else 0), (verb, told)
    assert found_in(out) == collections.Counter(map(message, expected)), (verb, told)
    if missing:
        assert f"{missing} messages" in text, (verb, told)
        assert "cannot be read" in text or "not saved" in text, (verb, told)
    assert ".partial" not in text, told
    checked = holdall("check", out)
    assert checked.returncode == 0, (verb, checked)


def numbers_for(verb, numbers):
    return [number for number in numbers if verb != "filter-topic" or number % 2 == 0]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("place", PLACES)
def test_a_bad_chunk_is_left_out_and_named_by_every_verb(tmp_path, codec, kind, place):
    path = tmp_path / "in.mcap"
    chunks, spans = write_mcap(path, codec)
    content = bytearray(path.read_bytes())
    bad = [index % len(chunks) for index in PLACES[place]]
    for index in bad:
        kind(content, chunks[index])
    path.write_bytes(content)
    lost = [number for index in bad for number in spans[index]]
    left = [number for number in range(COUNT) if number not in set(lost)]
    # Each case tries some of the verbs; all are tried on each kind of damage, and each kind at each place.
    case = (list(CODECS).index(codec) + list(PLACES).index(place)) % 2
    verbs = [verb for number, verb in enumerate(VERBS) if verb == "repair" or number % 2 == case]
    for verb in verbs:
        out = tmp_path / f"out-{verb}" / ("saved.mcap" if verb == "repair" else "bag")
        out.parent.mkdir()
        told = holdall(VERBS[verb][0], path, *VERBS[verb][1:], "-o", out)
        judge(verb, told, out, numbers_for(verb, left), len(numbers_for(verb, lost)))
    assert path.read_bytes() == content, "an input is never changed"
    shown = holdall("cat", "--json", path)
    assert shown.returncode != 0 and len(shown.stdout.splitlines()) == len(left), shown.stderr
    checked = holdall("check", path)
    assert checked.returncode == 1, checked
    assert f"({len(left):,} messages".replace(",", " ") in checked.stdout, checked
    assert "statistics" not in checked.stdout, checked
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(path, folder)
    described = holdall("reindex", folder)
    said = yaml.safe_load((folder / "metadata.yaml").read_text())["rosbag2_bagfile_information"]
    assert said["message_count"] == len(left) and described.returncode == 3, (said, described)


def indexed_wrongly(content, chunk):
    """An entry of a message index that leads elsewhere; no message is lost."""
    at = chunk.chunk_start_offset + chunk.chunk_length
    struct.pack_into("<Q", content, at + 9 + 6 + 8, 12345)


def indexed_too_long(content, chunk):
    at = chunk.chunk_start_offset + chunk.chunk_length
    struct.pack_into("<Q", content, at + 1, 1 << 40)


def wrong_times(content, chunk):
    struct.pack_into("<QQ", content, chunk.chunk_start_offset + 9, 1, 2)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", [indexed_wrongly, indexed_too_long, wrong_times], ids=lambda kind: kind.__name__)
def test_wrong_indexes_are_made_anew_and_lose_nothing(tmp_path, codec, kind):
    path = tmp_path / "in.mcap"
    chunks, _ = write_mcap(path, codec)
    content = bytearray(path.read_bytes())
    for index in (0, 4, -1):
        kind(content, chunks[index])
    path.write_bytes(content)
    for verb in VERBS:
        out = tmp_path / f"out-{verb}" / ("saved.mcap" if verb == "repair" else "bag")
        out.parent.mkdir()
        told = holdall(VERBS[verb][0], path, *VERBS[verb][1:], "-o", out)
        judge(verb, told, out, numbers_for(verb, range(COUNT)), 0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("damage", ["summary", "footer", "half", "half and a bad chunk"])
@pytest.mark.parametrize("name", ["in.mcap", "in"])
def test_a_file_without_its_end_is_saved_whatever_its_name(tmp_path, codec, damage, name):
    path = tmp_path / name
    chunks, spans = write_mcap(path, codec)
    content = bytearray(path.read_bytes())
    left = list(range(COUNT))
    if damage == "summary":
        (begin,) = struct.unpack_from("<Q", content, len(content) - 28)
        content[begin + 20 : -40] = bytes(len(content) - begin - 60)
    elif damage == "footer":
        del content[-20:]
    else:
        del content[chunks[8].chunk_start_offset + 100 :]
        left = [number for span in spans[:8] for number in span]
        if damage == "half and a bad chunk":
            undecodable(content, chunks[3])
        if damage != "half":
            left = [number for number in left if number not in spans[3]]
    path.write_bytes(content)
    expected = collections.Counter(map(message, left))
    for verb in ["convert", "merge", "to-sqlite3", "repair"]:
        out = tmp_path / f"out-{verb}" / "saved"
        out.parent.mkdir()
        told = holdall(VERBS[verb][0], path, *VERBS[verb][1:], "-o", out)
        assert told.returncode in ([0, 3] if verb == "repair" else [3]), (verb, told)
        if damage.startswith("half and"):
            assert told.returncode == 3, (verb, told)
        found = found_in(out)
        assert not found - collections.Counter(map(message, range(COUNT))), (verb, told)
        assert not expected - found, (verb, len(found), len(left), told)
        assert ".partial" not in told.stdout + told.stderr
        assert holdall("check", out).returncode == 0
    assert path.read_bytes() == content
    repaired = holdall("repair", path)
    assert "nothing to repair" not in repaired.stdout, repaired
    assert holdall("check", path).returncode == 0, repaired
    assert not expected - found_in(path)


def test_of_a_file_in_which_nothing_can_be_read_nothing_is_made(tmp_path):
    path = tmp_path / "in.mcap"
    chunks, _ = write_mcap(path, "zstd")
    content = bytearray(path.read_bytes())
    for chunk in chunks:
        undecodable(content, chunk)
    path.write_bytes(content)
    for verb in ["convert", "merge", "filter", "to-sqlite3"]:
        told = holdall(VERBS[verb][0], path, *VERBS[verb][1:], "-o", tmp_path / verb)
        assert told.returncode == 1 and "nothing was written" in told.stderr, (verb, told)
        assert not (tmp_path / verb).exists()
    assert holdall("repair", path, "-o", tmp_path / "repaired").returncode == 1
    told = holdall("repair", path)
    assert told.returncode == 3 and path.read_bytes() == content


def test_one_bad_file_of_a_bag_does_not_keep_the_others(tmp_path):
    whole = tmp_path / "whole.mcap"
    write_mcap(whole, "zstd")
    bag = tmp_path / "bag"
    assert holdall("split", whole, "-o", bag, "-d", "3").returncode == 0
    files = sorted(bag.glob("*.mcap"))
    assert len(files) == 4
    shutil.copytree(bag, tmp_path / "noise")
    (tmp_path / "noise" / files[1].name).write_bytes(b"noise" * 1000)
    lost = found_in(files[1])
    left = found_in(bag) - lost
    # Which of its messages a whole file had is not known to those that make a bag of others: they name the verb that takes the rest.
    told = holdall("convert", tmp_path / "noise", "-o", tmp_path / "refused")
    assert told.returncode == 1 and "`holdall repair`" in told.stderr and not (tmp_path / "refused").exists()
    for verb in ["repair"]:
        out = tmp_path / verb
        told = holdall(VERBS[verb][0], tmp_path / "noise", *VERBS[verb][1:], "-o", out)
        assert told.returncode == 3, (verb, told)
        assert found_in(out) == left, (verb, told)
        assert files[1].name in told.stdout + told.stderr
        assert str(lost.total()) in told.stdout + told.stderr, (verb, told)


@pytest.mark.parametrize("storage", ["mcap"])
@pytest.mark.parametrize("part", [0.3, 0.9])
def test_the_front_of_a_packed_file_that_was_cut_is_saved(tmp_path, storage, part):
    plain = tmp_path / "plain.mcap"
    write_mcap(plain, "none", 6000)
    bag = tmp_path / "bag"
    assert holdall("convert", plain, "-o", bag, "-s", storage, "--compression-mode", "file").returncode == 0
    (packed,) = bag.glob("*.zstd")
    content = packed.read_bytes()[: int(packed.stat().st_size * part)]
    packed.write_bytes(content)
    everything = collections.Counter(map(message, range(6000)))
    for source in (bag, packed):
        for verb in ["convert", "repair"]:
            out = tmp_path / f"{verb}-{source.name}"
            told = holdall(VERBS[verb][0], source, *VERBS[verb][1:], "-o", out)
            assert told.returncode == 3, (verb, told)
            found = found_in(out)
            assert not found - everything
            assert found.total() > 6000 * part * 0.7, (found.total(), told)
            assert str(packed) in told.stdout + told.stderr, told
            assert holdall("check", out).returncode == 0
    assert packed.read_bytes() == content


PYTHON = "/usr/bin/python3"


def plain_env():
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}


def ros1_messages(path):
    """Number, time and payload of each message, as ROS 1's own rosbag reads them; None where it is not installed."""
    program = (
        "import rosbag, sys, hashlib\n"
        "for topic, (_, data, *_), t in rosbag.Bag(sys.argv[1]).read_messages(raw=True):\n"
        "    print(topic, t.to_nsec(), hashlib.md5(data).hexdigest())\n"
    )
    if subprocess.run([PYTHON, "-c", "import rosbag"], capture_output=True, env=plain_env()).returncode:
        return None
    told = subprocess.run([PYTHON, "-c", program, path], capture_output=True, text=True, env=plain_env(), timeout=60)
    assert told.returncode == 0, told.stderr
    return told.stdout.splitlines()


def write_ros1(path, compression, count):
    from rosbags.rosbag1 import Writer as Ros1Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC)
    writer = Ros1Writer(path)
    if compression != "none":
        writer.set_compression(getattr(Ros1Writer.CompressionFormat, compression.upper()))
    with writer:
        connections = [writer.add_connection(topic, "std_msgs/msg/String", typestore=store) for topic in TOPICS]
        for number in range(count):
            text = payload(number)[8:-1] * 20
            writer.write(connections[number % 2], START + number * STEP, struct.pack("<I", len(text)) + text)


def ros1_numbers(path):
    """The numbers of the messages that pip rosbags reads, each compared with what was written."""
    from rosbags.rosbag1 import Reader as Ros1Reader

    numbers = []
    with Ros1Reader(path) as reader:
        for connection, time, data in reader.messages():
            number = (time - START) // STEP
            assert connection.topic == TOPICS[number % 2] and data[4:] == payload(number)[8:-1] * 20
            numbers.append(number)
    return numbers


@pytest.mark.parametrize("compression", ["none", "bz2", "lz4"])
@pytest.mark.parametrize("damage", ["index cut", "active", "half", "bad chunk", "bad chunk and half"])
@pytest.mark.parametrize("name", ["torn.bag", "torn.bag.active"])
def test_a_torn_ros_1_bag_is_repaired_and_converted(tmp_path, compression, damage, name):
    count = 2000
    whole, path = tmp_path / "whole.bag", tmp_path / name
    write_ros1(whole, compression, count)
    content = bytearray(whole.read_bytes())
    (index,) = struct.unpack_from("<Q", content, content.index(b"index_pos=") + 10)
    if damage == "index cut":
        del content[-120:]
    elif damage == "active":
        # As a recorder leaves it that is killed: no index, and a header that has none.
        del content[index:]
        struct.pack_into("<Q", content, content.index(b"index_pos=") + 10, 0)
        struct.pack_into("<I", content, content.index(b"conn_count=") + 11, 0)
        struct.pack_into("<I", content, content.index(b"chunk_count=") + 12, 0)
    if "half" in damage:
        del content[index // 2 :]
    if "bad chunk" in damage:
        starts = [at for at in range(len(content)) if content.startswith(b"\x04\0\0\0op=\x05", at)]
        at = starts[min(1, len(starts) - 1)] + 3000
        content[at : at + 300] = bytes(byte ^ 0xA5 for byte in content[at : at + 300])
    path.write_bytes(content)
    if compression == "none" and "bad chunk" in damage:
        # Such a chunk has no checksum: what its records say is what there is.
        return
    shown = holdall("cat", "--json", path)
    readable = len(shown.stdout.splitlines())
    assert shown.returncode != 0 or damage in ("index cut", "active") and readable == count, shown.stderr
    out = tmp_path / "converted"
    told = holdall("convert", path, "-o", out)
    assert told.returncode == (0 if damage == "active" else 3), told
    assert holdall("check", out).returncode == 0
    repaired = tmp_path / "repaired.bag"
    told = holdall("repair", path, "-o", repaired)
    assert ".partial" not in told.stdout + told.stderr
    found = ros1_numbers(repaired)
    assert len(found) == len(set(found)) == readable, told
    assert readable == count if damage in ("index cut", "active") else 400 < readable < count, readable
    assert told.returncode == (0 if readable == count else 3), told
    with_ros1 = ros1_messages(repaired) if compression != "lz4" else None
    # ROS 1 itself reads no chunk of lz4 that pip rosbags makes.
    assert with_ros1 is None or len(with_ros1) == readable
    assert json.loads(holdall("info", "--json", out).stdout)["message_count"] == readable
    assert holdall("check", repaired).returncode == 0
    assert path.read_bytes() == content
    if "bad" not in damage:
        assert holdall("repair", path).returncode in (0, 3)
        assert ros1_numbers(path) == found
