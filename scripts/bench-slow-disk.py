"""What a disk that is slower than the load costs: `holdall record`, as it is by default, writes to a device that the kernel slows down.

    python scripts/bench-slow-disk.py target/release/holdall --disk 40 --disk 10 --storage mcap --storage sqlite3

Needs root, loop devices and the limits of version 1 of control groups, and memory for what waits. A row: the disk in MB/s, messages of those sent, the
most memory, what a power cut would have cost. `tests/e2e/test_disks.py -k slower_than_the_load` judges the same.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

LIMIT = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
LOAD = """
rosbag2_performance_benchmarking_node:
  ros__parameters:
    publishers:
      publisher_groups: [load]
      wait_for_subscriptions: true
      load: {publishers_count: 1, topic_root: load, msg_type: "sensor_msgs::msg::Image", msg_size_bytes: 1048576, msg_count_each: %d, rate_hz: 100}
"""


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def record(program, folder, storage, messages):
    (folder / "load.yaml").write_text(LOAD % messages)
    env = {**os.environ, "ROS_DOMAIN_ID": str(os.getpid() % 100 + 1)}
    recorder = subprocess.Popen([program, "record", "-a", "-s", storage, "-o", folder / "bag"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in recorder.stderr:
        if "Listening for topics" in line:
            break
    subprocess.run([program, "bench", "publish", "--params-file", folder / "load.yaml"], env=env, check=True, capture_output=True)
    time.sleep(1)
    recorder.send_signal(signal.SIGINT)
    recorder.stderr.read()
    said = recorder.stdout.read()
    _, code, used = os.wait4(recorder.pid, 0)
    recorder.returncode = os.waitstatus_to_exitcode(code)
    lost = re.search(r"would have taken ([\d.]+) s", said)
    about = json.loads(run(program, "info", "--json", folder / "bag"))
    return about["message_count"], used.ru_maxrss / 1000, lost.group(1) if lost else "0", recorder.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--disk", type=int, action="append", help="MB/s")
    parser.add_argument("--storage", action="append")
    parser.add_argument("--seconds", type=int, default=12)
    args = parser.parse_args()
    print("| disk, MB/s | storage | recorded | memory, MB | a power cut would have cost, s | exit code |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        (image := Path(folder) / "disk").touch()
        os.truncate(image, args.seconds * 110_000_000 + 200_000_000)
        (disk := Path(folder) / "mounted").mkdir()
        device = run("losetup", "--show", "-f", image)
        number = f"{os.major(os.stat(device).st_rdev)}:{os.minor(os.stat(device).st_rdev)}"
        try:
            for rate in args.disk or [40]:
                for storage in args.storage or ["mcap"]:
                    run("mkfs.ext4", "-q", "-F", device)
                    run("mount", device, disk)
                    try:
                        LIMIT.write_text(f"{number} {rate * 1_000_000}")
                        count, memory, lost, code = record(args.program.absolute(), disk, storage, args.seconds * 100)
                    finally:
                        LIMIT.write_text(f"{number} 0")
                        run("umount", disk)
                    print(f"| {rate} | {storage} | {count} of {args.seconds * 100} | {memory:.0f} | {lost} | {code} |", flush=True)
        finally:
            run("losetup", "-d", device)


if __name__ == "__main__":
    main()
