"""A publisher that is killed over zenoh, rmw or iceoryx2 is named while the recording runs, with its last sign of life; one that ends properly is not."""

import time

import pytest
from conftest import cdr_string
from test_account import STRING, audit, record, wait_for_status, wait_until_received
from test_ends import BEST, check, says_none, sent_by
from test_iceoryx2 import needs_iceoryx2, shm  # noqa: F401
from test_rmw import sourced  # noqa: F401
from test_zenoh import meeting, program_with_zenoh  # noqa: F401

WARNING = "went silent without a farewell"


@pytest.mark.parametrize("reached", ["directly", "through a router"])
@pytest.mark.parametrize("way", ["killed", "withdrawn", "closed"])
def test_zenoh(meeting, way, reached):  # noqa: F811
    topics = {"/sure": True, "/best": False}
    if reached == "directly":
        talker = meeting.host()
    else:
        # A router passes the end of a session on as if each of its publishers had been withdrawn.
        meeting.host("router", node="router")
        talker = meeting.guest("client")
        meeting.configure("client")
    for topic, is_reliable in topics.items():
        talker.advertise(topic, qos={"reliability": 1 if is_reliable else 2, "depth": 100})
    recorder = meeting.record("--topics", *topics)
    for topic in topics:
        talker.do("await_subscription", topic=topic)
        talker.publish(topic, *(cdr_string(f"hello {n}") for n in range(20)))
        meeting.await_received(topic, 20)
    before = time.time()
    # rmw_zenoh withdraws its publishers before it closes: a session that does not has said no farewell.
    is_silent = way != "withdrawn"
    if is_silent:
        talker.close() if way == "killed" else talker.do("close")
        recorder.wait_until_says(WARNING)
        meeting.await_status(lambda status: status["end_unknown"]["silent"] == 2)
    else:
        for topic in topics:
            talker.do("withdraw", topic=topic)
        # Longer than the recorder waits for what says that it was no farewell.
        decided = time.monotonic() + 2
        meeting.await_status(lambda status: status["end_unknown"]["silent"] > 0 or time.monotonic() > decided)
    code, said = recorder.stop()
    # pyzeros counts from 0.
    audited, told = audit(meeting.world)
    for topic in topics:
        (publisher,) = told["topics"][topic]["publishers"]
        assert publisher["covered"] == [0, 19] and told["topics"][topic]["recorded"] == 20, told
        assert publisher["end_unknown"] and ("silent_since" in publisher) == is_silent, (publisher, said)
        if is_silent:
            assert before - 60 < publisher["silent_since"] / 1e9 < time.time(), (publisher, before)
    assert not says_none(said) and (WARNING in said) == is_silent, said
    assert ("end unknown: " in said) == is_silent and code == (3 if is_silent else 0), said


@pytest.mark.parametrize("way", ["killed", "ended"])
def test_rmw(sourced, way):  # noqa: F811
    """A node of a DDS says in ros_discovery_info which publishers it takes away; a lease that ends says nothing."""
    world = sourced
    control = world.folder / "c"
    logs = {topic: world.folder / topic[1:] for topic in ("/sure", "/best")}
    plan = {"type": STRING, "count": None, "rate_hz": 50, "hash": False}
    plans = [{"topic": topic, "log": str(log), **plan, "qos": {} if topic == "/sure" else BEST} for topic, log in logs.items()]
    recorder = record(world, "--topics", *logs, "/stays", "--transport", "rmw", "--control-socket", control)
    recorder.wait_until_says("Listening")
    talker = world.talker(*plans)
    stays = world.talker({"topic": "/stays", **plan}, node="stays")
    for topic in (*logs, "/stays"):
        wait_until_received(world, control, topic, 20)
    before = time.time()
    if way == "killed":
        talker.process.kill()
        talker.process.wait()
        # Fast DDS's lease is 20 s.
        recorder.wait_until_says(WARNING)
        wait_for_status(world, "c", lambda status: status["end_unknown"]["silent"] == 2)
    else:
        talker.interrupt()
        talker.done()
        # Longer than the recorder waits for the farewell.
        wait_until_received(world, control, "/stays", 100 + wait_for_status(world, "c", lambda _: True)["topics"]["/stays"]["received"])
    code, said = recorder.stop()
    stays.interrupt()
    _, told = audit(world)
    for topic, log in logs.items():
        publisher = check(told["topics"][topic], sent_by(log))
        assert publisher["end_unknown"] and ("silent_since" in publisher) == (way == "killed"), (publisher, said)
        if way == "killed":
            assert before - 2 < publisher["silent_since"] / 1e9 < before + 2, (publisher, before)
    assert not says_none(said) and (WARNING in said) == ("end unknown: " in said) == (way == "killed"), said
    assert code == (3 if way == "killed" else 0), said


@pytest.mark.parametrize("way", ["killed", "ended"])
def test_iceoryx2(shm, way):  # noqa: F811
    recorder = shm.record("-a", "--control-socket", shm.folder / "c")
    peer = shm.peer("publish", "ros2://topics/t", count=50, rate_hz=200, attributes={"ros_type": STRING}, stay=60 if way == "killed" else 0)
    peer.wait_for("done")
    before = time.time()
    if way == "killed":
        peer.process.kill()
        recorder.wait_until_says(WARNING)
        wait_for_status(shm, "c", lambda status: status["end_unknown"]["silent"] == 1)
    peer.process.wait()
    code, said = recorder.stop()
    audited, told = audit(shm)
    publisher = check(told["topics"]["/t"], 50)
    assert publisher["covered"] == [1, 50] and ("silent_since" in publisher) == (way == "killed"), (publisher, said)
    if way == "killed":
        # The node is looked at ten times a second.
        assert before - 1 < publisher["silent_since"] / 1e9 < before + 1, (publisher, before)
    assert (WARNING in said) == ("end unknown: " in said) == (way == "killed"), said
    # Services of iceoryx2 promise no delivery.
    assert code == 0 and says_none(said) == (way == "ended"), said
