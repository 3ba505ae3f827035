"""What a disk that is slower than the load costs: `holdall record`, as it is by default, writes to a device that the kernel slows down.

    python scripts/bench-slow-disk.py target/release/holdall --disk 40 --disk 10 --storage mcap --storage sqlite3

Needs root, loop devices and the limits of version 1 of control groups, and memory for what waits. A row: the disk in MB/s, messages of those sent, the
most memory, the most that the cache held and the memory at that moment divided by it, what a power cut would have cost. `tests/e2e/test_disks.py -k
slower_than_the_load` judges the same; `bench-slow-disk.yaml` has the same beside a double buffer, without a transport.
"""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

LIMIT = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
LOAD = """
rosbag2_performance_benchmarking_node:
  ros__parameters:
    publishers:
      publisher_groups: [load]
      wait_for_subscriptions: true
      load: {publishers_count: 1, topic_root: load, msg_type: "sensor_msgs::msg::Image", msg_size_bytes: 1048576, msg_count_each: %d, rate_hz: %d}
"""


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def watch(recorder, path, publisher):
    """The most that the cache held, and the resident memory then, ten times a second until what was published is written."""
    most = (0, 0)
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(str(path))
        replies = control.makefile()
        while True:
            has_ended = publisher.poll() is not None
            control.sendall(b'{"request": "status"}\n')
            waits = json.loads(replies.readline())["status"]["cache_bytes"]
            resident = int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{recorder.pid}/status").read_text()).group(1)) * 1024
            most = max(most, (waits, resident))
            if has_ended and waits == 0:
                return most
            time.sleep(0.1)


def record(program, folder, storage, messages, rate_hz):
    (folder / "load.yaml").write_text(LOAD % (messages, rate_hz))
    env = {**os.environ, "ROS_DOMAIN_ID": str(os.getpid() % 100 + 1)}
    command = [program, "record", "-a", "-s", storage, "-o", folder / "bag", "--control-socket", folder / "control"]
    recorder = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in recorder.stderr:
        if "Listening for topics" in line:
            break
    # Warnings never fill the pipe, which would stop the recorder.
    threading.Thread(target=recorder.stderr.read, daemon=True).start()
    load = [program, "bench", "publish", "--params-file", folder / "load.yaml"]
    publisher = subprocess.Popen(load, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    waits, resident = watch(recorder, folder / "control", publisher)
    assert publisher.returncode == 0
    recorder.send_signal(signal.SIGINT)
    said = recorder.stdout.read()
    _, code, used = os.wait4(recorder.pid, 0)
    recorder.returncode = os.waitstatus_to_exitcode(code)
    lost = re.search(r"would have taken ([\d.]+) s", said)
    about = json.loads(run(program, "info", "--json", folder / "bag"))
    return about["message_count"], used.ru_maxrss / 1000, waits / 1e6, resident / max(waits, 1), lost.group(1) if lost else "0", recorder.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--disk", type=int, action="append", help="MB/s")
    parser.add_argument("--storage", action="append")
    parser.add_argument("--seconds", type=int, default=12)
    parser.add_argument("--rate-hz", type=int, default=100, help="messages of 1 MiB a second")
    args = parser.parse_args()
    messages = args.seconds * args.rate_hz
    print("| disk, MB/s | storage | recorded | memory, MB | waiting, MB | memory ÷ waiting | a power cut would have cost, s | exit code |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        (image := Path(folder) / "disk").touch()
        os.truncate(image, messages * 1_100_000 + 200_000_000)
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
                        count, memory, waits, part, lost, code = record(args.program.absolute(), disk, storage, messages, args.rate_hz)
                    finally:
                        LIMIT.write_text(f"{number} 0")
                        run("umount", disk)
                    print(f"| {rate} | {storage} | {count} of {messages} | {memory:.0f} | {waits:.0f} | {part:.2f} | {lost} | {code} |", flush=True)
        finally:
            run("losetup", "-d", device)


if __name__ == "__main__":
    main()
