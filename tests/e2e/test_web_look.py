"""`holdall web` looks into bags: messages, pictures, values and time in a real browser, compared with what other readers find in the bag."""

import io
import json
import re
from urllib.parse import quote, unquote

import numpy as np
import pytest
from buckets import SERVER
from look_bag import HOSTILE_TEXT, HOSTILE_TOPIC, LENGTH_S, START, colours, depth, write_look_bag
from mcap.reader import make_reader
from PIL import Image as Picture
from rosbags.highlevel import AnyReader
from served import ask_bytes as ask
from served import served as served_at
from served import until

ENCODED = quote("look")


@pytest.fixture
def looked(world):
    """A server of a folder with the bag; its address, and the bag."""
    folder = world.folder / "bags"
    folder.mkdir()
    write_look_bag(folder / "look")
    web = world.holdall("web", folder, "127.0.0.1:0", "--foxglove", "127.0.0.1:0")
    address = served_at(web, "bags: ")
    until(lambda: json.loads(ask(address, "GET", "/api/bags")[1])["bags"], "the bag in the list")
    yield address, folder / "look"
    code, said = web.stop()
    assert code == 0, said


def message(address, topic, **more):
    query = "&".join(f"{key}={quote(str(value), safe='')}" for key, value in more.items())
    code, content = ask(address, "GET", f"/api/message?bag={ENCODED}&topic={quote(topic, safe='')}&{query}")
    reply = json.loads(content)
    assert code == 200, reply
    return reply["found"]


def picture(address, topic, **more):
    query = "&".join(f"{key}={value}" for key, value in more.items())
    connection_code, content, about = ask_with_about(address, f"/api/picture?bag={ENCODED}&topic={quote(topic)}&{query}")
    assert connection_code == 200, content
    return np.asarray(Picture.open(io.BytesIO(content)).convert("RGB")).astype(int), about


def ask_with_about(address, path):
    import http.client

    connection = http.client.HTTPConnection(*address, timeout=60)
    connection.request("GET", path, headers={"Authorization": f"Bearer {address.token}"})
    answer = connection.getresponse()
    content, about = answer.read(), answer.getheader("X-Holdall-About")
    connection.close()
    return answer.status, content, json.loads(unquote(about)) if about else None


def of_rosbags(bag, topic):
    with AnyReader([bag]) as reader:
        connections = [one for one in reader.connections if one.topic == topic]
        return [(stamp, reader.deserialize(raw, connection.msgtype)) for connection, stamp, raw in reader.messages(connections)]


def value(fields, path):
    """The value of a field in a tree."""
    (found,) = [field for field in fields if field["name"] == path.split(".")[0]]
    return found["value"] if "." not in path else value(found["items"], path.split(".", 1)[1])


def test_messages_are_those_of_another_reader(looked):
    address, bag = looked
    stored = of_rosbags(bag, "/imu/data")
    found = message(address, "/imu/data", at=-(2**63), step="at")
    assert found["is_picture"] is False and found["message"]["type"] == "sensor_msgs/msg/Imu"
    for stamp, there in stored[:30]:
        assert int(found["time_ns"]) == stamp
        fields = found["message"]["fields"]
        assert float(value(fields, "linear_acceleration.z")) == there.linear_acceleration.z
        (header,) = [field for field in fields if field["name"] == "header"]
        assert int(header["items"][0]["time_ns"]) == there.header.stamp.sec * 10**9 + there.header.stamp.nanosec
        found = message(address, "/imu/data", at=found["time_ns"], nth=found["nth"], step="next")
    # At a time: the last one until then, also after a pause.
    found = message(address, "/imu/data", at=START + 10_000_000_000)
    assert int(found["time_ns"]) == max(stamp for stamp, _ in stored if stamp <= START + 10_000_000_000)
    assert int(message(address, "/imu/data", at=found["time_ns"], nth=0, step="next")["time_ns"]) == START + 11_000_000_000
    # A search by an expression, forwards and backwards.
    wanted = [stamp for stamp, there in stored if there.linear_acceleration.z > 13.5]
    found = message(address, "/imu/data", at=stored[0][0], nth=0, step="next", where="linear_acceleration.z > 13.5")
    assert int(found["time_ns"]) == wanted[0]
    found = message(address, "/imu/data", at=stored[-1][0], nth=0, step="previous", where="linear_acceleration.z > 13.5")
    assert int(found["time_ns"]) == wanted[-1]
    assert message(address, "/imu/data", at=stored[-1][0], nth=0, step="next") is None
    code, content = ask(address, "GET", f"/api/message?bag={ENCODED}&topic=/imu/data&step=next&at=0&where=speed%20%3E%203")
    assert code == 409 and b"speed" in content
    # Long lists come in parts.
    ranges = next(field for field in message(address, "/scan", at=START)["message"]["fields"] if field["name"] == "ranges")
    assert ranges["length"] == 300 and len(ranges["values"]) == 50
    more = message(address, "/scan", at=START, step="this", nth=0, open="ranges", **{"from": 290})
    ranges = next(field for field in more["message"]["fields"] if field["name"] == "ranges")
    assert [float(one) for one in ranges["values"]] == pytest.approx([i / 10 for i in range(290, 300)])


def test_pictures_are_those_in_the_messages(looked):
    address, _ = looked
    for topic in ("/camera/image", "/camera/compressed"):
        for number in (0, 7, 99):
            pixels, about = picture(address, topic, at=START + number * 200_000_000)
            assert about["kind"] == "image" and int(about["time_ns"]) == START + number * 200_000_000
            assert np.abs(pixels - colours(number)).mean() < 4, (topic, number)
    # The file of a compressed image is sent as stored.
    with open(looked[1] / "look.mcap", "rb") as file:
        stored = next(found.data for _, channel, found in make_reader(file).iter_messages(topics=["/camera/compressed"]))
    sent = ask_with_about(address, f"/api/picture?bag={ENCODED}&topic=/camera/compressed&at={START}")[1]
    assert sent in stored
    small, _ = picture(address, "/camera/image", at=START, side=80)
    assert small.shape == (60, 80, 3)
    # Depth has a scale: brighter is farther, and what was not measured is black.
    pixels, about = picture(address, "/camera/depth", at=START)
    assert about["kind"] == "depth" and about["low"] == pytest.approx(535, abs=40) and about["high"] == pytest.approx(3965, abs=40)
    assert pixels[:10, :10].sum() == 0
    brightness, metres = pixels.sum(axis=2), depth(0)
    assert (np.diff(brightness[20:, 80]) >= -2).all() and metres[-1, 0] > metres[20, 0]
    near, about = picture(address, "/camera/depth", at=START, low=500, high=600)
    assert (about["low"], about["high"]) == (500, 600) and near[60].min() > 190
    # A map: the first row is the lowest.
    pixels, about = picture(address, "/map", at=START)
    assert pixels.shape == (40, 60, 3) and about["metres_per_cell"] == pytest.approx(0.05)
    assert pixels[-1].max() < 10 and pixels[-2].min() > 245 and abs(pixels[0].mean() - 120) < 4
    # A cloud from above: an ellipse, twice as wide as high.
    pixels, about = picture(address, "/points", at=START)
    assert about["points"] == 2000 and about["by"] == "intensity"
    rows, columns = np.nonzero(pixels.sum(axis=2) > 60)
    assert np.ptp(columns) / np.ptp(rows) == pytest.approx(2, rel=0.05)
    assert ask(address, "GET", f"/api/picture?bag={ENCODED}&topic=/imu/data&at={START}")[0] == 409


def test_values_and_ways_are_those_of_another_reader(looked):
    address, bag = looked
    wanted = {"bag": "look", "wanted": ["/imu/data.linear_acceleration.z", "/imu/data: abs(linear_acceleration.y)"]}
    done = until(lambda: json.loads(ask(address, "POST", "/api/values", wanted)[1]).get("result"), "the values")
    stored = [there.linear_acceleration.z for _, there in of_rosbags(bag, "/imu/data")]
    low, high = (pick(one for one in done["lines"][0][key] if one is not None) for pick, key in ((min, "min"), (max, "max")))
    assert low == pytest.approx(min(stored), rel=1e-5) and high == pytest.approx(max(stored), rel=1e-5)
    assert done["lines"][0]["values"] == len(stored) and {one for one in done["lines"][1]["min"] if one is not None} == {0.5}
    part = {**wanted, "from_s": 2, "length_s": 1}
    done = until(lambda: json.loads(ask(address, "POST", "/api/values", part)[1]).get("result"), "the values of a part")
    assert done["lines"][0]["values"] == 51 and done["span_ms"] == pytest.approx(1000)
    code, content = ask(address, "POST", "/api/values", {"bag": "look", "wanted": ["/imu/data.speed"]})
    refused = until(lambda: not (reply := json.loads(ask(address, "POST", "/api/values", {"bag": "look", "wanted": ["/imu/data.speed"]})[1]))["ok"] and reply, "a refusal")
    assert "has no field speed" in refused["error"]
    for wrong in ({}, {"wanted": []}, {"wanted": [7]}, {"wanted": ["/a.b"] * 100}):
        assert ask(address, "POST", "/api/values", {"bag": "look", **wrong})[0] == 400
    way = until(lambda: json.loads(ask(address, "POST", "/api/track", {"bag": "look", "topic": "/fix"})[1]).get("result"), "the way")
    assert way["messages"] == 5 * LENGTH_S
    assert [(one[1], one[2]) for one in way["positions"]] == [(there.latitude, there.longitude) for _, there in of_rosbags(bag, "/fix")]


def test_a_bag_is_looked_into_in_a_browser(looked, browser):
    address, bag = looked
    browser.look(1280, 900, "light")
    browser.open(f"{address.link}#look")
    until(lambda: browser.script("document.querySelectorAll('#lanes canvas').length") == 10, "the lanes")
    # Nothing of a bag is markup.
    hostile = "[...document.querySelectorAll('#lanes .open')].find(b => b.textContent.startsWith('/a'))"
    assert browser.script(f"{hostile}.textContent") == HOSTILE_TOPIC
    browser.script(f"{hostile}.click()")
    tree = "document.querySelector('.tree').textContent"
    until(lambda: HOSTILE_TEXT in browser.script(tree), "the text")
    assert browser.script("document.querySelectorAll('main img, main script').length") == 0
    # A message, and the next ones.
    browser.script("[...document.querySelectorAll('#lanes .open')].find(b => b.textContent === '/imu/data').click()")
    until(lambda: "9.81 m/s²" in browser.script(tree), "the first message")
    browser.script("document.querySelector('[aria-label=\"next message\"]').click()")
    until(lambda: "+0.020 s" in browser.script("document.getElementById('when').textContent"), "the next message")
    assert "2025-11-24" in browser.script("document.getElementById('when').textContent")
    browser.script("document.querySelector('.find input').value = 'linear_acceleration.z > 13.5'; document.querySelector('.find button').click()")
    first = next(stamp for stamp, there in of_rosbags(bag, "/imu/data") if there.linear_acceleration.z > 13.5)
    until(lambda: f"+{(first - START) / 1e9:.3f} s" in browser.script("document.getElementById('when').textContent"), "the message that was searched")
    # A field is drawn, with a limit, and read at the cursor.
    browser.script("[...document.querySelectorAll('.tree button')].find(b => b.getAttribute('aria-label') === 'plot linear_acceleration.z').click()")
    until(lambda: browser.script("chart.panels.length && chart.panels[0].lines[0].values") == len(of_rosbags(bag, "/imu/data")), "the values")
    name = "document.querySelectorAll('#lanes .name')[1].textContent"
    assert "/imu/data.linear_acceleration.z [m/s²]" in browser.script(name)
    until(lambda: re.search(r"13\.5\d", browser.script(name)), "the value at the cursor")
    browser.script("document.getElementById('value').value = '/imu/data: angular_velocity.z < 0'; document.getElementById('add-value').click()")
    until(lambda: browser.script("chart.panels.length === 2 && chart.panels[1].thresholds[0].value === 0 && chart.panels[1].lines[0].values > 0"), "the second panel")
    # Zoomed in, the values of the part are collected.
    browser.script("chart.view(2000, 500)")
    until(lambda: browser.script("Math.round(chart.panels[0].lines[0].span)") == 500, "the values of the part")
    lane = "chart.data.lanes.find(lane => lane.name === '/imu/data')"
    until(lambda: browser.script(f"{lane}.part && Math.round({lane}.part.span)") == 1000, "finer lanes")
    part = [stamp for stamp, _ in of_rosbags(bag, "/imu/data") if START + 1_750_000_000 <= stamp <= START + 2_750_000_000]
    assert browser.script(f"{lane}.part.n.reduce((a, b) => a + b)") == len(part)
    assert "2 s to 2.5 s" in browser.script("document.getElementById('shown').textContent")
    # An answer that comes late replaces no newer one: the first two requests of each kind are held until those of another part were answered.
    browser.script(
        "window.kept = fetch; window.held = []; window.fetch = (path, more) => { const body = String(more && more.body);"
        " const isFirst = body.includes('\"from_s\":0') && held.length < 2; const answer = kept(path, more);"
        " return isFirst ? new Promise(done => held.push(() => done(answer))) : answer; }; chart.view(0, 800); new Promise(done => setTimeout(() => done(chart.view(9000, 400)), 600))"
    )
    until(lambda: browser.script(f"held.length === 2 && {lane}.part.start > 8000 && Math.round(chart.panels[0].lines[0].span) === 400"), "the second part")
    browser.script("held.forEach(release => release()); window.fetch = kept; new Promise(done => setTimeout(done, 700))")
    assert browser.script(f"{lane}.part.start > 8000 && Math.round(chart.panels[0].lines[0].span) === 400 && chart.panels[0].lines[0].start > 8000")
    browser.script("chart.view(2000, 500)")
    # The link shows the same.
    link = browser.script("location.hash")
    assert "topic=%2Fimu%2Fdata" in link and "value=" in link
    # Pictures.
    for topic, shown in (("/camera/compressed", "jpeg"), ("/camera/depth", "mm"), ("/points", "2000 points"), ("/map", "60 × 40 cells")):
        browser.script(f"lookAt({{ name: '{topic}', type: '' }})")
        until(lambda: shown in browser.script("document.querySelector('.scale').textContent"), topic)  # noqa: B023
        assert browser.script("document.querySelector('.picture canvas').width") >= 60
    browser.script("lookAt({ name: '/fix', type: 'sensor_msgs/msg/NavSatFix' })")
    until(lambda: "100 messages, " in browser.script("document.querySelector('.way').textContent"), "the way")
    # Scrubbing shows the newest picture that is wanted, and ends at its time.
    browser.script("lookAt({ name: '/camera/image', type: 'sensor_msgs/msg/Image' })")
    until(lambda: "rgb8" in browser.script("document.querySelector('.scale').textContent"), "a picture")
    browser.script("for (const at of [1000, 5000, 9000]) { document.getElementById('scrub').value = at; document.getElementById('scrub').dispatchEvent(new Event('input')); }")
    until(lambda: abs(int(browser.script("document.querySelector('.picture canvas').dataset.time")) - START - 18e9) < 0.3e9, "the last picture that was wanted")
    for width, height in ((390, 844), (1280, 900), (2560, 1440)):
        for scheme in ("light", "dark"):
            browser.look(width, height, scheme, width < 500)
            wide = browser.script("document.documentElement.scrollWidth") - width
            assert wide <= 0, f"{width} {scheme}: the page is {wide} pixels too wide"
    assert not [e for e in browser.events if e.get("method") == "Runtime.exceptionThrown"], browser.events


@pytest.mark.skipif(not SERVER.exists(), reason="moto is not installed: scripts/setup.sh nodes")
def test_a_bag_in_a_bucket_is_looked_into_by_the_chunks_that_are_needed(world, bucket):
    write_look_bag(world.folder / "look")
    bucket.put_folder(world.folder / "look", "looked/look")
    world.env.update({name: value for name, value in bucket.env().items() if name.startswith("AWS_")})
    web = world.holdall("web", "s3://fleet/looked", "127.0.0.1:0", "--foxglove", "127.0.0.1:0")
    address = served_at(web, "bags: ")
    (found,) = until(lambda: json.loads(ask(address, "GET", "/api/bags")[1])["bags"], "the bag in the list")
    assert found["name"] == "look" and found["topics"] == 9, found
    picture(address, "/camera/image", at=START)
    bucket.proxy.take()
    with open(world.folder / "look" / "look.mcap", "rb") as file:
        longest = max(chunk.chunk_length for chunk in make_reader(file).get_summary().chunk_indexes)
    for number in (90, 10, 50):
        pixels, _ = picture(address, "/camera/image", at=START + number * 200_000_000)
        assert np.abs(pixels - colours(number)).mean() < 4
        read = sum(request[3] for request in bucket.proxy.take())
        assert read <= 3 * longest, (read, longest)
    assert message(address, "/imu/data", at=START + 5_000_000_000)["time_ns"] == str(START + 5_000_000_000)
    code, content = ask(address, "GET", f"/api/message?bag={quote('../other')}&topic=/imu/data")
    assert code == 404, content
    code, said = web.stop()
    assert code == 0, said
