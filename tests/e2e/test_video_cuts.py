"""Bags with video that are cut anywhere: each file begins with the pictures that its first one needs, marked, and decoders of others show all of it."""

import itertools
import json
import re
import shutil
import sqlite3

import numpy as np
import pytest
import yaml
from mcap.reader import make_reader
from served import ask_bytes as ask
from served import served as served_at
from served import until
from test_small import START, STEP, decoded, plain, psnr, read, scene
from test_small import write as write_bag
from test_video import cdr
from test_web_look import picture

IMAGE = "sensor_msgs/msg/Image"
COUNT = 70


@pytest.fixture
def small(tmp_path, world, ffmpeg):
    """A bag with video and small images beside it, and what all pictures are decoded to."""

    def make(carrier="foxglove"):
        topics = {
            "/camera": (IMAGE, [(n, plain(n, "rgb8", scene(n, 160, 120))) for n in range(COUNT)]),
            "/other": (IMAGE, [(n, plain(n, "mono8", np.full((4, 4), n, np.uint8))) for n in range(COUNT)]),
        }
        bag = world.folder / "small"
        done = world.run("compress", write_bag(tmp_path / "camera.mcap", topics), "-o", bag, "--video", "/camera=h264,quality=20", "--as", carrier)
        assert done.returncode == 0, done.stderr
        units = [bytes(one[4].data) for one in read(bag)["/camera"]]
        seen, kinds = decoded(b"".join(units), "h264", 160, 120)
        assert len(seen) == COUNT
        return bag, units, seen, [number for number, (key, _) in enumerate(kinds) if key == "1"]

    return make


def of_file(path):
    with open(path, "rb") as stream:
        messages = [(message.log_time, message.publish_time, message.data) for _, channel, message in make_reader(stream).iter_messages(topics=["/camera"])]
    return messages


def custom_data(bag):
    return yaml.safe_load((bag / "metadata.yaml").read_text())["rosbag2_bagfile_information"]["custom_data"]


def marked(bag):
    """How many pictures the bag says are from before its beginning."""
    files = json.loads(custom_data(bag)["holdall.repeated"]).values()
    channels = [channel for file in files for channel in file["channels"]]
    assert {channel["topic"] for channel in channels} <= {"/camera"}
    return sum(len(channel["messages"]) for channel in channels)


def data_of(payload, units):
    """The picture in a message: one of those that were made."""
    found = [number for number, unit in enumerate(units) if unit in payload]
    assert len(found) == 1, found
    return found[0]


def shown(numbers, units):
    return decoded(b"".join(units[number] for number in numbers), "h264", 160, 120)[0]


@pytest.mark.parametrize("carrier", ["foxglove", "ffmpeg_image_transport", "compressed_image"])
def test_a_bag_that_begins_anywhere_begins_with_the_pictures_that_are_needed(world, small, carrier):
    bag, units, seen, keys = small(carrier)
    random = np.random.default_rng(3)
    moments = [START + int(at) for at in random.integers(0, COUNT * STEP - 1, 8)] + [START + n * STEP for n in (0, 1, keys[1], keys[1] + 1, keys[-1] - 1, COUNT - 1)]
    for number, moment in enumerate(moments):
        cut = world.folder / f"cut{number}"
        done = world.run("filter", bag, "-o", cut, "--start", f"@{moment // 10**9}.{moment % 10**9:09}")
        assert done.returncode == 0, done.stderr
        first = -(-(moment - START) // STEP)
        key = max(key for key in keys if key <= first)
        (path,) = cut.glob("*.mcap")
        messages = of_file(path)
        numbers = [data_of(payload, units) for *_, payload in messages]
        assert numbers == list(range(key, COUNT)), moment
        assert [publish for _, publish, _ in messages] == [START + n * STEP - 1000 for n in numbers], "each copy says when it was sent"
        assert all(log >= moment for log, *_ in messages) and [log for log, *_ in messages[first - key :]] == [START + n * STEP for n in range(first, COUNT)]
        # Whoever decodes the file from its beginning sees each picture of the window.
        assert np.array_equal(shown(numbers, units), seen[key:]), moment
        assert marked(cut) == first - key
        fine = world.run("check", cut)
        assert fine.returncode == 0, fine.stdout + fine.stderr
    bare = world.run("filter", bag, "-o", world.folder / "bare", "--start", f"@{moments[-1] // 10**9}.{moments[-1] % 10**9:09}", "--no-latched-state")
    assert bare.returncode == 0 and world.info(world.folder / "bare")["message_count"] == 2


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_each_file_of_a_split_is_decoded_alone_and_the_bag_has_each_picture_once(world, small, storage):
    bag, units, seen, keys = small()
    parts = world.folder / "parts"
    done = world.run("convert", bag, "-o", parts, "-s", storage, "--max-bag-duration", "0.63")
    assert done.returncode == 0, done.stderr
    files = sorted(parts.glob("*.mcap" if storage == "mcap" else "*.db3"), key=lambda path: int(path.stem.rsplit("_", 1)[1]))
    assert len(files) > 3
    begun = 0
    for path in files:
        if storage == "mcap":
            messages = [payload for *_, payload in of_file(path)]
        else:
            rows = sqlite3.connect(path).execute("SELECT data FROM messages JOIN topics ON topics.id = topic_id WHERE name = '/camera' ORDER BY timestamp, messages.id")
            messages = [data for (data,) in rows]
        numbers = [data_of(payload, units) for payload in messages]
        assert numbers[0] == max(key for key in keys if key <= begun) and numbers == list(range(numbers[0], numbers[-1] + 1)), numbers
        assert np.array_equal(shown(numbers, units), seen[numbers[0] : numbers[-1] + 1])
        begun = numbers[-1] + 1
    assert begun == COUNT
    about = world.info(parts)
    assert about["message_count"] == 2 * COUNT and about["repeated_messages"]["/camera"] > 10, about
    large = world.run("decompress", parts, "-o", world.folder / "large")
    assert large.returncode == 0 and world.info(world.folder / "large")["message_count"] == 2 * COUNT, large.stderr


def test_parameters_that_were_sent_once_are_brought_along(tmp_path, world, small):
    _, units, seen, keys = small()
    # Key frames but the first lose their parameters.
    bare = [unit if number == 0 else b"".join(b"\0\0\0\1" + nal for nal in unit.replace(b"\0\0\0\1", b"\0\0\1").split(b"\0\0\1")[1:] if nal[0] & 31 not in (7, 8)) for number, unit in enumerate(units)]
    stamp = [("i", 1), ("I", 2), ("s", "lens")]
    bag = write_bag(tmp_path / "once.mcap", {"/camera": ("sensor_msgs/msg/CompressedImage", [(n, cdr(*stamp, ("s", "h264"), ("b", unit))) for n, unit in enumerate(bare)])})
    first = keys[1] + 5
    moment = START + first * STEP
    done = world.run("filter", bag, "-o", world.folder / "cut", "--start", f"@{moment // 10**9}.{moment % 10**9:09}")
    assert done.returncode == 0, done.stderr
    (path,) = (world.folder / "cut").glob("*.mcap")
    numbers = [data_of(payload, bare) for *_, payload in of_file(path)]
    assert numbers == [0, *range(keys[1], COUNT)]
    assert np.array_equal(shown(numbers, bare), seen[numbers])
    assert marked(world.folder / "cut") == 6


def test_a_video_whose_first_message_is_damaged_is_cut_as_others(tmp_path, world, small):
    _, units, seen, keys = small()
    stamp = [("i", 1), ("I", 2), ("s", "lens")]
    messages = [(n, cdr(*stamp, ("s", "h264"), ("b", b"damage" if n == 0 else unit))) for n, unit in enumerate(units)]
    bag = write_bag(tmp_path / "torn.mcap", {"/camera": ("sensor_msgs/msg/CompressedImage", messages)})
    first = keys[1] + 5
    moment = START + first * STEP
    done = world.run("filter", bag, "-o", world.folder / "cut", "--start", f"@{moment // 10**9}.{moment % 10**9:09}")
    assert done.returncode == 0, done.stderr
    (path,) = (world.folder / "cut").glob("*.mcap")
    numbers = [data_of(payload, units) for *_, payload in of_file(path)]
    assert numbers == list(range(keys[1], COUNT)) and np.array_equal(shown(numbers, units), seen[numbers])


@pytest.mark.parametrize("how", ["chunks", "messages"])
def test_a_part_counts_what_it_has_and_an_audit_finds_other_counts(world, small, how):
    bag, _, _, keys = small()
    moment = START + (keys[1] + 5) * STEP
    part = world.folder / "part"
    more = ["-w", "/other: height > 0"] if how == "messages" else []
    done = world.run("filter", bag, "-o", part, "--start", f"@{moment // 10**9}.{moment % 10**9:09}", *more)
    assert done.returncode == 0, done.stderr

    def account(bag):
        (about,) = [one for one in json.loads(custom_data(bag)["holdall.recoded"]) if one["topic"] == "/camera"]
        return about["messages"], about["kept"], about.get("measured")

    have = COUNT - keys[1] - 5
    assert account(bag) == (COUNT, 0, None) and account(part) == (have, 0, COUNT)
    assert f"/camera: {have} messages of {IMAGE} became" in world.run("info", part).stdout
    said = f"bytes, reasons and likeness are of {COUNT} messages"
    assert said in world.run("info", part).stdout and said not in world.run("info", bag).stdout
    assert "its account counts" not in world.run("audit", part).stderr
    text = (part / "metadata.yaml").read_text()
    (part / "metadata.yaml").write_text(re.sub(rf'(messages\\?":\s*){have}\b', rf"\g<1>{have + 3}", text))
    assert account(part)[0] == have + 3
    found = world.run("audit", part, "--json")
    (notice,) = [one for one in json.loads(found.stdout)["notices"] if "its account counts" in one]
    assert notice == f"/camera: its account counts {have + 3} messages that became foxglove_msgs/msg/CompressedVideo, and the bag has {have}" and notice in found.stderr


def test_equal_parts_of_a_bag_are_all_counted_when_they_are_merged(world, small):
    bag, _, _, keys = small()
    last, first, end = (f"@{moment // 10**9}.{moment % 10**9:09}" for moment in (START + number * STEP - late for number, late in ((keys[1], 1), (keys[1], 0), (2 * keys[1], 1))))
    for name, part in (("early", ["--end", last]), ("late", ["--start", first, "--end", end])):
        done = world.run("filter", bag, "-o", world.folder / name, *part)
        assert done.returncode == 0, done.stderr
        # A file by itself, too.
        for path in (world.folder / name, *(world.folder / name).glob("*.mcap")):
            audit = world.run("audit", path)
            assert "its account counts" not in audit.stderr, (path, audit.stderr)
    done = world.run("merge", world.folder / "early", world.folder / "late", "-o", world.folder / "again")
    assert done.returncode == 0, done.stderr
    entries = [one["messages"] for one in json.loads(custom_data(world.folder / "again")["holdall.recoded"]) if one["topic"] == "/camera"]
    assert entries == [keys[1]] * 2
    assert "its account counts" not in world.run("audit", world.folder / "again").stderr


def listed_keys(bag):
    """The log times of key frames as the bag lists them, in milliseconds."""
    (about,) = [one for one in json.loads(custom_data(bag)["holdall.recoded"]) if one["topic"] == "/camera"]
    return list(itertools.accumulate(int(part) for part in about["keys"].split(" ")))


def test_the_bag_lists_its_key_frames(world, small):
    bag, _, _, keys = small()
    assert listed_keys(bag) == [(START + number * STEP) // 10**6 for number in keys]


def test_with_the_list_any_picture_is_found_with_fewer_bytes(tmp_path, world, ffmpeg, bucket):
    # Lossless, so that a second has some megabytes, and pictures that come soon after a key frame.
    count = 200
    raw = write_bag(tmp_path / "camera.mcap", {"/camera": (IMAGE, [(n, plain(n, "rgb8", scene(n))) for n in range(count)])})
    done = world.run("compress", raw, "-o", world.folder / "look", "--video", "/camera=lossless")
    assert done.returncode == 0, done.stderr
    bare = tmp_path / "bare" / "look"
    shutil.copytree(world.folder / "look", bare)
    text = (bare / "metadata.yaml").read_text()
    (bare / "metadata.yaml").write_text(re.sub(r'(\\?"keys\\?":\s*\\?")[0-9 ]+', r"\1", text))
    assert listed_keys(world.folder / "look") and '"keys":""' in (bare / "metadata.yaml").read_text().replace("\\", "").replace(" ", "")
    world.env.update({name: value for name, value in bucket.env().items() if name.startswith("AWS_")})
    numbers = [28, 68, 109, 170]
    sent, seen = {}, {}
    for kind, folder in (("listed", world.folder / "look"), ("bare", bare)):
        bucket.put_folder(folder, f"{kind}/look")
        web = world.holdall("web", f"s3://fleet/{kind}", "127.0.0.1:0", "--foxglove", "127.0.0.1:0")
        address = served_at(web, "bags: ")
        until(lambda address=address: json.loads(ask(address, "GET", "/api/bags")[1])["bags"], "the bag in the list")
        picture(address, "/camera", at=START)
        bucket.proxy.take()
        seen[kind] = [picture(address, "/camera", at=START + number * STEP)[0] for number in numbers]
        requests = bucket.proxy.take()
        sent[kind] = (sum(request[3] for request in requests) / len(numbers), len(requests) / len(numbers))
        code, said = web.stop()
        assert code == 0, said
    print("bytes and requests for a picture:", sent)
    assert all(np.array_equal(one, other) for one, other in zip(*seen.values(), strict=True))
    # Pages show JPEG.
    assert all(psnr(one, scene(number)) > 28 for one, number in zip(seen["listed"], numbers, strict=True))
    assert sent["listed"][0] < 0.8 * sent["bare"][0], sent


def test_a_choice_of_single_pictures_is_warned_of(world, small, tmp_path):
    bag, _, _, _ = small()
    said = "/camera is video: many of the chosen pictures depend on pictures that are left out, and cannot be decoded"
    for number, (choice, is_said) in enumerate([
        (["--max-rate", "10"], True),
        (["--max-rate", "/camera=10"], True),
        (["--max-rate", "/other=10"], False),
        (["-w", "/camera: timestamp.nanosec > 5"], True),
        (["-w", "/other: height > 5"], False),
        (["--start", "1s"], False),
    ]):  # fmt: skip
        done = world.run("filter", bag, "-o", tmp_path / f"out{number}", *choice)
        assert (said in done.stderr) == is_said, (choice, done.stderr)


@pytest.mark.parametrize("carrier", ["foxglove", "ffmpeg_image_transport"])
def test_a_recorder_that_thins_video_out_warns_of_it(world, small, carrier):
    bag, _, _, _ = small(carrier)
    thin = ["--topic-throttle-frequency", "/camera=5", "--topic-throttle-frequency", "/other=5"]
    recorder = world.holdall("record", "-o", world.folder / "thin", "--topics", "/camera", "/other", *thin)
    recorder.wait_until_says("Listening for topics")
    played = world.run("play", bag, "-r", "20", "--wait-for-subscribers", "/camera=1", "/other=1")
    assert played.returncode == 0, played.stderr
    code, said = recorder.stop()
    assert code == 0, said
    assert "/camera: its rate leaves single pictures of its video out; those that need them cannot be decoded" in said
    assert "/other: its rate" not in said


def test_pictures_that_depend_on_a_lost_one_are_neither_restored_nor_played(world, small, tmp_path):
    bag, _, seen, keys = small()
    lost = keys[1] + 5
    done = world.run("filter", bag, "-o", tmp_path / "lossy", "-w", f"/camera: timestamp.nanosec != {7 * lost}")
    assert done.returncode == 0, done.stderr
    dependent = set(range(lost, keys[2]))
    done = world.run("decompress", tmp_path / "lossy", "-o", tmp_path / "plain")
    assert f"{len(dependent) - 1} messages kept" in done.stderr and "this picture depends on one that is missing" in done.stderr, done.stderr
    images = {one[4].header.stamp.sec - 100: one[4] for one in read(tmp_path / "plain")["/camera"] if one[0] == IMAGE}
    assert set(images) == set(range(COUNT)) - dependent
    assert all(psnr(np.frombuffer(image.data, np.uint8).reshape(120, 160, 3), seen[number]) > 45 for number, image in images.items())
    differ = world.run("diff", tmp_path / "camera.mcap", tmp_path / "lossy", "--decoded", "--tolerance", "psnr=20", "--json")
    (found,) = [one for one in json.loads(differ.stdout)["decoded"] if one["topic"] == "/camera"]
    assert differ.returncode == 1 and found["reason"] == "this picture depends on one that is missing", found
    assert (found["pairs"], found["only_in_first"], found["not_compared"], found["beyond"]) == (COUNT - 1, 1, len(dependent) - 1, 0)
    played = world.run("play", tmp_path / "lossy", "--decode-video", "--json", "-r", "20")
    assert played.returncode == 1 and "this picture depends on one that is missing" in played.stdout + played.stderr, played.stderr
    assert json.loads(played.stdout)["published"] == 2 * COUNT - len(dependent)
