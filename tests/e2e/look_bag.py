"""A bag with all that pages show: numbers, pictures, clouds, a map, positions, and names that are not harmless."""

import io

import numpy as np
from PIL import Image as Picture
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

STORE = get_typestore(Stores.ROS2_JAZZY)
START = 1_764_000_000_000_000_000
HOSTILE_TOPIC, HOSTILE_TEXT = "/a<img src=x onerror=hacked()>", '</script><script>hacked()</script><b title="x">'
LENGTH_S = 20


def typed(name):
    return STORE.types[name]


def stamped(nanos, frame="base"):
    return typed("std_msgs/msg/Header")(stamp=typed("builtin_interfaces/msg/Time")(sec=nanos // 10**9, nanosec=nanos % 10**9), frame_id=frame)


def imu(nanos, t):
    vector, turn = typed("geometry_msgs/msg/Vector3"), typed("geometry_msgs/msg/Quaternion")(x=0.0, y=0.0, z=0.0, w=1.0)
    nine = np.zeros(9)
    return typed("sensor_msgs/msg/Imu")(
        header=stamped(nanos), orientation=turn, orientation_covariance=nine, angular_velocity=vector(x=0.0, y=0.1, z=float(np.cos(t))),
        angular_velocity_covariance=nine, linear_acceleration=vector(x=0.25, y=-0.5, z=float(9.81 + 4 * np.sin(t))), linear_acceleration_covariance=nine,
    )  # fmt: skip


def image(nanos, encoding, pixels):
    height, width = pixels.shape[:2]
    return typed("sensor_msgs/msg/Image")(
        header=stamped(nanos), height=height, width=width, encoding=encoding, is_bigendian=0, step=pixels.strides[0], data=pixels.reshape(-1).view(np.uint8)
    )


def colours(number, width=320, height=240):
    """An image whose left half has a colour that depends on its number."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2] = (number * 10 % 256, 80, 255 - number * 10 % 256)
    pixels[:, width // 2 :] = (30, 200, 60)
    return pixels


def jpeg(pixels):
    out = io.BytesIO()
    Picture.fromarray(pixels).save(out, "JPEG", quality=95)
    return np.frombuffer(out.getvalue(), np.uint8)


def depth(number):
    metres = np.linspace(500, 4000, 160 * 120).reshape(120, 160).astype(np.uint16)
    metres[:10, :10] = 0
    return metres + np.uint16(number)


def cloud(nanos):
    angle = np.linspace(0, 2 * np.pi, 2000, endpoint=False)
    points = np.stack([10 * np.cos(angle), 5 * np.sin(angle), 0 * angle + 1, np.degrees(angle)], axis=1).astype(np.float32)
    field = typed("sensor_msgs/msg/PointField")
    fields = [field(name=name, offset=4 * i, datatype=7, count=1) for i, name in enumerate(("x", "y", "z", "intensity"))]
    return typed("sensor_msgs/msg/PointCloud2")(
        header=stamped(nanos), height=1, width=len(points), fields=fields, is_bigendian=False, point_step=16, row_step=16 * len(points),
        data=points.reshape(-1).view(np.uint8), is_dense=True,
    )  # fmt: skip


def grid(nanos):
    origin = typed("geometry_msgs/msg/Pose")(
        position=typed("geometry_msgs/msg/Point")(x=-5.0, y=-2.0, z=0.0), orientation=typed("geometry_msgs/msg/Quaternion")(x=0.0, y=0.0, z=0.0, w=1.0)
    )
    about = typed("nav_msgs/msg/MapMetaData")(map_load_time=typed("builtin_interfaces/msg/Time")(sec=1, nanosec=0), resolution=0.05, width=60, height=40, origin=origin)
    cells = np.full((40, 60), -1, np.int8)
    cells[:20], cells[0, :] = 0, 100
    return typed("nav_msgs/msg/OccupancyGrid")(header=stamped(nanos), info=about, data=cells.reshape(-1))


def fix(nanos, t):
    status = typed("sensor_msgs/msg/NavSatStatus")(status=0, service=1)
    return typed("sensor_msgs/msg/NavSatFix")(
        header=stamped(nanos), status=status, latitude=48.1 + 1e-4 * np.sin(t / 3), longitude=11.5 + 1e-5 * t, altitude=500.0, position_covariance=np.zeros(9), position_covariance_type=0
    )


def scan(nanos):
    return typed("sensor_msgs/msg/LaserScan")(
        header=stamped(nanos), angle_min=-1.5, angle_max=1.5, angle_increment=0.01, time_increment=0.0, scan_time=0.1, range_min=0.1, range_max=30.0,
        ranges=np.arange(300, dtype=np.float32) / 10, intensities=np.zeros(0, np.float32),
    )  # fmt: skip


def write_look_bag(path):
    """`/imu/data` at 50 Hz (silent from 8 to 11 s), pictures at 2 to 5 Hz, and one map; what is written is in the functions above."""
    text = typed("std_msgs/msg/String")
    topics = {
        "/imu/data": (50, lambda n, t, i: imu(n, t)),
        "/camera/image": (5, lambda n, t, i: image(n, "rgb8", colours(i))),
        "/camera/compressed": (5, lambda n, t, i: typed("sensor_msgs/msg/CompressedImage")(header=stamped(n), format="jpeg", data=jpeg(colours(i)))),
        "/camera/depth": (2, lambda n, t, i: image(n, "16UC1", depth(i))),
        "/points": (2, lambda n, t, i: cloud(n)),
        "/map": (0.04, lambda n, t, i: grid(n)),
        "/fix": (5, lambda n, t, i: fix(n, t)),
        "/scan": (5, lambda n, t, i: scan(n)),
        HOSTILE_TOPIC: (2, lambda n, t, i: text(data=HOSTILE_TEXT)),
    }
    names = {
        "/imu/data": "sensor_msgs/msg/Imu", "/camera/image": "sensor_msgs/msg/Image", "/camera/compressed": "sensor_msgs/msg/CompressedImage",
        "/camera/depth": "sensor_msgs/msg/Image", "/points": "sensor_msgs/msg/PointCloud2", "/map": "nav_msgs/msg/OccupancyGrid",
        "/fix": "sensor_msgs/msg/NavSatFix", "/scan": "sensor_msgs/msg/LaserScan", HOSTILE_TOPIC: "std_msgs/msg/String",
    }  # fmt: skip
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connections = {topic: writer.add_connection(topic, name, typestore=STORE) for topic, name in names.items()}
        due = sorted((round(i / hertz * 1e9), topic, i) for topic, (hertz, _) in topics.items() for i in range(max(1, int(LENGTH_S * hertz))))
        for after, topic, i in due:
            if topic == "/imu/data" and 8e9 < after < 11e9:
                continue
            message = topics[topic][1](START + after, after / 1e9, i)
            writer.write(connections[topic], START + after, STORE.serialize_cdr(message, names[topic]))
