"""Runs a script with this package's ``rosbag2_py``: ``python -m holdall.compat script.py ARGUMENT...``."""

from __future__ import annotations

import os
import runpy
import sys

from . import install


def main() -> int:
    """Runs the script that the command line names."""
    if len(sys.argv) < 2:
        print("usage: python -m holdall.compat SCRIPT [ARGUMENT]...", file=sys.stderr)
        return 2
    install()
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
