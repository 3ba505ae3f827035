"""holdall.launch and the launch files in examples/: run by ROS 2's own launch where it can be imported, and checked against its names everywhere.

`launch` is on no package registry: a sourced ROS 2 has it, or HOLDALL_LAUNCH_PATH has the folders of its sources (launch, launch_ros, osrf_pycommon).
"""

import ast
import contextlib
import importlib.machinery
import json
import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest
from conftest import DEADLINE_S, NODES, messages_of
from served import until
from test_python import environment, installed  # noqa: F401
from test_services import of_recorder, replies

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples/launch"
API = json.loads(Path(__file__).with_name("launch_api.json").read_text())
PATHS = [path for path in os.environ.get("HOLDALL_LAUNCH_PATH", "").split(os.pathsep) if path]
FOUND = importlib.machinery.PathFinder.find_spec("launch", [*PATHS, *sys.path])
# The package of that name on PyPI is another one.
with_launch = pytest.mark.skipif(
    FOUND is None or not Path(FOUND.origin or "").with_name("launch_service.py").exists(), reason="no launch of ROS 2 can be imported"
)


def users():
    return [ROOT / "python/holdall/launch.py", Path(__file__).with_name("launching.py"), *sorted(EXAMPLES.glob("*.py"))]


@pytest.mark.parametrize("path", users(), ids=lambda path: path.name)
def test_every_distribution_has_what_is_used_of_launch(path):
    tree = ast.parse(path.read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0].startswith("launch")]
    names = {alias.asname or alias.name: f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    assert names
    for distribution, known in API.items():
        for name in names.values():
            assert known.get(name) is not None, f"{distribution} has no {name}: scripts/launch-api.py makes the list anew"
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names]
        for call in calls:
            unknown = {keyword.arg for keyword in call.keywords if keyword.arg} - set(known[names[call.func.id]])
            assert not unknown, f"{path.name}:{call.lineno}: {names[call.func.id]} of {distribution} takes no {unknown}"


def test_the_keywords_of_launch_are_those_that_it_has():
    module = ast.parse((ROOT / "python/holdall/launch.py").read_text())
    sets = {node.targets[0].id: ast.literal_eval(node.value.args[0]) for node in module.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)}
    for known in API.values():
        process = set(known["launch.actions.ExecuteLocal"]) | set(known["launch.descriptions.Executable"])
        # `respawn_max_retries` is newer than Humble.
        assert sets["_OF_LAUNCH"] - process <= {"respawn_max_retries"}
        assert process - sets["_OF_LAUNCH"] == {"arguments", "cmd", "process_description"}


def constants(path):
    """The sets and tuples of a module, by name."""
    values = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value.args[0] if isinstance(node.value, ast.Call) and node.value.args else node.value
            if isinstance(value, (ast.Set, ast.Tuple)):
                values[node.targets[0].id] = set(map(ast.unparse, value.elts)) if node.targets[0].id.startswith("_FOUND") else set(ast.literal_eval(value))
    return values


def test_the_flags_that_select_or_have_several_words_are_those_of_the_program(world):
    names = {name: value for file in ("launch.py", "_program.py") for name, value in constants(ROOT / "python/holdall" / file).items()}
    refused = world.run("record")
    assert refused.returncode == 2
    selecting = {flag.replace("-", "_") for flag in re.findall(r"--([a-z-]+)", refused.stderr)}
    # A file may select, too; what it lacks is refused by the program.
    assert names["SELECTING"] == selecting | {"all", "topics", "profile", "params_file"}, refused.stderr
    helps = [world.run(verb, "--help").stdout for verb in ("record", "play")]
    several = {flag.replace("-", "_") for text in helps for flag in re.findall(r"^ +(?:-\w, )?--([a-z-]+) <\S+>\.\.\.$", text, re.MULTILINE)}
    # The value of a pair may have blanks.
    assert names["_SEVERAL"] == several - {"custom_data"}, several


def test_the_flags_in_the_example_for_xml_are_the_programs(world):
    root = xml.etree.ElementTree.parse(EXAMPLES / "record.launch.xml").getroot()
    (node,) = root.iter("node")
    verb, *words = node.get("args").split()
    flags = {word for word in words if word.startswith("--")}
    assert flags and all(flag in world.run(verb, "--help").stdout for flag in flags)


class Launched:
    """A launch file that runs, with what happened to its recordings."""

    def __init__(self, world, path, env, *arguments):
        command = [sys.executable, str(Path(__file__).with_name("launching.py")), str(path), *arguments]
        self.program = world.program(["env", "-i", *[f"{key}={value}" for key, value in env.items()], *command])

    def pids(self):
        """What launch has started so far."""
        return [int(pid) for line in list(self.program.lines) for pid in re.findall(r"process started with pid \[(\d+)\]", line)]

    def kill(self):
        """Ends what launch started, and would leave if it was killed."""
        for pid in self.pids():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/stat").read_text().split(") ")[1].split()[1] in (str(self.program.process.pid), "1"):
                    os.kill(pid, signal.SIGKILL)

    def wait_for(self, event, deadline_s=DEADLINE_S):
        self.program.wait_until_says(f'{{"event": "{event}"', deadline_s)
        return self.events(event)[-1]

    def events(self, name=None):
        told = [json.loads(line) for line in list(self.program.lines) if line.startswith('{"event"')]
        return [event for event in told if name in (None, event["event"])]

    def end(self, **how):
        code, text = self.program.stop(**how) if how else self.program.wait()
        assert code == 0, text
        return text


@pytest.fixture
def launch(world, installed):  # noqa: F811
    """Runs a launch file; what it has started is gone after the test."""
    launched = []

    def run(path, *arguments, **more):
        path_of_python = os.pathsep.join([str(installed[1]), *PATHS, os.environ.get("PYTHONPATH", "")])
        ros = {key: value for key, value in world.env.items() if key.startswith("ROS")}
        env = {**environment(installed[1]), **ros, "PYTHONPATH": path_of_python, "HOME": str(world.folder), **more}
        launched.append(Launched(world, EXAMPLES / path, env, *arguments))
        return launched[-1]

    yield run
    for one in launched:
        one.kill()


CHATTER = {"topic": "/chatter", "type": "std_msgs/msg/String", "rate_hz": 100, "count": None}
FLOOD = {"topic": "/flood", "type": "std_msgs/msg/UInt8MultiArray", "size": 200_000, "count": None, "hash": False}


@with_launch
def test_a_launch_file_records_the_topics_that_are_named(world, launch):
    world.talker({**CHATTER, "topic": "/other"})
    bag = world.folder / "bag"
    launched = launch("record_all.launch.py", f"uri:={bag}", "topics:=/chatter")
    assert launched.wait_for("Started")["verb"] == "Record"
    talker = world.talker({**CHATTER, "count": 50}, wait_for_subscriptions=1)
    launched.program.wait_until_says("recording /chatter")
    assert talker.done()["sent"]["/chatter"][0]["count"] == 50
    # To launch alone, which passes no SIGINT on.
    launched.program.process.send_signal(signal.SIGINT)
    ended = launched.wait_for("Ended")
    launched.end()
    assert ended["returncode"] == 0 and ended["report"]["bag"] == str(bag), ended
    assert {topic: len(messages) for topic, messages in messages_of(bag).items()} == {"/chatter": 50}
    assert ended["report"]["message_count"] == 50


@with_launch
def test_a_launch_file_gets_each_split_and_the_end(world, launch):
    world.talker(CHATTER)
    bag = world.folder / "bag"
    launched = launch("record_in_parts.launch.py", f"uri:={bag}", "seconds:=1", "stop_after:=4")
    text = launched.end()
    names = [event["event"] for event in launched.events()]
    assert names[0] == "Started" and names[-1] == "Ended", names
    files = launched.events("Ended")[0]["report"]["files"]
    splits = launched.events("Split")
    # The last one is in the report only, when it was made since the last look.
    assert [splits[0]["closed_file"], *(split["opened_file"] for split in splits)] == files and len(files) >= 3, (splits, files)
    assert f"complete: {files[0]}" in text


@with_launch
def test_a_launch_file_gets_losses_by_topic(world, launch):
    # The cache holds one of these messages at a time, and they come without a pause.
    file = world.folder / "small.launch.py"
    file.write_text((EXAMPLES / "record_in_parts.launch.py").read_text().replace("all=True,", "all=True, max_cache_size='64KiB',"))
    world.talker(FLOOD)
    launched = launch(file, f"uri:={world.folder / 'bag'}", "stop_after:=4")
    text = launched.end()
    losses, ended = launched.events("Lost"), launched.events("Ended")[0]
    assert len(losses) >= 2 and all(set(loss["topics"]) == {"/flood"} for loss in losses), losses
    assert sum(loss["lost"] for loss in losses) == losses[-1]["total"] == ended["report"]["lost"] and ended["returncode"] == 3
    assert "lost: {'/flood':" in text


@with_launch
def test_a_launch_file_gets_the_beginning_and_the_end_of_an_alarm(world, launch):
    scan = {**CHATTER, "topic": "/scan"}
    talker = world.talker({**scan, "count": 200}, {**CHATTER, "rate_hz": 20}, later=[scan])
    launched = launch(written(world.folder, uri=str(world.folder / "bag"), all=True, alarm="/scan silent 2s"))
    begin = launched.wait_for("Alarm")
    talker.process.send_signal(signal.SIGUSR1)
    until(lambda: len(launched.events("Alarm")) > 1, "the end of the alarm")
    launched.program.process.send_signal(signal.SIGINT)
    launched.end()
    first, second = launched.events("Alarm")
    assert first == begin and [one["state"] for one in (first, second)] == ["begin", "end"]
    assert all((one["kind"], one["topic"], one["text"]) == ("silent", "/scan", "/scan silent 2s") for one in (first, second)), (first, second)
    (ended,) = launched.events("Ended")
    assert [one["since_ns"] for one in ended["report"]["alarms"]["ended"]] == [first["since_ns"]] == [second["since_ns"]]


def written(folder, *, more="", **options):
    """A launch file with a recording of these options; as a line of its own: more."""
    file = folder / "own.launch.py"
    file.write_text(f"import holdall.launch\nfrom holdall.launch import Record\nfrom launch import LaunchDescription\n{more}\n"
                    f"generate_launch_description = lambda: LaunchDescription([Record(**{options!r})])\n")  # fmt: skip
    return file


@with_launch
def test_a_recorder_that_died_is_started_again_and_followed(world, launch):
    # Too long a name for a socket.
    folder = world.folder / ("long" * 20)
    folder.mkdir()
    world.talker(CHATTER)
    launched = launch(written(world.folder, topics=["/chatter"], log_cmd=True, respawn=True, respawn_delay=1.0, cwd=str(world.folder)), TMPDIR=str(folder))
    launched.wait_for("Started")
    launched.program.wait_until_says("recording /chatter")
    (pid,) = launched.pids()
    os.kill(pid, signal.SIGKILL)
    launched.program.wait_until_says("ended with code -9")
    until(lambda: len(launched.events("Started")) == 2, "a second start")
    # It is asked by its socket: launch alone gets the signal.
    launched.program.process.send_signal(signal.SIGINT)
    text = launched.end()
    first, second = launched.events("Ended")
    assert (first["returncode"], first["reports"]) == (-signal.SIGKILL, []) and second["returncode"] == 0, text
    assert len(second["reports"]) == 1 and second["report"]["bag"] != "", second
    assert "cannot be asked" not in text, text
    (socket,) = set(re.findall(r"--control-socket (\S+)/socket", text))
    assert not Path(socket).exists()


@with_launch
def test_each_bag_of_a_recorder_has_a_report_and_its_losses(world, launch):
    world.talker(FLOOD)
    first, second = world.folder / "first", world.folder / "second"
    launched = launch(written(world.folder, uri=str(first), topics=["/flood"], max_cache_size="64KiB"))
    launched.wait_for("Lost")
    replies(world.calls("cyclone", of_recorder("stop", "Stop")))
    launched.program.wait_until_says("waiting for the service record")
    replies(world.calls("cyclone", of_recorder("record", "Record", {"uri": str(second)})))
    until(lambda: any(event["total"] == event["lost"] for event in launched.events("Lost")[1:]), "losses of the second bag")
    launched.program.process.send_signal(signal.SIGINT)
    text = launched.end()
    (ended,) = launched.events("Ended")
    assert [report["bag"] for report in ended["reports"]] == [str(first), str(second)] and ended["report"] == ended["reports"][1], text
    assert sum(loss["lost"] for loss in launched.events("Lost")) == sum(report["lost"] for report in ended["reports"]), launched.events("Lost")
    assert all(f"{report['lost']} lost, {report['bag']}" in text for report in ended["reports"]), text


@with_launch
def test_a_program_that_cannot_be_asked_to_stop_gets_the_signal(world, launch):
    program = world.folder / "program"
    block = "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})"
    program.write_text(f"#!{sys.executable}\nimport signal, sys\n{block}\nprint('it runs', file=sys.stderr, flush=True)\n"
                       "print('it got', signal.sigwait({signal.SIGINT}), file=sys.stderr, flush=True)\n")  # fmt: skip
    program.chmod(0o755)
    launched = launch(written(world.folder, more="holdall.launch._ANSWER_S = 1"), HOLDALL_BIN=str(program))
    launched.program.wait_until_says("it runs")
    launched.program.process.send_signal(signal.SIGINT)
    text = launched.end()
    assert "holdall record: cannot be asked to stop (" in text and "stop ()" not in text and "it got 2" in text and launched.events("Ended")[0]["returncode"] == 0, text


@with_launch
def test_a_stop_that_is_not_answered_in_time_is_given_the_time_to_close_the_bag(world, launch):
    program = world.folder / "program"
    program.write_text(f"#!{sys.executable}\nimport json, signal, socket, sys, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGINT}})\n"
                       "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[sys.argv.index('--control-socket') + 1]); s.listen()\n"
                       "print('it runs', file=sys.stderr, flush=True)\nrequest = None\n"
                       "while request != 'stop':\n    taken = s.accept()[0]; request = json.loads(taken.makefile().readline())['request']\n"
                       "time.sleep(4); print('pending', signal.sigpending(), file=sys.stderr, flush=True)\n")  # fmt: skip
    program.chmod(0o755)
    launched = launch(written(world.folder, more="holdall.launch._ANSWER_S = 1"), HOLDALL_BIN=str(program))
    launched.program.wait_until_says("it runs")
    launched.program.process.send_signal(signal.SIGINT)
    text = launched.end()
    assert "pending set()" in text and "gets SIGINT" not in text and launched.events("Ended")[0]["returncode"] == 0, text


@with_launch
def test_a_bag_is_played_and_recorded_by_a_launch_file(world, launch):
    world.talker({**CHATTER, "count": 300}, wait_for_subscriptions=1)
    first, again = world.folder / "first", world.folder / "again"
    recorder = world.holdall("record", "--topics", "/chatter", "--max-recording-messages", "300", "-o", first)
    recorder.wait()
    launched = launch("play_and_record.launch.py", f"bag:={first}", f"uri:={again}", "rate:=4")
    launched.end()
    assert [(event["event"], event["verb"]) for event in launched.events() if event["event"] in ("Started", "Ended")] == [
        ("Started", "Record"), ("Started", "Play"), ("Ended", "Play"), ("Ended", "Record")
    ]
    assert messages_of(again)["/chatter"] == messages_of(first)["/chatter"]


@with_launch
def test_the_end_of_a_node_is_an_event_of_the_bag(world, launch):
    plan = world.folder / "plan.json"
    plan.write_text(json.dumps({"publishers": [{**CHATTER, "count": 200}], "wait_for_subscriptions": 1}))
    bag = world.folder / "bag"
    # The node's own interpreter has all packages of ROS 2.
    command = f"env -u PYTHONPATH {sys.executable} {NODES / 'talker.py'} {plan}"
    launched = launch("mark_crashes.launch.py", f"uri:={bag}", f"command:={command}", "after:=1")
    launched.wait_for("Started")
    launched.program.wait_until_says("process has finished cleanly")
    launched.program.wait_until_says("ended with 0")
    launched.program.process.send_signal(signal.SIGINT)
    launched.end()
    markers = json.loads(world.run("info", "--json", bag).stdout)["markers"]
    assert any("ended with 0" in marker["name"] for marker in markers), markers
    assert len(messages_of(bag)["/chatter"]) == 200


@with_launch
def test_a_refused_flag_ends_the_recording_with_its_sentence(launch, tmp_path):
    file = tmp_path / "wrong.launch.py"
    file.write_text("from holdall.launch import Record\nfrom launch import LaunchDescription\n"
                    "generate_launch_description = lambda: LaunchDescription([Record(uri='bag', max_bag_sise=1)])\n")  # fmt: skip
    launched = launch(file)
    text = launched.end()
    assert "--max-bag-sise" in text and [event["returncode"] for event in launched.events("Ended")] == [2], text


@with_launch
def test_a_bag_named_as_the_log_is_refused(installed):  # noqa: F811
    _, site = installed
    script = "from holdall.launch import Record\ntry:\n    Record(output='lab')\nexcept ValueError as error:\n    print(error)"
    env = {**environment(site), "PYTHONPATH": os.pathsep.join([str(site), *PATHS])}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert "the bag is uri='lab'" in done.stdout, done.stdout + done.stderr
