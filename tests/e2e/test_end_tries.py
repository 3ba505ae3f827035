"""Many ends of publishers over every transport: exact, or called unknown. `HOLDALL_END_TRIES=10 pytest -s` tries each way ten times and counts.

A try ends ten publishers at once, five of them best effort; the judge is each publisher's own log.
"""

import json
import os
import random
import subprocess
import sys
import time

import pytest
from conftest import DEADLINE_S, HOLDALL, NODES, Node, cdr_string, messages_of, text_of
from test_account import STRING, record
from test_ends import BEST, says_none, sent_by
from test_iceoryx2 import Shm
from test_rmw import sourced  # noqa: F401
from test_zenoh import Meeting

TRIES = int(os.environ.get("HOLDALL_END_TRIES", "1"))
TOPICS = [f"/{kind}{number}" for number in range(5) for kind in ("sure", "best")]


class Tally:
    """What the account says of each end, beside what was sent."""

    def __init__(self):
        self.counts = {"exact": 0, "unknown": 0}

    def judge(self, topic, account, numbers, sent, said, begin=1):
        """`numbers` are those of the messages in the bag from 0, `sent` is how many the publisher's log has, `begin` its first sequence number."""
        (publisher,) = account["publishers"]
        first, last = (number - begin + 1 for number in publisher.get("covered") or (begin, begin - 1))
        told = (topic, sent, account, said)
        assert len(set(numbers)) == len(numbers) == account["recorded"], told
        assert last - first + 1 == account["recorded"] + account["lost"] + account["sent_before_match"] and last <= sent, told
        assert not numbers or last > max(numbers), told
        is_unknown = publisher.get("end_unknown", False)
        assert account["ends_unknown"] == int(is_unknown), told
        assert is_unknown or last == sent, told
        self.counts["unknown" if is_unknown else "exact"] += 1

    def judge_all(self, world, logs, said, bag="bag", number=lambda message: int(text_of(message).split()[-1]), begin=1):
        audited = json.loads(world.run("audit", "--json", world.folder / bag).stdout)
        assert audited["balanced"], audited
        found = messages_of(world.folder / bag)
        before = self.counts["unknown"]
        for topic, sent in logs.items():
            if topic in audited["topics"]:
                self.judge(topic, audited["topics"][topic], [number(message) for message in found.get(topic, [])], sent, said, begin)
        assert not (self.counts["unknown"] > before and says_none(said)), said

    def done(self, way):
        print(f"\n{way}: {sum(self.counts.values())} ends, {self.counts['exact']} exact, {self.counts['unknown']} called unknown")
        assert sum(self.counts.values()) >= 8 * TRIES, self.counts


def plans(world, name, **more):
    logs = {topic: world.folder / f"{name}{topic[1:]}" for topic in TOPICS}
    plan = {"type": STRING, "count": None, "rate_hz": 50, "hash": False, **more}
    return logs, [{"topic": topic, "log": str(log), **plan, "qos": {} if "sure" in topic else BEST} for topic, log in logs.items()]


def wait_for_logs(logs, count):
    end = time.monotonic() + DEADLINE_S
    while any(not log.exists() or sent_by(log) < count for log in logs.values()):
        assert time.monotonic() < end, {topic: log.exists() and sent_by(log) for topic, log in logs.items()}
        time.sleep(0.01)


def end_talkers(world, way, tally, *options):
    for number in range(TRIES):
        name = f"bag{number}"
        logs, publishers = plans(world, name, hard_exit=True)
        recorder = record(world, "--topics", *TOPICS, *options, bag=name)
        recorder.wait_until_says("Listening")
        talker = world.talker(*publishers, hard_exit=True)
        wait_for_logs(logs, random.randint(20, 80))
        if way == "killed":
            talker.process.kill()
            talker.process.wait()
        else:
            talker.interrupt()
            talker.done()
        code, said = recorder.stop()
        assert code in (0, 3), said
        tally.judge_all(world, {topic: sent_by(log) for topic, log in logs.items()}, said, bag=name)


@pytest.mark.parametrize("way", ["killed", "farewell"])
def test_fast_dds(world, way):
    tally = Tally()
    end_talkers(world, way, tally)
    tally.done(f"Fast DDS, {way}")


@pytest.mark.parametrize("way", ["killed", "farewell"])
def test_rmw(sourced, way):  # noqa: F811
    tally = Tally()
    end_talkers(sourced, way, tally, "--transport", "rmw")
    tally.done(f"rmw, {way}")


def played_bag(world):
    """Records a bag for the player, which publishes with Cyclone DDS: how many messages each topic has, and the number of its first."""
    source = record(world, "--topics", *TOPICS, bag="source")
    source.wait_until_says("Listening")
    _, publishers = plans(world, "source", count=300)
    world.talker(*({**plan, "rate_hz": 300, "qos": {"depth": 500, **plan["qos"]}} for plan in publishers)).done()
    source.stop()
    found = messages_of(world.folder / "source").items()
    return {topic: len(messages) for topic, messages in found}, {topic: int(text_of(messages[0]).split()[-1]) for topic, messages in found}


def judge_played(world, tally, counts, first, said, bag, is_killed=False):
    """A killed player keeps no log: that its ends are not called known is all that can be judged."""
    audited = json.loads(world.run("audit", "--json", world.folder / bag).stdout)
    assert audited["balanced"], audited
    found = messages_of(world.folder / bag)
    before = tally.counts["unknown"]
    for topic, account in audited["topics"].items():
        numbers = [int(text_of(message).split()[-1]) - first[topic] for message in found.get(topic, [])]
        (publisher,) = account["publishers"]
        sent = (publisher.get("covered") or [0, 0])[1] if is_killed and publisher.get("end_unknown") else counts[topic]
        tally.judge(topic, account, numbers, sent, said)
    assert not (tally.counts["unknown"] > before and says_none(said)), said


@pytest.mark.parametrize("way", ["killed", "farewell"])
def test_cyclone(world, way):
    counts, first = played_bag(world)
    tally = Tally()
    for number in range(TRIES):
        name = f"bag{number}"
        recorder = record(world, "--topics", *TOPICS, bag=name)
        recorder.wait_until_says("Listening")
        player = world.holdall("play", world.folder / "source", "--disable-keyboard-controls", "--wait-for-all-acked", "0")
        if way == "killed":
            recorder.wait_until_says("recording /best4")
            time.sleep(random.uniform(0.1, 0.8))
            player.process.kill()
            player.process.wait()
        else:
            assert player.wait()[0] == 0
        code, said = recorder.stop()
        assert code in (0, 3), said
        judge_played(world, tally, counts, first, said, name, is_killed=way == "killed")
    tally.done(f"Cyclone DDS, {way}")


def over_a_link(world, way, sender, name):
    """Runs a sender and a recorder on a link of their own; returns what was said."""
    link = "rate=54Mb/s,down=300s@7s" if way == "link cut" else "rate=54Mb/s,loss=20%/burst=5"
    recorder = [HOLDALL, "record", "--topics", *TOPICS, "-o", world.folder / name, "--disable-keyboard-controls"]
    done = subprocess.run(
        [HOLDALL, "bench", "link", link, "--", "timeout", "-k", "20", "-s", "INT", "20", *map(str, sender), "--", "timeout", "-k", "20", "-s", "INT", "16", *map(str, recorder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
        env={**world.env, "ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET"},
    )
    return done.stdout


@pytest.mark.parametrize("way", ["link cut", "farewell over a lossy link"])
def test_cyclone_over_a_link(world, way):
    counts, first = played_bag(world)
    tally = Tally()
    for number in range(TRIES):
        # The bag has one second.
        player = [HOLDALL, "play", world.folder / "source", "--disable-keyboard-controls", "--delay", "3", "--rate", "0.1", "--wait-for-all-acked", "0"]
        said = over_a_link(world, way, player, name := f"bag{number}")
        judge_played(world, tally, counts, first, said, name)
    tally.done(f"Cyclone DDS, {way}")


@pytest.mark.parametrize("way", ["link cut", "farewell over a lossy link"])
def test_fast_dds_over_a_link(world, way):
    tally = Tally()
    for number in range(TRIES):
        name = f"bag{number}"
        logs, publishers = plans(world, name, count=random.randint(150, 250), hard_exit=True)
        (world.folder / "plan.json").write_text(json.dumps({"publishers": publishers, "hard_exit": True, "linger": way == "link cut"}))
        said = over_a_link(world, way, [sys.executable, NODES / "talker.py", world.folder / "plan.json"], name)
        tally.judge_all(world, {topic: sent_by(log) for topic, log in logs.items() if log.exists()}, said, bag=name)
    tally.done(f"Fast DDS, {way}")


@pytest.mark.parametrize("reached", ["directly", "through a router"])
@pytest.mark.parametrize("way", ["killed", "farewell", "session closed"])
def test_zenoh(world, way, reached):
    tally = Tally()
    for number in range(TRIES):
        name = f"bag{number}"
        meeting = Meeting(world)
        if reached == "directly":
            talker = meeting.host()
        else:
            meeting.host("router", node="router")
            talker = meeting.guest("client")
            meeting.configure("client")
        try:
            for topic in TOPICS:
                talker.advertise(topic, qos={"reliability": 1 if "sure" in topic else 2, "depth": 10})
            (world.folder / "control").unlink(missing_ok=True)
            recorder = record(world, "--topics", *TOPICS, "--control-socket", world.folder / "control", bag=name)
            recorder.wait_until_says("Listening")
            sent = {}
            for topic in TOPICS:
                talker.do("await_subscription", topic=topic)
                sent[topic] = random.randint(5, 60)
                talker.publish(topic, *(cdr_string(f"hello {n}") for n in range(sent[topic])))
            if way == "killed":
                talker.close()
            elif way == "session closed":
                talker.process.stdin.close()
                talker.process.wait(DEADLINE_S)
            else:
                # As rmw_zenoh does: each publisher is withdrawn before the session is closed.
                for topic in TOPICS:
                    talker.do("withdraw", topic=topic)
                talker.do("close")
            code, said = recorder.stop()
        finally:
            for node in meeting.nodes:
                node.close()
        assert code in (0, 3), said
        # pyzeros counts from 0.
        tally.judge_all(world, sent, said, bag=name, begin=0)
    tally.done(f"zenoh, {way}, {reached}")


@pytest.mark.parametrize("way", ["killed", "farewell"])
def test_iceoryx2(tmp_path, way):
    tally = Tally()
    for number in range(TRIES * 10):
        world = Shm(tmp_path / str(number)) if (tmp_path / str(number)).mkdir() is None else None
        try:
            recorder = world.record("-a")
            count = random.randint(20, 200)
            peer = world.peer("publish", "ros2://topics/t", count=count, rate_hz=1000, attributes={"ros_type": STRING}, stay=60 if way == "killed" else 0)
            peer.wait_for("done")
            if way == "killed":
                peer.process.kill()
            peer.process.wait()
            code, said = recorder.stop()
            assert code in (0, 3), said
            tally.judge_all(world, {"/t": count}, said, number=lambda message: int.from_bytes(message[:8], "little") - 1)
        finally:
            world.close()
    tally.done(f"iceoryx2, {way}")
