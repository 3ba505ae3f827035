"""`holdall bench gate` as CI runs it: higher costs than the baseline fail, with the function's name; a machine without valgrind is refused."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import HOLDALL

TREE = Path(__file__).resolve().parents[2]
BASELINE = TREE / "tools/bench/gate/baseline.json"
# The cheapest workload: it counts some ten million instructions.
WORKLOAD = "offer-100B"

needs_valgrind = pytest.mark.skipif(not (shutil.which("valgrind") and shutil.which("cargo")), reason="counts with valgrind, builds with cargo")


def gate(*arguments, env=None):
    return subprocess.run(
        [HOLDALL, "bench", "gate", "--only", WORKLOAD, *map(str, arguments)],
        cwd=TREE, env=env, capture_output=True, text=True, timeout=600,
    )


@needs_valgrind
def test_six_percent_more_instructions_fail_with_the_function_and_one_less_does_not(tmp_path):
    # A baseline of this very build: with any compiler and machine, only the changes below differ.
    renewed = tmp_path / "baseline.json"
    shutil.copy(BASELINE, renewed)
    done = gate("--baseline", renewed, "--renew")
    assert done.returncode == 0, done.stderr
    counted = json.loads(renewed.read_text())
    costs = counted["workloads"][WORKLOAD]
    largest = max(costs["functions"], key=costs["functions"].get)

    done = gate("--baseline", renewed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("passed")

    # As if the largest function had been cheaper, so that all of it together had cost 6 % less.
    more = costs["instructions"] * (1 - 1 / 1.06)
    costs["functions"][largest] -= more
    costs["instructions"] -= more
    renewed.write_text(json.dumps(counted))
    done = gate("--baseline", renewed, "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads(done.stdout)
    (found,) = report["workloads"]
    assert found["instructions"]["judgement"] == "worse"
    assert found["instructions"]["now"] / found["instructions"]["before"] == pytest.approx(1.06, abs=0.01)
    assert found["grown"][0]["name"] == largest
    # The name is one that people know: a path in the source, without a hash.
    assert "::" in largest and "17h" not in largest


def test_without_valgrind_it_is_told_how_to_get_it(tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    program = tmp_path / "any"
    program.write_text("")
    rustc = shutil.which("rustc")
    if rustc is None:
        pytest.skip("asks the compiler for its version")
    done = gate("--program", program, env={**os.environ, "PATH": str(empty), "RUSTC": rustc})
    assert done.returncode == 2, done.stderr
    assert "valgrind is not installed" in done.stderr and "apt-get install valgrind" in done.stderr


def test_it_is_refused_outside_of_the_source_tree(tmp_path):
    done = subprocess.run([HOLDALL, "bench", "gate"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "source tree" in done.stderr
