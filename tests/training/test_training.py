"""Datasets for machine learning, read by the libraries that train on them: datasets, pyarrow, pandas, webdataset, and decoded by real ffmpeg."""

import io
import json
import math
import os
import re
import shutil
import subprocess
from pathlib import Path

import datasets
import holdall
import imageio_ffmpeg
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import webdataset
from PIL import Image

START = 1_793_577_600_000_000_000
MS = 1_000_000
JOINTS = ["shoulder", "elbow", "wrist"]
HOLDALL = os.environ["HOLDALL_BIN"]


def pixels(step):
    """A picture whose colours say which one it is."""
    rows, columns = np.mgrid[0:24, 0:32]
    return np.stack([rows * 10, columns * 7, np.full_like(rows, (step * 5) % 256)], axis=-1).astype(np.uint8)


def make_bag(path, seconds=4.0, pause_s=None):
    """Joints at 100 Hz, commands at 50 Hz, a camera at 25 Hz, a task that changes in the middle; without camera in the middle on request."""
    with holdall.create(path) as out:
        for step in range(int(seconds * 100)):
            time = START + step * 10 * MS
            half = "place" if step >= seconds * 50 else "pick"
            if step % 50 == 0:
                out.write("/task", "std_msgs/msg/String", {"data": half if 0 < step < seconds * 100 - 50 else ""}, time=time)
            order = JOINTS if step % 2 else JOINTS[::-1]
            place = {name: step + 0.25 * number for number, name in enumerate(JOINTS)}
            joints = {"name": order, "position": [place[name] for name in order]}
            out.write("/joints", "sensor_msgs/msg/JointState", joints, time=time + 1 * MS)
            if step % 2 == 0:
                out.write("/command", "std_msgs/msg/Float64MultiArray", {"data": [float(step), -float(step)]}, time=time + 2 * MS)
            is_paused = pause_s is not None and pause_s[0] <= step / 100 < pause_s[1]
            if step % 4 == 0 and not is_paused:
                stamp = {"sec": (time + 3 * MS) // 10**9, "nanosec": (time + 3 * MS) % 10**9}
                image = {"header": {"stamp": stamp}, "height": 24, "width": 32, "encoding": "rgb8", "step": 96, "data": pixels(step).tobytes()}
                out.write("/camera", "sensor_msgs/msg/Image", image, time=time + 3 * MS)
                depth = (pixels(step)[..., 2].astype("<u2") * 100).tobytes()
                out.write("/depth", "sensor_msgs/msg/Image", {"height": 24, "width": 32, "encoding": "16UC1", "step": 64, "data": depth}, time=time + 3 * MS)
                written = io.BytesIO()
                Image.fromarray(pixels(step)).save(written, "JPEG", quality=95)
                out.write("/jpeg", "sensor_msgs/msg/CompressedImage", {"format": "jpeg", "data": written.getvalue()}, time=time + 3 * MS)


MAPPING = """
fps: 25
robot_type: arm
task: wait
tolerance_s: 0.03
features:
  observation.state: {topic: /joints, fields: [position], names_field: name, names: [wrist, shoulder]}
  action: {topic: /command, fields: ["data[0:2]"], dtype: float64}
  speed: {topic: /command, fields: ["data[1]"]}
  observation.images.top: {topic: /camera}
  observation.images.wrist: {topic: /jpeg}
  observation.depth: {topic: /depth}
"""


@pytest.fixture(scope="module")
def bag(tmp_path_factory):
    path = tmp_path_factory.mktemp("bags") / "run"
    make_bag(path)
    return path


def export(bag, mapping, out, *words, format="lerobot", code=0, env=None):
    file = out.with_suffix(".yaml")
    file.write_text(mapping)
    command = [HOLDALL, "export", *map(str, [bag] if isinstance(bag, Path) else bag), "-f", format, "--mapping", file, "-o", out, "--json", *words]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=env)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout) if code == 0 else done.stderr


def read(folder):
    """All frames, as the loader of LeRobot opens them: every table, with the features of `info.json`."""
    info = json.loads((folder / "meta/info.json").read_text())
    features = {}
    for name, feature in info["features"].items():
        value = datasets.Value(feature["dtype"]) if feature["dtype"] not in ("image", "video") else None
        if feature["dtype"] == "image":
            features[name] = datasets.Image()
        elif feature["dtype"] != "video":
            features[name] = value if feature["shape"] == [1] else datasets.Sequence(length=feature["shape"][0], feature=value)
    paths = sorted(map(str, (folder / "data").glob("*/*.parquet")))
    cache = folder.parent / "cache"
    frames = datasets.Dataset.from_parquet(paths, features=datasets.Features(features), cache_dir=str(cache))
    episodes = datasets.Dataset.from_parquet(sorted(map(str, (folder / "meta/episodes").glob("*/*.parquet"))), cache_dir=str(cache))
    tasks = pd.read_parquet(folder / "meta/tasks.parquet")
    return info, frames, episodes, tasks, json.loads((folder / "meta/stats.json").read_text())


def test_a_bag_becomes_a_lerobot_dataset_that_datasets_opens(bag, tmp_path):
    out = tmp_path / "set"
    report = export(bag, MAPPING, out)
    info, frames, episodes, tasks, stats = read(out)
    assert info["codebase_version"] == "v3.0" and info["robot_type"] == "arm" and info["fps"] == 25
    assert len(frames) == info["total_frames"] == report["frames"] == 100
    assert list(tasks.index) == ["wait"] and tasks.iloc[0].name == "wait" and list(tasks["task_index"]) == [0]
    # Frames begin with the first camera image, 3 ms after each 40 ms.
    first = frames[10]
    assert first["observation.state"] == pytest.approx([40.5, 40.0]) and first["action"] == [40.0, -40.0]
    assert first["speed"] == -40.0 and first["timestamp"] == pytest.approx(0.4)
    assert [first[name] for name in ("frame_index", "episode_index", "index", "task_index")] == [10, 0, 10, 0]
    assert np.array_equal(np.array(first["observation.images.top"]), pixels(40))
    assert np.abs(np.array(first["observation.images.wrist"]).astype(int) - pixels(40)).mean() < 6
    assert np.array_equal(np.array(first["observation.depth"]), pixels(40)[..., 2].astype(int) * 100)
    features = info["features"]
    assert features["observation.state"]["names"] == ["wrist", "shoulder"] and features["speed"]["names"] == ["data[1]"]
    assert features["observation.images.top"] == {"dtype": "image", "shape": [24, 32, 3], "names": ["height", "width", "channels"]}
    assert features["observation.depth"]["info"] == {"is_depth_map": True, "depth_unit": "mm"}
    episode = episodes[0]
    assert (episode["episode_index"], episode["length"], episode["dataset_from_index"], episode["dataset_to_index"]) == (0, 100, 0, 100)
    assert (episode["data/chunk_index"], episode["data/file_index"], episode["tasks"]) == (0, 0, ["wait"])
    check_stats(frames, episode, stats)
    fits = {feature["feature"]: feature for feature in report["features"]}
    assert fits["observation.state"]["distance_ns_max"] == 2 * MS and fits["observation.images.top"]["distance_ns_max"] == 0
    # What datasets makes of a table without being given the features.
    plain = datasets.Dataset.from_parquet(str(out / "data/chunk-000/file-000.parquet"), cache_dir=str(tmp_path / "plain"))
    assert isinstance(plain.features["observation.images.top"], datasets.Image)


def check_stats(frames, episode, stats):
    """The statistics are those that numpy computes."""
    for name in ("observation.state", "action", "speed", "timestamp", "index"):
        values = np.array(frames[name][:], dtype=np.float64).reshape(len(frames), -1)
        expected = {"min": values.min(0), "max": values.max(0), "mean": values.mean(0), "std": values.std(0)}
        expected |= {f"q{share:02}": np.quantile(values, share / 100, axis=0) for share in (1, 10, 50, 90, 99)}
        for what, value in expected.items():
            assert np.allclose(stats[name][what], value, rtol=1e-5), (name, what)
            assert np.allclose(episode[f"stats/{name}/{what}"], value, rtol=1e-5), (name, what)
        assert stats[name]["count"] == episode[f"stats/{name}/count"] == [len(frames)]
    images = np.stack([np.array(image) for image in frames["observation.images.top"]]).reshape(-1, 3) / 255
    found = np.array(stats["observation.images.top"]["mean"])
    assert found.shape == (3, 1, 1) and np.allclose(found.ravel(), images.mean(0))
    assert np.allclose(np.array(episode["stats/observation.images.top/std"]).ravel(), images.std(0))
    assert np.array(stats["observation.depth"]["max"]).shape == (1, 1, 1) and stats["observation.depth"]["max"][0][0][0] > 255


def test_episodes_are_divided_by_a_topic_whose_text_is_the_task(bag, tmp_path):
    out = tmp_path / "set"
    report = export([bag, bag], MAPPING + "episodes: {by: topic, topic: /task, field: data, is_task: true}\n", out)
    info, frames, episodes, tasks, _ = read(out)
    # Of 0.5 to 2 s and of 2 to 3.5 s.
    assert [episode["task"] for episode in report["episodes"]] == ["pick", "place"] * 2
    assert list(episodes["tasks"]) == [["pick"], ["place"]] * 2 and list(tasks.index) == ["pick", "place"]
    assert all(length in (37, 38) for length in episodes["length"]) and info["total_episodes"] == 4
    for episode in episodes:
        rows = frames.select(range(episode["dataset_from_index"], episode["dataset_to_index"]))
        assert set(rows["episode_index"]) == {episode["episode_index"]} and list(rows["frame_index"]) == list(range(episode["length"]))
        assert [tasks.iloc[number].name for number in set(rows["task_index"])] == episode["tasks"]
    table = pq.ParquetFile(out / "data/chunk-000/file-000.parquet")
    assert table.num_row_groups == 4, "a row group for each episode"


def test_a_pause_is_reported_held_divided_or_refused(tmp_path):
    bag = tmp_path / "run"
    make_bag(bag, pause_s=(1.0, 2.0))
    held = export(bag, MAPPING, tmp_path / "held")
    fits = {feature["feature"]: feature for feature in held["features"]}
    assert held["frames"] == 100 and fits["observation.images.top"]["held"] >= 23
    assert 0.9e9 < fits["observation.images.top"]["distance_ns_max"] < 1.1e9 and fits["action"]["held"] == 0
    split = export(bag, MAPPING + "missing: split\n", tmp_path / "split")
    assert [episode["frames"] for episode in split["episodes"]] in ([25, 50], [26, 50])
    assert all(feature["held"] == 0 for feature in split["features"])
    refused = export(bag, MAPPING + "missing: fail\n", tmp_path / "fail", code=2)
    assert "observation" in refused and "tolerance" in refused and not (tmp_path / "fail").exists()


def with_ffmpeg(tmp_path):
    """An environment whose PATH has the ffmpeg of the package imageio-ffmpeg."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "ffmpeg").symlink_to(imageio_ffmpeg.get_ffmpeg_exe())
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}


def test_images_become_a_video_with_all_frames_of_all_episodes(bag, tmp_path):
    out = tmp_path / "set"
    env = with_ffmpeg(tmp_path)
    video = MAPPING.replace("{topic: /camera}", "{topic: /camera, video: true}") + "video: {codec: libx264, crf: 4}\n"
    export([bag, bag], video, out, env=env)
    info, frames, episodes, _, stats = read(out)
    feature = info["features"]["observation.images.top"]
    assert feature["dtype"] == "video" and feature["info"]["video.codec"] == "h264" and "observation.images.top" not in frames.column_names
    assert list(episodes["videos/observation.images.top/from_timestamp"]) == [0.0, 4.0]
    assert list(episodes["videos/observation.images.top/to_timestamp"]) == [4.0, 8.0]
    path = out / info["video_path"].format(video_key="observation.images.top", chunk_index=0, file_index=0)
    command = [env["PATH"].split(":")[0] + "/ffmpeg", "-loglevel", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    decoded = np.frombuffer(subprocess.run(command, capture_output=True, check=True).stdout, np.uint8).reshape(-1, 24, 32, 3)
    assert len(decoded) == 200
    for number in (0, 57, 100, 199):
        expected = pixels((number % 100) * 4).astype(int)
        assert np.abs(decoded[number].astype(int) - expected).mean() < 12, number
    assert np.array(stats["observation.images.top"]["mean"]).shape == (3, 1, 1)


def test_images_that_are_video_in_the_bag_are_the_same_as_before(bag, tmp_path):
    env = with_ffmpeg(tmp_path)
    video = ["--video", "/camera=lossless", "--video", "/depth=lossless", "--video", "/jpeg=h264,quality=4"]
    subprocess.run([HOLDALL, "compress", bag, "-o", tmp_path / "small", *video], env=env, check=True, capture_output=True)
    small = holdall.open(tmp_path / "small")
    assert small["/camera"].type == small["/jpeg"].type == "foxglove_msgs/msg/CompressedVideo"
    # From the middle of a second on, too: the pictures before it are decoded, and are no frames.
    for number, words in enumerate([[], ["--start-offset", "2.5"]]):
        before, after = tmp_path / f"before{number}", tmp_path / f"after{number}"
        first = export(bag, MAPPING, before, *words)
        second = export(tmp_path / "small", MAPPING, after, *words, env=env)
        assert first["frames"] == second["frames"] >= 37 and [feature["failed"] for feature in second["features"]] == [0] * 6
        (_, images, *_), (_, pictures, *_) = read(before), read(after)
        for image, picture in zip(images, pictures, strict=True):
            for name in ("observation.images.top", "observation.depth"):
                assert np.array_equal(np.array(image[name]), np.array(picture[name])), (name, image["frame_index"])
            apart = np.array(image["observation.images.wrist"]).astype(int) - np.array(picture["observation.images.wrist"])
            assert np.abs(apart).mean() < 6, image["frame_index"]
    shards = export(tmp_path / "small", MAPPING, tmp_path / "shards", format="webdataset", env=env)
    assert shards["frames"] == 100
    samples = webdataset.WebDataset(str(tmp_path / "shards/shard-000000.tar"), shardshuffle=False).decode("rgb8")
    assert all(np.array_equal(sample["observation.images.top.png"], pixels(4 * number)) for number, sample in enumerate(samples))
    empty = tmp_path / "empty"
    empty.mkdir()
    refused = export(tmp_path / "small", MAPPING, tmp_path / "set", code=2, env={**os.environ, "PATH": str(empty)})
    assert "the video on /camera cannot be decoded" in refused and "ffmpeg" in refused and not (tmp_path / "set").exists()


def test_recorded_video_is_copied_into_the_videos_of_all_episodes(bag, tmp_path):
    env = with_ffmpeg(tmp_path)
    subprocess.run([HOLDALL, "compress", bag, "-o", tmp_path / "small", "--video", "/camera=h264"], env=env, check=True, capture_output=True)
    mapping = MAPPING.replace("{topic: /camera}", "{topic: /camera, video: true}")
    report = export([tmp_path / "small"] * 2, mapping, tmp_path / "set", env=env)
    videos = {feature["feature"]: feature.get("video") for feature in report["features"]}
    assert videos.pop("observation.images.top") == {"copied": 2, "encoded": 0} and not any(videos.values())
    info, frames, episodes, _, stats = read(tmp_path / "set")
    assert info["features"]["observation.images.top"]["info"]["video.codec"] == "h264" and len(frames) == 200
    assert list(episodes["videos/observation.images.top/from_timestamp"]) == [0.0, 4.0]
    assert list(episodes["videos/observation.images.top/to_timestamp"]) == [4.0, 8.0]
    path = tmp_path / "set" / info["video_path"].format(video_key="observation.images.top", chunk_index=0, file_index=0)
    command = [env["PATH"].split(":")[0] + "/ffmpeg", "-loglevel", "error"]
    copied = subprocess.run([*command, "-i", path, "-f", "rawvideo", "-"], capture_output=True, check=True).stdout
    stream = b"".join(bytes(message.msg.data) for message in holdall.open(tmp_path / "small")["/camera"])
    recorded = subprocess.run([*command, "-f", "h264", "-i", "-", "-f", "rawvideo", "-"], input=stream, capture_output=True, check=True).stdout
    assert copied == 2 * recorded
    # Statistics are those of the decoded pictures.
    export(tmp_path / "small", MAPPING, tmp_path / "images", env=env)
    plain = json.loads((tmp_path / "images/meta/stats.json").read_text())
    assert np.allclose(stats["observation.images.top"]["mean"], plain["observation.images.top"]["mean"])


def test_pictures_that_depend_on_a_lost_one_are_no_frames(bag, tmp_path):
    env = with_ffmpeg(tmp_path)
    subprocess.run([HOLDALL, "compress", bag, "-o", tmp_path / "small", "--video", "/camera=lossless"], env=env, check=True, capture_output=True)
    # A key frame has the parameters of its sequence.
    parameters = re.compile(b"\0\0\1[\x07\x27\x47\x67]")
    keys = [number for number, message in enumerate(holdall.open(tmp_path / "small")["/camera"]) if parameters.search(bytes(message.msg.data))]
    lost = keys[1] + 4
    time = START + lost * 40 * MS + 3 * MS
    question = f"/camera: timestamp.sec != {time // 10**9} || timestamp.nanosec != {time % 10**9}"
    subprocess.run([HOLDALL, "filter", tmp_path / "small", "-o", tmp_path / "lossy", "-w", question], check=True, capture_output=True)
    assert len(holdall.open(tmp_path / "lossy")["/camera"]) == 99
    (tmp_path / "m.yaml").write_text(MAPPING)
    out = tmp_path / "set"
    command = [HOLDALL, "export", tmp_path / "lossy", "-f", "lerobot", "--mapping", tmp_path / "m.yaml", "-o", out, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    dependent = range(lost, keys[2])
    assert done.returncode == 1 and f"{len(dependent) - 1} messages of /camera could not be used" in done.stderr, done.stderr
    assert "this picture depends on one that is missing" in done.stderr, done.stderr
    failed = {feature["feature"]: feature["failed"] for feature in json.loads(done.stdout)["features"]}
    assert failed.pop("observation.images.top") == len(dependent) - 1 and not any(failed.values())
    _, frames, *_ = read(out)
    assert len(frames) == 100
    for number, image in enumerate(frames["observation.images.top"][:]):
        shown = lost - 1 if number in dependent else number
        assert np.array_equal(np.array(image), pixels(4 * shown)), number


def test_a_video_without_ffmpeg_is_refused_before_anything_is_read(bag, tmp_path):
    mapping = MAPPING.replace("{topic: /camera}", "{topic: /camera, video: true}")
    empty = tmp_path / "empty"
    empty.mkdir()
    refused = export(bag, mapping, tmp_path / "set", code=2, env={**os.environ, "PATH": str(empty)})
    assert "needs the program ffmpeg" in refused and not (tmp_path / "set").exists()
    unknown = export(bag, mapping + "video: {codec: libnone}\n", tmp_path / "set", code=1, env=with_ffmpeg(tmp_path))
    assert "no encoder libnone" in unknown


def test_a_bag_becomes_shards_that_webdataset_reads(bag, tmp_path):
    out = tmp_path / "set"
    report = export(bag, MAPPING, out, format="webdataset")
    about = json.loads((out / "dataset.json").read_text())
    shards = sorted(map(str, out.glob("shard-*.tar")))
    assert about["frames"] == report["frames"] == 100 and about["shards"] == len(shards) == 1
    samples = list(webdataset.WebDataset(shards, shardshuffle=False).decode("rgb8"))
    assert [sample["__key__"] for sample in samples] == [f"000000_{frame:06}" for frame in range(100)]
    sample = samples[10]
    assert np.array_equal(sample["observation.images.top.png"], pixels(40))
    assert sample["observation.images.wrist.jpg"].shape == (24, 32, 3)
    assert sample["json"]["observation.state"] == [40.5, 40.0] and sample["json"]["task"] == "wait" and sample["json"]["frame_index"] == 10


def test_bad_mappings_and_folders_are_refused_in_one_sentence(bag, tmp_path):
    out = tmp_path / "set"
    base = "fps: 10\nfeatures:\n  a: "
    for text, words in [
        ("features: {}", ["fps"]),
        (base + "{topic: /nowhere, fields: [x]}", ["/nowhere", "/joints"]),
        (base + "{topic: /joints, fields: [speed]}", ["feature a", "speed", "position"]),
        (base + "{topic: /joints, fields: [name]}", ["neither a number"]),
        (base + "{topic: /joints}", ["not an image", "name its fields"]),
        (base + "{topic: /joints, fields: ['position[7]']}", ["position has 3 numbers"]),
        (base + "{topic: /joints, fields: [position], names: [x]}", ["1 names for 3"]),
        (base + "{topic: /joints, fields: [position], names_field: name, names: [thumb]}", ["thumb"]),
        (base + "{topic: /joints, fields: [position]}\nepisodes: {by: marker, start: x}", ["no frame"]),
        (base + "{topic: /joints, fields: [position]}\nepisodes: {min_s: 60}", ["min_s"]),
    ]:
        refused = export(bag, text, out, code=2)
        assert all(word in refused for word in words) and refused.count("\n") <= 2, (text, refused)
        assert not out.exists()
    good = base + "{topic: /joints, fields: [position]}"
    export(bag, good, out)
    assert "already exists" in export(bag, good, out, code=2)
    export(bag, good.replace("10", "5"), out, "--overwrite")
    assert json.loads((out / "meta/info.json").read_text())["fps"] == 5
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").write_text("mine")
    assert "not a dataset" in export(bag, good, mine, "--overwrite", code=2) and (mine / "file").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")], "nothing unfinished stays"


def test_a_message_that_cannot_be_used_is_counted_and_the_one_before_held(tmp_path):
    bag = tmp_path / "run"
    with holdall.create(bag) as out:
        for step in range(20):
            count = 3 if step != 7 else 2
            out.write("/command", "std_msgs/msg/Float64MultiArray", {"data": [float(step)] * count}, time=START + step * 100 * MS)
    text = "fps: 10\nfeatures:\n  action: {topic: /command, fields: [data]}\n"
    out = tmp_path / "set"
    (tmp_path / "m.yaml").write_text(text)
    done = subprocess.run([HOLDALL, "export", bag, "-f", "lerobot", "--mapping", tmp_path / "m.yaml", "-o", out], capture_output=True, text=True)
    assert done.returncode == 1 and "1 message of /command could not be used" in done.stderr
    assert re.search(r"20 frames in 1 episode", done.stdout), done.stdout
    _, frames, _, _, _ = read(out)
    assert [row[0] for row in frames["action"]][6:9] == [6.0, 6.0, 8.0]
    assert not math.isnan(sum(frames["timestamp"]))


def test_a_dataset_is_whole_or_not_there_when_the_program_is_killed(bag, tmp_path):
    out = tmp_path / "set"
    (tmp_path / "m.yaml").write_text(MAPPING)
    command = [HOLDALL, "export", *[str(bag)] * 20, "-f", "lerobot", "--mapping", tmp_path / "m.yaml", "-o", out]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list(tmp_path.glob(".set.*.partial/**/*")) and running.poll() is None:
        pass
    running.kill()
    running.wait()
    assert not out.exists() or (out / "meta/info.json").exists()
    shutil.rmtree(out, ignore_errors=True)
    export(bag, MAPPING, out)
    assert not list(tmp_path.glob(".set.*.partial")), "the next run removes what is left"
