"""Topics and messages as Python's own: numbers, slices, assignment, copies, completions, and how they look in a notebook."""

import base64
import copy
import datetime as dt
import io
import pickle
import re
import sys

import holdall
import numpy as np
import pandas as pd
import pytest
from conftest import MS, START, plain
from PIL import Image
from rosbags.rosbag2 import Reader


@pytest.fixture(scope="module")
def bag(written):
    return holdall.open(written[0])


def xs(topic):
    return topic.to_numpy("linear_acceleration.x").tolist()


@pytest.mark.parametrize("cut", [slice(5, 10), slice(None, 3), slice(-4, None), slice(None, None, 7), slice(3, -290, 2), slice(None), slice(10, 5), slice(298, 900), slice(np.int64(2), np.uint8(4))])  # fmt: skip
def test_a_slice_counts_messages_as_that_of_a_list(bag, cut):
    imu, numbers = bag["/imu"], list(range(300))
    assert xs(imu[cut]) == numbers[cut] and len(imu[cut]) == len(numbers[cut])
    assert [message.msg.linear_acceleration.x for message in imu[cut]] == numbers[cut]
    assert list(imu[cut].times) == [START + number * 10 * MS for number in numbers[cut]]
    assert xs(imu[cut][1:4]) == numbers[cut][1:4] and xs(imu[cut][-2:]) == numbers[cut][-2:]
    assert imu[cut].to_arrow("header").num_rows == len(numbers[cut])


def test_numbers_count_what_times_conditions_and_rates_have_left(bag):
    imu = bag["/imu"]
    assert xs(imu.where("linear_acceleration.x >= 100")[5:10]) == [105, 106, 107, 108, 109]
    assert xs(imu.every("100ms")[1:3]) == [10, 20] and xs(imu.between(1.0, 1.1)[-3:]) == [107, 108, 109]
    assert imu.every("100ms")[:20][-1].msg.linear_acceleration.x == 190 and imu[::100][2].msg.linear_acceleration.x == 200
    assert xs(imu.head()) == [0, 1, 2, 3, 4] and xs(imu.head(2)) == [0, 1]
    for narrow in (lambda: imu[:5].where("linear_acceleration.x > 1"), lambda: imu[:5].every(1), lambda: imu[:5].between(1), lambda: imu[:5]["1s":]):
        with pytest.raises(ValueError, match="numbers come last"):
            narrow()
    assert xs(imu[:].between(1.0, 1.01)) == [100], "all of them is no choice"
    assert xs(pickle.loads(pickle.dumps(imu[5:10]))) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(("cut", "instead"), [
    (slice(5.0, 7.5), ".between(5.0, 7.5)"),
    (slice(None, 0.5), ".between(None, 0.5)"),
    (slice(1_700_000_005_000_000_000, None), ".between(1700000005000000000, None)"),
    (slice(5, "7s"), ".between(5, '7s')"),
])  # fmt: skip
def test_a_slice_of_seconds_is_refused_by_a_sentence_that_has_the_new_form(bag, cut, instead):
    with pytest.raises(TypeError, match=re.escape(instead)):
        bag["/imu"][cut]


def test_other_slices_that_mean_nothing_are_refused(bag):
    with pytest.raises(TypeError, match=re.escape("1.5 does not count messages; the messages from a time on are .between(1.5)")):
        bag["/imu"][1.5]
    with pytest.raises(ValueError, match="every"):
        bag["/imu"]["1s":"2s":2]
    with pytest.raises(ValueError, match="step of a slice is 1 or more"):
        bag["/imu"][::-1]


def test_arrays_and_frames_of_a_whole_topic_are_refused_by_a_sentence(bag):
    for make in (pd.DataFrame, np.asarray):
        with pytest.raises(TypeError, match=r"use topic.to_pandas\(\) for a DataFrame"):
            make(bag["/imu"])
    assert np.asarray(bag.images("/image")).shape == (5, 4, 3, 3)


def test_the_same_arguments_do_for_every_library(bag):
    imu, names = bag["/imu"][:4], ("linear_acceleration.z", "header.frame_id")
    for fields in (names, [list(names)], ["linear_acceleration.z", ["header.frame_id"]]):
        found = [imu.to_numpy(*fields, flat=True), imu.to_pandas(*fields, flat=True), imu.to_polars(*fields, flat=True), imu.to_arrow(*fields, flat=True)]
        assert [[str(value) for value in table["header.frame_id"]] for table in found] == [["", "imu", "imuimu", "imuimuimu"]] * 4, fields
    nested = [imu.to_numpy("header", "angular_velocity", flat=False), imu.to_pandas("header", flat=False), imu.to_polars("header"), imu.to_arrow("header")]
    assert nested[0]["header"]["frame_id"].tolist()[1] == nested[1]["header"].iloc[1]["frame_id"] == "imu"
    assert nested[0]["angular_velocity"].shape == (4, 3)
    assert nested[2]["header"].to_list() == nested[3]["header"].to_pylist() and nested[3]["header"][1].as_py()["frame_id"] == "imu"
    stamps = [START + number * MS for number in range(4)]
    clock = {"time": "header.stamp"}
    assert imu.to_numpy(["header"], **clock)["header_stamp"].tolist() == stamps == imu.to_pandas("header", **clock).index.astype("int64").tolist()
    assert imu.to_arrow("header", **clock)["header_stamp"].cast("int64").to_pylist() == imu.to_polars(**clock)["header_stamp"].cast(int).to_list() == stamps
    assert imu.to_pandas("header", time="publish_time").index.name == "publish_time"
    for use in (imu.to_numpy, imu.to_pandas, imu.to_polars, imu.to_arrow, imu.arrow_stream):
        with pytest.raises(ValueError, match="time is one of"):
            use("header", time="now")


def test_times_rates_and_completions(bag):
    imu = bag["/imu"]
    assert imu.rate == pytest.approx(299 / bag.duration) and bag["/image"][:1].rate is None
    assert imu.between(0.5, 1.0).rate == pytest.approx(100) and imu.where("linear_acceleration.x < 0").rate is None
    assert imu.datetimes[1] == np.datetime64(START + 10 * MS, "ns") and imu.datetimes.shape == (300,)
    start = dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.timezone.utc)
    assert bag.start_datetime == imu[0].datetime == start and bag.end_datetime - start == dt.timedelta(seconds=2.99)
    assert bag._ipython_key_completions_() == list(bag.topics)
    keys = imu._ipython_key_completions_()
    assert {"header", "header.stamp", "header.stamp.sec", "linear_acceleration"} <= set(keys) and len(set(keys)) == len(keys)
    assert len(imu[keys[0]]) == 300 and "orientation" in imu[0].msg._ipython_key_completions_()


def test_fields_are_assigned_and_written_as_another_reader_sees_them(bag, written, store, tmp_path):
    with holdall.create(tmp_path / "new") as out:
        for message in bag.messages("/imu", "/odd"):
            msg = message.msg
            if message.topic == "/imu":
                stamp, acceleration = msg.header.stamp, msg.linear_acceleration
                msg.header.frame_id = "a frame with a longer name"
                acceleration.z = np.float32(1.5)
                stamp.sec = 7
                msg["angular_velocity.x"] = -2
                msg.orientation_covariance = np.arange(9.0)
                msg.orientation = {"w": 1}
                assert (acceleration.z, msg.linear_acceleration.z, stamp.sec, msg["header.stamp.sec"]) == (1.5, 1.5, 7, 7)
            else:
                inner = msg.two[1]
                msg.names, msg.blob = ["x", "y" * 50], b"123"
                inner.label = "changed"
                msg.many = [{"label": "new"}, inner]
                assert inner.label == msg.many[1].label == msg.two[1].label == "changed"
            out.copy(message, bag)
    found = {topic: [] for topic in ("/imu", "/odd")}
    with Reader(tmp_path / "new") as reader:
        for connection, _, raw in reader.messages():
            found[connection.topic].append(store.deserialize_cdr(raw, connection.msgtype))
    for imu, (_, before) in zip(found["/imu"], written[1]["/imu"], strict=True):
        assert (imu.header.frame_id, imu.header.stamp.sec, imu.angular_velocity.x) == ("a frame with a longer name", 7, -2)
        assert (imu.linear_acceleration.x, imu.linear_acceleration.z, imu.orientation.w, imu.orientation.x) == (before.linear_acceleration.x, 1.5, 1, 0)
        assert imu.header.stamp.nanosec == before.header.stamp.nanosec and imu.orientation_covariance.tolist() == list(range(9))
    for odd, (_, before) in zip(found["/odd"], written[1]["/odd"], strict=True):
        assert (odd.names, odd.blob.tolist(), odd.many[0].label, odd.two[1].label) == (["x", "y" * 50], [49, 50, 51], "new", "changed")
        assert plain(odd.two[0]) == plain(before.two[0]) and (odd.last, odd.wide) == (before.last, before.wide)
    assert bag["/imu"][0].msg.header.frame_id == "", "the bag is as it was"


def test_copies_are_messages_of_their_own(bag):
    message = bag["/imu"][3]
    msg = message.msg
    kept, before = copy.copy(msg), copy.deepcopy(message)
    part = copy.copy(msg.linear_acceleration)
    changed = msg.replace(linear_acceleration={"z": 3}, **{"header.frame_id": "base"})
    msg.header.frame_id = "assigned"
    part.z = 8
    assert [one.header.frame_id for one in (msg, kept, before.msg, changed)] == ["assigned", "imuimuimu", "imuimuimu", "base"]
    assert (msg.linear_acceleration.z, part.z, changed.linear_acceleration.z, changed.linear_acceleration.x) == (9.81, 8, 3, 0)
    assert message.msg is msg and message.raw != before.raw and before.raw == bag["/imu"][3].raw
    again = pickle.loads(pickle.dumps(message))
    assert again.msg == msg and again.msg.header.frame_id == "assigned" and pickle.loads(pickle.dumps(msg)) == msg


def test_assignments_that_do_not_fit_are_refused_and_change_nothing(bag):
    msg = bag["/odd"][5].msg
    raw = bag["/odd"][5].raw
    inner = msg.many[-1]
    for name, value in {"flag": 300, "names": "text", "three": [1.0], "wide": "longer than eight", "two": [], "last": "x"}.items():
        with pytest.raises(holdall.EncodeError, match=name):
            setattr(msg, name, value)
    for refused in (lambda: setattr(msg, "speed", 1), lambda: msg.replace(speed=1), lambda: setattr(msg, "to_dict", 1)):
        with pytest.raises(AttributeError, match="odd_msgs/msg/Odd has no field"):
            refused()
    with pytest.raises(KeyError):
        msg["nowhere.x"] = 1
    with pytest.raises(AttributeError):
        del msg.flag
    assert holdall.MessageType(msg._type, bag["/odd"].definition).encode(msg) == raw
    msg.many = []
    with pytest.raises(RuntimeError, match="take the element anew"):
        inner.value


def test_topics_and_messages_are_shown_in_a_notebook_with_their_texts_escaped(bag, tmp_path):
    html = bag["/imu"]._repr_html_()
    assert "300 messages, 100.0 Hz" in html and html.count("<tr>") == 6 and "<svg" in html and "header.stamp" in html
    assert bag["/imu"][3]._repr_html_().count("<tr>") == 15 and "linear_acceleration.z" in bag["/imu"][3].msg._repr_html_()
    assert "a selection of messages" in bag["/imu"].where("linear_acceleration.x > 5")[:2]._repr_html_()
    odd = bag["/odd"][7].msg
    assert f"[{len(odd.names)}" not in odd._repr_html_() and "two[1].label" in odd._repr_html_()
    evil = "</td><script>alert(1)</script>"
    with holdall.create(tmp_path / "bag") as out:
        out.define("evil_msgs/msg/Text", "string text\nstring[] many\nuint8[] blob\n")
        for number in range(2):
            out.write("/evil", "evil_msgs/msg/Text", {"text": evil, "many": [evil] * 9, "blob": bytes(1000)} if number else b"\0\1\0\0\xff", time=START + number)
        out.write("/empty", "std_msgs/msg/Empty", {}, time=START)
    evil_bag = holdall.open(tmp_path / "bag")
    for shown in (evil_bag["/evil"], evil_bag["/evil"][1], evil_bag["/evil"][1].msg, evil_bag["/evil"][0], evil_bag["/empty"], evil_bag["/empty"][0], evil_bag["/evil"].where("text == 'x'")):
        html = shown._repr_html_()
        assert "<script" not in html and len(html) < 20_000
    assert "&lt;script&gt;" in evil_bag["/evil"]._repr_html_() and "(1000)" in evil_bag["/evil"][1]._repr_html_()
    assert "read" in evil_bag["/evil"][0]._repr_html_() or "expected" in evil_bag["/evil"][0]._repr_html_()


def test_a_package_that_is_missing_is_named_with_what_installs_it(bag, monkeypatch):
    for name, use in {"pandas": bag["/imu"].to_pandas, "polars": bag["/imu"].to_polars, "pyarrow": bag["/imu"].to_arrow, "matplotlib": bag.plot}.items():
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ImportError, match=f"this needs {name}: pip install {name}"):
            use()


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """A bag with an image that becomes brighter, its JPEG, depth, a cloud, and an image that does not fit its size."""
    path = tmp_path_factory.mktemp("seen") / "bag"
    places = [{"name": name, "offset": 4 * place, "datatype": 7, "count": 1} for place, name in enumerate(("x", "y", "z"))]
    with holdall.create(path) as out:
        for number in range(20):
            time = START + number * 100 * MS
            pixels = np.full((30, 40, 3), (10 * number, 0, 200), dtype="u1")
            image = {"height": 30, "width": 40, "encoding": "rgb8", "step": 120, "data": pixels.tobytes()}
            out.write("/camera", "sensor_msgs/msg/Image", image, time=time)
            out.write("/broken", "sensor_msgs/msg/Image", {**image, "height": 3000}, time=time)
            file = io.BytesIO()
            Image.fromarray(pixels).save(file, "JPEG")
            out.write("/jpeg", "sensor_msgs/msg/CompressedImage", {"format": "rgb8; jpeg", "data": file.getvalue()}, time=time)
            depth = np.arange(1200, dtype="<u2") * 5
            out.write("/depth", "sensor_msgs/msg/Image", {"height": 30, "width": 40, "encoding": "16UC1", "step": 80, "data": depth.tobytes()}, time=time)
            points = np.stack([np.linspace(-5, 5, 500), np.linspace(-5, 5, 500) ** 2 / 5, np.zeros(500)], axis=1).astype("f4")
            cloud = {"height": 1, "width": 500, "fields": places, "point_step": 12, "row_step": 6000, "data": points.tobytes()}
            out.write("/cloud", "sensor_msgs/msg/PointCloud2", cloud, time=time)
    return holdall.open(path)


def pictures(shown):
    """The pictures in what a notebook shows, as Pillow sees them."""
    found = re.findall(r'<img src="data:image/(?:png|jpeg|webp);base64,([A-Za-z0-9+/=]+)"', shown._repr_html_())
    return [Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB") for data in found]


def test_images_clouds_and_depth_are_pictures_in_a_notebook(seen):
    for topic in ("/camera", "/jpeg"):
        shown = pictures(seen[topic])
        reds = [picture.getpixel((20, 15))[0] for picture in shown]
        assert reds == pytest.approx([0, 50, 100, 150], abs=12) and {picture.size for picture in shown} == {(40, 30)}, topic
    for shown in (seen["/camera"][7], seen["/camera"][7].msg, seen.images("/camera")[7:8]):
        (picture,) = pictures(shown)
        assert picture.getpixel((1, 1)) == pytest.approx((70, 0, 200), abs=6)
    (depth,) = pictures(seen["/depth"][0])
    assert depth.getpixel((0, 0)) != depth.getpixel((39, 29))
    assert len(pictures(seen.points("/cloud"))) == 4
    (cloud,) = pictures(seen["/cloud"][3].msg)
    drawn = np.asarray(cloud).astype(int)
    drawn = np.abs(drawn - drawn[0, 0]).sum(axis=2) > 60
    rows, columns = np.nonzero(drawn)
    assert cloud.size == (480, 480) and columns.max() - columns.min() > 400 and rows[columns < 60].mean() < rows[abs(columns - 240) < 20].mean()


def test_what_is_no_picture_is_shown_without_one(bag, seen):
    assert pictures(bag["/imu"]) == pictures(bag["/imu"][0]) == pictures(seen["/broken"]) == pictures(seen["/broken"][0]) == []
    assert "3000" in seen["/broken"]._repr_html_()
    assert holdall._native.picture(bag["/imu"][0].msg, 10) is None and holdall._native.picture(seen["/camera"][0].msg, 10)[0].startswith("image/")
    msg = seen["/camera"][0].msg
    msg.data, msg.encoding, msg.step = bytes([255]) * 1200, "mono8", 40
    assert pictures(msg)[0].getpixel((3, 3)) == (255, 255, 255), "as it was assigned"
