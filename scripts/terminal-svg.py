"""Draws a recording as a terminal shows it, from a real run: docs/images/recording.svg.

Usage: terminal-svg.py HOLDALL OUT.svg        (with a venv that has rich, pyte and, for the node, rclpy: see PYTHON_WITH_RCLPY)

Starts the demo's node, runs `holdall record -a` and then `holdall info` in a pseudo-terminal of 124 columns, and draws what is left on its screen.
"""

import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pyte
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
COLUMNS, LINES = 124, 40
RECORD_S = 6
NODE_PYTHON = os.environ.get("PYTHON_WITH_RCLPY", sys.executable)
ENV = {**os.environ, "ROS_DOMAIN_ID": "97", "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST", "TERM": "xterm-256color"}


class Terminal:
    """A screen that programs write to, one after the other."""

    def __init__(self):
        self.screen = pyte.Screen(COLUMNS, LINES)
        self.stream = pyte.ByteStream(self.screen)

    def type(self, line):
        self.stream.feed(f"$ {line}\r\n".encode())

    def run(self, arguments, folder, interrupt_after_s=None):
        """Runs a program on the screen; returns when it has ended."""
        pid, master = pty.fork()
        if pid == 0:
            os.chdir(folder)
            os.execve(arguments[0], arguments, ENV)
        ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        end = time.monotonic() + interrupt_after_s if interrupt_after_s else None
        while True:
            if end and time.monotonic() > end:
                os.kill(pid, signal.SIGINT)
                end = None
            if not select.select([master], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(master, 65536)
            except OSError:
                break
            if not data:
                break
            self.stream.feed(data)
        os.waitpid(pid, 0)
        os.close(master)

    def text(self):
        """What is on the screen, with its colours."""
        shown = Text()
        last = max(y for y in range(LINES) if self.screen.display[y].strip())
        for y in range(last + 1):
            row = self.screen.buffer[y]
            width = len(self.screen.display[y].rstrip())
            for x in range(width):
                cell = row[x]
                colour = "" if cell.fg == "default" else cell.fg.replace("bright", "bright_")
                colour = f"#{colour}" if len(colour) == 6 and all(c in "0123456789abcdef" for c in colour) else colour
                colour = {"brown": "yellow"}.get(colour, colour)
                shown.append(cell.data, style=f"{'bold ' if cell.bold else ''}{colour}".strip())
            shown.append("\n")
        return shown


def main():
    holdall, out = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2])
    plan = (ROOT / "demo" / "robot.json").read_text()
    node = subprocess.Popen(
        [NODE_PYTHON, str(ROOT / "tests/nodes/talker.py"), "-"], env=ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    terminal = Terminal()
    try:
        node.stdin.write(plan)
        node.stdin.close()
        while json.loads(node.stdout.readline() or '{"event": "ready"}').get("event") != "ready":
            pass
        with tempfile.TemporaryDirectory() as folder:
            terminal.type("holdall record -a -o robot")
            terminal.run([holdall, "record", "-a", "-o", "robot"], folder, RECORD_S)
            terminal.type("holdall info robot")
            terminal.run([holdall, "info", "robot"], folder)
    finally:
        node.send_signal(signal.SIGINT)
        node.wait()
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True, color_system="truecolor")
    console.print(terminal.text(), end="")
    out.parent.mkdir(parents=True, exist_ok=True)
    # Fonts from elsewhere are left out: a picture of a document loads nothing.
    out.write_text(re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="holdall"), flags=re.DOTALL))


if __name__ == "__main__":
    main()
