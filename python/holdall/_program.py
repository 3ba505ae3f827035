"""The program ``holdall``: where it is, how it is run, and recordings and playbacks."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import warnings
import weakref
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from ._errors import ProgramError
from ._options import AnyPath
from ._progress import Progress, shown
from ._time import span_ns, time_ns

# Seconds that a recording or playback that was dropped has to close its bag.
_END_S = 30.0
# Seconds between two looks at a copy.
_COPY_POLL_S = 0.1
# Earlier times are spans that were meant to count from elsewhere.
_NANOSECONDS_MIN = 10**17
# 107 less "/holdall-12345678/socket.4194304/s".
_SOCKET_FOLDER_MAX = 72
DONE, DIFFERENT, LOST = 0, 1, 3
# Flags of `record`: without one of them, everything is recorded.
SELECTING = (
    "actions", "all", "all_actions", "all_services", "all_topics", "params_file", "profile", "regex", "services", "static_topics_path", "topic_types",
    "topics",
)  # fmt: skip


def program() -> str:
    """The program: ``$HOLDALL_BIN``, the one in this package, or the first in ``$PATH``."""
    named = os.environ.get("HOLDALL_BIN")
    own = Path(__file__).with_name("bin") / "holdall"
    for candidate in (named, os.fspath(own)):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    # The script of this package has the same name, and calls this.
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found = shutil.which("holdall", path=folder) if folder else None
        if found:
            with open(found, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    return found
    raise ProgramError("the program holdall was not found: it is not in this package; set HOLDALL_BIN or put it into PATH")


def folder_of_sockets() -> str:
    """Where a socket can have a folder of its own: the name of a socket, with what the program adds while it makes it, has at most 107 bytes."""
    folder = tempfile.gettempdir()
    return folder if len(os.fsencode(folder)) <= _SOCKET_FOLDER_MAX else "/tmp"  # noqa: S108


def _flags(options: dict[str, Any]) -> list[str]:
    """Keyword arguments as flags: ``max_bag_size=5`` is ``--max-bag-size=5``, True a flag alone, lists have the flag for each value."""
    flags: list[str] = []
    for name, given in options.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        values: list[Any] = [given]
        if isinstance(given, Iterable) and not isinstance(given, (str, os.PathLike)):
            values = list(given)
        for value in values:
            if value is True:
                flags.append(flag)
            elif value is not None and value is not False:
                # With "=" a value may begin with a hyphen, and nothing after it is taken for another.
                flags.append(f"{flag}={_word(value)}")
    return flags


def _word(value: Any) -> str:
    """A value as the program reads it: dates as ISO texts, spans and other numbers without an exponent."""
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return f"{span_ns(value)}ns"
    return format(Decimal(repr(value)), "f") if isinstance(value, float) else str(value)


def _bags(bags: AnyPath | Sequence[AnyPath]) -> list[str]:
    named = [bags] if isinstance(bags, (str, os.PathLike)) else list(bags)
    return [os.fspath(bag) for bag in named]


def _sentence(output: str) -> str:
    """The program's last words with its tips, without its name."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    starts = [place for place, line in enumerate(lines) if line.startswith(("holdall: ", "error: "))]
    if not starts:
        return (lines or ["it gave no reason"])[-1]
    tips = [line for line in lines[starts[-1] + 1 :] if line.startswith("tip: ")]
    return "; ".join([lines[starts[-1]].removeprefix("holdall: "), *tips])


def run(
    verb: str,
    bags: AnyPath | Sequence[AnyPath],
    allowed: tuple[int, ...] = (DONE, LOST),
    *,
    progress: Progress = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Runs a verb of the program on bags; the keywords are its flags. Returns the JSON objects that it writes, none with ``json=False``.

    ``progress`` is called with what is done and what is to be done (bytes or messages, as the verb counts) while it runs; True shows a bar,
    tqdm's where it is installed. An exception that it raises ends the verb, as Ctrl-C does.
    """
    command = [program(), verb, *_flags({"json": True, **options}), "--", *_bags(bags)]
    with shown(progress, verb) as report, tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        env = {**os.environ, "HOLDALL_PROGRESS": "json" if report else ""}
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, env=env)  # noqa: S603
        try:
            assert process.stderr is not None
            words: list[str] = []
            last = (0, 0)
            for line in io.TextIOWrapper(process.stderr, encoding="utf-8", errors="replace"):
                if report and line.startswith('{"progress":'):
                    found = json.loads(line)["progress"]
                    last = (found["done"], found["total"])
                    report(*last)
                else:
                    words.append(line)
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        output.seek(0)
        found = output.read()
        # Without a report it has failed, whatever the code means otherwise.
        if code not in allowed or (code == DIFFERENT and not found):
            raise ProgramError(f"holdall {verb}: {_sentence(''.join(words))}", code=code)
        if report and last[0] < last[1]:
            # What was not read was not needed.
            report(last[1], last[1])
        return [json.loads(line) for line in _objects(found)] if "--json" in command else []


def _objects(text: str) -> list[str]:
    """JSON objects one after another, of one line or of many."""
    decoder, at = json.JSONDecoder(), 0
    found: list[str] = []
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        _, end = decoder.raw_decode(text, at)
        found.append(text[at:end])
        at = end
    return found


_Program = TypeVar("_Program", bound="Running")


class Running:
    """A recording or a playback of the program, steered through its control socket."""

    _deadline_s = 60.0

    def __init__(self, verb: str, words: list[str], options: dict[str, Any], env: dict[str, str] | None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="holdall-", dir=folder_of_sockets())
        self._socket = os.path.join(self._folder.name, "socket")
        self._log = open(os.path.join(self._folder.name, "log"), "w+", encoding="utf-8", errors="replace")
        flags = _flags({**options, "control_socket": self._socket})
        self.report: dict[str, Any] | None = None
        self._output = open(os.path.join(self._folder.name, "output"), "w+", encoding="utf-8")
        self.process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603
            [program(), verb, *flags, *words],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._log,
            env=None if env is None else {**os.environ, **env},
        )
        what = f"holdall {verb} (process {self.process.pid})"
        # Unlike __del__, it also runs for what is alive at the interpreter's end, and while all modules are there.
        self._drop = weakref.finalize(self, _drop, self.process, what, os.getpid())
        self._wait_for_socket()

    def _wait_for_socket(self) -> None:
        end = time.monotonic() + self._deadline_s
        while True:
            if self.process.poll() is not None:
                raise ProgramError(f"holdall: {_sentence(self.log)}", code=self.process.returncode)
            try:
                self.request("status")
                return
            except (FileNotFoundError, ConnectionRefusedError):
                pass
            if time.monotonic() > end:
                self._drop.detach()
                self.process.kill()
                self.process.wait()
                raise ProgramError("holdall did not open its control socket")
            # Until the program listens there is nothing to wait on.
            time.sleep(0.01)

    @property
    def log(self) -> str:
        """What the program has written to standard error so far."""
        with open(self._log.name, encoding="utf-8", errors="replace") as file:
            return file.read()

    def request(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Sends a request; ``holdall control --help`` lists them. Returns the answer."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(self._deadline_s)
            connection.connect(self._socket)
            connection.sendall((json.dumps({"request": name, **arguments}) + "\n").encode())
            answer = connection.makefile("rb").readline()
        if not answer:
            raise ProgramError(f"holdall did not answer the request {name}")
        found: dict[str, Any] = json.loads(answer)
        if not found.get("ok"):
            raise ProgramError(f"{name}: {found.get('error')}")
        return found

    @property
    def status(self) -> dict[str, Any]:
        """What it is doing."""
        return dict(self.request("status")["status"])

    @property
    def is_running(self) -> bool:
        """Whether the program has not ended."""
        return self.process.poll() is None

    def pause(self) -> None:
        """Pauses it."""
        self.request("pause")

    def resume(self) -> None:
        """Resumes it."""
        self.request("resume")

    def wait(self, timeout: float | None = None) -> dict[str, Any]:
        """Waits until it ends by itself; returns its report."""
        code = self.process.wait(timeout)
        if self.report is not None:
            return self.report
        with open(self._output.name, encoding="utf-8") as file:
            text = file.read()
        objects = _objects(text) if text.startswith("{") else []
        report: dict[str, Any] = json.loads(objects[-1]) if objects else {}
        self.report = report
        if code not in (DONE, LOST):
            raise ProgramError(f"holdall: {_sentence(self.log)}", code=code)
        return report

    def stop(self, timeout: float = 60.0) -> dict[str, Any]:
        """Stops it and waits for its end; returns its report."""
        if self.is_running:
            try:
                self.request("stop")
            except (OSError, ProgramError):
                self.process.terminate()
        return self.wait(timeout)

    def __enter__(self: _Program) -> _Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _drop(process: subprocess.Popen[bytes], what: str, owner: int) -> None:
    """Ends what was dropped, or still runs when the interpreter ends: it closes its bag when it is asked to."""
    # A forked process has it from its parent.
    if os.getpid() != owner or process.poll() is not None:
        return
    try:
        warnings.warn(f"{what} still ran: use `with`, or stop()", ResourceWarning, stacklevel=2)
    finally:
        # Also where warnings are errors.
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _moment(moment: Any) -> int | None:
    """A date, or seconds or nanoseconds since 1970, in nanoseconds."""
    if moment is None:
        return None
    nanos = time_ns(moment, 0)
    if nanos < _NANOSECONDS_MIN:
        raise ValueError(f"{moment!r} is not a date, nor seconds or nanoseconds since 1970")
    return nanos


class Recording(Running):
    """A recording. See :func:`record`."""

    def __init__(self, words: list[str], options: dict[str, Any], env: dict[str, str] | None) -> None:
        super().__init__("record", words, {"json": True, **options}, env)

    def split(self) -> None:
        """Continues in a new file."""
        self.request("split_bagfile")

    def mark(self, text: str) -> None:
        """Stores a marker at this moment."""
        self.request("add_marker", name=text)

    def start_episode(self, **fields: str) -> None:
        """Starts an episode: ``start_episode(task="pick cup", operator="ana")``. One runs at a time."""
        self.request("episode", **{**fields, "change": "start"})

    def stop_episode(self, outcome: str | None = None, *, discard: bool = False, **fields: str) -> None:
        """Ends the episode, with an outcome such as ``"success"``; one to discard is marked so, its messages stay in the bag."""
        known = {"outcome": outcome, **fields} if outcome is not None else fields
        self.request("episode", **{**known, "change": "discard" if discard else "stop"})

    def promote(
        self,
        output: AnyPath,
        start: int | float | str | dt.datetime | None = None,
        end: int | float | str | dt.datetime | None = None,
        *,
        topics: Sequence[str] | None = None,
        progress: Progress = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Copies a part of the ring (``ring="200GB"``) into a bag, and waits for it: ``promote("event", now - 30, now + 10)``.

        Times are dates, ISO texts, seconds or nanoseconds since 1970; None is the beginning or the end of what is recorded. The ring keeps the
        span from now on; one that ends later is copied then. Returns what was written; its ``note`` says what had expired before.
        """
        wanted = {"from": _moment(start), "to": _moment(end), "topics": None if topics is None else list(topics)}
        given = {name: value for name, value in wanted.items() if value is not None}
        number = self.request("promote", output=os.path.abspath(output), **given)["number"]
        deadline = None if timeout is None else time.monotonic() + timeout
        with shown(progress, "promote") as report:
            while True:
                copies = [copy for copy in self.status["promotions"] if copy["number"] == number]
                if not copies:
                    raise ProgramError(f"promote: {os.fspath(output)} is not among the copies any more")
                copy: dict[str, Any] = copies[0]
                if copy["state"] == "failed":
                    raise ProgramError(f"promote: {copy['error']}")
                if report:
                    report(round(copy["part"] * 1000), 1000)
                if copy["state"] == "done":
                    return copy
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(f"promote: {os.fspath(output)} is {copy['state']} after {timeout} s; it will be copied")
                time.sleep(_COPY_POLL_S)


class Playback(Running):
    """A playback. See :func:`play`."""

    def __init__(self, words: list[str], options: dict[str, Any], env: dict[str, str] | None) -> None:
        super().__init__("play", words, {"disable_keyboard_controls": True, **options}, env)

    def seek(self, seconds: float) -> None:
        """Continues at this many seconds after the beginning."""
        self.request("seek", time=seconds)

    def set_rate(self, rate: float) -> None:
        """Plays this many times as fast."""
        self.request("set_rate", rate=rate)
