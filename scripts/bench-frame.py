#!/usr/bin/env python3
"""How long it takes to get a decoded picture at a random time of a long bag of video.

    scripts/bench-frame.py HOLDALL VIDEO FOLDER [--gigabytes 20] [--seeks 100] [--holes] [--keep]

VIDEO is a bag that `holdall compress --video` made: its pictures are repeated with new stamps until FOLDER/long is a bag of that size, which lists its key frames; `--keep` leaves it there for the next run.
With `--holes`, the file has holes for pictures in groups that are not asked for. Cold reads begin with a file that was dropped
from the page cache. Needs the Python package holdall, and `ffmpeg` or the package imageio-ffmpeg.
"""

import argparse
import bisect
import itertools
import json
import os
import random
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import holdall
import yaml
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer

START = 1_700_000_000_000_000_000
# Parts of a file that may be holes.
HOLE = 1 << 12


class Sparse:
    """A file in which blocks of zeros are holes."""

    def __init__(self, path):
        self.file, self.at = open(path, "wb", buffering=0), 0

    def write(self, data):
        data, place = memoryview(data).cast("B"), 0
        while place < len(data):
            part = bytes(data[place : place + HOLE])
            if part != bytes(len(part)):
                os.pwrite(self.file.fileno(), part, self.at + place)
            place += len(part)
        self.at += len(data)
        return len(data)

    def tell(self):
        return self.at

    def flush(self):
        pass

    def close(self):
        os.ftruncate(self.file.fileno(), self.at)
        os.fsync(self.file.fileno())
        self.file.close()


class Video:
    """A bag's video: its pictures, and which of them are key frames."""

    def __init__(self, bag, rate):
        with open(next(bag.glob("*.mcap")), "rb") as stream:
            found = list(make_reader(stream).iter_messages())
        self.schema, self.channel, _ = found[0]
        self.pictures, self.rate = [message.data for _, _, message in found], rate
        self.account = yaml.safe_load((bag / "metadata.yaml").read_text())["rosbag2_bagfile_information"]
        (self.entry,) = json.loads(self.account["custom_data"]["holdall.recoded"])
        times = [message.log_time // 10**6 for _, _, message in found]
        self.keys = [times.index(key) for key in itertools.accumulate(map(int, self.entry["keys"].split()))]

    def group(self, number):
        """The number of the key frame of a repeated picture."""
        turn, place = divmod(number, len(self.pictures))
        return turn * len(self.pictures) + self.keys[bisect.bisect(self.keys, place) - 1]


def write(video, folder, count, wanted):
    """A bag of so many pictures; of groups that are not in `wanted` only the lengths."""
    path, rate = folder / "long_0.mcap", video.rate
    stream = Sparse(path)
    writer = Writer(stream, chunk_size=1 << 20, compression=CompressionType.NONE)
    writer.start("ros2")
    schema = writer.register_schema(video.schema.name, video.schema.encoding, video.schema.data)
    number = writer.register_channel(video.channel.topic, "cdr", schema, video.channel.metadata)
    keys, before = [], 0
    for place in range(count):
        at, data, group = START + place * 10**9 // rate, video.pictures[place % len(video.pictures)], video.group(place)
        # A reader of a whole group ends at the next key frame.
        is_real = wanted is None or group in wanted or group == 0 or (group == place and before in wanted)
        before = group
        if group == place:
            keys.append(at // 10**6)
        # The stamp comes first.
        data = data[:4] + struct.pack("<iI", at // 10**9, at % 10**9) + (data[12:] if is_real else bytes(len(data) - 12))
        writer.add_message(number, at, data, at)
    account, entry = video.account, video.entry
    entry |= {"keys": " ".join(map(str, [keys[0], *(after - before for before, after in itertools.pairwise(keys))])), "messages": count}
    last = (count - 1) * 10**9 // rate
    account |= {"message_count": count, "duration": {"nanoseconds": last}, "relative_file_paths": [path.name], "custom_data": {"holdall.recoded": json.dumps([entry])}}
    account["topics_with_message_count"][0]["message_count"] = count
    account["files"] = [{"path": path.name, "starting_time": {"nanoseconds_since_epoch": START}, "duration": {"nanoseconds": last}, "message_count": count}]
    writer.add_metadata("rosbag2", {"serialized_metadata": yaml.safe_dump(account)})
    writer.finish()
    stream.close()
    (folder / "metadata.yaml").write_text(yaml.safe_dump({"rosbag2_bagfile_information": account}))


def drop(folder):
    for path in folder.iterdir():
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def timed(work):
    begin = time.monotonic()
    found = work()
    return time.monotonic() - begin, found


def shown(name, values):
    ordered = sorted(values)
    print(f"| {name} | {len(ordered)} | {ordered[len(ordered) // 2] * 1e3:.0f} | {ordered[-1] * 1e3:.0f} |", flush=True)


def in_python(folder, topic, times, is_cold):
    """Opening; at each time, the message alone, and the decoded picture, through the package."""
    opening, bag = timed(lambda: holdall.open(folder))
    listing, images = timed(lambda: bag.images(topic))
    alone, decoded = [], []
    for at in times:
        for values, work in ((alone, lambda: next(iter(bag[topic].between(at))).raw), (decoded, lambda: images.between(at, at + 1)[0])):
            if is_cold:
                drop(folder)
            spent, found = timed(work)
            values.append(spent)
        assert found.ndim == 3
    return opening + listing, alone, decoded


def by_program(program, folder, topic, place, rate, env):
    """A picture as a file, with the start of the program."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as out:
        from_start = (place * 10**9 // rate) / 1e9
        command = [program, "export", folder, "-o", f"{out}/new", "-f", "png", "--topics", topic, "--start-offset", f"{from_start:.9f}", "--duration", "0.01"]
        spent, done = timed(lambda: subprocess.run([str(word) for word in command], env=env, capture_output=True))
        assert not done.returncode and len(list(Path(out).rglob("*.png"))) == 1, (done.stderr, list(Path(out).rglob("*")))
    return spent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("video", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=20)
    parser.add_argument("--seeks", type=int, default=100)
    parser.add_argument("--rate", type=int, default=30, help="pictures a second")
    parser.add_argument("--holes", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--only-write", action="store_true")
    arguments = parser.parse_args()
    rate, chance, bag = arguments.rate, random.Random(1), arguments.folder / "long"
    with tempfile.TemporaryDirectory() as folder:
        try:
            import imageio_ffmpeg

            (Path(folder) / "ffmpeg").symlink_to(imageio_ffmpeg.get_ffmpeg_exe())
            os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
        except ImportError:
            pass
        video = Video(arguments.video, rate)
        count = int(arguments.gigabytes * 1e9 / sum(map(len, video.pictures)) * len(video.pictures))
        places, topic = [chance.randrange(count) for _ in range(arguments.seeks)], video.channel.topic
        if not bag.exists():
            bag.mkdir()
            write(video, bag, count, set(map(video.group, places)) if arguments.holes else None)
        if arguments.only_write:
            return
        before = sum(place - video.group(place) for place in places) / len(places)
        stored = sum(path.stat().st_blocks * 512 for path in bag.iterdir())
        long = sum(path.stat().st_size for path in bag.iterdir())
        print(f"{long / 1e9:.1f} GB ({stored / 1e9:.1f} stored), {count} pictures of {long / count / 1e3:.0f} kB; {before:.1f} from the key frame to the one asked for\n")
        print("| | times | p50, ms | max, ms |\n|---|---|---|---|")
        for name, is_cold in (("cold", True), ("warm", False)):
            drop(bag)
            opening, alone, decoded = in_python(bag, topic, [START + place * 10**9 // rate for place in places], is_cold)
            shown(f"{name}: `holdall.open`, `images`", [opening])
            shown(f"{name}: a message, `topic.between(t)`", alone)
            shown(f"{name}: a picture, `images.between(t)[0]`", decoded)
            spent = []
            for place in places[:30]:
                if is_cold:
                    drop(bag)
                spent.append(by_program(arguments.program, bag, topic, place, rate, os.environ))
            shown(f"{name}: `holdall export -f png`", spent)
        if not arguments.keep:
            shutil.rmtree(bag)


if __name__ == "__main__":
    main()
