"""What `holdall record --video` costs: processor time of the recorder and its encoders for each second of images, and what it made of them.

    python scripts/bench-record-video.py target/release/holdall --seconds 20 --width 1920 --height 1080 --video '/camera=h264'

Needs rclpy and the package imageio-ffmpeg, or an ffmpeg in the PATH. The load of the computer is printed, because it changes the result.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TALKER = Path(__file__).resolve().parent.parent / "tests/nodes/talker.py"


def environment(folder):
    """With an ffmpeg, and a domain of its own."""
    found = {**os.environ, "ROS_DOMAIN_ID": str(os.getpid() % 100 + 1)}
    try:
        import imageio_ffmpeg
    except ImportError:
        return found
    (folder / "ffmpeg").symlink_to(imageio_ffmpeg.get_ffmpeg_exe())
    return {**found, "PATH": f"{folder}:{found['PATH']}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--width", type=int, default=1920)
    parser.add_argument("--height", type=int, default=1080)
    parser.add_argument("--rate", type=int, default=30)
    parser.add_argument("--video", default="/camera=h264")
    parser.add_argument("--more", nargs="*", default=[], help="more arguments of record")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        env = environment(Path(folder))
        bag = Path(folder) / "bag"
        video = ["--video", args.video] if args.video else []
        recorder = subprocess.Popen([args.program, "record", "-a", "-o", bag, *video, *args.more], env=env, stderr=subprocess.PIPE, text=True)
        for line in recorder.stderr:
            if "Listening for topics" in line:
                break
        plan = {"topic": "/camera", "type": "sensor_msgs/msg/Image", "count": args.seconds * args.rate, "rate_hz": args.rate, "width": args.width, "height": args.height}
        node = subprocess.run([sys.executable, TALKER, "-"], input=json.dumps({"node": "camera", "publishers": [plan], "wait_for_subscriptions": 1}), env=env, text=True, capture_output=True)
        recorder.terminate()
        recorder.stderr.read()
        # With all programs that it has started and waited for.
        _, code, used = os.wait4(recorder.pid, 0)
        recorder.returncode = os.waitstatus_to_exitcode(code)
        printed = subprocess.run([args.program, "audit", "--json", bag], env=env, text=True, capture_output=True).stdout
        about = json.loads(printed)
        recoded = (about.get("recoded") or [{}])[0]
        print(json.dumps({
            "exit": recorder.returncode, "talker": node.returncode, "cpu_s_per_s": round((used.ru_utime + used.ru_stime) / args.seconds, 3),
            "recorded": about["topics"]["/camera"]["recorded"], "of": plan["count"], "as_video": recoded.get("messages"), "kept": recoded.get("kept"),
            "bytes_before": recoded.get("bytes_before"), "bytes_after": recoded.get("bytes_after"), "encoder": recoded.get("encoder"),
            "load": os.getloadavg(), "processors": os.cpu_count(),
        }, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
