"""`record --web` and `play --web`: a real recording, seen and steered in a real browser, beside clients that behave badly."""

import http.client
import json
import socket

from conftest import DEADLINE_S, messages_of
from served import ask, served, until

STRING = "std_msgs/msg/String"


def status(address):
    code, text = ask(address, "GET", "/api/status")
    assert code == 200, text
    return json.loads(text)["status"]


def start(world, rates=None, count=None):
    """A node that publishes at these rates, and a recording with a dashboard that has received some of each topic."""
    rates = rates or {"/imu": 50, "/lidar": 20}
    publishers = [{"topic": topic, "type": STRING, "count": count, "rate_hz": rate} for topic, rate in rates.items()]
    talker = world.talker(*publishers)
    talker.wait_for("ready")
    recorder = world.holdall("record", "-a", "-o", world.folder / "bag", "--web", "127.0.0.1:0")
    address = served(recorder)
    until(lambda: all(status(address)["topics"].get(topic, {}).get("recorded", 0) > 3 for topic in rates), "messages")
    return talker, recorder, address


def test_state_metrics_and_requests_over_http(world):
    _, recorder, address = start(world)
    until(lambda: status(address)["topics"]["/imu"]["hz"] > 0, "a rate")
    state = status(address)
    assert state["recording"] and not state["paused"] and state["lost"] == 0
    assert state["bag"] == str(world.folder / "bag") and state["disk_available_bytes"] > 0
    assert state["topics"]["/imu"]["type"] == STRING and state["topics"]["/imu"]["qos"] == ["reliable, volatile"]
    code, text = ask(address, "GET", "/metrics")
    assert code == 200 and 'holdall_received_messages_total{topic="/imu"}' in text
    assert ask(address, "POST", "/api/pause", {})[0] == 200
    assert until(lambda: status(address)["paused"], "a pause")
    for request, arguments in (("resume", {}), ("split_bagfile", {}), ("add_marker", {"name": "door"})):
        code, text = ask(address, "POST", f"/api/{request}", arguments)
        assert code == 200, text
    until(lambda: status(address)["file"].endswith("bag_1.mcap"), "a split")
    code, text = ask(address, "POST", "/api/snapshot", {})
    assert code == 409 and "snapshot" in text
    assert ask(address, "POST", "/api/stop", {})[0] == 200
    code, said = recorder.wait()
    assert code == 0, said
    marks = world.info(world.folder / "bag").get("markers")
    assert marks and "door" in json.dumps(marks)


def test_hostile_clients_do_not_touch_the_recording(world):
    talker, recorder, address = start(world, {"/counted": 200}, count=1600)
    foreign = [
        {"Origin": "http://evil.example"},
        {"Host": "evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Content-Type": "text/plain"},
    ]
    for headers in foreign:
        code, text = ask(address, "POST", "/api/stop", {}, headers)
        assert code in (403, 415), (headers, text)
    silent = []
    for _ in range(1000):
        client = socket.create_connection(address, timeout=DEADLINE_S)
        silent.append(client)
    for garbage in (b"\x16\x03\x01" * 5000, b"GET " + b"a" * 300_000, b"POST / HTTP/1.1\r\nContent-Length: 1073741824\r\n\r\n" + b"x" * 100_000):
        client = socket.create_connection(address, timeout=DEADLINE_S)
        with client:
            try:
                client.sendall(garbage)
                client.recv(1000)
            except OSError:
                pass
    slow = socket.create_connection(address, timeout=DEADLINE_S)
    slow.sendall(b"GET /api/ev")
    # They keep no one out, although they have the time of a request.
    for _ in range(20):
        assert ask(address, "GET", "/api/status")[0] == 200
    sent = talker.done()["sent"]["/counted"][0]["count"]
    until(lambda: status(address)["topics"]["/counted"]["recorded"] == sent, "all messages")
    for client in [*silent, slow]:
        client.close()
    code, said = recorder.stop()
    assert code == 0, said
    assert len(messages_of(world.folder / "bag")["/counted"]) == sent


def test_the_page_shows_the_recording_and_its_buttons_steer_it(world, browser):
    _, recorder, address = start(world)
    browser.look(1280, 900, "light")
    browser.open(address.link)
    until(lambda: browser.script("document.querySelectorAll('#rows .hz').length >= 2"), "topics")
    assert browser.script("document.getElementById('state').textContent") == "● recording"
    assert "every message is accounted for" in browser.script("document.getElementById('cards').textContent")
    # A recording that is paused by mistake would lose messages: it asks.
    browser.script("document.getElementById('do-toggle_paused').click(); document.getElementById('ask-no').click()")
    browser.script("document.getElementById('do-toggle_paused').click(); document.getElementById('ask-yes').click()")
    until(lambda: browser.script("document.getElementById('state').textContent") == "● paused", "the pause")
    browser.script("document.getElementById('do-toggle_paused').click()")
    until(lambda: browser.script("document.getElementById('state').textContent") == "● recording", "the end of the pause")
    browser.script("document.getElementById('do-add_marker').click()")
    browser.script("document.getElementById('ask-input').value = 'dock <b>'; document.getElementById('ask-yes').click()")
    # A stop that is not confirmed is none.
    browser.script("document.getElementById('do-stop').click()")
    browser.script("document.getElementById('ask-no').click()")
    assert status(address)["recording"]
    assert browser.script("document.getElementById('refusal').hidden"), browser.script("document.getElementById('refusal').textContent")
    for width, height in ((390, 844), (1280, 900), (2560, 1440)):
        for scheme in ("light", "dark"):
            browser.look(width, height, scheme, width < 500)
            # A phone would widen its window to what does not fit.
            wide = browser.script("document.documentElement.scrollWidth") - width
            assert wide <= 0, f"{width} {scheme}: the page is {wide} pixels too wide"
    assert not [e for e in browser.events if e.get("method") == "Runtime.exceptionThrown"], browser.events
    browser.script("document.getElementById('do-stop').click()")
    browser.script("document.getElementById('ask-yes').click()")
    code, said = recorder.wait()
    assert code == 0, said
    assert "dock <b>" in json.dumps(world.info(world.folder / "bag"))


def test_the_button_of_the_page_starts_stops_and_discards_episodes(world, browser):
    _, recorder, address = start(world)
    browser.look(1280, 900, "light")
    browser.open(address.link)
    shown = "document.getElementById('state').textContent"
    answer = "document.getElementById('ask-choice').querySelector('[value=\"{}\"]').click()"
    begin = "document.getElementById('do-episode').click()"
    given = "document.getElementById('ask-input').value = '{}'; document.getElementById('ask-yes').click()"

    def ended(how, text):
        until(lambda: browser.script("document.getElementById('do-episode').textContent") == "End episode…", "the button")
        browser.script(begin)
        browser.script(answer.format(how))
        until(lambda: browser.script("!document.getElementById('ask-input').hidden && document.getElementById('ask').open"), "the question")
        browser.script(given.format(text))
        until(lambda: browser.script(shown) == "● recording", "the end of the episode")

    until(lambda: browser.script("!!document.getElementById('do-episode')"), "the page")
    for task, how, text in (("pick <b>", "stop", "success"), ("place", "discard", "slipped")):
        browser.script(begin)
        browser.script(given.format(task))
        until(lambda task=task: browser.script(shown) == f"● recording · episode “{task}” runs", "the episode")
        assert status(address)["episode"]["fields"] == {"task": task}
        ended(how, text)
    assert not [e for e in browser.events if e.get("method") == "Runtime.exceptionThrown"], browser.events
    assert recorder.stop()[0] == 0
    episodes = world.info(world.folder / "bag")["episodes"]
    assert [(episode["end"], episode["fields"]) for episode in episodes] == [
        ("stopped", {"task": "pick <b>", "outcome": "success"}),
        ("discarded", {"task": "place", "reason": "slipped"}),
    ]


def test_live_messages_figures_and_events_are_seen(world, browser):
    _, recorder, address = start(world)
    browser.look(1280, 900, "light")
    browser.open(address.link)
    until(lambda: browser.script("document.querySelectorAll('#rows .hz').length >= 2"), "topics")
    where = until(lambda: "processors busy" in (text := browser.script("document.getElementById('where').textContent")) and text, "the load")
    assert socket.gethostname() in where and f"domain {world.env['ROS_DOMAIN_ID']}" in where, where
    assert socket.gethostname() in browser.script("document.title")
    browser.script("[...document.querySelectorAll('#rows tr')].find(tr => tr.textContent.startsWith('/imu')).click()")
    until(lambda: browser.script("document.querySelector('.look') !== null"), "the button")
    browser.script("document.querySelector('.look').click()")
    value = "document.querySelector('.tree .value') && document.querySelector('.tree .value').textContent"
    shown = [until(lambda: browser.script(value), "a message")]
    until(lambda: browser.script(value) not in shown, "a newer message")
    shown.append(browser.script(value))
    # Five a second, whatever comes.
    code, content = ask(address, "GET", "/api/message?topic=/imu&after=1000000000000000000")
    assert code == 200 and json.loads(content)["found"] is None
    assert ask(address, "GET", "/api/message?topic=/imu", token=False)[0] == 401
    assert ask(address, "POST", "/api/split_bagfile", {})[0] == 200
    assert ask(address, "POST", "/api/add_marker", {"name": "door <b>"})[0] == 200
    events = "document.getElementById('events').textContent"
    until(lambda: "bag_1.mcap begins" in browser.script(events) and "door <b>" in browser.script(events), "the events")
    until(lambda: browser.script("past && past.panels[0].lines[0].values") > 2, "the figures")
    browser.script("document.getElementById('by-node').click()")
    until(lambda: browser.script("document.querySelectorAll('tr.group').length") >= 1, "nodes")
    for width, height in ((390, 844), (1280, 900), (2560, 1440)):
        for scheme in ("light", "dark"):
            browser.look(width, height, scheme, width < 500)
            wide = browser.script("document.documentElement.scrollWidth") - width
            assert wide <= 0, f"{width} {scheme}: the page is {wide} pixels too wide"
    assert not [e for e in browser.events if e.get("method") == "Runtime.exceptionThrown"], browser.events
    code, said = recorder.stop()
    assert code == 0, said
    stored = [message[8:].rstrip(b"\0").decode() for message in messages_of(world.folder / "bag")["/imu"]]
    assert all(text in stored for text in shown), (shown, stored[:5])


def test_a_playback_is_steered_over_http(world):
    _, recorder, address = start(world)
    assert recorder.stop()[0] == 0
    player = world.holdall("play", world.folder / "bag", "--start-paused", "--web", "127.0.0.1:0")
    address = served(player)
    until(lambda: status(address)["phase"] == "playing", "a playback")
    assert status(address)["paused"]
    assert ask(address, "POST", "/api/set_rate", {"rate": 2.5})[0] == 200
    until(lambda: status(address)["rate"] == 2.5, "the rate")
    code, text = ask(address, "GET", "/metrics")
    assert code == 200 and "holdall_play_rate 2.5" in text and "holdall_play_paused 1" in text, text
    assert ask(address, "POST", "/api/stop", {})[0] == 200
    player.wait()


def test_a_port_that_is_taken_refuses_before_a_bag_is_made(world):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        told = world.run("record", "-a", "-o", world.folder / "bag", "--web", f"127.0.0.1:{taken.getsockname()[1]}")
    assert told.returncode == 2 and "the dashboard cannot listen on 127.0.0.1:" in told.stderr, told.stderr
    assert not (world.folder / "bag").exists()
    told = world.run("record", "-a", "--web", "/imu")
    assert told.returncode == 2 and "is not an address to listen on" in told.stderr, told.stderr
