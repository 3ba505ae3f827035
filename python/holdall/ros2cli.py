# pyright: basic, reportMissingImports=false
"""The command ``ros2 holdall``: an extension of ``ros2cli`` that becomes the program, with all its verbs and flags."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ros2cli.command import CommandExtension

from .__main__ import main


class HoldallCommand(CommandExtension):  # type: ignore[misc]
    """Record, play and work on bags with holdall."""

    def add_arguments(self, parser: argparse.ArgumentParser, cli_name: str, *, argv: list[str] | None = None) -> None:
        """Called by ros2cli: takes all words, flags too."""
        # No word begins with this, and so `--help` is a word for the program.
        parser.prefix_chars = "\0"
        parser.add_argument("words", nargs=argparse.REMAINDER)

    def main(self, *, parser: argparse.ArgumentParser, args: Any) -> int:
        """Called by ros2cli."""
        sys.argv = ["holdall", *args.words]
        return main()
