"""`holdall web`: a folder of bags and what records on this machine, in a real browser; what is given is what is stored."""

import hashlib
import io
import json
import os
import re
import shutil
import struct
import tarfile
import tempfile
import time
from urllib.parse import quote

import pytest
import zstandard
from buckets import SERVER
from conftest import DEADLINE_S, messages_of
from served import ask_bytes as ask
from served import served as served_at
from served import until
from test_foxglove import Viewer
from test_tools import bytes_read, write_large
from test_web import STRING


def get(address, path):
    code, content = ask(address, "GET", path)
    assert code == 200, (path, content)
    return json.loads(content)


@pytest.fixture(autouse=True)
def private_runtime(world):
    """What runs is found in a folder that other tests do not use; its path is short, because it is part of a socket's."""
    with tempfile.TemporaryDirectory(prefix="run", dir="/tmp", ignore_cleanup_errors=True) as runtime:
        world.env["XDG_RUNTIME_DIR"] = runtime
        world.env["TMPDIR"] = runtime
        yield


def bags_of(world):
    """A folder with a bag of two topics, three files and a marker, which this returns."""
    folder = world.folder / "bags"
    folder.mkdir()
    talker = world.talker({"topic": "/imu", "type": STRING, "count": 300, "rate_hz": 100}, {"topic": "/lidar", "type": STRING, "count": 60, "rate_hz": 20})
    talker.wait_for("ready")
    socket = world.folder / "rec.sock"
    recorder = world.holdall("record", "--topics", "/imu", "/lidar", "-o", folder / "läb 1", "--control-socket", socket)
    recorder.wait_until_says("Listening")
    for request in (("split_bagfile",), ("add_marker", "dock <b>"), ("split_bagfile",)):
        until(lambda: json.loads(world.run("control", socket, "status").stdout)["status"]["recorded"] > 50, "messages")
        assert world.run("control", socket, *request).returncode == 0
    talker.done()
    code, said = recorder.stop()
    assert code == 0, said
    return folder


def served(world, folder):
    web = world.holdall("web", folder, "127.0.0.1:0", "--foxglove", "127.0.0.1:0")
    return web, served_at(web, "bags: ")


def test_a_timeline_comes_from_the_index(world):
    folder = world.folder / "bags"
    folder.mkdir()
    write_large(folder / "large.mcap")
    web, address = served(world, folder)
    until(lambda: get(address, "/api/bags")["bags"], "the bag in the list")
    before = bytes_read(web.process.pid)
    drawn = until(lambda: json.loads(ask(address, "POST", "/api/timeline", {"bag": "large.mcap"})[1]).get("result"), "the timeline")
    lanes = {lane["name"]: lane for lane in drawn["lanes"]}
    assert [lanes[name]["messages"] for name in ("/early", "/steady")] == [80, 320]
    heights = [height for run in lanes["/early"]["h"] for height in ([run[1]] * run[0] if isinstance(run, list) else [run])]
    assert len(heights) == drawn["columns"] and set(heights[320:]) == {0} and lanes["/steady"]["gaps"] == []
    assert bytes_read(web.process.pid) - before < 8_000_000


def test_bags_recorders_and_playbacks_in_a_browser(world, browser):
    folder = bags_of(world)
    os.symlink("/etc", folder / "etc")
    web, address = served(world, folder)
    talker = world.talker({"topic": "/live", "type": STRING, "count": None, "rate_hz": 50})
    talker.wait_for("ready")
    recorder = world.holdall("record", "--topics", "/live", "-o", world.folder / "live")
    browser.look(1280, 900, "light")
    browser.open(address.link)
    until(lambda: browser.script("document.querySelectorAll('#rows tr').length") == 1, "the bag in the list")
    row = browser.script("document.getElementById('rows').textContent")
    assert "läb 1" in row and "complete" in row, row
    # A busy disk stalls a recording for a moment.
    until(lambda: re.search("● (recording|stalled)", browser.script("document.getElementById('now').textContent")), "the recording")
    # Its dashboard is here too, and steers it.
    until(lambda: get(address, f"/running/{recorder.process.pid}/api/status")["status"]["recorded"] > 3, "messages of the recording")
    code, _ = ask(address, "POST", f"/running/{recorder.process.pid}/api/add_marker", {"name": "from afar"})
    assert code == 200
    # The bag: lanes, files, check, download.
    browser.script("document.querySelector('#rows tr').click()")
    until(lambda: browser.script("document.querySelectorAll('#lanes canvas').length") == 3, "the lanes")
    drawn = browser.script("JSON.stringify([drawn.lanes.map(t => [t.name, t.messages]), drawn.markers.map(m => m[1]), drawn.splits.length])")
    topics, markers, splits = json.loads(drawn)
    stored = messages_of(folder / "läb 1")
    assert dict(topics) == {topic: len(messages) for topic, messages in stored.items()}
    assert markers == ["dock <b>"] and splits == 2
    browser.script("document.getElementById('do-check').click()")
    until(lambda: "nothing is wrong" in browser.script("document.getElementById('report').textContent"), "the check")
    for width, height in ((390, 844), (1280, 900), (2560, 1440)):
        for scheme in ("light", "dark"):
            browser.look(width, height, scheme, width < 500)
            # A phone would widen its window to what does not fit.
            wide = browser.script("document.documentElement.scrollWidth") - width
            assert wide <= 0, f"{width} {scheme}: the page is {wide} pixels too wide"
            if pictures := os.environ.get("HOLDALL_PICTURES"):
                from pathlib import Path

                browser.photograph(Path(pictures) / f"bag-{width}-{scheme}.png")
                browser.script("location.hash = ''")
                time.sleep(0.5)
                browser.photograph(Path(pictures) / f"folder-{width}-{scheme}.png")
                browser.script("location.hash = encodeURIComponent('läb 1')")
                until(lambda: browser.script("document.querySelectorAll('#lanes canvas').length") == 3, "the lanes")
    # Play it to viewers: a question first, then the link, and a real viewer gets the bag.
    browser.script("document.getElementById('do-play').click()")
    browser.script("document.querySelector('#ask-choice button[value=viewers]').click()")
    link = until(lambda: (get(address, "/api/folder")["playback"] or {}).get("link"), "a playback")
    viewer = Viewer(link)
    viewer.take("/imu")
    start = viewer.info["dataStartTime"]
    viewer.steer(True, 10.0, start["sec"] * 1_000_000_000 + start["nsec"])
    viewer.until(lambda: len(viewer.messages.get("/imu", [])) >= len(stored["/imu"]), "the bag's messages")
    assert viewer.payloads("/imu") == stored["/imu"]
    viewer.socket.close()
    # Its state is sampled twice a second.
    until(lambda: get(address, "/playback/now/api/status")["status"]["published"] > 0, "messages in the playback's state")
    until(lambda: browser.script("document.getElementById('end-playback') !== null"), "the button that ends it")
    foxglove = browser.script("document.getElementById('open-foxglove').href")
    assert foxglove == f"https://app.foxglove.dev/~/view?ds=foxglove-websocket&ds.url={quote(link, safe='')}", foxglove
    assert quote(link, safe="") in browser.script("document.getElementById('open-lichtblick').href")
    browser.script("document.getElementById('end-playback').click()")
    until(lambda: get(address, "/api/folder")["playback"] is None, "the end of the playback")
    assert not [e for e in browser.events if e.get("method") == "Runtime.exceptionThrown"], browser.events
    code, said = recorder.stop()
    assert code == 0, said
    assert "from afar" in json.dumps(world.info(world.folder / "live"))
    until(lambda: not get(address, "/api/folder")["running"], "the end of the recording")
    code, said = web.stop()
    assert code == 0, said


def test_a_page_that_is_opened_late_shows_the_whole_recording(world, browser):
    talker = world.talker({"topic": "/live", "type": STRING, "count": None, "rate_hz": 50})
    talker.wait_for("ready")
    recorder = world.holdall("record", "--topics", "/live", "-o", world.folder / "live")
    recorder.wait_until_says("Listening")
    begun = time.time()
    process = str(recorder.process.pid)
    until(lambda: world.run("control", "add_marker", "early").returncode == 0, "the marker")
    assert world.run("control", "split_bagfile").returncode == 0
    time.sleep(3)  # What is remembered without a page.
    (world.folder / "none").mkdir()
    web, address = served(world, world.folder / "none")
    browser.look(1280, 900, "light")
    browser.open(address.link)
    until(lambda: browser.script(f"[...document.querySelectorAll('#now a')].some(a => a.href.includes('running/{process}/'))"), "the recording")
    browser.open(f"http://{address[0]}:{address[1]}/running/{process}/")
    events = "document.getElementById('events').textContent"
    until(lambda: "early" in browser.script(events) and "live_1.mcap begins" in browser.script(events), "events of the time before")
    past = get(address, f"/running/{process}/api/history")["past"]
    assert abs(past["start_ms"] / 1000 - begun) < 3 and past["step_ms"] == 500
    assert len(past["figures"]["lost"]) >= 6 and max(past["figures"]["bytes_per_s"]) > 0 and max(one or 0 for one in past["figures"]["memory"]) > 0
    assert json.loads(world.run("control", "history").stdout)["past"]["start_ms"] == past["start_ms"]
    code, said = recorder.stop()
    assert code == 0, said
    assert web.stop()[0] == 0


def test_packed_damaged_and_huge_bags_hold_up_nothing(world, browser):
    folder = bags_of(world)
    good = folder / "läb 1"
    for number in range(6):
        shutil.copytree(good, folder / f"good {number}")
    assert world.run("compress", good, "-o", folder / "packed", "--mode", "file", "--compression", "zstd").returncode == 0
    assert list((folder / "packed").glob("*.zstd"))
    # 50 GB of zeros in a file of some megabytes, in a bag with metadata and in one without.
    zeros = zstandard.compress(bytes(1 << 26)) * 800
    shutil.copytree(folder / "packed", folder / "huge")
    for path in (folder / "huge").glob("*.zstd"):
        path.write_bytes(zeros)
    (folder / "bare").mkdir()
    (folder / "bare/bare_0.mcap.zstd").write_bytes(zeros)
    for name, content in (("rubbish", os.urandom(1 << 20)), ("cut", next(good.glob("*.mcap")).read_bytes()[:3000]), ("empty", b"")):
        (folder / name).mkdir()
        (folder / name / f"{name}_0.mcap").write_bytes(content)
    web, address = served(world, folder)
    begun = time.monotonic()
    bags = until(lambda: len(found := get(address, "/api/bags")["bags"]) == 13 and all(bag["state"] != "being opened" for bag in found) and found, "the list")
    assert time.monotonic() - begun < 20
    states = {bag["name"]: bag["state"] for bag in bags}
    assert {states[f"good {number}"] for number in range(6)} == {"complete"} and states["packed"] == states["huge"] == "compressed", states
    # A packed bag is looked into as any other; the huge one is refused without filling the disk, and its job can be ended.
    browser.look(1280, 900, "light")
    browser.open(f"{address.link}#packed")
    until(lambda: browser.script("document.querySelectorAll('#lanes canvas').length") == 3, "the lanes of the packed bag")
    browser.script("lookAt(drawn.lanes[0])")
    until(lambda: browser.script("document.querySelector('.tree').textContent").strip() != "", "a message of the packed bag")
    for name in ("huge", "bare"):
        code, content = ask(address, "POST", "/api/check", {"bag": name})
        assert code == 200, content
        begun = time.monotonic()
        assert get(address, f"/api/info?bag={quote('good 3')}")["ok"] and time.monotonic() - begun < 5
        assert json.loads(ask(address, "POST", "/api/end_job", {"bag": name})[1])["ok"]
    until(lambda: "unpacks to more than" in json.dumps(json.loads(ask(address, "POST", "/api/timeline", {"bag": "huge"})[1])), "a refusal")
    for name in ("rubbish", "cut", "empty"):
        browser.script(f"location.hash = '{name}'")
        until(lambda: browser.script("document.getElementById('bag-title').textContent") == name, name)  # noqa: B023
    until(lambda: "good 5" in (browser.script("location.hash = ''; document.getElementById('rows').textContent")), "the list")
    assert not [e for e in browser.events if e.get("method") == "Runtime.exceptionThrown"], browser.events
    assert web.stop()[0] == 0


@pytest.mark.skipif(not SERVER.exists(), reason="moto is not installed: scripts/setup.sh nodes")
def test_a_bag_is_uploaded_from_its_page(world, browser, bucket):
    folder = bags_of(world)
    world.env.update({name: value for name, value in bucket.env().items() if name.startswith("AWS_")})
    web = world.holdall("web", folder, "127.0.0.1:0", "--foxglove", "127.0.0.1:0", "--allow-changes")
    address = served_at(web, "bags: ")
    browser.look(390, 844, "light", True)
    browser.open(f"{address.link}#{quote('läb 1')}")
    until(lambda: browser.script("document.getElementById('do-upload') !== null"), "the button")
    browser.script("document.getElementById('do-upload').click(); document.getElementById('ask-input').value = 's3://fleet/sent/lab'; document.getElementById('ask-yes').click()")
    report = "document.getElementById('report').textContent"
    until(lambda: "Uploaded " in browser.script(report), "the report")
    for path in (folder / "läb 1").iterdir():
        if not path.name.startswith("."):
            assert bucket.get(f"sent/lab/{quote(path.name)}") == path.read_bytes(), path
    assert web.stop()[0] == 0


def test_bags_are_searched_and_changed_only_where_that_is_allowed(world, browser):
    folder = bags_of(world)
    web, address = served(world, folder)
    until(lambda: get(address, "/api/bags")["bags"], "the bag in the list")
    assert ask(address, "POST", "/api/delete", {"bag": "läb 1", "confirm": "läb 1"})[0] == 403
    browser.look(1280, 900, "light")
    browser.open(f"{address.link}#{quote('läb 1')}")
    until(lambda: browser.script("document.getElementById('do-play') !== null"), "the bag's buttons")
    assert browser.script("document.getElementById('do-delete') === null")
    assert web.stop()[0] == 0
    web = world.holdall("web", folder, "127.0.0.1:0", "--foxglove", "127.0.0.1:0", "--allow-changes")
    address = served_at(web, "bags: ")
    browser.open(f"{address.link}#{quote('läb 1')}")

    def answer(what, text):
        until(lambda: browser.script(f"document.getElementById('do-{what}') !== null"), "the button")
        browser.script(f"document.getElementById('do-{what}').click(); document.getElementById('ask-input').value = {json.dumps(text)}; document.getElementById('ask-yes').click()")

    answer("label", "site=hall <3>; run=7")
    until(lambda: "run: 7 · site: hall <3>" in browser.script("document.getElementById('rows').textContent"), "the labels in the list")
    assert world.info(folder / "läb 1")["custom_data"]["site"] == "hall <3>"
    for words, count in (("topic:/imu label:site=hall", 1), ("topic:/scan", 0), ("type:string after:2020-01-01", 1), ("before:2020-01-01", 0), ("läb", 1), ('find:topic == "/lidar" and marker == "dock <b>"', 1), ("find:topic == \"/lidar\" and rate > 1000", 0)):
        if words.startswith("find:") and not (folder / "catalog").exists():
            assert "find: needs a catalog" in ask(address, "GET", "/api/find?text=" + quote(words))[1].decode()
            assert world.run("catalog", folder, "-o", folder / "catalog").returncode == 0
        browser.script(f"document.getElementById('filter').value = {json.dumps(words)}; document.getElementById('filter').dispatchEvent(new Event('input'))")
        until(lambda: browser.script("document.querySelectorAll('#rows tr').length") == count, words)  # noqa: B023
    browser.script(f"location.hash = encodeURIComponent({json.dumps('läb 1')})")
    answer("rename", "hall 3")
    until(lambda: (folder / "hall 3").exists(), "the new name")
    until(lambda: browser.script("document.getElementById('bag-title').textContent") == "hall 3", "its page")
    assert len(messages_of(folder / "hall 3")) == 2
    answer("delete", "something else")
    until(lambda: "must be the name" in browser.script("document.getElementById('refusal').textContent"), "a refusal")
    assert (folder / "hall 3").exists()
    answer("delete", "hall 3")
    until(lambda: not (folder / "hall 3").exists(), "the deletion")
    assert web.stop()[0] == 0


def test_a_bag_is_played_to_nodes_from_the_page(world, browser):
    folder = bags_of(world)
    web, address = served(world, folder)
    stored = messages_of(folder / "läb 1")
    topics = ("/imu", "/lidar")
    listener = world.listener(
        *[{"topic": topic, "type": STRING, "qos": {"depth": 1000}} for topic in topics], expect={topic: len(stored[topic]) for topic in topics}
    )
    listener.wait_for("ready")
    browser.look(390, 844, "dark", True)
    browser.open(f"{address.link}#{quote('läb 1')}")
    until(lambda: browser.script("document.getElementById('do-play') !== null"), "the bag's buttons")
    browser.script("document.getElementById('do-play').click()")
    choice = browser.script("document.querySelector('#ask-choice button[value=nodes]').textContent")
    assert choice == "To viewers and nodes", choice
    browser.script("document.querySelector('#ask-choice button[value=nodes]').click()")
    received = listener.done()["received"]
    for topic in topics:
        assert received[topic]["md5"] == hashlib.md5(b"".join(stored[topic])).hexdigest(), (topic, received[topic]["count"], len(stored[topic]))
    until(lambda: "to nodes and viewers" in browser.script("document.body.textContent"), "who gets it, on the page")
    assert get(address, "/api/folder")["playback"]["to"] == "nodes"
    assert ask(address, "POST", "/api/end_playback", {})[0] == 200
    until(lambda: get(address, "/api/folder")["playback"] is None, "the end of the playback")
    code, said = web.stop()
    assert code == 0, said


def test_downloads_are_the_stored_bytes_and_nothing_else_is_given(world):
    folder = bags_of(world)
    (world.folder / "secret").write_text("secret")
    (folder / "etc").symlink_to("/etc")
    (folder / "linked").mkdir()
    (folder / "linked" / "linked_0.mcap").symlink_to(folder / "läb 1" / "läb 1_0.mcap")
    web, address = served(world, folder)
    until(lambda: len(get(address, "/api/bags")["bags"]) == 2, "the list")
    bag = folder / "läb 1"
    for file in sorted(bag.iterdir()):
        code, content = ask(address, "GET", f"/api/download?bag={quote('läb 1')}&file={quote(file.name)}")
        assert (code, content) == (200, file.read_bytes())
    code, content = ask(address, "GET", f"/api/download?bag={quote('läb 1')}")
    assert code == 200
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        unpacked = {member.name: archive.extractfile(member).read() for member in archive}
    assert unpacked == {f"läb 1/{file.name}": file.read_bytes() for file in bag.iterdir()}
    for path in (
        "/api/download?bag=..%2fsecret",
        "/api/download?bag=%2e%2e%2fsecret",
        "/api/download?bag=etc&file=passwd",
        "/api/download?bag=etc",
        f"/api/download?bag={quote('läb 1')}&file=..%2f..%2fsecret",
        f"/api/download?bag={quote('läb 1')}&file=%2fetc%2fpasswd",
        "/api/info?bag=..",
        "/..%2f..%2fetc%2fpasswd",
        "/../secret",
    ):
        code, content = ask(address, "GET", path)
        assert code in (400, 404), (path, code, content)
    code, content = ask(address, "GET", "/api/download?bag=linked")
    assert code == 403 and b"symbolic links" in content
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        for method, path in (("GET", "/api/bags"), ("GET", f"/api/download?bag={quote('läb 1')}"), ("POST", "/api/play")):
            code, content = ask(address, method, path, {} if method == "POST" else None, headers)
            assert code == 403, (headers, path, code)
    code, said = web.stop()
    assert code == 0, said


def test_other_addresses_need_the_token_and_wrong_folders_are_refused(world):
    (world.folder / "bags").mkdir()
    web = world.holdall("web", world.folder / "bags", "0.0.0.0:0")
    address = served_at(web, "bags: ", host="127.0.0.1")
    assert ask(address, "GET", "/api/bags", token=False)[0] == 401
    assert ask(address, "GET", f"/?token={address.token}", token=False)[0] == 200
    assert ask(address, "GET", "/api/bags", headers={"Cookie": f"holdall_{address[1]}={address.token}"}, token=False)[0] == 200
    assert web.stop()[0] == 0
    told = world.run("web", world.folder / "none")
    assert told.returncode == 2 and "none" in told.stderr, told.stderr
    told = world.run("web", world.folder / "bags", "robot:80")
    assert told.returncode == 2 and "is not an address to listen on" in told.stderr, told.stderr


def test_viewers_call_services_and_change_parameters(world):
    recorder = world.holdall("record", "--topics", "/chatter", "-o", world.folder / "bag")
    recorder.wait_until_says("Listening")
    talker = world.talker({"topic": "/chatter", "type": STRING, "count": None, "rate_hz": 20}, node="talking")
    talker.wait_for("ready")
    bridge = world.holdall("bridge", "--foxglove", "127.0.0.1:0", "--foxglove-control")
    bridge.wait_until_says("Foxglove: ws://")
    (line,) = [line for line in bridge.lines if "Foxglove: ws://" in line]
    services, answers, failures, parameters = {}, {}, {}, []

    class Caller(Viewer):
        def read(self):
            got = self.socket.recv(timeout=DEADLINE_S)
            if isinstance(got, bytes):
                if got[0] == 3:
                    _, call, length = struct.unpack_from("<III", got, 1)
                    assert got[13 : 13 + length] == b"cdr"
                    answers[call] = got[13 + length :]
                return
            told = json.loads(got)
            match told["op"]:
                case "serverInfo":
                    self.info = told
                case "advertiseServices":
                    services.update({service["name"]: service for service in told["services"]})
                case "serviceCallFailure":
                    failures[told["callId"]] = told["message"]
                case "parameterValues":
                    parameters.append(told)
                case "status":
                    self.statuses.append(told)

        def call(self, service, number, payload, encoding=b"cdr"):
            self.socket.send(struct.pack("<BIII", 2, service, number, len(encoding)) + encoding + payload)

        def value(self, name, request):
            self.until(lambda: any(told.get("id") == request for told in parameters), f"parameters for {request}")
            (told,) = [told for told in parameters if told.get("id") == request]
            return {p["name"]: p for p in told["parameters"]}.get(name)

    seen = Caller(re.search(r"ws://\S+", line).group())
    assert {"services", "parameters", "parametersSubscribe"} <= set(seen.info["capabilities"])
    paused = "/rosbag2_recorder/is_paused"
    seen.until(lambda: {paused, "/rosbag2_recorder/pause", "/talking/list_parameters"} <= services.keys(), "services")
    about = services[paused]
    assert about["type"] == "rosbag2_interfaces/srv/IsPaused" and "bool paused" in about["response"]["schema"]
    assert about["request"]["encoding"] == "cdr" and about["request"]["schemaEncoding"] == "ros2msg"
    nothing = b"\x00\x01\x00\x00\x00"
    seen.call(about["id"], 1, nothing)
    seen.until(lambda: 1 in answers, "an answer")
    assert answers[1][4] == 0
    seen.call(services["/rosbag2_recorder/pause"]["id"], 2, nothing)
    seen.until(lambda: 2 in answers, "the pause")
    seen.call(about["id"], 3, nothing)
    seen.until(lambda: 3 in answers, "another answer")
    assert answers[3][4] == 1, "the recorder is paused"
    seen.call(9999, 4, nothing)
    seen.call(about["id"], 5, b"{}", b"json")
    seen.until(lambda: failures.keys() >= {4, 5}, "two refusals")
    assert "no service 9999" in failures[4] and "must be cdr" in failures[5]
    # Parameters: of a node of rclpy, and of the recorder.
    seen.request(op="getParameters", parameterNames=[], id="all")
    assert seen.value("/talking.use_sim_time", "all")["value"] is False
    assert seen.value("/rosbag2_recorder.storage.uri", "all")["value"] == str(world.folder / "bag")
    seen.request(op="subscribeParameterUpdates", parameterNames=["/talking.use_sim_time"])
    until_followed = time.monotonic() + DEADLINE_S
    number, value = 0, True
    # The subscription to changes is matched some time after the request.
    while not any("id" not in told for told in parameters):
        assert time.monotonic() < until_followed, "no change was reported"
        number += 1
        seen.request(op="setParameters", parameters=[{"name": "/talking.use_sim_time", "value": value}], id=f"set {number}")
        assert seen.value("/talking.use_sim_time", f"set {number}")["value"] is value
        value = not value
        if number > 1:
            # What was reported is read with the answer to a further request.
            seen.request(op="getParameters", parameterNames=["/talking.use_sim_time"], id=f"get {number}")
            seen.value("", f"get {number}")
    seen.request(op="setParameters", parameters=[{"name": "/rosbag2_recorder.storage.uri", "value": "x"}], id="refused")
    assert seen.value("/rosbag2_recorder.storage.uri", "refused")["value"] == str(world.folder / "bag")
    seen.until(lambda: any("is not changed" in status["message"] for status in seen.statuses), "the refusal")
    seen.socket.close()
    assert bridge.stop()[0] == 0
    recorder.stop()
