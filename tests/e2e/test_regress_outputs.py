"""Outputs that are not compared field by field: trajectories and images, judged again by numpy; bags from a bucket, software of several nodes, zenoh."""

import json
import os
import re
import shlex
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from buckets import SERVER, free_port
from conftest import HOLDALL, NODES, cdr_string, messages_of
from mcap.reader import make_reader
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
from test_lockstep import COUNT, drive  # noqa: F401
from test_regress import NODE, command, logs, regress, result
from test_small import decoded
from test_video import HEIGHT, WIDTH, encode, moving
from test_video import write as write_video
from test_zenoh import STRING_HASH

STORE = get_typestore(Stores.ROS2_JAZZY)
START = 1_700_000_000_000_000_000
POSES = 60
STEP_NANOS = 20_000_000


def new(name, **fields):
    return STORE.types[name](**fields)


def header(nanos, frame="map"):
    return new("std_msgs/msg/Header", stamp=new("builtin_interfaces/msg/Time", sec=nanos // 10**9, nanosec=nanos % 10**9), frame_id=frame)


def rotation(quaternion):
    x, y, z, w = quaternion
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def track(seed, noise, moved):
    """Stamps, positions, quaternions of a drive along a curve; `moved` in a frame that is turned by 120° about (1, 1, 1)."""
    rng = np.random.default_rng(seed)
    angles = np.linspace(0, 3, POSES)
    positions = np.stack([8 * np.sin(angles), 5 * np.cos(2 * angles), angles], axis=1) + rng.normal(0, noise, (POSES, 3))
    quaternions = np.stack([np.zeros(POSES), np.zeros(POSES), np.sin(angles), np.cos(angles)], axis=1) + rng.normal(0, noise / 10, (POSES, 4))
    quaternions /= np.linalg.norm(quaternions, axis=1)[:, None]
    if moved:
        positions = positions @ rotation([0.5, 0.5, 0.5, 0.5]).T + [4, -7, 2]
        turned = []
        for x, y, z, w in quaternions:
            a = b = c = d = 0.5
            turned.append([d * x + a * w + b * z - c * y, d * y - a * z + b * w + c * x, d * z + a * y - b * x + c * w, d * w - a * x - b * y - c * z])
        quaternions = np.array(turned)
    stamps = START + STEP_NANOS * np.arange(POSES) + rng.integers(-2_000_000, 2_000_000, POSES)
    return [int(stamp) for stamp in stamps], positions, quaternions


def messages(track):
    """The same trajectory as messages of each type that has poses."""
    path, result = [], {"/odom": [], "/pose": [], "/path": [], "/tf": []}
    for stamp, position, quaternion in zip(*track):
        at = {axis: float(value) for axis, value in zip("xyz", position)}
        turn = new("geometry_msgs/msg/Quaternion", **{axis: float(value) for axis, value in zip("xyzw", quaternion)})
        pose = new("geometry_msgs/msg/Pose", position=new("geometry_msgs/msg/Point", **at), orientation=turn)
        still = new("geometry_msgs/msg/Vector3", x=0.0, y=0.0, z=0.0)
        twist = new("geometry_msgs/msg/TwistWithCovariance", twist=new("geometry_msgs/msg/Twist", linear=still, angular=still), covariance=np.zeros(36))
        with_covariance = new("geometry_msgs/msg/PoseWithCovariance", pose=pose, covariance=np.zeros(36))
        result["/odom"].append(new("nav_msgs/msg/Odometry", header=header(stamp), child_frame_id="base", pose=with_covariance, twist=twist))
        stamped = new("geometry_msgs/msg/PoseStamped", header=header(stamp), pose=pose)
        result["/pose"].append(stamped)
        path.append(stamped)
        result["/path"].append(new("nav_msgs/msg/Path", header=header(stamp), poses=list(path)))
        transforms = [
            new("geometry_msgs/msg/TransformStamped", header=header(stamp, parent), child_frame_id="base", transform=new(
                "geometry_msgs/msg/Transform", translation=new("geometry_msgs/msg/Vector3", **at) if parent == "map" else still, rotation=turn))
            for parent in ("odom", "map")
        ]  # fmt: skip
        result["/tf"].append(new("tf2_msgs/msg/TFMessage", transforms=transforms))
    return result


def images(seed, noise):
    """Ten pictures of 64 x 48 pixels, as they are."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:48, 0:64]
    base = np.stack([4 * x, 5 * y, 128 + 60 * np.sin(x / 5)], axis=2)
    return [np.clip(base + number + rng.normal(0, noise * (1 + number), base.shape), 0, 255).astype(np.uint8) for number in range(10)]


def write(path, topics, step_nanos=STEP_NANOS):
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        for topic, values in topics.items():
            name = values[0].__msgtype__
            connection = writer.add_connection(topic, name, typestore=STORE)
            for number, value in enumerate(values):
                writer.write(connection, START + number * step_nanos, bytes(STORE.serialize_cdr(value, name)))
    return path


def picture(number, pixels, encoding="rgb8"):
    height, width = pixels.shape[:2]
    data = np.ascontiguousarray(pixels).reshape(-1)
    return new(
        "sensor_msgs/msg/Image", header=header(START + number), height=height, width=width, encoding=encoding, is_bigendian=0, step=3 * width, data=data
    )


def suite_of(world, cases, defaults=None):
    """A suite whose software plays the bag `now`, as a node would publish."""
    folder = world.folder / "suite"
    folder.mkdir(exist_ok=True)
    if not (folder / "input").exists():
        write(folder / "input", {"/go": [new("std_msgs/msg/String", data="go")] * 3})
    for case in cases.values():
        now = case.pop("now", None)
        if now:
            topics = " ".join(f"{topic}=1" for topic in case["outputs"])
            case["command"] = f"{HOLDALL} play {now} --disable-keyboard-controls --wait-for-subscribers {topics}; exec sleep 100"
    text = json.dumps({"version": 1, "defaults": {"bag": "input", "settle": 4, "limit": 60, **(defaults or {})}, "cases": cases})
    (folder / "suite.yaml").write_text(text)
    return folder / "suite.yaml"


def errors_of(golden, found, align):
    """ATE, RPE and angle of RPE by matrices and the singular values of Umeyama (1991)."""
    pairs = [(i, j) for i, stamp in enumerate(golden[0]) for j in [int(np.argmin(np.abs(np.array(found[0]) - stamp)))] if abs(found[0][j] - stamp) <= 10**7]
    p, q = (np.array([track[1][pair[side]] for pair in pairs]) for side, track in enumerate((golden, found)))
    moved = q
    if align:
        u, _, vt = np.linalg.svd((p - p.mean(0)).T @ (q - q.mean(0)))
        turn = u @ np.diag([1, 1, np.linalg.det(u) * np.linalg.det(vt)]) @ vt
        moved = (q - q.mean(0)) @ turn.T + p.mean(0)
    poses = []
    for side, track in enumerate((golden, found)):
        poses.append([])
        for pair in pairs:
            pose = np.eye(4)
            pose[:3, :3], pose[:3, 3] = rotation(track[2][pair[side]]), track[1][pair[side]]
            poses[-1].append(pose)
    steps, angles = [], []
    for at in range(len(pairs) - 1):
        a, b = (np.linalg.inv(side[at]) @ side[at + 1] for side in poses)
        error = np.linalg.inv(a) @ b
        steps.append(np.linalg.norm(error[:3, 3]))
        angles.append(np.degrees(np.arccos(np.clip((np.trace(error[:3, :3]) - 1) / 2, -1, 1))))
    rms = lambda values: float(np.sqrt(np.mean(np.square(values))))  # noqa: E731
    return len(pairs), rms(np.linalg.norm(p - moved, axis=1)), rms(steps), rms(angles)


def ssim(a, b):
    """Windows of 8 x 8 pixels, every 4, of BT.709's brightness."""
    a, b = (image.astype(float) @ [0.2126, 0.7152, 0.0722] for image in (a, b))
    values = []
    for top in range(0, a.shape[0] - 7, 4):
        for left in range(0, a.shape[1] - 7, 4):
            one, other = (image[top : top + 8, left : left + 8] for image in (a, b))
            both = ((one - one.mean()) * (other - other.mean())).mean()
            values.append((2 * one.mean() * other.mean() + 6.5025) * (2 * both + 58.5225) / ((one.mean() ** 2 + other.mean() ** 2 + 6.5025) * (one.var() + other.var() + 58.5225)))
    return float(np.mean(values))


def test_trajectories_are_judged_as_by_an_independent_computation(world):
    golden, found = track(1, 0, False), track(2, 0.02, True)
    folder = world.folder / "suite"
    folder.mkdir()
    write(folder / "golden", messages(golden))
    write(folder / "now", messages(found))
    topics = ["/odom", "/pose", "/path", "/tf"]
    limits = {"ate": 0.1, "rpe": 0.1, "rpe-angle": 5, "align": True}
    near = {topic: {**limits, **({"frames": ["map", "base"]} if topic == "/tf" else {})} for topic in topics}
    cases = {
        "near": {"now": "now", "outputs": topics, "golden": "golden", "trajectories": near},
        "far": {"now": "now", "outputs": ["/odom"], "golden": "golden", "trajectories": {"/odom": {"ate": 0.1, "rpe": 0.001}}},
        "frames": {"now": "now", "outputs": ["/tf"], "golden": "golden", "trajectories": {"/tf": {"ate": 1, "frames": ["map", "lens"]}}},
    }
    ran = regress(world, suite_of(world, cases), code=4)
    assert "passed  near" in ran.stdout, (ran.stdout, logs(world))
    pairs, ate, rpe, angle = errors_of(golden, found, True)
    for topic, compared in result(world, "near")["topics"].items():
        judged = compared["trajectory"]
        assert judged["pairs"] == pairs == POSES, topic
        assert judged["ate"]["rmse"] == pytest.approx(ate, rel=1e-6), topic
        assert judged["rpe"]["rmse"] == pytest.approx(rpe, rel=1e-6), topic
        assert judged["rpe_angle"]["rmse"] == pytest.approx(angle, rel=1e-4), topic
    _, far, _, _ = errors_of(golden, found, False)
    assert far > 5 and f"/odom: ATE {far:.6f} m, at most 0.1, RPE {rpe:.6f} m, at most 0.001" in ran.stdout, ran.stdout
    assert "/tf: the golden bag has no pose of it" in ran.stdout, ran.stdout
    tree = ElementTree.parse(world.folder / "results" / "junit.xml").getroot()
    said = {case.get("name"): case.findtext("system-out") for case in tree.iter("testcase")}
    assert f"/odom: {POSES} pairs of {POSES} golden poses and {POSES} now; ATE {ate:.6f} m of at most 0.1" in said["near"], said
    page = (world.folder / "results" / "index.html").read_text()
    assert "(distance of poses in m)" in page and f"ATE {ate:.6f} m" in page


def transforms(rows):
    """A message of transforms: parent, child, stamp, matrix."""
    result = []
    for parent, child, stamp, matrix in rows:
        x, y, z, w = quaternion_of(matrix[:3, :3])
        moved = new("geometry_msgs/msg/Vector3", **{axis: float(value) for axis, value in zip("xyz", matrix[:3, 3])})
        turned = new("geometry_msgs/msg/Quaternion", x=x, y=y, z=z, w=w)
        both = new("geometry_msgs/msg/Transform", translation=moved, rotation=turned)
        result.append(new("geometry_msgs/msg/TransformStamped", header=header(stamp, parent), child_frame_id=child, transform=both))
    return new("tf2_msgs/msg/TFMessage", transforms=result)


def quaternion_of(turn):
    """By the vector that a rotation leaves, for angles below 180°."""
    w = np.sqrt(1 + np.trace(turn)) / 2
    x, y, z = (turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]) / (4 * w)
    return [float(part) for part in (x, y, z, w)]


def turned(angle, x, y):
    """A movement in the plane, as a matrix."""
    matrix = np.eye(4)
    matrix[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    matrix[:2, 3] = x, y
    return matrix


def drive_of_frames(drift):
    """`map` has `odom` (every fifth time, of a constant speed and rate of turn), that `base` (each time), that, fixed, `lens`; where `lens` was in `map`."""
    lens, messages, track = turned(0.3, 0.2, -0.1), [], []
    for number in range(POSES):
        stamp = START + number * STEP_NANOS
        odom, base = turned(0.01 * number, drift * number, 2), turned(0.02 * number, 0.1 * number, np.sin(number / 9))
        rows = [("odom", "base", stamp, base), ("base", "wheel", stamp, turned(number / 30, 0, 0))]
        if number % 5 == 0:
            rows.append(("map", "odom", stamp, odom))
            known = number
        messages.append(transforms(rows))
        track.append((stamp, odom @ base @ lens))
    track = track[: known + 1]
    fixed = [transforms([("base", "lens", START, lens)])]
    turns = np.array([quaternion_of(pose[:3, :3]) for _, pose in track])
    return {"/tf": messages, "/tf_static": fixed}, ([stamp for stamp, _ in track], np.array([pose[:3, 3] for _, pose in track]), turns)


def test_frames_are_joined_by_a_chain_of_transforms(world):
    (golden, true), (now, moved) = drive_of_frames(0.05), drive_of_frames(0.06)
    folder = world.folder / "suite"
    folder.mkdir()
    write(folder / "golden", golden)
    write(folder / "now", now)
    both = ["/tf", "/tf_static"]
    case = {"now": "now", "outputs": both, "golden": "golden"}
    cases = {
        "lens": {**case, "trajectories": {"/tf": {"ate": 1, "rpe": 1, "rpe-angle": 1, "frames": ["map", "lens"]}}},
        "far": {**case, "trajectories": {"/tf": {"ate": 0.001, "frames": ["map", "lens"]}}},
        "back": {**case, "trajectories": {"/tf": {"ate": 10, "frames": ["lens", "map"]}}},
        # Without the topic of what is fixed, nothing joins these.
        "none": {**case, "outputs": ["/tf"], "trajectories": {"/tf": {"ate": 1, "frames": ["map", "lens"]}}},
    }
    ran = regress(world, suite_of(world, {name: dict(each) for name, each in cases.items()}), code=4)
    judged = result(world, "lens")["topics"]["/tf"]["trajectory"]
    pairs, ate, rpe, angle = errors_of(true, moved, False)
    assert "passed  lens" in ran.stdout and "passed  back" in ran.stdout, (ran.stdout, logs(world))
    assert judged["pairs"] == pairs == len(true[0]) > 50
    assert judged["ate"]["rmse"] == pytest.approx(ate, rel=1e-6) and judged["rpe"]["rmse"] == pytest.approx(rpe, rel=1e-5)
    assert judged["rpe_angle"]["rmse"] == pytest.approx(angle, abs=1e-5)
    assert f"/tf: ATE {ate:.6f} m, at most 0.001" in ran.stdout, ran.stdout
    assert re.search(r"none .*\n +/tf: (\d+) of \1 golden poses have none within", ran.stdout), ran.stdout


def test_images_are_judged_as_by_an_independent_computation(world):
    golden, found = images(1, 0), images(2, 0.5)
    folder = world.folder / "suite"
    folder.mkdir()
    write(folder / "golden", {"/camera": [picture(number, pixels) for number, pixels in enumerate(golden)]})
    # Another order of colours is the same image.
    write(folder / "now", {"/camera": [picture(number, pixels[:, :, ::-1], "bgr8") for number, pixels in enumerate(found)]})
    small = [picture(number, pixels[:40]) for number, pixels in enumerate(found)]
    write(folder / "small", {"/camera": small})
    values = [ssim(a, b) for a, b in zip(golden, found)]
    assert 0.5 < min(values) < max(values) < 1
    case = {"outputs": ["/camera"], "golden": "golden", "tolerances": {"/camera": {"encoding": "any", "height": "any"}}}
    limit = sorted(values)[3]
    cases = {
        "like": {**case, "now": "now", "images": {"/camera": {"ssim": min(values) - 0.001}}},
        "unlike": {**case, "now": "now", "images": {"/camera": {"ssim": limit - 1e-6}}},
        "small": {**case, "now": "small", "images": {"/camera": {"ssim": 0.1}}},
    }
    ran = regress(world, suite_of(world, cases), code=4)
    assert "passed  like" in ran.stdout, (ran.stdout, logs(world))
    judged = result(world, "like")["topics"]["/camera"]["images"]
    assert judged["ssim_min"] == pytest.approx(min(values), abs=1e-6) and judged["images"] == len(values)
    assert judged["sum"] == pytest.approx(sum(values), abs=1e-6)
    compared = result(world, "unlike")["topics"]["/camera"]
    assert compared["different"] == 3 and all(list(message["fields"]) == ["SSIM"] for message in compared["first"]), compared
    assert "64 x 48 pixels became 64 x 40" in ran.stdout, ran.stdout
    tree = ElementTree.parse(world.folder / "results" / "junit.xml").getroot()
    said = {case.get("name"): case.findtext("system-out") for case in tree.iter("testcase")}
    assert f"/camera: SSIM {min(values):.4f} at worst" in said["like"], said


def test_images_of_video_are_judged_as_another_decoder_shows_them(world, ffmpeg):
    folder = world.folder / "suite"
    folder.mkdir()

    def noisy(number, size):
        noise = np.random.default_rng(number).normal(0, 20, (size[1], size[0], 3))
        return np.clip(moving(number, size) + noise, 0, 255).astype(np.uint8)

    streams = {name: encode("h264", 30, scene=scene) for name, scene in {"golden": moving, "now": noisy}.items()}
    topics = {"/camera": "foxglove_msgs/msg/CompressedVideo", "/isaac": "sensor_msgs/msg/CompressedImage"}
    for name, stream in streams.items():
        write_video(folder / f"{name}.mcap", {topic: (kind, "h264", list(enumerate(stream))) for topic, kind in topics.items()})
    pictures = [decoded(b"".join(stream), "h264", WIDTH, HEIGHT)[0] for stream in streams.values()]
    values = [ssim(a, b) for a, b in zip(*pictures, strict=True)]
    assert len(values) == 30 and 0.2 < min(values) < max(values) < 0.97, values
    case = {"now": "now.mcap", "outputs": list(topics), "golden": "golden.mcap"}
    limits = {"like": min(values) - 0.01, "unlike": max(values) + 0.02}
    ran = regress(world, suite_of(world, {name: {**case, "images": {topic: {"ssim": limit} for topic in topics}} for name, limit in limits.items()}), code=4)
    assert "passed  like" in ran.stdout, (ran.stdout, logs(world))
    for topic in topics:
        judged = result(world, "like")["topics"][topic]["images"]
        assert judged["images"] == 30 and judged["ssim_min"] == pytest.approx(min(values), abs=0.01), (topic, judged)
        assert judged["sum"] == pytest.approx(sum(values), abs=0.3), (topic, judged)
        assert result(world, "unlike")["topics"][topic]["different"] == 30, topic


def test_counts_and_rates_are_judged_within_their_limits(world):
    folder = world.folder / "suite"
    folder.mkdir()
    poses = messages(track(1, 0, False))["/pose"]
    write(folder / "golden", {"/pose": poses})
    # Each tenth is missing; at a tenth of the rate.
    write(folder / "now", {"/pose": [pose for number, pose in enumerate(poses) if number % 10]})
    write(folder / "slow", {"/pose": poses[:12]}, 10 * STEP_NANOS)
    case = {"now": "now", "outputs": ["/pose"], "golden": "golden"}
    cases = {
        "near": {**case, "counts": {"/pose": "10%"}, "rates": {"/pose": "60%"}},
        "each": case,
        "few": {**case, "counts": {"/pose": 5}},
        "slow": {**case, "now": "slow", "counts": {"/pose": "any"}, "rates": {"/pose": "60%"}},
    }
    ran = regress(world, suite_of(world, {name: dict(each) for name, each in cases.items()}), code=4)
    assert "passed  near" in ran.stdout, (ran.stdout, logs(world))
    assert re.search(r"FAILED  each .*\n +/pose: 6 of 60 messages missing\n", ran.stdout), ran.stdout
    assert re.search(r"FAILED  few .*\n +/pose: 54 messages beside 60 golden ones, at most 5 apart\n", ran.stdout), ran.stdout
    assert re.search(r"FAILED  slow .*\n +/pose: \d\.\d{3} messages per second beside 50\.000, at most 60% apart\n", ran.stdout), ran.stdout
    (outputs,) = (world.folder / "results/near/outputs").glob("*.mcap")
    with open(outputs, "rb") as stream:
        times = [message.log_time for _, _, message in make_reader(stream).iter_messages()]
    rate = result(world, "near")["topics"]["/pose"]["rate"]
    assert rate["golden_hz"] == pytest.approx(50) and rate["found_hz"] == pytest.approx((len(times) - 1) / (times[-1] - times[0]) * 1e9)
    (note,) = [note for note in result(world, "near")["notes"] if note.startswith("/pose: ")]
    assert "54 messages beside 60 golden ones, at most 10% apart, 54 pairs compared; " in note, note


def test_a_detector_that_does_not_see_each_message_is_judged_by_counts(world, drive):  # noqa: F811
    folder = world.folder / "suite"
    folder.mkdir()
    case = {"bag": str(drive), "outputs": ["/filtered"], "golden": "golden", "settle": 1}
    step = {"step-by": ["/imu=/filtered"], "topics": ["/imu"]}
    suite = suite_of(world, {"all": {**case, "command": command(folder, "all"), "play": step}})
    regress(world, suite, code=4)
    regress(world, suite, "--update-golden")
    # It works on one message for as long as five take to come, and keeps one.
    busy = {**case, "command": command(folder, "busy", depth=1, delay_s=[0.1, 0.15]), "play": {"topics": ["/imu"]}}
    busy["tolerances"] = {"/filtered": {"orientation": "any", "angular_velocity": "any"}}
    counts = {name: {"counts": {"/filtered": limit}} for name, limit in {"counted": "95%", "exact": "1%"}.items()}
    counts["counted"]["rates"] = {"/filtered": "95%"}
    ran = regress(world, suite_of(world, {"each": busy, **{name: {**busy, **limits} for name, limits in counts.items()}}), code=4)
    assert "passed  counted" in ran.stdout, (ran.stdout, logs(world))
    assert re.search(rf"FAILED  each .*\n +/filtered: \d+ of {COUNT} messages missing\n", ran.stdout), ran.stdout
    assert re.search(rf"FAILED  exact .*\n +/filtered: \d+ messages beside {COUNT} golden ones, at most 1% apart\n", ran.stdout), ran.stdout
    compared = result(world, "counted")["topics"]["/filtered"]
    seen = messages_of(world.folder / "results/counted/outputs")["/filtered"]
    assert (compared["found"], compared["missing"], compared["extra"], compared["different"]) == (len(seen), COUNT - len(seen), 0, 0), compared


def test_limits_of_a_topic_without_golden_messages_fail(world):
    """Images of which none was compared are not similar images."""
    folder = world.folder / "suite"
    folder.mkdir()
    words = {"/word": [new("std_msgs/msg/String", data="go")] * 3}
    write(folder / "now", words)
    with Writer(folder / "golden", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        writer.add_connection("/camera", "sensor_msgs/msg/Image", typestore=STORE)
        connection = writer.add_connection("/word", "std_msgs/msg/String", typestore=STORE)
        for number, value in enumerate(words["/word"]):
            writer.write(connection, START + number * STEP_NANOS, bytes(STORE.serialize_cdr(value, value.__msgtype__)))
    play = f"{HOLDALL} play now --disable-keyboard-controls --wait-for-subscribers /word=1; exec sleep 100"
    case = {"command": play, "outputs": ["/camera", "/word"], "golden": "golden", "ready": {"topics": ["/word"]}, "images": {"/camera": {"ssim": 0.9}}}
    ran = regress(world, suite_of(world, {"none": case}), code=4)
    assert re.search("/camera (has limits, and no message|is not) in the golden bag", ran.stdout), ran.stdout
    assert (result(world, "none")["topics"]["/word"]["golden"], result(world, "none")["topics"]["/word"]["different"]) == (3, 0)


def test_software_of_several_nodes_is_started_and_ended_by_its_launcher(world, drive):  # noqa: F811
    """What `ros2 launch` does: a program that starts nodes, passes SIGINT on and waits for them."""
    folder = world.folder / "suite"
    folder.mkdir()
    lines = [command(folder, "first", output="/between"), command(folder, "second", input="/between")]
    launcher = "import signal, subprocess, sys\nnodes = [subprocess.Popen(line, shell=True) for line in sys.argv[1:]]\nsignal.signal(signal.SIGINT, lambda *_: None)\n"
    (folder / "launch.py").write_text(launcher + "for node in nodes: node.wait()\n")
    start = " ".join([shlex.quote(sys.executable), "launch.py", *map(shlex.quote, lines)])
    play = {"step-by": ["/imu=/filtered"], "pace": "listeners", "topics": ["/imu"]}
    case = {"bag": str(drive), "command": start, "outputs": ["/between", "/filtered"], "must": ["/filtered: orientation.x > 0"], "play": play}
    # The first node has to hear the second one, too, before the first message.
    case["ready"] = {"topics": ["/between", "/filtered"], "within": 30}
    ran = regress(world, suite_of(world, {"both": {**case, "settle": 1}}))
    assert "passed  both" in ran.stdout
    recorded = messages_of(world.folder / "results" / "both" / "outputs")
    assert [len(recorded[topic]) for topic in ("/between", "/filtered")] == [COUNT, COUNT]
    assert NODE.exists() and not any(NODES.name in line for line in running(folder)), running(folder)


def running(folder):
    """Command lines of processes that name a folder."""
    lines = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            lines.append(open(f"/proc/{process}/cmdline", "rb").read().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [line for line in lines if str(folder) in line]


@pytest.mark.skipif(not SERVER.exists(), reason="moto is not installed: scripts/setup.sh nodes")
def test_bags_of_cases_and_golden_bags_are_read_from_a_bucket(world, drive, bucket):  # noqa: F811
    world.env.update({name: value for name, value in bucket.env().items() if name.startswith("AWS_")})
    folder = world.folder / "suite"
    folder.mkdir()
    bucket.put_folder(drive, "drives/yard")
    play = {"step-by": ["/imu=/filtered"], "pace": "listeners", "topics": ["/imu"]}
    case = {"bag": "s3://fleet/drives/yard", "command": command(folder, "node"), "outputs": ["/filtered"], "golden": "golden", "play": play, "settle": 1}
    suite = suite_of(world, {"remote": case})
    regress(world, suite, code=4)
    regress(world, suite, "--update-golden")
    bucket.put_folder(folder / "golden", "golden/yard")
    suite = suite_of(world, {"remote": {**case, "golden": "s3://fleet/golden/yard"}})
    ran = regress(world, suite)
    assert "passed  remote" in ran.stdout
    assert (result(world, "remote")["topics"]["/filtered"]["golden"], result(world, "remote")["topics"]["/filtered"]["different"]) == (COUNT, 0)
    refused = regress(world, suite, "--update-golden", code=1)
    assert "golden bags in buckets are not replaced" in refused.stderr
    # Buckets are asked when a bag is opened.
    suite = suite_of(world, {"remote": {**case, "bag": "s3://fleet/drives/none"}})
    ran = regress(world, suite, code=1)
    assert "cannot open s3://fleet/drives/none: nothing has this name" in ran.stdout, ran.stdout


@pytest.mark.skipif(not os.environ.get("HOLDALL_ALL_TRANSPORTS"), reason="needs a build with zenoh")
@pytest.mark.parametrize("attachment", [None, "whole"], ids=["uncounted", "counted"])
def test_losses_that_a_transport_does_not_count_are_unknown_in_every_report(world, attachment):
    """A zenoh publisher without rmw_zenoh's attachment has no sequence numbers: nothing counted is not nothing lost."""
    folder = world.folder / "suite"
    folder.mkdir()
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    settings = {"mode": "peer", "connect/endpoints": [endpoint], "listen/endpoints": ["tcp/127.0.0.1:0"]}
    settings["connect/retry"] = {"period_init_ms": 50, "period_max_ms": 100, "period_increase_factor": 1.0}
    config = ";".join(f"{key}={json.dumps(value)}" for key, value in settings.items())
    world.env.update(RMW_IMPLEMENTATION="rmw_zenoh_cpp", ZENOH_CONFIG_OVERRIDE=config)
    string = {"type": "std_msgs/msg/String", "hash": STRING_HASH, "by": "plain"}
    requests = [
        {"domain": int(world.env["ROS_DOMAIN_ID"]), "mode": "peer", "listen": [endpoint]},
        {"do": "advertise", "topic": "/t", **string},
        {"do": "await_subscription", "topic": "/t"},
        {"do": "publish", "topic": "/t", "payloads": [cdr_string("a").hex()] * 3, "attachment": attachment},
    ]
    (folder / "requests").write_text("".join(f"{json.dumps(request)}\n" for request in requests))
    start = f"(cat requests; exec sleep 100) | {sys.executable} {NODES / 'zenoh_node.py'}"
    case = {"command": start, "outputs": ["/t"], "must": ["/t: data == 'a'"], "ready": {"topics": ["/t"], "within": 40}, "settle": 2}
    ran = regress(world, suite_of(world, {"one": case}))
    sentence = "whether messages of /t were lost on the way to the recording is unknown: their transport does not count them"
    tree = ElementTree.parse(world.folder / "results" / "junit.xml").getroot()
    notes = "\n".join(result(world, "one")["notes"])
    said = [notes, ran.stdout, tree.find(".//testcase").findtext("system-out") or "", (world.folder / "results" / "index.html").read_text()]
    assert [sentence in text for text in said] == [attachment is None] * 4, said
