"""What `holdall record --video` costs: processor time of the recorder and its encoders for each second of images, and when these are in the file.

    python scripts/bench-record-video.py target/release/holdall --seconds 20 --width 1920 --height 1080 --video '/camera=h264' [--scene world]

The node sends one image again and again, or, with `--scene world`, 2 s of the moving world of `bench-small.py` forwards and backwards. A message is in the
file when a reader would find it there: its chunk and the index of that are whole. Needs rclpy and the package imageio-ffmpeg, or an ffmpeg in the PATH. The
load of the computer is printed, because it changes the result.
"""

import argparse
import array
import importlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

TALKER = Path(__file__).resolve().parent.parent / "tests/nodes/talker.py"
MESSAGE_INDEX = 7


def environment(folder):
    """With an ffmpeg, and a domain of its own."""
    found = {**os.environ, "ROS_DOMAIN_ID": str(os.getpid() % 100 + 1)}
    try:
        import imageio_ffmpeg
    except ImportError:
        return found
    (folder / "ffmpeg").symlink_to(imageio_ffmpeg.get_ffmpeg_exe())
    return {**found, "PATH": f"{folder}:{found['PATH']}"}


def send_world(width, height, rate, seconds, pictures=60):
    """Publishes the moving world."""
    import rclpy
    from rclpy.serialization import serialize_message
    from sensor_msgs.msg import Image

    small = importlib.import_module("bench-small")
    world = small.World(width, height)
    message = Image(height=height, width=width, encoding="rgb8", step=3 * width)
    message.header.frame_id = "camera"
    sent = []
    for number in range(pictures):
        message.data = array.array("B", world.picture(number / rate).tobytes())
        sent.append(serialize_message(message))
    rclpy.init()
    publisher = rclpy.create_node("camera").create_publisher(Image, "/camera", 10)
    print("ready", flush=True)
    while not publisher.get_subscription_count():
        time.sleep(0.01)
    begin = time.monotonic()
    for number in range(seconds * rate):
        turn, place = divmod(number, pictures)
        publisher.publish(sent[pictures - 1 - place if turn % 2 else place])
        time.sleep(max(0, begin + (number + 1) / rate - time.monotonic()))
    publisher.wait_for_all_acked(rclpy.duration.Duration(seconds=10))


class Watch(threading.Thread):
    """Looks into a growing MCAP file, and notes how long after its log time each message was there."""

    def __init__(self, bag):
        super().__init__()
        self.bag, self.latencies, self.ended = bag, [], threading.Event()

    def run(self):
        while not (found := list(self.bag.glob("*.mcap"))) and not self.ended.wait(0.01):
            pass
        with open(found[0], "rb", buffering=0) as file:
            at = 8
            while not self.ended.wait(0.01):
                at = self.look(file, at)

    def look(self, file, at):
        """Reads the complete records and returns the offset of the next one."""
        while True:
            head = os.pread(file.fileno(), 9, at)
            if len(head) < 9 or not head[0]:
                return at
            opcode, length = struct.unpack("<BQ", head)
            following = os.pread(file.fileno(), 1, at + 9 + length)
            if not following or not following[0]:
                return at
            if opcode == MESSAGE_INDEX:
                body, now = os.pread(file.fileno(), length, at + 9), time.time_ns()
                times = [struct.unpack_from("<Q", body, place)[0] for place in range(6, length, 16)]
                self.latencies += [(now - one) / 1e9 for one in times]
            at += 9 + length


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--width", type=int, default=1920)
    parser.add_argument("--height", type=int, default=1080)
    parser.add_argument("--rate", type=int, default=30)
    parser.add_argument("--video", default="/camera=h264")
    parser.add_argument("--scene", choices=["still", "world"], default="still")
    parser.add_argument("--more", nargs="*", default=[], help="more arguments of record")
    args = parser.parse_args()
    if args.program == "send-world":
        return send_world(args.width, args.height, args.rate, args.seconds)
    with tempfile.TemporaryDirectory() as folder:
        env = environment(Path(folder))
        bag, count = Path(folder) / "bag", args.seconds * args.rate
        node = None
        if args.scene == "world":
            same = [f"--{name}={getattr(args, name)}" for name in ("width", "height", "rate", "seconds")]
            node = subprocess.Popen([sys.executable, __file__, "send-world", *same], env=env, stdout=subprocess.PIPE, text=True)
            assert node.stdout.readline() == "ready\n"
        video = ["--video", args.video] if args.video else []
        recorder = subprocess.Popen([args.program, "record", "/camera", "-o", bag, *video, *args.more], env=env, stderr=subprocess.PIPE, text=True)
        for line in recorder.stderr:
            if "Listening for topics" in line:
                break
        watch = Watch(bag)
        watch.start()
        if node:
            node.wait()
        else:
            plan = {"topic": "/camera", "type": "sensor_msgs/msg/Image", "count": count, "rate_hz": args.rate, "width": args.width, "height": args.height, "hash": False}
            node = subprocess.run([sys.executable, TALKER, "-"], input=json.dumps({"node": "camera", "publishers": [plan], "wait_for_subscriptions": 1}), env=env, text=True, capture_output=True)
        # What was sent is written before the end: the rest would be there sooner than its time.
        time.sleep(3)
        watch.ended.set()
        watch.join()
        recorder.terminate()
        recorder.stderr.read()
        # With all programs that it has started and waited for.
        _, code, used = os.wait4(recorder.pid, 0)
        recorder.returncode = os.waitstatus_to_exitcode(code)
        printed = subprocess.run([args.program, "audit", "--json", bag], env=env, text=True, capture_output=True).stdout
        about = json.loads(printed)
        recoded = (about.get("recoded") or [{}])[0]
        like, late = recoded.get("likeness") or {}, sorted(watch.latencies)
        print(json.dumps({
            "exit": recorder.returncode, "talker": node.returncode, "cpu_s_per_s": round((used.ru_utime + used.ru_stime) / args.seconds, 3),
            "recorded": about["topics"]["/camera"]["recorded"], "of": count, "as_video": recoded.get("messages"), "kept": recoded.get("kept"),
            "bytes_before": recoded.get("bytes_before"), "bytes_after": recoded.get("bytes_after"), "encoder": recoded.get("encoder"),
            "ssim": round(like["ssim_sum"] / like["samples"], 3) if like else None,
            "seen_in_file": len(late), "latency_s": {name: round(late[int((len(late) - 1) * part)], 2) for name, part in (("p50", 0.5), ("max", 1))} if late else None,
            "load": os.getloadavg(), "processors": os.cpu_count(),
        }, indent=1))  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
