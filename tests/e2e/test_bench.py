"""`holdall bench run` over real DDS: own publishers, real rclpy nodes, rivals' writers, and ROS 1 where it is installed."""

import json
import subprocess
import sys

from conftest import HOLDALL
from test_ros1 import ros1_is_here

EXPERIMENT = """
experiment: live
title: "small loads over DDS"
cases:
  - label: "ten topics"
    publishers:
      publisher_groups: [small]
      wait_for_subscriptions: true
      small: {publishers_count: 10, topic_root: small, msg_size_bytes: 1000, msg_count_each: 20, rate_hz: 50}
benchmarks:
  - {repeat_each: 1, no_transport: false, parameters: {recorder: [holdall, ros2_bag], publishers: [own, rclpy], max_cache_size: [10000000]}}
  - {repeat_each: 1, no_transport: false, parameters: {recorder: [double_buffered], max_cache_size: [10000000]}}
  - {repeat_each: 1, no_transport: false, parameters: {recorder: [rosbag], max_cache_size: [10000000]}}
"""


def test_each_recorder_gets_the_load_and_whoever_is_absent_is_named(world, tmp_path):
    (tmp_path / "live.yaml").write_text(EXPERIMENT)
    out = tmp_path / "out"
    flags = ["--python", sys.executable, "--limit-total", "16MB", "--json", "--out", out]
    told = subprocess.run(
        [HOLDALL, "bench", "run", tmp_path / "live.yaml", *flags], env=world.env, capture_output=True, text=True, timeout=280
    )
    assert told.returncode == 0, told.stderr
    result = json.loads(told.stdout)
    runs = {(r["setting"]["recorder"], r["setting"]["publishers"], r["transport"]): r for r in result["runs"]}
    for who in (("holdall", "own", "dds"), ("holdall", "rclpy", "dds"), ("double_buffered", "own", "dds")):
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
