"""How far long work is: to a function, or as a bar."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator, Iterator
from typing import Any, Callable, Union

Report = Callable[[int, int], Any]
Progress = Union[Report, bool, None]


@contextlib.contextmanager
def shown(progress: Progress, title: str) -> Generator[Report | None, None, None]:
    """What is called with the part that is done and the whole: the caller's function, a bar, or nothing."""
    if not progress:
        yield None
    elif callable(progress):
        yield progress
    else:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            yield from _line(title)
            return
        with tqdm(desc=title, unit="", unit_scale=True) as bar:

            def report(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            yield report


def _line(title: str) -> Iterator[Report]:
    """One line that is written again, where there is no tqdm."""

    def report(done: int, total: int) -> None:
        share = done / total if total else 1.0
        filled = round(30 * share)
        sys.stderr.write(f"\r{title} |{'█' * filled}{' ' * (30 - filled)}| {share:4.0%}")
        sys.stderr.flush()

    try:
        yield report
    finally:
        sys.stderr.write("\n")
