"""Programs that a measurement starts: their lines with the time of each, and waiting for one of them."""

import os
import queue
import subprocess
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


class Child:
    """A process whose output is read by line, and whose processor time is known at its end."""

    def __init__(self, command, env):
        self.process = subprocess.Popen([*map(str, command)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.said = []

    def wait_for(self, text):
        for line in self.process.stdout:
            self.said.append(line)
            if text in line:
                return line
        raise SystemExit(f"never said {text!r}:\n" + "".join(self.said))

    def end(self):
        """(all lines that it said, seconds of processor time, most memory in KiB)"""
        self.said += self.process.stdout.readlines()
        _, _, usage = os.wait4(self.process.pid, 0)
        return self.said, usage.ru_utime + usage.ru_stime, usage.ru_maxrss
