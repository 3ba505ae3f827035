"""What a contract costs while a recording runs: processor time of the recorder with and without, in turn.

    python scripts/bench-contract.py target/release/holdall --repeat 4

200 topics of 2 kB at 100 Hz beside a camera of 500 MB/s, for ten seconds, into memory: 6 GB of it must be free. The load has no stamps, so rules about
these stay undecided; they are read all the same.
"""

import argparse
import os
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

LOAD = """
rosbag2_performance_benchmarking_node:
  ros__parameters:
    publishers:
      publisher_groups: [small, camera]
      wait_for_subscriptions: true
      small: {publishers_count: 200, topic_root: small, msg_type: "sensor_msgs::msg::Image", msg_size_bytes: 2000, msg_count_each: 1000, rate_hz: 100}
      camera: {publishers_count: 1, topic_root: camera, msg_type: "sensor_msgs::msg::Image", msg_size_bytes: 6220800, msg_count_each: 800, rate_hz: 80}
"""
RATES = """version: 1
name: rates and stamps
topics:
  "/*/small*": {rate: {min: 10, window: 5s}, gap: 5s, latency: {max: 500ms}, stamps: monotonic}
"""
IMAGES = RATES + """  "/*/camera*": {rate: {min: 8, window: 5s}, stamps: monotonic, image: {black: 98%, saturated: 98%}, frozen: 3}
"""


def record(program, folder, contract):
    env = {**os.environ, "ROS_DOMAIN_ID": str(os.getpid() % 100 + 1)}
    (folder / "contract.yaml").write_text(contract)
    more = ["--contract", folder / "contract.yaml"] if contract else []
    (folder / "load.yaml").write_text(LOAD)
    shutil.rmtree(folder / "bag", ignore_errors=True)
    recorder = subprocess.Popen([program, "record", "-a", "-o", folder / "bag", *more], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
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
    return used.ru_utime + used.ru_stime, " ".join(re.findall(r"^(?:lost|contract)\b.*", said, re.MULTILINE))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--repeat", type=int, default=4)
    args = parser.parse_args()
    found = {"none": [], "rates": [], "images": []}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for _ in range(args.repeat):
            for name, contract in zip(found, ["", RATES, IMAGES], strict=True):
                used, said = record(args.program.absolute(), Path(folder), contract)
                found[name].append(used)
                print(f"{name}: {used:.2f} s of processor time; {said}", flush=True)
    for name, all_used in found.items():
        print(f"{name}: median {statistics.median(all_used):.2f} s, {min(all_used):.2f} to {max(all_used):.2f}")


if __name__ == "__main__":
    main()
