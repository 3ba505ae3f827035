"""Suites whose software is started as people start it: by `ros2 launch` with a real launch file, and in a root file system of its own, as containers are."""

import importlib.machinery
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import messages_of
from test_launch import PATHS, ROOT, with_launch
from test_lockstep import COUNT, drive  # noqa: F401
from test_regress import NODE, logs, regress, result, runs
from test_regress_outputs import running, suite_of

# What a root file system for Python has of this machine: all of it but its own /proc, /tmp and the folders that are made below.
SYSTEM = [path for path in ("/usr", "/bin", "/lib", "/lib64", "/etc", "/opt", "/sys") if os.path.isdir(path)]
STEP = {"step-by": ["/imu=/filtered"], "pace": "listeners", "topics": ["/imu"]}


def plans(folder):
    """The plans of two nodes, one after the other."""
    for name, plan in {"first": {"output": "/between"}, "second": {"input": "/between"}}.items():
        (folder / f"{name}.json").write_text(json.dumps({"input": "/imu", "output": "/filtered", **plan}))


LAUNCH_FILE = """
import sys
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess, Shutdown
from launch.substitutions import LaunchConfiguration

def generate_launch_description():
    node = lambda plan: ExecuteProcess(cmd=[sys.executable, {node!r}, plan], output="screen", on_exit=Shutdown())
    return LaunchDescription([DeclareLaunchArgument("second"), node("first.json"), node(LaunchConfiguration("second"))])
"""


@with_launch
def test_ros2_launch_starts_and_ends_the_software_and_its_end_is_noticed(world, drive):  # noqa: F811
    if not all(importlib.machinery.PathFinder.find_spec(name, [*PATHS, *sys.path]) for name in ("ros2cli", "ros2launch")):
        pytest.skip("no launch of ROS 2 can be imported")
    folder = world.folder / "suite"
    folder.mkdir()
    plans(folder)
    (folder / "crash.json").write_text(json.dumps({"input": "/between", "output": "/filtered", "crash_after": 5}))
    (folder / "nodes.launch.py").write_text(LAUNCH_FILE.format(node=str(NODE)))
    # What the command `ros2` is.
    ros2 = f"exec {shlex.quote(sys.executable)} -c 'import sys; from ros2cli.cli import main; sys.exit(main())'"
    path = os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")])
    case = {"bag": str(drive), "outputs": ["/between", "/filtered"], "play": STEP, "settle": 1, "env": {"PYTHONPATH": path}}
    case |= {"must": ["/filtered: orientation.x > 0"], "ready": {"topics": ["/between", "/filtered"], "within": 50}}
    cases = {
        "launched": {**case, "command": f"{ros2} launch nodes.launch.py second:=second.json"},
        "crashing": {**case, "command": f"{ros2} launch nodes.launch.py second:=crash.json"},
    }
    ran = regress(world, suite_of(world, cases), code=1)
    assert "passed  launched" in ran.stdout, (ran.stdout, logs(world))
    recorded = messages_of(world.folder / "results/launched/outputs")
    assert [len(recorded[topic]) for topic in ("/between", "/filtered")] == [COUNT, COUNT]
    # The launch file ends all when a node ends.
    assert re.search(r"crashing.*\n +the software has ended .* while the bag was played", ran.stdout), (ran.stdout, logs(world))
    assert not running(folder)


CONTAINER = """#!/bin/sh
# A root file system in mount and process namespaces of its own, with the network of the host: what `docker run --network host` makes.
mount -t tmpfs none root
for place in {system}; do mkdir -p "root$place"; mount --rbind "$place" "root$place"; done
for place in {folders}; do mkdir -p "root$place"; mount --bind "$place" "root$place"; mount -o remount,bind,ro "root$place"; done
mkdir -p root/proc root/tmp root/dev
mount -t proc proc root/proc
mount --rbind /dev root/dev
cd root
pivot_root . tmp
cd /
umount -l tmp
exec {python} {node} {plan}
"""


def test_software_in_a_container_is_ready_is_judged_and_ends_with_the_run(world, drive):  # noqa: F811
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--propagation", "private"]
    if subprocess.run([*namespaces, "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace can be made")
    folder = world.folder / "suite"
    (folder / "root").mkdir(parents=True)
    (folder / "image").mkdir()
    shutil.copytree(NODE.parent, folder / "image/nodes", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "image/plan.json").write_text(json.dumps({"input": "/imu", "output": "/filtered"}))
    # The environment of Python is the image; a folder of the test is what `docker run -v` binds.
    prefixes = {sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parents[1]), str(folder / "image")}
    folders = sorted(prefix for prefix in prefixes if not any(prefix == top or prefix.startswith(f"{top}/") for top in SYSTEM))
    script = CONTAINER.format(
        system=" ".join(SYSTEM),
        folders=" ".join(map(shlex.quote, folders)),
        python=shlex.quote(sys.executable),
        node=folder / "image/nodes/under_test.py",
        plan=folder / "image/plan.json",
    )
    (folder / "container.sh").write_text(script)
    case = {"command": f"exec {shlex.join(namespaces)} sh -e container.sh", "bag": str(drive), "outputs": ["/filtered"], "play": STEP, "settle": 1}
    # Nothing of the folder of the suite but the image is in the container.
    hidden = {**case, "command": case["command"].replace("container.sh", "hidden.sh"), "golden": "golden"}
    (folder / "hidden.sh").write_text(script.replace("\nexec ", f"\n! [ -e {folder}/suite.yaml ] && [ $$ = 1 ] && exec "))
    suite = suite_of(world, {"one": {**case, "golden": "golden"}, "hidden": hidden})
    regress(world, suite, code=4)
    regress(world, suite, "--case", "one", "--update-golden")
    ran = regress(world, suite)
    assert "passed  one" in ran.stdout and "passed  hidden" in ran.stdout, (ran.stdout, logs(world))
    assert result(world, "one")["topics"]["/filtered"]["found"] == COUNT
    for name in ("one", "hidden"):
        assert not runs(int((world.folder / "results" / name / "software.pid").read_text()))
    assert not running(folder)


@pytest.mark.skipif(shutil.which("docker") is None, reason="this distribution has no docker")
def test_the_command_line_for_docker_has_flags_that_docker_has():
    (line,) = re.findall(r"`(?:exec )?docker run ([^`]+)`", (ROOT / "docs/regress.md").read_text())
    known = subprocess.run(["docker", "run", "--help"], capture_output=True, text=True).stdout
    flags = re.findall(r"(?<!\S)--?[a-z][a-z-]*", line)
    assert flags and all(re.search(rf"(?<!\S){flag}\b", known) for flag in flags), (flags, known)
