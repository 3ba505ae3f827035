"""Bags that rosbags, not holdall, has written: what the package is compared with."""

import dataclasses
import random
import sys

import numpy as np
import pytest
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

START = 1_700_000_000_000_000_000
MS = 1_000_000
ODD = "uint8 flag\nstring[] names\nodd_msgs/Inner[] many\nodd_msgs/Inner[2] two\nbool[] bits\nfloat32[3] three\nuint8[] blob\nstring<=8 wide\nint64 last\n"
INNER = "bool on\nfloat64 value\nstring label\nuint16[] numbers\n"


@pytest.fixture(scope="session")
def store():
    store = get_typestore(Stores.ROS2_JAZZY)
    types = {**get_types_from_msg(INNER, "odd_msgs/msg/Inner"), **get_types_from_msg(ODD, "odd_msgs/msg/Odd")}
    store.register(types)
    return store


@pytest.fixture(scope="session")
def make(store):
    """Makes a message: its type, then its fields; what is left out is zero."""

    def make(name, /, **fields):
        cls = store.types[name]
        return cls(**fields)

    return make


def header(make, nanos, frame):
    stamp = make("builtin_interfaces/msg/Time", sec=nanos // 10**9, nanosec=nanos % 10**9)
    return make("std_msgs/msg/Header", stamp=stamp, frame_id=frame)


def vector(make, x, y, z):
    return make("geometry_msgs/msg/Vector3", x=x, y=y, z=z)


def imu(make, number):
    return make(
        "sensor_msgs/msg/Imu",
        header=header(make, START + number * MS, "imu" * (number % 4)),
        orientation=make("geometry_msgs/msg/Quaternion", x=0.0, y=0.0, z=0.0, w=1.0),
        orientation_covariance=np.arange(9) + float(number),
        angular_velocity=vector(make, 0.5, -number, number / 3),
        angular_velocity_covariance=np.zeros(9),
        linear_acceleration=vector(make, float(number), 2.0 * number, 9.81),
        linear_acceleration_covariance=np.zeros(9),
    )


def odd(make, number):
    dice = random.Random(number)
    inner = [
        make(
            "odd_msgs/msg/Inner",
            on=bool(dice.getrandbits(1)),
            value=dice.random(),
            label="ü" * dice.randrange(5),
            numbers=np.arange(dice.randrange(4), dtype=np.uint16),
        )
        for _ in range(dice.randrange(4) + 2)
    ]
    return make(
        "odd_msgs/msg/Odd",
        flag=number % 256,
        names=[f"n{place}" for place in range(dice.randrange(4))],
        many=inner[2:],
        two=inner[:2],
        bits=np.array([bool(dice.getrandbits(1)) for _ in range(dice.randrange(12))], dtype=bool),
        three=np.array([1.5, -number, 0], dtype=np.float32),
        blob=np.arange(dice.randrange(9), dtype=np.uint8),
        wide="wide",
        last=-number,
    )


@pytest.fixture(scope="session")
def written(tmp_path_factory, store, make):
    """The bag, and its messages by topic: pairs of time and message."""
    path = tmp_path_factory.mktemp("bags") / "foreign"
    messages = {"/imu": [], "/odd": [], "/image": [], "/cloud": []}
    for number in range(300):
        messages["/imu"].append((START + number * 10 * MS, imu(make, number)))
    for number in range(60):
        messages["/odd"].append((START + number * 50 * MS + 3 * MS, odd(make, number)))
    for number in range(5):
        pixels = np.arange(4 * 10, dtype=np.uint8) + number
        image = make(
            "sensor_msgs/msg/Image", header=header(make, START, "camera"), height=4, width=3, encoding="rgb8", is_bigendian=0, step=10, data=pixels
        )
        messages["/image"].append((START + number * 100 * MS, image))
        fields = [
            make("sensor_msgs/msg/PointField", name=name, offset=offset, datatype=kind, count=1)
            for name, offset, kind in [("x", 0, 7), ("y", 4, 7), ("intensity", 10, 4)]
        ]
        points = np.zeros(6, dtype={"names": ["x", "y", "intensity"], "formats": ["<f4", "<f4", "<u2"], "offsets": [0, 4, 10], "itemsize": 12})
        points["x"], points["y"], points["intensity"] = np.arange(6), 0.5, number
        cloud = make(
            "sensor_msgs/msg/PointCloud2",
            header=header(make, START, "lidar"),
            height=1,
            width=6,
            fields=fields,
            is_bigendian=False,
            point_step=12,
            row_step=72,
            data=np.frombuffer(points.tobytes(), dtype=np.uint8),
            is_dense=True,
        )
        messages["/cloud"].append((START + number * 100 * MS + 1, cloud))
    types = {"/imu": "sensor_msgs/msg/Imu", "/odd": "odd_msgs/msg/Odd", "/image": "sensor_msgs/msg/Image", "/cloud": "sensor_msgs/msg/PointCloud2"}
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connections = {topic: writer.add_connection(topic, name, typestore=store) for topic, name in types.items()}
        in_order = sorted((time, topic, message) for topic, found in messages.items() for time, message in enumerated(found))
        for time, topic, message in in_order:
            message = message.message
            writer.write(connections[topic], time, store.serialize_cdr(message, types[topic]))
    return path, messages


class Ordered:
    """A message among others of the same time."""

    def __init__(self, number, message):
        self.number, self.message = number, message

    def __lt__(self, other):
        return self.number < other.number


def enumerated(found):
    return [(time, Ordered(number, message)) for number, (time, message) in enumerate(found)]


def plain(value):
    """A message of rosbags or of holdall as dicts, lists and numbers."""
    if hasattr(value, "_fields"):
        return {name: plain(getattr(value, name)) for name in value._fields}
    if hasattr(value, "__dataclass_fields__"):
        # rosbags has constants as fields.
        return {name: plain(getattr(value, name)) for name in (field.name for field in dataclasses.fields(value)) if name != "__msgtype__" and not name.isupper() and not name[:-1].isupper()}
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return list(value)
    return value.item() if isinstance(value, np.generic) else value


assert sys.version_info >= (3, 10)
