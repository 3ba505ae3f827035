"""Steering a playback from outside: the control socket, and a playback that stays after its end."""

import json
import time

from conftest import DEADLINE_S
from test_play import write_with_pip_mcap

START = 1_700_000_000_000_000_000


def bag(world, count=100, spacing_ns=10_000_000):
    path = world.folder / "steered.mcap"
    write_with_pip_mcap(path, {"/x": [(START + i * spacing_ns, f"x{i}") for i in range(count)]})
    return path


def asking(world, socket):
    def ask(*words, code=0):
        reply = world.run("control", socket, *words)
        assert reply.returncode == code, reply.stderr
        return json.loads(reply.stdout) if code == 0 else reply.stderr

    return ask


def poll(what, wanted):
    deadline = time.monotonic() + DEADLINE_S
    while (found := what()) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_a_playback_does_what_the_control_socket_asks_for(world):
    socket = world.folder / "play.sock"
    player = world.holdall("play", bag(world), "-p", "--control-socket", socket, "--disable-keyboard-controls")
    player.wait_until_says("playing /x")
    ask = asking(world, socket)
    poll(lambda: ask("status")["status"]["phase"], "playing")
    assert ask("is_paused")["paused"] is True
    assert ask("play_next")["played"] == 1
    assert ask("burst", "4")["played"] == 4
    assert ask("status")["status"]["position_ns"] == START + 4 * 10_000_000
    assert ask("seek", "0.5")["position_ns"] == START + 500_000_000
    assert ask("burst")["played"] == 50
    assert "no message is left" in ask("play_next", code=2)
    assert "after the end" in ask("seek", "77", code=2)
    assert ask("seek", f"time_ns={START - 5}")["position_ns"] == START
    assert ask("set_rate", "0.5")["rate"] == 0.5
    assert "rate" in ask("set_rate", "-1", code=2) and "rate" in ask("set_rate", "fast", code=2)
    assert ask("get_rate")["rate"] == 0.5
    assert "already" in ask("play", code=2)
    assert ask("resume")["paused"] is False
    assert "paused" in ask("burst", "1", code=2)
    assert "no request" in ask("split_bagfile", code=2)
    assert ask("stop") == {"ok": True}
    code, said = player.wait()
    assert code == 0 and "stopped after" in said, said
    assert not socket.exists()


def test_a_persistent_playback_is_played_again_until_it_is_interrupted(world):
    socket = world.folder / "play.sock"
    player = world.holdall("play", bag(world), "--persistent", "-r", "10", "--control-socket", socket, "--disable-keyboard-controls")
    player.wait_until_says("playing /x")
    ask = asking(world, socket)
    poll(lambda: ask("status")["status"]["phase"], "waiting")
    assert ask("status")["status"]["published"] == 100
    assert "nothing is being played" in ask("seek", "0", code=2)
    assert ask("play", "start_offset=0.5", "duration=0.2") == {"ok": True}
    poll(lambda: ask("status")["status"]["published"], 121)
    poll(lambda: ask("status")["status"]["phase"], "waiting")
    assert "not in the bag" in ask("play", "start_offset=50", code=2)
    code, said = player.stop()
    assert code == 0 and "121 messages" in said, said
