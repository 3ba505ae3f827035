"""Kills real recordings at random moments and compares what remains with the publishers' own log.

By hand:  python tests/e2e/kill_recording.py --kills 200
          python tests/e2e/kill_recording.py --kills 40 --flat-out     (1 KiB as fast as a node of rclpy sends)
          python tests/e2e/kill_recording.py --kills 60 --storages leveldb --large-bytes 400000
          python tests/e2e/kill_recording.py --kills 200 --lose-files     (and a closed file of each is gone or damaged)
A seed that is printed gives the same moments again with --seed. test_kill.py runs a few kills in CI.

One talker publishes all the time and logs every message at the moment it sends it. Recordings run side by side, each is killed at a random
moment: by SIGKILL, by SIGABRT, or (as root, where there are control groups) by the kernel because its memory is used up. Then, for each bag: `holdall info` opens it within a second of processor time; for MCAP a foreign reader (pip mcap, checksums on) reads it up to where it
was cut off; after `holdall repair` nothing of the log is missing but what was in flight in the last moments; and after `holdall repair` foreign readers (pip mcap with the
index, SQLite's own integrity check, pip rosbags) find it whole, with at least the same messages. Exit code 0 when all of that holds.
"""

import argparse
import collections
import io
import json
import os
import random
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from conftest import HOLDALL, World, text_of  # noqa: E402

STRING = "std_msgs/msg/String"
TOPICS = ("/small", "/large")
STORAGES = ("mcap", "sqlite3", "leveldb")
# A cause of death, with how often it is chosen.
CAUSES = {"SIGKILL": 6, "SIGABRT": 2, "memory": 2}
WINDOW_S = 2.0
# A message that was sent has to be received before it can survive; and large ones have to be written.
ON_THEIR_WAY_S = 0.1
REOPEN_MAX_S = 1.0
# Until a verb has read a bag, on a machine whose processors are busy with others.
PATIENCE_S = 600
# Time between two measurements of the probe for the machine's delays.
PROBE_S = 0.1


def read_log(path):
    """Message number -> monotonic time of sending."""
    data = Path(path).read_bytes()
    return dict(struct.iter_unpack("<Qd", data[: len(data) // 16 * 16]))


def number_of(payload):
    return int(text_of(payload).split("x", 1)[0])


def usage_of(command, env):
    """Runs a program; its exit code, standard error and `os.wait4`'s usage. Its own usage only: of all children together, one of an
    earlier test that is waited for at this moment would be counted, too."""
    with tempfile.TemporaryFile("w+") as error:
        process = subprocess.Popen([*map(str, command)], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=error)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        error.seek(0)
        return process.returncode, error.read(), usage


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


class MemoryGroup:
    """A control group for one process, whose memory is used up on request."""

    ROOTS = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"), ("/sys/fs/cgroup", "memory.max", "memory.current"))

    def __init__(self, name):
        self.path = None
        for root, limit, usage in self.ROOTS:
            path = Path(root) / f"holdall-kill-{os.getpid()}-{name}"
            try:
                path.mkdir()
                self.path, self.limit, self.usage = path, path / limit, path / usage
                self.limit.write_text(str(4 << 30))
                return
            except OSError:
                self.remove()

    def prefix(self, *command):
        return ["sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh", *map(str, command)] if self.path else [*map(str, command)]

    def use_up(self, process, within_s=3.0):
        """Leaves ever less memory until the kernel kills the process; False when it does not."""
        if not self.path:
            return False
        end = time.monotonic() + within_s
        left = int(self.usage.read_text())
        while time.monotonic() < end and process.poll() is None:
            left -= 1 << 20
            try:
                self.limit.write_text(str(max(left, 1 << 20)))
            except OSError:
                # There is nothing to take back: the next page that it asks for is one too many.
                left += 1 << 20
            time.sleep(0.002)
        return process.poll() is not None

    def remove(self):
        if self.path and self.path.is_dir():
            self.path.rmdir()
        self.path = None


class Kill:
    """One recording that will be killed."""

    def __init__(self, world, number, after_s, options, cause):
        self.bag = world.folder / f"bag{number}"
        self.world = world
        self.number = number
        self.after_s = after_s
        self.options = options
        self.cause = cause
        self.storage = options[options.index("-s") + 1] if "-s" in options else "mcap"
        self.window_s = float(options[options.index("--max-loss-window") + 1]) if "--max-loss-window" in options else WINDOW_S
        self.group = MemoryGroup(number) if cause == "memory" else None
        arguments = ["record", "-o", self.bag, "--topics", *TOPICS, *options]
        program = [HOLDALL, *arguments]
        self.recorder = world.program(self.group.prefix(*program) if self.group else [*map(str, program)])
        for topic in TOPICS:
            self.recorder.wait_until_says(topic)
        self.begun = time.monotonic()

    def is_due(self):
        return time.monotonic() >= self.begun + self.after_s

    def kill(self):
        process = self.recorder.process
        # Without memory it hardly runs: what was sent from here on it need not have received.
        self.killed = time.monotonic()
        if self.cause == "memory" and not self.group.use_up(process):
            self.cause = "SIGKILL, as memory did not run out"
        if process.poll() is None:
            process.send_signal(signal.SIGABRT if self.cause == "SIGABRT" else signal.SIGKILL)
        process.wait()
        if self.group:
            self.group.remove()

    def judge(self, log, behind_s):
        """What came of it: see `Outcome`."""
        outcome = Outcome(self)
        faults = outcome.faults
        # Processor time, which hardly depends on what else the machine does.
        code, error, usage = usage_of([HOLDALL, "info", "--json", self.bag], self.world.env)
        outcome.opened_s = usage.ru_utime + usage.ru_stime
        # Killed before the first file had its header: there is nothing to open.
        if code != 0 and self.killed - self.begun > self.window_s:
            faults.append(f"info: {error}")
            return outcome
        if outcome.opened_s > REOPEN_MAX_S:
            sizes = {path.name: path.stat().st_size for path in sorted(Path(self.bag).iterdir()) if path.is_file()}
            parts = f"user {usage.ru_utime:.2f}, system {usage.ru_stime:.2f}, page faults {usage.ru_minflt} + {usage.ru_majflt}"
            outcome.slow = f"bag{self.number}: opening took {outcome.opened_s:.2f} s of processor time ({parts}); {sizes}"
        torn = numbers_in_torn(self.bag) if self.storage == "mcap" else None
        # The bag and the memory stay as they are.
        copy = self.bag.with_name(f"{self.bag.name}-copy")
        copied = self.world.run("repair", self.bag, "-o", copy)
        repaired = self.world.run("repair", self.bag)
        # 3: a chunk in flight to the disk is torn, and the repair reports it; the talker's log decides
        # whether that lost too much.
        if repaired.returncode not in (0, 3):
            if any(torn.values() if torn else []) or self.killed - self.begun > self.window_s:
                faults.append(f"repair: {repaired.stderr}")
            return outcome
        try:
            there = self.numbers_in_repaired(faults)
        except Exception as error:
            faults.append(f"after repair a foreign reader says: {error!r}")
            return outcome
        in_copy = self.world.run("info", "--json", copy)
        in_bag = self.world.run("info", "--json", self.bag)
        if copied.returncode != repaired.returncode or in_copy.returncode != 0:
            faults.append(f"repair into a copy: {copied.stdout} {copied.stderr} {in_copy.stderr}")
        elif json.loads(in_copy.stdout)["message_count"] != json.loads(in_bag.stdout)["message_count"]:
            faults.append(f"repair into a copy: {in_copy.stdout} {in_bag.stdout}")
        shutil.rmtree(copy, ignore_errors=True)
        if torn and any(set(torn[topic]) - set(there[topic]) for topic in TOPICS):
            faults.append(f"repair lost messages: {counts_of(there)} of {counts_of(torn)}")
        audit = self.world.run("audit", "--json", self.bag)
        outcome.audit = audit.returncode
        if audit.returncode not in (0, 3):
            faults.append(f"audit: {audit.stdout[-500:]} {audit.stderr}")
            return outcome
        if audit.returncode == 0 and repaired.returncode != 0:
            faults.append(f"nothing is lost, and repair ends with {repaired.returncode}: {repaired.stdout}")
        outcome.is_compared = True
        account = json.loads(audit.stdout)
        for topic in TOPICS:
            outcome.compare(topic, sorted(there[topic]), log[topic], account["lost"]["by_topic"].get(topic, {}))
        if outcome.lost_s > ON_THEIR_WAY_S + 2 * behind_s:
            late = f"; the machine was up to {behind_s:.2f} s behind"
            faults.append(f"the messages of the last {outcome.lost_s:.2f} s are lost: they were received and should have survived{late}")
        return outcome

    def judge_lost(self, rng):
        """Loses a closed file after the kill: what that takes from the bag is in the account, before and after a repair, and for good. The truth
        is a copy of the bag that was repaired before. `None` where there was nothing to lose."""
        outcome = Outcome(self)
        files = sorted((path for path in self.bag.glob(f"{self.bag.name}_*") if path.suffix != ".yaml"), key=lambda path: int(path.stem.rsplit("_", 1)[1]))
        if len(files) < 2:
            return None
        whole = self.bag.with_name(f"{self.bag.name}-copy")
        assert self.world.run("repair", self.bag, "-o", whole, timeout=PATIENCE_S).returncode in (0, 3)
        before = self.account_of(whole)
        lost = rng.choice(files[:-1])
        how = "gone" if lost.is_dir() else rng.choice(["gone", "moved", "head", "emptied"])
        if lost.is_dir():
            shutil.rmtree(lost)
        elif how == "gone":
            lost.unlink()
        elif how == "moved":
            lost.rename(self.world.folder / f"{self.number}-{lost.name}")
        else:
            content = lost.read_bytes()
            lost.write_bytes(b"" if how == "emptied" else b"\xa5" * min(4096, len(content)) + content[4096:])
        steps = [("not repaired", None), ("repaired", ["repair", self.bag])]
        if how in ("gone", "moved"):
            steps += [("repaired twice", ["repair", self.bag]), ("reindexed", ["reindex", self.bag])]
        for step, command in steps:
            done = self.world.run(*command, timeout=PATIENCE_S) if command else None
            after = self.account_of(self.bag)
            outcome.is_compared = outcome.is_compared or after["recorded"] < before["recorded"]
            if after["recorded"] + after["lost"]["total"] != before["recorded"] + before["lost"]["total"] or after["faults"]:
                outcome.faults.append(f"{lost.name} {how}, {step}: {after['recorded']} recorded, {after['lost']}, {after['faults']}; before: {before['recorded']}, {before['lost']}; {done}")
        outcome.recorded, outcome.received_and_missing = after["recorded"], before["recorded"] - after["recorded"]
        shutil.rmtree(whole)
        return outcome

    def account_of(self, bag):
        """The account by `audit`, where `recorded` is counted here."""
        audit = self.world.run("audit", "--json", bag, timeout=PATIENCE_S)
        assert audit.stdout, (audit, sorted(path.name for path in Path(bag).iterdir()))
        account = json.loads(audit.stdout)
        lines = self.world.run("cat", "--json", bag, timeout=PATIENCE_S).stdout.splitlines()
        account["recorded"] = sum(line.startswith("{") for line in lines)
        return account

    def numbers_in_repaired(self, faults):
        if self.storage != "leveldb":
            there = numbers_in_repaired(self.bag)
            by_rosbags = count_by_rosbags(self.bag)
            if by_rosbags != sum(counts_of(there).values()):
                faults.append(f"pip rosbags reads {by_rosbags} messages, others {counts_of(there)}")
            return there
        # No foreign reader of it is at hand.
        converted = self.bag.with_name(f"{self.bag.name}-converted")
        told = self.world.run("convert", self.bag, "-o", converted, "-s", "mcap")
        assert told.returncode == 0, told.stderr
        there = numbers_in_repaired(converted)
        shutil.rmtree(converted)
        return there


def counts_of(numbers):
    return {topic: len(of_topic) for topic, of_topic in numbers.items()}


class Outcome:
    """What a killed recording came to."""

    def __init__(self, kill):
        self.kill = kill
        self.faults = []
        self.slow = None
        self.opened_s = 0.0
        self.lost_s = 0.0
        self.audit = None
        self.is_compared = False
        # In the bag; received by the recorder and not in the bag, by its own account; never received, by its own account.
        self.recorded = self.received_and_missing = self.not_received = 0

    def compare(self, topic, there, log, lost):
        """Compares a topic's messages with what the talker sent, and with what the account says is missing."""
        kill = self.kill
        self.recorded += len(there)
        self.received_and_missing += lost.get("storage", 0)
        self.not_received += lost.get("transport", 0)
        if not there:
            self.lost_s = max(self.lost_s, kill.killed - min((t for t in log.values() if t > kill.begun), default=kill.killed))
            return
        if len(set(there)) != len(there):
            self.faults.append(f"{topic}: {len(there) - len(set(there))} messages are there twice")
        holes = there[-1] - there[0] + 1 - len(set(there))
        # What is missing after the last one that is there is not a hole.
        if holes > sum(lost.values()):
            self.faults.append(f"{topic}: {holes} messages between {there[0]} and {there[-1]} are not there, the account has {lost}")
        # The talker sends in one order, so what is missing before the kill is what came after the last message.
        first = min((t for n, t in log.items() if n > there[-1] and t < kill.killed), default=kill.killed)
        self.lost_s = max(self.lost_s, kill.killed - first)


def options_of(rng, storage):
    """The arguments of a recording: mostly none, now and then splits, compression, another window."""
    common = [[], [], ["-b", "2000000"], ["-d", "1"], ["--max-loss-window", "0.5"], ["--max-loss-window", "0"]]
    of_storage = {
        "mcap": [*common, ["--storage-preset-profile", "zstd_fast"], ["--storage-preset-profile", "fastwrite"]],
        "sqlite3": common,
        "leveldb": [[], []],
    }
    return [*rng.choice(of_storage[storage]), *(["-s", storage] if storage != "mcap" else [])]


def streams_of(logs, flat_out, large_bytes):
    """What the talker publishes."""
    small = {"topic": "/small", "type": STRING, "count": None, "rate_hz": 200, "text": "{n}", "hash": False, "log": str(logs["/small"])}
    large = {"topic": "/large", "type": STRING, "count": None, "rate_hz": 20, "text": "{n}", "size": large_bytes, "hash": False, "log": str(logs["/large"])}
    if flat_out:
        small |= {"rate_hz": 0, "size": 1000, "qos": {"depth": 1000}}
    return small, large


def run(world, kills, seed, side_by_side, longest_s=4.0, report=print, storages=STORAGES, causes=CAUSES, flat_out=False, large_bytes=100_000, slow=None, lose_files=False):
    """Kills that many recordings; returns the faults, one sentence each. A bag that took long to open is one of them, or goes into `slow`."""
    rng = random.Random(seed)
    logs = {"/small": world.folder / "small.log", "/large": world.folder / "large.log"}
    talker = world.talker(*streams_of(logs, flat_out, large_bytes), wait_for_subscriptions=0)
    talker.wait_for("matched")
    probe = Probe(world.folder)
    outcomes = []
    waiting = list(range(kills))
    running = []
    while waiting or running:
        while waiting and len(running) < side_by_side:
            number = waiting.pop(0)
            options = options_of(rng, storages[number % len(storages)])
            if lose_files:
                options = ["-d", "1", *(options[-2:] if "-s" in options else [])]
            cause = rng.choices(list(causes), weights=causes.values())[0]
            running.append(Kill(world, number, rng.uniform(0.0, longest_s), options, cause))
        due = [one for one in running if one.is_due()]
        if not due:
            time.sleep(0.005)
            continue
        for one in due:
            running.remove(one)
            one.kill()
            log = {topic: read_log(path) for topic, path in logs.items()}
            outcome = one.judge_lost(rng) if lose_files else one.judge(log, probe.behind_s(one.begun, one.killed))
            if outcome is None:
                continue
            outcomes.append(outcome)
            if outcome.slow:
                (outcome.faults if slow is None else slow).append(outcome.slow)
            for fault in outcome.faults:
                report(f"kill {one.number} ({' '.join(one.options)}) by {one.cause} after {one.after_s:.2f} s: {fault}")
            if not outcome.faults:
                shutil.rmtree(one.bag, ignore_errors=True)
    probe.is_over.set()
    talker.interrupt()
    for line in table_of(outcomes):
        report(line)
    faults = [fault for outcome in outcomes for fault in outcome.faults]
    # Each check of content is skipped where a bag has none.
    if not any(outcome.recorded for outcome in outcomes):
        faults.append("no bag had a message that could be compared")
        report(faults[-1])
    return faults


def table_of(outcomes):
    """One line for each storage, and the sums."""
    yield "storage  kills compared   recorded  received,missing  not received  last s  opened s  faults  causes; audits by exit code"
    storages = sorted({outcome.kill.storage for outcome in outcomes})
    for storage in [*storages, "all"]:
        those = [outcome for outcome in outcomes if storage in (outcome.kill.storage, "all")]
        causes = dict(collections.Counter(outcome.kill.cause for outcome in those))
        audits = dict(collections.Counter(outcome.audit for outcome in those))
        yield (
            f"{storage:8} {len(those):5} {sum(one.is_compared for one in those):8} {sum(one.recorded for one in those):10} "
            f"{sum(one.received_and_missing for one in those):17} {sum(one.not_received for one in those):13} "
            f"{max((one.lost_s for one in those), default=0.0):7.2f} {max((one.opened_s for one in those), default=0.0):9.2f} "
            f"{sum(len(one.faults) for one in those):7}  {causes}; {audits}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--side-by-side", type=int, default=4)
    parser.add_argument("--storages", nargs="+", choices=STORAGES, default=STORAGES)
    parser.add_argument("--causes", nargs="+", choices=CAUSES, default=list(CAUSES))
    parser.add_argument("--flat-out", action="store_true", help="1 KiB as fast as the talker sends, instead of 200 short messages a second")
    parser.add_argument("--large-bytes", type=int, default=100_000, help="length of the large messages, 20 a second")
    parser.add_argument("--lose-files", action="store_true", help="after each kill a closed file is deleted, moved, emptied or overwritten at its beginning")
    parser.add_argument("--keep", type=Path, help="move bags with faults here")
    arguments = parser.parse_args()
    print(f"seed: {arguments.seed}")
    folder = Path(tempfile.mkdtemp(prefix="holdall-kill-"))
    world = World(folder)
    # When it is ended from outside, it ends the processes that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        causes = {cause: CAUSES[cause] for cause in arguments.causes}
        how = {"storages": arguments.storages, "causes": causes, "flat_out": arguments.flat_out, "large_bytes": arguments.large_bytes, "lose_files": arguments.lose_files}
        # Several files are closed by then.
        how["longest_s"] = 8.0 if arguments.lose_files else 4.0
        faults = run(world, arguments.kills, arguments.seed, arguments.side_by_side, **how)
        if arguments.keep:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            for bag in folder.glob("bag*"):
                shutil.move(bag, arguments.keep / bag.name)
    finally:
        world.close()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
