#!/usr/bin/env python3
"""Writes python/holdall/_options.py: the flags of each verb as the keywords of its function, read from the completion that the program writes.

    scripts/python-options.py target/debug/holdall [--check]
"""

import ast
import keyword
import re
import subprocess
import sys
import textwrap
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "python/holdall"
# Flags that only people at a terminal need, and those that the functions set themselves.
SHOWN = {"help", "json", "print_profile", "version"}
SHOWN_BY_VERB = {
    "convert": {"input"},
    "get": {"output", "overwrite"},
    "info": {"ros", "topic_name", "verbose", "timeline", "sort"},
    "record": {"control_socket", "disable_keyboard_controls", "verbose"},
    "play": {"control_socket", "disable_keyboard_controls", "input", "verbose"},
    "burst": {"disable_keyboard_controls", "verbose"},
    "preflight": {"verbose"},
}
PATHS = ("DIR", "FILE", "FOLDER", "PATH")
NUMBERS = ("DATE", "FACTOR", "HZ", "MS", "NS", "RATE", "S", "SEC", "SIZE", "SPAN", "TIME")
COUNTS = ("PERCENT", "COUNT", "N", "NICE", "PRIORITY")
HEAD = '''"""The flags of the verbs as keywords, for type checkers and completion; ``holdall VERB --help`` explains them.

scripts/python-options.py writes this file from the program's own table.
"""

from __future__ import annotations

import datetime as dt
import os
from typing import Literal, Sequence, TypedDict, TypeVar, Union

_T = TypeVar("_T")
AnyPath = Union[str, "os.PathLike[str]"]
#: A number, a text with its unit (``"10MB"``, ``"500ms"``) or a time (``"2026-11-25T12:03:11"``), a date, a span.
Number = Union[int, float, str, dt.datetime, dt.timedelta]
#: One, or several.
Some = Union[_T, Sequence[_T]]
'''


def table(program):
    """Each verb's flags with their types: {verb: {name: type}}."""
    text = subprocess.run([program, "completion", "zsh"], capture_output=True, text=True, check=True).stdout
    found = {}
    for verb, part in re.findall(r"\((\w+)\)\n_arguments(.*?)^;;$", text, re.DOTALL | re.MULTILINE):
        # A flag whose conflicts are listed before it, its marks, its help, and what its value may be.
        lines = re.findall(r"^'(?:\([^)]*\))?(\*?)--([\w-]+)(=?)\[((?:\\\]|[^\]])*)\](.*?)' \\$", part, re.DOTALL | re.MULTILINE)
        found.setdefault(verb, {name.replace("-", "_"): kind(many, takes, value) for many, name, takes, _, value in lines})
    return found


def kind(many, takes, value):
    """The type of a flag's value."""
    if not takes:
        return "bool"
    optional, what, after = re.fullmatch(r"(::?)(.*):(\(.*\)|\w*)", value, re.DOTALL).groups()
    if after.startswith("(("):
        words = re.findall(r'[(\n]([\w./-]+)\\:"', after)
    else:
        words = after.strip("()").split() if after.startswith("(") else []
    if words and what != "ID":
        known = f"Literal[{', '.join(map(repr, words))}]".replace("'", '"')
    elif what in PATHS:
        known = "AnyPath"
    else:
        # Also behind a topic: [TOPIC=]HZ, or beside one: N|TOPIC=N.
        last = re.split(r"[]=|]", what)[-1]
        known = "int" if what in COUNTS else "Number" if {what, last} & {*NUMBERS, *COUNTS} else "str"
    if optional == "::":
        known = f"Union[bool, {known}]"
    return f"Some[{known}]" if many else known


def functions():
    """The functions of the package by name: their own parameters, and the name of the options that they take besides."""
    found = {}
    for node in ast.parse((PACKAGE / "_verbs.py").read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names = {argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
            found[node.name] = (names, node.args.kwarg and ast.unparse(node.args.kwarg.annotation))
    return found


def written(program):
    flags, text = table(program), HEAD
    for verb, (own, options) in sorted(functions().items()):
        if verb.startswith("_"):
            continue
        shown = subprocess.run([program, verb, "--help"], capture_output=True, text=True, check=True).stdout
        listed = {flag.replace("-", "_") for flag in re.findall(r"^ +(?:-\w, )?--([\w-]+)", shown, re.MULTILINE)}
        left = {name: flags[verb][name] for name in listed - SHOWN - SHOWN_BY_VERB.get(verb, set()) - own if name in flags[verb]}
        if not options:
            assert not left, f"holdall.{verb} has no keywords for {', '.join(left)}"
            continue
        name = f"{verb.capitalize()}Options"
        assert options == f"Unpack[{name}]", f"holdall.{verb} takes {options}, not Unpack[{name}]"
        fields = [f'"{flag}{"_" * keyword.iskeyword(flag)}": {left[flag]},'.replace(" ", "\0") for flag in sorted(left)]
        body = textwrap.fill(" ".join(fields), 148, initial_indent="    ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
        text += f'\n{name} = TypedDict("{name}", {{\n{body}\n}}, total=False)  # fmt: skip\n'.replace("\0", " ")
    return text


def main(program, *options):
    page, text = PACKAGE / "_options.py", written(program)
    if "--check" in options:
        sys.exit(0 if page.read_text() == text else f"{page} is not what scripts/python-options.py writes")
    page.write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
