"""The list of reasons for which a test may be skipped, and what a test that is skipped for another one does to a run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
REASONS = [line for line in (FOLDER / "skips.txt").read_text().splitlines() if line and not line.startswith("#")]

TESTS = """
import pytest

def test_passes():
    pass

def test_fails():
    assert {passes}

@pytest.mark.skip(reason={reason!r})
def test_is_skipped():
    pass
"""


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "beside each other"])
@pytest.mark.parametrize(
    ("passes", "reason", "strict", "code"),
    [
        (True, "needs root, to mount", "strict", 0),
        (False, "needs root, to mount", "strict", 1),
        (True, "the moon is full", "", 0),
        (False, "the moon is full", "", 1),
        (True, "the moon is full", "strict", 6),
        (False, "the moon is full", "strict", 6),
    ],
)
def test_a_skip_for_another_reason_fails_the_run_and_hides_no_failure(tmp_path, passes, reason, strict, code, workers):
    file = tmp_path / "test_some.py"
    file.write_text(TESTS.format(passes=passes, reason=reason))
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "conftest", "--rootdir", tmp_path, *workers, file]
    env = {**os.environ, "PYTHONPATH": str(FOLDER), "HOLDALL_SKIPS": strict}
    done = subprocess.run(list(map(str, words)), env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("1 failed" in done.stdout) == (not passes) and "1 skipped" in done.stdout, done.stdout
    others = "none" if reason.startswith(tuple(REASONS)) else f"test_some.py::test_is_skipped ({reason})"
    assert f"skipped: 1, for a reason that tests/e2e/skips.txt does not have: {others}" in done.stdout, done.stdout


def test_each_reason_is_that_of_a_test_and_there_once():
    sources = "".join(path.read_text() for path in FOLDER.glob("*.py") if path.name != Path(__file__).name)
    assert sorted(REASONS) == sorted(set(REASONS))
    assert not [reason for reason in REASONS if f'"{reason}' not in sources]
