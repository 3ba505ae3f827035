"""Real, small file systems that fill up, freeze, vanish, use up a quota and turn read-only while real nodes are recorded; and memory that runs out.

A full one needs user namespaces (`unshare -Urm`), the others root and loop devices; where these are not to be had the tests are skipped.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path

import pytest
from conftest import HOLDALL

BYTES = "std_msgs/msg/UInt8MultiArray"
# _IOR('X', 125, __u32), ext4's and xfs' call to shut the file system down; 2 does not flush the journal.
SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, struct.pack("I", 2)


def run(*command, **how):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, **how)


def flood(world, size=200_000, rate_hz=200, count=None):
    # Small messages are all kept for a while: a recorder that a busy machine delays for seconds still
    # receives them.
    depth = max(100, 10_000_000 // size)
    talker = world.talker({"topic": "/t", "type": BYTES, "size": size, "count": count, "rate_hz": rate_hz, "hash": False, "qos": {"depth": depth}})
    talker.wait_for("ready")
    return talker


def audit(world, bag):
    told = world.run("audit", "--json", bag)
    assert told.stdout, told.stderr
    return json.loads(told.stdout)


def ask(world, control):
    told = world.run("control", control, "status")
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)["status"]


def make(world, kind, options="loop", size=100_000_000):
    """An empty file system of `size` bytes (xfs and btrfs want 300 MB) on a loop device."""
    image, folder = world.folder / "image", world.folder / "disk"
    folder.mkdir()
    with open(image, "wb") as file:
        file.truncate(size if kind == "ext4" else max(size, 300_000_000))
    force = ["-F"] if kind == "ext4" else []
    if os.geteuid() != 0 or shutil.which(f"mkfs.{kind}") is None or run(f"mkfs.{kind}", "-q", *force, image).returncode != 0:
        pytest.skip(f"no root or no mkfs.{kind}")
    mounted = run("mount", "-o", options, image, folder)
    if mounted.returncode != 0:
        pytest.skip(f"no loop devices: {mounted.stderr}")
    return folder


@pytest.fixture(params=["ext4", "xfs"])
def disk(world, request):
    folder = make(world, request.param)
    yield folder
    run("fsfreeze", "-u", folder)
    unmount(world, folder)


@pytest.fixture(params=["ext4", "xfs"])
def large_disk(world, request):
    """One that can take what a killed recorder had in memory, too."""
    folder = make(world, request.param, size=700_000_000)
    yield folder
    run("fsfreeze", "-u", folder)
    unmount(world, folder)


def mount_again(world, folder):
    """Mounts what is on the disk as on another machine: a copy of the image. Where a program in another mount namespace still has the first
    mount, the image itself would get the same loop device, and so the same file system, which is shut down."""
    assert run("umount", folder).returncode == 0
    copy = world.folder / "image-of-another-machine"
    assert run("cp", "--sparse=always", world.folder / "image", copy).returncode == 0
    # A journal that is replayed is no error (1).
    if run("blkid", "-o", "value", "-s", "TYPE", copy).stdout.strip() == "ext4":
        assert run("e2fsck", "-fy", copy).returncode in (0, 1)
    mounted = run("mount", "-o", "loop", copy, folder)
    assert mounted.returncode == 0, mounted.stderr


def unmount(world, folder):
    world.close()
    run("umount", "-l", folder)


def device_of(folder):
    return run("findmnt", "-no", "SOURCE", folder).stdout.strip()


@pytest.mark.parametrize("storage", ["mcap", "leveldb"])
def test_an_account_survives_a_disk_without_inodes(world, storage):
    """The file system has no inode for another metadata.yaml when the recording ends, and for LevelDB none for messages before."""
    folder = world.folder / "disk"
    folder.mkdir()
    options = "size=200m,nr_inodes=40"
    if os.geteuid() != 0 or run("mount", "-t", "tmpfs", "-o", options, "tmpfs", folder).returncode != 0:
        pytest.skip("no root or no tmpfs")
    try:
        bag = folder / "bag"
        recorder = world.holdall("record", "--topics", "/t", "-o", bag, "-s", storage, "--disable-keyboard-controls")
        talker = flood(world, size=1000)
        end = time.monotonic() + 60
        while world.run("info", "--json", bag).returncode != 0 or world.info(bag)["message_count"] < 100:
            assert time.monotonic() < end
        number = 0
        while True:
            try:
                (folder / f"fill_{number}").touch(exist_ok=False)
            except OSError:
                break
            number += 1
        code, text = recorder.stop()
        talker.process.kill()
        assert "panicked" not in text, text
        told = audit(world, bag)
        assert told["account"] == "final" and not told["faults"], (code, text, told)
        check = world.run("check", bag)
        assert "not ended" not in check.stdout, check.stdout
    finally:
        world.close()
        run("umount", "-l", folder)


@pytest.mark.parametrize("policy", ["stop", "ring"])
def test_a_full_file_system_ends_the_recording_or_gives_up_its_oldest_files(world, policy):
    small, kept = world.folder / "small", world.folder / "kept"
    small.mkdir()
    # By default a ring keeps more space free than this file system has.
    spare = "--min-free-space 20MiB" if policy == "ring" else ""
    inside = (
        f"mount -t tmpfs -o size=60m none {small} || exit 99\n"
        f"{HOLDALL} record -o {small}/bag --topics /t --on-disk-full {policy} {spare} -b 5000000; code=$?\n"
        f"cp -r {small}/bag {kept}; exit $code"
    )
    if run("unshare", "-Urm", "true").returncode != 0:
        pytest.skip("no user namespaces")
    talker = flood(world, count=1000)
    recorder = world.program(["unshare", "-Urm", "sh", "-c", inside])
    recorder.wait_until_says("recording /t")
    if policy == "ring":
        # More than twice what the file system holds.
        talker.done()
        children = Path(f"/proc/{recorder.process.pid}/task/{recorder.process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGINT)
    code, said = recorder.wait()
    told = audit(world, kept)
    assert told["balanced"], (told["faults"], said)
    if policy == "stop":
        assert code == 1 and "no space left" in said.lower() and str(small / "bag") in said, said
        assert told["recorded"] * 200_000 > 30_000_000, said
    else:
        assert code in (0, 3), said
        assert told["topics"]["/t"]["expired"] > 0, told


def test_a_disk_that_cannot_be_written_directly_is_named_with_the_reason(world, disk):
    memory = world.folder / "memory"
    memory.mkdir()
    if run("mount", "-t", "tmpfs", "-o", "size=50m", "tmpfs", memory).returncode != 0:
        pytest.skip("no tmpfs")
    try:
        found = {}
        for folder in (disk, memory):
            recorder = world.holdall("record", "-o", folder / "bag", "--topics", "/t", "--json", "--max-recording-duration", "1")
            code, said = recorder.wait()
            assert code == 0, said
            found[folder] = (json.loads(said[said.index("\n{") :]), said)
        report, said = found[memory]
        assert report["disk_mode"] == "buffered" and "keeps its files in memory" in report["disk_mode_reason"], report
        assert "writing through the page cache" in said and report["disk_mode_reason"] in said, said
        report, said = found[disk]
        assert (report["disk_mode"], report["disk_mode_reason"]) == ("direct", None), report
        assert "page cache" not in said, said
    finally:
        world.close()
        run("umount", "-l", memory)


def test_a_frozen_disk_is_told_and_nothing_is_lost_when_it_thaws(world, disk):
    recorder = world.holdall("record", "-o", disk / "bag", "--topics", "/t", "--restart-on-stall", "--max-loss-window", "0.5")
    talker = flood(world, size=10_000, rate_hz=100)
    recorder.wait_until_says("recording /t")
    talker.wait_for("matched")
    assert run("fsfreeze", "-f", disk).returncode == 0
    recorder.wait_until_says("no progress")
    assert run("fsfreeze", "-u", disk).returncode == 0
    recorder.wait_until_says("progress resumed")
    talker.interrupt()
    sent = talker.done()["sent"]["/t"][0]["count"]
    code, said = recorder.stop()
    assert code == 1 and "none was written to the disk" in said, said
    told = audit(world, disk / "bag")
    assert told["balanced"] and told["lost"]["total"] == 0, (told, said)
    account = told["topics"]["/t"]
    assert account["recorded"] + account["sent_before_match"] + sum(p.get("sent_before", 0) for p in account["publishers"]) == sent, (account, sent)
    about = world.info(disk / "bag")
    assert about["account"]["loss_window"]["missed"] >= 1
    assert len(about["account"]["restarts"]) >= 1 and len(about["relative_file_paths"]) >= 2, about


def memory_group(world, limit_bytes):
    """A control group of its own (v1 or v2) with so much memory; `joined` prefixes a program's command so that it joins."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(root) / f"holdall-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(limit_bytes))
            return group
        except OSError:
            if group.is_dir():
                group.rmdir()
    pytest.skip("no control groups for memory")


def kills_in(group):
    """How many processes of a control group were killed for memory."""
    for name in ("memory.oom_control", "memory.events"):
        if (group / name).exists():
            told = dict(line.split() for line in (group / name).read_text().splitlines())
            return int(told.get("oom_kill", 0))
    return 0


def joined(group, *command):
    return ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *map(str, command)]


def test_memory_that_runs_out_kills_the_recorder_and_what_was_durable_is_in_the_bag(world, large_disk):
    disk = large_disk
    group = memory_group(world, 300_000_000)
    try:
        control = world.folder / "control"
        # Configured to use more memory than there is; messages wait in it while the disk does not respond.
        arguments = ["record", "-o", disk / "bag", "--topics", "/t", "--max-cache-size", "4GiB", "--max-loss-window", "0.5", "--control-socket", control]
        recorder = world.program(joined(group, HOLDALL, *arguments))
        talker = flood(world, size=500_000, rate_hz=100)
        recorder.wait_until_says("recording /t")
        talker.wait_for("matched")
        while (durable := ask(world, control)["durable"]) < 20:
            time.sleep(0.05)
        assert run("fsfreeze", "-f", disk).returncode == 0
        # It cannot end while a write of it waits for the disk.
        deadline = time.monotonic() + 60
        while kills_in(group) == 0 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert run("fsfreeze", "-u", disk).returncode == 0
        code, said = recorder.wait()
        talker.interrupt()
        assert code == -signal.SIGKILL, said
        # 3 where data was torn that never was durable.
        assert world.repair(disk / "bag").returncode in (0, 3)
        assert world.info(disk / "bag")["message_count"] >= durable, said
        assert world.run("check", disk / "bag").returncode == 0
    finally:
        run("fsfreeze", "-u", disk)
        world.close()
        group.rmdir()


@contextlib.contextmanager
def slowed(disk, bytes_per_s):
    """The disk takes so much in a second, at most."""
    # Of version 1 of control groups: a limit of the root group, so that the kernel's own threads have it too.
    limit = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
    if not os.access(limit, os.W_OK):
        pytest.skip("no way to slow a disk down")
    status = os.stat(device_of(disk))
    device = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    limit.write_text(f"{device} {bytes_per_s}")
    try:
        yield
    finally:
        limit.write_text(f"{device} 0")


@pytest.mark.parametrize("patient", [True, False], ids=["to the end", "ended twice"])
def test_a_disk_slower_than_the_load_costs_nothing_while_memory_is_left(world, large_disk, patient):
    """30 MB/s for 8 s onto a disk of 10 MB/s, with 1.5 GB of memory: a sixteenth of it would not do."""
    group, control, bag = memory_group(world, 1_500_000_000), world.folder / "control", large_disk / "bag"
    try:
        arguments = ["record", "-o", bag, "--topics", "/t", "--control-socket", control]
        with slowed(large_disk, 10_000_000):
            recorder = world.program(joined(group, HOLDALL, *arguments))
            recorder.wait_until_says("Listening")
            talker = flood(world, size=500_000, rate_hz=60, count=480)
            sent = talker.done()["sent"]["/t"][0]["count"]
            waits = ask(world, control)
            assert waits["cache_bytes"] > 120_000_000 and waits["cache_bytes_max"] > 200_000_000, waits
            if not patient:
                recorder.process.send_signal(signal.SIGINT)
                recorder.wait_until_says("that wait for the disk are written first")
                # A signal that comes at once is the same keypress.
                while recorder.process.poll() is None:
                    recorder.process.send_signal(signal.SIGINT)
                    time.sleep(0.2)
        code, said = recorder.stop() if patient else recorder.wait()
        if patient:
            assert code == 0 and "lost: none" in said, said
            assert "would have taken the last" in said, "what a power cut would cost is named"
        else:
            assert code == 1 and f"stay in memory: `holdall repair {bag}` stores them" in said, said
            assert world.repair(bag).returncode in (0, 3)
        account = audit(world, bag)["topics"]["/t"]
        known = account["sent_before_match"] + sum(p.get("sent_before", 0) for p in account["publishers"])
        assert account["recorded"] + known == sent == 480 and account["recorded"] == world.info(bag)["message_count"], (account, said)
        assert kills_in(group) == 0
    finally:
        world.close()
        group.rmdir()


def test_memory_that_is_short_is_kept_to_while_a_disk_takes_nothing(world, disk):
    """By default the cache is small enough for a group of 300 MB, and what did not fit is counted."""
    group = memory_group(world, 300_000_000)
    try:
        recorder = world.program(joined(group, HOLDALL, "record", "-o", disk / "bag", "--topics", "/t"))
        recorder.wait_until_says("Listening")
        assert run("fsfreeze", "-f", disk).returncode == 0
        talker = flood(world, size=500_000, rate_hz=100, count=800)
        sent = talker.done()["sent"]["/t"][0]["count"]
        assert run("fsfreeze", "-u", disk).returncode == 0
        code, said = recorder.stop()
        assert kills_in(group) == 0 and code in (1, 3), said
        told = audit(world, disk / "bag")
        account = told["topics"]["/t"]
        known = account["sent_before_match"] + sum(p.get("sent_before", 0) for p in account["publishers"])
        assert told["balanced"] and account["recorded"] + account["lost"] + known == sent == 800, (account, said)
        assert account["recorded"] * 500_000 > 40_000_000, account
    finally:
        run("fsfreeze", "-u", disk)
        world.close()
        group.rmdir()


def test_a_disk_that_vanishes_ends_the_recording_with_its_path_and_leaves_what_was_synced(world, disk):
    control = world.folder / "control"
    recorder = world.holdall("record", "-o", disk / "bag", "--topics", "/t", "--max-loss-window", "0.5", "--control-socket", control)
    talker = flood(world, size=10_000, rate_hz=100)
    recorder.wait_until_says("recording /t")
    talker.wait_for("matched")
    # Some syncs later, by the recorder's own report.
    while ask(world, control)["durable"] < 100:
        time.sleep(0.05)
    folder = os.open(disk, os.O_RDONLY)
    fcntl.ioctl(folder, SHUTDOWN, NO_LOG_FLUSH)
    os.close(folder)
    code, said = recorder.wait()
    talker.interrupt()
    assert code == 1 and str(disk / "bag") in said, said
    # The cable is connected again.
    mount_again(world, disk)
    # 3 where data was torn that never was durable.
    assert world.repair(disk / "bag").returncode in (0, 3)
    about = world.info(disk / "bag")
    assert about["message_count"] >= 100, (about, said)


def test_a_used_up_quota_ends_the_recording_with_its_path_and_everything_until_then(world):
    if shutil.which("btrfs") is None:
        pytest.skip("no btrfs, whose quotas bind root too")
    folder = make(world, "btrfs")
    try:
        limited = folder / "limited"
        for command in (["quota", "enable", folder], ["subvolume", "create", limited], ["qgroup", "limit", "30M", limited]):
            told = run("btrfs", *command)
            assert told.returncode == 0, told.stderr
        talker = flood(world, count=1000)
        recorder = world.holdall("record", "-o", limited / "bag", "--topics", "/t")
        code, said = recorder.wait()
        talker.interrupt()
        assert code == 1 and "quota" in said.lower() and str(limited / "bag") in said, said
        told = audit(world, limited / "bag")
        assert told["balanced"], (told["faults"], said)
        assert told["recorded"] * 200_000 > 15_000_000, (told, said)
        # Where even a shorter file needs new blocks, as here, its footer has to wait for space; the recorder
        # reports that.
        assert run("btrfs", "qgroup", "limit", "none", limited).returncode == 0
        assert world.repair(limited / "bag").returncode in (0, 3), said
        assert world.info(limited / "bag")["message_count"] == told["recorded"], said
        assert world.run("check", limited / "bag").returncode == 0, said
    finally:
        unmount(world, folder)


def test_a_file_system_that_turns_read_only_ends_the_recording_and_keeps_what_was_synced(world):
    folder = make(world, "ext4", options="loop,errors=remount-ro")
    try:
        switch = Path("/sys/fs/ext4") / Path(device_of(folder)).name / "trigger_fs_error"
        if not os.access(switch, os.W_OK):
            pytest.skip("no way to have ext4 find an error")
        control = world.folder / "control"
        recorder = world.holdall("record", "-o", folder / "bag", "--topics", "/t", "--max-loss-window", "0.5", "--control-socket", control)
        talker = flood(world, size=10_000, rate_hz=100)
        recorder.wait_until_says("recording /t")
        talker.wait_for("matched")
        while ask(world, control)["durable"] < 100:
            time.sleep(0.05)
        switch.write_text("1")
        code, said = recorder.wait()
        talker.interrupt()
        assert code == 1 and str(folder / "bag") in said, said
        assert "read-only file system" in said.lower() or "input/output error" in said.lower(), said
        # An administrator intervenes.
        mount_again(world, folder)
        assert world.repair(folder / "bag").returncode in (0, 3)
        assert world.info(folder / "bag")["message_count"] >= 100, said
    finally:
        unmount(world, folder)
