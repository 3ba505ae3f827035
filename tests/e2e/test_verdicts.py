"""What is damaged is said by every verb, also where the file itself looks whole; and no bag has the sums of another one's account."""

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest
import yaml
from test_salvage import holdall, undecodable, write_mcap, zeros
from test_salvage_sqlite import destroy, write_database
from test_state import FINAL, account, bag as bag_of

SAMPLE_BAGS = Path(__file__).resolve().parents[2] / "crates/holdall/tests/data/rosbag2"
COUNT = 288


def lines_of(path):
    told = holdall("cat", "--json", path)
    return told, sum(line.startswith("{") for line in told.stdout.splitlines())


@pytest.mark.parametrize("part", [0.5, 0.7, 0.97])
def test_a_cut_manifest_of_leveldb_is_damage(tmp_path, part):
    whole = tmp_path / "bag"
    assert holdall("convert", SAMPLE_BAGS / "mcap_split3", "-s", "leveldb", "-o", whole).returncode == 0
    manifests = sorted(whole.glob("*/*_ldb_message/MANIFEST-*"))
    # One that names no table has nothing to lose.
    manifests = [path for path in manifests if list(path.parent.glob("*.ldb"))]
    assert len(manifests) == 3
    for manifest in manifests:
        content = manifest.read_bytes()
        manifest.write_bytes(content[: int(len(content) * part)])
        told, count = lines_of(whole)
        assert told.returncode == 1 and str(manifest.parent) in told.stderr, told.stderr
        # Its table is there, and is whole.
        assert count == COUNT, (manifest, count)
        for verb in (["filter", "--start", "+0"], ["convert", "-s", "mcap"]):
            shutil.rmtree(tmp_path / "out", ignore_errors=True)
            told = holdall(verb[0], whole, *verb[1:], "-o", tmp_path / "out")
            assert told.returncode == 3 and "unknown number" in told.stdout + told.stderr, (verb, told)
            assert lines_of(tmp_path / "out")[1] == COUNT
        assert holdall("check", whole).returncode == 1
        manifest.write_bytes(content)
    assert holdall("check", whole).returncode == 0


@pytest.mark.parametrize("is_file", [False, True])
def test_check_finds_damaged_messages_that_are_compressed_one_by_one(tmp_path, is_file):
    bag = tmp_path / "bag"
    shutil.copytree(SAMPLE_BAGS / "sqlite3_message_zstd", bag)
    (path,) = bag.glob("*.db3")
    checked = path if is_file else bag
    assert holdall("check", checked).returncode == 0
    with sqlite3.connect(path) as base:
        ids = [row for (row,) in base.execute("select id from messages order by id")]
        for row in (ids[3], ids[-1]):
            (data,) = base.execute("select data from messages where id = ?", (row,)).fetchone()
            base.execute("update messages set data = ? where id = ?", (data[:8] + bytes(byte ^ 0x55 for byte in data[8:]), row))
    base.close()
    told = holdall("check", checked)
    assert told.returncode == 1 and told.stdout.count("decompressed") == 2, told
    shown, count = lines_of(checked)
    assert shown.returncode == 1 and count == len(ids) - 2, shown.stderr


def test_a_database_that_is_not_repaired_in_place_names_what_does(tmp_path):
    path = tmp_path / "in.db3"
    write_database(path, 4096)
    content = bytearray(path.read_bytes())
    destroy(content, 1, 4096, "noise")
    path.write_bytes(content)
    told = holdall("repair", path)
    assert told.returncode == 2 and told.stderr.count("\n") == 1, told
    assert "cannot be repaired in place" in told.stderr and "-o" in told.stderr, told
    assert path.read_bytes() == content
    assert holdall("repair", path, "-o", tmp_path / "out.db3").returncode in (0, 3)
    assert holdall("check", tmp_path / "out.db3").returncode == 0


FORGED = {
    "holdall.lost": "999",
    "holdall.lost./a": "cache=999",
    "holdall.lost./other": "transport=5",
    "holdall.end_unknown": "3",
    "holdall.end_unknown./a": "3",
}


def custom_data(folder):
    told = yaml.safe_load((folder / "metadata.yaml").read_text())["rosbag2_bagfile_information"]
    return {key: str(text) for key, text in (told.get("custom_data") or {}).items()}


@pytest.mark.parametrize("records", [[], [("holdall:loss", account({"/a": 600, "/b": 600}, lost=7))]], ids=["foreign", "with an account"])
def test_no_copy_has_sums_that_are_not_of_its_account(tmp_path, records):
    folder = tmp_path / "x"
    bag_of(folder, records)
    expected = {key: text for key, text in custom_data(folder).items() if key in FORGED}
    assert expected == ({"holdall.lost": "7", "holdall.lost./a": "transport=7"} if records else {})
    path = folder / "metadata.yaml"
    told = yaml.safe_load(path.read_text())
    told["rosbag2_bagfile_information"]["custom_data"] = {**custom_data(folder), **FORGED, "mine": "kept"}
    path.write_text(yaml.safe_dump(told))
    verbs = [["convert"], ["merge"], ["filter", "--start", "+0"], ["filter", "--topics", "/a"], ["convert", "-s", "sqlite3"], ["split", "-d", "3"]]
    verbs += [["repair"]] if records else []
    for number, verb in enumerate(verbs):
        out = tmp_path / str(number)
        done = holdall(verb[0], folder, *verb[1:], "-o", out)
        assert done.returncode in (0, 3), (verb, done)
        found = custom_data(out)
        assert {key: text for key, text in found.items() if key.startswith(("holdall.lost", "holdall.end_unknown"))} == expected, (verb, found)
        assert found["mine"] == "kept"
    holdall("reindex", folder)
    found = custom_data(folder)
    assert {key: text for key, text in found.items() if key.startswith(("holdall.lost", "holdall.end_unknown"))} == expected, found
    assert found["mine"] == "kept" and json.loads(holdall("info", "--json", folder).stdout)["lost"] == (7 if records else None)


@pytest.mark.parametrize("part", [0.3, 0.62, 0.95])
@pytest.mark.parametrize("records", [[], FINAL], ids=["foreign", "with an account"])
def test_a_database_that_was_cut_is_damaged_in_every_report(tmp_path, part, records):
    whole, folder = tmp_path / "whole", tmp_path / "bags" / "x"
    folder.parent.mkdir()
    bag_of(whole, records)
    assert holdall("convert", whole, "-o", folder, "-s", "sqlite3").returncode == 0
    before = json.loads(holdall("info", folder, "--json").stdout)
    assert before["state"] in ("complete", "ended"), before
    (path,) = folder.glob("*.db3")
    os.truncate(path, int(path.stat().st_size * part))
    info = json.loads(holdall("info", folder, "--json").stdout)
    assert info["state"] == "damaged", info
    audit = holdall("audit", folder, "--json")
    assert audit.returncode != 0 and (not records or json.loads(audit.stdout)["state"] == "damaged"), audit
    check = holdall("check", folder, "--json")
    assert check.returncode == 1 and json.loads(check.stdout)["state"]["state"] == "damaged", check
    holdall("catalog", folder.parent, "-o", tmp_path / "catalog")
    assert json.loads(holdall("find", 'name = "x"', tmp_path / "catalog", "--json").stdout)["state"] == "damaged"
    alone = json.loads(holdall("info", path, "--json").stdout)
    assert alone["state"] == "damaged", alone
    assert holdall("repair", folder, "-o", tmp_path / "saved").returncode == 3
    assert holdall("check", tmp_path / "saved").returncode == 0


def cut_to(part):
    return lambda path: os.truncate(path, int(path.stat().st_size * part))


# What of a LevelDB is damaged: where it is, and how. Its messages stay as they are.
PARTS = {
    "CURRENT cut": ("*/*_ldb_metadata/CURRENT", cut_to(0.5)),
    "CURRENT empty": ("*/*_ldb_metadata/CURRENT", cut_to(0)),
    "CURRENT gone": ("*/*_ldb_metadata/CURRENT", Path.unlink),
    "manifest cut": ("*/*_ldb_metadata/MANIFEST-*", cut_to(0.6)),
    "manifest empty": ("*/*_ldb_metadata/MANIFEST-*", cut_to(0)),
    "log cut": ("*/*_ldb_metadata/*.log", cut_to(0.7)),
    "log empty": ("*/*_ldb_metadata/*.log", cut_to(0)),
    "records cut": ("*/holdall_records.jsonl", cut_to(0.5)),
    "end of the records": ("*/holdall_records.jsonl", cut_to(0.99)),
    "records empty": ("*/holdall_records.jsonl", cut_to(0)),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_cut_description_of_leveldb_is_damage(tmp_path, part):
    pattern, damage = PARTS[part]
    folder = tmp_path / "bag"
    assert holdall("convert", SAMPLE_BAGS / "mcap_split3", "-s", "leveldb", "-o", folder).returncode == 0
    assert holdall("check", folder).returncode == 0
    path = next(path for path in sorted(folder.glob(pattern)) if path.stat().st_size > 0)
    damage(path)
    check = holdall("check", folder, "--json")
    assert check.returncode == 1 and json.loads(check.stdout)["state"]["state"] == "damaged", check
    assert json.loads(holdall("info", folder, "--json").stdout)["state"] == "damaged"
    told, count = lines_of(folder)
    assert count == COUNT, (count, told.stderr)
    assert holdall("repair", folder, "-o", tmp_path / "saved").returncode in (0, 3)
    assert lines_of(tmp_path / "saved")[1] == COUNT
    assert holdall("check", tmp_path / "saved").returncode == 0


@pytest.mark.parametrize("kind", ["undecodable", "zeros"])
def test_repair_and_reindex_end_alike_where_messages_cannot_be_read(tmp_path, kind):
    ends = {}
    for verb in ("repair", "reindex"):
        folder = tmp_path / verb
        folder.mkdir()
        path = folder / "x_0.mcap"
        chunks, spans = write_mcap(path, "zstd")
        assert holdall("reindex", folder).returncode == 0
        content = bytearray(path.read_bytes())
        {"undecodable": undecodable, "zeros": zeros}[kind](content, chunks[4])
        path.write_bytes(content)
        told = holdall(verb, folder)
        ends[verb] = told.returncode
        if kind == "zeros":
            assert f"{len(spans[4])} of" in told.stdout + told.stderr and told.returncode == 3, told
    assert ends["repair"] == ends["reindex"] != 0
