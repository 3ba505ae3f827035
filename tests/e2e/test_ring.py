"""Files by class of topics, rings with topics that are kept, parts of a running ring copied into bags, and grades for lakes."""

import contextlib
import json
import signal
import time

from conftest import HOLDALL, Node
from mcap.reader import make_reader
from rosbags.highlevel import AnyReader
from served import ask, ask_bytes, served, until
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


def size_of(ring, pattern):
    """The bytes of files of a ring, which removes some while they are listed."""
    sizes = []
    for path in ring.glob(pattern):
        with contextlib.suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return sum(sizes)


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
    info = world.info(bag)
    assert info["message_count"] == count and len(info["files"]) == len(by_file)
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
    info = world.info(bag)
    assert info["message_count"] == account["recorded"] >= 300, account
    assert world.run("check", bag).returncode == 0


def test_a_ring_keeps_its_size_and_what_is_kept_and_a_part_is_promoted_while_it_runs(world):
    talker = publish(world)
    recorder, ring = record(world, "--ring", "12MB", "-b", "1500000", "--lane", f"keep={CHATTER}")
    first = ring / "lab_ring_1.mcap"
    until(lambda: not first.exists() and recorded(world) > 300, "a file that is removed")
    assert size_of(ring, "lab_ring_*.mcap") <= 12_000_000 + 3_000_000
    info = world.info(ring)
    # Half a second before the last message of now, which will be in finished files soon.
    middle = info["starting_time"]["nanoseconds_since_epoch"] + info["duration"]["nanoseconds"] - 500_000_000
    until(lambda: recorded(world) > info["message_count"] + 160, "later messages")
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
    assert topics[IMAGE]["expired"] > 0 and topics[CHATTER].get("expired", 0) == 0, topics
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


def said_in(world, bag):
    """Log time and number of each message of the small topic."""
    lines = map(json.loads, world.run("cat", "--json", bag, "--topics", CHATTER).stdout.splitlines())
    return [(line["log_time"], int(line["message"]["data"].removeprefix("hello "))) for line in lines]


def images_in(bag):
    """Log time and number of each large message, as pip mcap reads them."""
    found = []
    for path in bag.glob("*.mcap"):
        with open(path, "rb") as file:
            messages = make_reader(file).iter_messages(topics=[IMAGE])
            found.extend((message.log_time, int.from_bytes(message.data[16:24], "little")) for _, _, message in messages)
    return sorted(found)


def promoted(world, count):
    """The copies that events have begun, when that many are done and whole."""
    found = []

    def are_done():
        found[:] = copies(world)
        assert all(copy["state"] != "failed" for copy in found), found
        return len(found) == count and all(copy["state"] == "done" for copy in found)

    # A list, which has those of the last look when the time is over.
    until(are_done, found)
    assert all(copy["missing"] is None for copy in found), found
    return found


def test_events_promote_exactly_what_is_around_them(world):
    talker = publish(world)
    (world.folder / "robot.yaml").write_text("version: 1\ntopics:\n  /chatter: {never: 'data == \"hello 400\"'}\n")
    promote = ("--promote-on", '/chatter: data == "hello 150"', "--promote-on", "contract", "--contract", world.folder / "robot.yaml")
    recorder, ring = record(world, "--ring", "1h", "-d", "1", "--before", "1", "--after", "0.5", *promote)
    done = promoted(world, 2)
    assert [copy["note"] for copy in done] == [None, None], done
    status = json.loads(world.run("control", world.folder / "s", "status").stdout)["status"]["events"]
    assert status["promotes"] and [(one["trigger"], one["events"]) for one in status["triggers"]] == [('/chatter: data == "hello 150"', 1), ("contract", 1)]
    talker.interrupt()
    sent = talker.done()["sent"]
    code, log = recorder.stop()
    assert code in (3, 4) and "2 events to copy from the ring: /chatter: data == " in log, log
    said, images = said_in(world, ring), images_in(ring)
    # The ring has everything that was sent from its beginning on, so that it shows what each window has to have.
    for found, topic in ((said, CHATTER), (images, IMAGE)):
        assert [number for _, number in found] == list(range(found[0][1], sent[topic][0]["count"])) and found[0][1] < 20, log
    for number, word in ((1, 150), (2, 400)):
        (event,) = [time for time, number in said if number == word]
        event_bag = world.folder / f"lab_event_{number}"
        assert str(event_bag) == done[number - 1]["output"]
        inside = [[message for message in all_sent if event - 10**9 <= message[0] <= event + 5 * 10**8] for all_sent in (said, images)]
        assert [said_in(world, event_bag), images_in(event_bag)] == inside and len(inside[1]) > 20
        assert world.run("check", event_bag).returncode == 0
    assert [marker["name"] for marker in world.info(world.folder / "lab_event_1")["markers"]] == ['/chatter: data == "hello 150"']
    assert not list(ring.glob(".holds/*"))


def test_a_copy_whose_place_is_taken_is_in_state_report_and_exit_code(world):
    talker = world.talker({"topic": CHATTER, "type": STRING, "rate_hz": 50, "qos": {"depth": 100}})
    talker.wait_for("ready")
    ring, taken = world.folder / "lab", world.folder / "lab_event_1"
    # Messages become durable, and copies are made, seconds after they have come.
    promote = ("--promote-on", '/chatter: data == "hello 50"', "--before", "0.5", "--after", "0.2", "--max-loss-window", "10")
    recorder = world.holdall("record", "--topics", CHATTER, "-o", ring, "--control-socket", world.folder / "s", "--ring", "1h", *promote)
    recorder.wait_until_says(f"recording {CHATTER}")
    (waiting,) = until(lambda: copies(world), "the copy")
    assert waiting["state"] == "waiting" and waiting["output"] == str(taken) and waiting["event"] == promote[1], waiting
    taken.mkdir()

    def events():
        return json.loads(world.run("control", world.folder / "s", "status").stdout)["status"]["events"]

    counts = until(lambda: (found := events()["copies"])["failed"] and found, "the failure")
    (fault,) = counts.pop("faults")
    assert counts == {"whole": 0, "incomplete": 0, "failed": 1}
    assert fault["output"] == str(taken) and fault["state"] == "failed" and "exists" in fault["reason"], fault
    assert fault["until_ns"] - fault["from_ns"] == 700_000_000
    talker.interrupt()
    talker.done()
    code, log = recorder.stop()
    assert code == 3 and "lost: none" in log and f"no copy {taken} ({promote[1]}): " in log, log
    # The ring has what is missing: it is copied by hand.
    by_hand = world.run("promote", ring, "--from", fault["from_ns"], "--to", fault["until_ns"], "-o", world.folder / "part")
    assert by_hand.returncode == 0, by_hand.stderr
    said = said_in(world, world.folder / "part")
    assert 30 <= len(said) <= 36 and 50 in [number for _, number in said], said
    assert list(taken.iterdir()) == []


def test_what_is_around_an_event_stays_in_a_ring_that_is_smaller_until_it_is_copied(world):
    talker = publish(world)
    promote = ("--promote-on", '/chatter: data == "hello 200"', "--promote-on", '/chatter: data == "hello 230"')
    recorder, ring = record(world, "--ring", "6MB", "-b", "700000", "--lane", f"keep={CHATTER}", "--before", "1", "--after", "4", *promote)
    (copy,) = promoted(world, 1)
    until(lambda: size_of(ring, "lab_ring_*.mcap") < 9_000_000, "a ring that is small again")
    talker.interrupt()
    talker.done()
    code, log = recorder.stop()
    assert code in (0, 3), log
    said = {number: time for time, number in said_in(world, ring)}
    # The second event makes the window of the first one longer: twice what the ring may have.
    start, until_time = said[200] - 10**9, said[230] + 4 * 10**9
    event = world.folder / "lab_event_1"
    assert said_in(world, event) == [(time, number) for number, time in said.items() if start <= time <= until_time]
    images = images_in(event)
    numbers = [number for _, number in images]
    assert copy["note"] is None and numbers == list(range(numbers[0], numbers[-1] + 1)), copy
    assert sum(path.stat().st_size for path in event.glob("*.mcap")) > 12_000_000
    account = audit(world, ring)
    assert account["balanced"] and account["topics"][IMAGE]["expired"] > numbers[0], account


def test_a_topic_that_falls_silent_promotes_what_was_before_and_the_end_of_the_recording_ends_its_window(world):
    talker = publish(world)
    ends = world.talker({"topic": "/ends", "type": STRING, "rate_hz": 50, "count": 150, "qos": {"depth": 100}})
    ends.wait_for("ready")
    recorder, ring = record(world, "/ends", "--ring", "1h", "-d", "1", "--promote-on", "/ends silent 1s", "--promote-on", "/ends: speed > 1", "--before", "2", "--after", "3000")
    recorder.wait_until_says('event "/ends silent 1s": what is around it is copied')
    # Held from the moment on at which it was seen.
    assert list(ring.glob(".holds/*"))
    talker.interrupt()
    talker.done()
    code, log = recorder.stop()
    assert code in (0, 3), log
    assert "trigger /ends: speed > 1 could not fire: " in log and "std_msgs/msg/String has no field speed" in log, log
    event, whole = world.info(world.folder / "lab_event_1"), world.info(ring)
    assert 0 < event["message_count"] < whole["message_count"]
    ending = [bag["starting_time"]["nanoseconds_since_epoch"] + bag["duration"]["nanoseconds"] for bag in (event, whole)]
    assert ending[0] == ending[1]
    assert not list(ring.glob(".holds/*")) and world.run("check", world.folder / "lab_event_1").returncode == 0


def graded(world, bag):
    done = world.run("check", "--profile", "lake", "--json", bag)
    lake = json.loads(done.stdout)["lake"]
    return done.returncode, lake["grade"], [fault["rule"] for fault in lake["faults"]]


def test_images_are_apart_with_the_profile_for_lakes_alone(world):
    talker = world.talker(
        {"topic": IMAGE, "type": "sensor_msgs/msg/Image", "width": 320, "height": 240, "rate_hz": 20, "qos": {"depth": 100}},
        {"topic": CHATTER, "type": STRING, "rate_hz": 50, "qos": {"depth": 100}},
    )
    talker.wait_for("ready")
    recorder, bag = record(world, "--profile", "lake")
    until(lambda: recorded(world) >= 250, "messages")
    talker.interrupt()
    talker.done()
    assert recorder.stop()[0] in (0, 3)
    assert graded(world, bag) == (0, "A", []), world.run("check", "--profile", "lake", bag).stdout


def test_large_topics_of_any_type_are_apart_with_the_profile_for_lakes_alone(world):
    talker = publish(world)
    own = world._keep(Node("own_types.py", {"rate_hz": 50, "large": 60_000}, world.env))
    own.wait_for("ready")
    recorder, bag = record(world, "/own", "/own_large", "--profile", "lake")
    recorder.wait_until_says("recording /own_large")
    recorder.wait_until_says(f"{IMAGE} has files of its own from now on")
    recorder.wait_until_says("/own_large has files of its own from now on")
    before = recorded(world)
    until(lambda: recorded(world) >= before + 400, "messages")
    for node in (talker, own):
        node.interrupt()
        node.done()
    assert recorder.stop()[0] in (0, 3)
    assert graded(world, bag) == (0, "A", []), world.run("check", "--profile", "lake", bag).stdout
    files = {path.name.removeprefix("lab").rstrip("0123456789.mcap"): topics_in(path) for path in bag.glob("*.mcap")}
    assert set(files) == {"_", "_camera_image_", "_own_large_"}, files
    assert set(files["_camera_image_"]) == {IMAGE} and set(files["_own_large_"]) == {"/own_large"}, files
    # What each had before its rate showed is in the file of the small ones.
    assert set(files["_"]) == {IMAGE, CHATTER, "/own", "/own_large"}, files
    assert 2 * files["_"][IMAGE] < files["_camera_image_"][IMAGE] and 2 * files["_"]["/own_large"] < files["_own_large_"]["/own_large"], files
    # A topic is one, whatever files it is in.
    images = [number for _, number in images_in(bag)]
    assert images == list(range(images[0], images[0] + len(images)))
    account = audit(world, bag)
    assert account["balanced"], account["faults"]
    assert world.run("check", bag).returncode == 0


def test_the_profile_for_lakes_gives_the_best_grade_and_other_bags_get_reasons(world):
    talker = publish(world)
    plain, bag = record(world, name="plain")
    until(lambda: recorded(world) >= 250, "messages")
    assert plain.stop()[0] in (0, 3)
    assert graded(world, bag) == (4, "D", ["compression", "separation", "ids"])
    shown = world.run("check", "--profile", "lake", bag)
    assert "lake: grade D" in shown.stdout and "separation: plain_0.mcap: large topics (/camera/image) next to small ones" in shown.stdout
    recorder, bag = record(world, "--profile", "lake", "--separate", "camera", "--custom-data", "run_id=r1", name="ready")
    until(lambda: recorded(world) >= 250, "messages")
    talker.interrupt()
    talker.done()
    assert recorder.stop()[0] in (0, 3)
    assert graded(world, bag) == (0, "A", []), world.run("check", "--profile", "lake", bag).stdout
    data = world.info(bag)["custom_data"]
    assert data["run_id"] == "r1" and data["robot_id"]


def copies(world):
    return json.loads(world.run("control", world.folder / "s", "status").stdout)["status"]["promotions"]


def test_parts_of_a_running_ring_are_fetched_over_the_socket_and_a_page(world):
    talker = publish(world)
    recorder, ring = record(world, "--ring", "12MB", "-b", "1500000", "--lane", f"keep={CHATTER}", "--web", "127.0.0.1:0")
    address = served(recorder)
    until(lambda: recorded(world) > 200, "messages")
    # A span that is not over yet: the messages of its end are waited for.
    begin = time.time_ns()
    asked = world.run("control", world.folder / "s", "promote", "event", f"from={begin}", f"to={begin + 1_000_000_000}", f"topics={IMAGE},{CHATTER}")
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout) == {"ok": True, "number": 1, "output": str(world.folder / "event")}
    assert copies(world)[0]["state"] == "waiting"
    refused = world.run("control", world.folder / "s", "promote", "event", "from=@9", "to=@8")
    assert refused.returncode == 2 and '"to" is before "from"' in refused.stderr
    # The page takes names only, and needs its token.
    span = {"from": str(begin), "to": str(begin + 400_000_000), "topics": [CHATTER]}
    assert ask(address, "POST", "/api/promote", {**span, "output": str(world.folder / "x")})[0] == 403
    assert ask(address, "POST", "/api/promote", {**span, "output": "page"}, token=False)[0] == 401
    code, text = ask(address, "POST", "/api/promote", {**span, "output": "page"})
    assert code == 200, text
    done = until(lambda: (found := copies(world)) and all(copy["state"] == "done" for copy in found) and found, "the copies")
    assert [copy["part"] for copy in done] == [1, 1] and done[0]["messages"] == world.info(world.folder / "event")["message_count"]
    for name, wanted in (("event", {IMAGE: (28, 31), CHATTER: (47, 51)}), ("page", {CHATTER: (18, 21)})):
        found = world.info(world.folder / name)["topics_with_message_count"]
        counts = {topic["topic_metadata"]["name"]: topic["message_count"] for topic in found}
        assert set(counts) == set(wanted) and all(low <= counts[topic] <= high for topic, (low, high) in wanted.items()), counts
        assert world.run("check", world.folder / name).returncode == 0
    # What it may not keep is refused, what is gone is an error that stays.
    assert "exists" in world.run("control", world.folder / "s", "promote", "event").stderr
    assert "an hour ahead" in world.run("control", world.folder / "s", "promote", "later", f"to={begin + 4_000_000_000_000}").stderr
    world.run("control", world.folder / "s", "promote", "gone", "from=@1000", "to=@2000")
    gone = until(lambda: (last := copies(world)[-1])["state"] == "failed" and last, "the failure")
    assert "before the first message" in gone["error"] and not (world.folder / "gone").exists()
    talker.interrupt()
    talker.done()
    assert recorder.stop()[0] in (0, 3)
    assert not list(ring.glob(".holds/*"))
    assert world.run("check", ring).returncode == 0


def test_what_a_request_waits_for_stays_in_the_ring_and_the_end_of_the_recording_ends_the_wait(world):
    talker = publish(world)
    recorder, ring = record(world, "--ring", "6MB", "-b", "700000")
    until(lambda: recorded(world) > 100, "messages")
    oldest = world.info(ring)["starting_time"]["nanoseconds_since_epoch"]
    # An hour ahead: everything from the first message on is kept until then.
    asked = world.run("control", world.folder / "s", "promote", "event", f"from={oldest}", f"to={time.time_ns() + 3_000_000_000_000}", f"topics={IMAGE}")
    assert asked.returncode == 0, asked.stderr
    held = recorded(world)
    until(lambda: recorded(world) > held + 400, "more than fits")
    assert size_of(ring, "*.mcap") > 10_000_000
    talker.interrupt()
    talker.done()
    code, log = recorder.stop()
    assert code in (0, 3), log
    event = world.info(world.folder / "event")
    assert event["starting_time"]["nanoseconds_since_epoch"] - oldest < 200_000_000, (event, log)
    assert event["message_count"] == audit(world, ring)["topics"][IMAGE]["recorded"]


def test_a_page_of_a_folder_copies_a_part_of_a_ring_days_later(world):
    talker = publish(world)
    recorder, ring = record(world, "--ring", "8MB", "-b", "1MB")
    until(lambda: recorded(world) > 700, "messages")
    talker.interrupt()
    talker.done()
    assert recorder.stop()[0] in (0, 3)
    info = world.info(ring)
    start, length = info["starting_time"]["nanoseconds_since_epoch"], info["duration"]["nanoseconds"]
    expired = audit(world, ring)["topics"][IMAGE]["expired"]
    assert expired > 0 and "expired (--ring, --max-bag-files)" in world.run("info", ring).stdout
    part = {"bag": "lab", "output": "part", "from": str(start - 10**9), "to": str(start + length // 2), "topics": [IMAGE]}
    closed = world.holdall("web", world.folder, "127.0.0.1:0", "--foxglove", "127.0.0.1:0")
    address = served(closed, "bags: ")
    until(lambda: json.loads(ask(address, "GET", "/api/bags")[1])["bags"], "the ring in the list")
    assert ask(address, "POST", "/api/promote", part)[0] == 403
    closed.stop()
    web = world.holdall("web", world.folder, "127.0.0.1:0", "--foxglove", "127.0.0.1:0", "--allow-changes")
    address = served(web, "bags: ")
    until(lambda: json.loads(ask(address, "GET", "/api/bags")[1])["bags"], "the ring in the list")
    assert ask(address, "POST", "/api/promote", part, token=False)[0] == 401
    assert ask(address, "POST", "/api/promote", {**part, "output": "../part"})[0] == 400
    code, text = ask(address, "POST", "/api/promote", part)
    assert code == 200, text
    state = until(lambda: (copy := json.loads(ask(address, "GET", "/api/promotions")[1])["promotions"][0])["state"] in ("done", "failed") and copy, "the copy")
    assert state["state"] == "done" and state["note"] == f"the ring has nothing before {start}", state
    until(lambda: any(bag["name"] == "part" for bag in json.loads(ask(address, "GET", "/api/bags")[1])["bags"]), "the copy in the list")
    code, archive = ask_bytes(address, "GET", "/api/download?bag=part")
    assert code == 200 and len(archive) > 100_000
    assert world.run("check", world.folder / "part").returncode == 0
    web.stop()
