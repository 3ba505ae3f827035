"""What messages mean: depth by its head, header stamps as a clock, definitions on the disk. Judged by numpy, Pillow, pandas and rosbags."""

import io
import json
import os
import struct
import subprocess
import sys

import holdall
import numpy as np
import pandas as pd
import pytest
from conftest import START, header
from mcap.reader import make_reader
from mcap.writer import Writer as McapWriter
from PIL import Image
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

MS = 1_000_000


def write(path, store, types, messages):
    """Writes ``(topic, time, message)`` by rosbags."""
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connections = {topic: writer.add_connection(topic, name, typestore=store) for topic, name in types.items()}
        for topic, time, message in sorted(messages, key=lambda found: found[1]):
            writer.write(connections[topic], time, store.serialize_cdr(message, types[topic]))
    return path


def png(pixels):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def rvl(pixels):
    """RVL as its paper has it: runs of empty pixels and of differences in nibbles, the first in the high bits of a word."""
    nibbles = []

    def put(value):
        while True:
            low, value = value & 7, value >> 3
            nibbles.append(low | (8 if value else 0))
            if not value:
                return

    flat, at, before = [int(value) for value in pixels.ravel()], 0, 0
    while at < len(flat):
        empty = at
        while at < len(flat) and flat[at] == 0:
            at += 1
        put(at - empty)
        begin = at
        while at < len(flat) and flat[at] != 0:
            at += 1
        put(at - begin)
        for value in flat[begin:at]:
            difference, before = value - before, value
            put(2 * difference if difference >= 0 else -2 * difference - 1)
    nibbles += [0] * (-len(nibbles) % 8)
    words = [sum(nibble << (28 - 4 * place) for place, nibble in enumerate(nibbles[word : word + 8])) for word in range(0, len(nibbles), 8)]
    return struct.pack("<II", pixels.shape[1], pixels.shape[0]) + struct.pack(f"<{len(words)}I", *words)


@pytest.fixture(scope="module")
def depths(tmp_path_factory, store, make):
    """One scene, 0.5 to 8 m with holes, as five topics: metres, and packed as inverse depth and as millimetres, by PNG and by RVL."""
    dice = np.random.default_rng(7)
    metres = (0.5 + 7.5 * dice.random((12, 16))).astype(np.float32)
    metres[3:5, 2:9] = np.nan
    a = np.float32(100 * 101)
    b = np.float32(1 - a / np.float32(10))
    inverse = np.where(np.isnan(metres), 0, a / metres + b).astype(np.uint16)
    millimetres = np.nan_to_num(metres * 1000).round().astype(np.uint16)
    head = struct.pack("<iff", 0, a, b)
    packed = {
        "/inverse_png": ("32FC1; compressedDepth png", head + png(inverse)),
        "/inverse_old": ("32FC1; compressedDepth", head + png(inverse)),
        "/inverse_rvl": ("32FC1; compressedDepth rvl", head + rvl(inverse)),
        "/mm_png": ("16UC1; compressedDepth png", struct.pack("<iff", 0, 0, 0) + png(millimetres)),
        "/mm_rvl": ("16UC1; compressedDepth rvl", head + rvl(millimetres)),
    }
    types = {topic: "sensor_msgs/msg/CompressedImage" for topic in packed}
    types["/metres"] = "sensor_msgs/msg/Image"
    frame = header(make, START, "camera")
    messages = [
        (topic, START + number * 100 * MS, make("sensor_msgs/msg/CompressedImage", header=frame, format=form, data=np.frombuffer(data, np.uint8)))
        for topic, (form, data) in packed.items()
        for number in range(3)
    ]
    plain = make(
        "sensor_msgs/msg/Image", header=frame, height=12, width=16, encoding="32FC1", is_bigendian=0, step=64, data=np.frombuffer(metres.tobytes(), np.uint8)
    )
    messages += [("/metres", START + number * 100 * MS, plain) for number in range(3)]
    path = write(tmp_path_factory.mktemp("depth") / "bag", store, types, messages)
    # One step of the quantization, at each depth.
    return path, metres, millimetres, metres**2 / a


def test_compressed_depth_is_read_by_its_head_and_format(depths):
    path, metres, millimetres, step = depths
    bag = holdall.open(path)
    for topic in ("/inverse_png", "/inverse_old", "/inverse_rvl"):
        found = bag.images(topic)[1]
        assert found.dtype == np.float32 and np.array_equal(np.isnan(found), np.isnan(metres)), topic
        assert np.nanmax(np.abs(found - metres) - step) <= 1e-6, topic
    for topic in ("/mm_png", "/mm_rvl"):
        found = bag.images(topic)[1]
        assert found.dtype == np.uint16 and np.array_equal(found, millimetres), topic


def test_exported_depth_is_millimetres_whatever_it_was_packed_as(depths, tmp_path):
    path, metres, millimetres, step = depths
    holdall.export(path, tmp_path / "out", "png")
    for topic in ("inverse_png", "inverse_old", "inverse_rvl", "mm_png", "mm_rvl", "metres"):
        files = sorted((tmp_path / "out" / topic).iterdir())
        assert len(files) == 3, topic
        found = np.asarray(Image.open(files[0])).astype(float)
        allowed = np.nan_to_num(step * 1000) + 1 if topic.startswith("inverse") else np.ones_like(step)
        assert np.all(np.abs(found - millimetres) <= allowed), topic


def test_depth_in_a_dataset_is_millimetres(depths, tmp_path):
    import pyarrow.parquet as parquet

    path, metres, millimetres, step = depths
    features = "\n".join(f"  observation.images.{topic[1:]}: {{topic: {topic}}}" for topic in ("/inverse_png", "/mm_rvl", "/metres"))
    (tmp_path / "m.yaml").write_text(f"fps: 10\ntask: t\nfeatures:\n{features}\n")
    holdall.export(path, tmp_path / "out", "lerobot", mapping=tmp_path / "m.yaml")
    row = parquet.read_table(next((tmp_path / "out").glob("data/*/*.parquet"))).to_pylist()[0]
    for name in ("inverse_png", "mm_rvl", "metres"):
        found = np.asarray(Image.open(io.BytesIO(row[f"observation.images.{name}"]["bytes"]))).astype(float)
        assert np.all(np.abs(found - millimetres) <= np.nan_to_num(step * 1000) + 1), name


def small_video(store, make, tmp_path, monkeypatch):
    """Makes the bags `bag` and `small` with 50 pictures, plain and as video; returns what compares a picture with the one of a number."""
    import imageio_ffmpeg

    (tmp_path / "ffmpeg").symlink_to(imageio_ffmpeg.get_ffmpeg_exe())
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    ramp = np.linspace(0, 200, 64).astype(np.uint8)[None, :, None]
    pictures = [np.broadcast_to(ramp + number, (48, 64, 3)).copy() for number in range(50)]
    messages = [
        ("/camera", START + number * 40 * MS, make(
            "sensor_msgs/msg/Image", header=header(make, START, "lens"), height=48, width=64, encoding="rgb8", is_bigendian=0, step=192, data=picture.ravel(),
        ))
        for number, picture in enumerate(pictures)
    ]  # fmt: skip
    write(tmp_path / "bag", store, {"/camera": "sensor_msgs/msg/Image"}, messages)
    report = holdall.compress(tmp_path / "bag", tmp_path / "small", video="/camera=h264,quality=10")
    assert report["recoded"][0]["messages"] == 50

    def same(found, number):
        return found.shape == (48, 64, 3) and np.abs(found.astype(int) - pictures[number]).mean() < 3

    return same


def test_pictures_of_video_are_images_in_any_order(store, make, tmp_path, monkeypatch):
    same = small_video(store, make, tmp_path, monkeypatch)
    images = holdall.open(tmp_path / "small").images("/camera")
    plain = holdall.open(tmp_path / "bag").images("/camera")
    assert len(images) == 50 and list(images.times) == list(plain.times)

    assert all(same(found, number) for number, found in enumerate(images))
    assert all(same(images[number], number) for number in (33, 34, 30, 2, 49, -50)) and same(images[-1], 49)
    part = images[10:40:7]
    assert len(part) == 5 and all(same(found, 10 + 7 * place) for place, found in enumerate(part)) and same(part[1:][0], 17)
    between = images.between(START + 400 * MS, START + 500 * MS)
    assert list(between.times) == list(plain.between(START + 400 * MS, START + 500 * MS).times) and same(between[0], 10)
    assert list(images[::-1].between(START + 400 * MS, START + 500 * MS).times) == list(between.times)[::-1]
    # Pictures that depend on a lost one are refused.
    with (tmp_path / "lost.mcap").open("wb") as out, next((tmp_path / "small").glob("*.mcap")).open("rb") as small:
        lossy = McapWriter(out)
        lossy.start()
        channels = {}
        for schema, channel, message in make_reader(small).iter_messages("/camera"):
            if not channels:
                channels[0] = lossy.register_channel("/camera", "cdr", lossy.register_schema(schema.name, schema.encoding, schema.data))
            if message.log_time != START + 10 * 40 * MS:
                lossy.add_message(channels[0], message.log_time, message.data, message.log_time)
        lossy.finish()
    images = holdall.open(tmp_path / "lost.mcap").images("/camera")
    assert len(images) == 49 and same(images[9], 9) and same(images[30], 31)
    with pytest.raises(ValueError, match="picture 10 of /camera depends on one that is missing"):
        images[10]
    # Two senders on one topic, the second one with the same pictures in another order.
    with (tmp_path / "two.mcap").open("wb") as out, next((tmp_path / "small").glob("*.mcap")).open("rb") as small:
        both = McapWriter(out)
        both.start()
        found = list(make_reader(small).iter_messages("/camera"))
        schema = both.register_schema(found[0][0].name, found[0][0].encoding, found[0][0].data)
        channels = [both.register_channel("/camera", "cdr", schema, {"holdall.publisher": gid}) for gid in ("a1a1a1", "b2b2b2")]
        late = [message for _, _, message in found if message.log_time >= START + 25 * 40 * MS]
        first_key = next(place for place, message in enumerate(late) if b"\0\0\1\x67" in message.data)
        late = late[first_key:]
        for place, (_, _, message) in enumerate(found):
            both.add_message(channels[0], message.log_time, message.data, message.log_time)
            if place < len(late):
                both.add_message(channels[1], message.log_time + 20 * MS, late[place].data, message.log_time + 20 * MS)
        both.finish()
    images = holdall.open(tmp_path / "two.mcap").images("/camera")
    wanted = [number for place in range(50) for number in (place, 50 - len(late) + place)[: 1 + (place < len(late))]]
    assert len(images) == len(wanted) > 60
    assert all(same(image, number) for image, number in zip(images, wanted))
    assert all(same(images[place], wanted[place]) for place in (31, 0, 30, 5))
    for place in (30, 44):
        time = images.times[place]
        assert same(images.between(time, time + 1)[0], wanted[place])


def test_a_picture_at_a_time_depends_on_a_key_frame_of_its_own_sender(store, make, tmp_path, monkeypatch):
    same = small_video(store, make, tmp_path, monkeypatch)
    with (tmp_path / "rare.mcap").open("wb") as out, next((tmp_path / "small").glob("*.mcap")).open("rb") as small:
        rare = McapWriter(out)
        rare.start()
        found = list(make_reader(small).iter_messages("/camera"))
        schema = rare.register_schema(found[0][0].name, found[0][0].encoding, found[0][0].data)
        channels = [rare.register_channel("/camera", "cdr", schema, {"holdall.publisher": gid}) for gid in ("a1a1a1", "b2b2b2")]
        # The key frame of the second sender is long before, those of the first are not.
        sent = [(1, 0, 0), *((0, 3000 + 40 * number, number) for number in range(20)), (1, 3500, 1)]
        for which, ms, number in sorted(sent, key=lambda one: one[1]):
            rare.add_message(channels[which], START + ms * MS, found[number][2].data, START + ms * MS)
        rare.finish()
    images = holdall.open(tmp_path / "rare.mcap").images("/camera")
    part = images.between(START + 3500 * MS, START + 3550 * MS)
    assert len(part) == 2 and same(part[:1][0], 1) and same(part[0], 1) and same(part[1], 13)
    assert same(part.between(START + 3510 * MS)[0], 13) and len(part.between(START + 3560 * MS)) == 0
    assert same(images.between(START + 3040 * MS)[0], 1) and same(images.between(0, 0.001)[0], 0)


@pytest.mark.parametrize("carrier", ["foxglove", "ffmpeg_image_transport", "compressed_image"])
def test_a_topic_of_video_and_images_has_all_of_them(store, make, tmp_path, monkeypatch, carrier):
    import imageio_ffmpeg

    (tmp_path / "ffmpeg").symlink_to(imageio_ffmpeg.get_ffmpeg_exe())
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    sizes = [(32, 32) if number in (0, 7, 8, 19) else (48, 64) for number in range(1, 21)]
    pictures = [np.full((*size, 3), 100 + number, np.uint8) for number, size in enumerate(sizes)]
    messages = [
        ("/camera", START + number * 40 * MS, make(
            "sensor_msgs/msg/Image", header=header(make, START, "lens"), height=len(picture), width=len(picture[0]), encoding="rgb8", is_bigendian=0,
            step=3 * len(picture[0]), data=picture.ravel(),
        ))
        for number, picture in enumerate(pictures)
    ]  # fmt: skip
    write(tmp_path / "bag", store, {"/camera": "sensor_msgs/msg/Image"}, messages)
    report = holdall.compress(tmp_path / "bag", tmp_path / "small", video="/camera=h264,quality=10", as_=carrier)
    assert (report["recoded"][0]["messages"], report["recoded"][0]["kept"]) == (17, 3)
    images = holdall.open(tmp_path / "small").images("/camera")
    assert len(images) == 20
    for number in [*range(20), 6, 15, 2, -1]:
        found, wanted = images[number], pictures[number]
        assert found.shape == wanted.shape and np.abs(found.astype(int) - wanted).mean() < 3, number


@pytest.mark.parametrize("how", ["lossless", "cloudini,resolution=0.001"])
def test_compressed_clouds_are_points_and_those_that_stayed_too(store, make, tmp_path, how):
    names, offsets, types = ["x", "y", "intensity", "ring"], [0, 4, 8, 14], [7, 7, 7, 4]
    kind = np.dtype({"names": names, "formats": ["<f4", "<f4", "<f4", "<u2"], "offsets": offsets, "itemsize": 16})
    clouds = []
    for number in range(6):
        points = np.zeros(50, kind)
        points["x"], points["y"], points["intensity"], points["ring"] = np.arange(50) * 0.0137 + number, 2.5, np.arange(50) + number, np.arange(50) % 7
        clouds.append(points)
    fields = [make("sensor_msgs/msg/PointField", name=name, offset=at, datatype=of, count=1) for name, at, of in zip(names, offsets, types, strict=True)]
    # The fourth image states a wrong step, so it is kept unencoded.
    messages = [
        ("/lidar", START + number * 40 * MS, make(
            "sensor_msgs/msg/PointCloud2", header=header(make, START, "lidar"), height=1, width=50, fields=fields, is_bigendian=False, point_step=16,
            row_step=900 if number == 3 else 800, data=points.view(np.uint8), is_dense=True,
        ))
        for number, points in enumerate(clouds)
    ]  # fmt: skip
    write(tmp_path / "bag", store, {"/lidar": "sensor_msgs/msg/PointCloud2"}, messages)
    report = holdall.compress(tmp_path / "bag", tmp_path / "small", cloud=f"/lidar={how}")
    assert (report["recoded"][0]["messages"], report["recoded"][0]["kept"]) == (5, 1)
    small = holdall.open(tmp_path / "small")
    found = small.points("/lidar")
    assert len(found) == 6
    for points, wanted in zip(found, clouds, strict=True):
        assert points.dtype == kind and np.abs(points["x"] - wanted["x"]).max() <= (0 if how == "lossless" else 0.001)
        assert (points["intensity"] == wanted["intensity"]).all() and (points["ring"] == wanted["ring"]).all()
    assert holdall._native.picture(small["/lidar"][0].msg, 100)[0] == "image/png"
    msg = small["/lidar"][0].msg
    for broken in (msg.compressed_data[:-1], msg.compressed_data[:0]):
        with pytest.raises(ValueError):
            holdall._native.unpack_cloud((1, 50, 16), [(one.name, one.offset, one.datatype, one.count) for one in msg.fields], False, bytes(broken), msg.format)


def test_compressed_pictures_are_decoded_to_their_colours(store, make, tmp_path):
    colours = np.zeros((8, 16, 3), np.uint8)
    colours[:, :8, 0], colours[:, 8:, 2] = 250, 120
    out = io.BytesIO()
    Image.fromarray(colours).save(out, "JPEG", quality=95)
    deep = (np.arange(64, dtype=np.uint16) * 1000).reshape(8, 8)
    frame = header(make, START, "camera")
    forms = {"/jpeg": ("rgb8; jpeg compressed bgr8", out.getvalue()), "/png": ("png", png(colours)), "/deep": ("mono16; png compressed", png(deep))}
    types = {topic: "sensor_msgs/msg/CompressedImage" for topic in forms}
    messages = [
        (topic, START, make("sensor_msgs/msg/CompressedImage", header=frame, format=form, data=np.frombuffer(data, np.uint8)))
        for topic, (form, data) in forms.items()
    ]
    bag = holdall.open(write(tmp_path / "bag", store, types, messages))
    assert np.array_equal(bag.images("/png")[0], colours) and np.array_equal(bag.images("/deep")[0], deep)
    jpeg = bag.images("/jpeg")[0].astype(int)
    assert jpeg.shape == colours.shape and np.abs(jpeg[2, 3] - colours[2, 3]).max() < 12 and np.abs(jpeg[2, 13] - colours[2, 13]).max() < 12


@pytest.fixture(scope="module")
def late(tmp_path_factory, store, make):
    """Images that are received 100 ms after they were taken, joints at once: image n is grey n, a joint's position is its time."""
    types = {"/cam": "sensor_msgs/msg/Image", "/joints": "sensor_msgs/msg/JointState", "/text": "std_msgs/msg/String"}
    messages = [("/text", START + number * 50 * MS, make("std_msgs/msg/String", data="x")) for number in range(60)]
    empty = np.zeros(0)
    for number in range(400):
        time = START + number * 10 * MS
        joint = make("sensor_msgs/msg/JointState", header=header(make, time, "arm"), name=["a"], position=np.array([number / 100]), velocity=empty, effort=empty)
        messages.append(("/joints", time, joint))
    for number in range(100):
        taken = START + number * 33 * MS
        data = np.full(16, number, np.uint8)
        image = make("sensor_msgs/msg/Image", header=header(make, taken, "cam"), height=4, width=4, encoding="mono8", is_bigendian=0, step=4, data=data)
        messages.append(("/cam", taken + 100 * MS, image))
    return write(tmp_path_factory.mktemp("late") / "bag", store, types, messages)


def test_sync_by_header_stamp_pairs_what_was_measured_together(late):
    bag = holdall.open(late)
    pairs = list(bag.sync("/cam", "/joints", tolerance="6ms", time="header.stamp"))
    assert len(pairs) == 100
    for camera, joint in pairs:
        taken = int(camera.msg.data[0]) * 0.033
        assert abs(joint.msg.position[0] - taken) <= 0.0051 and camera.stamp == START + int(camera.msg.data[0]) * 33 * MS
    wrong = [joint.msg.position[0] - int(camera.msg.data[0]) * 0.033 for camera, joint in bag.sync("/cam", "/joints", tolerance="6ms")]
    assert min(wrong) > 0.09, "by log time they are 100 ms apart"


def test_messages_and_tables_are_by_header_stamp(late, tmp_path):
    bag = holdall.open(late)
    stamps = [message.stamp for message in bag.messages("/cam", "/joints", time="header.stamp")]
    assert stamps == sorted(stamps) and len(stamps) == 500
    frame = bag["/cam"].to_pandas("header", time="header.stamp")
    assert frame.index.name == "header_stamp" and frame.index[3] == pd.Timestamp(START + 99 * MS, tz="UTC")
    assert bag["/cam"].to_pandas("header").index[3] == pd.Timestamp(START + 199 * MS, tz="UTC")
    with pytest.raises(holdall.Error, match="/text: .*has no header.stamp"):
        list(bag.messages("/text", time="header.stamp"))
    with pytest.raises(ValueError, match="log_time, publish_time, header.stamp"):
        bag.sync("/cam", "/joints", time="header")
    holdall.export(late, tmp_path / "csv", "csv", time="header.stamp")
    assert sorted(file.name for file in (tmp_path / "csv").iterdir()) == ["cam.csv", "joints.csv"]
    table = pd.read_csv(tmp_path / "csv/cam.csv")
    assert list(table.columns[:2]) == ["header_stamp", "log_time"] and (table.log_time - table.header_stamp == 100 * MS).all()
    holdall.export(late, tmp_path / "parquet", "parquet", time="header.stamp", topics=["/cam"])
    assert (pd.read_parquet(tmp_path / "parquet/cam.parquet").header_stamp.astype("int64") == table.header_stamp).all()
    holdall.export(late, tmp_path / "png", "png", time="header.stamp", topics=["/cam"])
    assert sorted(int(file.stem) for file in (tmp_path / "png/cam").iterdir()) == list(table.header_stamp)


@pytest.mark.parametrize("words", [["stamp: header.stamp"], ["time: header.stamp"], []])
def test_a_dataset_pairs_by_header_stamp(late, tmp_path, words):
    import pyarrow.parquet as parquet

    features = ["features:", "  observation.state: {topic: /joints, fields: [position]}", "  observation.images.c: {topic: /cam}"]
    (tmp_path / "m.yaml").write_text("\n".join(["fps: 30", "task: t", *words, *features]))
    flags = {} if words else {"time": "header.stamp"}
    holdall.export(late, tmp_path / "out", "lerobot", mapping=tmp_path / "m.yaml", **flags)
    rows = parquet.read_table(next((tmp_path / "out").glob("data/*/*.parquet"))).to_pylist()
    assert len(rows) > 90
    for row in rows[:90]:
        taken = np.asarray(Image.open(io.BytesIO(row["observation.images.c"]["bytes"])))[0, 0] * 0.033
        state = np.ravel(row["observation.state"])[0]
        assert abs(state - taken) < 0.025


WHEEL = "std_msgs/Header header\nfloat64 speed\nstring side\nPair[] pairs\n"


@pytest.fixture
def undefined(tmp_path):
    """A database as Foxy wrote it: an own type, no definitions."""
    sqlite3 = pytest.importorskip("sqlite3")
    store = get_typestore(Stores.ROS2_JAZZY)
    store.register({**get_types_from_msg("int8 a", "robot_pkg/msg/Pair"), **get_types_from_msg(WHEEL, "robot_pkg/msg/Wheel")})
    time = store.types["builtin_interfaces/msg/Time"](sec=5, nanosec=6)
    head = store.types["std_msgs/msg/Header"](stamp=time, frame_id="base")
    wheel = store.types["robot_pkg/msg/Wheel"](header=head, speed=1.5, side="left", pairs=[store.types["robot_pkg/msg/Pair"](a=-3)])
    path = tmp_path / "old.db3"
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT NOT NULL, type TEXT NOT NULL, serialization_format TEXT NOT NULL, offered_qos_profiles TEXT NOT NULL)"
        )
        database.execute("CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL, timestamp INTEGER NOT NULL, data BLOB NOT NULL)")
        database.execute("INSERT INTO topics VALUES (1, '/wheel', 'robot_pkg/msg/Wheel', 'cdr', '')")
        database.execute("INSERT INTO messages VALUES (1, 1, 1, ?)", (bytes(store.serialize_cdr(wheel, "robot_pkg/msg/Wheel")),))
    return path


@pytest.mark.parametrize("layout", ["share/robot_pkg/msg", "robot_pkg/msg", "", "src/group/robot_pkg/msg"])
def test_definitions_on_the_disk_are_used_and_carried(undefined, tmp_path, layout, monkeypatch):
    monkeypatch.delenv("AMENT_PREFIX_PATH", raising=False)
    folder = tmp_path / "definitions"
    (folder / layout).mkdir(parents=True)
    (folder / layout / "Wheel.msg").write_text(WHEEL)
    (folder / layout / "Pair.msg").write_text("int8 a\n")
    with pytest.raises(holdall.Error, match="no definition of robot_pkg/msg/Wheel"):
        holdall.open(undefined)["/wheel"][0].msg
    bag = holdall.open(undefined, definitions=folder)
    message = bag["/wheel"][0].msg
    assert (message.speed, message.side, message.pairs[0].a, message.header.stamp.nanosec) == (1.5, "left", -3, 6)
    assert "float64 speed" in bag["/wheel"].definition and list(bag["/wheel"].to_numpy("speed")) == [1.5]
    holdall.convert(undefined, tmp_path / "new", storage="mcap", definitions=folder)
    # A foreign reader that knows nothing of the folder.
    from mcap_ros2.reader import read_ros2_messages

    (read,) = read_ros2_messages(str(next((tmp_path / "new").glob("*.mcap"))))
    assert (read.ros_msg.speed, read.ros_msg.side, read.ros_msg.pairs[0].a) == (1.5, "left", -3)
    if layout.startswith("share"):
        monkeypatch.setenv("AMENT_PREFIX_PATH", f"/nowhere:{folder}")
        assert holdall.open(undefined)["/wheel"][0].msg.side == "left"


def test_definitions_that_cannot_be_had_are_named(undefined, tmp_path):
    with pytest.raises(holdall.DefinitionError, match="no .msg, .srv, .action or .idl file"):
        holdall.open(undefined, definitions=[tmp_path])
    with pytest.raises(holdall.DefinitionError, match="nope"):
        holdall.open(undefined, definitions=tmp_path / "nope")


def test_a_schema_that_is_only_a_name_is_mended_by_convert(tmp_path):
    from mcap.writer import Writer as McapWriter
    from mcap_ros2.reader import read_ros2_messages

    path = tmp_path / "name.mcap"
    with open(path, "wb") as file:
        writer = McapWriter(file)
        writer.start("ros2", "x")
        schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"std_msgs/msg/String")
        channel = writer.register_channel("/s", "cdr", schema)
        writer.add_message(channel, 1, b"\0\1\0\0\3\0\0\0hi\0", 1)
        writer.finish()
    assert holdall.open(path)["/s"][0].msg.data == "hi"
    holdall.convert(path, tmp_path / "new")
    (read,) = read_ros2_messages(str(next((tmp_path / "new").glob("*.mcap"))))
    assert read.ros_msg.data == "hi"


def test_a_bag_whose_writer_is_dropped_is_closed_with_a_warning(tmp_path):
    script = """
import gc, os, sys, holdall
def fill(path, count=1000):
    out = holdall.create(path)
    for number in range(count):
        out.write("/s", "std_msgs/msg/String", {"data": str(number)}, time=number)
    return out
how, path = sys.argv[1:]
out = fill(path)
if how == "del":
    del out; gc.collect()
elif how == "function":
    out = None
elif how == "raise":
    raise KeyError("stop")
elif how == "cycle":
    out.me = out
elif how == "thread":
    import threading
    threading.Thread(target=lambda out: None, args=(out,)).start(); del out
elif how == "fork":
    child = os.fork()
    if not child:
        sys.exit()
    os.waitpid(child, 0)
    for number in range(1000, 1010):
        out.write("/s", "std_msgs/msg/String", {"data": str(number)}, time=number)
"""
    for how, count in [("del", 1000), ("function", 1000), ("end", 1000), ("raise", 1000), ("cycle", 1000), ("thread", 1000), ("fork", 1010)]:
        path = tmp_path / how
        ran = subprocess.run([sys.executable, "-X", "dev", "-c", script, how, path], capture_output=True, text=True, env=os.environ)
        assert (ran.returncode == 0) == (how != "raise"), ran.stderr
        assert "ResourceWarning" in ran.stderr and "was not closed" in ran.stderr, (how, ran.stderr)
        bag = holdall.open(path)
        assert len(bag) == count and not bag.notices, how
        assert [message.msg.data for message in bag] == [str(number) for number in range(count)]


def test_times_of_messages_that_are_written_have_the_usual_forms(tmp_path):
    import datetime as dt

    moment = dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.timezone.utc)
    forms = [START, moment, "2023-11-14T22:13:20Z", "2023-11-14 22:13:20", 1_700_000_000.0, pd.Timestamp(moment), np.datetime64("2023-11-14T22:13:20"), np.int64(START)]
    with holdall.create(tmp_path / "bag") as out:
        for form in forms:
            out.write("/s", "std_msgs/msg/String", {"data": "x"}, time=form, publish_time=form)
        with pytest.raises(ValueError, match="not a point in time"):
            out.write("/s", "std_msgs/msg/String", {"data": "x"}, time=[1])
    assert [(message.time, message.publish_time) for message in holdall.open(tmp_path / "bag")] == [(START, START)] * len(forms)


def test_paths_of_any_length_are_refused_and_crash_nothing(written):
    script = f"""
import holdall, json
topic = holdall.open({str(written[0])!r})["/imu"]
for path in ("a." * 1_000_000 + "a", "header." * 1_000_000, "header.stamp." * 300_000 + "sec", "a" + "[0]" * 1_000_000, "." * 1_000_000):
    for use in (topic.to_numpy, topic.where, topic.to_pandas, lambda path: topic[0].msg[path]):
        try:
            found = use(path)
            len(found)
        except (holdall.Error, KeyError) as error:
            assert len(str(error)) < 10_000, len(str(error))
        else:
            raise SystemExit(f"{{use}} took {{path[:20]}}")
print("done")
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout == "done\n", (ran.returncode, ran.stderr[-2000:])


def test_constants_are_those_of_rosbags_for_every_type(store):
    known = {name: {constant[0]: constant[2] for constant in defined[0]} for name, defined in store.fielddefs.items()}
    compared = 0
    for name, constants in known.items():
        if name.startswith("odd_msgs") or "/msg/" not in name:
            continue
        try:
            found = holdall.MessageType(name).constants
        except holdall.DefinitionError:
            continue
        assert found == constants, name
        compared += len(constants)
    assert compared > 100
    assert json.dumps(holdall.MessageType("sensor_msgs/msg/PointField").constants)
