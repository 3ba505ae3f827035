"""The notebook of docs/python.md: each cell runs, shows the text that is written there, and draws its picture."""

import os
import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

DOCS = Path(__file__).resolve().parents[2] / "docs"
# A cell, then its text, its picture, or both.
CELL = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?(?:\n!\[[^\]]+\]\((images/[^)]+)\)\n)?", re.DOTALL)
# Draws the pictures anew and puts the texts into the document.
RENEWS = bool(os.environ.get("HOLDALL_PICTURES"))


def trimmed(text):
    """Lines without the spaces at their ends, and without sizes of files, which libraries change."""
    return [re.sub(r", [0-9.]+ KiB$", "", line.rstrip()) for line in text.splitlines()]


def test_each_cell_shows_what_the_document_has(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    plt.close("all")
    document = DOCS / "python.md"
    recipes, heading, text = document.read_text().partition("## A notebook over a drive\n")
    names = {}
    cells = CELL.findall(text)
    assert len(cells) == text.count("```python") and sum(bool(picture) for _, _, picture in cells) == 3
    for code, shown, picture in cells:
        exec(compile(code, "cell", "exec"), names)
        found = "\n".join([*map(str.rstrip, capsys.readouterr().out.splitlines()), ""])
        if RENEWS:
            head, _, tail = text.partition(code)
            text = head + code + (tail.replace(f"```text\n{shown}```", f"```text\n{found}```", 1) if found.strip() else tail)
        else:
            assert trimmed(found) == trimmed(shown), code
        assert bool(plt.get_fignums()) == bool(picture), code
        if picture:
            assert (DOCS / picture).exists() or RENEWS
            plt.gcf().savefig(DOCS / picture if RENEWS else tmp_path / Path(picture).name, dpi=70)
            plt.close("all")
    if RENEWS:
        document.write_text(recipes + heading + text)
