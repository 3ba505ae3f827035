"""MCAP files that are damaged at two places: each verb saves what pip mcap reads of each chunk by itself, names the rest and does not end with 0,
also where neither an index nor a length leads to the next record."""

import collections
import io
import struct

import pytest
from mcap.records import Message
from mcap.stream_reader import StreamReader
from test_salvage import (
    CODECS,
    COUNT,
    START,
    STEP,
    VERBS,
    found_in,
    holdall,
    huge_record_length,
    indexed_too_long,
    indexed_wrongly,
    lying_record_length,
    message,
    one_bit,
    undecodable,
    write_mcap,
    wrong_sum,
    wrong_times,
    zeros,
)

def summary(content, _):
    (begin,) = struct.unpack_from("<Q", content, len(content) - 28)
    content[begin + 20 : -40] = bytes(len(content) - begin - 60)


def footer(content, _):
    content[-37:-8] = b"\xa5" * 29


def no_footer(content, _):
    del content[-20:]


def numbers_in(content, chunk):
    """What pip mcap reads of a chunk by itself, its checksum on: the numbers of its messages."""
    record = bytes(content[chunk.chunk_start_offset : chunk.chunk_start_offset + chunk.chunk_length])
    found = []
    try:
        for it in StreamReader(io.BytesIO(record), skip_magic=True, validate_crcs=True).records:
            found += [(it.log_time - START) // STEP] if isinstance(it, Message) else []
    except Exception:  # noqa: BLE001: the end of the record, a refusal, or an error of its codec; what it read stays.
        pass
    return found


CHUNKS = [undecodable, one_bit, wrong_sum, lying_record_length, huge_record_length, zeros]
OTHERS = [undecodable, huge_record_length, zeros, indexed_wrongly, indexed_too_long, wrong_times, summary, footer, no_footer]
ENDS = (summary, footer, no_footer)


@pytest.mark.parametrize("other", OTHERS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("kind", [*CHUNKS, indexed_wrongly, wrong_times], ids=lambda kind: kind.__name__)
def test_what_is_whole_beside_two_damaged_places_is_saved(tmp_path, kind, other):
    number = [*CHUNKS, indexed_wrongly, wrong_times].index(kind) + OTHERS.index(other)
    codec = list(CODECS)[number % 3]
    path = tmp_path / "in.mcap"
    chunks, spans = write_mcap(path, codec)
    content = bytearray(path.read_bytes())
    # Side by side, or with whole chunks in between.
    first, second = (3, 4) if number % 2 else (2, 7)
    kind(content, chunks[first])
    other(content, chunks[second])
    path.write_bytes(content)
    left = [it for chunk in chunks for it in numbers_in(content, chunk)]
    missing = COUNT - len(left)
    assert set(left) >= {it for index, span in enumerate(spans) if index not in (first, second) for it in span}
    expected, everything = collections.Counter(map(message, left)), collections.Counter(map(message, range(COUNT)))
    for verb in ["convert", "repair", *(["filter", "to-sqlite3"] if number % 2 else ["merge", "split"])]:
        out = tmp_path / f"out-{verb}" / ("saved.mcap" if verb == "repair" else "bag")
        out.parent.mkdir()
        told = holdall(VERBS[verb][0], path, *VERBS[verb][1:], "-o", out)
        text = told.stdout + told.stderr
        assert "panicked" not in text and ".partial" not in text, told
        found = found_in(out)
        assert not expected - found, (verb, (expected - found).total(), told)
        assert not found - everything and found.total() == len(left), (verb, found.total(), len(left), told)
        # The end of the file is damaged, too: that alone is named where each message is saved.
        assert told.returncode in ((0, 3) if not missing else (3,)), (verb, told)
        if missing:
            assert "cannot be read" in text or "not saved" in text or "can be read" in text, (verb, told)
            assert f"{missing} messages" in text or other in ENDS, (verb, missing, told)
        assert holdall("check", out).returncode == 0, (verb, told)
    assert path.read_bytes() == content, "an input is never changed"
    shown = holdall("cat", "--json", path)
    assert len(shown.stdout.splitlines()) == len(left) and (shown.returncode != 0 or not missing), shown.stderr
    assert holdall("check", path).returncode == 1
