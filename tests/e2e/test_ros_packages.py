"""The packages in ros/, built by the real colcon and ament_cmake, and the command `ros2 holdall`."""

import argparse
import importlib.machinery
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import DEADLINE_S, DEFINITIONS, HOLDALL, messages_of
from test_launch import EXAMPLES, PATHS, launch, with_launch  # noqa: F401
from test_python import LIBRARY, ROOT, environment, installed  # noqa: F401

PACKAGES = ROOT / "ros"
# colcon and ament are in a venv of their own; its share folder is what /opt/ros has on a robot.
VENV = Path(sys.prefix) / "ros"
LAUNCH_XML = importlib.machinery.PathFinder.find_spec("launch_xml", [*PATHS, *sys.path])
ROS2CLI = importlib.machinery.PathFinder.find_spec("ros2cli", [*PATHS, *sys.path])


def tools(**more):
    """The environment of a shell that sourced a ROS 2 with nothing but ament."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AMENT", "CMAKE", "COLCON", "HOLDALL", "LD_LIBRARY", "_ROS"))}
    assert (VENV / "bin" / "colcon").exists(), f"{VENV} is missing: make setup-nodes"
    return {**env, "PATH": f"{VENV / 'bin'}:{env['PATH']}", "AMENT_PREFIX_PATH": str(VENV), "CMAKE_PREFIX_PATH": str(VENV), **more}


def colcon(folder, *settings, **more):
    python = VENV / "bin" / "python"
    words = ["colcon", "--log-base", folder / "log", "build", "--base-paths", PACKAGES, "--build-base", folder / "build", "--install-base", folder / "install"]
    words += ["--packages-select", "holdall", "--cmake-args", f"-DPython3_EXECUTABLE={python}", *settings]
    return subprocess.run(list(map(str, words)), env=tools(**more), cwd=folder, capture_output=True, text=True, timeout=5 * DEADLINE_S)


@pytest.fixture(scope="session")
def workspace(tmp_path_factory):
    """A workspace with the package holdall, made of programs that are built already."""
    folder = tmp_path_factory.mktemp("workspace")
    built = colcon(folder, f"-DHOLDALL_PROGRAM={HOLDALL}", f"-DHOLDALL_NATIVE={LIBRARY}")
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "install"


def sourced(workspace, command, env=None):
    """Runs a shell command after the workspace's setup file."""
    words = ["bash", "-c", f"source {workspace}/setup.bash && {command}"]
    return subprocess.run(words, env=tools(**env or {}), cwd=workspace.parent, capture_output=True, text=True, timeout=DEADLINE_S)


def test_each_manifest_is_valid_and_has_the_version_of_the_program(world):
    script = (
        "import json, sys; from catkin_pkg.package import parse_package\n"
        "found = [parse_package(path) for path in sys.argv[1:]]; warnings = []\n"
        "for package in found: package.validate(warnings)\n"
        "print(json.dumps([[p.name, p.version, p.package_format, p.get_build_type(), warnings] for p in found]))"
    )
    manifests = [str(PACKAGES / name / "package.xml") for name in ("holdall", "holdall_interfaces")]
    parsed = subprocess.run([VENV / "bin" / "python", "-c", script, *manifests], env=tools(), capture_output=True, text=True, check=True)
    version = world.run("--version").stdout.split()[1]
    assert json.loads(parsed.stdout) == [[name, version, 3, "ament_cmake", []] for name in ("holdall", "holdall_interfaces")]


HASHES = """
import json, sys
from pathlib import Path
from rosidl_adapter.srv import convert_srv_to_idl
from rosidl_generator_type_description import generate_type_hash
package, out = map(Path, sys.argv[1:])
(out / "srv").mkdir()
idl = [convert_srv_to_idl(package, "holdall_interfaces", path.relative_to(package), out / "srv").name for path in package.glob("srv/*")]
plan = {"package_name": "holdall_interfaces", "output_dir": str(out), "idl_tuples": [f"{out}:srv/{name}" for name in idl]}
plan["include_paths"] = [f"{name}:{sys.prefix}/share/{name}" for name in ("service_msgs", "builtin_interfaces")]
(out / "plan.json").write_text(json.dumps(plan))
generate_type_hash(str(out / "plan.json"))
"""


def test_the_interfaces_have_the_hashes_that_the_recorder_announces(tmp_path):
    # By ROS 2's own adapter and generator.
    package = PACKAGES / "holdall_interfaces"
    texts = sorted((package / "srv").glob("*.srv"))
    cmake = (package / "CMakeLists.txt").read_text()
    assert [path.stem for path in texts] == ["AddMarker", "ChangeEpisode", "GetStatistics"] and all(f'"srv/{path.name}"' in cmake for path in texts)
    definitions = DEFINITIONS.read_text()
    made = subprocess.run([sys.executable, "-c", HASHES, package, tmp_path], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    for path in texts:
        name, text = f"holdall_interfaces/srv/{path.stem}", path.read_text()
        hashes = json.loads((tmp_path / "srv" / f"{path.stem}.json").read_text())["type_hashes"]
        (found,) = (entry["hash_string"] for entry in hashes if entry["type_name"] == name)
        assert f"@@ {name} srv {found} {len(text)}\n{text}\n" in definitions, name


def test_a_workspace_has_the_program_the_python_package_and_launch_files(workspace):
    # Where `ros2 run holdall holdall` and launch's Node look.
    executable = workspace / "holdall/lib/holdall/holdall"
    assert os.access(executable, os.X_OK) and (workspace / "holdall/share/ament_index/resource_index/packages/holdall").exists()
    ran = sourced(workspace, "holdall --version && python -c 'import holdall; print(holdall.program(), holdall.__version__)'")
    assert ran.returncode == 0, ran.stderr
    version = ran.stdout.split()[1]
    assert ran.stdout.splitlines()[1].split() == [str(workspace / "holdall/bin/holdall"), version]
    assert {path.name for path in (workspace / "holdall/share/holdall/launch").glob("*.launch.*")} == {path.name for path in EXAMPLES.glob("*.launch.*")}
    points = sourced(workspace, "python -c \"import importlib.metadata as m; print(*m.entry_points(group='ros2cli.command'))\"")
    assert "holdall.ros2cli:HoldallCommand" in points.stdout, points.stdout + points.stderr


def test_the_program_of_a_workspace_is_a_node_with_what_launch_gives_it(workspace, world):
    parameters = world.folder / "recorder.yaml"
    parameters.write_text("/robot/recorder:\n  ros__parameters:\n    record: {topics: [/chatter]}\n    storage: {uri: lab}\n")
    arguments = ["record", "--ros-args", "-r", "__node:=recorder", "-r", "__ns:=/robot", "--params-file", parameters]
    recorder = world.program([str(workspace / "holdall/lib/holdall/holdall"), *map(str, arguments), "--", "-o", str(world.folder / "lab")])
    recorder.wait_until_says("Listening for topics")
    talker = world.talker({"topic": "/chatter", "type": "std_msgs/msg/String", "rate_hz": 50, "count": 20}, wait_for_subscriptions=1)
    talker.done()
    code, text = recorder.stop()
    assert code == 0, text
    assert {topic: len(messages) for topic, messages in messages_of(world.folder / "lab").items()} == {"/chatter": 20}


@with_launch
def test_launch_starts_it_as_a_node_of_the_package(workspace, world, launch):
    parameters = world.folder / "recorder.yaml"
    parameters.write_text(f"/**:\n  ros__parameters:\n    record: {{all_topics: true}}\n    storage: {{uri: {world.folder / 'lab'}}}\n")
    prefix = f"{workspace / 'holdall'}:{os.environ.get('AMENT_PREFIX_PATH', sys.prefix)}"
    launched = launch("record_as_node.launch.py", f"params:={parameters}", "namespace:=/robot", AMENT_PREFIX_PATH=prefix)
    launched.program.wait_until_says("Listening for topics")
    calls = world.calls("cyclone", {"service": "/robot/recorder/get_uri", "type": "rosbag2_interfaces/srv/GetUri", "request": {}})
    assert calls[0]["reply"] == {"uri": str(world.folder / "lab")}, calls


@with_launch
@pytest.mark.skipif(LAUNCH_XML is None, reason="no launch of ROS 2 can be imported: launch_xml")
def test_a_launch_file_in_xml_records(workspace, world, launch):
    prefix = f"{workspace / 'holdall'}:{os.environ.get('AMENT_PREFIX_PATH', sys.prefix)}"
    launched = launch("record.launch.xml", f"uri:={world.folder / 'lab'}", AMENT_PREFIX_PATH=prefix)
    launched.program.wait_until_says("Listening for topics")
    calls = world.calls("cyclone", {"service": "/recorder/get_uri", "type": "rosbag2_interfaces/srv/GetUri", "request": {}})
    assert calls[0]["reply"] == {"uri": str(world.folder / "lab")}, calls


def test_cargo_builds_what_is_not_given(tmp_path):
    # A cargo that writes down what it is asked for.
    cargo = tmp_path / "bin" / "cargo"
    cargo.parent.mkdir()
    cargo.write_text(
        f'#!/bin/sh\necho "$PWD $*" >> {tmp_path}/asked\nmkdir -p "$CARGO_TARGET_DIR/release"\n'
        f'case "$*" in *holdall-cli*) cp {HOLDALL} "$CARGO_TARGET_DIR/release/holdall";; *) : > "$CARGO_TARGET_DIR/release/libholdall_python.so";; esac\n'
    )
    cargo.chmod(0o755)
    built = colcon(tmp_path, PATH=f"{cargo.parent}:{tools()['PATH']}")
    assert built.returncode == 0, built.stdout + built.stderr
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.split()[0] for line in asked] == [str(ROOT)] * 2 and all("--release --locked" in line for line in asked)
    assert "-p holdall-cli --features zenoh,iceoryx2" in asked[0] and "-p holdall-python" in asked[1]
    assert os.access(tmp_path / "install/holdall/lib/holdall/holdall", os.X_OK)


def test_the_package_alone_is_refused_with_a_sentence(tmp_path):
    shutil.copytree(PACKAGES / "holdall", tmp_path / "holdall")
    words = ["cmake", "-S", tmp_path / "holdall", "-B", tmp_path / "build", f"-DPython3_EXECUTABLE={VENV / 'bin' / 'python'}"]
    refused = subprocess.run(list(map(str, words)), env=tools(), capture_output=True, text=True)
    assert refused.returncode != 0 and "build this package in a checkout of holdall, not alone" in " ".join(refused.stderr.split())


def command_of(installed, base, words):  # noqa: F811
    """`ros2 holdall WORDS` with this base of extensions; parses as ros2cli does."""
    _, site = installed
    script = f"import sys\n{base}\nsys.exit(main(argv={['holdall', *words]!r}))"
    env = {**environment(site), "PYTHONPATH": os.pathsep.join([str(site), *PATHS])}
    return subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)


# What ros2cli does, as far as a command of it can see.
STAND_IN = """
import argparse, types
package, command = types.ModuleType("ros2cli"), types.ModuleType("ros2cli.command")
command.CommandExtension = type("CommandExtension", (), {})
sys.modules.update({"ros2cli": package, "ros2cli.command": command})
import importlib.metadata
def main(argv):
    parser = argparse.ArgumentParser()
    (point,) = importlib.metadata.entry_points(group="ros2cli.command", name="holdall")
    extension, sub = point.load()(), parser.add_subparsers(dest="command").add_parser("holdall")
    extension.add_arguments(sub, "ros2 holdall", argv=argv)
    return extension.main(parser=parser, args=parser.parse_args(argv))
"""


@pytest.mark.parametrize("base", [
    pytest.param(STAND_IN, id="stand-in"),
    pytest.param("from ros2cli.cli import main", id="ros2cli", marks=pytest.mark.skipif(ROS2CLI is None, reason="no launch of ROS 2 can be imported: ros2cli")),
])  # fmt: skip
def test_ros2_holdall_is_the_program_with_all_its_flags(installed, world, base):  # noqa: F811
    for words in (["--version"], ["--help"], ["record", "--help"], ["info", "-v", "no such bag"], ["play", "-h"]):
        here, there = world.run(*words), command_of(installed, base, words)
        assert (there.returncode, there.stdout, there.stderr) == (here.returncode, here.stdout, here.stderr), words


def test_argparse_still_lets_a_command_take_every_word():
    # What holdall.ros2cli relies on: no word begins with the prefix, so `--help` is a word.
    parser = argparse.ArgumentParser()
    sub = parser.add_subparsers().add_parser("holdall")
    sub.prefix_chars = "\0"
    sub.add_argument("words", nargs=argparse.REMAINDER)
    assert parser.parse_args(["holdall", "--help", "-a", "--", "x"]).words == ["--help", "-a", "--", "x"]
