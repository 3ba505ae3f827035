"""A few real recordings killed with SIGKILL at random moments; kill_recording.py is the long form, and describes the checks."""

import fcntl
import json
import os
import signal
import warnings

import kill_recording
from served import until
from test_ring import publish, record, recorded


def test_what_a_killed_recording_had_received_is_read_at_once_and_is_in_the_bag_after_a_repair(world):
    seed = int.from_bytes(os.urandom(4), "little")
    said, slow = [], []
    faults = kill_recording.run(world, kills=10, seed=seed, side_by_side=5, report=said.append, slow=slow)
    # A time is a reason to look, not to fail: the long form fails for it, on a machine that does nothing else.
    if slow:
        warnings.warn(f"seed {seed}: {slow}", stacklevel=1)
    assert not faults, f"seed {seed}: {faults}"


def test_a_file_that_is_gone_or_damaged_after_a_kill_is_in_the_account_for_good(world):
    seed = int.from_bytes(os.urandom(4), "little")
    faults = kill_recording.run(world, kills=3, seed=seed, side_by_side=3, longest_s=4.0, report=print, lose_files=True)
    assert not faults, f"seed {seed}: {faults}"


def test_a_repair_changes_nothing_while_the_memory_of_the_recorder_belongs_to_a_process(world):
    talker = publish(world)
    recorder, bag = record(world, "-b", "3MB")
    until(lambda: recorded(world) >= 200, "messages")
    recorder.stop(signal.SIGKILL)
    talker.interrupt()
    talker.done()
    contents = {path: path.read_bytes() for path in bag.iterdir()}
    # As the kernel holds it as long as anything refers to the memory of a process.
    with open(json.loads((bag / ".holdall-rescue.json").read_text())["path"], "rb") as memory:
        fcntl.flock(memory, fcntl.LOCK_EX)
        for output in ([], ["-o", world.folder / "new"]):
            done = world.run("repair", bag, *output)
            assert done.returncode == 2 and "when that process has ended" in done.stderr, done
        assert "belongs to a process that is running" in world.run("info", bag).stderr
    assert contents == {path: path.read_bytes() for path in bag.iterdir()}
    assert not (world.folder / "new").exists()
    assert world.repair(bag).returncode == 0
    assert world.info(bag)["message_count"] >= 200
