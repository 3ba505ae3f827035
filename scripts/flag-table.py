#!/usr/bin/env python3
"""Writes the tables of docs/from-ros2-bag.md: each flag of `ros2 bag` that the table test of the command line has, with what it does in holdall.

    scripts/flag-table.py target/debug/holdall [--check]
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "crates/holdall-cli/src/args/rosbag2_tests.rs"
PAGE = ROOT / "docs/from-ros2-bag.md"
BEGIN, END = "<!-- scripts/flag-table.py writes from here -->\n", "<!-- to here -->\n"


def lines_of(name):
    """The command lines of one table of the test."""
    table = re.search(rf"const {name}: &\[&str\] = &\[\n(.*?)\n\];", TESTS.read_text(), re.DOTALL)[1]
    return re.findall(r'"([^"]*)"', table)


def help_of(program, verb):
    """Each spelling of a flag: (all its spellings, the first sentence of its help)."""
    text = subprocess.run([program, verb, "--help"], capture_output=True, text=True, check=True).stdout
    found = {}
    # The text is beside the flag or below it, whatever fits the terminal.
    for match in re.finditer(r"^ {2,6}((?:-\w, )?--[\w-]+)([^\n]*)\n((?: {10,}[^\n]+\n)*)", text, re.MULTILINE):
        spellings = re.findall(r"--?[\w-]+", match[1])
        sentence = " ".join(f"{match[2].partition('  ')[2]} {match[3]}".split())
        sentence = re.split(r"(?<=[a-z)])[.;] | \[default|: (?=[a-z]+ )", sentence)[0]
        found.update(dict.fromkeys(spellings, (spellings, sentence.replace("|", "\\|"))))
    return found


def table(program, verb, lines):
    known, seen, rows = help_of(program, verb), set(), []
    for line in lines:
        for word in line.split():
            # What is a flag's value, and what is another spelling of a flag that has a row.
            if not re.fullmatch(r"--?[a-z][\w-]*", word) or word in seen:
                continue
            here = known.get(word) or known.get(word.replace("_", "-"))
            if here is None:
                rows.append((f"`{word}`", "accepted; not in the help"))
                seen.add(word)
                continue
            spellings, sentence = here
            seen.update((*spellings, word, word.replace("-", "_")))
            rows.append((", ".join(f"`{one}`" for one in spellings), sentence))
    body = "".join(f"| {flags} | {sentence} |\n" for flags, sentence in rows)
    return f"### `{verb}`\n\n| `ros2 bag {verb}` and `holdall {verb}` | in holdall |\n|---|---|\n{body}"


def tables(program):
    tools = {}
    for line in lines_of("TOOLS"):
        verb, *words = line.split()
        if verb in ("convert", "info", "reindex"):
            tools.setdefault(verb, []).append(" ".join(words))
    found = {"record": lines_of("RECORD"), "play": lines_of("PLAY"), **tools}
    return "\n".join(table(program, verb, lines) for verb, lines in found.items())


def main(program, *options):
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    new = f"{head}{BEGIN}\n{tables(program)}\n{END}{tail}"
    if "--check" in options:
        sys.exit(0 if new == text else f"{PAGE} is not what scripts/flag-table.py writes")
    PAGE.write_text(new)


if __name__ == "__main__":
    main(*sys.argv[1:])
