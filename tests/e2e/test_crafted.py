"""Every verb on files crafted to break it: it ends soon, in little memory, with an exit code of the table and a sentence."""

import bz2
import itertools
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import zlib
from concurrent.futures import ThreadPoolExecutor

import lz4.frame
import pytest
import zstandard

from conftest import HOLDALL

MAGIC = b"\x89MCAP0\r\n"
MEMORY_BYTES = 4 << 30
# Processor time: the machine may be busy.
TIME_S = 20
DEADLINE_S = 300
DAY = 1_700_000_000_000_000_000
CDR = b"\0\1\0\0"
(HEADER, FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK, INDEX, CHUNK_INDEX, _, _, STATISTICS, METADATA, _, _, END) = range(1, 16)

VERBS = [
    ["info", "-v", "IN"],
    ["list", "topics", "IN"],
    ["check", "IN"],
    ["audit", "IN"],
    ["cat", "IN", "-n", "50"],
    ["diff", "IN", "IN"],
    ["convert", "IN", "-o", "OUT", "-s", "sqlite3"],
    ["convert", "IN", "-o", "OUT", "-s", "leveldb"],
    ["split", "IN", "-o", "OUT", "-d", "60"],
    ["filter", "IN", "-o", "OUT", "--topics", "/a"],
    ["repair", "IN", "-o", "OUT"],
    ["export", "IN", "-f", "csv", "-o", "OUT"],
    ["export", "IN", "-f", "png", "-o", "OUT"],
]


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<I", len(value)) + value


def record(kind, body):
    return bytes([kind]) + struct.pack("<Q", len(body)) + body


def schema(number=1, name="std_msgs/msg/String", definition="string data", encoding="ros2msg"):
    return record(SCHEMA, struct.pack("<H", number) + text(name) + text(encoding) + text(definition))


def channel(number=1, topic="/a", of=1, encoding="cdr", entries=()):
    pairs = b"".join(text(key) + text(value) for key, value in entries)
    return record(CHANNEL, struct.pack("<HH", number, of) + text(topic) + text(encoding) + text(pairs))


def message(stamp, payload=CDR + b"\2\0\0\0x\0", number=1, sequence=1):
    return record(MESSAGE, struct.pack("<HIQQ", number, sequence, stamp, stamp) + payload)


def chunk(records, codec="", stored=None, size=None, start=DAY, end=DAY):
    pack = {"": bytes, "zstd": zstandard.ZstdCompressor().compress, "lz4": lz4.frame.compress}.get(codec, bytes)
    stored = pack(records) if stored is None else stored
    head = struct.pack("<QQQI", start, end, len(records) if size is None else size, zlib.crc32(records))
    return record(CHUNK, head + text(codec) + struct.pack("<Q", len(stored)) + stored)


def mcap(*records, footer=(0, 0)):
    end = record(END, struct.pack("<I", 0)) + record(FOOTER, struct.pack("<QQI", *footer, 0))
    return MAGIC + record(HEADER, text("ros2") + text("x")) + b"".join(records) + end + MAGIC


def plain(definition="string data", payloads=(CDR + b"\2\0\0\0x\0",), name="p/msg/T", **of_channel):
    messages = [message(DAY + number, payload) for number, payload in enumerate(payloads)]
    return mcap(schema(1, name, definition), channel(1, **of_channel), *messages)


def zeros(codec, count):
    if codec == "bz2":
        packer = bz2.BZ2Compressor(9)
        pieces = [packer.compress(bytes(1 << 24)) for _ in range(count >> 24)]
        return b"".join(pieces) + packer.flush()
    packer = zstandard.ZstdCompressor(level=1).compressobj(size=count)
    return b"".join(packer.compress(bytes(1 << 24)) for _ in range(count >> 24)) + packer.flush()


def ros1_chunk(codec, stored, size):
    def header(**fields):
        body = b"".join(struct.pack("<I", len(k) + 1 + len(v)) + k.encode() + b"=" + v for k, v in fields.items())
        return struct.pack("<I", len(body)) + body

    def one(data, **fields):
        return header(**fields) + struct.pack("<I", len(data)) + data

    index = one(b" " * 4027, op=b"\3", index_pos=bytes(8), conn_count=b"\1\0\0\0", chunk_count=b"\1\0\0\0")
    return b"#ROSBAG V2.0\n" + index + one(stored, op=b"\5", compression=codec, size=struct.pack("<I", size))


def image(height, width, encoding, step, data):
    body = struct.pack("<iI", 1, 1) + struct.pack("<I", 1) + b"\0\0\0\0" + struct.pack("<II", height, width)
    body += struct.pack("<I", len(encoding) + 1) + encoding + b"\0\0"
    body += bytes(-len(body) % 4)
    return CDR + body + struct.pack("<I", step) + struct.pack("<I", len(data)) + data


IMAGE = """std_msgs/Header header
uint32 height
uint32 width
string encoding
uint8 is_bigendian
uint32 step
uint8[] data
{line}
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
{line}
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec""".format(line="=" * 80)


def nested(depth, of="", twice=False):
    parts = [f"T0{of} x"]
    for number in range(depth):
        parts += ["=" * 80, f"MSG: p/T{number}", f"T{number + 1}{of} a"] + ([f"T{number + 1}{of} b"] if twice else [])
    return "\n".join([*parts, "=" * 80, f"MSG: p/T{depth}", "uint8 x"])


def definitions():
    wide = CDR + bytes(5000)
    yield "twice_nested.mcap", plain(nested(60, twice=True), [wide])
    yield "nested_100000.mcap", plain(nested(100_000), [wide])
    yield "array_1000_12.mcap", plain(nested(12, "[1000]"), [wide])
    yield "array_64_3.mcap", plain(nested(3, "[64]"), [CDR + bytes(1_000_000)])
    yield "recursive.mcap", plain("T t\n" + "=" * 80 + "\nMSG: p/T\nT t", [wide])
    yield "array_4g.mcap", plain("uint8[4294967295] x", [wide])
    yield "empty_elements.mcap", plain("E[] x\n" + "=" * 80 + "\nMSG: p/E\n", [CDR + b"\xff" * 4 + bytes(64)])
    yield "fields_50000.mcap", plain("\n".join(f"uint8 f{n}" for n in range(50_000)), [CDR + b"\1" * 50_000] * 3)
    yield "idl_parentheses.mcap", mcap(
        schema(1, "p/msg/A", "module p { const long X = " + "(" * 100_000 + "1" + ")" * 100_000 + "; };", "ros2idl"),
        channel(), message(DAY, wide),
    )
    yield "string_lengths.mcap", plain("string[] a", [CDR + b"\xff" * 4, CDR + b"\xff\0\0\0" + b"\1\0\0\0\0\0\0\0" * 9])
    yield "encapsulations.mcap", plain("float64 x\nint32 y", [bytes([0, kind, 0, 0]) + bytes(12) for kind in range(16)])


def names():
    for number, topic in enumerate(["/a\x1b[31m\x1b]0;x\x07", "/a\u202egpj.exe", "/a\u009b31m", "/../../x", "", "/", "/a\0b",
                                    "/" + "x" * 4000, "/x'; DROP TABLE messages; --"]):
        yield f"name_{number}.mcap", plain(topic=topic)
    long_names = [f"/{'y' * 240}{n}" for n in range(3)]
    yield "names_240.mcap", mcap(schema(), *itertools.chain.from_iterable(
        (channel(n + 1, name), message(DAY + n, number=n + 1)) for n, name in enumerate(long_names)))
    yield "images.mcap", plain(IMAGE, [
        image(2**32 - 1, 2**32 - 1, b"rgb8", 2**32 - 3, b"xyz"), image(100_000, 100_000, b"mono8", 100_000, b"x" * 1000),
        image(1, 2**32 - 1, b"mono8", 2**32 - 1, b""), image(1, 1, b"16SC1", 2, b"\xd0\x8a"), image(3, 3, b"yuv422", 6, b"\xff" * 18),
    ], name="sensor_msgs/msg/Image")


def structures():
    head = schema() + channel()
    yield "two_times.mcap", mcap(head, *(message(stamp) for stamp in (0, DAY, DAY + 10**9)))
    yield "two_times_chunked.mcap", mcap(chunk(head + b"".join(message(s) for s in (0, DAY, DAY + 10**9)), "zstd", start=0, end=DAY + 10**9))
    yield "last_times.mcap", mcap(head, *(message(stamp) for stamp in (0, 1, 2**63 - 1, 2**63, 2**64 - 1, DAY)))
    yield "channels_1000.mcap", mcap(
        schema(), *(channel(n, f"/t{n}") for n in range(1, 1_001)), *(message(DAY + n, number=n) for n in range(1, 1_001, 64)))
    yield "messages_50000.mcap", mcap(chunk(head + message(DAY) * 50_000, "zstd"))
    yield "chunk_in_chunk.mcap", mcap(chunk(chunk(head + message(DAY))))
    for size in (8 << 30, 2**63, 2**64 - 1, 0):
        yield f"chunk_says_{size}.mcap", mcap(chunk(head + message(DAY), "zstd", size=size))
    yield "chunk_codec.mcap", mcap(chunk(head + message(DAY), "bogus\x1b[31m"))
    yield "channel_again.mcap", mcap(head, message(DAY), schema(2, "std_msgs/msg/Int32", "int32 data"), channel(1, "/b", 2), message(DAY + 1))
    yield "no_schema.mcap", mcap(channel(5, "/n", 9), message(5, number=5), message(6, number=77))
    for start in (8, 2**40, 2**63, 2**64 - 1):
        yield f"footer_{start}.mcap", mcap(head, message(DAY), footer=(start, 8))
    yield "record_2_64.mcap", MAGIC + record(HEADER, text("ros2") + text("x")) + b"\5" + b"\xff" * 8 + b"x" * 100
    yield "metadata_counts.mcap", mcap(head, message(DAY), record(METADATA, text("rosbag2") + struct.pack("<I", 2**32 - 1) + text("a")))
    ledger = text("ledger") + text('{"topics":[{"publishers":[{"sent":18446744073709551615,"received":-1}]}]}')
    yield "ledger.mcap", mcap(head, message(DAY), record(METADATA, text("holdall:loss") + text(ledger)))
    yield "empty.mcap", b""
    yield "magic.mcap", MAGIC * 2
    yield "zeros.mcap", bytes(1_000_000)


def bombs():
    count = 128 << 20
    bomb = zeros("zstd", count)
    for said in (count, 1000):
        yield f"zstd_{said}.mcap", mcap(chunk(b"", "zstd", stored=bomb, size=said))
    small = zeros("bz2", 128 << 20)
    for said in (2**32 - 1, 1 << 30, 128 << 20, 1000):
        yield f"bz2_{said}.bag", ros1_chunk(b"bz2", small, said)
    yield "header.bag", b"#ROSBAG V2.0\n\xff\xff\xff\xff" + b"x" * 100
    bag = "rosbag2_bagfile_information:\n  version: 9\n  storage_identifier: mcap\n  duration: {nanoseconds: 1}\n" \
          "  starting_time: {nanoseconds_since_epoch: 1}\n  message_count: 1\n  topics_with_message_count: []\n" \
          "  compression_format: \"%s\"\n  compression_mode: \"%s\"\n  relative_file_paths: [%s]\n"
    good = plain()
    yield "message_bomb", {"metadata.yaml": bag % ("zstd", "MESSAGE", "g.mcap"),
                           "g.mcap": mcap(schema(), channel(), message(DAY, bomb))}
    for name, path in [("outside", "../../secret.mcap"), ("device", "/dev/zero"), ("itself", "."), ("same", "g.mcap," * 5000)]:
        yield f"path_{name}", {"metadata.yaml": bag % ("", "", path), "g.mcap": good}
    yield "yaml_deep", {"metadata.yaml": "rosbag2_bagfile_information: " + "[" * 100_000, "g.mcap": good}
    aliases = 'a: &a ["x","x","x","x","x","x","x","x","x"]\n' + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(12))
    yield "yaml_aliases", {"metadata.yaml": aliases + bag % ("", "", "g.mcap"), "g.mcap": good}


TABLES = """CREATE TABLE schema(schema_version INTEGER PRIMARY KEY, ros_distro TEXT NOT NULL);
CREATE TABLE metadata(id INTEGER PRIMARY KEY, metadata_version INTEGER NOT NULL, metadata TEXT NOT NULL);
CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT NOT NULL, type TEXT NOT NULL, serialization_format TEXT NOT NULL,
 offered_qos_profiles TEXT NOT NULL, type_description_hash TEXT NOT NULL);
CREATE TABLE message_definitions(id INTEGER PRIMARY KEY, topic_type TEXT NOT NULL, encoding TEXT NOT NULL,
 encoded_message_definition TEXT NOT NULL, type_description_hash TEXT NOT NULL);
CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL, timestamp INTEGER NOT NULL, data BLOB NOT NULL);
CREATE INDEX timestamp_idx ON messages (timestamp ASC);
INSERT INTO schema VALUES(4, 'jazzy');
INSERT INTO topics VALUES(1, '/a', 'std_msgs/msg/String', 'cdr', '', '');
INSERT INTO messages VALUES(1, 1, 1700000000000000000, x'00010000020000007800'), (2, 1, 1700000000000000001, x'00010000020000007800');
"""
DATABASES = {
    "blob_200m": "UPDATE messages SET data = zeroblob(200000000) WHERE id = 2",
    "metadata_blob": "INSERT INTO metadata VALUES(1, 9, zeroblob(30000000))",
    "topic_name_2m": "UPDATE topics SET name = '/' || hex(zeroblob(1000000))",
    "topics_500": "INSERT INTO topics(name, type, serialization_format, offered_qos_profiles, type_description_hash) WITH RECURSIVE c(x) AS "
                    "(SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 500) SELECT '/t' || x, 'std_msgs/msg/String', 'cdr', '', '' FROM c",
    "view_blob": "ALTER TABLE messages RENAME TO m2; CREATE VIEW messages AS SELECT id, topic_id, timestamp, zeroblob(30000000) AS data FROM m2",
    "text_payload": "UPDATE messages SET data = 'text' WHERE id = 2",
    "null_payload": "CREATE TABLE m3 AS SELECT id, topic_id, timestamp, NULL AS data FROM messages; DROP TABLE messages; ALTER TABLE m3 RENAME TO messages",
    "trigger": "CREATE TRIGGER a AFTER INSERT ON metadata BEGIN DELETE FROM messages; END",
}


def make(folder):
    """All files below `folder`; their paths."""
    made = []
    for name, content in itertools.chain(definitions(), names(), structures(), bombs()):
        path = folder / name
        if isinstance(content, dict):
            path.mkdir()
            for inner, inside in content.items():
                (path / inner).write_bytes(inside if isinstance(inside, bytes) else inside.encode())
        else:
            path.write_bytes(content)
        made.append(path)
    for name, change in DATABASES.items():
        path = folder / f"{name}.db3"
        database = sqlite3.connect(path)
        database.executescript(TABLES + change)
        database.close()
        made.append(path)
    fifo = folder / "fifo"
    fifo.mkdir()
    os.mkfifo(fifo / "f.mcap")
    return [*made, fifo]


def run(number, path, verb, folder):
    """None when the verb behaves, else what it did."""
    output = folder / f"out{number}"
    arguments = [str({"IN": path, "OUT": output}.get(word, word)) for word in verb]
    command = ["prlimit", f"--as={MEMORY_BYTES}", f"--cpu={TIME_S}", HOLDALL, *arguments]
    what = f"{' '.join(verb)} of {path.name}"
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        return f"{what}: no end in {DEADLINE_S} s"
    finally:
        shutil.rmtree(output, ignore_errors=True)
    errors = done.stderr.decode(errors="replace")
    if done.returncode == -signal.SIGXCPU:
        return f"{what}: more than {TIME_S} s of the processor"
    if done.returncode not in (0, 1, 2, 3) or "panicked" in errors or "a bug in holdall" in errors:
        return f"{what}: exit {done.returncode}: {errors[-300:]}"
    if done.returncode != 0 and not (errors or done.stdout):
        return f"{what}: exit {done.returncode} without a word"
    return None


@pytest.mark.parametrize("verb", VERBS, ids=["-".join(word for word in verb if word not in ("IN", "OUT")) for verb in VERBS])
def test_every_verb_ends_soon_on_every_crafted_file(verb, crafted, tmp_path):
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        faults = [fault for fault in pool.map(lambda job: run(*job, verb, tmp_path), enumerate(crafted)) if fault]
    assert not faults, "\n".join(faults)


@pytest.fixture(scope="module")
def crafted(tmp_path_factory):
    return make(tmp_path_factory.mktemp("crafted"))
