"""`holdall bench run` over real DDS: own publishers, real rclpy nodes, rivals' writers, and ROS 1 where it is installed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import HOLDALL, PYTHON
from mcap.records import Chunk, DataEnd
from mcap.stream_reader import StreamReader
from test_ros1 import ros1_is_here

EXPERIMENT = """
experiment: live
title: "small loads over DDS"
cases:
  - label: "ten topics"
    publishers:
      publisher_groups: [small]
      wait_for_subscriptions: true
      small: {publishers_count: 10, topic_root: small, msg_size_bytes: 1000, msg_count_each: 20, rate_hz: 50, qos: {qos_depth: 20}}
benchmarks:
  - {repeat_each: 1, no_transport: false, parameters: {recorder: [holdall, ros2_bag], publishers: [own, rclpy], max_cache_size: [10000000]}}
  - {repeat_each: 1, no_transport: false, parameters: {recorder: [double_buffered, discard], max_cache_size: [10000000]}}
  - {repeat_each: 1, no_transport: false, parameters: {recorder: [rosbag], max_cache_size: [10000000]}}
"""

OWN_TRANSPORTS = EXPERIMENT[: EXPERIMENT.index("benchmarks:")] + """benchmarks:
  - {repeat_each: 1, transport: zenoh, parameters: {recorder: [holdall, double_buffered], max_cache_size: [10000000]}}
  - {repeat_each: 1, transport: iceoryx2, parameters: {max_cache_size: [10000000]}}
"""


def test_each_recorder_gets_the_load_and_what_is_absent_is_named(world, tmp_path):
    (tmp_path / "live.yaml").write_text(EXPERIMENT)
    out = tmp_path / "out"
    flags = ["--python", sys.executable, "--limit-total", "16MB", "--json", "--out", out]
    done = subprocess.run(
        [HOLDALL, "bench", "run", tmp_path / "live.yaml", *flags], env=world.env, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    runs = {(r["setting"]["recorder"], r["setting"]["publishers"], r["transport"]): r for r in result["runs"]}
    for who in (("holdall", "own", "dds"), ("holdall", "rclpy", "dds"), ("double_buffered", "own", "dds"), ("discard", "own", "dds")):
        run = runs[who]
        assert (run["sent"], run["recorded"], run["lost"], run["unexplained"]) == (200, 200, {}, 0), who
        assert [t["recorded"] for t in run["topics"]] == [20] * 10
        assert {p["name"] for p in run["processes"]} == {"recorder", "publishers"}
        assert run["recorder_cpu_s"] > 0 and run["rss_max_bytes"] > 1 << 20 and run["offer"]["count"] == 200
    assert runs["holdall", "own", "dds"]["discovery"]["matched"] == 10
    skipped = {s["setting"]: s["reason"] for s in result["skipped"]}
    if ros1_is_here():
        assert runs["rosbag", "own", "dds"]["recorded"] == 200
    else:
        assert "ROS 1" in skipped["rosbag (ROS 1), mcap"]
    for setting, reason in skipped.items():
        assert "not installed" in reason or "not complete" in reason, (setting, reason)


# The text that rosbag2's authors printed, with its list of configuration files and no storage.
PRINTED = """
rosbag2_performance_benchmarking:
  benchmark_node:
    ros__parameters:
      benchmark:
        summary_result_file: "results.csv"
        db_root_folder: "rosbag2_performance_test_results"
        repeat_each: 2 # How many times to run each configurations
        no_transport: True # Whether to run storage-only or end-to-end (including transport) benchmark
        preserve_bags: False
        parameters: # Each combination of parameters in this section will be benchmarked
          max_cache_size: [100000000, 10000000]
          max_bag_size: [0]
          compression: ["", "zstd"]
          compression_queue_size: [1]
          compression_threads: [0]
          storage_config_file: ["", "storage_resilient.yaml"]
"""

PRODUCERS = """
rosbag2_performance_benchmarking_node:
    ros__parameters:
      publishers:
        publisher_groups: ["small"]
        wait_for_subscriptions: True
        small: {publishers_count: 2, topic_root: "small", msg_size_bytes: 1000, msg_count_each: 10, rate_hz: 100}
"""


def run_files(tmp_path, benchmark, *flags):
    (tmp_path / "bench.yaml").write_text(benchmark)
    (tmp_path / "producers.yaml").write_text(PRODUCERS)
    (tmp_path / "storage_resilient.yaml").write_text('write:\n  pragmas: ["journal_mode=WAL", "synchronous=NORMAL"]\n')
    words = [HOLDALL, "bench", "run", "--producers", tmp_path / "producers.yaml", "--benchmark", tmp_path / "bench.yaml", "--limit-total", "16MB"]
    return subprocess.run([*words, "--json", "--out", tmp_path / "out", *flags], capture_output=True, text=True, timeout=280)


SEEN = """
import rclpy, sys, time
rclpy.init()
node = rclpy.create_node("looks")
wanted, end = set(sys.argv[1:]), time.monotonic() + 60
while not wanted <= set(node.get_node_names()) and time.monotonic() < end:
    time.sleep(0.05)
print(sorted(wanted & set(node.get_node_names())))
"""


def test_a_producer_file_is_published_for_any_subscriber_by_several_nodes(world, tmp_path):
    load = PRODUCERS.replace("small: {", 'small: {msg_type: "std_msgs::msg::UInt8MultiArray", ').replace("msg_count_each: 10", "msg_count_each: 400")
    (tmp_path / "producers.yaml").write_text(load)
    topics = [f"/rosbag2_performance_benchmarking_node/small_{number}" for number in (1, 2)]
    node = "rosbag2_performance_benchmarking_node"
    looks = world.program([PYTHON["jazzy"], "-c", SEEN, node, f"{node}_2"])
    publishers = world.holdall("bench", "publish", "--params-file", tmp_path / "producers.yaml", "--nodes", "2", "--json")
    # They wait for their subscriptions.
    listener = world.listener(*({"topic": topic, "type": "std_msgs/msg/UInt8MultiArray"} for topic in topics), expect=dict.fromkeys(topics, 400))
    code, said = publishers.wait()
    assert code == 0, said
    received = listener.wait_for("done")["received"]
    assert [received[topic]["count"] for topic in topics] == [400, 400]
    report = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    assert (report["sent"], report["refused"], report["lateness"]["count"]) == ([400, 400], 0, 800)
    assert looks.wait() == (0, str([node, f"{node}_2"]))
    refused = world.run("bench", "publish", "--params-file", tmp_path / "none.yaml")
    assert refused.returncode == 2 and "none.yaml" in refused.stderr and refused.stderr.count("\n") == 1


def test_the_authors_files_run_whole_and_a_setting_that_does_not_fit_is_named(tmp_path):
    done = run_files(tmp_path, PRINTED)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert len(result["runs"]) == 16 and not result["skipped"]
    assert {(run["setting"]["storage_id"], run["recorded"]) for run in result["runs"]} == {("sqlite3", 20)}
    # Pragmas are nothing for MCAP: named once for each setting, and the others run.
    both = PRINTED.replace("parameters: #", "recorder_cpu_affinity: [900]\n        parameters: #").replace("max_bag_size", 'storage_id: ["mcap", "sqlite3"]\n          max_bag_size')
    other = tmp_path / "other"
    other.mkdir()
    done = run_files(other, both)
    assert done.returncode == 2 and "900" in done.stderr and "--no-affinity" in done.stderr, done.stderr
    shutil.rmtree(other / "out")
    done = run_files(other, both, "--no-affinity")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert len(result["runs"]) == 24 and "--no-affinity" in result["command"]
    assert {skipped["setting"] for skipped in result["skipped"]} == {"holdall, mcap"}
    assert "write" in result["skipped"][0]["reason"]


def test_a_scale_at_which_outages_never_come_is_refused(tmp_path):
    done = subprocess.run([HOLDALL, "bench", "run", "D4b", "--scale", "0.02", "--out", tmp_path / "out"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "0.79 or more for D4b" in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()
    # 60 runs of 70 s and what is around them.
    listed = {one["id"]: one for one in json.loads(subprocess.run([HOLDALL, "bench", "list", "--json"], capture_output=True, text=True, check=True).stdout)}
    assert 60 * 70 < listed["D4b"]["seconds"] < 60 * 80 and listed["A1"]["seconds"] > 144 * 40, listed
    people = subprocess.run([HOLDALL, "bench", "list", "D8"], capture_output=True, text=True, check=True).stdout
    assert "holdall bench run D8 --data DIR" in people


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
@pytest.mark.parametrize("flags", [[], ["--root-buffers"]])
def test_root_measures_as_an_ordinary_user_until_it_says_otherwise(world, tmp_path, flags):
    experiment = EXPERIMENT[: EXPERIMENT.index("benchmarks:")] + """benchmarks:
  - {repeat_each: 1, no_transport: false, parameters: {recorder: [holdall], max_cache_size: [10000000]}}
"""
    (tmp_path / "live.yaml").write_text(experiment)
    words = [HOLDALL, "bench", "run", tmp_path / "live.yaml", "--limit-total", "16MB", "--json", "--out", tmp_path / "out", *flags]
    running = subprocess.Popen(words, env=world.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    most, limit = 0, int(Path("/proc/sys/net/core/rmem_max").read_text())
    while running.poll() is None:
        # By the kernel: it counts twice what was asked for.
        lines = subprocess.run(["ss", "-uanpmO"], capture_output=True, text=True, check=True).stdout.splitlines()
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(running.pid)], capture_output=True, text=True).stdout.split()
        ours = [line for line in lines if any(f"pid={child}," in line for child in children) and '"holdall"' in line]
        most = max([most, *(int(line.split(",rb")[1].split(",")[0]) // 2 for line in ours)])
        time.sleep(0.02)
    result = json.loads(running.communicate(timeout=60)[0])
    assert result["runs"][0]["recorded"] == 200
    assert (most > limit) == bool(flags), (most, limit)
    assert ("root" in result["machine"]["socket_buffers"]) == bool(flags)


ROS2 = """
experiment: named
title: "a recorder of others, by its prefix"
cases:
  - label: "two topics"
    publishers:
      publisher_groups: [small]
      wait_for_subscriptions: true
      small: {publishers_count: 2, topic_root: small, msg_size_bytes: 1000, msg_count_each: 20, rate_hz: 50, qos: {qos_depth: 20}}
benchmarks:
  - {repeat_each: 1, no_transport: false, producers_cpu_affinity: "0", recorder_cpu_affinity: "0", parameters: {recorder: [ros2_bag], storage_id: [mcap, sqlite3], max_cache_size: [10000000]}}
"""


THROTTLE = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
GROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = GROUPS / "cgroup.controllers"
HAS_THROTTLE = THROTTLE.exists() or (CONTROLLERS.exists() and {"io", "memory"} <= set(CONTROLLERS.read_text().split()))
needs_throttle = pytest.mark.skipif(os.geteuid() != 0 or not HAS_THROTTLE, reason="no root or no control groups that throttle writes")


def throttled():
    """Devices that the kernel holds to a rate: of version 1 in its root group, of version 2 in groups of the program."""
    if THROTTLE.exists():
        return {line.split()[0] for line in THROTTLE.read_text().splitlines()}
    return {line.split()[0] for group in GROUPS.glob("holdall-bench-*/io.max") for line in group.read_text().splitlines()}


@needs_throttle
def test_a_disk_is_held_to_its_limit_and_given_back(tmp_path):
    """What is written without direct I/O is held, too; the clock of this test says how long it took."""
    experiment = EXPERIMENT.replace("small loads over DDS", "a slow disk").replace("msg_size_bytes: 1000, msg_count_each: 20", "msg_size_bytes: 500000, msg_count_each: 20")
    experiment = experiment[: experiment.index("benchmarks:")] + """benchmarks:
  - {repeat_each: 1, no_transport: true, parameters: {recorder: [holdall, synchronous], storage_id: [sqlite3], max_cache_size: [200000000]}}
"""
    (tmp_path / "slow.yaml").write_text(experiment)
    out = tmp_path / "out"
    words = [HOLDALL, "bench", "run", tmp_path / "slow.yaml", "--disk-limit", "20MB/s", "--json", "--out", out]
    begin = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, timeout=280)
    took = time.monotonic() - begin
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert "--disk-limit 20000000B/s" in result["command"]
    assert [run["recorded"] for run in result["runs"]] == [200, 200]
    for run in result["runs"]:
        assert run["limits"]["disk_limit_bytes_per_s"] == 20e6
        assert 10e6 < run["limits"]["direct_write_bytes_per_s"] < 26e6
        # 100 MB of each recorder, the page cache included.
        assert run["durable_bytes_per_s"] < 30e6
    assert took > 2 * 100e6 / 30e6
    assert not [path for path in out.rglob("*") if "limited-disk" in path.name or path.name == "bag"]
    nothing_is_left(tmp_path, {})


@needs_throttle
@pytest.mark.parametrize("kind", ["write --size 1MB --total 20MB --storage mcap", "storage --sizes 1MiB --batches 10MiB --configs mcap_default --total 10MB"])
def test_kinds_with_flags_run_on_a_limited_disk_too(tmp_path, kind):
    words = [HOLDALL, "bench", "run", *kind.split(), "--disk-limit", "20MB/s", "--out", tmp_path / "out"]
    begin = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin > 10e6 / 30e6
    assert not [path for path in (tmp_path / "out").iterdir() if "limited-disk" in path.name]
    nothing_is_left(tmp_path, {})


def loops():
    """Loop devices with their files."""
    listed = subprocess.run(["losetup", "--list", "--noheadings", "--output", "MAJ:MIN,BACK-FILE"], capture_output=True, text=True, check=True).stdout
    return dict(line.split(None, 1) for line in listed.splitlines())


def nothing_is_left(folder, limited):
    """No device of this folder, no mount, and no throttle of a device that it had."""
    end = time.monotonic() + 30
    while (left := [file for file in loops().values() if str(folder) in file]) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left and str(folder) not in Path("/proc/mounts").read_text()
    assert not throttled() & set(limited), (throttled(), limited)


@needs_throttle
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_limited_disk_is_given_back_when_a_signal_ends_the_run(tmp_path, number):
    out = tmp_path / "out"
    words = [HOLDALL, "bench", "run", "storage", "--sizes", "1MiB", "--total", "2GB", "--disk-limit", "20MB/s", "--out", out]
    running = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    end = time.monotonic() + 60
    while not (mine := {number: file for number, file in loops().items() if str(tmp_path) in file}) or set(mine) - throttled():
        assert time.monotonic() < end and running.poll() is None
        time.sleep(0.05)
    running.send_signal(number)
    assert running.wait(60) != 0
    nothing_is_left(tmp_path, mine)
    assert not [path for path in out.rglob("*") if "limited-disk" in path.name]


def test_ros2_is_found_by_its_prefix_and_called_as_rosbag2s_own(world, tmp_path):
    # Stands for an installation that is not sourced: `ros2 bag record` with rosbag2's flags, which works only after its setup.
    prefix = tmp_path / "prefix"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "setup.bash").write_text("export SOURCED=yes\n")
    ros2 = prefix / "bin" / "ros2"
    ros2.write_text(
        f'#!/bin/bash\n[ "$SOURCED" = yes ] && [ "$1 $2" = "bag record" ] || exit 9\nshift 2\n'
        f'grep Cpus_allowed_list /proc/self/status > "{tmp_path}/cpus"\nexec "{HOLDALL}" record "$@"\n'
    )
    ros2.chmod(0o755)
    (tmp_path / "named.yaml").write_text(ROS2)
    flags = ["--ros2", prefix, "--limit-total", "16MB", "--json", "--out", tmp_path / "out"]
    done = subprocess.run(
        [HOLDALL, "bench", "run", tmp_path / "named.yaml", *flags], env=world.env, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["skipped"] == []
    assert [(r["setting"]["recorder"], r["setting"]["storage_id"], r["recorded"], r["sent"]) for r in result["runs"]] == [
        ("ros2_bag", "mcap", 40, 40), ("ros2_bag", "sqlite3", 40, 40)
    ]
    for run in result["runs"]:
        (recorder,) = [p for p in run["processes"] if p["name"] == "recorder"]
        assert recorder["cpu_s"] > 0 and recorder["samples"]
        assert run["discovery"]["matched"] == 2
    # On the cores that the file names; programs inherit it.
    assert (tmp_path / "cpus").read_text().split() == ["Cpus_allowed_list:", "0"]


def test_a_rival_that_leaves_no_bag_is_named_and_the_others_run(world, tmp_path):
    prefix = tmp_path / "prefix"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "setup.bash").write_text("")
    ros2 = prefix / "bin" / "ros2"
    # It writes its bag to another path than the one that it gets.
    ros2.write_text(
        '#!/bin/bash\nshift 2\nargs=()\nwhile [ $# -gt 0 ]; do\n  if [ "$1" = -o ]; then args+=(-o "$2.elsewhere"); shift 2; else args+=("$1"); shift; fi\ndone\n'
        f'exec "{HOLDALL}" record "${{args[@]}}"\n'
    )
    ros2.chmod(0o755)
    rows = "  - {repeat_each: 1, no_transport: false, parameters: {recorder: [ros2_bag, holdall], max_cache_size: [10000000]}}\n"
    (tmp_path / "live.yaml").write_text(EXPERIMENT[: EXPERIMENT.index("  - {repeat_each")] + rows)
    flags = ["--ros2", prefix, "--limit-total", "16MB", "--json", "--out", tmp_path / "out"]
    done = subprocess.run([HOLDALL, "bench", "run", tmp_path / "live.yaml", *flags], env=world.env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [(run["setting"]["recorder"], run["recorded"]) for run in result["runs"]] == [("holdall", 200)]
    ((setting, reason),) = [(skipped["setting"], skipped["reason"]) for skipped in result["skipped"]]
    assert "ros2" in setting and "bag" in reason, result["skipped"]


def test_splits_are_counted_in_the_bag_and_writers_of_one_file_have_none(world, tmp_path):
    rows = "  - {repeat_each: 1, no_transport: false, preserve_bags: true, parameters: {recorder: [holdall, double_buffered], max_cache_size: [10000000], max_bag_size: [50000]}}\n"
    (tmp_path / "live.yaml").write_text(EXPERIMENT[: EXPERIMENT.index("  - {repeat_each")] + rows)
    flags = ["--limit-total", "16MB", "--json", "--out", tmp_path / "out"]
    done = subprocess.run([HOLDALL, "bench", "run", tmp_path / "live.yaml", *flags], env=world.env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    ours, rival = json.loads(done.stdout)["runs"]
    files = [path for path in (tmp_path / "out").rglob("*.mcap") if "double_buffered" not in str(path)]
    assert ours["splits"] == len(files) - 1 >= 2
    assert (rival["splits"], rival["setting"]["max_bag_size_bytes"]) == (0, None)


def test_rivals_store_with_the_options_of_the_storage(world, tmp_path):
    """MCAP without checksums from both, and each promise of SQLite by its journal: byte 18 of a database is 2 for a write-ahead log."""
    rows = """  - {repeat_each: 1, no_transport: false, preserve_bags: true, parameters: {recorder: [holdall, double_buffered], storage_config_file: ['{"noChunkCRC":true,"enableDataCRC":false}'], max_cache_size: [10000000]}}
  - {repeat_each: 1, no_transport: true, preserve_bags: true, parameters: {recorder: [double_buffered], storage_id: [sqlite3], storage_preset_profile: [resilient, durable], max_cache_size: [10000000]}}
"""
    (tmp_path / "live.yaml").write_text(EXPERIMENT[: EXPERIMENT.index("  - {repeat_each")] + rows)
    flags = ["--limit-total", "16MB", "--json", "--out", tmp_path / "out"]
    done = subprocess.run([HOLDALL, "bench", "run", tmp_path / "live.yaml", *flags], env=world.env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [(run["recorded"], run["setting"]["storage_config_file"]) for run in runs] == [(200, '{"noChunkCRC":true,"enableDataCRC":false}')] * 2 + [(200, None)] * 2
    files = sorted((tmp_path / "out").rglob("*.mcap"))
    assert len(files) == 2
    for path in files:
        with path.open("rb") as stream:
            records = list(StreamReader(stream, emit_chunks=True).records)
        assert {record.uncompressed_crc for record in records if isinstance(record, Chunk)} == {0}, path
        assert {record.data_section_crc for record in records if isinstance(record, DataEnd)} == {0}, path
    journals = {name: path.read_bytes()[18] for path in (tmp_path / "out").rglob("*.db3") for name in ("resilient", "durable") if name in str(path)}
    assert journals == {"resilient": 2, "durable": 1}


REAL_ROS2 = sorted(Path("/opt/ros").glob("*/bin/ros2"))


@pytest.mark.skipif(not REAL_ROS2, reason="no ros2 below /opt/ros")
def test_the_real_ros2_bag_records_the_load(world, tmp_path):
    """Its command line is another project's: that it accepts what it is called with shows only here."""
    (tmp_path / "named.yaml").write_text(ROS2)
    flags = ["--ros2", REAL_ROS2[-1].parents[1], "--limit-total", "16MB", "--json", "--out", tmp_path / "out"]
    done = subprocess.run(
        [HOLDALL, "bench", "run", tmp_path / "named.yaml", *flags], env=world.env, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["skipped"] == []
    assert [(r["setting"]["storage_id"], r["recorded"], r["sent"]) for r in result["runs"]] == [("mcap", 40, 40), ("sqlite3", 40, 40)]


def test_over_zenoh_and_shared_memory_publishers_and_recorder_meet_by_themselves(world, tmp_path):
    """No router is running, and no other sessions are disturbed."""
    (tmp_path / "own.yaml").write_text(OWN_TRANSPORTS)
    done = subprocess.run(
        [HOLDALL, "bench", "run", tmp_path / "own.yaml", "--limit-total", "16MB", "--json", "--out", tmp_path / "out"],
        env={k: v for k, v in world.env.items() if not k.startswith("ZENOH_")},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    lacking = {s["reason"].split()[0] for s in result["skipped"] if "this build of holdall has no" in s["reason"]}
    assert len(lacking) == 0 or not os.environ.get("HOLDALL_ALL_TRANSPORTS"), result["skipped"]
    runs = {(r["transport"], r["setting"]["recorder"]): r for r in result["runs"]}
    expected = {("zenoh", "holdall"), ("zenoh", "double_buffered"), ("iceoryx2", "holdall")}
    assert set(runs) == {one for one in expected if one[0] not in lacking}
    for who, run in runs.items():
        assert (run["sent"], run["recorded"], run["unexplained"]) == (200, 200, 0), (who, run["lost"])
        assert {t["name"] for p in run["processes"] for t in p["threads"]}, who


LONG = EXPERIMENT[: EXPERIMENT.index("benchmarks:")].replace("msg_count_each: 20", "msg_count_each: 50000") + """benchmarks:
  - {repeat_each: 1, no_transport: false, parameters: {max_cache_size: [10000000]}}
"""


def test_an_interrupted_run_ends_what_it_started_removes_its_bag_and_is_resumed(world, tmp_path):
    file = tmp_path / "live.yaml"
    file.write_text(LONG)
    command = [HOLDALL, "bench", "run", file, "--limit-total", "16MB", "--out", tmp_path / "out"]
    run = subprocess.Popen(command, env=world.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def text_of(path):
        """The contents of a file of /proc; empty when its process or thread has ended since it was listed."""
        try:
            return path.read_text()
        except (FileNotFoundError, ProcessLookupError):
            return ""

    def children():
        return {int(pid) for task in Path(f"/proc/{run.pid}/task").iterdir() for pid in text_of(task / "children").split()}

    def bags():
        return list((tmp_path / "out" / "live").glob("case_*/*/bag"))

    deadline = time.monotonic() + 60
    # The recorder and the publishers; the probes of transports come and go before.
    while not (bags() and len(children()) >= 2):
        assert time.monotonic() < deadline and run.poll() is None
        time.sleep(0.02)
    started = children()
    run.send_signal(signal.SIGTERM)
    assert run.wait(60) == -signal.SIGTERM
    assert bags() == []
    # Its state is after its name; Z is a process that has ended and whose parent has not waited for it yet.
    gone = lambda pid: text_of(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()[:1] in ([], ["Z"])
    while not all(gone(pid) for pid in started):
        assert time.monotonic() < deadline + 30, started
        time.sleep(0.02)
    file.write_text(LONG.replace("msg_count_each: 50000", "msg_count_each: 20"))
    again = subprocess.run([*command, "--resume", "--json"], env=world.env, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr
    (only,) = json.loads(again.stdout)["runs"]
    assert (only["recorded"], bags()) == (200, [])
