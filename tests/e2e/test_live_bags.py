"""A bag that is being recorded, or whose file vanishes, and bags with FIFOs and links: every verb ends in time and reports the cause."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import DEADLINE_S

SAMPLE_BAGS = Path(__file__).resolve().parents[2] / "crates/holdall/tests/data/rosbag2"
STRING = {"topic": "/t", "type": "std_msgs/msg/String", "count": None, "rate_hz": 200, "text": "hello {n}"}


def record(world, bag, *more):
    """A recorder of a node that never ends, with some messages in the bag's file."""
    recorder = world.holdall("record", "--topics", "/t", "-o", bag, "--disable-keyboard-controls", *more)
    world.talker(STRING)
    end = time.monotonic() + DEADLINE_S
    while True:
        told = world.run("info", "--json", bag)
        if told.returncode == 0 and json.loads(told.stdout)["message_count"] > 100:
            return recorder
        assert time.monotonic() < end, told.stderr


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_a_live_bag_is_read_and_not_changed(world, storage):
    bag = world.folder / "bag"
    recorder = record(world, bag, "-s", storage)
    who = f"is being recorded by process {recorder.process.pid}"
    for verb in (["repair"], ["reindex"], ["repair", "-o", world.folder / "copy"]):
        told = world.run(*verb, bag)
        assert told.returncode == 2 and who in told.stderr, (verb, told.stderr)
    for verb, codes in (
        (["info"], (0,)),
        (["cat", "-n", "3"], (0,)),
        (["check"], (0,)),
        (["convert", "-s", "mcap", "-o", world.folder / "converted"], (0,)),
    ):
        told = world.run(verb[0], bag, *verb[1:])
        text = told.stdout + told.stderr
        assert told.returncode in codes and who in text, (verb, text)
        assert "damaged" not in text and "Jan  1 1970" not in text, (verb, text)
    assert world.info(world.folder / "converted")["message_count"] > 100
    code, text = recorder.stop()
    assert code == 0 and "lost: none" in text, text
    told = world.run("check", bag)
    assert told.returncode == 0, told.stdout
    assert world.run("audit", bag).returncode == 0


def test_a_killed_bag_is_no_live_one(world):
    bag = world.folder / "bag"
    recorder = record(world, bag)
    recorder.process.kill()
    recorder.wait()
    told = world.run("info", bag)
    assert told.returncode == 0 and "is being recorded" not in told.stderr, told.stderr
    assert "Jan  1 1970" not in told.stdout, told.stdout
    account = world.info(bag).get("account") or {}
    assert account.get("cut_off_after") != 0, account
    told = world.run("repair", bag)
    assert told.returncode == 0, told.stdout + told.stderr
    assert world.run("check", bag).returncode == 0


def test_a_file_that_is_deleted_under_the_recorder_is_counted(world):
    bag = world.folder / "bag"
    recorder = record(world, bag)
    (bag / "bag_0.mcap").unlink()
    recorder.wait_until_says("was deleted while it was being recorded")
    code, text = recorder.stop()
    assert code == 3 and "lost: none" not in text, (code, text)
    assert (bag / "bag_1.mcap").exists()
    told = world.run("audit", bag)
    assert told.returncode == 3 and "storage" in told.stdout, told.stdout


def test_no_file_outside_is_overwritten_through_a_link(world):
    folder = world.folder
    victim = folder / "victim"
    victim.write_text("precious")
    for name in ("m.prom", "m.prom.tmp"):
        (folder / name).symlink_to(victim)
    recorder = world.holdall("record", "-a", "-o", folder / "b", "--metrics-file", folder / "m.prom", "--disable-keyboard-controls")
    end = time.monotonic() + DEADLINE_S
    while (folder / "m.prom").is_symlink():
        assert time.monotonic() < end
        time.sleep(0.02)
    assert recorder.stop()[0] == 0
    exported = folder / "ex"
    exported.mkdir()
    (exported / ".chatter.csv.partial").symlink_to(victim)
    told = world.run("export", "-f", "csv", "-t", "/chatter", "-o", exported, SAMPLE_BAGS / "mcap_default")
    assert told.returncode == 0, told.stderr
    assert victim.read_text() == "precious"
    left = [path.name for path in (*folder.iterdir(), *exported.iterdir()) if path.name.startswith(".holdall")]
    assert left == []


def hostile_bags(folder):
    """Bags in which something is no regular file, by name."""
    plain = SAMPLE_BAGS / "mcap_default"
    file = plain / "mcap_default_0.mcap"
    made = {}

    def bag(name, *files):
        made[name] = folder / name
        made[name].mkdir()
        for one in files:
            shutil.copy(one, made[name])
        return made[name]

    os.mkfifo(bag("meta_fifo", file) / "metadata.yaml")
    (bag("meta_zero", file) / "metadata.yaml").symlink_to("/dev/zero")
    os.mkfifo(bag("path_fifo", plain / "metadata.yaml") / file.name)
    os.mkfifo(bag("path_fifo_nometa") / file.name)
    (bag("path_device", plain / "metadata.yaml") / file.name).symlink_to("/dev/zero")
    os.mkfifo(bag("db3_fifo") / "x_0.db3")
    os.mkfifo(bag("zstd_fifo") / "x_0.mcap.zstd")
    os.mkfifo(bag("beside", file, plain / "metadata.yaml") / "notes")
    with open(bag("meta_huge", file) / "metadata.yaml", "wb") as metadata:
        metadata.truncate(1 << 40)
    made["fifo.mcap"] = folder / "fifo.mcap"
    os.mkfifo(made["fifo.mcap"])
    database = bag("journal_fifo")
    shutil.copy(next((SAMPLE_BAGS / "sqlite3_default").glob("*.db3")), database / "x_0.db3")
    for suffix in ("-journal", "-wal"):
        os.mkfifo(database / f"x_0.db3{suffix}")
    return made


@pytest.mark.parametrize(
    "verb",
    [
        ["info", "BAG"],
        ["info", "-v", "BAG"],
        ["cat", "BAG"],
        ["check", "BAG"],
        ["audit", "BAG"],
        ["list", "topics", "BAG"],
        ["list", "chunks", "BAG"],
        ["repair", "BAG"],
        ["repair", "BAG", "-o", "OUT"],
        ["reindex", "BAG"],
        ["convert", "BAG", "-o", "OUT"],
        ["convert", "BAG", "-s", "sqlite3", "-o", "OUT"],
        ["merge", "BAG", "BAG", "-o", "OUT"],
        ["split", "BAG", "-d", "1", "-o", "OUT"],
        ["filter", "BAG", "--topics", "/chatter", "-o", "OUT"],
        ["compress", "BAG", "-o", "OUT"],
        ["decompress", "BAG", "-o", "OUT"],
        ["export", "-f", "csv", "BAG", "-o", "OUT"],
        ["diff", "BAG", "BAG"],
        ["play", "BAG", "--disable-keyboard-controls", "-r", "1000"],
    ],
    ids=lambda verb: "-".join(word.strip("-/") for word in verb),
)
def test_no_verb_waits_for_what_is_no_file(world, verb):
    for name, bag in hostile_bags(world.folder).items():
        out = world.folder / f"out_{name}"
        words = [str({"BAG": bag, "OUT": out}.get(word, word)) for word in verb]
        try:
            told = subprocess.run(
                ["prlimit", "--as=4294967296", os.environ.get("HOLDALL_BIN", "target/debug/holdall"), *words],
                env=world.env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
            )
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name}: {words} waits") from None
        assert told.returncode in (0, 1, 2, 3), (name, words, told.returncode, told.stderr)
        assert "panicked" not in told.stderr and signal.SIGABRT != -told.returncode, (name, words, told.stderr)
