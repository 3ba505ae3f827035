"""`attach` and `get`: files and key-value pairs in a bag, judged by the mcap library."""

import json
import subprocess

import pytest
from conftest import HOLDALL
from mcap.reader import make_reader
from test_tools import SAMPLE_BAGS, digests_by_mcap, done, everything, holdall, write_foreign


@pytest.fixture
def bag(tmp_path):
    """A bag of three files."""
    made = tmp_path / "lab"
    done("convert", SAMPLE_BAGS / "mcap_split3", "-o", made)
    return made


def files_of(bag):
    return sorted(bag.glob("*.mcap"), key=lambda path: int(path.stem.rsplit("_", 1)[1]))


def attached(bag):
    found = []
    for path in files_of(bag):
        with open(path, "rb") as file:
            found += [(path.name, one.name, one.media_type, one.data) for one in make_reader(file, validate_crcs=True).iter_attachments()]
    return found


def test_files_are_attached_replaced_taken_out_and_removed(tmp_path, bag):
    before, metadata, last = digests_by_mcap(bag), (bag / "metadata.yaml").read_bytes(), files_of(bag)[-1].name
    untouched = {path: path.stat().st_mtime_ns for path in files_of(bag)[:-1]}
    calibration, large = tmp_path / "calibration.yaml", tmp_path / "map.bin"
    calibration.write_text("fx: 1.5\n")
    large.write_bytes(bytes(range(256)) * 12_289)
    done("attach", bag, calibration, large)
    assert attached(bag) == [
        (last, "calibration.yaml", "application/yaml", b"fx: 1.5\n"),
        (last, "map.bin", "application/octet-stream", large.read_bytes()),
    ]
    calibration.write_text("fx: 2\n")
    done("attach", bag, calibration, "--media-type", "text/x-mine")
    assert attached(bag)[1] == (last, "calibration.yaml", "text/x-mine", b"fx: 2\n")
    assert done("get", bag, "calibration.yaml").stdout == "fx: 2\n"
    done("get", bag, "map.bin", "-o", tmp_path / "taken")
    assert (tmp_path / "taken").read_bytes() == large.read_bytes()
    listed = json.loads(done("get", bag, "--json").stdout)
    assert [one["name"] for one in listed["attachments"]] == ["map.bin", "calibration.yaml"]
    assert "3.0 MiB" in done("get", bag).stdout
    shown = done("info", bag).stdout
    assert "Attachments:       map.bin | Type: application/octet-stream | Size: 3.0 MiB\n" in shown
    assert [(one["name"], one["bytes"]) for one in json.loads(done("info", bag, "--json").stdout)["attachments"]] == [
        ("map.bin", 3_145_984),
        ("calibration.yaml", 6),
    ]
    done("attach", bag, "--remove", "map.bin", "--remove", "calibration.yaml")
    assert attached(bag) == [] and "nothing" in done("get", bag).stdout
    assert "Attachments" not in done("info", bag).stdout
    # The messages, the account and the other files are what they were.
    assert digests_by_mcap(bag) == before and (bag / "metadata.yaml").read_bytes() == metadata
    assert {path: path.stat().st_mtime_ns for path in files_of(bag)[:-1]} == untouched
    assert "sound" in done("check", bag).stdout
    assert sorted(path.name for path in bag.iterdir()) == sorted([*(path.name for path in files_of(bag)), "metadata.yaml"])


def test_pairs_are_stored_as_a_metadata_record(bag):
    done("attach", bag, "--metadata", "run", "--entry", "operator=ada", "--entry", "weather=light=rain")
    done("attach", bag, "--metadata", "run", "--entry", "operator=bob")
    with open(files_of(bag)[-1], "rb") as file:
        found = [(one.name, one.metadata) for one in make_reader(file).iter_metadata() if one.name == "run"]
    assert found == [("run", {"operator": "bob"})]
    assert json.loads(done("get", bag, "run").stdout) == {"operator": "bob"}
    done("attach", bag, "--remove", "run")
    refused = holdall("get", bag, "run")
    assert refused.returncode == 2 and "nothing named run is attached" in refused.stderr


def test_attachments_survive_every_verb_that_makes_a_bag(tmp_path, bag):
    note = tmp_path / "note.txt"
    note.write_text("seen\n")
    done("attach", bag, note)
    ways = {
        "copied": ["convert", "--compression", "zstd"],
        "cut": ["filter", "--topics", "/chatter"],
        "rewritten": ["filter", "--max-rate", "5"],
        "divided": ["split", "--max-bag-messages", "20"],
    }
    for name, (verb, *arguments) in ways.items():
        out = tmp_path / name
        done(verb, bag, "-o", out, *arguments)
        assert [one[1:] for one in attached(out)] == [("note.txt", "text/plain", b"seen\n")], name
        assert "sound" in done("check", out).stdout
    told = done("convert", bag, "-s", "sqlite3", "-o", tmp_path / "sqlite")
    assert "attachments (1), for which storage sqlite3 has no place" in told.stderr


def test_what_cannot_be_attached_changes_nothing(tmp_path, bag):
    done("convert", bag, "-s", "sqlite3", "-o", tmp_path / "sqlite")
    note = tmp_path / "note.txt"
    note.write_text("seen\n")
    torn = tmp_path / "torn.mcap"
    torn.write_bytes(files_of(bag)[0].read_bytes()[:-50])
    cases = [
        ([bag], "attach needs files"),
        ([bag, tmp_path / "missing"], "missing"),
        ([bag, tmp_path], "regular file"),
        ([bag, note, note], "two files"),
        ([bag, "--remove", "nowhere"], '"nowhere" is attached'),
        ([bag, "--metadata", "rosbag2", "--entry", "a=b"], "recorders"),
        ([bag, "--remove", "holdall:loss"], "recorders"),
        ([bag, "--metadata", "run", "--entry", "novalue"], "novalue"),
        ([tmp_path / "sqlite", note], "only MCAP files"),
        ([tmp_path / "nowhere", note], "nowhere"),
        ([torn, note], "holdall repair"),
    ]
    before = {path: path.read_bytes() for path in [torn, *bag.iterdir()]}
    for arguments, reason in cases:
        told = holdall("attach", *arguments)
        assert told.returncode == 2 and reason in told.stderr and told.stderr.count("\n") == 1, (arguments, told.stderr)
        assert {path: path.read_bytes() for path in [torn, *bag.iterdir()]} == before, arguments


def test_a_damaged_attachment_is_reported_and_not_written(tmp_path, bag):
    note = tmp_path / "note.bin"
    note.write_bytes(b"\x01unmistakable\x02")
    done("attach", bag, note)
    path = files_of(bag)[-1]
    content = path.read_bytes()
    assert content.count(b"unmistakable") == 1
    path.write_bytes(content.replace(b"unmistakable", b"unmistakeable"[:12]))
    told = holdall("get", bag, "note.bin", "-o", tmp_path / "out")
    assert told.returncode == 1 and "checksum" in told.stderr and not (tmp_path / "out").exists(), told
    assert list(tmp_path.glob(".holdall*")) == []


def test_foreign_files_get_attachments_too(tmp_path):
    file = tmp_path / "foreign" / "x.mcap"
    write_foreign(file, "")
    before = everything([file])
    note = tmp_path / "note.txt"
    note.write_text("seen\n")
    done("attach", file, note)
    after = everything([file])
    added = [one for one in after if one not in before]
    assert [one for one in before if one not in after] == [] and [one[0] for one in added] == ["note.txt"]
    told = subprocess.run([HOLDALL, "get", file, "cal.bin"], capture_output=True, timeout=60)
    assert told.stdout == bytes(range(200))
