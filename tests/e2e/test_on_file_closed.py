"""`record --on-file-closed`: the command runs for each file when it is complete, beside the recording, and at its end."""

import hashlib
import json
import shlex
import signal
import sys
import time

import pytest
from conftest import DEADLINE_S, HOLDALL

STRING = "std_msgs/msg/String"
# What the command saw: a JSON line of the path, the exit code of `holdall check`, messages by pip mcap, and the hash of the file.
SEE = """
import hashlib, json, os, subprocess, sys
from mcap.reader import make_reader
path = sys.argv[1]
assert path == os.environ["HOLDALL_FILE"] and os.path.dirname(path) == os.environ["HOLDALL_BAG"]
check = subprocess.run([sys.argv[2], "check", path], capture_output=True).returncode
with open(path, "rb") as stream:
    messages = sum(1 for _ in make_reader(stream, validate_crcs=True).iter_messages())
    stream.seek(0)
    seen = {"path": path, "check": check, "messages": messages, "hash": hashlib.sha256(stream.read()).hexdigest()}
with open(sys.argv[3], "a") as log:
    log.write(json.dumps(seen) + "\\n")
"""


def recording(world, command, *more):
    talker = world.talker({"topic": "/t", "type": STRING, "count": 300, "rate_hz": 300, "size": 1000, "qos": {"depth": 300}})
    talker.wait_for("ready")
    program = world.holdall("record", "-o", world.folder / "a bag", "--topics", "/t", "--on-file-closed", command, *more)
    talker.done()
    return program


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_each_file_passes_check_and_a_foreign_reader_when_the_command_runs(world, number):
    script, log = world.folder / "see.py", world.folder / "seen"
    script.write_text(SEE)
    words = " ".join(map(shlex.quote, [sys.executable, str(script)])) + " {} " + " ".join(map(shlex.quote, [HOLDALL, str(log)]))
    program = recording(world, words, "-b", "100000")
    code, said = program.stop(number)
    assert code == 0, said
    seen = [json.loads(line) for line in log.read_text().splitlines()]
    files = sorted((world.folder / "a bag").glob("*.mcap"))
    assert len(files) >= 3 and sorted(entry["path"] for entry in seen) == sorted(map(str, files)), (seen, said)
    for entry in seen:
        assert entry["check"] == 0, (entry, said)
        with open(entry["path"], "rb") as stream:
            assert hashlib.sha256(stream.read()).hexdigest() == entry["hash"], "the file changed after the command had run"
    assert sum(entry["messages"] for entry in seen) == 300


def test_a_command_that_fails_or_hangs_is_logged_and_delays_only_the_end(world):
    gate = world.folder / "gate"
    hang = f"while ! [ -e {shlex.quote(str(gate))} ]; do sleep 0.1; done"
    program = recording(world, f"case {{}} in *_0.mcap) echo from the command; exit 7;; *) {hang};; esac", "-b", "100000")
    program.wait_until_says("_0.mcap failed with exit code 7")
    started = time.monotonic()
    program.process.send_signal(signal.SIGINT)
    program.wait_until_says("waiting for the commands")
    # Signals soon after the first are the same request.
    while program.process.poll() is None and time.monotonic() < started + DEADLINE_S:
        program.process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    span = time.monotonic() - started
    # The commands hold the pipe that the test reads.
    gate.touch()
    code, said = program.wait()
    assert code == 0 and span < 25, (span, said)
    assert "_1.mcap still runs" in said and "from the command" in said, said
    assert world.info(world.folder / "a bag")["message_count"] == 300


def test_an_empty_command_is_refused(world):
    refused = world.run("record", "-a", "-o", world.folder / "bag", "--on-file-closed", " ")
    assert refused.returncode == 2
    assert "--on-file-closed needs a command" in refused.stderr
    assert not (world.folder / "bag").exists()
