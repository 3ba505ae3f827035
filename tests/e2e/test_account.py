"""The account of every message, on the real thing: floods, rosbag2's events, the audit, the control socket, metrics, a service manager."""

import json
import os
import signal
import socket
import stat
import threading
import time
from pathlib import Path

import pytest
from conftest import DEADLINE_S, Node, messages_of, suspend, text_of

STRING = "std_msgs/msg/String"
BYTES = "std_msgs/msg/UInt8MultiArray"


def record(world, *arguments, bag="bag"):
    return world.holdall("record", "-o", world.folder / bag, *arguments)


def audit(world, bag="bag"):
    told = world.run("audit", "--json", world.folder / bag)
    return told.returncode, json.loads(told.stdout)


def wait_until_received(world, control, topic, count):
    """Waits until a recording has received so many messages of a topic, by its own report."""
    end = time.monotonic() + DEADLINE_S
    while True:
        told = world.run("control", control, "status")
        assert told.returncode == 0, told.stderr
        if json.loads(told.stdout)["status"]["topics"].get(topic, {}).get("received", 0) >= count:
            return
        assert time.monotonic() < end, told.stdout


def wait_until_sent(log, count):
    """Waits until a talker's own log has so many messages; the last of them may not be sent yet."""
    end = time.monotonic() + DEADLINE_S
    while not log.exists() or log.stat().st_size < count * 16:
        assert time.monotonic() < end, log
        time.sleep(0.01)


def numbers_in(bag, topic):
    """The numbers of a talker's messages in a bag, as another reader finds them; the first is 0."""
    return [int(text_of(message).split()[-1]) for message in messages_of(bag)[topic]]


def by_prometheus(text):
    """OpenMetrics text as Prometheus' own strict parser reads it: name -> labels -> value."""
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return values


def packets_dropped(pid):
    """Packets that the kernel dropped because a UDP socket of a process was full, as the kernel counts them."""
    own = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            own.add(os.readlink(descriptor))
        except OSError:
            continue
    rows = [line.split() for line in Path(f"/proc/{pid}/net/udp").read_text().splitlines()[1:]]
    return sum(int(row[12]) for row in rows if f"socket:[{row[9]}]" in own)


def test_a_flood_into_a_tiny_cache_is_accounted_for_to_the_message(world):
    plans = [
        {"topic": "/best", "type": BYTES, "size": 200_000, "count": 1500, "hash": False, "qos": {"reliability": "best_effort", "depth": 1}},
        {"topic": "/sure", "type": BYTES, "size": 60_000, "count": 3000, "hash": False, "qos": {"depth": 5}},
    ]
    talker = world.talker(*plans)
    talker.wait_for("ready")
    recorder = record(world, "--topics", "/best", "/sure", "--max-cache-size", "64KiB", "--cache-policy", "drop-new")
    sent = talker.done()["sent"]
    dropped = packets_dropped(recorder.process.pid)
    code, said = recorder.stop()
    audited, told = audit(world)
    assert told["balanced"], (told["faults"], said)
    assert code == audited, said
    for topic in ("/best", "/sure"):
        account = told["topics"][topic]
        known = account["recorded"] + account["lost"] + account["sent_before_match"]
        sent_before = sum(p.get("sent_before", 0) for p in account["publishers"])
        count = sent[topic][0]["count"]
        # Best-effort messages after the last one that arrived are announced by no publisher: then the account names that.
        is_end_unknown = account["ends_unknown"] > 0
        # So are a reliable publisher's when the kernel drops packets: the last HEARTBEAT may be one of them.
        assert not (topic == "/sure" and is_end_unknown) or dropped > 0, (account, said)
        assert known + sent_before == count or (is_end_unknown and known + sent_before < count), (account, said)
    assert told["lost"]["total"] > 0, "the flood was no flood"


def test_what_new_publishers_sent_before_the_match_is_told_to_the_message_and_is_no_failure(world):
    control = world.folder / "control.sock"
    recorder = record(world, "--topics", "/sure", "/best", "--control-socket", control)
    recorder.wait_until_says("Listening")
    # It receives nothing while they send their first messages.
    suspend(recorder.process)
    logs = {topic: world.folder / topic[1:] for topic in ("/sure", "/best")}
    plan = {"type": STRING, "count": None, "rate_hz": 200, "hash": False}
    talker = world.talker(
        {"topic": "/sure", "log": str(logs["/sure"]), **plan, "qos": {"depth": 1000}},
        {"topic": "/best", "log": str(logs["/best"]), **plan, "qos": {"reliability": "best_effort"}},
        wait_for_subscriptions=0,
    )
    for log in logs.values():
        wait_until_sent(log, 101)
    recorder.process.send_signal(signal.SIGCONT)
    for topic in ("/sure", "/best"):
        wait_until_received(world, control, topic, 50)
    talker.interrupt()
    sent = talker.done()["sent"]
    code, said = recorder.stop()
    audited, told = audit(world)
    assert told["balanced"], (told["faults"], said)
    for topic in ("/sure", "/best"):
        account = told["topics"][topic]
        (publisher,) = account["publishers"]
        count, numbers = sent[topic][0]["count"], sorted(numbers_in(world.folder / "bag", topic))
        assert numbers[0] >= 100 and len(set(numbers)) == account["recorded"], (account, numbers[:5])
        assert (publisher.get("sent_before", 0), account["sent_before_match"]) == (0, numbers[0]), (account, said)
        # A best-effort publisher announces nothing: what is missing after its last message in the bag is unknown, and called so.
        last = numbers[-1] + 1 if account["ends_unknown"] else count
        assert topic == "/best" or last == count, (account, said)
        assert publisher["covered"] == [1, last] and account["lost"] == last - numbers[0] - len(numbers), (account, said)
    assert told["topics"]["/sure"]["lost"] == 0
    assert (code, audited) == ((0, 0) if told["lost"]["total"] == 0 else (3, 3)), said
    assert "sent while not matched" in said, said


def test_what_a_publisher_sent_before_the_recording_is_known_by_number_and_not_missing(world):
    log = world.folder / "log"
    talker = world.talker({"topic": "/sure", "type": STRING, "count": None, "rate_hz": 200, "hash": False, "log": str(log)}, wait_for_subscriptions=0)
    wait_until_sent(log, 100)
    recorder = record(world, "--topics", "/sure")
    recorder.wait_until_says("recording /sure")
    wait_until_sent(log, log.stat().st_size // 16 + 200)
    # The last one may not be sent yet.
    sent_at_stop = log.stat().st_size // 16 - 1
    code, said = recorder.stop()
    talker.interrupt()
    talker.done()
    audited, told = audit(world)
    account = told["topics"]["/sure"]
    (publisher,) = account["publishers"]
    assert (code, audited, told["balanced"], account["lost"]) == (0, 0, True, 0), (told, said)
    numbers = numbers_in(world.folder / "bag", "/sure")
    assert numbers == list(range(numbers[0], numbers[-1] + 1)) and account["recorded"] == len(numbers), account
    assert sent_at_stop <= numbers[-1] + 1 <= log.stat().st_size // 16, (account, sent_at_stop)
    assert publisher["sent_before"] == numbers[0] >= 99 and publisher["covered"] == [numbers[0] + 1, numbers[-1] + 1], account


def event_types():
    """rosbag2's events as pip rosbags decodes them: it has most of rosbag2's types, and reads the rest from their definitions."""
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    store = get_typestore(Stores.ROS2_JAZZY)
    for name, text in {
        "MessagesLostEventTopicStat": "string topic_name\nuint64 messages_lost_in_transport\nuint64 messages_lost_in_recorder\n",
        "MessagesLostEvent": "string node_name\nrosbag2_interfaces/MessagesLostEventTopicStat[] messages_lost_statistics\n",
        "WriteSplitEvent": "string closed_file\nstring opened_file\nstring node_name\n",
    }.items():
        if f"rosbag2_interfaces/msg/{name}" not in store.fielddefs:
            store.register(get_types_from_msg(text, f"rosbag2_interfaces/msg/{name}"))
    return store


def test_a_real_node_hears_losses_and_finished_files(world):
    topics = {
        "/events/rosbag2_messages_lost": "rosbag2_interfaces/msg/MessagesLostEvent",
        "/events/write_split": "rosbag2_interfaces/msg/WriteSplitEvent",
    }
    listener = world.events_listener(*({"topic": topic, "type": type_name} for topic, type_name in topics.items()))
    listener.wait_for("ready")
    talker = world.talker({"topic": "/t", "type": BYTES, "size": 200_000, "count": None, "rate_hz": 300, "hash": False, "qos": {"depth": 5}})
    talker.wait_for("ready")
    recorder = record(world, "--topics", "/t", "--max-cache-size", "64KiB", "-b", "2000000")
    lost, splits, store = 0, [], event_types()

    def note(told):
        nonlocal lost
        event = store.deserialize_cdr(bytes.fromhex(told["data"]), topics[told["topic"]])
        assert event.node_name.endswith("rosbag2_recorder")
        if told["topic"] == "/events/write_split":
            splits.append((event.closed_file, event.opened_file))
        for statistics in getattr(event, "messages_lost_statistics", []):
            assert statistics.topic_name == "/t"
            lost += statistics.messages_lost_in_transport + statistics.messages_lost_in_recorder

    while not (lost and splits):
        note(listener.wait_for("heard"))
    talker.interrupt()
    talker.done()
    code, said = recorder.stop()
    # Nothing more comes until the listener has ended: the end of a recording is no split.
    listener.interrupt()
    while (told := listener.told.get(timeout=60)) is not None:
        note(told)
    audited, told = audit(world)
    assert (code, told["balanced"]) == (audited, True), (told["faults"], said)
    # An event that was replaced by the next one is not sent again: the topic keeps one.
    assert 0 < lost <= told["lost"]["total"], said
    files = sorted((f.name for f in (world.folder / "bag").glob("*.mcap")), key=lambda name: int(name[4:-5]))
    assert all(closed and opened for closed, opened in splits) and splits[-1][1].endswith(files[-1]), splits


def test_nothing_is_offered_that_an_older_distribution_does_not_have(world):
    """A Jazzy recorder beside ours fails at each topic of a type that it does not have, and records nothing after it."""
    from rosbags.typesys import Stores, get_typestore

    first = record(world, "-a", bag="first")
    first.wait_until_says("Listening")
    second = record(world, "-a", "--include-hidden-topics", bag="second")
    second.wait_until_says("recording /events/write_split")
    code, said = second.stop()
    assert (code, first.stop()[0]) == (0, 0), said
    told = json.loads(world.run("info", "--json", world.folder / "second").stdout)
    offered = {t["topic_metadata"]["name"]: t["topic_metadata"]["type"] for t in told["topics_with_message_count"]}
    for store in (Stores.ROS2_HUMBLE, Stores.ROS2_JAZZY):
        known = get_typestore(store).fielddefs
        assert {topic: kind for topic, kind in offered.items() if kind not in known} == {}, (store, said)
    assert "/events/rosbag2_messages_lost" not in offered, said


@pytest.mark.parametrize("are_losses_offered", [False, True])
def test_a_recorder_with_jazzys_types_beside_ours_gets_to_every_topic(world, are_losses_offered):
    from rosbags.typesys import Stores, get_typestore

    ours = record(world, "-a", *(["--stats-max-publishing-rate", "1"] if are_losses_offered else []))
    ours.wait_until_says("Listening")
    beside = world._keep(Node("jazzy_recorder.py", {"known": sorted(get_typestore(Stores.ROS2_JAZZY).fielddefs)}, world.env))
    if are_losses_offered:
        # The one that plays Jazzy's recorder does fail at a type that Jazzy does not have.
        assert beside.wait_for("failed")["type"] == "rosbag2_interfaces/msg/MessagesLostEvent"
    else:
        while beside.wait_for("subscribed")["topic"] != "/events/write_split":
            pass
        talker = world.talker({"topic": "/later", "type": "std_msgs/msg/String", "count": None, "rate_hz": 20})
        while beside.wait_for("heard")["topic"] != "/later":
            pass
        talker.interrupt()
        talker.done()
        beside.interrupt()
        assert beside.done()["failed"] == []
    code, said = ours.stop()
    assert code in (0, 3), said


def test_losses_are_offered_when_they_are_asked_for_and_have_a_definition(world):
    first = record(world, "-a", "--stats-max-publishing-rate", "1", bag="first")
    first.wait_until_says("Listening")
    second = record(world, "-a", bag="second")
    second.wait_until_says("recording /events/rosbag2_messages_lost")
    # The second now discovers another node with the type, and offers it as well.
    first.wait_until_says("recording /events/rosbag2_messages_lost")
    ended = [recorder.stop() for recorder in (second, first)]
    assert all(code in (0, 3) and "without" not in said for code, said in ended), ended
    for bag in ("first", "second"):
        told = json.loads(world.run("info", "--json", world.folder / bag).stdout)
        assert "undefined_topics" not in told, told


def test_requests_on_the_control_socket_and_metrics(world):
    path, metrics = world.folder / "control.sock", world.folder / "metrics.txt"
    talker = world.talker({"topic": "/t", "type": STRING, "count": None, "rate_hz": 100, "hash": False})
    talker.wait_for("ready")
    recorder = record(world, "--topics", "/t", "--control-socket", path, "--metrics-file", metrics)
    recorder.wait_until_says("recording /t")
    wait_until_received(world, path, "/t", 1)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600

    def ask(request):
        told = world.run("control", path, request)
        assert told.returncode == 0, told.stderr
        return told.stdout

    assert json.loads(ask("is_paused")) == {"ok": True, "paused": False}
    assert json.loads(ask("pause"))["paused"] is True
    assert json.loads(ask("resume"))["paused"] is False
    assert json.loads(ask("split_bagfile")) == {"ok": True}
    recorder.wait_until_says("now recording into")
    assert "/t" in json.loads(ask("status"))["status"]["topics"]
    assert by_prometheus(ask("metrics"))["holdall_stalled"] == {(): 0}
    refused = world.run("control", path, "snapshot")
    assert refused.returncode == 2 and "--snapshot-mode" in refused.stderr
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(path))
        raw.sendall(b"no json\n{\"request\": 5}\n")
        replies = raw.makefile()
        for _ in range(2):
            reply = json.loads(replies.readline())
            assert reply["ok"] is False and reply["error"]
    ask("stop")
    code, said = recorder.wait()
    assert code == 0, said
    assert not path.exists()
    text = metrics.read_text()
    assert by_prometheus(text)["holdall_received_messages_total"][(("topic", "/t"),)] > 0
    talker.interrupt()
    code, told = audit(world)
    assert (code, told["balanced"]) == (0, True), told
    assert told["left_out"] >= 0 and len(list((world.folder / "bag").glob("*.mcap"))) == 2


def test_a_service_manager_is_told_and_bad_ros_variables_are_refused(world):
    path = world.folder / "notify"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(path))
    listener.settimeout(60)
    world.env["NOTIFY_SOCKET"], world.env["WATCHDOG_USEC"] = str(path), "1000000"
    recorder = record(world, "-a")
    heard = set()
    while not {"READY=1", "WATCHDOG=1"} <= heard:
        heard.add(listener.recv(4096).decode())
    stopper = threading.Thread(target=recorder.stop)
    stopper.start()
    while "STOPPING=1" not in heard:
        heard.add(listener.recv(4096).decode())
    stopper.join()
    assert any(state.startswith("STATUS=") for state in heard)
    del world.env["NOTIFY_SOCKET"]
    for name, value in (("ROS_AUTOMATIC_DISCOVERY_RANGE", "FAR"), ("ROS_DOMAIN_ID", "x"), ("ROS_STATIC_PEERS", "a b")):
        kept = world.env.get(name)
        world.env[name] = value
        told = world.run("record", "-a", "-o", world.folder / "never")
        assert told.returncode == 2 and name in told.stderr, (name, told)
        world.env[name] = kept or ""


def test_a_publisher_that_is_found_late_and_is_older_than_the_recording_has_lost_nothing(world):
    # As when the recorder or the node was suspended, or the network came late.
    talker = world.talker({"topic": "/t", "type": "std_msgs/msg/String", "count": None, "rate_hz": 200, "qos": {"depth": 1}})
    talker.wait_for("ready")
    early = world.holdall("record", "--topics", "/t", "-o", world.folder / "early", "--control-socket", world.folder / "early.sock")
    wait_for_status(world, "early.sock", lambda status: status["topics"].get("/t", {}).get("recorded", 0) >= 100)
    assert early.stop()[0] == 0
    suspend(talker.process)
    try:
        recorder = record(world, "--topics", "/t", "--control-socket", world.folder / "rec.sock")
        # The time after which publishers that do not send their creation time count as new.
        wait_for_status(world, "rec.sock", lambda status: status["elapsed_s"] > 2.5)
        assert "/t" not in wait_for_status(world, "rec.sock", lambda status: True)["topics"]
    finally:
        talker.process.send_signal(signal.SIGCONT)
    wait_for_status(world, "rec.sock", lambda status: status["topics"].get("/t", {}).get("recorded", 0) >= 10)
    code, said = recorder.stop()
    audited, told = audit(world)
    (publisher,) = told["topics"]["/t"]["publishers"]
    assert publisher["sent_before"] >= 100, (told, said)
    assert (told["lost"]["total"], told["sent_before_match"], code, audited) == (0, 0, 0, 0), (told, said)
    shown = world.run("info", world.folder / "bag").stdout
    assert "Lost messages:     0\n" in shown, shown


def wait_for_status(world, socket, holds):
    """A recorder's first status that satisfies a condition."""
    end = time.monotonic() + DEADLINE_S
    while True:
        told = world.run("control", world.folder / socket, "status")
        if told.returncode == 0 and holds(status := json.loads(told.stdout)["status"]):
            return status
        assert time.monotonic() < end, (told.stdout, told.stderr)
        time.sleep(0.05)
