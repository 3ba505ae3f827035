"""Episodes: started, stopped and discarded by requests, in the bag as records that pip mcap reads, and whole when the recorder was killed."""

import json
import signal

import pytest
from mcap.reader import make_reader
from served import ask as ask_page
from served import served, until

STRING = "std_msgs/msg/String"


@pytest.fixture
def recording(world):
    talker = world.talker({"topic": "/chatter", "type": STRING, "count": 3000, "rate_hz": 200, "qos": {"depth": 10}})
    talker.wait_for("ready")
    socket = world.folder / "s"

    def start(name, *arguments):
        program = world.holdall("record", "--topics", "/chatter", "-o", world.folder / name, "--control-socket", socket, *arguments)
        program.wait_until_says("Listening for topics...")
        return program

    return start


def ask(world, *words, code=0):
    done = world.run("control", world.folder / "s", "episode", *words)
    assert done.returncode == code, done
    return json.loads(done.stdout) if code == 0 else done.stderr


def more_messages(world, count):
    """Returns when so many more messages were recorded."""

    def recorded():
        return json.loads(world.run("control", world.folder / "s", "status").stdout)["status"]["recorded"]

    before = recorded()
    until(lambda: recorded() >= before + count, f"{count} more messages")


def three(world):
    """Three episodes, of which the second one is discarded and the third one runs; returns the times of their requests."""
    assert "no episode runs" in ask(world, "stop", code=2)
    times = [ask(world, "start", "task=pick cup", "operator=ana", "shift=3")["time"]]
    assert "an episode runs since" in ask(world, "start", code=2)
    more_messages(world, 60)
    times.append(ask(world, "stop", "outcome=success")["time"])
    times.append(ask(world, "start", "task=place")["time"])
    more_messages(world, 60)
    times.append(ask(world, "discard", "reason=slipped")["time"])
    assert "is not a field" in ask(world, "start", "a-b=1", code=2)
    times.append(ask(world, "start", "task=pour")["time"])
    more_messages(world, 60)
    return times


def ends(world, bag):
    return [(episode["number"], episode["end"]) for episode in world.info(bag)["episodes"]]


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_episodes_are_in_the_bag(world, recording, storage):
    program = recording("lab", "-s", storage)
    times = three(world)
    code, said = program.stop()
    assert code == 0, said
    bag = world.folder / "lab"
    first, second, third = world.info(bag)["episodes"]
    assert (first["start_ns"], first["end_ns"], first["end"]) == (times[0], times[1], "stopped")
    assert first["fields"] == {"task": "pick cup", "operator": "ana", "shift": "3", "outcome": "success"}
    assert (second["start_ns"], second["end_ns"], second["end"]) == (times[2], times[3], "discarded")
    assert second["fields"] == {"task": "place", "reason": "slipped"}
    # It ends with the recording.
    assert (third["start_ns"], third["end"]) == (times[4], "stopped") and third["end_ns"] > times[4]
    shown = world.run("info", bag).stdout
    assert "Episodes" in shown and "task: pick cup, outcome: success" in shown
    assert world.run("check", bag).returncode == 0
    copied = world.folder / "copy"
    assert world.run("convert", bag, "-s", "sqlite3" if storage == "mcap" else "mcap", "-o", copied).returncode == 0
    assert world.info(copied)["episodes"] == world.info(bag)["episodes"]
    # A catalog finds the bag by what is true of one episode.
    assert world.run("catalog", bag, "-o", world.folder / "catalog").returncode == 0
    for expression, is_found in (('task = "pick cup" and outcome = "success"', True), ('task = "place" and outcome = "success"', False), ('episode_state = "discarded" and episode = 2', True)):
        assert world.run("find", expression, world.folder / "catalog").stdout.split() == [str(bag)] * is_found, expression
    # And its page lists them.
    web = world.holdall("web", world.folder, "127.0.0.1:0", "--foxglove", "127.0.0.1:0")
    address = served(web, "bags: ")
    until(lambda: any(one["name"] == "lab" for one in json.loads(ask_page(address, "GET", "/api/bags")[1])["bags"]), "the bag in the list")
    drawn = until(lambda: json.loads(ask_page(address, "POST", "/api/timeline", {"bag": "lab"})[1]).get("result"), "the timeline")
    listed = [text for _, text in drawn["episodes"]]
    assert len(listed) == 3 and listed[0].endswith(" s, stopped, task: pick cup, outcome: success, operator: ana, shift: 3") and listed[1].startswith("2: "), listed
    if storage == "mcap":
        with open(next(bag.glob("*.mcap")), "rb") as stream:
            records = [record.metadata for record in make_reader(stream).iter_metadata() if record.name == "holdall:marker"]
        assert [record["episode"] for record in records] == ["start", "stop", "start", "discard", "start", "stop"]
        assert records[1]["episode_start"] == str(times[0]) and records[1]["episode.outcome"] == "success"


def test_a_killed_recorder_leaves_an_episode_whose_end_is_unknown(world, recording):
    program = recording("lab")
    three(world)
    # A file that is read has the moment when the last episode started.
    until(lambda: len(world.info(world.folder / "lab").get("episodes", [])) == 3, "the third episode in the bag")
    program.stop(signal.SIGKILL)
    bag = world.folder / "lab"
    wanted = [(1, "stopped"), (2, "discarded"), (3, "unknown")]
    assert ends(world, bag) == wanted
    assert "end unknown: not in the bag" in world.run("info", bag).stdout
    world.repair(bag)
    assert ends(world, bag) == wanted


def test_a_recorder_that_waits_for_events_has_no_episodes(world, recording):
    program = recording("lab", "--before", "1")
    assert "waits for events" in ask(world, "start", code=2)
    program.stop()


def messages(file):
    with open(file, "rb") as stream:
        return [message.log_time for _, _, message in make_reader(stream).iter_messages()]


def test_an_episode_is_a_file_and_a_playback_and_a_part_of_a_dataset(world, recording):
    program = recording("lab")
    three(world)
    code, said = program.stop()
    assert code == 0, said
    bag = world.folder / "lab"
    episodes = world.info(bag)["episodes"]
    # Files: before, an episode, between, an episode, between, an episode.
    done = world.run("split", bag, "--by", "episode", "--no-latched-state", "-o", world.folder / "parts")
    assert done.returncode == 0, done.stderr
    files = [messages(file) for file in sorted((world.folder / "parts").glob("*.mcap"), key=lambda file: int(file.stem.rsplit("_", 1)[1]))]
    assert sum(map(len, files)) == world.info(bag)["message_count"]
    for episode in episodes:
        inside = [times for times in files if times and all(episode["start_ns"] <= time <= episode["end_ns"] for time in times)]
        assert len(inside) == 1 and len(inside[0]) > 20, (episode, list(map(len, files)))
    assert world.info(world.folder / "parts")["episodes"] == episodes
    # Playback.
    played = world.run("play", bag, "--episode", "2", "--rate", "10", "--json")
    assert played.returncode == 0, played.stderr
    second = [time for times in files for time in times if episodes[1]["start_ns"] <= time <= episodes[1]["end_ns"]]
    assert json.loads(played.stdout)["published"] == len(second), played.stdout
    assert "episode 4 is none of its 3 episodes" in world.run("play", bag, "--episode", "4").stderr
    # Training takes those that were stopped, or those with an outcome.
    for more, tasks in (("", ["pick cup", "pour"]), (", outcome: success", ["pick cup"])):
        mapping = world.folder / "map.yaml"
        mapping.write_text(f"fps: 10\nepisodes: {{by: episode, is_task: true{more}}}\nfeatures:\n  said: {{topic: /chatter, fields: [data], dtype: string}}\n")
        output = world.folder / f"dataset{len(tasks)}"
        done = world.run("export", bag, "-f", "lerobot", "--mapping", mapping, "-o", output)
        assert done.returncode == 0, done.stderr
        rest = 3 - len(tasks)
        assert f"left out: {rest} episode{'s' if rest > 1 else ''} discarded" in done.stdout, done.stdout
        assert json.loads((output / "meta/info.json").read_text())["total_episodes"] == len(tasks)


@pytest.mark.parametrize("packed", [(), ("--compression-mode", "message", "--compression-format", "zstd")])
def test_the_values_of_a_topic_start_and_stop_episodes(world, packed):
    talker = world.talker({"topic": "/chatter", "type": STRING, "count": 255, "rate_hz": 200, "qos": {"depth": 255}})
    talker.wait_for("ready")
    when = '/chatter: data =~ "^hello [0-9]*5[0-9]$"'
    program = world.holdall("record", "--topics", "/chatter", "-o", world.folder / "lab", "--episode-when", when, *packed)
    program.wait_until_says("Listening for topics...")
    talker.done()
    code, said = program.stop()
    assert code == 0, said
    bag = world.folder / "lab"
    episodes = world.info(bag)["episodes"]
    assert [episode["end"] for episode in episodes] == ["stopped"] * 3, said
    lines = [json.loads(line) for line in world.run("cat", "--json", bag).stdout.splitlines()]
    spans = [[line["message"]["data"] for line in lines if episode["start_ns"] <= line["log_time"] <= episode["end_ns"]] for episode in episodes]
    # Each from the first message for which it holds until the first for which it does not, or the end.
    assert spans == [[f"hello {number}" for number in numbers] for numbers in (range(50, 61), range(150, 161), range(250, 255))]
    assert world.run("check", bag).returncode == 0


def test_conditions_that_start_no_episodes_are_refused_or_named(world, recording):
    for condition, reason in (("/chatter silent 2s", "expression over its fields"), ("/chatter: data ==", "expected a value")):
        done = world.run("record", "-a", "-o", world.folder / "no", "--episode-when", condition)
        assert done.returncode == 2 and reason in done.stderr, done.stderr
    done = world.run("record", "-a", "-o", world.folder / "no", "--episode-when", "/a: b", "--trigger", "/c: d")
    assert done.returncode == 2 and "episodes are for recordings of everything" in done.stderr, done.stderr
    program = recording("lab", "--episode-when", "/chatter: speed > 2")
    program.wait_until_says("it starts no episodes")
    more_messages(world, 20)
    assert program.stop()[0] == 0
    assert "episodes" not in world.info(world.folder / "lab") or not world.info(world.folder / "lab")["episodes"]
