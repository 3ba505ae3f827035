"""The main job of holdall on real input: record real ROS 2 nodes, look at the bag, play it back to a real node.

Started by `make demo`. Everything stays on this machine (own ROS domain, discovery limited to localhost) and in demo-out/.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOLDALL = os.environ["HOLDALL_BIN"]
OUT = HERE.parent / "demo-out"
NODES = HERE.parent / "tests" / "nodes"
RECORD_S = 8
LISTENER_S = 30
ENV = {**os.environ, "ROS_DOMAIN_ID": str(60 + os.getpid() % 40), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
ENV.pop("ROS_LOCALHOST_ONLY", None)


def say(text):
    print(f"\n\033[1m==> {text}\033[0m", flush=True)


def start_node(script, plan):
    """Starts a real rclpy node; its plan goes in by a pipe, its events come out by another."""
    node = subprocess.Popen(
        [sys.executable, str(NODES / script), "-"], env=ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    node.stdin.write(json.dumps(plan))
    node.stdin.close()
    return node


def wait_for(node, event):
    for line in node.stdout:
        if line.startswith("{") and json.loads(line)["event"] == event:
            return json.loads(line)
    raise SystemExit(f"demo: a node ended before it was {event}")


def run(*arguments):
    """Runs holdall in the foreground, so that its own output is seen; returns its exit code."""
    print("$ holdall " + " ".join(arguments), flush=True)
    return subprocess.run([HOLDALL, *arguments], env=ENV, stdin=subprocess.DEVNULL).returncode


def record(bag, plan):
    robot = start_node("talker.py", plan)
    wait_for(robot, "ready")
    print(f"$ holdall record --all --output {bag}", flush=True)
    recorder = subprocess.Popen([HOLDALL, "record", "--all", "--output", str(bag)], env=ENV, stdin=subprocess.DEVNULL)
    wait_for(robot, "matched")
    time.sleep(RECORD_S)
    robot.send_signal(signal.SIGINT)
    sent = wait_for(robot, "done")["sent"]
    robot.wait()
    recorder.send_signal(signal.SIGINT)
    return sent, recorder.wait()


def play(bag, plan, recorded):
    # What is judged is the player: a subscription that keeps all drops nothing itself, however busy the machine is.
    keep_all = {"history": "keep_all"}
    topics = [{"topic": p["topic"], "type": p["type"], "qos": {**p.get("qos", {}), **keep_all}} for p in plan["publishers"]]
    expect = {p["topic"]: recorded.get(p["topic"], 0) for p in plan["publishers"]}
    listener = start_node("listener.py", {"subscriptions": topics, "expect": expect})
    wait_for(listener, "ready")
    code = run("play", str(bag), "--wait-for-all-acked", "20000")
    try:
        # It ends by itself when it has taken everything that it has received.
        listener.wait(LISTENER_S)
    except subprocess.TimeoutExpired:
        listener.send_signal(signal.SIGINT)
    received = wait_for(listener, "done")["received"]
    listener.wait()
    return received, code


def main():
    plan = json.loads((HERE / "robot.json").read_text())
    bag = OUT / "bag"
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()

    say(f"recording a real rclpy node for {RECORD_S} s: text, IMU, laser scan, 1920x1080 camera, a latched topic")
    sent, code = record(bag, plan)
    if code not in (0, 3):
        raise SystemExit(f"demo: the recorder failed with exit code {code}")

    say("what is in the bag")
    run("info", str(bag))
    info = json.loads(subprocess.run([HOLDALL, "info", "--json", str(bag)], env=ENV, capture_output=True, text=True, check=True).stdout)
    recorded = {t["topic_metadata"]["name"]: t["message_count"] for t in info["topics_with_message_count"]}

    say("playing it back to a real rclpy listener")
    received, play_code = play(bag, plan, recorded)

    say("what was sent, recorded, and received again")
    print(f"{'topic':<22}{'sent':>8}{'recorded':>10}{'played back':>13}{'same bytes':>12}")
    good = play_code == 0
    for topic, streams in sent.items():
        count = sum(s["count"] for s in streams)
        again = received[topic]
        same = again["count"] == count and again["md5"] == streams[0]["md5"]
        good &= recorded.get(topic) == count and same
        print(f"{topic:<22}{count:>8}{recorded.get(topic, 0):>10}{again['count']:>13}{'yes' if same else 'no':>12}")
    print("\nEvery message that was sent is in the bag and came back." if good else "\nSomething is missing: see the lines above.")
    print("\nYour turn: start your own ROS 2 nodes and run\n    " + os.path.relpath(HOLDALL) + " record -a")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
