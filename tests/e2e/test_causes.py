"""A recorder or a publisher that was stopped: the cause that is named is the true one, and nothing is missing or twice by the publisher's own count."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time

import pytest
from conftest import HOLDALL, Program, messages_of
from served import until

STRING = "std_msgs/msg/String"


def recorded(world):
    return json.loads(world.run("control", world.folder / "socket", "status").stdout)["status"]["recorded"]


def record(world, *arguments, program=(HOLDALL,)):
    words = ["record", "--topics", "/tick", "-o", world.folder / "bag", "--control-socket", world.folder / "socket", "--disable-keyboard-controls"]
    recorder = world._keep(Program([*words, *arguments], world.env, program=program))
    recorder.wait_until_says("Listening")
    return recorder


def pause(process, seconds):
    process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    process.send_signal(signal.SIGCONT)


def ended(world, recorder, talker):
    """Sent, recorded, lost; exit code and all that was said."""
    talker.interrupt()
    sent = talker.done()["sent"]["/tick"][0]["count"]
    code, said = recorder.stop()
    info = world.info(world.folder / "bag")
    return sent, len(messages_of(world.folder / "bag")["/tick"]), info["lost"], code, said


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs setpriv and root, to have an ordinary user's buffers")
def test_what_a_stopped_recorder_misses_is_no_fault_of_the_disk_or_the_buffers(world):
    small = ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", HOLDALL)
    recorder = record(world, "--max-loss-window", "1", program=small)
    plan = {"topic": "/tick", "type": STRING, "count": None, "rate_hz": 300, "size": 20_000, "qos": {"reliability": "best_effort"}}
    talker = world.talker(plan, wait_for_subscriptions=1)
    talker.wait_for("matched")
    until(lambda: recorded(world) > 100, "messages")
    pause(recorder.process, 4)
    recorder.wait_until_says("messages lost so far")
    sent, got, lost, code, said = ended(world, recorder, talker)
    assert code == 3 and sent == got + lost and lost > 100, (sent, got, lost, said)
    (span,) = re.findall(r"/tick: \d+ messages lost so far: sent while this program did not run for ([\d.]+) s", said)
    assert 3.5 < float(span) < 30, said
    assert "rmem_max)" not in said and "the disk" not in said, said
    (late,) = re.findall(r"loss window.*", said)
    assert "this program did not run for" in late, said
    # The bag says so, too, at the moment when it went on.
    (marked,) = [marker for marker in world.info(world.folder / "bag")["markers"] if "did not run" in marker["name"]]
    assert marked["name"].startswith("this program did not run for ") and abs(float(re.findall(r"[\d.]+", marked["name"])[0]) - float(span)) < 0.6, marked
    words = shlex.join([HOLDALL, "info", str(world.folder / "bag")])
    shown = subprocess.run(["script", "-qec", words, "/dev/null"], env=world.env, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    assert "the recorder did not run" in " ".join(shown.split("Next", 1)[1].split()), shown
    lost_messages_have_send_times_and_a_cut_has_its_own_losses(world)


def lost_messages_have_send_times_and_a_cut_has_its_own_losses(world):
    """The account says when the lost messages were sent, by the publisher's clock; a part of the bag has the losses of that part."""
    audit = json.loads(world.run("audit", "--json", world.folder / "bag").stdout)
    lost = [one for publisher in audit["topics"]["/tick"]["publishers"] for one in publisher["intervals"] if one["stage"] == "transport"]
    most = max(lost, key=lambda one: one["count"])
    # At 300 Hz, by the number of those that are missing: not the moment at which they were missed.
    assert abs((most["sent_before"] - most["sent_after"]) / 1e9 * 300 - most["count"]) < 0.2 * most["count"] + 60, most
    text = world.run("audit", world.folder / "bag").stdout
    assert "Lost between" in text and re.search(r"\+\d+\.\d{3} and \+\d+\.\d{3} s", text), text
    begin = world.info(world.folder / "bag")["starting_time"]["nanoseconds_since_epoch"]
    before = min(one["first_time"] for one in lost) - begin
    cut = world.folder / "cut"
    world.run("filter", world.folder / "bag", "-o", cut, "--end", f"{before / 2e9:.6f}")
    assert world.info(cut)["lost"] == 0 and not world.info(cut).get("markers")
    assert world.run("audit", cut).returncode == 0
    rest = world.folder / "rest"
    world.run("filter", world.folder / "bag", "-o", rest, "--start", f"{before / 2e9:.6f}")
    assert world.info(rest)["lost"] == world.info(world.folder / "bag")["lost"]


@pytest.mark.parametrize("reliability", ["reliable", "best_effort"])
def test_a_publisher_that_was_stopped_is_whole(world, reliability):
    recorder = record(world)
    plan = {"topic": "/tick", "type": STRING, "count": None, "rate_hz": 50, "qos": {"reliability": reliability, "depth": 1000}}
    talker = world.talker(plan, wait_for_subscriptions=1)
    talker.wait_for("matched")
    until(lambda: recorded(world) > 50, "messages")
    pause(talker.process, 5)
    before = recorded(world)
    until(lambda: recorded(world) > before + 100, "messages after the stop")
    sent, got, lost, code, said = ended(world, recorder, talker)
    assert (got, lost, code) == (sent, 0, 0), (sent, got, lost, said)
    assert "silent" not in said, said


def test_a_publisher_that_is_stopped_for_longer_than_its_lease_is_named_and_counted(world):
    recorder = record(world)
    plan = {"topic": "/tick", "type": STRING, "count": None, "rate_hz": 50, "qos": {"depth": 1000}}
    talker = world.talker(plan, wait_for_subscriptions=1)
    talker.wait_for("matched")
    until(lambda: recorded(world) > 50, "messages")
    talker.process.send_signal(signal.SIGSTOP)
    recorder.wait_until_says("went silent without a farewell")
    talker.process.send_signal(signal.SIGCONT)
    before = recorded(world)
    until(lambda: recorded(world) > before + 100, "messages after the stop")
    sent, got, lost, code, said = ended(world, recorder, talker)
    account = json.loads(world.run("audit", "--json", world.folder / "bag").stdout)["topics"]["/tick"]
    assert got + lost + account["sent_before_match"] == sent, (sent, got, lost, account, said)
    # What was due meanwhile it sends at once when it runs again: before it is found, or after.
    assert len(account["publishers"]) == 1 and got > before + 100, account


def test_the_end_of_a_publisher_that_is_stopped_is_not_known(world):
    recorder = record(world)
    plan = {"topic": "/tick", "type": STRING, "count": None, "rate_hz": 50, "qos": {"depth": 1000}}
    talker = world.talker(plan, wait_for_subscriptions=1)
    talker.wait_for("matched")
    until(lambda: recorded(world) > 50, "messages")
    talker.process.send_signal(signal.SIGSTOP)
    code, said = recorder.stop()
    talker.process.send_signal(signal.SIGCONT)
    info = world.info(world.folder / "bag")
    assert code == 3 and "did not answer at the end" in said and "end unknown: 1 publisher" in said, said
    assert info["state"] == "end unknown" and not re.search(r"lost: none$", said, re.M), (info["state"], said)
