"""A terminal that goes away, stops or changes its size while the program runs on it."""

import json
import os
import re
import signal
import time

import pytest
from conftest import DEADLINE_S, messages_of, text_of
from screen import Screen
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


def test_the_key_e_starts_and_stops_episodes(world, terminal):
    bag = world.folder / "bag"
    screen = terminal("record", "-a", "-o", bag)
    screen.wait_until_shows("e episode")
    publish(world, "/before")
    screen.type("e")
    screen.wait_until_shows("episode starts")
    publish(world, "/during", 30)
    screen.type("e")
    screen.wait_until_shows("episode stops")
    publish(world, "/after")
    # The last one ends with the recording. A signal overtakes a key that waits in the terminal.
    shown = len(screen.text)
    screen.type("E")
    screen.wait_until_shows("episode starts", after=shown)
    screen.interrupt()
    assert screen.wait() == 0, screen.text
    first, second = world.info(bag)["episodes"]
    assert [(one["end"], one["fields"]) for one in (first, second)] == [("stopped", {})] * 2
    lines = map(json.loads, world.run("cat", "--json", bag, "--topics", "/before", "/during", "/after").stdout.splitlines())
    inside = [line["topic"] for line in lines if first["start_ns"] <= line["log_time"] <= first["end_ns"]]
    assert inside == ["/during"] * 30


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


@pytest.mark.parametrize("reflows", [True, False], ids=["reflow", "cut"])
def test_a_window_that_changes_its_size_shows_one_set_of_status_lines(world, terminal, reflows):
    """The lines of the old width are gone after the next drawing, and the table at the end fits what the window is then."""
    if not reflows:
        world.env["XTERM_VERSION"] = "XTerm(390)"
    topic = "/robots/warehouse_7/front_left/camera/image_raw/compressed"
    # Of one topic: with -a the node's /parameter_events counts, too.
    window = terminal("record", topic, "-v", "-o", world.folder / "bag", columns=120)
    screen = Screen(120, reflows)
    heads = re.compile(r"^(recording  ?\d|cache  |lost  |SPACE pause)", re.M)

    def wait_until_drawn(fits):
        end = time.monotonic() + DEADLINE_S
        while True:
            window.read()
            screen.feed(window.text)
            found = heads.findall(screen.text())
            if fits(screen.text()) and len(found) == 4 and window.text.count("cache  ") > drawn:
                return
            assert time.monotonic() < end, f"{screen.columns} columns, {found}:\n{screen.text()}"

    drawn = 0
    wait_until_drawn(lambda text: "lost  " in text)
    publish(world, topic)
    for columns in (50, 200, 40, 80):
        # Nothing of the old size is under way while the size changes.
        with window.stopped():
            screen.feed(window.text)
            drawn = window.text.count("cache  ")
            window.resize(columns)
            screen.resize(columns)
        wait_until_drawn(lambda text: max(map(len, text.splitlines()[-4:])) < columns)
    begun = len(window.text)
    window.interrupt()
    assert window.wait() == 0
    result = window.text[begun:].replace("\r", "")
    assert "recorded 50 messages" in result and "Recorded" in result
    table = result[result.index("  Topic") : result.index("recorded 50 messages")].splitlines()
    assert all(len(row) < 80 for row in table), result
    assert any("image_raw/compressed" in row and " 50 " in f"{row} " for row in table), result
    screen.feed(window.text)
    assert not heads.search(screen.text()[screen.text().rindex("  Topic") :]), screen.text()


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_the_table_at_the_end_of_a_playback_does_not_wrap(world, terminal, columns):
    bag = world.folder / "bag.mcap"
    topics = ["/robots/warehouse_7/front_left/camera/image_raw/compressed", "/tf"]
    write_with_pip_mcap(bag, {topic: [(1_700_000_000_000_000_000, "hello")] for topic in topics})
    window = terminal("play", "-v", bag, columns=columns)
    assert window.wait() == 0
    result = window.text.replace("\r", "")
    table = result[result.rindex("  Topic") : result.index("played 2 messages")].splitlines()
    assert len(table) >= 4 and all(len(row) < columns for row in table), result
