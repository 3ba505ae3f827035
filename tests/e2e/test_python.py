"""The Python package: the wheel of the built extension in a clean venv, and its own tests there."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HOLDALL

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path(HOLDALL).with_name("libholdall_python.so")
# What reads the columns is in a venv of its own: pandas, polars, pyarrow, duckdb.
CLEAN = Path(sys.prefix) / "wheel"


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """The clean venv's interpreter, and the folder into which the wheel was installed."""
    assert LIBRARY.exists(), f"{LIBRARY} was not built: cargo build --workspace --lib"
    python = CLEAN / "bin" / "python"
    assert python.exists(), f"{python} is missing: make setup-nodes"
    folder = tmp_path_factory.mktemp("wheel")
    packed = subprocess.run([sys.executable, ROOT / "scripts/pack-wheel.py", LIBRARY, folder], capture_output=True, text=True, check=True)
    wheel = packed.stdout.strip()
    install = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", folder / "site", wheel]
    subprocess.run(install, check=True, capture_output=True)
    return python, folder / "site"


def environment(site, **more):
    """What the package runs in: of this user's home, whose caches and settings others have made, it has nothing."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_LIBRARY", "_ROS", "PYTEST"))}
    return {**env, "PYTHONPATH": str(site), "HOME": str(site.parent), "HOLDALL_BIN": HOLDALL, "MYPY_CACHE_DIR": os.devnull, **more}


def run(installed, *words, **more):
    python, site = installed
    done = subprocess.run([python, *map(str, words)], env=environment(site, **more), cwd=ROOT / "tests/python", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5000:]
    return done.stdout


def test_the_package_passes_its_tests_in_a_clean_venv(installed, tmp_path):
    storage = {"HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path / "hypothesis")}
    run(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", tmp_path / "base", ".", **storage)


def test_nothing_but_the_wheel_is_needed_to_import_and_read(installed, tmp_path):
    # An interpreter that cannot import anything that is installed beside it.
    script = (
        "import sys; sys.modules.update(dict.fromkeys(['numpy', 'pandas', 'pyarrow', 'polars'])); import holdall\n"
        "with holdall.create('bag') as out:\n"
        "    out.write('/t', 'sensor_msgs/msg/Range', {'range': 1.5, 'header': {'frame_id': 'x'}}, time=5)\n"
        "    out.write('/l', 'std_msgs/msg/Float32MultiArray', {'data': [1, 2.5]}, time=6)\n"
        "message, lists = holdall.open('bag').messages()\n"
        "print(message.topic, message.time, message.msg.range, message.msg.header.frame_id, lists.msg.data, 'numpy' in sys.modules and sys.modules['numpy'])"
    )
    python, site = installed
    done = subprocess.run([python, "-c", script], env=environment(site), cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == ["/t", "5", "1.5", "x", "[1.0,", "2.5]", "None"], done.stdout + done.stderr


@pytest.mark.skipif(int(os.confstr("CS_GNU_LIBC_VERSION").rpartition(".")[2]) > 36, reason="a newer C library has newer symbols")
def test_the_wheel_needs_no_newer_c_library_than_ubuntu_22_04_has():
    for built, most in ((LIBRARY, 34), (Path(HOLDALL), 35)):
        needed = {int(minor) for minor in re.findall(rb"\0GLIBC_2\.(\d+)(?=\0)", built.read_bytes())}
        assert needed and max(needed) <= most, f"{built.name} needs glibc 2.{max(needed)}"


def test_the_types_are_those_that_the_stubs_state(installed):
    _, site = installed
    run(installed, "-m", "mypy.stubtest", "holdall._native", "--ignore-missing-stub", MYPYPATH=str(site))
    run(installed, "-m", "mypy", "--strict", "--ignore-missing-imports", "--cache-dir", "/dev/null", "-p", "holdall", MYPYPATH=str(site))
    run(installed, "-m", "mypy", "--strict", "--ignore-missing-imports", "--python-version", "3.11", "--cache-dir", "/dev/null", "typed.py", MYPYPATH=str(site))


def test_pyright_finds_nothing_in_the_package_nor_in_the_recipes(installed, tmp_path):
    python, site = installed
    shutil.copytree(site / "holdall", tmp_path / "holdall", ignore=shutil.ignore_patterns("bin", "*.so"))
    shutil.copy(ROOT / "python/pyproject.toml", tmp_path)
    run(installed, "-m", "basedpyright", "--pythonpath", python, "-p", tmp_path)
    # What is public has whole types; the modules that stand for those of others, or extend them, have theirs.
    checked = subprocess.run([python, "-m", "basedpyright", "--pythonpath", python, "--verifytypes", "holdall", "--ignoreexternal"], env=environment(site), capture_output=True, text=True)
    assert "Symbols exported" in checked.stdout and not re.findall(r"^holdall\.(?:_\w+\.[\w.]+|\w+)\n.*error.*", checked.stdout, re.MULTILINE), checked.stdout
    # What a reader writes, with names that the recipes have from their text.
    recipes = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text().partition("## Scripts for")[0], re.DOTALL))
    (tmp_path / "user").mkdir()
    imports = "from datetime import datetime, timezone\n\nimport duckdb\nimport holdall\n\n"
    (tmp_path / "user/recipes.py").write_text(imports + recipes)
    shutil.copy(ROOT / "tests/python/typed.py", tmp_path / "user")
    # Expressions and names that only stand for what a reader does with them, duckdb's results that may be None, and libraries without types.
    off = ["UnusedExpression", "UnusedVariable", "OptionalMemberAccess", "MissingTypeStubs", "UnknownMemberType", "UnknownVariableType"]
    settings = {"typeCheckingMode": "strict", **{f"report{name}": False for name in off}}
    (tmp_path / "user/pyrightconfig.json").write_text(json.dumps(settings))
    run(installed, "-m", "basedpyright", "--pythonpath", python, "-p", tmp_path / "user")


def test_ray_dask_and_spark_read_bags_in_several_processes(installed, tmp_path):
    _, site = installed
    # Ray, Dask and Spark are in a venv of their own.
    python = Path(sys.prefix) / "engines" / "bin" / "python"
    assert python.exists(), f"{python} is missing: make setup-nodes"
    # Workers import the functions of the tests.
    path = f"{site}:{ROOT / 'tests/engines'}"
    more = {"PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0", "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    words = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", tmp_path / "base", ROOT / "tests/engines"]
    done = subprocess.run(words, env=environment(site, **more), cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5000:]


def test_training_data_is_read_by_the_libraries_that_train_on_it(installed, tmp_path):
    _, site = installed
    # datasets, webdataset and ffmpeg are in a venv of their own.
    python = Path(sys.prefix) / "training" / "bin" / "python"
    assert python.exists(), f"{python} is missing: make setup-nodes"
    more = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"}
    words = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", tmp_path / "base", ROOT / "tests/training"]
    done = subprocess.run(words, env=environment(site, **more), cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5000:]


PROMOTES = """
import holdall, sys, time
from datetime import datetime, timedelta, timezone
with holdall.record("ring", ["/t"], ring="1h") as recording:
    while recording.status["recorded"] < 100:
        time.sleep(0.02)
    now = datetime.now(timezone.utc)
    seen = []
    copy = recording.promote("event", now - timedelta(seconds=1), now + timedelta(seconds=1), topics=["t"], progress=lambda done, all: seen.append(done / all))
    assert copy["state"] == "done" and copy["messages"] == len(holdall.open("event")["/t"]) >= 50, copy
    assert seen[-1] == 1 and seen == sorted(seen), seen
    begin = holdall.open("ring").start
    early = recording.promote("early", begin - 10**9, begin + 10**9)
    assert "nothing before" in early["note"] and early["messages"] >= 40, early
    for wrong, error in ((("event",), holdall.ProgramError), (("none", 1e8, 1e8 + 1), holdall.ProgramError), (("none", 5), ValueError)):
        try:
            recording.promote(*wrong)
        except error as reason:
            print(reason)
        else:
            raise AssertionError(wrong)
    try:
        recording.promote("late", end=datetime.now(timezone.utc) + timedelta(seconds=2), timeout=0)
    except TimeoutError as reason:
        print(reason)
print(len(holdall.open("late")["/t"]) > 100)
"""


def test_a_recording_promotes_parts_of_its_ring(installed, world):
    python, site = installed
    talker = world.talker({"topic": "/t", "type": "std_msgs/msg/String", "rate_hz": 50, "qos": {"depth": 100}})
    talker.wait_for("ready")
    env = {**environment(site), **{name: world.env[name] for name in ("ROS_DOMAIN_ID", "ROS_AUTOMATIC_DISCOVERY_RANGE")}}
    done = subprocess.run([python, "-c", PROMOTES], env=env, cwd=world.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].endswith("event exists") and "5 is not a date" in lines[2] and "it will be copied" in lines[3] and lines[4] == "True", lines
