"""Kills real recordings with SIGKILL at random moments and compares what is left with the publishers' own log.

By hand:  python tests/e2e/kill_recording.py --kills 200
A seed that is printed gives the same moments again with --seed. test_kill.py runs a few kills in CI.

One talker publishes all the time and logs every message at the moment it sends it. Recordings run side by side, each is killed at a random
moment. Then, for each bag: `holdall info` opens it within a second, a foreign reader (pip mcap, checksums on) reads it up to where it was cut
off, and what is missing of the log lies within the loss window before the kill. Exit code 0 when all of that holds.
"""

import argparse
import os
import random
import shutil
import signal
import struct
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from conftest import World, text_of  # noqa: E402

STRING = "std_msgs/msg/String"
WINDOW_S = 2.0
# A process that is killed takes with it what no write had brought to the system: what came in the last window.
REOPEN_MAX_S = 1.0
# The clock of the talker's log runs before the message is handed over, and the machine may be busy.
SLACK_S = 0.5


def read_log(path):
    """Message number -> monotonic time of sending."""
    data = Path(path).read_bytes()
    return dict(struct.iter_unpack("<Qd", data[: len(data) // 16 * 16]))


def numbers_in(bag, topic):
    """Message numbers in file order, read by pip mcap, checksums on, from front to end until a file that was cut off ends."""
    from mcap.exceptions import McapError
    from mcap.records import Channel, Message
    from mcap.stream_reader import StreamReader

    numbers = []
    for path in sorted(Path(bag).glob("*.mcap"), key=lambda p: int(p.stem.rsplit("_", 1)[1])):
        with open(path, "rb") as stream:
            channels = {}
            try:
                for record in StreamReader(stream, validate_crcs=True).records:
                    if isinstance(record, Channel):
                        channels[record.id] = record.topic
                    elif isinstance(record, Message) and channels.get(record.channel_id) == topic:
                        numbers.append(int(text_of(record.data).split("x", 1)[0]))
            except (McapError, struct.error, EOFError, ValueError):
                # The end of what was written.
                pass
    return numbers


class Kill:
    """One recording that will be killed."""

    def __init__(self, world, number, after_s, options):
        self.bag = world.folder / f"bag{number}"
        self.world = world
        self.number = number
        self.after_s = after_s
        self.options = options
        self.recorder = world.holdall("record", "-o", self.bag, "--topics", "/small", "/large", *options)
        self.recorder.wait_until_says("/large")
        self.recorder.wait_until_says("/small")
        self.begun = time.monotonic()

    def is_due(self):
        return time.monotonic() >= self.begun + self.after_s

    def kill(self):
        self.recorder.process.send_signal(signal.SIGKILL)
        self.killed = time.monotonic()
        self.recorder.process.wait()

    def judge(self, log):
        """One sentence for each thing that does not hold, and how much was lost in seconds and how long opening took."""
        faults = []
        start = time.monotonic()
        told = self.world.run("info", "--json", self.bag)
        opened_s = time.monotonic() - start
        if told.returncode != 0:
            return [f"info: {told.stderr}"], 0.0, opened_s
        if opened_s > REOPEN_MAX_S:
            faults.append(f"opening took {opened_s:.2f} s")
        lost_s = 0.0
        for topic in ("/small", "/large"):
            there = numbers_in(self.bag, topic)
            if not there:
                # Nothing reached the disk: that may be when it was killed before the first window was over.
                first_sent = min((t for n, t in log[topic].items() if t > self.begun), default=self.killed)
                lost_s = max(lost_s, self.killed - first_sent)
                continue
            if there != list(range(there[0], there[0] + len(there))):
                faults.append(f"{topic}: {len(there)} messages from {there[0]} to {there[-1]} are not one run")
            # The talker sends in one order, so what is missing before the kill is what came behind the last message.
            missing = [t for n, t in log[topic].items() if n > there[-1] and t < self.killed]
            if missing:
                lost_s = max(lost_s, self.killed - min(missing))
        if lost_s > WINDOW_S + SLACK_S:
            faults.append(f"{lost_s:.2f} s are lost, more than the window of {WINDOW_S} s")
        return faults, lost_s, opened_s


def options_of(rng):
    """What a recording is asked for: mostly nothing, now and then splits, compression, another window."""
    return rng.choice([[], [], ["-b", "2000000"], ["-d", "1"], ["--storage-preset-profile", "zstd_fast"], ["--storage-preset-profile", "fastwrite"]])


def run(world, kills, seed, side_by_side, tell=print):
    """Kills that many recordings; the faults, one sentence each."""
    rng = random.Random(seed)
    logs = {"/small": world.folder / "small.log", "/large": world.folder / "large.log"}
    talker = world.talker(
        {"topic": "/small", "type": STRING, "count": None, "rate_hz": 200, "text": "{n}", "hash": False, "log": str(logs["/small"])},
        {"topic": "/large", "type": STRING, "count": None, "rate_hz": 20, "text": "{n}", "size": 100_000, "hash": False, "log": str(logs["/large"])},
        wait_for_subscriptions=0,
    )
    talker.wait_for("matched")
    faults, worst_lost_s, worst_open_s = [], 0.0, 0.0
    waiting = list(range(kills))
    running = []
    while waiting or running:
        while waiting and len(running) < side_by_side:
            running.append(Kill(world, waiting.pop(0), rng.uniform(0.0, 6.0), options_of(rng)))
        due = [one for one in running if one.is_due()]
        if not due:
            time.sleep(0.005)
            continue
        for one in due:
            running.remove(one)
            one.kill()
            found, lost_s, open_s = one.judge({topic: read_log(path) for topic, path in logs.items()})
            worst_lost_s, worst_open_s = max(worst_lost_s, lost_s), max(worst_open_s, open_s)
            for fault in found:
                faults.append(f"kill {one.number} ({' '.join(one.options)}) after {one.after_s:.2f} s: {fault}")
                tell(faults[-1])
            shutil.rmtree(one.bag)
    talker.interrupt()
    tell(f"kills: {kills}, faults: {len(faults)}, at most {worst_lost_s:.2f} s lost, opened in at most {worst_open_s:.2f} s")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--side-by-side", type=int, default=4)
    arguments = parser.parse_args()
    print(f"seed: {arguments.seed}")
    folder = Path(tempfile.mkdtemp(prefix="holdall-kill-"))
    world = World(folder)
    try:
        faults = run(world, arguments.kills, arguments.seed, arguments.side_by_side)
    finally:
        world.close()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
