"""A recording that is uploaded while its disk is full: only what the service has, and what was compared, is removed here."""

import os
import re
import signal
import struct
from pathlib import Path

import pytest
from buckets import SECRET, SERVER
from conftest import HOLDALL
from mcap.reader import make_reader
from test_disks import audit, flood, run

pytestmark = pytest.mark.skipif(not SERVER.exists(), reason="moto is not installed: scripts/setup.sh nodes")
SIZE = 100_000
DENIED = (403, "<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")


def numbers_in(file):
    """The numbers that the talker has put into the messages of an MCAP file: after the header of CDR, the layout and the length."""
    return [struct.unpack_from("<Q", message.data, 16)[0] for _, _, message in make_reader(file, validate_crcs=True).iter_messages()]


def numbers_by_file(bag):
    found = {}
    for path in bag.glob("*.mcap"):
        with open(path, "rb") as file:
            found[path.name] = numbers_in(file)
    return found


def record_on_a_small_disk(world, bucket, url, size_mb):
    """A ring on a file system of its own with files of 1 MB, uploaded; its bag is copied to the folder that is returned when it has ended."""
    if run("unshare", "-Urm", "true").returncode != 0:
        pytest.skip("no user namespaces")
    small, kept = world.folder / "small", world.folder / "kept"
    small.mkdir()
    world.env.update({name: value for name, value in bucket.env().items() if name.startswith("AWS_")})
    inside = (
        f"mount -t tmpfs -o size={size_mb}m none {small} || exit 99\n"
        # The recorder ends with the shell when the test fails.
        f'setpriv --pdeathsig KILL "$HOLDALL" record -o {small}/bag --topics /t --on-disk-full ring --min-free-space 12MiB -b 1000000 --upload {url}; code=$?\n'
        f"cp -r {small}/bag {kept}; exit $code"
    )
    world.env["HOLDALL"] = HOLDALL
    return world.program(["unshare", "-Urm", "sh", "-c", inside]), kept


def end(recorder):
    children = Path(f"/proc/{recorder.process.pid}/task/{recorder.process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGINT)


def test_a_ring_removes_only_files_that_the_bucket_has_and_no_message_is_gone(world, bucket):
    count = 500
    # 3 MB/s, less than the service takes; altogether twice what the file system holds.
    talker = flood(world, size=SIZE, rate_hz=30, count=count)
    recorder, kept = record_on_a_small_disk(world, bucket, "s3://fleet/ring/", 24)
    recorder.wait_until_says("recording /t")
    talker.done()
    end(recorder)
    code, log = recorder.wait()
    assert code in (0, 3), log
    assert SECRET not in log
    lines = log.splitlines()
    removed = {}
    for at, line in enumerate(lines):
        if found := re.search(r"removed (\S+\.mcap), the oldest file", line):
            removed[found[1]] = at
    assert removed, log
    for name, at in removed.items():
        assert any(f"/{name} is uploaded" in line for line in lines[:at]), (name, log)
    here = numbers_by_file(kept)
    folder = world.folder / "there"
    folder.mkdir()
    for name in {*removed, *here}:
        content = bucket.get(f"ring/bag/{name}")
        assert content is not None, name
        (folder / name).write_bytes(content)
    there = numbers_by_file(folder)
    assert not set(removed) & set(here)
    for name, numbers in here.items():
        assert there[name] == numbers
    numbers = [number for numbers in there.values() for number in numbers]
    assert len(numbers) == len(set(numbers)), "no message is there twice"
    account = audit(world, kept)
    assert account["balanced"], (account["faults"], log)
    ring = account["topics"]["/t"]["expired"]
    assert ring == sum(len(there[name]) for name in removed), account
    assert len(numbers) + account["lost"]["total"] == count, (account, len(numbers))
    # In the bucket the bag is described as here, and each file that was removed here is read by its own URL.
    described = world.info("s3://fleet/ring/bag")["message_count"]
    assert described == len(numbers) - ring == world.info(kept)["message_count"]
    of_bucket = audit(world, "s3://fleet/ring/bag")
    assert of_bucket["balanced"] and of_bucket["topics"]["/t"]["expired"] == ring, of_bucket
    for name in removed:
        assert world.info(f"s3://fleet/ring/bag/{name}")["message_count"] == len(there[name])
    assert world.run("check", f"s3://fleet/ring/bag/{min(removed)}").returncode == 0


def test_a_ring_whose_upload_is_refused_removes_nothing_and_ends_in_order(world, bucket):
    bucket.proxy.fault = lambda *_: DENIED
    talker = flood(world, size=SIZE, rate_hz=30)
    recorder, kept = record_on_a_small_disk(world, bucket, "s3://fleet/refused/", 24)
    code, log = recorder.wait()
    talker.interrupt()
    assert code == 1 and "panicked" not in log and SECRET not in log, log
    assert ", the oldest file" not in log, log
    assert len(re.findall("ended early: .* must stay free: .*its oldest file is not uploaded", log)) == 1, log
    last = log.strip().splitlines()[-1]
    assert "the bag is not uploaded as a whole" in last and "denies access" in last, log
    account = audit(world, kept)
    assert account["balanced"] and account["topics"]["/t"].get("expired", 0) == 0, (account, log)
    files = numbers_by_file(kept)
    assert sum(len(numbers) for numbers in files.values()) == account["recorded"] > 0
    # Every 5 s, not with each check of the recording, which are more than its files.
    assert 0 < log.count("it is tried again") < len(files), log
    assert world.run("check", kept).returncode == 0


def test_a_file_that_is_removed_before_it_is_uploaded_does_not_hold_up_those_after_it(world, bucket):
    bucket.proxy.fault = lambda *_: DENIED
    world.env.update({name: value for name, value in bucket.env().items() if name.startswith("AWS_")})
    bag = world.folder / "bag"
    recorder = world.holdall("record", "-o", bag, "--topics", "/t", "-b", "1000000", "--max-bag-files", "3", "--upload", "s3://fleet/limited/")
    talker = flood(world, size=SIZE, rate_hz=30)
    recorder.wait_until_says("bag_0.mcap, the oldest file")
    bucket.proxy.fault = lambda *_: None
    recorder.wait_until_says("bag_0.mcap was removed before it was uploaded")
    recorder.wait_until_says("is uploaded")
    talker.interrupt()
    talker.done()
    code, log = recorder.stop()
    assert code in (0, 3), log
    for name in numbers_by_file(bag):
        assert bucket.get(f"limited/bag/{name}") == (bag / name).read_bytes()
