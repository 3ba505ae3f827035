"""What a publisher sent last is known, or named as unknown: links that are cut, publishers that are killed, best effort. The judge is the publisher's own log."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import HOLDALL, Node, suspend
from test_account import BYTES, STRING, audit, record, wait_for_status, wait_until_received, wait_until_sent

NODES = Path(__file__).parent.parent / "nodes"
BEST = {"reliability": "best_effort", "depth": 10}


def sent_by(log):
    return log.stat().st_size // 16


def check(account, sent):
    """A publisher's account has all that it sent, or says that its end is not known. Returns the publisher's part."""
    (publisher,) = account["publishers"]
    first, last = publisher["covered"] if publisher.get("covered") else (1, 0)
    assert last - first + 1 == account["recorded"] + account["lost"] + account["sent_before_match"], account
    assert last <= sent, (account, sent)
    assert last == sent or publisher.get("end_unknown"), (account, sent)
    assert account["ends_unknown"] == int(publisher.get("end_unknown", False)), account
    return publisher


def says_none(said):
    return any(line.strip() == "lost: none" for line in said.splitlines())


def test_the_last_messages_of_a_best_effort_flood_are_counted_or_called_unknown(world):
    """A recorder that cannot read for a while loses the end: nothing announces what a best-effort publisher has sent."""
    log = world.folder / "log"
    plan = {"topic": "/cam", "type": BYTES, "size": 4_000_000, "count": 60, "rate_hz": 30, "hash": False, "qos": BEST, "log": str(log)}
    recorder = record(world, "--topics", "/cam", "--control-socket", world.folder / "c")
    recorder.wait_until_says("Listening")
    talker = world.talker(plan, linger=True)
    wait_until_received(world, world.folder / "c", "/cam", 5)
    suspend(recorder.process)
    wait_until_sent(log, 60)
    talker.wait_for("done")
    recorder.process.send_signal(signal.SIGCONT)
    code, said = recorder.stop()
    talker.interrupt()
    audited, told = audit(world)
    assert told["balanced"], told
    check(told["topics"]["/cam"], 60)
    assert not (says_none(said) and told["topics"]["/cam"]["recorded"] < 60), said


@pytest.mark.parametrize("waits", ["not", "for the lease"])
def test_a_publisher_that_is_killed_is_never_called_complete(world, waits):
    logs = {"/sure": world.folder / "sure", "/best": world.folder / "best"}
    plans = [{"topic": topic, "type": STRING, "count": None, "rate_hz": 50, "hash": False, "log": str(log)} for topic, log in logs.items()]
    plans[1]["qos"] = BEST
    recorder = record(world, "--topics", "/sure", "/best", "--control-socket", world.folder / "c")
    recorder.wait_until_says("Listening")
    talker = world.talker(*plans)
    for topic in logs:
        wait_until_received(world, world.folder / "c", topic, 30)
    talker.process.kill()
    talker.process.wait()
    if waits != "not":
        # Fast DDS's lease is 20 s.
        recorder.wait_until_says("went silent without a farewell")
        status = wait_for_status(world, "c", lambda status: status["end_unknown"]["silent"] == 2)
        assert {topic: row["end_unknown"]["silent"] for topic, row in status["topics"].items()} == {"/sure": 1, "/best": 1}
    code, said = recorder.stop()
    audited, told = audit(world)
    assert told["balanced"], told
    for topic, log in logs.items():
        # The log is ahead of the network by what was not sent yet when the process died.
        publisher = check(told["topics"][topic], sent_by(log))
        # Before the lease ends only the one that can be asked is known to be silent.
        is_silent = topic == "/sure" or waits != "not"
        assert publisher["end_unknown"] and ("silent_since" in publisher) == is_silent, (publisher, said)
    # The reliable one should have been complete.
    assert code == 3 and "end unknown: " in said and not says_none(said), said


def test_publishers_that_live_or_say_farewell_are_complete(world):
    plan = {"type": STRING, "count": None, "rate_hz": 50, "hash": False}
    logs = {topic: world.folder / topic[1:] for topic in ("/sure", "/best", "/gone")}
    control = world.folder / "c"
    recorder = record(world, "--topics", *logs, "/latched", "--control-socket", control)
    recorder.wait_until_says("Listening")
    latched = {"topic": "/latched", "type": STRING, "count": 1, "qos": {"depth": 1, "durability": "transient_local"}}
    gone = world.talker({"topic": "/gone", "log": str(logs["/gone"]), **plan}, node="gone")
    talker = world.talker(
        {"topic": "/sure", "log": str(logs["/sure"]), **plan}, {"topic": "/best", "log": str(logs["/best"]), "qos": BEST, **plan}, latched, linger=True
    )
    for topic in logs:
        wait_until_received(world, control, topic, 20)
    gone.interrupt()
    gone.done()
    code, said = recorder.stop()
    talker.interrupt()
    talker.done()
    audited, told = audit(world)
    assert told["balanced"] and (code, audited) == (0, 0), (told, said)
    for topic, row in told["topics"].items():
        assert row["ends_unknown"] == 0, (topic, row, said)
    # The stop came in the middle of the others.
    assert check(told["topics"]["/gone"], sent_by(logs["/gone"]))["covered"][1] == sent_by(logs["/gone"])
    assert says_none(said), said


def test_a_best_effort_publisher_that_ends_is_a_calm_line_and_no_failure(world):
    log = world.folder / "log"
    control = world.folder / "c"
    recorder = record(world, "--topics", "/best", "--control-socket", control)
    recorder.wait_until_says("Listening")
    talker = world.talker({"topic": "/best", "type": STRING, "count": 50, "rate_hz": 50, "hash": False, "qos": BEST, "log": str(log)})
    talker.done()
    wait_until_received(world, control, "/best", 40)
    code, said = recorder.stop()
    audited, told = audit(world)
    publisher = check(told["topics"]["/best"], 50)
    assert publisher["end_unknown"] and "silent_since" not in publisher, publisher
    assert code == 0, said
    assert "end not confirmed: 1 publisher (/best)" in said and "lost: none known" in said and not says_none(said), said


def test_a_publisher_that_does_not_answer_at_the_end_is_not_complete(world):
    log = world.folder / "log"
    control = world.folder / "c"
    recorder = record(world, "--topics", "/sure", "--control-socket", control)
    recorder.wait_until_says("Listening")
    talker = world.talker({"topic": "/sure", "type": STRING, "count": None, "rate_hz": 50, "hash": False, "log": str(log)})
    wait_until_received(world, control, "/sure", 20)
    suspend(talker.process)
    try:
        code, said = recorder.stop()
    finally:
        talker.process.send_signal(signal.SIGCONT)
    audited, told = audit(world)
    publisher = check(told["topics"]["/sure"], sent_by(log))
    assert publisher["end_unknown"] and publisher["silent_since"] > 0 and code == 3, (publisher, said)
    assert "end unknown: 1 publisher (/sure), silent since " in said, said


def test_the_warning_counts_from_the_last_message_as_the_account_does(world):
    """A publisher that has sent nothing for a while and then does not answer: its participant gave signs of life in between, which prove nothing."""
    log = world.folder / "log"
    recorder = record(world, "--topics", "/sure", "--control-socket", world.folder / "c")
    recorder.wait_until_says("Listening")
    talker = world.talker({"topic": "/sure", "type": STRING, "count": 30, "rate_hz": 50, "hash": False, "log": str(log)}, linger=True)
    talker.wait_for("done")
    wait_until_received(world, world.folder / "c", "/sure", 30)
    sent_last = log.stat().st_mtime
    wait_for_status(world, "c", lambda _: time.time() > sent_last + 4)
    suspend(talker.process)
    stopped = time.time()
    try:
        code, said = recorder.stop()
    finally:
        talker.process.send_signal(signal.SIGCONT)
    _, audited = audit(world)
    publisher = check(audited["topics"]["/sure"], 30)
    assert code == 3 and abs(publisher["silent_since"] / 1e9 - sent_last) < 1, (publisher, sent_last, said)
    (seconds,) = re.findall(r"did not answer at the end; what was sent in the last ([0-9.]+) s is not known", said)
    assert float(seconds) > stopped - sent_last - 0.5, said


@pytest.mark.parametrize("until", ["soon", "after the lease"])
def test_a_link_that_is_cut_before_the_end_is_not_called_complete(world, until):
    """Two programs on a link of their own; it goes down and stays so. 50 Hz each, reliable and best effort."""
    logs = {"/re": world.folder / "re", "/be": world.folder / "be"}
    plan = {"type": STRING, "count": 40 * 50, "rate_hz": 50, "hash": False, "hard_exit": True}
    plans = [{"topic": topic, "log": str(log), **plan, "qos": {} if topic == "/re" else BEST} for topic, log in logs.items()]
    (world.folder / "plan.json").write_text(json.dumps({"publishers": plans}))
    seconds = 14 if until == "soon" else 36
    talker = ["timeout", "-k", "20", "-s", "INT", str(seconds + 6), sys.executable, NODES / "talker.py", world.folder / "plan.json"]
    recorder = [HOLDALL, "record", "--topics", *logs, "-o", world.folder / "bag", "--disable-keyboard-controls", "-d", "3600"]
    recorder = ["timeout", "-k", "20", "-s", "INT", str(seconds), *recorder]
    env = {**world.env, "ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET"}
    done = subprocess.run(
        [HOLDALL, "bench", "link", "rate=54Mb/s,down=300s@7s", "--", *map(str, talker), "--", *map(str, recorder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
        env=env,
    )
    audited, told = audit(world)
    for topic, log in logs.items():
        publisher = check(told["topics"][topic], sent_by(log))
        assert told["topics"][topic]["recorded"] < sent_by(log), "the link was not cut"
        is_silent = topic == "/re" or until != "soon"
        assert publisher["end_unknown"] and ("silent_since" in publisher) == is_silent, (publisher, done.stdout)
    assert "end unknown: " in done.stdout and not says_none(done.stdout), done.stdout
    assert ("went silent without a farewell" in done.stdout) == (until != "soon"), done.stdout
