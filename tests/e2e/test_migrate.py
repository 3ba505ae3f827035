"""Bags with old definitions, written by rosbags, become bags that rosbags reads with new ones."""

import json
import random
import re
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from conftest import PYTHON
from mcap.reader import make_reader
from mcap.writer import Writer as McapWriter
from rosbags.rosbag1 import Writer as Ros1Writer
from rosbags.rosbag2 import Reader, StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

START = 1_700_000_000_000_000_000
MESSAGES = 5
# All that changed between Foxy and Kilted, alone and within others, and what did not.
TYPES = """actionlib_msgs/GoalStatusArray builtin_interfaces/Time diagnostic_msgs/DiagnosticArray geometry_msgs/PoseWithCovarianceStamped
geometry_msgs/TransformStamped geometry_msgs/TwistStamped geometry_msgs/Wrench lifecycle_msgs/TransitionEvent nav_msgs/OccupancyGrid nav_msgs/Odometry
nav_msgs/Path rcl_interfaces/Log rcl_interfaces/ParameterDescriptor rcl_interfaces/ParameterEvent rosgraph_msgs/Clock sensor_msgs/BatteryState
sensor_msgs/CameraInfo sensor_msgs/CompressedImage sensor_msgs/Image sensor_msgs/Imu sensor_msgs/JointState sensor_msgs/LaserScan sensor_msgs/NavSatFix
sensor_msgs/PointCloud2 sensor_msgs/Range shape_msgs/SolidPrimitive std_msgs/Float64MultiArray tf2_msgs/TFMessage trajectory_msgs/JointTrajectory
visualization_msgs/Marker visualization_msgs/MarkerArray visualization_msgs/InteractiveMarkerUpdate""".split()
NUMBERS = {"float32": np.float32, "float64": np.float64, "bool": np.bool_, "byte": np.int8, "char": np.uint8, "octet": np.int8}


def store_of(name):
    return get_typestore(Stores.ROS1_NOETIC if name == "noetic" else Stores[f"ROS2_{name.upper()}"])


def value_of(store, rng, described):
    """A random value; `described` as rosbags has it."""
    kind, detail = int(described[0]), described[1]
    if kind == 1:
        name = detail[0]
        if name == "string":
            return "".join(rng.choices("abc é", k=rng.randrange(6)))
        return plain_of(rng, name).item()
    if kind == 2:
        return message_of(store, rng, detail)
    inner, count = detail
    count = count if kind == 3 else rng.randrange(min(count or 4, 4))
    if int(inner[0]) == 1 and inner[1][0] != "string":
        values = [plain_of(rng, inner[1][0]) for _ in range(count)]
        return np.array(values, dtype=NUMBERS.get(inner[1][0]) or getattr(np, inner[1][0]))
    return [value_of(store, rng, inner) for _ in range(count)]


def plain_of(rng, name):
    if name == "bool":
        return np.bool_(rng.random() < 0.5)
    if name.startswith("float"):
        return NUMBERS[name](rng.uniform(-1e6, 1e6))
    limits = np.iinfo(NUMBERS.get(name) or getattr(np, name))
    return limits.dtype.type(rng.randint(limits.min, limits.max))


def message_of(store, rng, name):
    if name in ("builtin_interfaces/msg/Time", "builtin_interfaces/msg/Duration") and "rosgraph_msgs/msg/Log" in store.fielddefs:
        # Until 2038, as ROS 2 has it.
        return store.types[name](sec=rng.randrange(2**31), nanosec=rng.randrange(10**9))
    fields = store.fielddefs[name][1]
    return store.types[name](**{field: value_of(store, rng, described) for field, described in fields})


def write(path, store, messages, plugin=StoragePlugin.MCAP):
    """A bag of {topic: (type, messages)}."""
    with Writer(path, version=9, storage_plugin=plugin) as writer:
        for topic, (name, values) in messages.items():
            connection = writer.add_connection(topic, name, typestore=store)
            for number, value in enumerate(values):
                writer.write(connection, START + number, store.serialize_cdr(value, name))
    return path


def write_ros1(path, store, messages):
    """A bag of ROS 1 of {topic: (type, messages)}."""
    with Ros1Writer(path) as writer:
        for topic, (name, values) in messages.items():
            connection = writer.add_connection(topic, name, typestore=store)
            for number, value in enumerate(values):
                writer.write(connection, START + number, store.serialize_ros1(value, name))
    return path


def read(path, store):
    """{topic: (type, messages)} by rosbags, which must find the hash that its own definition has."""
    found = {}
    with Reader(path) as reader:
        for connection in reader.connections:
            assert connection.digest == store.hash_rihs01(connection.msgtype), connection.msgtype
            found[connection.topic] = (connection.msgtype, [])
        for connection, _, raw in reader.messages():
            found[connection.topic][1].append(store.deserialize_cdr(raw, connection.msgtype))
    return found


def assert_carried(old, new, path=""):
    """Each value of the old message is in the field of the same name."""
    if hasattr(old, "__dataclass_fields__"):
        for field in old.__dataclass_fields__:
            # `K` of a camera of ROS 1 is `k`.
            now = field if hasattr(new, field) else field.lower()
            if field not in ("__msgtype__", "structure_needs_at_least_one_member") and hasattr(new, now):
                assert_carried(getattr(old, field), getattr(new, now), f"{path}.{field}")
    elif isinstance(old, list):
        assert len(old) == len(new), path
        for number, pair in enumerate(zip(old, new, strict=True)):
            assert_carried(*pair, f"{path}[{number}]")
    elif isinstance(old, np.ndarray):
        assert old.dtype == new.dtype and old.tobytes() == new.tobytes(), path
    else:
        assert old == new or old != old, (path, old, new)


def done(world, *arguments, code=0, **how):
    told = world.run(*arguments, **how)
    assert told.returncode == code, (arguments, told.stdout, told.stderr)
    return told


@pytest.mark.parametrize("plugin", [StoragePlugin.MCAP, StoragePlugin.SQLITE3])
@pytest.mark.parametrize(("old", "new"), [("foxy", "kilted"), ("humble", "kilted"), ("iron", "lyrical")])
def test_thirty_types_go_from_one_distribution_to_another(world, old, new, plugin):
    before, after, rng = store_of(old), store_of(new), random.Random(f"{old}{new}")
    names = [name.replace("/", "/msg/") for name in TYPES]
    # Lyrical has no actionlib_msgs: such messages stay as they are.
    names = [name for name in names if name in after.fielddefs]
    assert len(names) >= 30
    messages = {f"/t{number}": (name, [message_of(before, rng, name) for _ in range(MESSAGES)]) for number, name in enumerate(names)}
    for _, values in messages.values():
        for value in values:
            if hasattr(value, "timestamp"):
                # Until 2038, as a stamp has it.
                value.timestamp %= 2**31 * 10**9
    bag = write(world.folder / "bag", before, messages, plugin)
    differs = {topic for topic, (name, _) in messages.items() if before.hash_rihs01(name) != after.hash_rihs01(name)}
    told = done(world, "check", bag, "--distro", new, "--json", code=1 if differs else 0)
    listed = {entry["topic"] for entry in json.loads(told.stdout)["definitions"] if entry["definition"] == "other"}
    assert listed == differs and differs
    done(world, "migrate", bag, "-o", world.folder / "new", "--distro", new, "--rules", "ros2")
    found = read(world.folder / "new", after)
    assert found.keys() == messages.keys()
    for topic, (name, values) in messages.items():
        assert found[topic][0] == name and len(found[topic][1]) == MESSAGES
        for one, other in zip(values, found[topic][1], strict=True):
            assert_carried(one, other, topic)
            if name == "lifecycle_msgs/msg/TransitionEvent" and new == "lyrical":
                assert other.stamp.sec * 10**9 + other.stamp.nanosec == one.timestamp
    done(world, "check", world.folder / "new", "--distro", new)


VISION = {
    "old": {
        "ObjectHypothesis": "string id\nfloat64 score",
        "ObjectHypothesisWithPose": "string id\nfloat64 score\ngeometry_msgs/PoseWithCovariance pose",
        "BoundingBox2D": "geometry_msgs/Pose2D center\nfloat64 size_x\nfloat64 size_y",
        "Detection2D": "std_msgs/Header header\nObjectHypothesisWithPose[] results\nBoundingBox2D bbox\nsensor_msgs/Image source_img\nbool is_tracking\nstring tracking_id",
        "Detection2DArray": "std_msgs/Header header\nDetection2D[] detections",
        "Classification2D": "std_msgs/Header header\nObjectHypothesis[] results\nsensor_msgs/Image source_img",
    },
    "new": {
        "ObjectHypothesis": "string class_id\nfloat64 score",
        "ObjectHypothesisWithPose": "ObjectHypothesis hypothesis\ngeometry_msgs/PoseWithCovariance pose",
        "Point2D": "float64 x\nfloat64 y",
        "Pose2D": "Point2D position\nfloat64 theta",
        "BoundingBox2D": "Pose2D center\nfloat64 size_x\nfloat64 size_y",
        "Detection2D": "std_msgs/Header header\nObjectHypothesisWithPose[] results\nBoundingBox2D bbox\nstring id",
        "Detection2DArray": "std_msgs/Header header\nDetection2D[] detections",
        "Classification": "std_msgs/Header header\nObjectHypothesis[] results",
    },
}


def defined(distribution, texts, folder=None):
    """A store with further types by `package/Name`, which are written to a folder, too."""
    store, types = store_of(distribution), {}
    for name, text in texts.items():
        package, name = name.split("/")
        types |= get_types_from_msg(text, f"{package}/msg/{name}")
        if folder:
            (folder / package / "msg").mkdir(parents=True, exist_ok=True)
            (folder / package / "msg" / f"{name}.msg").write_text(text)
    store.register(types)
    return store


def vision(distribution, which, folder=None):
    """A store with vision_msgs."""
    return defined(distribution, {f"vision_msgs/{name}": text for name, text in VISION[which].items()}, folder)


HEADER, HYPOTHESES = "std_msgs/Header header\n", {name: VISION["new"][name] for name in ("ObjectHypothesis", "ObjectHypothesisWithPose")}
MAP = "string[] layers\nstd_msgs/Float32MultiArray[] data\nuint16 outer_start_index\n"
MAP_INFO = "float64 resolution\nfloat64 length_x\ngeometry_msgs/Pose pose\n"
POINT, POINTS = "trajectory_msgs/JointTrajectoryPoint", "trajectory_msgs/MultiDOFJointTrajectoryPoint"
SINCE_2023 = f"{HEADER}{POINT} reference\n{POINT} feedback\n{POINTS} multi_dof_reference\n{POINTS} multi_dof_feedback\n"
UNTIL_JAZZY = f"{POINT} desired\n{POINT} actual\n{POINTS} multi_dof_desired\n{POINTS} multi_dof_actual\n"
NAMED_ANEW = {"reference": "desired", "feedback": "actual", "multi_dof_reference": "multi_dof_desired", "multi_dof_feedback": "multi_dof_actual"}
# What the rules of holdall know beyond the types of a distribution: old and new definitions (some are shortened), the type of the messages, the
# type that they get, and what is carried under another name or in another form.
MOVES = {
    "geographic_msgs": (
        "noetic",
        {"uuid_msgs/UniqueID": "uint8[16] uuid", "geographic_msgs/WayPoint": "uuid_msgs/UniqueID id\nfloat64 latitude"},
        {"unique_identifier_msgs/UUID": "uint8[16] uuid", "geographic_msgs/WayPoint": "unique_identifier_msgs/UUID id\nfloat64 latitude"},
        ("geographic_msgs/WayPoint", "geographic_msgs/WayPoint"),
        {},
    ),
    "gps": (
        "noetic",
        {"gps_common/GPSStatus": f"{HEADER}int16 STATUS_FIX=0\nint16 status", "gps_common/GPSFix": f"{HEADER}GPSStatus status\nfloat64 latitude"},
        {
            "gps_msgs/GPSStatus": f"{HEADER}int16 STATUS_FIX=0\nint16 STATUS_RTK_FIX=19\nint16 status",
            "gps_msgs/GPSFix": f"{HEADER}GPSStatus status\nfloat64 latitude",
        },
        ("gps_common/GPSFix", "gps_msgs/GPSFix"),
        {},
    ),
    "grid_map": (
        "noetic",
        {"grid_map_msgs/GridMapInfo": HEADER + MAP_INFO, "grid_map_msgs/GridMap": f"GridMapInfo info\n{MAP}"},
        {"grid_map_msgs/GridMapInfo": MAP_INFO, "grid_map_msgs/GridMap": f"{HEADER}GridMapInfo info\n{MAP}"},
        ("grid_map_msgs/GridMap", "grid_map_msgs/GridMap"),
        {"header.frame_id": "info.header.frame_id", "header.stamp.nanosec": "info.header.stamp.nanosec"},
    ),
    "classes": (
        "noetic",
        {"vision_msgs/ObjectHypothesis": "int64 id\nfloat64 score"},
        {"vision_msgs/ObjectHypothesis": HYPOTHESES["ObjectHypothesis"]},
        ("vision_msgs/ObjectHypothesis", "vision_msgs/ObjectHypothesis"),
        {"class_id": lambda old: str(old.id)},
    ),
    "detections": (
        "noetic",
        {
            "vision_msgs/ObjectHypothesisWithPose": "int64 id\nfloat64 score\ngeometry_msgs/PoseWithCovariance pose",
            "vision_msgs/BoundingBox2D": VISION["old"]["BoundingBox2D"],
            "vision_msgs/Detection2D": f"{HEADER}ObjectHypothesisWithPose[] results\nBoundingBox2D bbox\nsensor_msgs/Image source_img",
        },
        {f"vision_msgs/{name}": text for name, text in VISION["new"].items()},
        ("vision_msgs/Detection2D", "vision_msgs/Detection2D"),
        {"bbox.center.position.x": "bbox.center.x", "bbox.center.theta": "bbox.center.theta", "results": lambda old: [str(each.id) for each in old.results]},
    ),
    "trajectory controller": (
        "humble",
        {"control_msgs/JointTrajectoryControllerState": HEADER + UNTIL_JAZZY},
        {"control_msgs/JointTrajectoryControllerState": SINCE_2023},
        ("control_msgs/JointTrajectoryControllerState",) * 2,
        NAMED_ANEW,
    ),
    "trajectory controller of 2023": (
        "humble",
        {"control_msgs/JointTrajectoryControllerState": SINCE_2023 + UNTIL_JAZZY},
        {"control_msgs/JointTrajectoryControllerState": f"{SINCE_2023}float64 speed_scaling_factor"},
        ("control_msgs/JointTrajectoryControllerState",) * 2,
        {"speed_scaling_factor": lambda _: 0},
    ),
    "trajectory controller of Foxy": (
        "foxy",
        {"control_msgs/JointTrajectoryControllerState": f"{HEADER}{POINT} desired\n{POINT} actual"},
        {"control_msgs/JointTrajectoryControllerState": SINCE_2023},
        ("control_msgs/JointTrajectoryControllerState",) * 2,
        {"reference": "desired", "feedback": "actual"},
    ),
    "pid": (
        "jazzy",
        {
            "control_msgs/PidState": f"{HEADER}float64 error\nfloat64 error_dot\nfloat64 p_error\nfloat64 i_error\nfloat64 d_error\nfloat64 p_term\n"
            "float64 i_term\nfloat64 d_term\nfloat64 i_max\nfloat64 i_min\nfloat64 output"
        },
        {
            "control_msgs/PidState": f"{HEADER}float64 error\nfloat64 error_dot\nfloat64 i_term\nfloat64 p_gain\nfloat64 i_gain\nfloat64 d_gain\n"
            "float64 output"
        },
        ("control_msgs/PidState",) * 2,
        {"p_gain": "p_term", "i_gain": "i_term", "d_gain": "d_term", "i_term": "i_error"},
    ),
    "steering": (
        "jazzy",
        {"control_msgs/SteeringControllerStatus": f"{HEADER}float64[] linear_velocity_command\nfloat64[] steering_angle_command"},
        {"control_msgs/SteeringControllerStatus": f"{HEADER}float64[] traction_command\nfloat64[] steering_angle_command"},
        ("control_msgs/SteeringControllerStatus",) * 2,
        {"traction_command": "linear_velocity_command"},
    ),
    "gazebo": (
        "galactic",
        {"ros_ign_interfaces/Entity": "uint64 id\nstring name", "ros_ign_interfaces/Contact": "Entity collision1\ngeometry_msgs/Vector3[] positions"},
        {"ros_gz_interfaces/Entity": "uint64 id\nstring name", "ros_gz_interfaces/Contact": "Entity collision1\ngeometry_msgs/Vector3[] positions"},
        ("ros_ign_interfaces/Contact", "ros_gz_interfaces/Contact"),
        {},
    ),
}


@pytest.mark.parametrize("move", MOVES)
def test_common_moves_of_packages_have_rules(world, move):
    distribution, old, new, types, carried = MOVES[move]
    before, after, rng = defined(distribution, old), defined("kilted", new, world.folder / "ws"), random.Random(move)
    name, becomes = (each.replace("/", "/msg/") for each in types)
    values = [message_of(before, rng, name) for _ in range(20)]
    is_ros1 = distribution == "noetic"
    bag = world.folder / ("old.bag" if is_ros1 else "old")
    (write_ros1 if is_ros1 else write)(bag, before, {"/t": (name, values)})
    rules = ["--rules", "ros1" if is_ros1 else "ros2"]
    if name != becomes:
        # Without the new package there is nothing to migrate to.
        done(world, "migrate", bag, "-o", world.folder / "without", "-s", "mcap", "--distro", "kilted", *rules)
        (kept,) = world.info(world.folder / "without")["topics_with_message_count"]
        assert kept["topic_metadata"]["type"] == name
    done(world, "migrate", bag, "-o", world.folder / "new", "-s", "mcap", "--definitions", world.folder / "ws", "--distro", "kilted", *rules)
    found = read(world.folder / "new", after)["/t"]
    assert found[0] == becomes and len(found[1]) == len(values)
    moved = {path.split(".")[0] for path in carried}
    for one, other in zip(values, found[1], strict=True):
        for field in one.__dataclass_fields__:
            if field != "__msgtype__" and field not in moved and hasattr(other, field):
                assert_carried(getattr(one, field), getattr(other, field), field)
        for path, source in carried.items():
            now = at(other, path)
            if path == "results":
                now = [each.hypothesis.class_id for each in now]
            assert_carried(source(one) if callable(source) else at(one, source), now, path)


def at(message, path):
    for field in path.split("."):
        message = getattr(message, field)
    return message


def test_every_type_of_ros_1_that_ros_2_has_becomes_that_of_ros_2(world):
    before, after, rng = store_of("noetic"), store_of("kilted"), random.Random(8)
    # The log has a test of its own.
    becomes = {f"std_msgs/msg/{name}": f"builtin_interfaces/msg/{name}" for name in ("Time", "Duration")}
    # rosbags has another hash of std_msgs/Char than ROS 2 itself, whose `char` is a uint8.
    names = sorted(name for name in before.fielddefs if name in {*after.fielddefs, *becomes} - {"std_msgs/msg/Char"})
    assert len(names) >= 120
    messages = {f"/t{number}": (name, [message_of(before, rng, name) for _ in range(3)]) for number, name in enumerate(names)}
    bag = write_ros1(world.folder / "old.bag", before, messages)
    done(world, "migrate", bag, "-o", world.folder / "new", "-s", "mcap", "--distro", "kilted", "--rules", "ros1")
    found = read(world.folder / "new", after)
    assert found.keys() == messages.keys()
    for topic, (name, values) in messages.items():
        assert found[topic][0] == becomes.get(name, name)
        for one, other in zip(values, found[topic][1], strict=True):
            assert_carried(one.data if name in becomes else one, other, name)


def test_detections_of_foxy_become_those_of_humble(world):
    before, after, rng = vision("foxy", "old"), vision("humble", "new", world.folder / "ws"), random.Random(1)
    names = {"/boxes": "vision_msgs/msg/Detection2DArray", "/class": "vision_msgs/msg/Classification2D"}
    messages = {topic: (name, [message_of(before, rng, name) for _ in range(20)]) for topic, name in names.items()}
    bag = write(world.folder / "bag", before, messages)
    new = ["--definitions", world.folder / "ws", "--distro", "humble"]
    told = done(world, "migrate", bag, "-o", world.folder / "new", *new, code=2)
    assert "messages cannot be migrated, nothing was done: " in told.stderr and told.stderr.count("\n") == 1
    assert "; vision_msgs/msg/Detection2D: source_img (sensor_msgs/msg/Image) has no place; " in told.stderr
    assert not (world.folder / "new").exists()
    draft = done(world, "migrate", bag, *new, "--draft-rules").stdout
    assert "id: tracking_id # probably renamed" in draft and "# drop: [source_img, is_tracking]" in draft
    done(world, "migrate", bag, "-o", world.folder / "new", *new, "--rules", "ros2")
    found = read(world.folder / "new", after)
    assert found["/class"][0] == "vision_msgs/msg/Classification"
    for one, other in zip(messages["/class"][1], found["/class"][1], strict=True):
        assert [(each.id, each.score) for each in one.results] == [(each.class_id, each.score) for each in other.results]
    for one, other in zip(messages["/boxes"][1], found["/boxes"][1], strict=True):
        assert len(one.detections) == len(other.detections)
        for old, now in zip(one.detections, other.detections, strict=True):
            assert_carried(old.header, now.header)
            assert (old.tracking_id, old.bbox.size_x) == (now.id, now.bbox.size_x)
            assert (old.bbox.center.x, old.bbox.center.y, old.bbox.center.theta) == (now.bbox.center.position.x, now.bbox.center.position.y, now.bbox.center.theta)
            for result, carried in zip(old.results, now.results, strict=True):
                assert (result.id, result.score) == (carried.hypothesis.class_id, carried.hypothesis.score)
                assert_carried(result.pose, carried.pose)
    kept = json.loads(json.loads(done(world, "info", "--json", world.folder / "new").stdout)["custom_data"]["holdall.migrations"])
    assert kept[0]["holdall"] and "vision_msgs 4" in kept[0]["rules"][0]
    assert {each["old"]["type_name"]: each["new_type"] for each in kept[0]["types"]} == {
        "vision_msgs/msg/Detection2DArray": "vision_msgs/msg/Detection2DArray",
        "vision_msgs/msg/Classification2D": "vision_msgs/msg/Classification",
    }
    assert any("sensor_msgs/Image source_img" in each["old"]["text"] for each in kept[0]["types"])


def test_a_bag_without_definitions_takes_those_of_its_distribution(world):
    before, after, rng = store_of("foxy"), store_of("kilted"), random.Random(2)
    name = "visualization_msgs/msg/MarkerArray"
    messages = {"/markers": (name, [message_of(before, rng, name) for _ in range(9)])}
    bag = write(world.folder / "bag", before, messages, StoragePlugin.SQLITE3)
    # As Foxy wrote them.
    database = sqlite3.connect(next(bag.glob("*.db3")))
    database.execute("DELETE FROM message_definitions")
    database.execute("UPDATE topics SET type_description_hash = ''")
    database.commit()
    database.close()
    metadata = bag / "metadata.yaml"
    text = re.sub(r"(ros_distro|type_description_hash):.*", r"\1: ''", metadata.read_text())
    metadata.write_text(text)
    told = done(world, "migrate", bag, "-o", world.folder / "new", "--distro", "kilted", code=2)
    assert f"/markers: no definition of {name} is in the bag\n" in told.stderr
    done(world, "migrate", bag, "-o", world.folder / "new", "--distro", "kilted", "--old-definitions", "foxy")
    for one, other in zip(messages["/markers"][1], read(world.folder / "new", after)["/markers"][1], strict=True):
        assert_carried(one, other)


    recorder = world.holdall("record", "-o", world.folder / "heard", "--topics", "/markers")
    recorder.wait_until_says("Listening")
    play = ["play", bag, "--migrate", "ros2", "--distro", "kilted", "--wait-for-subscribers", "1", "--timeout", "30"]
    assert f"no definition of {name} is in the bag" in done(world, *play, code=2).stderr
    done(world, *play, "--old-definitions", "foxy", timeout=60)
    recorder.stop()
    for one, other in zip(messages["/markers"][1], read(world.folder / "heard", after)["/markers"][1], strict=True):
        assert_carried(one, other)


def test_of_a_folder_the_bags_that_need_it_are_migrated(world):
    before, after, rng = store_of("humble"), store_of("kilted"), random.Random(6)
    fleet, new = world.folder / "fleet", world.folder / "new"
    (fleet / "lab").mkdir(parents=True)
    of = {}
    for place, name in {"one": "sensor_msgs/msg/Range", "lab/two": "sensor_msgs/msg/Range", "lab/same": "sensor_msgs/msg/Imu"}.items():
        of[place] = [message_of(before, rng, name) for _ in range(4)]
        write(fleet / place, before, {"/t": (name, of[place])})
    listed = done(world, "migrate", fleet, "-o", new, "--distro", "kilted", "--dry-run", "--json").stdout.splitlines()
    outputs = {each["bag"]: each["output"] for each in map(json.loads, listed)}
    assert outputs == {str(fleet / place): str(new / place) for place in ("one", "lab/two")} and not new.exists()
    one = done(world, "migrate", fleet / "one", "-o", new, "--distro", "kilted", "--dry-run")
    assert one.stdout == f"{fleet}/one would become {new}\n"
    ran = done(world, "migrate", fleet, "-o", new, "--distro", "kilted")
    assert ran.stdout.splitlines()[-1] == "2 of 3 bags migrated; 1 without other definitions", ran.stdout
    assert sorted(str(path.parent.relative_to(new)) for path in new.rglob("metadata.yaml")) == ["lab/two", "one"]
    for place in ("one", "lab/two"):
        for message, other in zip(of[place], read(new / place, after)["/t"][1], strict=True):
            assert_carried(message, other)
    # What is there already, and what cannot be carried, is named for all bags before one is written.
    again = done(world, "migrate", fleet, "-o", new, "--distro", "kilted", code=2)
    assert again.stderr.count("exists and was left unchanged") == 2 and "2 of 3 bags cannot be migrated" in again.stderr, again.stderr
    old = vision("foxy", "old")
    name = "vision_msgs/msg/Detection2D"
    write(fleet / "lab" / "refused", old, {"/boxes": (name, [message_of(old, rng, name)])})
    vision("humble", "new", world.folder / "ws")
    other = world.folder / "other"
    target = ["--definitions", world.folder / "ws", "--distro", "kilted"]
    ran = done(world, "migrate", fleet, "-o", other, *target, code=2)
    assert f"{fleet}/lab/refused: messages cannot be migrated" in ran.stderr and "1 of 4 bags cannot be migrated" in ran.stderr, ran.stderr
    assert not other.exists()
    draft = done(world, "migrate", fleet, "--draft-rules", *target).stdout
    assert "type: vision_msgs/msg/Detection2D" in draft, draft
    # Two bags of one name keep what is different in their paths.
    write(fleet / "lab" / "one", before, {"/t": ("sensor_msgs/msg/Range", of["one"])})
    named = [fleet / "one", fleet / "lab" / "one"]
    ran = done(world, "migrate", *named, "-o", world.folder / "both", "--distro", "kilted", "--dry-run")
    assert sorted(ran.stdout.splitlines(), reverse=True) == [f"{each} would become {world.folder / 'both' / each.relative_to(fleet)}" for each in named], ran.stdout
    # Bags that are named, without the one that cannot be.
    ran = done(world, "migrate", fleet / "one", fleet / "lab" / "same", "-o", other, *target, "--json")
    assert [json.loads(line)["path"] for line in ran.stdout.splitlines()] == [str(other / "one")], ran.stdout


def test_the_log_of_ros_1_becomes_that_of_ros_2(world):
    store, after, rng = get_typestore(Stores.ROS1_NOETIC), store_of("kilted"), random.Random(3)
    levels = {1: 10, 2: 20, 4: 30, 8: 40, 16: 50}
    name = "rosgraph_msgs/msg/Log"
    messages = []
    for level in levels:
        message = message_of(store, rng, name)
        message.level, message.header.stamp.sec, message.header.stamp.nanosec = level, 5, 7
        messages.append(message)
    path = write_ros1(world.folder / "old.bag", store, {"/rosout": (name, messages)})
    done(world, "migrate", path, "-o", world.folder / "new", "-s", "mcap", "--distro", "kilted", "--rules", "ros1")
    name, found = read(world.folder / "new", after)["/rosout"]
    assert name == "rcl_interfaces/msg/Log"
    for one, other in zip(messages, found, strict=True):
        assert (levels[one.level], one.name, one.msg, one.file, one.function, one.line) == (
            other.level, other.name, other.msg, other.file, other.function, other.line,
        )
        assert (other.stamp.sec, other.stamp.nanosec) == (5, 7)


def test_the_rules_for_ros_2_leave_alone_what_did_not_change(world):
    before, rng = vision("humble", "old", world.folder / "ws"), random.Random(6)
    name = "vision_msgs/msg/Detection2DArray"
    bag = write(world.folder / "bag", before, {"/boxes": (name, [message_of(before, rng, name) for _ in range(3)])})
    done(world, "migrate", bag, "-o", world.folder / "new", "--definitions", world.folder / "ws", "--rules", "ros2")
    assert_carried(read(bag, before)["/boxes"][1], read(world.folder / "new", before)["/boxes"][1])


def test_bad_rules_and_values_make_no_bag(world):
    before, rng = vision("foxy", "old"), random.Random(4)
    vision("humble", "new", world.folder / "ws")
    name = "vision_msgs/msg/Classification2D"
    bag = write(world.folder / "bag", before, {"/class": (name, [message_of(before, rng, name) for _ in range(3)])})
    rules = world.folder / "rules.yaml"
    to = "- type: vision_msgs/msg/Classification2D\n  becomes: vision_msgs/msg/Classification\n"
    hypothesis = "- type: vision_msgs/msg/ObjectHypothesis\n  fields:\n    class_id: {from: score, map: {}}\n  drop: [id]\n  lossy: true\n"
    for text, code, said in [
        (f"rules:\n{to}  drop: [source_img]\n", 2, "needs lossy: true"),
        (f"rules:\n{to}  drop: [picture]\n  lossy: true\n", 2, "line 2: vision_msgs/msg/Classification2D: it has no field picture"),
        (f"rules:\n{to}  fields: {{nothing: header}}\n", 2, "has no field nothing"),
        ("rules:\n- typo: x\n", 2, "line 2: unknown field `typo`"),
        (f"rules:\n{to}  drop: [source_img]\n  lossy: true\n{hypothesis}", 1, "the map of its rule"),
    ]:
        rules.write_text(text)
        told = done(world, "migrate", bag, "-o", world.folder / "new", "--definitions", world.folder / "ws", "--rules", rules, code=code)
        assert said in told.stderr and told.stderr.count("\n") == 1, told.stderr
        assert not (world.folder / "new").exists()
    told = done(world, "migrate", bag, "-o", world.folder / "new", "--distro", "noetic", code=2)
    assert "expected one of foxy" in told.stderr


def odd_bag(world, place, topic="/odd", name="odd_msgs/msg/Odd"):
    """A bag of Foxy with classes, a range, and a type that no distribution has; in `ws` is the new package of the classes."""
    before, rng = defined("foxy", {f"vision_msgs/{each}": text for each, text in VISION["old"].items()}), random.Random(place)
    (fields,) = get_types_from_msg("int32 x", name).values()
    before.register({name: fields})
    vision("humble", "new", world.folder / "ws")
    names = {"/class": "vision_msgs/msg/Classification2D", "/range": "sensor_msgs/msg/Range", topic: name}
    return write(world.folder / place, before, {topic: (name, [message_of(before, rng, name) for _ in range(3)]) for topic, name in names.items()})


CLASSES = """rules:
- type: vision_msgs/msg/Classification2D
  becomes: vision_msgs/msg/Classification
  drop: [source_img]
  lossy: true
- type: vision_msgs/msg/ObjectHypothesis
  fields: {class_id: id}
"""


def test_topics_that_stay_and_rules_that_find_nothing_are_named(world):
    (world.folder / "fleet").mkdir()
    bag = odd_bag(world, "fleet/one")
    target = ["--definitions", world.folder / "ws", "--distro", "kilted"]
    rules = world.folder / "rules.yaml"
    # Detections are in other bags, and Wheel becomes a type that is known.
    rules.write_text(f"{CLASSES}- type: vision_msgs/msg/Detection2D\n  fields: {{id: tracking_id}}\n- type: a_msgs/msg/Wheel\n  becomes: sensor_msgs/msg/Range\n")
    said = done(world, "migrate", bag, "-o", world.folder / "new", *target, "--rules", rules).stderr
    assert "unchanged, because the new definitions do not have their types: /odd (odd_msgs/msg/Odd)\n" in said, said
    assert f"{rules}: no topic has what these rules are for: vision_msgs/msg/Detection2D (line 8), a_msgs/msg/Wheel (line 10)\n" in said, said
    # The same rules for a folder of bags, one of which has no classes.
    before, rng = store_of("foxy"), random.Random(9)
    write(world.folder / "fleet/two", before, {"/range": ("sensor_msgs/msg/Range", [message_of(before, rng, "sensor_msgs/msg/Range")])})
    # Two bags that stay are named once, without the rules, which are for others.
    (fields,) = get_types_from_msg("int32 x", "odd_msgs/msg/Odd").values()
    before.register({"odd_msgs/msg/Odd": fields})
    odd = [write(world.folder / "fleet" / name, before, {"/odd": ("odd_msgs/msg/Odd", [message_of(before, rng, "odd_msgs/msg/Odd")])}) for name in ("four", "three")]
    ran = done(world, "migrate", world.folder / "fleet", "-o", world.folder / "fleet-new", *target, "--rules", rules)
    assert ran.stdout.splitlines()[-1] == "2 of 4 bags migrated; 2 without other definitions", ran.stdout
    stays = "and 1 other bag: unchanged, because the new definitions do not have their types: /odd (odd_msgs/msg/Odd)\n"
    assert ran.stderr.count(stays) == 1 and f"other bag: {rules}" not in ran.stderr, ran.stderr
    ran = done(world, "migrate", *odd, "-o", world.folder / "none", *target, "--rules", rules)
    assert ran.stdout == "0 of 2 bags migrated; 2 without other definitions\n" and ran.stderr.count(stays) == 1, ran
    assert ran.stderr.count(f"and 1 other bag: {rules}: no topic has what these rules are for: vision_msgs/msg/Classification2D (line 2), ") == 1, ran.stderr
    # A type that no definition has, and one that a type of the bag would become.
    for rule, named in {
        "vision_msgs/msg/ObjectHypotesis\n  fields: {class_id: id}": "ObjectHypotesis: no definition of this type",
        "vision_msgs/msg/ObjectHypothesis\n  becomes: vision_msgs/msg/Hypotesis": "ObjectHypothesis: no definition of vision_msgs/msg/Hypotesis",
    }.items():
        rules.write_text(f"{CLASSES}- type: {rule}\n")
        for verb in (["migrate", bag, "-o", world.folder / "typo"], ["check", bag], ["migrate", world.folder / "fleet", "-o", world.folder / "typo"]):
            said = done(world, *verb, *target, "--rules", rules, code=2).stderr
            assert f"{rules}, line 8: vision_msgs/msg/{named} is in the bag" in said, said
        said = done(world, "play", bag, *target, "--migrate", rules, code=2).stderr
        assert f"line 8: vision_msgs/msg/{named}" in said and not (world.folder / "typo").exists(), said


def test_services_that_no_distribution_has_stay_and_are_named(world):
    bag = odd_bag(world, "bag", "/set/_service_event", "odd_msgs/srv/Set_Event")
    target = ["--definitions", world.folder / "ws", "--distro", "kilted", "--rules", "ros2"]
    said = done(world, "migrate", bag, "-o", world.folder / "new", *target).stderr
    assert "do not have their types: /set/_service_event (odd_msgs/srv/Set_Event)\n" in said, said
    listed = json.loads(done(world, "check", bag, *target, "--json", code=1).stdout)["definitions"]
    assert {each["topic"]: each["definition"] for each in listed} == {"/class": "other", "/range": "other", "/set/_service_event": "unknown"}


# Of an event: a request that was received, when, by whom, its number.
INFO = b"\0\1\0\0" + bytes([1, 0, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0, *range(16), 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0])


def test_events_of_services_get_the_definitions_of_the_distribution(world):
    bag, name, topic = world.folder / "old.mcap", "rosbag2_interfaces/srv/Resume_Event", "/resume/_service_event"
    with open(bag, "wb") as file:
        writer = McapWriter(file)
        writer.start(profile="ros2")
        channel = writer.register_channel(topic, "cdr", writer.register_schema(name, "ros2msg", b"---\n"))
        # One request, which is empty: a byte, three to align the next number. No response.
        writer.add_message(channel, START, INFO + b"\1\0\0\0" + bytes(4) + bytes(4), START)
        writer.finish()
    for distro, found in {"foxy": "unknown", "humble": "same", "kilted": "same", "lyrical": "other"}.items():
        check = done(world, "check", bag, "--distro", distro, "--json", code=int(found == "other"))
        assert [each["definition"] for each in json.loads(check.stdout)["definitions"]] == [found], distro
    done(world, "migrate", bag, "-o", world.folder / "new", "-s", "mcap", "--distro", "lyrical")
    with open(next((world.folder / "new").glob("*.mcap")), "rb") as file:
        [(schema, channel, message)] = make_reader(file).iter_messages(topics=[topic])
    assert schema.name == name and b"string tracking_topic_name" in schema.data
    # A time, a mode, an empty text.
    assert message.data == INFO + b"\1\0\0\0" + bytes(12) + b"\1\0\0\0\0" + bytes(3) + bytes(4)
    printed = done(world, "check", world.folder / "new", "--distro", "humble", code=1).stdout
    assert topic in printed and "resume_time" in printed and "tracking_topic_name" in printed, printed


def test_services_of_kilted_have_the_hashes_of_its_packages(world):
    share, names = Path(PYTHON["kilted"]).parent.parent / "share", []
    with Writer(world.folder / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        for path in sorted(share.glob("*/srv/*.srv")):
            name = f"{path.parent.parent.name}/srv/{path.stem}_Event"
            listed = json.loads(path.with_suffix(".json").read_text())["type_hashes"]
            hashes = {each["type_name"]: each["hash_string"] for each in listed}
            text = path.read_text()
            for part in (each for each in hashes if "/msg/" in each):
                text += f"\n{'=' * 80}\nMSG: {part.replace('/msg/', '/')}\n{(share / f'{part}.msg').read_text()}"
            connection = writer.add_connection(f"/{path.stem}/_service_event", name, msgdef=text, rihs01=hashes[name])
            writer.write(connection, START, INFO + bytes(8))
            names.append(name)
    check = done(world, "check", world.folder / "bag", "--distro", "kilted", "--json")
    listed = json.loads(check.stdout)["definitions"]
    assert {each["type"]: each["definition"] for each in listed} == dict.fromkeys(names, "same") and len(names) > 10


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"int32 x\nmissing_msgs/Thing thing", "no definition of missing_msgs/msg/Thing was found, which odd_msgs/msg/Odd needs"),
        (b"int32 x\nint32", "definition of odd_msgs/msg/Odd, line 2: "),
        (b"int32 x # 20 \xb0C", "it is not a text of at most 1048576 bytes in UTF-8"),
    ],
    ids=["missing", "syntax", "latin"],
)
def test_new_definitions_that_cannot_be_used_are_named_with_what_is_missing(world, text, reason):
    bag = odd_bag(world, "bag")
    file = world.folder / "ws/odd_msgs/msg/Odd.msg"
    file.parent.mkdir(parents=True)
    file.write_bytes(text)
    target = ["--definitions", world.folder / "ws", "--distro", "kilted"]
    for verb in (["check", bag], ["migrate", bag, "-o", world.folder / "new", "--rules", "ros2"], ["play", bag, "--migrate", "ros2"]):
        said = done(world, *verb, *target, code=2).stderr
        assert f"the new definitions cannot be used: {file}: {reason}" in said, said
    assert not (world.folder / "new").exists()


def test_play_warns_of_other_definitions_and_migrates_on_the_way(world):
    before, rng = store_of("humble"), random.Random(5)
    name = "sensor_msgs/msg/Range"
    bag = write(world.folder / "bag", before, {"/range": (name, [message_of(before, rng, name) for _ in range(20)])})
    modern = world.listener({"topic": "/range", "type": name}, node="modern")
    modern.wait_for("ready")
    heard = ["--wait-for-subscribers", "/range=1", "--timeout", "30"]
    played = done(world, "play", bag, *heard, timeout=60)
    assert "/range: /modern has another definition of sensor_msgs/msg/Range than the bag (RIHS01_" in played.stderr
    # One message, sent as soon as it is heard: the warning comes before it, or not at all.
    short = write(world.folder / "short", before, {"/range": (name, [message_of(before, rng, name)])})
    played = done(world, "play", short, *heard, timeout=60)
    assert "/range: /modern has another definition" in played.stderr
    paused = world.holdall("play", short, "--start-paused", "--disable-keyboard-controls", "--json")
    paused.wait_until_says("/range: /modern has another definition")
    _, said = paused.stop()
    assert '"published": 0' in said, said
    # Once it is gone the recorder is the only subscriber, so playback does not begin for another one.
    modern.interrupt()
    modern.process.wait(30)
    recorder = world.holdall("record", "-o", world.folder / "heard", "--topics", "/range")
    recorder.wait_until_says("Listening")
    done(world, "play", bag, "--migrate", "ros2", "--distro", "kilted", *heard, timeout=60)
    recorder.stop()
    after = store_of("kilted")
    name, found = read(world.folder / "heard", after)["/range"]
    assert len(found) == 20 and all(message.variance == 0 for message in found)
