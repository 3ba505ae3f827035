"""The services of the recorder's and the player's node, called by real clients: rclpy on Fast DDS of Jazzy and of Kilted, and Cyclone DDS."""

import json

import pytest
from conftest import Node
from test_play import write_with_pip_mcap

RECORDER = "/rosbag2_recorder"
CLIENTS = ["rclpy", "kilted", "cyclone"]


def of_recorder(name, kind, request=None, **more):
    package = "holdall_interfaces" if kind in ("AddMarker", "ChangeEpisode", "GetStatistics") else "rosbag2_interfaces"
    return {"service": f"{RECORDER}/{name}", "type": f"{package}/srv/{kind}", "request": request or {}, **more}


def replies(answers):
    for answer in answers:
        assert answer["answered"] == len(answer["milliseconds"]) and answer["there"], answer
    return [answer["reply"] for answer in answers]


def recording(world, *arguments):
    program = world.holdall("record", "--all-topics", "-o", world.folder / "lab", *arguments)
    program.wait_until_says("Listening for topics...")
    return program


def said_no(reply):
    return reply["return_code"] != 0 and reply["error_string"]


@pytest.mark.parametrize("client", CLIENTS)
def test_every_service_of_the_recorder_answers(world, client):
    program = recording(world)
    done = {"return_code": 0, "error_string": ""}
    empty = {"structure_needs_at_least_one_member": 0}
    talker = world.talker({"topic": "/chatter", "type": "std_msgs/msg/String", "count": None, "rate_hz": 50})
    program.wait_until_says("recording /chatter")
    answers = replies(
        world.calls(
            client,
            of_recorder("is_paused", "IsPaused"),
            of_recorder("pause", "Pause"),
            of_recorder("is_paused", "IsPaused"),
            of_recorder("resume", "Resume"),
            of_recorder("is_paused", "IsPaused"),
            of_recorder("split_bagfile", "SplitBagfile"),
            of_recorder("snapshot", "Snapshot"),
            of_recorder("is_discovery_running", "IsDiscoveryRunning"),
            of_recorder("stop_discovery", "StopDiscovery"),
            of_recorder("is_discovery_running", "IsDiscoveryRunning"),
            of_recorder("start_discovery", "StartDiscovery"),
            of_recorder("is_recording", "IsRecording"),
            of_recorder("get_uri", "GetUri"),
            of_recorder("get_subscribed_topics", "GetSubscribedTopics"),
            of_recorder("subscribe_to_topics", "SubscribeToTopics", {"topics": ["/chatter", "/none"]}),
            of_recorder("get_statistics", "GetStatistics"),
            of_recorder("add_marker", "AddMarker", {"name": "curb"}),
            of_recorder("change_episode", "ChangeEpisode", {"change": "start", "fields": ["task=pick cup", "operator=ana"]}),
            of_recorder("change_episode", "ChangeEpisode", {"change": "start"}),
            of_recorder("change_episode", "ChangeEpisode", {"change": "discard", "fields": ["reason=slipped"]}),
            of_recorder("change_episode", "ChangeEpisode", {"change": "end", "fields": ["x"]}),
        )
    )
    assert answers[:3] == [{"paused": False}, empty, {"paused": True}]
    assert answers[3:7] == [done, {"paused": False}, done, {"success": False}]
    assert answers[7:11] == [{"running": True}, done, {"running": False}, done]
    assert answers[11:13] == [{"recording": True}, {"uri": str(world.folder / "lab")}]
    assert "/chatter" in answers[13]["topics"]
    assert answers[14]["subscribed_topics"] == ["/chatter"] and answers[14]["unavailable_topics"] == ["/none"]
    statistics = json.loads(answers[15]["json"])
    assert answers[15]["recording"] and statistics["topics"]["/chatter"]["recorded"] > 0
    assert answers[16] == {"success": True, "message": ""}
    assert [answer["success"] for answer in answers[17:]] == [True, False, True, False]
    assert "an episode runs since" in answers[18]["message"] and "start, stop or discard" in answers[20]["message"], answers
    code, said = program.stop()
    assert code in (0, 3), said
    assert len(list((world.folder / "lab").glob("*.mcap"))) == 2, said
    [episode] = world.info(world.folder / "lab")["episodes"]
    assert episode["end"] == "discarded" and episode["fields"] == {"task": "pick cup", "operator": "ana", "reason": "slipped"}
    talker.interrupt()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_hundred_calls_and_the_first_of_fresh_clients_are_answered(world, client):
    program = recording(world)
    [answer] = world.calls(client, of_recorder("is_paused", "IsPaused", count=100))
    took = sorted(answer["milliseconds"])
    print(f"{client}: 100 calls, median {took[50]:.2f} ms, p99 {took[98]:.2f} ms")
    assert answer["answered"] == 100
    [answer] = world.calls(client, of_recorder("is_paused", "IsPaused"), fresh=5)
    assert (answer["there"], answer["answered"]) == (5, 5), answer["milliseconds"]
    assert program.stop()[0] == 0


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_that_are_killed_in_the_middle_of_calls_harm_no_one(world, client):
    program = recording(world)
    calls = [of_recorder("is_paused", "IsPaused"), of_recorder("get_statistics", "GetStatistics", count=10**9)]
    for _ in range(3):
        victim = world.caller(client, *calls)
        # From now on it calls again and again.
        victim.wait_for("answered")
        victim.process.kill()
        victim.process.wait()
    [answer] = world.calls(client, of_recorder("is_paused", "IsPaused", count=20))
    assert answer["answered"] == 20, answer["milliseconds"]
    code, said = program.stop()
    assert code == 0, said


def test_requests_that_make_no_sense_are_refused_and_the_recording_continues(world):
    program = recording(world)
    far = {"sec": 2**31 - 1, "nanosec": 0}
    answers = replies(
        world.calls(
            "rclpy",
            of_recorder("resume", "Resume", {"resume_time": far, "resume_mode": 7}),
            of_recorder("split_bagfile", "SplitBagfile", {"split_time": far, "split_mode": 2, "tracking_topic_name": "/none"}),
            of_recorder("record", "Record", {"uri": "next"}),
            of_recorder("record", "Record", {"uri": "next", "start_time": {"sec": -5, "nanosec": 0}}),
            of_recorder("subscribe_to_topics", "SubscribeToTopics", {"topics": ["/a", "/b"], "topic_types": ["x/msg/Y"]}),
            of_recorder("subscribe_to_topics", "SubscribeToTopics", raw="ffffffff"),
            of_recorder("subscribe_to_topics", "SubscribeToTopics", raw="02000000ffffff7f00"),
            of_recorder("add_marker", "AddMarker"),
        )
    )
    assert all(said_no(answer) for answer in answers[:7]), answers
    assert not answers[7]["success"] and answers[7]["message"]
    code, said = program.stop()
    assert code == 0, said
    assert "the request cannot be read" in said and "resume_mode 7 is not offered" in said, said


def test_a_stopped_recording_leaves_its_node_which_records_again(world):
    program = recording(world)
    second = str(world.folder / "second")
    answers = replies(
        world.calls(
            "rclpy",
            of_recorder("stop", "Stop"),
            of_recorder("stop", "Stop"),
            of_recorder("is_recording", "IsRecording"),
            of_recorder("get_uri", "GetUri"),
            of_recorder("resume", "Resume"),
            of_recorder("record", "Record", {"uri": str(world.folder / "lab")}),
            of_recorder("record", "Record", {"uri": second}),
            of_recorder("is_recording", "IsRecording"),
            of_recorder("get_uri", "GetUri"),
        )
    )
    assert answers[0]["return_code"] == 0 and said_no(answers[1])
    assert answers[2:4] == [{"recording": False}, {"uri": ""}]
    assert said_no(answers[4]) and said_no(answers[5]), "its bag exists"
    assert answers[6] == {"return_code": 0, "error_string": ""}
    assert answers[7:] == [{"recording": True}, {"uri": second}]
    talker = world.talker({"topic": "/again", "type": "std_msgs/msg/String", "count": None, "rate_hz": 50})
    program.wait_until_says("recording /again")
    replies(world.calls("rclpy", of_recorder("stop", "Stop")))
    assert (world.folder / "second" / "metadata.yaml").exists()
    code, said = program.stop()
    assert code in (0, 3), said
    assert said.count("recorded ") >= 2 and "waiting for the service record" in said, said
    talker.interrupt()


def test_two_recorders_of_one_name_say_so(world):
    first = recording(world)
    second = world.holdall("record", "--all-topics", "-o", world.folder / "other")
    second.wait_until_says("another node is named /rosbag2_recorder")
    first.wait_until_says("another node is named /rosbag2_recorder")
    assert first.stop()[0] == 0 and second.stop()[0] == 0


def test_parameters_are_listed_and_read_only(world):
    program = recording(world, "-b", "10MB")
    answers = replies(
        world.calls(
            "rclpy",
            {"service": f"{RECORDER}/list_parameters", "type": "rcl_interfaces/srv/ListParameters", "request": {}},
            {"service": f"{RECORDER}/get_parameters", "type": "rcl_interfaces/srv/GetParameters", "request": {"names": ["use_sim_time"]}},
        )
    )
    assert {"use_sim_time", "storage.max_bagfile_size"} <= set(answers[0]["result"]["names"])
    assert answers[1]["values"][0]["type"] == 1
    assert program.stop()[0] == 0


PLAYER = "/rosbag2_player"
START = 1_700_000_000


def of_player(name, kind, request=None, **more):
    return {"service": f"{PLAYER}/{name}", "type": f"rosbag2_interfaces/srv/{kind}", "request": request or {}, **more}


def at(seconds):
    return {"sec": seconds, "nanosec": 0}


def a_bag(world, seconds=600, files=1):
    """A message each second, in one file or in several of one bag."""
    bag = world.folder / "bag"
    for number in range(files):
        first = number * seconds // files
        messages = [((START + second) * 10**9, f"x{second}") for second in range(first, (number + 1) * seconds // files)]
        write_with_pip_mcap(world.folder / f"part{number}.mcap", {"/x": messages})
    if files == 1:
        return world.folder / "part0.mcap"
    bag.mkdir()
    for number in range(files):
        (world.folder / f"part{number}.mcap").rename(bag / f"bag_{number}.mcap")
    assert world.run("reindex", bag).returncode == 0
    return bag


@pytest.mark.parametrize("client", CLIENTS)
def test_every_service_of_the_player_answers(world, client):
    player = world.holdall("play", a_bag(world), "--start-paused")
    player.wait_until_says("playing /x")
    done = {"return_code": 0, "error_string": ""}
    yes, no = {"success": True}, {"success": False}
    answers = replies(
        world.calls(
            client,
            of_player("is_paused", "IsPaused"),
            of_player("play_next", "PlayNext"),
            of_player("burst", "Burst", {"num_messages": 5}),
            of_player("get_rate", "GetRate"),
            of_player("set_rate", "SetRate", {"rate": 2.5}),
            of_player("get_rate", "GetRate"),
            of_player("set_rate", "SetRate", {"rate": 0.0}),
            of_player("set_rate", "SetRate", {"rate": -1.0}),
            of_player("set_rate", "SetRate", {"rate": float("nan")}),
            of_player("resume", "Resume"),
            of_player("is_paused", "IsPaused"),
            of_player("play_next", "PlayNext"),
            of_player("burst", "Burst", {"num_messages": 5}),
            of_player("pause", "Pause"),
            of_player("is_paused", "IsPaused"),
            of_player("toggle_paused", "TogglePaused"),
            of_player("is_paused", "IsPaused"),
            of_player("play", "Play"),
            of_player("stop", "Stop"),
        )
    )
    assert answers[:3] == [{"paused": True}, yes, {"actually_burst": 5}]
    assert answers[3:9] == [{"rate": 1.0}, yes, {"rate": 2.5}, no, no, no]
    assert answers[9:13] == [done, {"paused": False}, no, {"actually_burst": 0}]
    assert [answers[14], answers[16]] == [{"paused": True}, {"paused": False}]
    assert answers[17:] == [no, done]
    code, said = player.wait()
    assert "the rate must be a number above zero" in said, said
    assert "zero play nothing" in said, said


def test_seeks_go_where_they_are_asked_or_say_no(world):
    player = world.holdall("play", a_bag(world), "--start-paused")
    player.wait_until_says("playing /x")
    answers = replies(
        world.calls(
            "rclpy",
            of_player("seek", "Seek", {"time": at(START + 300)}),
            of_player("seek", "Seek", {"time": at(0)}),
            of_player("seek", "Seek", {"time": at(-1)}),
            of_player("seek", "Seek", {"time": at(2**31 - 1)}),
            of_player("seek", "Seek", raw="0102"),
            of_player("burst", "Burst"),
        )
    )
    assert [answer["success"] for answer in answers[:5]] == [True, True, False, False, False]
    assert answers[5] == {"actually_burst": 600}, "0 plays all, from where the last seek went"
    player.stop()


def test_the_next_file_of_a_bag_is_published_as_an_event(world):
    listener = world.events_listener({"topic": "/events/read_split", "type": "rosbag2_interfaces/msg/ReadSplitEvent"})
    listener.wait_for("ready")
    # What is read ahead of the first message is published before anything is matched.
    player = world.holdall("play", a_bag(world, 60, files=3), "--start-paused", "--read-ahead-queue-size", "3")
    player.wait_until_says("playing /x")
    back = of_player("seek", "Seek", {"time": at(0)})
    replies(world.calls("rclpy", of_player("burst", "Burst", {"num_messages": 55}), back, of_player("burst", "Burst", {"num_messages": 55})))
    heard = bytes.fromhex(listener.wait_for("heard")["data"])
    assert heard.count(b"/bag_") == 2 and b"/rosbag2_player" in heard, heard
    player.stop()


def test_nodes_have_the_names_that_they_are_given(world):
    player = world.holdall("play", a_bag(world), "--start-paused", "--node-name", "mine")
    player.wait_until_says("playing /x")
    [answer] = world.calls("rclpy", {"service": "/mine/is_paused", "type": "rosbag2_interfaces/srv/IsPaused", "request": {}})
    assert answer["reply"] == {"paused": True}
    player.stop()
    recorder = world.holdall("record", "--topics", "chatter", "-o", world.folder / "named", "--ros-args", "-r", "__ns:=/robot", "-r", "__node:=rec")
    recorder.wait_until_says("Listening for topics...")
    talker = world.talker({"topic": "/robot/chatter", "type": "std_msgs/msg/String", "count": None, "rate_hz": 50})
    recorder.wait_until_says("recording /robot/chatter")
    [answer] = world.calls("rclpy", {"service": "/robot/rec/is_paused", "type": "rosbag2_interfaces/srv/IsPaused", "request": {}})
    assert answer["reply"] == {"paused": False}
    talker.interrupt()
    assert recorder.stop()[0] == 0
    refused = world.run("play", a_bag(world), "--node-name", "no name")
    assert refused.returncode == 2 and "--node-name" in refused.stderr


def test_services_without_introspection_are_named_in_log_report_and_info(world):
    world._keep(Node("service_node.py", {"serve": "/twice"}, world.env)).wait_for("ready")
    recorder = world.holdall("record", "-a", "-o", world.folder / "bag", "--disable-keyboard-controls", "--json")
    recorder.wait_until_says("1 service without introspection: their calls are not in the bag: /twice")
    code, said = recorder.stop()
    assert code == 0 and said.count("without introspection") == 1, said
    assert world.info(world.folder / "bag")["services_without_introspection"] == ["/twice"]
    shown = world.run("info", world.folder / "bag").stdout
    assert "No introspection:  /twice" in shown, shown
    # A copy says it too.
    assert world.run("convert", world.folder / "bag", "-o", world.folder / "copy", "-s", "sqlite3").returncode == 0
    assert world.info(world.folder / "copy")["services_without_introspection"] == ["/twice"]
