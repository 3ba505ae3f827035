"""Bytes that are not what they should be: an exception or fewer messages, never a crash, a panic or a hang."""

import json
import random
import subprocess
import sys

import holdall
import numpy as np
import pytest

# Run in an interpreter of its own, so that a crash is seen as one.
SCRIPT = """
import json, random, sys, warnings
import holdall
warnings.simplefilter("ignore")
path, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
whole = open(path, "rb").read()
dice = random.Random(seed)
seen = {"messages": 0, "errors": 0, "fields": 0}
for number in range(count):
    content = bytearray(whole)
    for _ in range(dice.choice([1, 1, 3, 30])):
        content[dice.randrange(len(content))] = dice.choice([0, 1, 0x7f, 0x80, 0xff, dice.randrange(256)])
    if dice.random() < 0.2:
        del content[dice.randrange(len(content)):]
    with open("flipped" + path[-5:], "wb") as file:
        file.write(content)
    try:
        bag = holdall.open("flipped" + path[-5:])
        repr(bag), bag._repr_html_()
        for message in bag.messages(errors="skip"):
            seen["messages"] += 1
            try:
                repr(message.msg), message.msg.to_dict()
                seen["fields"] += 1
            except holdall.Error:
                seen["errors"] += 1
        for topic in bag.topics.values():
            for read in (topic.to_numpy, topic.skip_errors().to_numpy, topic.to_arrow):
                try:
                    read()
                except (holdall.Error, OSError):
                    seen["errors"] += 1
    except holdall.InternalError:
        raise
    except holdall.Error:
        seen["errors"] += 1
print(json.dumps(seen))
"""


@pytest.mark.parametrize("preset", ["zstd_fast", "none"])
def test_flipped_bytes_never_crash_the_interpreter(tmp_path, written, preset):
    source = holdall.open(written[0])
    with holdall.create(tmp_path / "bag", preset=preset) as out:
        for topic in ("/odd", "/imu"):
            for message in source[topic].between(end=0.3):
                out.copy(message, source)
    path = next((tmp_path / "bag").glob("*.mcap"))
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", SCRIPT, str(path), "7", "60"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout)
    assert min(seen.values()) > 50, seen
    assert "panicked" not in done.stderr


def test_flipped_payloads_are_decoded_alike_by_columns_and_by_messages(tmp_path, written):
    dice, source = random.Random(11), holdall.open(written[0])
    payloads = [bytearray(message.raw) for message in source["/odd"]] * 4
    with holdall.create(tmp_path / "bag") as out:
        out.add_topic("/odd", "odd_msgs/msg/Odd", definition=source["/odd"].definition)
        for number, payload in enumerate(payloads):
            for _ in range(number % 4):
                payload[dice.randrange(4, len(payload))] = dice.choice([0, 1, 0xFF, dice.randrange(256)])
            out.write("/odd", "odd_msgs/msg/Odd", bytes(payload), time=number)
    topic = holdall.open(tmp_path / "bag")["/odd"]
    fits, last = [], []
    for message in topic:
        try:
            message.msg.to_dict()
        except holdall.DecodeError:
            continue
        fits.append(message.time)
        last.append(message.msg.last)
    columns = topic.skip_errors().to_numpy(["last", "many", "names"])
    assert columns["log_time"].tolist() == topic.skip_errors().to_numpy()["log_time"].tolist() == fits
    assert columns["last"].tolist() == last and 60 <= len(fits) < len(payloads)
    assert topic.skip_errors().to_arrow().num_rows == len(fits)


def test_images_and_clouds_whose_sizes_are_wrong_are_refused(make):
    image = holdall.MessageType("sensor_msgs/msg/Image")
    for fields in ({"height": 4_000_000_000, "width": 4_000_000_000, "step": 1}, {"height": 2, "width": 2, "step": 6}, {"height": 1, "width": 9, "step": 3}):
        message = image.decode(image.encode({"encoding": "rgb8", "data": b"123456", **fields}))
        with pytest.raises(ValueError, match="does not fit"):
            holdall.image(message)
    with pytest.raises(ValueError, match="no image encoding"):
        holdall.image(image.decode(image.encode({"encoding": "jpeg"})))
    cloud = holdall.MessageType("sensor_msgs/msg/PointCloud2")
    field = {"name": "x", "offset": 8, "datatype": 7, "count": 1}
    for fields in ({"point_step": 4, "width": 1, "height": 1}, {"point_step": 12, "width": 2**31, "height": 2**31, "row_step": 5}):
        message = cloud.decode(cloud.encode({"fields": [field], "data": b"1234567890", **fields}))
        with pytest.raises(ValueError):
            holdall.points(message)


def test_any_bytes_are_a_message_or_an_error():
    kinds = holdall.MessageType("sensor_msgs/msg/JointState")
    dice = random.Random(3)
    for _ in range(500):
        payload = bytes([0, dice.choice([0, 1, 6, 7]), 0, 0, *(dice.choice([0, 0, 0, 1, 255, dice.randrange(256)]) for _ in range(dice.randrange(60)))])
        try:
            kinds.decode(payload).to_dict()
        except holdall.DecodeError as error:
            assert error.offset is not None and error.offset <= len(payload)
    assert kinds.decode(kinds.encode({"position": np.array([1.0])})).position.tolist() == [1.0]
