"""A few real recordings killed with SIGKILL at random moments; kill_recording.py is the long form, and describes the checks."""

import os
import warnings

import kill_recording


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
