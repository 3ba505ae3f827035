"""Files by class of topics, rings with topics that are kept, parts of a running ring copied into bags, and grades for lakes."""

import json
import signal

from conftest import HOLDALL
from mcap.reader import make_reader
from rosbags.highlevel import AnyReader
from served import until
from test_disks import audit

STRING, BYTES = "std_msgs/msg/String", "std_msgs/msg/UInt8MultiArray"
IMAGE, CHATTER = "/camera/image", "/chatter"


def publish(world, count=None, size=100_000):
    """A large topic at 3 MB/s and a small one."""
    talker = world.talker(
        {"topic": IMAGE, "type": BYTES, "size": size, "rate_hz": 30, "count": count, "hash": False, "qos": {"depth": 100}},
        {"topic": CHATTER, "type": STRING, "rate_hz": 50, "count": count, "qos": {"depth": 100}},
    )
    talker.wait_for("ready")
    return talker


def record(world, *arguments, name="lab"):
    bag = world.folder / name
    recorder = world.holdall("record", "--topics", IMAGE, CHATTER, "-o", bag, "--control-socket", world.folder / "s", *arguments)
    recorder.wait_until_says(f"recording {CHATTER}")
    recorder.wait_until_says(f"recording {IMAGE}")
    return recorder, bag


def recorded(world):
    return json.loads(world.run("control", world.folder / "s", "status").stdout)["status"]["recorded"]


def topics_in(path):
    with open(path, "rb") as file:
        found = [channel.topic for _, channel, _ in make_reader(file, validate_crcs=True).iter_messages()]
    return {topic: found.count(topic) for topic in found}


def assert_whole(world, bag, sent):
    """Telemetry is apart, and all readers see one bag."""
    by_file = {path.name: topics_in(path) for path in sorted(bag.glob("*.mcap"))}
    small = [name for name in by_file if "_camera_" not in name]
    assert small and len(small) < len(by_file), by_file
    assert all(set(by_file[name]) <= {CHATTER} for name in small), by_file
    assert all(set(topics) <= {IMAGE} for name, topics in by_file.items() if name not in small), by_file
    count = sum(sum(topics.values()) for topics in by_file.values())
    told = world.info(bag)
    assert told["message_count"] == count and len(told["files"]) == len(by_file)
    with AnyReader([bag]) as reader:
        assert sum(1 for _ in reader.messages()) == count
    account = audit(world, bag)
    assert account["balanced"], account["faults"]
    assert count + account["lost"]["total"] == sent, account
    # In time order, whatever file a message is in.
    lines = world.run("cat", "--json", bag, "--topics", CHATTER, IMAGE).stdout.splitlines()
    times = [json.loads(line)["log_time"] for line in lines]
    assert len(times) == count and times == sorted(times)
    return count


def test_large_topics_have_files_of_their_own_and_readers_see_one_bag(world):
    talker = publish(world, count=150)
    recorder, bag = record(world, "--separate", "/camera.*", "-b", "2MB")
    until(lambda: recorded(world) >= 250, "messages")
    talker.done()
    code, log = recorder.stop()
    assert code == 0, log
    count = assert_whole(world, bag, 300)
    done = world.run("check", bag)
    assert done.returncode == 0, done.stdout
    telemetry = bag / "lab_0.mcap"
    assert telemetry.stat().st_size < 100_000
    # One file again, copied by chunks.
    done = world.run("convert", bag, "-o", world.folder / "one", "--json")
    assert done.returncode == 0, done.stderr
    assert world.info(world.folder / "one")["message_count"] == count


def test_a_killed_recorder_of_several_classes_is_repaired_whole(world):
    talker = publish(world)
    recorder, bag = record(world, "--separate", "/camera.*", "-b", "3MB")
    until(lambda: recorded(world) >= 300, "messages")
    recorder.stop(signal.SIGKILL)
    talker.interrupt()
    talker.done()
    done = world.repair(bag)
    assert done.returncode == 0, done.stderr
    account = audit(world, bag)
    assert account["balanced"], account["faults"]
    told = world.info(bag)
    assert told["message_count"] == account["recorded"] >= 300, account
    assert world.run("check", bag).returncode == 0


def test_a_ring_keeps_its_size_and_what_is_kept_and_a_part_is_promoted_while_it_runs(world):
    talker = publish(world)
    recorder, ring = record(world, "--ring", "12MB", "-b", "1500000", "--lane", f"keep={CHATTER}")
    first = ring / "lab_ring_1.mcap"
    until(lambda: not first.exists() and recorded(world) > 300, "a file that is removed")
    assert sum(path.stat().st_size for path in ring.glob("lab_ring_*.mcap")) <= 12_000_000 + 3_000_000
    told = world.info(ring)
    # Half a second before the last message of now, which will be in finished files soon.
    middle = told["starting_time"]["nanoseconds_since_epoch"] + told["duration"]["nanoseconds"] - 500_000_000
    until(lambda: recorded(world) > told["message_count"] + 160, "later messages")
    part = world.folder / "part"
    done = world.run("promote", ring, "--from", middle, "--to", middle + 1_000_000_000, "-o", part, "--json")
    assert done.returncode == 0, done.stderr
    written = json.loads(done.stdout)
    assert written["copied_chunks"] > 0, written
    found = world.info(part)
    counts = {topic["topic_metadata"]["name"]: topic["message_count"] for topic in found["topics_with_message_count"]}
    assert 20 <= counts[IMAGE] <= 40 and 35 <= counts[CHATTER] <= 65, counts
    assert world.run("check", part).returncode == 0
    talker.interrupt()
    talker.done()
    code, log = recorder.stop()
    assert code in (0, 3), log
    account = audit(world, ring)
    assert account["balanced"], account["faults"]
    topics = account["topics"]
    assert topics[IMAGE]["removed"] > 0 and topics[CHATTER].get("removed", 0) == 0, topics
    assert world.run("check", ring).returncode == 0


def test_an_alarm_promotes_what_was_before_it_at_once(world):
    talker = publish(world)
    ends = world.talker({"topic": "/ends", "type": STRING, "rate_hz": 50, "count": 150, "qos": {"depth": 100}})
    ends.wait_for("ready")
    ring, event = world.folder / "lab", world.folder / "event"
    promote = f'[ $HOLDALL_ALARM_STATE = begin ] && {HOLDALL} promote "$HOLDALL_BAG" --from $((HOLDALL_ALARM_SINCE - 2000000000)) -o {event}'
    recorder, _ = record(world, "/ends", "--ring", "1h", "-d", "1", "--alarm", "/ends silent 1s", "--on-alarm", promote)
    until((event / "metadata.yaml").exists, "the copy")
    talker.interrupt()
    talker.done()
    assert recorder.stop()[0] in (0, 3)
    found = world.info(event)
    assert 0 < found["message_count"] < world.info(ring)["message_count"]
    assert world.run("check", event).returncode == 0


def graded(world, bag):
    done = world.run("check", "--profile", "lake", "--json", bag)
    lake = json.loads(done.stdout)["lake"]
    return done.returncode, lake["grade"], [fault["rule"] for fault in lake["faults"]]


def test_the_profile_for_lakes_gives_the_best_grade_and_other_bags_get_reasons(world):
    talker = publish(world)
    plain, bag = record(world, name="plain")
    until(lambda: recorded(world) >= 250, "messages")
    assert plain.stop()[0] in (0, 3)
    assert graded(world, bag) == (4, "D", ["compression", "separation", "ids"])
    shown = world.run("check", "--profile", "lake", bag)
    assert "lake: grade D" in shown.stdout and "separation: plain_0.mcap: large topics next to small ones" in shown.stdout
    recorder, bag = record(world, "--profile", "lake", "--separate", "camera", "--custom-data", "run_id=r1", name="ready")
    until(lambda: recorded(world) >= 250, "messages")
    talker.interrupt()
    talker.done()
    assert recorder.stop()[0] in (0, 3)
    assert graded(world, bag) == (0, "A", []), world.run("check", "--profile", "lake", bag).stdout
    data = world.info(bag)["custom_data"]
    assert data["run_id"] == "r1" and data["robot_id"]
