"""A terminal that goes away, stops or changes its size while the program runs on it."""

import os
import signal

import pytest
from conftest import DEADLINE_S, messages_of, text_of
from test_play import write_with_pip_mcap

STRING = "std_msgs/msg/String"

sighup = pytest.mark.parametrize("ignored", [(), (signal.SIGHUP,)], ids=["sighup", "nohup"])


def publish(world, topic, count=50):
    """Publishes to all current subscriptions; returns when all is sent."""
    talker = world.talker(
        {"topic": topic, "type": STRING, "count": count, "rate_hz": 100, "qos": {"depth": count, "durability": "transient_local"}},
        wait_for_subscriptions=1,
    )
    return talker.done()


@sighup
def test_a_recording_outlives_its_terminal(world, terminal, ignored):
    bag = world.folder / "bag"
    screen = terminal("record", "-a", "-o", bag, ignored=ignored)
    screen.wait_until_shows("recording")
    publish(world, "/before")
    screen.hang_up()
    if ignored:
        # The log has a line for the new topic, and the status lines are drawn again and again.
        publish(world, "/after")
        screen.interrupt()
    assert screen.exit_code() == 0
    assert world.run("check", bag).returncode == 0
    got = messages_of(bag)
    for topic in ["/before", "/after"] if ignored else ["/before"]:
        assert [text_of(message) for message in got[topic]] == [f"hello {n}" for n in range(50)]


def test_a_stopped_terminal_does_not_hold_up_the_recording(world, terminal):
    bag = world.folder / "bag"
    screen = terminal("record", "-a", "-o", bag)
    screen.wait_until_shows("recording")
    screen.type("\x13")  # Ctrl-S: every write to the terminal waits from now on.
    publish(world, "/t")
    screen.interrupt()
    assert screen.exit_code() == 0
    assert world.run("check", bag).returncode == 0
    assert len(messages_of(bag)["/t"]) == 50


@sighup
def test_a_playback_ends_without_its_terminal(world, terminal, ignored):
    bag = world.folder / "bag.mcap"
    write_with_pip_mcap(bag, {"/t": [(1_700_000_000_000_000_000 + n * 10_000_000, f"hello {n}") for n in range(50)]})
    screen = terminal("play", "-l", bag, ignored=ignored)
    screen.wait_until_shows("messages published")
    screen.hang_up()
    if ignored:
        listener = world.listener({"topic": "/t", "type": STRING}, expect={"/t": 100})
        assert listener.done()["received"]["/t"]["count"] >= 100
        screen.interrupt()
    assert screen.exit_code() == 0
