"""Point clouds as files: PCD as pip pypcd4 and PLY as pip plyfile read them, against numpy on the payloads; compressed ones are shown as plain ones."""

import json

import numpy as np
import pytest
from plyfile import PlyData
from pypcd4 import PointCloud
from rosbags.rosbag2 import Reader, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
from served import ask_bytes as ask
from served import served, until

STORE = get_typestore(Stores.ROS2_JAZZY)
CLOUD = "sensor_msgs/msg/PointCloud2"
KINDS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}
# Name, offset, datatype, count.
LIDAR = [("x", 0, 7, 1), ("y", 4, 7, 1), ("z", 8, 7, 1), ("intensity", 16, 7, 1), ("ring", 20, 4, 1), ("t", 24, 6, 0)]
EVERY = [(f"of_{kind}", 3 + 9 * number, kind, 1) for number, kind in enumerate(KINDS)] + [("normal", 80, 8, 3), ("curve", 77, 3, 1)]
COLOURS = [("x", 0, 7, 1), ("y", 4, 7, 1), ("z", 8, 7, 1), ("rgb", 16, 7, 1)]
ALPHA = [("z", 0, 8, 1), ("rgba", 12, 6, 1)]


def structured(fields, point_step, is_big):
    order = ">" if is_big else "<"
    return np.dtype(
        {
            "names": [name for name, *_ in fields],
            "formats": [(order + KINDS[kind], (count,)) if count > 1 else order + KINDS[kind] for _, _, kind, count in fields],
            "offsets": [offset for _, offset, _, _ in fields],
            "itemsize": point_step,
        }
    )


def make(fields, point_step, width, height, is_big=False, row_padding=0, seed=1):
    """A message with random bits, and its points as numpy reads them."""
    row_step = width * point_step + row_padding
    data = np.random.default_rng(seed).integers(0, 256, max(height * row_step - row_padding, 0), np.uint8)
    cls, field, header = (STORE.types[name] for name in (CLOUD, "sensor_msgs/msg/PointField", "std_msgs/msg/Header"))
    head = header(STORE.types["builtin_interfaces/msg/Time"](1, 2), "lidar")
    message = cls(head, height, width, [field(*one) for one in fields], is_big, point_step, row_step, data, False)
    strides = (row_step, point_step)
    points = np.ndarray((height, width), structured(fields, point_step, is_big), buffer=data, strides=strides) if width * height else None
    return message, points


CLOUDS = {
    "/lidar": make(LIDAR, 32, 500, 1),
    "/packed": make([("x", 0, 7, 1), ("y", 4, 7, 1)], 8, 30_000, 1),
    "/every": make(EVERY, 107, 20, 3, row_padding=5),
    "/every_big": make(EVERY, 107, 20, 3, is_big=True, row_padding=5),
    "/organised": make(COLOURS, 32, 64, 48, row_padding=16),
    "/alpha": make(ALPHA, 16, 9, 1),
    "/alpha_big": make(ALPHA, 16, 9, 1, is_big=True),
    "/empty": make(LIDAR, 32, 0, 1),
}


def write(path, clouds):
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        for topic, messages in clouds.items():
            connection = writer.add_connection(topic, CLOUD, typestore=STORE)
            for stamp, message in messages:
                writer.write(connection, stamp, STORE.serialize_cdr(message, CLOUD))
    return path


@pytest.fixture
def bag(tmp_path):
    return write(tmp_path / "bag", {topic: [(7, message), (7, message), (8, message)] for topic, (message, _) in CLOUDS.items()})


def same(found, expected):
    """Bit by bit: random bits are also NaN with contents."""
    bits = [np.ascontiguousarray(column).view(column.dtype.str.replace("f", "u").replace("i", "u")) for column in (found, expected)]
    assert found.dtype.kind == expected.dtype.kind and found.dtype.itemsize == expected.dtype.itemsize
    assert np.array_equal(*bits)


def test_clouds_become_pcd_as_pypcd4_reads_them(bag, world):
    told = world.run("export", bag, "-f", "pcd", "-o", world.folder / "out")
    assert told.returncode == 0, told.stderr
    for topic, (message, points) in CLOUDS.items():
        folder = world.folder / "out" / topic[1:]
        assert sorted(path.name for path in folder.iterdir()) == ["7.pcd", "7_1.pcd", "8.pcd"]
        read = PointCloud.from_path(folder / "8.pcd")
        assert (read.metadata.width, read.metadata.height, read.metadata.points) == (message.width, message.height, message.width * message.height), topic
        assert list(read.metadata.fields) == [field.name for field in message.fields], topic
        assert list(read.metadata.viewpoint) == [0, 0, 0, 1, 0, 0, 0]
        if points is None:
            continue
        # pypcd4 has a column for each number of a field: the structured array below it is what the file holds.
        columns = [read.pc_data[name] for name in read.pc_data.dtype.names]
        expected = []
        for name in points.dtype.names:
            column = points[name].reshape(points.size, -1)
            expected += [column[:, number] for number in range(column.shape[1])]
        assert len(columns) == len(expected), topic
        for found, wanted in zip(columns, expected, strict=True):
            same(found, wanted)


def test_clouds_become_ply_as_plyfile_reads_them(bag, world):
    told = world.run("export", bag, "-f", "ply", "-o", world.folder / "out")
    assert told.returncode == 0, told.stderr
    for topic, (message, points) in CLOUDS.items():
        folder = world.folder / "out" / topic[1:]
        assert sorted(path.name for path in folder.iterdir()) == ["7.ply", "7_1.ply", "8.ply"]
        vertices = PlyData.read(folder / "8.ply")["vertex"]
        assert vertices.count == message.width * message.height, topic
        if points is None:
            continue
        points = points.reshape(-1)
        for name in points.dtype.names:
            if name in ("rgb", "rgba"):
                packed = np.ascontiguousarray(points[name]).view(points.dtype[name].str.replace("f", "u"))
                channels = [("red", 16), ("green", 8), ("blue", 0), ("alpha", 24)][: len(name)]
                for channel, shift in channels:
                    assert vertices[channel].dtype == np.uint8
                    assert np.array_equal(vertices[channel], (packed >> shift) & 255), (topic, channel)
                continue
            for number, column in enumerate(points[name].reshape(points.size, -1).T):
                same(vertices[name if points[name].ndim == 1 else f"{name}_{number}"], column)


def test_a_cloud_that_does_not_fit_is_named_and_the_others_are_written(tmp_path, world):
    good, _ = make(LIDAR, 32, 5, 2)
    short, _ = make(LIDAR, 32, 5, 2)
    short.data = short.data[:319]
    huge, _ = make(LIDAR, 32, 5, 2)
    huge.width = huge.height = huge.row_step = 2**32 - 1
    path = write(tmp_path / "bag", {"/lidar": [(1, good), (2, short), (3, huge), (4, good)]})
    for format in ("pcd", "ply"):
        told = world.run("export", path, "-f", format, "-o", world.folder / format)
        assert told.returncode == 1
        expected = "/lidar: 2 messages could not be written; the first, of time 2: a cloud of 5 x 2 points with 32 bytes a point and 160 bytes a row needs 320 bytes of data, found 319"
        assert expected in told.stderr, told.stderr
        assert sorted(file.name for file in (world.folder / format / "lidar").iterdir()) == [f"1.{format}", f"4.{format}"]


def test_hostile_names_of_fields_stay_in_their_line(tmp_path, world):
    fields = [("x\nPOINTS 9", 0, 7, 1), ("x POINTS 9", 4, 7, 1), ("", 8, 7, 1), ("\u00fc" * 300, 12, 7, 1)]
    message, points = make(fields, 16, 4, 1)
    path = write(tmp_path / "bag", {"/lidar": [(1, message)]})
    for format in ("pcd", "ply"):
        assert world.run("export", path, "-f", format, "-o", world.folder / format).returncode == 0
    names = ["x_POINTS_9", "x_POINTS_9_2", "_", "_" * 128]
    ply = PlyData.read(world.folder / "ply/lidar/1.ply")["vertex"]
    assert [one.name for one in ply.properties] == names
    assert f"FIELDS {' '.join(names)}\n".encode() in (world.folder / "pcd/lidar/1.pcd").read_bytes()
    for name, (own, *_) in zip(names, fields, strict=True):
        same(ply[name], points[own].reshape(-1))


def test_a_bag_without_clouds_is_refused(tmp_path, world):
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        text = STORE.types["std_msgs/msg/String"]
        writer.write(writer.add_connection("/text", text.__msgtype__, typestore=STORE), 1, STORE.serialize_cdr(text("x"), text.__msgtype__))
    told = world.run("export", tmp_path / "bag", "-f", "pcd", "-o", world.folder / "out")
    assert told.returncode == 2 and "no chosen topic has point clouds" in told.stderr and not (world.folder / "out").exists()


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_compressed_clouds_are_exported_as_the_plain_ones_are(bag, world):
    compressed = world.run("compress", bag, "-o", world.folder / "small", "--cloud", ".*=lossless", "--json")
    assert compressed.returncode == 0, compressed.stderr
    kept = {one["topic"]: one["kept"] for one in json.loads(compressed.stdout)["recoded"]}
    assert kept == {topic: 3 if topic in ("/every", "/every_big", "/organised") else 0 for topic in CLOUDS}
    for format in ("pcd", "ply"):
        for name in (bag, world.folder / "small"):
            exported = world.run("export", name, "-f", format, "-o", world.folder / f"{name.name}.{format}")
            assert exported.returncode == 0, exported.stderr
        assert tree(world.folder / f"small.{format}") == tree(world.folder / f"{bag.name}.{format}")


def measure(message, points):
    """Numbers of a scanner instead of random bits, and zeros between its fields."""
    message.data[:] = 0
    for place, name in enumerate(points.dtype.names):
        column = points[name]
        column[...] = (np.arange(column.size).reshape(column.shape) % 120 + place) / (16 if column.dtype.kind == "f" else 1)


NORMAL = [("x", 0, 7, 1), ("y", 4, 7, 1), ("z", 8, 7, 1), ("normal", 12, 7, 3), ("ring", 24, 4, 1)]
# Clouds, and why they keep their form by each of the codecs; None where they do not.
SHAPES = {
    "little": (lambda: make(LIDAR, 32, 300, 2), None, None),
    "big": (lambda: make(LIDAR, 32, 300, 2, is_big=True), None, "big endian"),
    "padded": (lambda: make(LIDAR, 32, 300, 2, row_padding=16), "does not fit", "does not fit"),
    "counted": (lambda: make(NORMAL, 26, 300, 2), None, '"normal" is not one value'),
    "big_counted": (lambda: make(NORMAL, 28, 300, 1, is_big=True), None, "big endian"),
    "every": (lambda: make(EVERY, 107, 40, 3), None, '"normal" is not one value'),
    "one": (lambda: make(LIDAR, 32, 1, 1), None, None),
    "empty": (lambda: make(LIDAR, 32, 0, 1), None, None),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("codec", ["lossless", "cloudini,resolution=0.001"])
def test_clouds_of_any_layout_keep_their_points_or_their_form(tmp_path, world, codec, shape):
    built, *reasons = SHAPES[shape]
    message, points = built()
    if points is not None:
        measure(message, points)
    before, reason = STORE.serialize_cdr(message, CLOUD), reasons[codec != "lossless"]
    bag, small, large = write(tmp_path / "bag", {"/lidar": [(n, message) for n in range(3)]}), world.folder / "small", world.folder / "large"
    done = world.run("compress", bag, "-o", small, "--cloud", f"/lidar={codec}", "--json")
    assert done.returncode == 0, done.stderr
    (about,) = json.loads(done.stdout)["recoded"]
    assert (about["messages"], about["kept"]) == ((0, 3) if reason else (3, 0)), about
    assert not reason or (reason in str(about["reasons"]) and "/lidar: 3 messages kept as before" in done.stderr), (about, done.stderr)
    restored = world.run("decompress", small, "-o", large)
    assert restored.returncode == 0, restored.stderr
    with Reader(large) as reader:
        found = [(connection.msgtype, bytes(data)) for connection, _, data in reader.messages()]
    assert [kind for kind, _ in found] == [CLOUD] * 3
    for _, data in found:
        if reason or codec == "lossless" or points is None:
            assert data == bytes(before)
            continue
        again = STORE.deserialize_cdr(data, CLOUD)
        read = np.ndarray(points.shape, points.dtype, buffer=again.data)
        for name in points.dtype.names:
            bound = 0.001 if name in "xyz" else 0
            assert np.abs(read[name].astype(float) - points[name]).max() <= bound, name
    apart = world.run("diff", bag, small, "--decoded", *([] if codec == "lossless" else ["--tolerance", "0.001"]))
    assert apart.returncode == 0, apart.stdout


def test_pages_show_compressed_clouds_as_plain_ones(tmp_path, world):
    message, points = make(LIDAR, 32, 500, 1)
    angle = np.arange(500) / 80
    for name, values in {"x": 9 * np.cos(angle), "y": 4 * np.sin(angle), "z": angle, "intensity": np.arange(500) % 90, "ring": 1, "t": 2}.items():
        points[name][:] = values
    folder = world.folder / "bags"
    folder.mkdir()
    write(folder / "plain", {"/lidar": [(7, message)]})
    compressed = world.run("compress", folder / "plain", "-o", folder / "small", "--cloud", "/lidar=lossless")
    assert compressed.returncode == 0, compressed.stderr
    web = world.holdall("web", folder, "127.0.0.1:0", "--foxglove", "127.0.0.1:0")
    address = served(web, "bags: ")
    until(lambda: len(json.loads(ask(address, "GET", "/api/bags")[1])["bags"]) == 2, "both bags in the list")
    shown = [ask(address, "GET", f"/api/picture?bag={bag}&topic=/lidar&at=7") for bag in ("plain", "small")]
    assert [code for code, _ in shown] == [200, 200], shown
    assert shown[0][1] == shown[1][1] and shown[0][1].startswith(b"\x89PNG")
    assert json.loads(ask(address, "GET", "/api/message?bag=small&topic=/lidar&at=7")[1])["found"]["is_picture"]
    code, said = web.stop()
    assert code == 0, said
