"""Contracts that judge a recording of real nodes while it runs: the verdict is the one that the bag has afterwards, also where the recorder was killed."""

import json
import signal

import pytest
import yaml
from mcap.reader import make_reader
from served import ask, served, until
from test_alarms import ERROR, Diagnostics, command_into, markers, metrics, report_of, reported

CONTRACT = """
version: 1
name: robot
topics:
  /scan:
    required: true
    type: sensor_msgs/msg/LaserScan
    rate: {min: 15, window: 2s}
    gap: {max: 1s, reason: the lidar stopped}
    must: "angle_min < 0"
  /imu:
    rate: {min: 50, window: 2s}
    stamps: strict
    never: {expression: "angular_velocity.z > 0.99", severity: warn}
    frozen: 3
    frame: [imu, base]
    publishers: {min: 1, names: [/talker]}
  /words: {size: {max: 200}, never: 'data == "hello 30"', latency: 1s}
  /never: {required: {is: true, severity: warn}}
  /absent*: {gap: 1s}
bag: {losses: 0, topics: 3, duration: {min: 2s}, disk_left: 1MB}
"""

SCAN = {"topic": "/scan", "type": "sensor_msgs/msg/LaserScan", "rate_hz": 20}
IMU = {"topic": "/imu", "type": "sensor_msgs/msg/Imu", "rate_hz": 100, "count": None}
WORDS = {"topic": "/words", "type": "std_msgs/msg/String", "rate_hz": 10, "count": None}


def contract_in(world, text=CONTRACT):
    file = world.folder / "robot.yaml"
    file.write_text(text)
    return file


def afterwards(world, bag, contract, code):
    done = world.run("check", bag, "--json", "--contract", contract)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)["contract"]


def wrong(verdict):
    return sorted({(rule["kind"], rule["topic"]) for rule in verdict["rules"] if rule["outcome"] in ("failed", "warned")})


def test_a_recording_is_judged_while_it_runs_as_its_bag_is_afterwards(world):
    log, bag, contract = world.folder / "reported", world.folder / "bag", contract_in(world)
    talker = world.talker({**SCAN, "count": 80}, IMU, WORDS, later=[{**SCAN, "count": None}])
    talker.wait_for("ready")
    recorder = world.holdall(
        "record", "-a", "-o", bag, "--json", "--diagnostics", "--contract", contract, "--on-alarm", command_into(log), "--web", "127.0.0.1:0", "--control-socket", world.folder / "socket"
    )
    address = served(recorder)
    lines = until(lambda: [line for line in reported(log) if "gap" in line[3]], "an alarm of the gap")
    state, kind, topic, text, *_ = lines[0]
    assert (state, kind, topic) == ("begin", "contract", "/scan"), lines
    assert text == "/scan: contract: gap: no message for 1 s (the lidar stopped)"
    values = metrics(address)
    assert values["holdall_alarms_active"][(("kind", "contract"),)] >= 1
    assert values["holdall_contract_outcome"] == {(("outcome", word),): int(word == "failed") for word in ("passed", "warned", "unknown", "failed")}
    assert values["holdall_contract_broken_rules"][(("severity", "fail"), ("topic", "/scan"))] >= 1
    assert values["holdall_contract_broken_rules"][(("severity", "fail"), ("topic", "/imu"))] == 0 and values["holdall_contract_not_judged_total"][()] == 0
    status = world.run("control", world.folder / "socket", "status")
    assert json.loads(status.stdout)["status"]["contract"]["outcome"] == "failed", status
    # The page has the state of the last half second.
    shown = until(lambda: (shown := json.loads(ask(address, "GET", "/api/status")[1])["status"])["topics"]["/scan"]["contract"]["failed"] and shown, "the gap")
    assert shown["contract"]["outcome"] == "failed" and "gap" in shown["topics"]["/scan"]["contract"]["failed"]
    level, message, values = Diagnostics(world, ["contract"]).next()[1]["contract"]
    assert level == ERROR and ": contract" in message and int(values["broken_rules"]) >= 2, (message, values)
    talker.process.send_signal(signal.SIGUSR1)
    until(lambda: [line for line in reported(log) if line[0] == "end" and "gap" in line[3]], "its end")
    code, said = recorder.stop()
    assert code == 4, said
    assert f"alarm: {text}" in said and f"alarm: {text}" in markers(bag), said
    live = report_of(said)["contract"]
    assert live["name"] == "robot" and live["outcome"] == "failed" and live["not_judged"] == 0
    verdict = live["verdict"]
    expected = [("gap", "/scan"), ("never", "/imu"), ("never", "/words"), ("rate", "/scan"), ("required", "/never")]
    assert wrong(verdict) == expected, verdict
    by_topic = {topic: standing["failed"] + standing["warned"] for topic, standing in live["topics"].items()}
    assert sorted((kind, topic) for topic, kinds in by_topic.items() for kind in kinds) == expected and live["bag"]["failed"] == []
    assert live["topics"]["/imu"]["warned"] == ["never"] and live["topics"]["/scan"]["outcome"] == "failed", live["topics"]
    assert verdict == afterwards(world, bag, contract, 4)
    unknown = {(rule["kind"], rule["topic"]): rule["reason"] for rule in verdict["rules"] if rule["outcome"] == "unknown"}
    assert unknown[("latency", "/words")] == "std_msgs/msg/String has no header.stamp"
    assert ("gap", "/absent*") in unknown, unknown
    with open(next(bag.glob("*.mcap")), "rb") as stream:
        records = [record.metadata for record in make_reader(stream).iter_metadata() if record.name == "holdall:contract"]
    begun, ended = records
    assert begun.keys() == {"contract", "start"} and begun["contract"] == CONTRACT and begun["start"] == ended["start"]
    assert ended["outcome"] == "failed" and json.loads(ended["verdict"])["rules"] == verdict["rules"]
    assert "Contract:          failed" in world.run("info", bag).stdout
    catalog = world.folder / "catalog"
    assert world.run("catalog", bag, "-o", catalog).returncode == 0
    for expression, count in (('contract = "failed"', 1), ('contract = "passed"', 0)):
        found = world.run("find", expression, catalog)
        assert len(found.stdout.splitlines()) == count, (found.stdout, found.stderr)


KILLED = """
version: 1
topics:
  /scan: {gap: 1s, first: 30s, rate: {min: 15, window: 2s}}
  /words: {never: 'data == "hello 30"'}
bag: {losses: 0}
"""


def test_a_killed_recorders_bag_has_the_violations_that_were_seen_live_and_unknown_losses(world):
    log, bag, contract = world.folder / "reported", world.folder / "bag", contract_in(world, KILLED)
    talker = world.talker({**SCAN, "count": 80}, WORDS)
    talker.wait_for("ready")
    # What survives the process would have the account, too.
    recorder = world.holdall("record", "-a", "-o", bag, "--contract", contract, "--on-alarm", command_into(log), "--rescue-directory", "")
    until(lambda: len({line[3] for line in reported(log) if line[0] == "begin"}) == 3, "all three alarms")
    until(lambda: world.run("info", "--json", bag).returncode == 0, "a bag that can be read")
    recorder.wait_until_says("alarm")
    # What a reader finds now includes the last violation.
    last = max(int(line[4]) for line in reported(log))
    until(lambda: world.info(bag)["starting_time"]["nanoseconds_since_epoch"] + world.info(bag)["duration"]["nanoseconds"] > last, "what is after the last violation")
    recorder.stop(signal.SIGKILL)
    assert world.info(bag)["custom_data"]["holdall.contract"] == "unknown"
    world.repair(bag)
    assert world.info(bag)["custom_data"]["holdall.contract"] == "unknown"
    verdict = afterwards(world, bag, contract, 4)
    seen = {int(line[4]): line[3] for line in reported(log) if line[0] == "begin"}
    found = {one["since_ns"]: one["text"] for one in verdict["violations"]}
    assert set(seen) == set(found), (seen, found)
    assert all(seen[since].endswith(text) for since, text in found.items()), (seen, found)
    losses = [rule for rule in verdict["rules"] if rule["kind"] == "losses"]
    assert [rule["outcome"] for rule in losses] == ["unknown"], losses
    assert losses[0]["reason"] == "the account was cut off before the end of the recording"


def test_contracts_that_are_damaged_are_refused_before_anything_is_recorded(world):
    for text, said in (
        ("version: 1\ntopics: {/scan: {rat: 5}}", "robot.yaml: line 2: topics./scan.rat: "),
        ("version: 1\ntopics: {/scan: {rate: .nan}}", "robot.yaml: line 2: topics./scan.rate"),
        ("\x00", "robot.yaml: "),
    ):
        refused = world.run("record", "-a", "-o", world.folder / "bag", "--contract", contract_in(world, text))
        assert refused.returncode == 2 and f"--contract {world.folder}/{said}" in refused.stderr, refused.stderr
        assert not (world.folder / "bag").exists()


def test_a_profile_has_a_contract_and_a_bag_without_faults_passes(world):
    contract = contract_in(world, "version: 1\ntopics: {/words: {required: true, gap: 5s}}")
    profile = world.folder / "profile.yaml"
    profile.write_text(f"all: true\ncontract: {contract}\n")
    talker = world.talker({**WORDS, "count": 20})
    talker.wait_for("ready")
    bag = world.folder / "bag"
    recorder = world.holdall("record", "--profile", profile, "-o", bag)
    talker.wait_for("done")
    code, said = recorder.stop()
    assert code == 0 and "contract passed (2 rules)" in said, said
    assert afterwards(world, bag, contract, 0)["outcome"] == "passed"


@pytest.mark.parametrize("flags", (["-s", "sqlite3"], ["--compression-mode", "message", "--compression-format", "zstd"], ["-d", "2"]), ids=" ".join)
def test_the_verdict_is_that_of_the_bag_in_every_form(world, flags):
    bag, contract = world.folder / "bag", contract_in(world)
    talker = world.talker({**SCAN, "count": 40}, {**IMU, "count": 500}, {**WORDS, "count": 50})
    talker.wait_for("ready")
    recorder = world.holdall("record", "-a", "-o", bag, "--json", "--contract", contract, *flags)
    talker.wait_for("done")
    code, said = recorder.stop()
    assert code == 4, said
    assert report_of(said)["contract"]["verdict"] == afterwards(world, bag, contract, 4)


def test_pages_and_pictures_of_the_bag_show_where_the_contract_was_broken(world, browser):
    folder = world.folder / "bags"
    folder.mkdir()
    contract = contract_in(world, 'version: 1\nname: robot\ntopics: {/words: {never: \'data == "hello 10"\'}, /imu: {rate: {min: 5, window: 2s}}}\n')
    talker = world.talker({**WORDS, "count": 40}, {**IMU, "count": 400})
    talker.wait_for("ready")
    recorder = world.holdall("record", "-a", "-o", folder / "bag", "--contract", contract)
    recorder.wait_until_says("Listening")
    talker.done()
    code, said = recorder.stop()
    assert code == 4, said
    done = world.run("plot", folder / "bag", "-o", world.folder / "picture.svg")
    assert done.returncode == 0, done.stderr
    picture = (world.folder / "picture.svg").read_text()
    assert 'class="broken"' in picture and "contract broken 1 time" in picture and "<title>contract: " in picture
    web = world.holdall("web", folder, "127.0.0.1:0", "--foxglove", "127.0.0.1:0")
    address = served(web, "bags: ")
    until(lambda: json.loads(ask(address, "GET", "/api/bags")[1])["bags"], "the bag in the list")
    drawn = until(lambda: json.loads(ask(address, "POST", "/api/timeline", {"bag": "bag"})[1]).get("result"), "the timeline")
    [(since, until_ms, text)] = [(since, until_ms, text) for since, until_ms, topic, text in drawn["violations"] if topic == "/words"]
    assert 0 <= since <= until_ms <= drawn["span_ms"] and "hello 10" in text, drawn["violations"]
    browser.look(1280, 900, "light")
    browser.open(address.link + "#bag")
    shown = until(lambda: browser.script("document.getElementById('jumps') && document.getElementById('jumps').textContent.includes('Contract') && document.body.textContent"), "the violation")
    assert "while it was recorded" in shown and "/words: " in shown
    browser.photograph(world.folder / "page.png")
    assert not [e for e in browser.events if e.get("method") == "Runtime.exceptionThrown"], browser.events


def test_the_page_of_a_recording_shows_the_verdict_of_each_topic(world, browser):
    contract = contract_in(world, "version: 1\ntopics:\n  /scan: {gap: 1s}\n  /imu: {never: {expression: 'angular_velocity.z > 0.9', severity: warn}}\n  /words: {size: {max: 200}}\n")
    talker = world.talker({**SCAN, "count": 20}, IMU, WORDS, {"topic": "/other", "type": "std_msgs/msg/String", "rate_hz": 10, "count": None})
    talker.wait_for("ready")
    recorder = world.holdall("record", "-a", "-o", world.folder / "bag", "--contract", contract, "--web", "127.0.0.1:0")
    browser.look(1280, 900, "light")
    browser.open(served(recorder).link)
    rows = "JSON.stringify(Object.fromEntries([...document.querySelectorAll('#rows tr:not(.detail)')].map(row => [row.cells[0].textContent, row.cells[7].textContent])))"
    wanted = {"/scan": "failed: gap", "/imu": "warned: never", "/words": "passed", "/other": "–"}
    until(lambda: wanted.items() <= json.loads(browser.script(rows)).items(), "the verdicts")
    assert "contract failed so far" in browser.script("document.getElementById('state').textContent")
    assert not [e for e in browser.events if e.get("method") == "Runtime.exceptionThrown"], browser.events
    assert recorder.stop()[0] == 4


def by_rule(verdict):
    return {(rule["kind"], rule["topic"]): (rule["outcome"], rule.get("reason")) for rule in verdict["rules"]}


TURNED = """
version: 1
topics:
  /scan: {required: true, first: 5s, rate: {min: 15, window: 1s}, gap: 1s}
  /once: {required: true, first: 30s}
bag: {topics: 2, duration: {min: 2s}}
"""


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGKILL), ids=("stopped", "killed"))
def test_a_ring_that_has_turned_is_judged_by_what_it_still_has(world, number):
    bag, contract = world.folder / "bag", contract_in(world, TURNED)
    talker = world.talker({**SCAN, "count": None, "rate_hz": 50}, {**WORDS, "topic": "/once", "count": 3})
    talker.wait_for("ready")
    recorder = world.holdall("record", "--topics", "/scan", "/once", "-o", bag, "--json", "--ring", "2s", "-d", "1", "--contract", contract, "--rescue-directory", "")
    until((bag / "bag_3.mcap").exists, "the fourth file")
    until(lambda: not (bag / "bag_1.mcap").exists(), "a file that is removed")
    code, said = recorder.stop(number)
    if number == signal.SIGINT:
        assert code == 0, said
        assert report_of(said)["contract"]["verdict"]["outcome"] == "passed"
    # Before it is repaired, a bag that was cut off is damaged.
    for expected in (0,) if number == signal.SIGINT else (1, 0):
        verdict = afterwards(world, bag, contract, expected)
        assert verdict["violations"] == [], verdict
        expired = (("first", "/scan"), ("first", "/once"))
        found = by_rule(verdict)
        assert [found.pop(rule) for rule in expired] == [("unknown", "its first messages have expired")] * 2, verdict
        assert {outcome for outcome, _ in found.values()} == {"passed"}, verdict
        start = world.info(bag)["starting_time"]["nanoseconds_since_epoch"]
        assert verdict["expired_before_ns"] == {"/scan": start, "/once": None}
        assert "not judged: messages of 2 topics before " in world.run("check", bag, "--contract", contract).stdout
        if number == signal.SIGKILL:
            world.repair(bag)


@pytest.mark.parametrize("storage", ("mcap", "sqlite3"))
def test_a_publisher_that_comes_later_with_another_qos_is_judged_when_it_comes(world, storage):
    log, bag = world.folder / "reported", world.folder / "bag"
    contract = contract_in(world, "version: 1\ntopics: {/words: {qos: {reliability: reliable}, gap: 30s}}")
    first = world.talker(WORDS, node="first")
    first.wait_for("ready")
    recorder = world.holdall(
        "record", "-a", "-o", bag, "-s", storage, "--json", "--contract", contract, "--on-alarm", command_into(log), "--control-socket", world.folder / "socket"
    )

    recorder.wait_until_says("recording /words")

    def status():
        return json.loads(world.run("control", world.folder / "socket", "status").stdout)["status"]

    until(lambda: status()["recorded"] > 20, "messages of the first publisher")
    assert status()["contract"]["outcome"] == "passed" and not reported(log)
    second = world.talker({**WORDS, "qos": {"reliability": "best_effort"}}, node="second")
    line = until(lambda: reported(log), "an alarm")[0]
    assert line[:4] == ["begin", "contract", "/words", "/words: contract: qos: reliability best_effort, expected reliable"], line
    for talker in (first, second):
        talker.interrupt()
        talker.done()
    code, said = recorder.stop()
    assert code == 4, said
    verdict = report_of(said)["contract"]["verdict"]
    assert wrong(verdict) == [("qos", "/words")] and verdict == afterwards(world, bag, contract, 4)
    (words,) = [topic["topic_metadata"] for topic in yaml.safe_load((bag / "metadata.yaml").read_text())["rosbag2_bagfile_information"]["topics_with_message_count"]
        if topic["topic_metadata"]["name"] == "/words"]  # fmt: skip
    assert {str(profile["reliability"]) for profile in words["offered_qos_profiles"]} == {"reliable", "best_effort"}, words
    if storage == "mcap":
        # The files have it, too.
        (bag / "metadata.yaml").unlink()
        assert world.run("reindex", bag).returncode == 0
        assert afterwards(world, bag, contract, 4)["violations"] == verdict["violations"]


def test_episodes_are_counted(world):
    bag, contract = world.folder / "bag", contract_in(world, "version: 1\nbag: {episodes: {min: 2, success_min: 2}}")
    talker = world.talker(WORDS)
    talker.wait_for("ready")
    recorder = world.holdall("record", "-a", "-o", bag, "--json", "--contract", contract, "--control-socket", world.folder / "socket")
    recorder.wait_until_says("recording /words")
    for words in (["start"], ["stop", "outcome=success"], ["start"], ["discard", "outcome=success"], ["start"], ["stop", "outcome=failure"], ["start"]):
        asked = world.run("control", world.folder / "socket", "episode", *words)
        assert asked.returncode == 0, asked.stderr
    code, said = recorder.stop()
    assert code == 4, said
    verdict = report_of(said)["contract"]["verdict"]
    assert [violation["text"] for violation in verdict["violations"]] == ["1 episode with outcome success, at least 2"]
    assert verdict == afterwards(world, bag, contract, 4)
    # The last one was stopped by the end of the recording.
    assert afterwards(world, bag, contract_in(world, "version: 1\nbag: {episodes: {min: 3, max: 3, success_min: 1}}"), 0)["outcome"] == "passed"


def test_a_copy_of_a_whole_recording_is_judged_as_the_recording(world):
    text = "version: 1\ntopics:\n  /scan: {gap: 1s, first: 30s, publishers: {min: 1}}\n  /words: {first: {within: 0, severity: warn}, losses: 0}\n  /never: {first: 10ms}\nbag: {disk_left: 1MB, duration: 3s, losses: 0}"
    log, bag, contract = world.folder / "reported", world.folder / "bag", contract_in(world, text)
    talker = world.talker({**SCAN, "count": 40}, {**WORDS, "count": 10})
    talker.wait_for("ready")
    recorder = world.holdall("record", "--topics", "/scan", "/words", "-o", bag, "--json", "--contract", contract, "--on-alarm", command_into(log))
    # The gap is after the last message of the bag.
    until(lambda: [line for line in reported(log) if "gap" in line[3]], "the gap")
    code, said = recorder.stop()
    assert code == 4, said
    talker.done()
    verdict = report_of(said)["contract"]["verdict"]
    assert ("gap", "/scan") in wrong(verdict) and ("first", "/never") in wrong(verdict), verdict
    assert verdict == afterwards(world, bag, contract, 4)
    copies = (["filter", "--topics", "/scan", "/words"], ["merge"], ["convert", "-s", "sqlite3"], ["convert", "--compression-mode", "message", "--compression", "zstd"])
    for number, (verb, *arguments) in enumerate(copies):
        copy = world.folder / f"copy{number}"
        done = world.run(verb, bag, "-o", copy, *arguments)
        assert done.returncode == 0, done.stderr
        assert afterwards(world, copy, contract, 4) == verdict, (verb, arguments)
        assert world.info(copy)["custom_data"]["holdall.contract"] == "failed"
    # A part is another recording.
    part = world.folder / "part"
    assert world.run("filter", bag, "-o", part, "--topics", "/words").returncode == 0
    assert "holdall.contract" not in world.info(part)["custom_data"]


def test_images_that_are_recorded_as_video_are_judged_as_they_were_received(world, ffmpeg):
    image = "sensor_msgs/msg/Image"
    bag = world.folder / "bag"
    contract = contract_in(
        world,
        f"version: 1\ntopics: {{/camera: {{required: true, type: {image}, rate: {{min: 5, window: 2s}}, image: {{encoding: rgb8, width: 320, height: 240, saturated: 1%}}, frozen: 2, frame: camera, size: {{min: 200kB}}}}}}",
    )
    talker = world.talker({"topic": "/camera", "type": image, "width": 320, "height": 240, "count": 120, "rate_hz": 30, "qos": {"depth": 100}})
    recorder = world.holdall("record", "-a", "-o", bag, "--json", "--video", "/camera=h264,preset=ultrafast", "--contract", contract)
    talker.done()
    code, said = recorder.stop()
    assert code == 4, said
    live = report_of(said)["contract"]["verdict"]
    assert wrong(live) == [("image", "/camera")] and live["violations"][0]["text"].endswith("% of the pixels are saturated"), live
    assert {rule["outcome"] for rule in live["rules"] if rule["kind"] != "image"} == {"passed"}, live
    found = by_rule(afterwards(world, bag, contract, 0))
    reason = f"its messages are recorded as foxglove_msgs/msg/CompressedVideo: the verdict of the recording is about {image}"
    for kind in ("required", "type", "rate"):
        assert found.pop((kind, "/camera")) == ("passed", None), kind
    assert set(found.values()) == {("unknown", reason)}, found
