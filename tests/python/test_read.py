"""Messages, slices, times and errors, on a bag of rosbags."""

import datetime as dt
import gc
import pickle
import threading
import warnings

import holdall
import numpy as np
import pytest
from conftest import MS, START, plain
from holdall import _html


@pytest.fixture(scope="module")
def bag(written):
    return holdall.open(written[0])


def test_all_messages_are_what_rosbags_wrote(bag, written):
    for topic, expected in written[1].items():
        found = list(bag.messages(topic))
        assert [message.time for message in found] == [time for time, _ in expected]
        for message, (_, wanted) in zip(found, expected):
            assert message.topic == topic
            assert plain(message.msg) == plain(wanted)
            assert plain(message.msg.to_dict()) == plain(wanted)
    assert len(bag) == sum(map(len, written[1].values())) == sum(1 for _ in bag)
    times = [message.time for message in bag.messages("/imu", "/odd")]
    assert times == sorted(times) and len(times) == 360


def test_raw_bytes_are_those_that_were_written(bag, store, written):
    for message, (_, wanted) in zip(bag.messages("/odd"), written[1]["/odd"]):
        assert message.raw == bytes(store.serialize_cdr(wanted, "odd_msgs/msg/Odd"))
        assert message.type == "odd_msgs/msg/Odd"


def test_topics_know_their_length_type_and_definition(bag):
    imu = bag["/imu"]
    assert (len(imu), imu.type) == (300, "sensor_msgs/msg/Imu") and bag["imu"].name == "/imu"
    assert "geometry_msgs/Quaternion orientation" in imu.definition
    assert imu.lost is None and bag.lost is None, "rosbags counts no losses"
    assert [publisher["messages"] for publisher in imu.publishers] == [300]
    assert [account["message_count"] for account in bag.summaries] == [len(bag)]
    assert set(bag.topics) == {"/imu", "/odd", "/image", "/cloud"} and "/imu" in bag
    assert "/imu" in repr(bag) and "300" in repr(bag) and "<table>" in bag._repr_html_()


def test_parts_of_the_time_are_what_people_write(bag):
    imu = bag["/imu"]
    expected = [START + number * 10 * MS for number in range(50, 100)]
    start, end = START + 500 * MS, START + 1000 * MS
    clock = dt.datetime(2023, 11, 14, 22, 13, 20, 500_000, tzinfo=dt.timezone.utc)
    for bounds in ((0.5, 1.0), (start, end)):
        assert list(imu.between(*bounds).times) == expected, bounds
    for cut in (
        slice("500ms", "1s"),
        slice(clock, clock + dt.timedelta(seconds=0.5)),
        slice("22:13:20.5", "22:13:21"),
        slice("2023-11-14T22:13:20.5", "2023-11-14T22:13:21Z"),
        slice(np.datetime64(start, "ns"), np.datetime64(end, "ns")),
        slice(dt.timedelta(seconds=0.5), dt.timedelta(seconds=1)),
    ):
        found = imu[cut]
        assert list(found.times) == expected, cut
        assert len(found) == 50
    assert len(imu.between(end=0.5)) == 50 and len(imu.between(2.5)) == 50 and len(imu.between(0.5, 1.0)["900ms":"5s"]) == 10
    assert [message.time for message in bag.messages("/imu", start=0.5, end=1.0)] == expected


def test_every_where_and_numbers_select(bag):
    imu = bag["/imu"]
    assert imu.fields[:3] == ["header.stamp.sec", "header.stamp.nanosec", "header.frame_id"] and "linear_acceleration.z" in imu.fields
    assert list(imu.every("100ms").times) == [START + number * 100 * MS for number in range(30)]
    found = imu.where("linear_acceleration.x > 290")
    assert [message.msg.linear_acceleration.x for message in found] == [float(number) for number in range(291, 300)]
    assert len(found.where("linear_acceleration.x < 295")) == 4
    assert imu[42].msg.linear_acceleration.x == 42 and imu[-1].msg.linear_acceleration.x == 299
    assert found[2].msg.linear_acceleration.x == 293 and imu.every("100ms")[3].time == START + 300 * MS
    with pytest.raises(IndexError):
        imu[300]
    with pytest.raises(TypeError):
        imu[3, 4]
    with pytest.raises(IndexError):
        imu.between(0.5, 0.6)[10]
    for name in ("/imu", "imu"):
        assert len(list(bag.messages("/imu", where={name: "linear_acceleration.x >= 298"}))) == 2
    assert sum(1 for _ in bag.messages(every="1s")) == 4 * 1 + 2 + 2, "each topic has its own"


def test_iteration_ends_at_any_time_and_in_threads(bag):
    messages = bag.messages()
    next(messages)
    messages.close()
    assert next(messages, None) is None
    seen, shared = [], bag.messages()
    threads = [threading.Thread(target=lambda: seen.extend(message.time for message in shared)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == len(bag)


def test_values_outlive_their_bag(written):
    message = next(holdall.open(written[0]).messages("/image"))
    data, view = message.msg.data, holdall.image(message.msg)
    del message
    gc.collect()
    assert data[:5].tolist() == [0, 1, 2, 3, 4] and view.tolist()[1][0] == [10, 11, 12]


def test_handles_are_pickled(bag):
    again = pickle.loads(pickle.dumps(bag["/imu"].between(0.5, 1.0).every("100ms")))
    assert list(again.times) == list(bag["/imu"].between(0.5, 1.0).every("100ms").times) and len(again) == 5
    assert len(pickle.loads(pickle.dumps(bag))) == len(bag)


def test_sync_pairs_the_nearest(bag):
    pairs = list(bag.sync("/odd", "/imu", tolerance="4ms"))
    assert len(pairs) == 60
    assert all(odd.time - imu.time == 3 * MS for odd, imu in pairs)
    assert list(bag.sync("/odd", "/imu", tolerance="2ms")) == []
    assert len(list(bag.sync("/image", "/imu", "/cloud"))) == 5


def test_images_and_points_are_views(bag):
    images = bag.images("/image")
    assert len(images) == 5 and images[3].shape == (4, 3, 3)
    assert images[3][1, 2].tolist() == [10 + 6 + 3, 10 + 7 + 3, 10 + 8 + 3]
    assert not images[0].flags.owndata and not images[0].flags.writeable
    cloud = bag.points("/cloud")[4]
    assert cloud["x"].tolist() == [0, 1, 2, 3, 4, 5] and set(cloud["intensity"]) == {4}
    assert [frame[0, 0, 0] for frame in images] == [0, 1, 2, 3, 4]
    with pytest.raises(holdall.TopicError, match="/imu has messages of sensor_msgs/msg/Imu, not sensor_msgs/msg/Image"):
        bag.images("/imu")


def test_several_bags_and_patterns_are_read_as_one(written, tmp_path):
    path = written[0]
    both = holdall.open([path, next(path.glob("*.mcap"))])
    assert len(both["/imu"]) == 600
    for name in ("a", "b"):
        with holdall.create(tmp_path / name) as out:
            out.write("/t", "std_msgs/msg/String", {"data": name}, time=5)
    pattern = holdall.open(f"{tmp_path}/[ab]")
    assert [message.msg.data for message in pattern.messages()] == ["a", "b"]
    with pytest.raises(holdall.BagError, match="nothing matches"):
        holdall.open(f"{tmp_path}/x*")


def test_errors_have_their_place(bag, written, tmp_path):
    with pytest.raises(holdall.TopicError, match="/nope") as caught:
        bag["/nope"]
    assert caught.value.topic == "/nope" and isinstance(caught.value, (holdall.Error, LookupError))
    with pytest.raises(holdall.BagError, match="no such file") as caught:
        holdall.open(tmp_path / "none")
    assert caught.value.path == str(tmp_path / "none")
    with pytest.raises(holdall.ExpressionError, match="has no field speed"):
        bag["/imu"].where("speed > 3").times
    with pytest.raises(holdall.FieldError, match="no field linear_acceleration.w; it has x, y, z"):
        bag["/imu"].to_numpy("linear_acceleration.w")
    message = next(bag.messages("/imu"))
    with pytest.raises(AttributeError, match="has no field speed; it has header"):
        message.msg.speed
    with pytest.raises(ValueError):
        bag["/imu"].every("soon")
    text = tmp_path / "text.mcap"
    text.write_text("not a bag")
    with pytest.raises(holdall.BagError, match="not a bag"):
        holdall.open(text)


def test_a_message_that_does_not_fit_raises_there_or_is_skipped(tmp_path):
    with holdall.create(tmp_path / "bag") as out:
        for number in range(10):
            message = b"\0\1\0\0\5" if number == 4 else {"data": str(number)}
            out.write("/t", "std_msgs/msg/String", message, time=number)
    topic = holdall.open(tmp_path / "bag")["/t"]
    good = 0
    for message in topic:
        if message.time == 4:
            with pytest.raises(holdall.DecodeError) as caught:
                message.msg.data
            assert (caught.value.topic, caught.value.field) == ("/t", "data") and caught.value.offset == 4
        else:
            good += message.msg.data == str(message.time)
    assert good == 9
    with pytest.raises(holdall.DecodeError, match="message of 4 ns"):
        topic.to_numpy("data")
    assert topic.skip_errors().to_numpy("data").tolist() == [str(number) for number in range(10) if number != 4]


def test_a_torn_bag_opens_with_a_warning(written, tmp_path):
    whole = next(written[0].glob("*.mcap")).read_bytes()
    torn = tmp_path / "torn.mcap"
    torn.write_bytes(whole[: len(whole) // 2])
    with pytest.warns(holdall.BagWarning, match="damaged at byte"):
        bag = holdall.open(torn)
    assert 0 < sum(1 for _ in bag.messages(errors="skip")) < 370
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(pickle.loads(pickle.dumps(bag))) == len(bag)


def test_messages_are_pickled_with_their_types(bag, written):
    for topic in ("/imu", "/odd", "/image", "/cloud"):
        for message in bag.messages(topic):
            again = pickle.loads(pickle.dumps(message))
            assert type(again) is type(message) and again.raw == message.raw and again.msg == message.msg
            facts = ("topic", "time", "stamp", "publish_time", "sequence", "type", "publisher")
            assert [getattr(again, name) for name in facts] == [getattr(message, name) for name in facts]
            assert pickle.loads(pickle.dumps(message.msg)) == message.msg
    odd = next(iter(bag.messages("/odd"))).msg
    for part in (odd.many, odd.two):
        assert pickle.loads(pickle.dumps(list(part))) == list(part)
    assert pickle.loads(pickle.dumps(again)).msg == again.msg, "also one that was pickled before"


def test_strips_show_each_topic_over_time_with_its_gaps(tmp_path):
    for storage in ("mcap", "sqlite3"):
        with holdall.create(tmp_path / storage, storage=storage) as out:
            for number in range(1000):
                if not 400 <= number < 600:
                    out.write("/with <gap>", "std_msgs/msg/Int32", {"data": number}, time=START + number * MS)
                if number % 500 == 0:
                    out.write("/rare", "std_msgs/msg/Int32", {"data": number}, time=START + number * MS)
        bag = holdall.open(tmp_path / storage)
        lanes = bag.over_time(10)
        assert lanes["/with <gap>"] == [100] * 4 + [0] * 2 + [100] * 4, storage
        assert sum(lanes["/rare"]) == 2
        assert bag["/with <gap>"].gaps() == bag["/with <gap>"].gaps("50ms") == [(START + 399 * MS, START + 600 * MS)]
        assert bag["/with <gap>"].gaps(1.0) == [] and bag["/rare"].gaps() == []
        line = next(line for line in repr(bag).splitlines() if "gap" in line)
        assert line.count("·") in (4, 5) and "█" in line, line
        assert "·" not in next(line for line in repr(bag).splitlines() if "/rare" in line), "two messages have no gap"
        html = bag._repr_html_()
        assert html.count("<svg") == 2 and "#f6d5d1" in html and "/with &lt;gap&gt;" in html and "<gap>" not in html
    with pytest.raises(ValueError):
        bag.over_time(0)


def test_a_bag_without_messages_is_shown_too(tmp_path):
    with holdall.create(tmp_path / "empty") as out:
        out.add_topic("/t", "std_msgs/msg/Int32")
    bag = holdall.open(tmp_path / "empty")
    assert bag.over_time(3) == {"/t": [0, 0, 0]} and bag["/t"].gaps() == []
    assert "/t" in repr(bag) and "/t" in bag._repr_html_()


def test_a_plot_has_the_rates_gaps_and_losses_of_each_topic(tmp_path):
    import matplotlib

    matplotlib.use("Agg")
    with holdall.create(tmp_path / "bag") as out:
        for number in range(1001):
            if not 400 <= number < 600:
                out.write("/a", "std_msgs/msg/Int32", {"data": number}, time=START + number * MS)
            out.write("/b", "std_msgs/msg/Int32", {"data": number}, time=START + number * MS)
    bag = holdall.open(tmp_path / "bag")
    first, second = bag.plot(cells=20).axes
    assert [first.get_ylabel(), second.get_ylabel()] == ["/a", "/b"]
    rates = first.patches[0].get_data().values
    assert rates[0] == pytest.approx(1000) and list(rates[8:12]) == [0] * 4
    assert (len(first.patches), len(second.patches)) == (2, 1), "a gap is a patch of its own"
    (only,) = bag.plot("b").axes
    assert only.get_ylabel() == "/b"


def test_losses_are_a_dict_and_a_table():
    losses = _html.Losses({"/imu": {"cache": 1200, "transport": 3}, "/<b>": {"disk": 1}})
    assert losses["/imu"]["transport"] == 3 and losses.stages == ["cache", "disk", "transport"] and losses.total == 1204
    table = losses._repr_html_()
    assert "<tr><td>/imu</td><td>1,200</td><td>0</td><td>3</td><td>1,203</td></tr>" in table and "/&lt;b&gt;" in table
    assert _html.Losses()._repr_html_() == "<p>no message was lost</p>"
