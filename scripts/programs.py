"""Programs that a measurement starts: their lines with the time of each, and waiting for one of them."""

import queue
import threading
import time


def lines_of(process):
    """The lines of a process's standard output in a queue, each with the time when it came; None at its end."""
    lines = queue.Queue()

    def read():
        for line in process.stdout:
            lines.put((time.time(), line))
        lines.put((time.time(), None))

    threading.Thread(target=read, daemon=True).start()
    return lines


def wait_for(lines, wanted):
    """The time of the first line with a text, and the line."""
    read = []
    while True:
        at, line = lines.get(timeout=60)
        if line is None:
            raise SystemExit(f"a program ended before its line with {wanted!r}:\n" + "".join(read))
        read.append(line)
        if wanted in line:
            return at, line
