"""Kills real recordings with SIGKILL at random moments and compares what remains with the publishers' own log.

By hand:  python tests/e2e/kill_recording.py --kills 200
A seed that is printed gives the same moments again with --seed. test_kill.py runs a few kills in CI.

One talker publishes all the time and logs every message at the moment it sends it. Recordings run side by side, each is killed at a random
moment. Then, for each bag: `holdall info` opens it within a second of processor time; for MCAP a foreign reader (pip mcap, checksums on) reads it up to where it
was cut off; after `holdall repair` nothing of the log is missing but what was in flight in the last moments; and after `holdall repair` foreign readers (pip mcap with the
index, SQLite's own integrity check, pip rosbags) find it whole, with at least the same messages. Exit code 0 when all of that holds.
"""

import argparse
import io
import os
import random
import resource
import shutil
import signal
import sqlite3
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from conftest import World, text_of  # noqa: E402

STRING = "std_msgs/msg/String"
TOPICS = ("/small", "/large")
WINDOW_S = 2.0
# A message that was sent has to be received before it can survive; and large ones have to be written.
ON_THEIR_WAY_S = 0.1
REOPEN_MAX_S = 1.0
# Time between two measurements of the probe for the machine's delays.
PROBE_S = 0.1


def read_log(path):
    """Message number -> monotonic time of sending."""
    data = Path(path).read_bytes()
    return dict(struct.iter_unpack("<Qd", data[: len(data) // 16 * 16]))


def number_of(payload):
    return int(text_of(payload).split("x", 1)[0])


def used_by_children_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def files_of(bag):
    files = [*Path(bag).glob("*.mcap"), *Path(bag).glob("*.db3")]
    return sorted(files, key=lambda path: int(path.stem.rsplit("_", 1)[1]))


def numbers_in_torn(bag):
    """Topic -> message numbers in file order, read by pip mcap, checksums on, from front to end until a file that was cut off ends."""
    from mcap.exceptions import McapError
    from mcap.records import Channel, Message
    from mcap.stream_reader import StreamReader

    numbers = {topic: [] for topic in TOPICS}
    for path in files_of(bag):
        # After the written bytes there is reserved space: zeros, each nine of which the reader would take for
        # a record.
        stream = io.BytesIO(path.read_bytes().rstrip(b"\0"))
        channels = {}
        try:
            for record in StreamReader(stream, validate_crcs=True).records:
                if isinstance(record, Channel):
                    channels[record.id] = record.topic
                elif isinstance(record, Message):
                    numbers[channels[record.channel_id]].append(number_of(record.data))
        except (McapError, struct.error, EOFError, ValueError):
            # The end of what was written.
            pass
    return numbers


def numbers_in_repaired(bag):
    """The same for a bag that must be whole, by readers that accept no damage: pip mcap by the index, or SQLite after its own check."""
    from mcap.reader import make_reader

    numbers = {topic: [] for topic in TOPICS}
    import yaml

    told = yaml.safe_load((Path(bag) / "metadata.yaml").read_text())["rosbag2_bagfile_information"]
    # The file that was created ahead for the next split, and that holds nothing yet, is not among these.
    for path in (Path(bag) / name for name in told["relative_file_paths"]):
        if path.suffix == ".mcap":
            with open(path, "rb") as stream:
                for _, channel, message in make_reader(stream, validate_crcs=True).iter_messages():
                    numbers[channel.topic].append(number_of(message.data))
            continue
        assert not path.with_name(path.name + "-wal").exists() and not path.with_name(path.name + "-journal").exists()
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        query = "SELECT name, data FROM messages JOIN topics ON topics.id = topic_id ORDER BY messages.id"
        for topic, data in connection.execute(query):
            numbers[topic].append(number_of(data))
        connection.close()
    return numbers


def count_by_rosbags(bag):
    from rosbags.highlevel import AnyReader
    from rosbags.typesys import Stores, get_typestore

    with AnyReader([bag], default_typestore=get_typestore(Stores.ROS2_JAZZY)) as reader:
        return sum(1 for _ in reader.messages())


class Probe(threading.Thread):
    """Reports how much the machine was delayed: the longest time of a sleep and of a durable write. A recorder cannot be in time where
    these were not; on a quiet machine it is some milliseconds."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.path = folder / "probe"
        self.took = []
        self.is_over = threading.Event()
        self.start()

    def run(self):
        with open(self.path, "wb", buffering=0) as file:
            while not self.is_over.is_set():
                start = time.monotonic()
                self.is_over.wait(PROBE_S)
                os.pwrite(file.fileno(), os.urandom(4096), 0)
                os.fdatasync(file.fileno())
                self.took.append((start, time.monotonic() - start - PROBE_S))

    def behind_s(self, since, until):
        """The longest of some delays, including one that has not ended yet."""
        took = list(self.took)
        last = took[-1][0] + PROBE_S + took[-1][1] if took else since
        return max([until - last - PROBE_S, 0.0, *(late for start, late in took if since <= start + PROBE_S + late and start <= until)])


class Kill:
    """One recording that will be killed."""

    def __init__(self, world, number, after_s, options):
        self.bag = world.folder / f"bag{number}"
        self.world = world
        self.number = number
        self.after_s = after_s
        self.options = options
        self.is_mcap = "sqlite3" not in options
        self.window_s = float(options[options.index("--max-loss-window") + 1]) if "--max-loss-window" in options else WINDOW_S
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

    def judge(self, log, behind_s):
        """One sentence for each failed check, the loss in seconds, and how long opening took."""
        faults = []
        # Processor time, which does not depend on what else the machine does. Programs in the background are
        # not waited for in between.
        start = used_by_children_s()
        told = self.world.run("info", "--json", self.bag)
        opened_s = used_by_children_s() - start
        # Killed before the first file had its header: there is nothing to open.
        if told.returncode != 0 and self.killed - self.begun > self.window_s:
            return [f"info: {told.stderr}"], 0.0, opened_s
        if opened_s > REOPEN_MAX_S:
            faults.append(f"opening took {opened_s:.2f} s")
        torn = numbers_in_torn(self.bag) if self.is_mcap else None
        repaired = self.world.run("repair", self.bag)
        # 3: a chunk in flight to the disk is torn, and the repair reports it; the talker's log decides
        # whether that lost too much.
        if repaired.returncode not in (0, 3):
            if any(torn.values() if torn else []) or self.killed - self.begun > self.window_s:
                faults.append(f"repair: {repaired.stderr}")
            there = torn or {topic: [] for topic in TOPICS}
        else:
            try:
                there = numbers_in_repaired(self.bag)
                by_rosbags = count_by_rosbags(self.bag)
            except Exception as error:
                return [*faults, f"after repair a foreign reader says: {error!r}"], 0.0, opened_s
            counts = {topic: len(numbers) for topic, numbers in there.items()}
            if by_rosbags != sum(counts.values()):
                faults.append(f"pip rosbags reads {by_rosbags} messages, others {counts}")
            if torn and any(there[topic][: len(torn[topic])] != torn[topic] for topic in TOPICS):
                faults.append(f"repair lost messages: {counts} of {({topic: len(numbers) for topic, numbers in torn.items()})}")
            audit = self.world.run("audit", "--json", self.bag)
            if audit.returncode not in (0, 3):
                faults.append(f"audit: {audit.stdout[-500:]} {audit.stderr}")
        lost_s = max(self.lost_s(topic, there[topic], log[topic], faults) for topic in TOPICS)
        if lost_s > ON_THEIR_WAY_S + 2 * behind_s:
            late = f"; the machine was up to {behind_s:.2f} s behind"
            faults.append(f"the messages of the last {lost_s:.2f} s are lost: they were received and should have survived{late}")
        return faults, lost_s, opened_s

    def lost_s(self, topic, there, log, faults):
        """How much of the log is missing before the kill, in seconds."""
        if not there:
            # Nothing reached the disk: possible when the kill came before the end of the first window.
            return self.killed - min((t for t in log.values() if t > self.begun), default=self.killed)
        if there != list(range(there[0], there[0] + len(there))):
            faults.append(f"{topic}: {len(there)} messages from {there[0]} to {there[-1]} are not one run")
        # The talker sends in one order, so what is missing before the kill is what came after the last
        # message.
        return self.killed - min((t for n, t in log.items() if n > there[-1] and t < self.killed), default=self.killed)


def options_of(rng):
    """The arguments of a recording: mostly none, now and then splits, compression, another window, another storage."""
    return rng.choice(
        [
            [],
            [],
            ["--max-loss-window", "0.5"],
            ["-b", "2000000"],
            ["-d", "1"],
            ["--storage-preset-profile", "zstd_fast"],
            ["--storage-preset-profile", "fastwrite"],
            ["-s", "sqlite3"],
            ["-s", "sqlite3"],
            ["-s", "sqlite3", "-b", "4000000"],
            ["--max-loss-window", "0"],
        ]
    )


def run(world, kills, seed, side_by_side, longest_s=4.0, tell=print):
    """Kills that many recordings; returns the faults, one sentence each."""
    rng = random.Random(seed)
    logs = {"/small": world.folder / "small.log", "/large": world.folder / "large.log"}
    talker = world.talker(
        {"topic": "/small", "type": STRING, "count": None, "rate_hz": 200, "text": "{n}", "hash": False, "log": str(logs["/small"])},
        {"topic": "/large", "type": STRING, "count": None, "rate_hz": 20, "text": "{n}", "size": 100_000, "hash": False, "log": str(logs["/large"])},
        wait_for_subscriptions=0,
    )
    talker.wait_for("matched")
    probe = Probe(world.folder)
    faults, worst_lost_s, worst_open_s, opened_s = [], 0.0, 0.0, []
    waiting = list(range(kills))
    running = []
    while waiting or running:
        while waiting and len(running) < side_by_side:
            running.append(Kill(world, waiting.pop(0), rng.uniform(0.0, longest_s), options_of(rng)))
        due = [one for one in running if one.is_due()]
        if not due:
            time.sleep(0.005)
            continue
        for one in due:
            running.remove(one)
            one.kill()
            log = {topic: read_log(path) for topic, path in logs.items()}
            found, lost_s, open_s = one.judge(log, probe.behind_s(one.begun, one.killed))
            worst_lost_s, worst_open_s = max(worst_lost_s, lost_s), max(worst_open_s, open_s)
            opened_s.append(open_s)
            for fault in found:
                faults.append(f"kill {one.number} ({' '.join(one.options)}) after {one.after_s:.2f} s: {fault}")
                tell(faults[-1])
            shutil.rmtree(one.bag, ignore_errors=True)
    probe.is_over.set()
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
    # When it is ended from outside, it ends the processes that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        faults = run(world, arguments.kills, arguments.seed, arguments.side_by_side)
    finally:
        world.close()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
