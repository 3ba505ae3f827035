"""MCAP files without an index in which the records cannot be followed at some place: what is whole behind it is found by every verb,
the gap is named, and the end of a killed recording is still only an end."""

import collections
import json
import random
import shutil

import pytest
from mcap.reader import make_reader
from mcap.records import Message
from mcap.stream_reader import StreamReader
from mcap.writer import CompressionType
from mcap.writer import Writer as McapWriter
from test_salvage import (
    CODECS,
    COUNT,
    START,
    STEP,
    TOPICS,
    VERBS,
    found_in,
    holdall,
    huge_record_length,
    lying_record_length,
    message,
    write_mcap,
    zeros,
)
from test_salvage_pairs import footer, no_footer, summary


def damaged_header(content, chunk):
    at = chunk.chunk_start_offset + 9
    content[at : at + 40] = random.Random(7).randbytes(40)


def longer_by_a_few(content, chunk):
    content[chunk.chunk_start_offset + 1] = (content[chunk.chunk_start_offset + 1] + 4) % 256


def noise(content, chunk):
    begin, end = chunk.chunk_start_offset, chunk.chunk_start_offset + chunk.chunk_length
    content[begin:end] = random.Random(3).randbytes(end - begin)


def killed(content, _):
    """The recorder was killed: no end, and space that was reserved."""
    del content[content.index(b"\x0f\x04\0\0\0\0\0\0\0") :]
    content.extend(bytes(300_000))


def killed_in_used_space(content, chunk):
    """As before, and the space has a part of an older recording."""
    old = content[chunk.chunk_start_offset : chunk.chunk_start_offset + chunk.chunk_length - 10]
    killed(content, chunk)
    content[-100_000 : -100_000 + len(old)] = old


BREAKS = [zeros, noise, lying_record_length, huge_record_length, damaged_header, longer_by_a_few]
FORMS = [summary, footer, no_footer, killed, killed_in_used_space]


def streamed(path):
    """What pip mcap finds that reads the file from front to end."""
    with open(path, "rb") as stream:
        records = StreamReader(stream, validate_crcs=True).records
        return sum(isinstance(record, Message) for record in records)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@pytest.mark.parametrize("kind", BREAKS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("bad", [[4], [2, 3, 7]], ids=["one", "several"])
def test_what_is_whole_behind_a_gap_is_found(tmp_path, form, kind, bad):
    number = BREAKS.index(kind) + FORMS.index(form)
    path = tmp_path / "in.mcap"
    chunks, spans = write_mcap(path, list(CODECS)[number % 3])
    content = bytearray(path.read_bytes())
    for index in bad:
        kind(content, chunks[index])
    form(content, chunks[1])
    path.write_bytes(content)
    expected = collections.Counter(message(it) for index, span in enumerate(spans) if index not in bad for it in span)
    shown = holdall("cat", "--json", path)
    assert len(shown.stdout.splitlines()) == expected.total() and shown.returncode != 0, shown.stderr
    about = json.loads(holdall("info", "--json", path).stdout)
    assert about["message_count"] == expected.total() and about["state"] == "damaged", about
    assert holdall("audit", path).returncode != 0
    checked = holdall("check", path)
    assert checked.returncode == 1 and f"byte {chunks[bad[0]].chunk_start_offset}" in checked.stdout, checked
    for verb in ["convert", "repair", *(["filter", "to-sqlite3"] if number % 2 else ["merge", "split"])]:
        out = tmp_path / f"out-{verb}" / ("saved.mcap" if verb == "repair" else "bag")
        out.parent.mkdir()
        told = holdall(VERBS[verb][0], path, *VERBS[verb][1:], "-o", out)
        assert told.returncode == 3, (verb, told)
        assert found_in(out) == expected, (verb, told)
        assert f"byte {chunks[bad[0]].chunk_start_offset}" in told.stdout + told.stderr, (verb, told)
        assert holdall("check", out).returncode == 0, verb
    assert path.read_bytes() == content, "an input is never changed"
    told = holdall("repair", path)
    last = max(index for index in range(len(chunks)) if index not in bad)
    assert path.stat().st_size > chunks[last].chunk_start_offset + chunks[last].chunk_length, told
    if told.returncode == 3:
        assert found_in(path) == expected and streamed(path) == expected.total(), told
        assert holdall("check", path).returncode == 0
    else:
        assert told.returncode == 1 and "-o" in told.stderr and path.read_bytes() == content, told


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", BREAKS, ids=lambda kind: kind.__name__)
def test_definitions_of_the_first_chunk_are_found_at_the_end(tmp_path, codec, kind):
    path = tmp_path / "in.mcap"
    chunks, spans = write_mcap(path, codec)
    content = bytearray(path.read_bytes())
    kind(content, chunks[0])
    footer(content, None)
    path.write_bytes(content)
    expected = collections.Counter(message(it) for span in spans[1:] for it in span)
    for verb in ["convert", "repair", "filter", "merge"]:
        out = tmp_path / f"out-{verb}" / ("saved.mcap" if verb == "repair" else "bag")
        out.parent.mkdir()
        told = holdall(VERBS[verb][0], path, *VERBS[verb][1:], "-o", out)
        assert told.returncode == 3 and found_in(out) == expected, (verb, told)
        assert holdall("check", out).returncode == 0, verb


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("form", [killed, killed_in_used_space], ids=lambda form: form.__name__)
def test_the_end_of_a_killed_recording_is_no_gap(tmp_path, codec, form):
    path = tmp_path / "in.mcap"
    chunks, _ = write_mcap(path, codec)
    content = bytearray(path.read_bytes())
    form(content, chunks[1])
    path.write_bytes(content)
    told = holdall("repair", path, "-o", tmp_path / "out.mcap")
    assert told.returncode == 0 and "followed" not in told.stdout + told.stderr, told
    assert found_in(tmp_path / "out.mcap").total() == COUNT


@pytest.mark.parametrize("form", [summary, footer], ids=lambda form: form.__name__)
@pytest.mark.parametrize("kind", ["zeros", "noise", "lying length", "huge length"])
def test_messages_outside_of_chunks_are_found_behind_a_gap(tmp_path, form, kind):
    path = tmp_path / "in.mcap"
    with open(path, "wb") as stream:
        writer = McapWriter(stream, use_chunking=False, compression=CompressionType.NONE)
        writer.start("ros2", "test")
        schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"string data\n")
        channels = {topic: writer.register_channel(topic, "cdr", schema) for topic in TOPICS}
        for number in range(COUNT):
            topic, time, data = message(number)
            writer.add_message(channels[topic], time, data, time)
        writer.finish()
    content = bytearray(path.read_bytes())
    at = content.index(message(500)[2]) - 31
    end = content.index(message(501)[2]) - 31
    if kind == "zeros":
        content[at:end] = bytes(end - at)
    elif kind == "noise":
        content[at:end] = random.Random(5).randbytes(end - at)
    else:
        content[at + 1 : at + 9] = ((end - at + 91) if kind == "lying length" else 1 << 60).to_bytes(8, "little")
    form(content, None)
    path.write_bytes(content)
    expected = collections.Counter(message(it) for it in range(COUNT) if it != 500)
    front = collections.Counter(message(it) for it in range(500))
    for verb in ["convert", "repair"]:
        out = tmp_path / f"out-{verb}" / ("saved.mcap" if verb == "repair" else "bag")
        out.parent.mkdir()
        told = holdall(verb, path, "-o", out)
        found = found_in(out)
        # Without the end of the file it is not known that what is behind the gap was written for it.
        assert not (front if form is footer else expected) - found, (verb, told)
        assert found.total() >= (500 if form is footer else COUNT - 1), (verb, found.total(), told)
        assert told.returncode == 3 or (form is footer and kind == "zeros" and verb == "repair"), (verb, told)


def test_an_attachment_and_metadata_behind_a_gap_stay(tmp_path):
    path = tmp_path / "in.mcap"
    with open(path, "wb") as stream:
        writer = McapWriter(stream, chunk_size=20_000, compression=CompressionType.NONE)
        writer.start("ros2", "test")
        schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"string data\n")
        channel = writer.register_channel("/a", "cdr", schema)
        for number in range(300):
            writer.add_message(channel, START + number * STEP, message(number)[2], START)
        # What follows is behind the last chunk.
        writer._Writer__finalize_chunk()  # noqa: SLF001
        writer.add_attachment(START, START, "map.png", "image/png", b"picture" * 500)
        writer.add_metadata("lab", {"robot": "7"})
        writer.finish()
    with open(path, "rb") as stream:
        chunk = max(chunk.chunk_start_offset for chunk in make_reader(stream).get_summary().chunk_indexes)
    content = bytearray(path.read_bytes())
    attachment = content.index(b"map.png") - 9 - 16 - 4
    summary(content, None)
    content[chunk:attachment] = bytes(attachment - chunk)
    path.write_bytes(content)
    copy = tmp_path / "copy.mcap"
    shutil.copy(path, copy)
    told = holdall("repair", copy)
    assert told.returncode == 3, told
    kept = copy.read_bytes()
    assert b"picture" * 500 in kept and b"robot" in kept, told
    assert holdall("check", copy).returncode == 0
