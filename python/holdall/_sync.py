"""Messages of several topics that belong together, by time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


class _Nearest:
    """The message of a stream that is nearest to a time; times are asked for in order."""

    def __init__(self, messages: Iterator[Any]) -> None:
        self._messages = messages
        self._before: Any = None
        self._after: Any = next(messages, None)

    def at(self, time: int) -> Any:
        while self._after is not None and self._after.stamp < time:
            self._before, self._after = self._after, next(self._messages, None)
        if self._before is None or self._after is None:
            return self._before or self._after
        return self._before if time - self._before.stamp <= self._after.stamp - time else self._after


def nearest(streams: Sequence[Iterator[Any]], tolerance: int) -> Iterator[tuple[Any, ...]]:
    """For each message of the first stream, those of the others that are nearest to it."""
    first, *others = streams
    finders = [_Nearest(messages) for messages in others]
    for message in first:
        found = [finder.at(message.stamp) for finder in finders]
        if all(other is not None and abs(other.stamp - message.stamp) <= tolerance for other in found):
            yield (message, *found)
