"""`plot`: bags of real nodes as pages, SVG and PNG; the pages in a real browser, narrow and wide, light and dark."""

import re
import struct
import xml.etree.ElementTree as xml

import pytest

PAGE_BYTES_MAX = 1_000_000


@pytest.fixture
def bag(world):
    """A recorded bag with two topics and a marker."""
    folder, socket = world.folder / "lab", world.folder / "s"
    recorder = world.holdall("record", "--topics", "/imu", "/chatter", "-o", folder, "--control-socket", socket)
    recorder.wait_until_says("Listening for topics")
    node = world.talker(
        {"topic": "/imu", "type": "sensor_msgs/msg/Imu", "count": 300, "rate_hz": 100},
        {"topic": "/chatter", "type": "std_msgs/msg/String", "count": 30, "rate_hz": 10},
        wait_for_subscriptions=1,
    )
    node.wait_for("matched")
    assert world.run("control", socket, "add_marker", "door <b>").returncode == 0
    node.wait_for("done")
    assert recorder.stop()[0] == 0
    return folder


def drawn(world, bag, name, *flags):
    picture = world.folder / name
    told = world.run("plot", bag, "-o", picture, *flags)
    assert told.returncode == 0, told.stderr
    return picture, told.stdout


def test_a_page_shows_every_topic_and_answers_in_a_browser(world, bag, browser):
    page, said = drawn(world, bag, "lab.html", "-t", "/imu.header.stamp", "-t", "/imu: len(orientation_covariance) * 2", "-t", "/chatter")
    assert "330 messages of 2 topics" in said
    text = page.read_text()
    assert len(text) < PAGE_BYTES_MAX and "door \\u003cb>" in text and "<b>" not in text.split('id="data"')[1].split("</script>")[0]
    assert not re.search(r"https?://|src=|@import", text), "it loads nothing"
    browser.look(1280, 900, "light")
    browser.open(f"file://{page}")
    assert browser.script("document.querySelectorAll('canvas').length") == 5, "an axis, two values, two topics"
    assert "330 messages of 2 topics" in browser.script("document.getElementById('facts').textContent").replace(",", "")
    # A column of the topic's lane has its colour, and a zoom changes what is shown.
    lane = "document.querySelectorAll('canvas')[4]"
    pixels = f"Array.from({lane}.getContext('2d').getImageData(0, 0, {lane}.width, {lane}.height).data)"
    assert browser.script(f"{pixels}.filter((value, at) => at % 4 === 3 && value > 0).length") > 100
    before = browser.script(f"{pixels}.reduce((sum, value, at) => (sum * 31 + value) % 1000003, 7)")
    browser.script("document.getElementById('in').click(); new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert " to " in browser.script("document.getElementById('shown').textContent")
    assert before != browser.script(f"{pixels}.reduce((sum, value, at) => (sum * 31 + value) % 1000003, 7)")
    browser.script("document.getElementById('all').click()")
    box = browser.script(f"(() => {{ const box = {lane}.getBoundingClientRect(); return [box.left + box.width / 2, box.top + 8]; }})()")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    tip = browser.script("document.getElementById('tip').textContent")
    assert "/imu" in tip and "messages in" in tip, tip
    for width, height in ((390, 844), (1280, 900), (2560, 1440)):
        for scheme in ("light", "dark"):
            browser.look(width, height, scheme, width < 500)
            wide = browser.script("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{width} {scheme}: the page is {wide} pixels too wide"
    assert not [e for e in browser.events if e.get("method") == "Runtime.exceptionThrown"], browser.events


def test_svg_and_png_are_the_same_picture(world, bag):
    svg, _ = drawn(world, bag, "lab.svg")
    root = xml.fromstring(svg.read_text())
    texts = ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "/imu" in texts and "/chatter" in texts and any("330 messages of 2 topics" in text for text in texts), texts
    titles = ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "door <b>" in titles, titles
    png, _ = drawn(world, bag, "lab.png")
    data = png.read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert (width, height) == (round(float(root.get("width")) * 2), round(float(root.get("height")) * 2))


def test_values_keep_their_extremes(world, bag):
    svg, _ = drawn(world, bag, "stamps.svg", "-t", "/imu: header.stamp * 0 + 3.5")
    texts = ["".join(element.itertext()) for element in xml.fromstring(svg.read_text()).iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("3.5") == 2 and "300 values" in texts, texts
    assert "/chatter" not in texts, "only what is named is drawn"


def test_what_cannot_be_drawn_is_refused(world, bag):
    for flags, reason in (
        (("-o", "x.pdf"), "a picture is .html, .svg or .png"),
        (("-o", "x.svg", "-t", "/nothing"), "there is no topic /nothing in the bag; its topics are /chatter, /imu"),
        (("-o", "x.svg", "-t", "/imu.speed"), "has no field speed"),
        (("-o", "x.svg", "-t", "/chatter.data"), "a text is not a number"),
        (("-o", "x.svg", "--start-offset", "1000"), "there is no message to draw"),
    ):
        told = world.run("plot", bag, *flags)
        assert told.returncode == 2 and reason in told.stderr, told.stderr
    picture, _ = drawn(world, bag, "once.svg")
    told = world.run("plot", bag, "-o", picture)
    assert told.returncode == 2 and "--overwrite" in told.stderr, told.stderr
    assert world.run("plot", bag, "-o", picture, "--overwrite").returncode == 0
    assert world.run("plot", world.folder / "no-bag", "-o", world.folder / "y.svg").returncode == 2
