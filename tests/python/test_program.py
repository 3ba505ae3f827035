"""The program's verbs as functions, and recordings and playbacks that it runs."""

import datetime as dt
import os
import re
import subprocess
import sys
import time

import holdall
import pytest

QUIET = {"ROS_AUTOMATIC_DISCOVERY_RANGE": "OFF"}


@pytest.fixture(scope="module")
def bag(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "bag"
    with holdall.create(path) as out:
        for number in range(100):
            out.write("/t", "std_msgs/msg/Float64", {"data": number}, time=1_000_000_000 + number * 10_000_000)
            out.write("/u", "std_msgs/msg/String", {"data": "x"}, time=1_000_000_000 + number * 10_000_000)
    return path


def test_verbs_are_functions_with_the_same_options(bag, tmp_path):
    (report,) = holdall.check(bag)
    assert holdall.open(bag).check() == [report]
    holdall.convert(bag, tmp_path / "sqlite", storage="sqlite3", topics=["/t"])
    assert set(holdall.open(tmp_path / "sqlite").topics) == {"/t"}
    holdall.filter(bag, tmp_path / "some", where="/t: data >= 90", exclude_topics=["/u"])
    assert holdall.open(tmp_path / "some")["/t"].to_numpy("data").tolist() == list(range(90, 100))
    holdall.merge([tmp_path / "sqlite", tmp_path / "some"], tmp_path / "both")
    assert len(holdall.open(tmp_path / "both")) in (100, 110)
    holdall.export(bag, tmp_path / "csv", "csv", topics=["/t"])
    assert len((tmp_path / "csv/t.csv").read_text().splitlines()) == 101
    with pytest.raises(holdall.ProgramError, match="no ledger"):
        holdall.audit(bag)
    torn = tmp_path / "torn"
    torn.mkdir()
    content = next(bag.glob("*.mcap")).read_bytes()
    (torn / "torn_0.mcap").write_bytes(content[:-300])
    holdall.repair(torn)
    assert len(holdall.open(torn)) == 200


def test_progress_is_shown_to_a_function_or_as_a_bar(bag, tmp_path, capsys):
    seen = []
    holdall.convert(bag, tmp_path / "one", progress=lambda done, total: seen.append((done, total)))
    assert seen and seen[-1][0] == seen[-1][1] > 0 and seen == sorted(seen)
    holdall.open(bag).check(progress=lambda done, total: seen.append("check"))
    holdall.export(bag, tmp_path / "csv", "csv", progress=lambda done, total: seen.append("export"))
    with pytest.raises(holdall.ProgramError, match="no ledger"):
        holdall.open(bag).audit(progress=lambda done, total: seen.append(("audit", done, total)))
    assert {"check", "export", ("audit", 200, 200)} <= set(seen[1:])
    holdall.convert(bag, tmp_path / "two", progress=True)
    assert "convert" in capsys.readouterr().err


def test_a_function_that_raises_ends_the_verb(bag, tmp_path):
    def stop(done, total):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        holdall.convert(bag, tmp_path / "stopped", progress=stop)
    assert not (tmp_path / "stopped").exists()


def test_what_the_program_refuses_is_an_exception(bag, tmp_path):
    with pytest.raises(holdall.ProgramError, match="nope") as caught:
        holdall.convert(bag, tmp_path / "x", topics=["/nope"])
    assert caught.value.code == 2
    with pytest.raises(holdall.ProgramError):
        holdall.check(tmp_path / "none")


def test_a_playback_is_steered(bag):
    with holdall.play(bag, start_paused=True, env=QUIET) as playback:
        end = time.monotonic() + 60
        while playback.status["phase"] != "playing":
            assert playback.is_running and time.monotonic() < end, playback.log
        assert playback.request("is_paused")["paused"]
        assert playback.request("play_next")["played"] == 1
        playback.set_rate(2)
        playback.seek(0.5)
        with pytest.raises(holdall.ProgramError, match="rate"):
            playback.set_rate(-1)
    assert not playback.is_running


def test_a_recording_is_started_and_stopped(tmp_path):
    with holdall.record(tmp_path / "recorded", ["/none"], env=QUIET) as recording:
        assert recording.is_running and isinstance(recording.status, dict)
        recording.pause()
        recording.resume()
        recording.mark("here")
    assert isinstance(recording.report, dict) and recording.report
    assert isinstance(holdall.audit(tmp_path / "recorded"), dict) and holdall.open(tmp_path / "recorded").lost == {}
    with pytest.raises(holdall.ProgramError):
        holdall.record(tmp_path / "recorded", ["/none"], env=QUIET)


def test_episodes_of_a_recording_are_started_and_stopped(tmp_path):
    with holdall.record(tmp_path / "recorded", ["/none"], env=QUIET) as recording:
        with pytest.raises(holdall.ProgramError, match="no episode runs"):
            recording.stop_episode()
        recording.start_episode(task="pick cup", operator="ana")
        assert recording.status["episode"]["fields"] == {"task": "pick cup", "operator": "ana"}
        with pytest.raises(holdall.ProgramError, match="an episode runs"):
            recording.start_episode()
        recording.stop_episode("success", shift="3")
        assert recording.status["episode"] is None
        recording.start_episode(task="pour")
        recording.stop_episode(discard=True, reason="slipped")
        recording.start_episode()
    episodes = holdall.info(tmp_path / "recorded")["episodes"]
    assert [(episode["end"], episode["fields"]) for episode in episodes] == [
        ("stopped", {"task": "pick cup", "operator": "ana", "outcome": "success", "shift": "3"}),
        ("discarded", {"task": "pour", "reason": "slipped"}),
        ("stopped", {}),
    ]


@pytest.mark.parametrize(("options", "flags"), [
    ({}, "--all"),
    ({"topics": ["/a"]}, "--topics=/a"),
    ({"topics": "/a"}, "--topics=/a"),
    ({"actions": ["/a", "/b"]}, "--actions=/a --actions=/b"),
    ({"topics": ["/a"], "encrypt_to": ["age1", "age2"]}, "--topics=/a --encrypt-to=age1 --encrypt-to=age2"),
    ({"topics": {"/a": 1}.keys(), "transport": ("dds", "iceoryx2")}, "--topics=/a --transport=dds --transport=iceoryx2"),
    ({"all_services": True}, "--all-services"),
    ({"regex": "-x"}, "--regex=-x"),
    ({"all": True, "start_paused": False, "max_loss_window": 1e-5}, "--all --max-loss-window=0.00001"),
    ({"all": True, "max_bag_duration": dt.timedelta(seconds=2)}, "--all --max-bag-duration=2000000000ns"),
    ({"static_topics_path": "x"}, "--static-topics-path=x"),
    ({"profile": "robot.yaml"}, "--profile=robot.yaml"),
    ({"services": [], "max_bag_size": 5}, "--all --max-bag-size=5"),
])  # fmt: skip
def test_everything_is_recorded_only_where_nothing_is_selected(tmp_path, monkeypatch, options, flags):
    program = tmp_path / "holdall"
    program.write_text('#!/bin/sh\necho "$@" >&2\nexit 2\n')
    program.chmod(0o755)
    monkeypatch.setenv("HOLDALL_BIN", str(program))
    # Longer than the name of a socket may be.
    (tmp_path / ("long" * 20)).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("long" * 20)))
    with pytest.raises(holdall.ProgramError) as refused:
        holdall.record(**options)
    said = re.fullmatch(r"holdall: record --json (.*) --control-socket=(.*)", str(refused.value))
    assert said and said[1] == flags and len(said[2]) < 90, refused.value


def test_the_wheels_command_is_the_program():
    done = subprocess.run([sys.executable, "-m", "holdall", "--version"], capture_output=True, text=True)
    assert done.stdout.split()[:2] == ["holdall", holdall.__version__]
    env = {name: value for name, value in os.environ.items() if name != "HOLDALL_BIN"}
    done = subprocess.run([sys.executable, "-m", "holdall", "--version"], capture_output=True, text=True, env={**env, "PATH": "/nonexistent"})
    assert done.returncode == 2 and "HOLDALL_BIN" in done.stderr


LEFT = """
import sys, holdall
kept = holdall.{how}
print(kept.process.pid, flush=True)
"""


@pytest.mark.parametrize("how", ["record({path!r}, ['/nothing'], rescue_directory='')", "play({bag!r}, loop=True)"])
def test_what_still_runs_at_the_end_of_a_script_is_ended_with_a_warning(bag, tmp_path, how):
    how = how.format(path=str(tmp_path / "new"), bag=str(bag))
    environment = {**os.environ, "ROS_DOMAIN_ID": "78", "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    words = [sys.executable, "-X", "dev", "-c", LEFT.format(how=how)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    assert "ResourceWarning: holdall" in done.stderr and "still ran" in done.stderr, done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)
    if "record" in how:
        assert len(holdall.open(tmp_path / "new")) == 0 and not holdall.open(tmp_path / "new").notices


# Verbs that are no functions, with what there is instead.
NO_FUNCTION = {
    "bench": "a program of its own",
    "bridge": "serves until Ctrl-C",
    "bw": "shows live topics until Ctrl-C",
    "cat": "Bag.messages",
    "completion": "for shells",
    "contract": "holdall.check(bag, contract=FILE) judges by one",
    "control": "Recording.request, Playback.request",
    "delay": "shows live topics until Ctrl-C",
    "echo": "shows live topics until Ctrl-C",
    "help": "for terminals",
    "hz": "shows live topics until Ctrl-C",
    "list": "Bag.topics, holdall.info",
    "man": "for terminals",
    "ps": "for terminals",
    "regress": "starts software and players, each in a domain of its own",
    "serve": "serves until Ctrl-C",
    "top": "shows live topics until Ctrl-C",
    "web": "serves until Ctrl-C",
}


def test_each_verb_is_a_function_or_has_a_reason_why_not():
    shown = subprocess.run([holdall._program.program(), "--help"], capture_output=True, text=True, check=True).stdout
    commands = shown.partition("\nRecord\n")[2].partition("\nOptions:\n")[0]
    verbs = set(re.findall(r"^  ([a-z]+) ", commands, re.MULTILINE))
    functions = {verb for verb in verbs if callable(getattr(holdall, verb, None))}
    assert len(verbs) > 30 and verbs - functions == set(NO_FUNCTION), verbs
    assert functions <= set(holdall.__all__) and all(getattr(holdall, verb).__doc__ for verb in functions)


def test_verbs_report_what_the_program_does(bag, tmp_path):
    info = holdall.info(bag)
    assert info["message_count"] == len(holdall.open(bag)) == 200
    holdall.split(bag, tmp_path / "parts", max_bag_duration=0.25)
    assert len(holdall.open(tmp_path / "parts").files) == 4
    report = holdall.diff(bag, tmp_path / "parts")
    assert report["messages_in_both"] == 200
    holdall.compress(bag, tmp_path / "small", mode="file", compression="zstd")
    holdall.decompress(tmp_path / "small", tmp_path / "large")
    assert holdall.diff(tmp_path / "small", tmp_path / "large")["messages_in_both"] == 200
    assert holdall.migrate(bag, tmp_path / "kilted", distro="kilted")["message_count"] == 200
    assert holdall.plot(bag, tmp_path / "t.svg", topics="/t.data").read_text().startswith("<svg")
    (tmp_path / "note.txt").write_text("a note")
    holdall.attach(tmp_path / "large", tmp_path / "note.txt")
    assert "note.txt" in str(holdall.get(tmp_path / "large")) and holdall.get(tmp_path / "large", "note.txt") == b"a note"
    next((tmp_path / "parts").glob("metadata.yaml")).unlink()
    holdall.reindex(tmp_path / "parts")
    assert (tmp_path / "parts/metadata.yaml").exists()
    for refused in (lambda: holdall.info(tmp_path / "none"), lambda: holdall.diff(bag, tmp_path / "none"), lambda: holdall.get(bag, "none"), lambda: holdall.plot(bag, tmp_path / "x.pdf"), lambda: holdall.upload(bag, "nowhere"), lambda: holdall.decrypt(bag, tmp_path / "plain")):
        with pytest.raises(holdall.ProgramError):
            refused()


def test_live_verbs_report_what_the_program_does(bag, monkeypatch):
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    assert holdall.burst(bag, num_messages=3)["published"] == 3
    assert holdall.preflight(duration=1)["measured"]["span_s"] >= 1
