"""Every state of a bag in every report: the bags are written by pip mcap with accounts that are put together here, and so are the expected words."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import HOLDALL, Program
from mcap.reader import make_reader
from mcap.writer import Writer as McapWriter
from served import ask, served, until
from test_python import installed, run  # noqa: F401
from test_salvage import COUNT, START, STEP, message, one_bit, undecodable, write_ros1, zeros

HALF = COUNT // 2
SILENT_NS = START + 3 * STEP


def holdall(*arguments, folder=None):
    return subprocess.run([HOLDALL, *map(str, arguments)], capture_output=True, text=True, timeout=120, cwd=folder)


def publisher(topic, recorded, **more):
    return {"gid": ("a" if topic == "/a" else "b") * 32, "sent": recorded, "received": recorded, "recorded": recorded, "intervals": [], **more}


def account(counts, end=None, lost=0, **of_a):
    """The account of a recording with `lost` messages of /a missing in transit; `of_a` is known about the publisher of /a."""
    topics = []
    for topic, recorded in counts.items():
        missing = lost if topic == "/a" else 0
        gap = {"stage": "transport", "first_sequence": None, "last_sequence": None, "first_time": None, "last_time": None, "count": missing}
        one = publisher(topic, recorded, **(of_a if topic == "/a" else {}))
        one.update({"sent": recorded + missing, "intervals": [gap] if missing else []})
        sums = {"transport": missing} if missing else {}
        topics.append({"name": topic, "recorded": recorded, "recorded_bytes": 0, "missing": sums, "publishers": [one]})
    return {"version": 1, "topics": topics, **({} if end is None else {"checkpoint": end})}


def write(path, numbers, records=()):
    """A storage file with these messages and records of an account."""
    with open(path, "wb") as stream:
        writer = McapWriter(stream, chunk_size=20_000)
        writer.start("ros2", "test")
        schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"string data\n")
        channels = {topic: writer.register_channel(topic, "cdr", schema) for topic in ("/a", "/b")}
        for number in numbers:
            topic, time, data = message(number)
            writer.add_message(channels[topic], time, data, time)
        for name, ledger in records:
            writer.add_metadata(name, {"ledger": json.dumps(ledger)})
        writer.finish()


BOTH = {"/a": HALF, "/b": HALF}
FINAL = [("holdall:loss", account(BOTH))]
CUT = [("holdall:loss_checkpoint", account(BOTH, end=START + COUNT * STEP, lost=7))]


def bag(folder, records, ledger=None):
    """A whole bag of two files with these records at the end of the second."""
    folder.mkdir()
    write(folder / "x_0.mcap", range(HALF))
    write(folder / "x_1.mcap", range(HALF, COUNT), records)
    # Its metadata by the files; the account in it where the recording had failed.
    assert holdall("reindex", folder).returncode == 0
    if ledger:
        path = folder / "metadata.yaml"
        text = path.read_text()
        entry = f"custom_data:\n    holdall.ledger: {json.dumps(json.dumps(ledger))}\n"
        assert "custom_data: ~" in text or "custom_data: {}" in text or "custom_data:\n" in text, text
        for empty in ("custom_data: ~\n", "custom_data: {}\n", "custom_data:\n"):
            if empty in text:
                text = text.replace(empty, entry, 1)
                break
        path.write_text(text)
    return folder


def complete(folder):
    bag(folder, FINAL)


def lossy(folder):
    bag(folder, [("holdall:loss", account(BOTH, lost=7))])


def foreign(folder):
    bag(folder, ())


def unconfirmed(folder):
    bag(folder, [("holdall:loss", account(BOTH, end_unknown=True))])


def silent(folder):
    bag(folder, [("holdall:loss", account(BOTH, end_unknown=True, silent_since=SILENT_NS, reliable=True))])


def cut_off(folder):
    bag(folder, CUT)


def full_disk(folder):
    bag(folder, (), ledger=account(BOTH, lost=7))


def damaged(folder):
    bag(folder, FINAL)
    os.truncate(folder / "x_1.mcap", (folder / "x_1.mcap").stat().st_size * 53 // 100)


def file_gone(folder):
    bag(folder, FINAL)
    (folder / "x_0.mcap").unlink()


def file_gone_and_repaired(folder):
    file_gone(folder)
    done = holdall("repair", folder)
    assert done.returncode == 3 and f"missing: storage file x_0.mcap with {HALF} messages" in done.stdout, done


def file_gone_and_reindexed(folder):
    file_gone(folder)
    done = holdall("reindex", folder)
    assert done.returncode == 3 and f"missing: storage file x_0.mcap with {HALF} messages" in done.stderr, done


# How each is made, its word, lost messages that are known (None: no account), whether these are all, and the code of audit.
STATES = [
    (complete, "complete", 0, True, 0),
    (lossy, "complete", 7, True, 3),
    (foreign, "ended", None, False, 2),
    (unconfirmed, "ended", 0, False, 0),
    (silent, "end unknown", 0, False, 3),
    (cut_off, "cut off", 7, False, 3),
    (full_disk, "complete", 7, True, 3),
    (file_gone_and_repaired, "files missing", HALF, True, 3),
    (file_gone_and_reindexed, "files missing", HALF, True, 3),
]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state[0].__name__)
def test_every_report_has_the_same_state(tmp_path, elsewhere, state):
    make, word, lost, is_all, code = state
    folder = tmp_path / "bags" / "x"
    folder.parent.mkdir()
    make(folder)
    info = json.loads(holdall("info", folder, "--json").stdout)
    audit_run = holdall("audit", folder, "--json")
    audit = json.loads(audit_run.stdout) if lost is not None else None
    check_run = holdall("check", folder, "--json")
    check = json.loads(check_run.stdout)["state"]
    repair = json.loads(holdall("repair", folder, "-o", tmp_path / "copy", "--json").stdout)["state"]
    reports = {"info": info, "check": check, "repair": repair}
    for name, report in reports.items():
        found = (report["state"], report["lost"], report["all_losses_known"])
        assert found == (word, lost, is_all), (name, report)
    for name, found in elsewhere(folder).items():
        assert found == (word, lost, is_all, info["message_count"]), name
    assert audit_run.returncode == code, audit_run
    if audit:
        assert (audit["state"], audit["lost"]["total"], audit["all_losses_known"]) == (word, lost, is_all), audit
        assert info["lost_messages"]["total"] == lost and info["account"]["lost"] == lost
    else:
        assert info["lost_messages"] is None

    said = holdall("info", folder).stdout
    line = next(line for line in said.splitlines() if line.startswith("Lost messages:"))
    assert f"State:             {word}\n" in said, said
    words = {"unknown (": lost is None, "none known": lost == 0 and not is_all, "not known:": word == "cut off"}
    assert {text: text in line for text in words} == words, line
    assert lost is None or f"{lost:,}".replace(",", " ") in line or (lost == 0 and not is_all), line
    spoken = holdall("audit", folder).stdout
    assert ("nothing is lost" in spoken) == (lost == 0 and is_all), spoken
    assert (f"state: {word}" in spoken) == (word != "complete"), spoken
    for verb in ("check", "repair"):
        text = holdall(verb, folder).stdout
        assert (f"state: {word}" in text) == (word != "complete"), (verb, text)

    assert holdall("catalog", folder.parent, "-o", tmp_path / "catalog").returncode == 0
    found = json.loads(holdall("find", "messages >= 0", tmp_path / "catalog", "--json").stdout)
    assert (found["state"], found.get("lost")) == (word, lost), found


@pytest.mark.parametrize(("make", "word"), [(damaged, "damaged"), (file_gone, "files missing")])
def test_a_bag_that_needs_a_repair_is_called_so_and_repaired(tmp_path, make, word):
    folder = tmp_path / "bags" / "x"
    folder.parent.mkdir()
    make(folder)
    holdall("catalog", folder.parent, "-o", tmp_path / "catalog")
    found = json.loads(holdall("find", 'name = "x"', tmp_path / "catalog", "--json").stdout)
    assert found["state"] == word, found
    assert holdall("check", folder).returncode == 1
    there = sum(1 for _ in json_lines(folder))
    done = holdall("repair", folder)
    assert done.returncode == 3, done
    info = json.loads(holdall("info", folder, "--json").stdout)
    readable = sum(1 for _ in json_lines(folder))
    assert there <= readable == info["message_count"], (there, info)
    assert info["state"] == "files missing" and info["lost"] == COUNT - readable, info
    assert holdall("audit", folder).returncode == 3 and holdall("check", folder).returncode == 0
    # For good.
    (folder / "metadata.yaml").unlink()
    assert holdall("reindex", folder).returncode == 3
    info = json.loads(holdall("info", folder, "--json").stdout)
    assert info["state"] == "files missing" and info["lost"] == COUNT - readable, info


def a_file_without_its_beginning(folder):
    bag(folder, FINAL)
    content = (folder / "x_0.mcap").read_bytes()
    (folder / "x_0.mcap").write_bytes(b"\xa5" * 4096 + content[4096:])


def without_metadata(folder):
    damaged(folder)
    (folder / "metadata.yaml").unlink()


@pytest.mark.parametrize("make", [complete, lossy, foreign, cut_off, damaged, file_gone, file_gone_and_repaired, a_file_without_its_beginning, without_metadata])
def test_reindex_ends_as_a_repair_of_the_same_bag(tmp_path, make):
    folder = tmp_path / "x"
    make(folder)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    repaired, reindexed = holdall("repair", copy), holdall("reindex", folder)
    said = reindexed.stdout + reindexed.stderr
    assert (repaired.returncode == 0) == (reindexed.returncode == 0), (repaired, reindexed)
    assert reindexed.returncode == 0 or "missing:" in said or "problem:" in said, said
    if repaired.returncode == 3 and "missing:" in repaired.stdout:
        assert "missing:" in said and reindexed.returncode == 3, (repaired, reindexed)


def chunk_of(kind):
    """Damages a chunk in the middle of a file; returns how many messages are in it."""

    def damage(folder):
        path = folder / "x_1.mcap"
        with open(path, "rb") as stream:
            chunks = make_reader(stream).get_summary().chunk_indexes
            chunk = sorted(chunks, key=lambda chunk: chunk.chunk_start_offset)[3]
            times = (chunk.message_start_time, chunk.message_end_time)
            count = sum(times[0] <= it.log_time <= times[1] for _, _, it in make_reader(stream).iter_messages())
        content = bytearray(path.read_bytes())
        kind(content, chunk)
        path.write_bytes(content)
        return count

    return damage


def cut(name, part):
    def damage(folder):
        os.truncate(folder / name, int((folder / name).stat().st_size * part))

    return damage


def page_of_zeros(folder):
    content = bytearray((folder / "x_0.db3").read_bytes())
    at = len(content) // 2 // 4096 * 4096
    content[at : at + 4096] = bytes(4096)
    (folder / "x_0.db3").write_bytes(content)


def block_of_leveldb(folder):
    path = sorted(folder.glob("*/*_ldb_message/*.ldb"))[0]
    content = bytearray(path.read_bytes())
    at = len(content) // 2
    content[at : at + 300] = bytes(byte ^ 0x5A for byte in content[at : at + 300])
    path.write_bytes(content)


def manifest_of_leveldb(folder):
    path = sorted(folder.glob("*/*_ldb_message/MANIFEST-*"))[0]
    os.truncate(path, path.stat().st_size // 2)
    return 0


DAMAGES = {
    "mcap cut": ("mcap", cut("x_1.mcap", 0.53)),
    "mcap undecodable": ("mcap", chunk_of(undecodable)),
    "mcap zeros": ("mcap", chunk_of(zeros)),
    "mcap one bit": ("mcap", chunk_of(one_bit)),
    "sqlite3 cut": ("sqlite3", cut("x_0.db3", 0.62)),
    "sqlite3 page": ("sqlite3", page_of_zeros),
    "leveldb block": ("leveldb", block_of_leveldb),
    "leveldb manifest": ("leveldb", manifest_of_leveldb),
}


@pytest.fixture
def elsewhere(installed, tmp_path):  # noqa: F811
    """What Python and the page of the folder say about a bag: state, lost messages, whether these are all, and the number of messages."""

    def of_python(folder):
        script = "import holdall, json, sys; bag = holdall.open(sys.argv[1]); print(json.dumps([bag.states[0], len(bag)]))"
        state, count = json.loads(run(installed, "-c", script, folder))
        return state["state"], state["lost"], state["all_losses_known"], count

    def of_page(folder):
        runtime = tmp_path / "runtime"
        runtime.mkdir(exist_ok=True)
        web = Program(["web", folder.parent, "127.0.0.1:0"], {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "TMPDIR": str(runtime)})
        try:
            address = served(web, "bags: ")
            # The list has a bag before its account was read.
            (bag,) = until(lambda: [bag for bag in json.loads(ask(address, "GET", "/api/bags")[1])["bags"] if "lost" in bag], "the bag in the list")
            info = json.loads(ask(address, "GET", f"/api/info?bag={folder.name}")[1])["info"]
            shown = tuple(info[name] for name in ("state", "lost", "all_losses_known", "message_count"))
            assert (bag["state"], bag["lost"], bag["all_losses_known"], bag["messages"]) == shown, (bag, info)
            return shown
        finally:
            web.stop()

    # The page has the bags that are folders.
    return lambda bag: {"python": of_python(bag)} | ({"page": of_page(bag)} if bag.is_dir() else {})


def verdicts(folder, catalog, elsewhere):
    """State, known losses, whether these are all, and the number of messages, by report."""
    shown = {verb: json.loads(holdall(verb, folder, "--json").stdout) for verb in ("info", "check", "audit")}
    shutil.rmtree(catalog, ignore_errors=True)
    holdall("catalog", folder.parent, "-o", catalog)
    found = json.loads(holdall("find", "messages >= 0", catalog, "--json").stdout)
    info, check, audit = shown["info"], shown["check"]["state"], shown["audit"]
    reports = {"find": (found["state"], found.get("lost"))}
    reports.update({name: (report["state"], report["lost"]) for name, report in (("info", info), ("check", check))})
    reports["audit"] = (audit["state"], audit["lost"]["total"] if info["lost"] is not None else None)
    assert info["all_losses_known"] == check["all_losses_known"] == audit["all_losses_known"]
    assert info["message_count"] == found["messages"] == sum(1 for _ in json_lines(folder)), (info, found)
    for name, (state, lost, is_all, count) in elsewhere(folder).items():
        reports[name] = (state, lost)
        assert (is_all, count) == (info["all_losses_known"], info["message_count"]), (name, info)
    return reports, info


@pytest.mark.parametrize("records", [(), FINAL], ids=["foreign", "with an account"])
@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_in_every_report_once_a_verb_has_found_it(tmp_path, elsewhere, name, records):
    """`info` does not read the messages: that they are damaged is said by what was found when the bag was described or repaired last."""
    storage, damage = DAMAGES[name]
    folder, saved = tmp_path / "bags" / "x", tmp_path / "saved"
    folder.parent.mkdir()
    bag(tmp_path / "whole", records)
    if storage == "mcap":
        shutil.copytree(tmp_path / "whole", folder)
    else:
        assert holdall("convert", tmp_path / "whole", "-o", folder, "-s", storage).returncode == 0
    shutil.copytree(folder, saved)
    count = damage(folder)
    lost = COUNT - sum(1 for _ in json_lines(folder))
    assert count is None or lost == count, (count, lost)
    only_repaired = tmp_path / "repaired" / "x"
    only_repaired.parent.mkdir()
    shutil.copytree(folder, only_repaired)
    known = lost if lost or records else None

    assert holdall("reindex", folder).returncode == (3 if lost else 1)
    reports, info = verdicts(folder, tmp_path / "catalog", elsewhere)
    assert set(reports.values()) == {("damaged", known)} and not info["all_losses_known"], reports

    is_mended = name == "mcap cut"
    described = (folder / "metadata.yaml").read_text()
    # Such a database is not repaired in place: nothing was changed.
    is_refused = name == "sqlite3 cut"
    for path in [folder] if is_refused else [folder, only_repaired]:
        done = holdall("repair", path)
        reports, info = verdicts(path, tmp_path / "catalog", elsewhere)
        assert done.returncode == (2 if is_refused else 3 if lost else 1), done
        assert set(reports.values()) == {("files missing" if is_mended else "damaged", known)}, reports
        if is_mended:
            continue
        if path == folder:
            assert (folder / "metadata.yaml").read_text() == described
        # What was found is not said of a bag that has only what can be read, nor of one whose file came back.
        assert holdall("repair", path, "-o", tmp_path / "new" / path.parent.name).returncode in (0, 3)
        assert json.loads(holdall("info", tmp_path / "new" / path.parent.name, "--json").stdout)["state"] != "damaged"
    for path in saved.iterdir():
        if path.name != "metadata.yaml":
            shutil.rmtree(folder / path.name) if path.is_dir() else None
            (shutil.copytree if path.is_dir() else shutil.copy)(path, folder / path.name)
    holdall("reindex", folder)
    assert json.loads(holdall("info", folder, "--json").stdout)["state"] != "damaged"


@pytest.mark.parametrize("part", [0.5, 0.98])
def test_a_torn_bag_of_ros_1_has_the_same_state_in_every_report(tmp_path, elsewhere, part):
    path = tmp_path / "bags" / "x.bag"
    path.parent.mkdir()
    write_ros1(path, "lz4", 2000)
    os.truncate(path, int(path.stat().st_size * part))
    reports, info = verdicts(path, tmp_path / "catalog", elsewhere)
    assert set(reports.values()) == {("damaged", None)} and not info["all_losses_known"], reports
    assert holdall("repair", path).returncode in (0, 3)
    reports, info = verdicts(path, tmp_path / "catalog", elsewhere)
    assert set(reports.values()) == {("ended", None)} and not info["all_losses_known"], reports


def json_lines(folder):
    return (line for line in holdall("cat", folder, "--json").stdout.splitlines() if line.startswith("{"))


def test_a_second_repair_and_a_second_loss(tmp_path):
    folder = tmp_path / "x"
    file_gone_and_repaired(folder)
    before = Path(folder / "metadata.yaml").read_text()
    again = holdall("repair", folder)
    assert again.returncode == 0 and "nothing to repair" in again.stdout, again
    assert (folder / "metadata.yaml").read_text() == before
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    content = (copy / "x_1.mcap").read_bytes()
    (copy / "x_1.mcap").write_bytes(content[: len(content) * 53 // 100])
    assert holdall("repair", copy).returncode == 3
    info = json.loads(holdall("info", copy, "--json").stdout)
    assert info["lost"] == COUNT - info["message_count"] and len(info["missing_files"]) == 2, info


ROS1 = Path(__file__).parents[2] / "crates/holdall-storage/tests/data/rosbag1"


def test_a_catalog_has_bags_of_ros_1_and_emptied_ones_with_their_state(tmp_path):
    """Judge of the ROS 1 bags: pip rosbags."""
    from rosbags.rosbag1 import Reader

    runs = tmp_path / "runs"
    runs.mkdir()
    counts = {}
    for name in ("none", "lz4"):
        shutil.copy(ROS1 / f"{name}.bag", runs)
        with Reader(runs / f"{name}.bag") as reader:
            counts[f"{name}.bag"] = reader.message_count
    (runs / ".hidden.bag").write_bytes(b"#ROSBAG V2.0\n")
    (runs / "notes.txt").write_text("not a bag")
    assert holdall("convert", runs / "none.bag", "-s", "sqlite3", "-o", runs / "emptied").returncode == 0
    (file,) = (runs / "emptied").glob("*.db3")
    file.write_bytes(b"")
    holdall("catalog", runs, "-o", tmp_path / "catalog")
    found = [json.loads(line) for line in holdall("find", "messages >= 0", tmp_path / "catalog", "--json").stdout.splitlines()]
    states = {bag["name"]: (bag["state"], bag["messages"]) for bag in found}
    assert states.pop("emptied")[0] == "damaged", found
    assert states == {name: ("ended", count) for name, count in counts.items()}, found
