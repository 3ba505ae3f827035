"""Reads all messages of a bag with pip `rosbags`, without decoding them, and tells how many there are and how long that took."""
import sys
import time

from rosbags.rosbag2 import Reader

start = time.perf_counter()
with Reader(sys.argv[1]) as reader:
    count = sum(1 for _ in reader.messages())
print(count, time.perf_counter() - start)
