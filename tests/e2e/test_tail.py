"""Messages that a killed publisher had sent and that were not received: counted from the announcements of reliable writers, over two DDS implementations."""

import json
import signal
import struct
import time

BYTES = "std_msgs/msg/UInt8MultiArray"


def audit(world, bag):
    told = world.run("audit", "--json", bag)
    assert told.stdout, told.stderr
    return json.loads(told.stdout)


def recorded(world):
    """Messages of /t that a recording has received, by its own report."""
    told = world.run("control", world.folder / "control", "status")
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)["status"]["topics"].get("/t", {}).get("received", 0)


def record(world):
    recorder = world.holdall("record", "-o", world.folder / "bag", "--topics", "/t", "--control-socket", world.folder / "control")
    recorder.wait_until_says("Listening")
    return recorder


def wait_until_received(world, count):
    end = time.monotonic() + 60
    while recorded(world) < count:
        assert time.monotonic() < end
        time.sleep(0.02)


def judge(world, recorder, sent_at_most):
    code, said = recorder.stop()
    told = audit(world, world.folder / "bag")
    assert told["balanced"], (told["faults"], said)
    account = told["topics"]["/t"]
    known = account["recorded"] + account["lost"] + account["sent_before_match"] + sum(p.get("sent_before", 0) for p in account["publishers"])
    # A message that was being sent when the publisher died may be known as well.
    assert 0 < known <= sent_at_most + 1, (account, sent_at_most, said)
    # What it sent after its last announcement is not known.
    assert code == 3 and "end unknown: 1 publisher (/t)" in said, (code, said)
    last = max(p["covered"][1] for p in account["publishers"])
    assert last == known, (account, said)
    return account


def test_a_fast_dds_publisher_killed_in_a_flood_is_accounted_for_up_to_what_it_announced(world):
    log = world.folder / "log"
    recorder = record(world)
    talker = world.talker({"topic": "/t", "type": BYTES, "size": 500_000, "count": None, "rate_hz": 0, "hash": False, "log": str(log), "qos": {"depth": 50}})
    wait_until_received(world, 100)
    talker.process.send_signal(signal.SIGKILL)
    talker.process.wait()
    account = judge(world, recorder, len(log.read_bytes()) // struct.calcsize("<Qd"))
    assert account["recorded"] >= 100


def test_a_cyclone_publisher_killed_in_a_flood_is_accounted_for_up_to_what_it_announced(world):
    count = 400
    recorder = world.holdall("record", "-o", world.folder / "source", "--topics", "/t")
    talker = world.talker({"topic": "/t", "type": BYTES, "size": 500_000, "count": count, "rate_hz": 200, "hash": False, "qos": {"depth": 400}})
    talker.done()
    recorder.stop()
    count = world.info(world.folder / "source")["message_count"]
    recorder = record(world)
    # Cyclone DDS is what `play` publishes with.
    player = world.holdall("play", world.folder / "source", "--rate", "4", "--loop", "--disable-keyboard-controls")
    wait_until_received(world, 100)
    player.process.send_signal(signal.SIGKILL)
    player.process.wait()
    account = judge(world, recorder, 100 * count)
    assert account["recorded"] >= 100
