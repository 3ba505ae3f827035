"""Reads all messages of a bag with pip `rosbags`, without decoding them, and prints their number and the seconds taken."""
import sys
import time

from rosbags.rosbag2 import Reader

start = time.perf_counter()
with Reader(sys.argv[1]) as reader:
    count = sum(1 for _ in reader.messages())
print(count, time.perf_counter() - start)
