"""What people see on a terminal first: help, its examples, a bag, what runs, and what shells complete."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import mcap.writer
import pytest
from conftest import DEADLINE_S, HOLDALL
from screen import Screen
from test_mistakes import DATA

# Verbs whose examples need nothing but bags, and the examples that need more than this folder has.
OFFLINE = ["info", "cat", "check", "audit", "diff", "convert", "merge", "split", "filter", "migrate", "compress", "decompress", "attach", "get", "reindex", "list", "plot", "export"]
NEEDS_MORE = re.compile(
    r"png|pcd|lerobot|jq|xxd|old_sqlite_bag|robot_a|both|ros1|ros2|output_options|lab_3|lab_4|/imu:|/odom|/imu\.|/camera|/tf|/front|/scan|rsync|&&"
    r"|lab -o slow|ws/src|head|--at 30|--start 1[0-9]*|--start 60|map\.pgm|cam\.yaml|calibration|get lab run|lab_zstd -o lab$|lab_video|lab_3.mcap|promote ring|--profile lake"
)


@pytest.fixture
def bags(tmp_path):
    for name in ("lab", "lab_copy", "a", "b"):
        shutil.copytree(DATA / "mcap_split3", tmp_path / name)
    return tmp_path


def run(folder, env, *words, **how):
    return subprocess.run([os.path.abspath(HOLDALL), *words], cwd=folder, env=env, capture_output=True, text=True, timeout=DEADLINE_S, **how)


def test_examples_of_the_help_run(world, bags):
    done = 0
    (bags / "robot.yaml").write_text(run(bags, world.env, "contract", "init", "lab").stdout)
    for verb in OFFLINE:
        for line in re.findall(r"^  (holdall .*)$", run(bags, world.env, verb, "--help").stdout, re.MULTILINE):
            command = re.split(r" {2,}(?=[a-zA-Z0-9`])", line)[0]
            if NEEDS_MORE.search(line):
                continue
            words = shlex.split(command)[1:]
            for made in ("lab_parts", "imu", "fast", "new", "cut", "lab_zstd", "lab_small", "lab_file", "part", "lab_csv", "tables"):
                shutil.rmtree(bags / made, ignore_errors=True)
            told = run(bags, world.env, *words)
            # A bag of another recorder has no account.
            assert told.returncode == (2 if words[0] == "audit" else 0), (command, told.stderr)
            done += 1
    assert done >= 20


def test_a_page_of_help_and_a_wrong_one(world, bags):
    for page in ("times", "values", "qos", "loss", "markers", "triggers", "storage"):
        told = run(bags, world.env, "help", page)
        assert told.returncode == 0 and len(told.stdout.splitlines()) <= 40, page
        told = run(bags, world.env, "help", page + "s")
        assert told.returncode == 2 and f"did you mean {page}?" in told.stderr
    assert run(bags, world.env, "help", "record").stdout == run(bags, world.env, "record", "--help").stdout


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_info_is_a_screen_on_a_terminal_and_rosbag2s_lines_in_a_pipe(world, bags, terminal, columns):
    shown = terminal("info", bags / "lab", columns=columns)
    shown.wait_until_shows("/map/latched")
    shown.wait_until_shows("…" if columns == 40 else "Lost")
    screen = Screen(columns, reflows=False)
    screen.feed(shown.text)
    rows = [row.rstrip() for row in screen.rows]
    assert len(rows) < 30 and not any(screen.continues), rows
    assert any(row.startswith("State") for row in rows) and (columns == 40 or any("Hz" in row for row in rows)), rows
    piped = run(bags, world.env, "info", "lab")
    assert piped.stdout == run(bags, world.env, "info", "--ros", "lab").stdout
    assert "Topic: /chatter | Type: std_msgs/msg/String | Count: 26 | Serialization Format: cdr" in piped.stdout
    whole = terminal("info", "--ros", bags / "lab")
    whole.wait_until_shows("Lost messages:")
    assert "Topic information: Topic: /chatter" in whole.text


def test_errors_have_a_colour_on_a_terminal_only(world, bags, terminal):
    shown = terminal("info", "nowhere")
    shown.wait_until_shows("cannot open nowhere")
    assert "\x1b[1m\x1b[31mholdall:" in shown.text.replace("\x1b[31m\x1b[1m", "\x1b[1m\x1b[31m"), repr(shown.text)
    assert "\x1b" not in run(bags, world.env, "info", "nowhere").stderr
    world.env["NO_COLOR"] = "1"
    plain = terminal("info", "nowhere")
    plain.wait_until_shows("cannot open nowhere")
    assert "\x1b[31m" not in plain.text


@pytest.fixture
def runtime():
    # The path of a socket is short.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_what_runs_is_listed_and_controlled_without_a_path(world, tmp_path, runtime):
    world.env["XDG_RUNTIME_DIR"] = world.env["TMPDIR"] = str(runtime)
    assert "no recording or playback" in run(tmp_path, world.env, "ps").stdout
    bag = world.folder / "bag"
    recorder = world.holdall("record", "-a", "-o", bag)
    recorder.wait_until_says("Listening")
    (one,) = [json.loads(line) for line in run(tmp_path, world.env, "ps", "--json").stdout.splitlines()]
    assert (one["kind"], one["state"], one["status"]["bag"]) == ("recording", "recording", str(bag))
    assert str(bag) in run(tmp_path, world.env, "ps").stdout
    assert json.loads(run(tmp_path, world.env, "control", "pause").stdout)["ok"] is True
    assert json.loads(run(tmp_path, world.env, "ps", "--json").stdout)["state"] == "paused"
    second = world.holdall("record", "-a", "-o", world.folder / "second")
    second.wait_until_says("Listening")
    told = run(tmp_path, world.env, "control", "pause")
    assert told.returncode == 2 and "2 recordings and playbacks run" in told.stderr and one["socket"] in told.stderr
    assert json.loads(run(tmp_path, world.env, "control", one["socket"], "resume").stdout)["ok"] is True
    second.stop()
    recorder.stop()
    # Killed: the socket stays, the process does not.
    (runtime / "holdall").mkdir(mode=0o700, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(runtime / "holdall" / "recording-4194305.sock"))
    told = run(tmp_path, world.env, "ps", "--json")
    assert json.loads(told.stdout)["state"].startswith("dead")


def completed(world, folder, line):
    """What bash offers at the end of a line."""
    script = run(folder, world.env, "completion", "bash").stdout
    words = line.split(" ")
    quoted = " ".join(shlex.quote(word) for word in words)
    asked = f"{script}\nCOMP_WORDS=({quoted})\nCOMP_CWORD={len(words) - 1}\n_holdall_topics holdall {shlex.quote(words[-1])} {shlex.quote(words[-2])}\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
    env = {**world.env, "PATH": f"{folder}/bin:{world.env['PATH']}"}
    (folder / "bin").mkdir(exist_ok=True)
    if not (folder / "bin/holdall").exists():
        (folder / "bin/holdall").symlink_to(os.path.abspath(HOLDALL))
    return subprocess.run(["bash", "-c", asked], cwd=folder, env=env, capture_output=True, text=True, timeout=DEADLINE_S).stdout.split()


def test_shells_complete_topics_of_the_bag_and_of_the_live_graph(world, bags):
    assert completed(world, bags, "holdall cat lab -t /i") == ["/imu/data"]
    assert set(completed(world, bags, "holdall filter lab --topics ")) == {"/chatter", "/empty/never_published", "/imu/data", "/map/latched"}
    assert "--json" in completed(world, bags, "holdall cat lab --js")
    talker = world.talker({"topic": "/live/talker", "type": "std_msgs/msg/String", "rate_hz": 10})
    assert completed(world, bags, "holdall echo /live") == ["/live/talker"]
    talker.interrupt()
    for shell, word in (("zsh", "TOPIC:_holdall_topics"), ("fish", "-l topics -r -f -a '(holdall completion --words")):
        assert word in run(bags, world.env, "completion", shell).stdout, shell


def test_names_in_a_bag_of_others_are_never_run_by_the_shell_that_completes_them(world, tmp_path):
    planted = ["/a`touch${IFS}run`", "/b$(touch${IFS}run)", "/*", "/with space", "/fine"]
    with open(tmp_path / "evil.mcap", "wb") as file:
        writer = mcap.writer.Writer(file)
        writer.start()
        schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"string data")
        for topic in planted:
            channel = writer.register_channel(topic, "cdr", schema)
            writer.add_message(channel, 1, b"\0\1\0\0\1\0\0\0\0", 1)
        writer.finish()
    assert completed(world, tmp_path, "holdall cat evil.mcap -t /") == ["/fine"]
    assert not list(tmp_path.rglob("run"))


def test_a_recording_is_found_from_another_environment_and_one_that_is_stopped_holds_up_nobody(world, tmp_path, runtime):
    """As started by a service, without a session: no XDG_RUNTIME_DIR."""
    world.env["TMPDIR"] = str(runtime)
    world.env.pop("XDG_RUNTIME_DIR", None)
    recorder = world.holdall("record", "-a", "-o", world.folder / "bag")
    recorder.wait_until_says("Listening")
    session = tmp_path / "session"
    session.mkdir(mode=0o700)
    env = dict(world.env, XDG_RUNTIME_DIR=str(session))
    assert json.loads(run(tmp_path, env, "ps", "--json").stdout)["state"] == "recording"
    os.kill(recorder.process.pid, signal.SIGSTOP)
    begin = time.monotonic()
    state = json.loads(run(tmp_path, env, "ps", "--json").stdout)["state"]
    took = time.monotonic() - begin
    os.kill(recorder.process.pid, signal.SIGCONT)
    assert state == "no answer: it may be stopped" and took < 20, took
    refused = run(tmp_path, env, "control", "stop", str(runtime / f"holdall-{os.getuid()}" / f"recording-{recorder.process.pid}.sock"))
    assert refused.returncode == 2 and "comes first" in refused.stderr, refused.stderr
    assert json.loads(run(tmp_path, env, "control", "stop").stdout)["ok"] is True
    recorder.process.wait(60)


def test_the_screen_calls_nothing_complete_that_was_not_heard(world, terminal):
    """A best-effort publisher and a reliable subscription never match."""
    talker = world.talker({"topic": "/sensor", "type": "std_msgs/msg/String", "rate_hz": 20, "qos": {"reliability": "best_effort"}})
    bag = world.folder / "bag"
    (world.folder / "qos.yaml").write_text("/sensor: {reliability: reliable}\n")
    recorder = world.holdall("record", "--topics", "/sensor", "--qos-profile-overrides-path", world.folder / "qos.yaml", "-o", bag)
    recorder.wait_until_says("Listening")
    recorder.wait_until_says("/sensor")
    recorder.stop()
    talker.interrupt()
    shown = run(world.folder, world.env, "info", bag).stdout
    assert "Not heard" in shown
    screen = terminal("info", bag)
    screen.wait_until_shows("Not heard")
    assert "every message that was sent" not in screen.text
