"""Reads all messages of an MCAP file with pip `mcap` and prints their number and the seconds taken."""
import sys
import time

from mcap.reader import make_reader

start = time.perf_counter()
with open(sys.argv[1], "rb") as file:
    count = sum(1 for _ in make_reader(file).iter_messages())
print(count, time.perf_counter() - start)
