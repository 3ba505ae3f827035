"""Points in time and spans, as people write them, in nanoseconds."""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Any

_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 10**9, "m": 60 * 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_SPAN = re.compile(r"\s*(-?\d+(?:\.\d*)?)\s*(ns|us|µs|ms|min|s|m|h)\s*")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d*)?))?")
# Smaller numbers of seconds count from the beginning of the bag, larger ones from 1970.
_SECONDS_SINCE_1970_MIN = 10**8
_NANOSECONDS_MIN = 10**14
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def span_ns(span: Any) -> int:
    """A span in nanoseconds: seconds, a text with a unit (``"100ms"``), or a timedelta (also numpy's)."""
    if isinstance(span, str):
        found = _SPAN.fullmatch(span)
        if not found:
            raise ValueError(f"{span!r} is not a span: expected a number and one of {', '.join(_UNITS)}")
        return round(float(found[1]) * _UNITS[found[2]])
    if isinstance(span, dt.timedelta):
        return (span.days * 86_400 + span.seconds) * 10**9 + span.microseconds * 1000
    if type(span).__module__ == "numpy" and hasattr(span, "astype") and str(span.dtype).startswith("timedelta64"):
        return int(span.astype("timedelta64[ns]").astype("int64"))
    if not isinstance(span, (int, float)) or not math.isfinite(span):
        raise ValueError(f"{span!r} is not a span: expected seconds, a text like '100ms' or a timedelta")
    return round(span * 10**9)


def _of_datetime(moment: dt.datetime) -> int:
    # pandas has nanoseconds, and calls them `value`.
    value = getattr(moment, "value", None)
    if isinstance(value, int):
        return value
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.timezone.utc)
    return span_ns(moment - _EPOCH)


def date_ns(moment: Any) -> int:
    """A date in nanoseconds since 1970: a datetime (also pandas's and numpy's), or an ISO text. Dates without a zone are UTC."""
    if isinstance(moment, str):
        moment = dt.datetime.fromisoformat(moment.strip().replace("Z", "+00:00"))
    if isinstance(moment, dt.datetime):
        return _of_datetime(moment)
    return int(moment.astype("datetime64[ns]").astype("int64"))


def time_ns(moment: Any, start: int) -> int:
    """A point in time in nanoseconds since 1970, for a bag that begins at ``start``.

    Small numbers are seconds since the beginning of the bag, large ones seconds or (whole numbers) nanoseconds since 1970. Texts are ISO dates,
    a time of the day (UTC) on which the bag begins, or a span since its beginning. Dates without a zone are UTC.
    """
    if isinstance(moment, str):
        clock = _CLOCK.fullmatch(moment.strip())
        if clock:
            if int(clock[1]) > 23 or int(clock[2]) > 59 or float(clock[3] or 0) >= 60:
                raise ValueError(f"{moment!r} is not a time of the day")
            seconds = int(clock[1]) * 3600 + int(clock[2]) * 60
            day = start - start % (86_400 * 10**9)
            return day + seconds * 10**9 + round(float(clock[3] or 0) * 10**9)
        if _SPAN.fullmatch(moment):
            return start + span_ns(moment)
        return date_ns(moment)
    if isinstance(moment, dt.datetime):
        return date_ns(moment)
    if isinstance(moment, dt.timedelta):
        return start + span_ns(moment)
    if type(moment).__module__ == "numpy" and hasattr(moment, "dtype"):
        if str(moment.dtype).startswith("datetime64"):
            return date_ns(moment)
        moment = moment.item()
    if not isinstance(moment, (int, float)) or not math.isfinite(moment) or abs(moment) >= 2**63:
        raise ValueError(f"{moment!r} is not a point in time")
    if isinstance(moment, int) and abs(moment) >= _NANOSECONDS_MIN:
        return moment
    if moment >= _SECONDS_SINCE_1970_MIN:
        nanos = round(moment * 10**9)
        if nanos >= 2**63:
            raise ValueError(f"{moment!r} is not a point in time: it is after the year 2262")
        return nanos
    return start + round(moment * 10**9)


def datetime_of(nanos: int) -> dt.datetime:
    """A point in time as a datetime (UTC), in whole microseconds."""
    return _EPOCH + dt.timedelta(microseconds=nanos // 1000)


def rate(count: int, seconds: float) -> float | None:
    """Messages per second, if there are enough for one."""
    return (count - 1) / seconds if count > 1 and seconds > 0 else None
