# pyright: basic, reportMissingImports=false
"""Actions and event handlers for ROS 2 launch files: :class:`Record`, :class:`Play`, what happens to them, and requests to them.

    lab = Record(uri="lab", all=True, max_bag_duration=60)
    return LaunchDescription([lab, RegisterEventHandler(OnLoss(target_action=lab, on_loss=[Shutdown()]))])

Needs the package ``launch`` of a ROS 2 installation (Humble or newer), and nothing else of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import tempfile
import weakref
from typing import Any, Callable, Iterable, Sequence

try:
    from launch.action import Action
    from launch.actions import EmitEvent, ExecuteLocal, LogInfo
    from launch.descriptions import Executable
    from launch.event import Event
    from launch.event_handler import BaseEventHandler
    from launch.event_handlers import OnProcessExit, OnProcessIO, OnProcessStart, OnShutdown
    from launch.events import matches_action
    from launch.events.process import SignalProcess
    from launch.substitution import Substitution
    from launch.utilities import normalize_to_list_of_substitutions, perform_substitutions
except ImportError as error:
    raise ImportError(f"holdall.launch needs the package launch of ROS 2: source an installation ({error})", name=error.name) from error

from ._errors import ProgramError
from ._program import SELECTING, folder_of_sockets, program

__all__ = ["Alarm", "Ended", "Lost", "OnAlarm", "OnEnd", "OnLoss", "OnSplit", "OnStart", "Play", "Record", "Request", "Split", "Started"]

# What launch gives to each process; all other keywords are flags of the program.
_OF_LAUNCH = frozenset({
    "additional_env", "cached_output", "condition", "cwd", "emulate_tty", "env", "log_cmd", "name", "on_exit", "output", "output_format", "prefix",
    "respawn", "respawn_delay", "respawn_max_retries", "shell", "sigkill_timeout", "sigterm_timeout",
})  # fmt: skip
_OUTPUTS = frozenset({"screen", "log", "both", "own_log", "full"})
# Flags of several words: one text of a launch argument, such as `topics:="/imu /scan"`, is all of them.
_SEVERAL = frozenset({
    "actions", "clock_topics", "exclude_actions", "exclude_services", "exclude_topic_types", "exclude_topics", "publisher", "remap",
    "repeat_transient_local", "separate", "services", "topic_compression", "topic_priority", "topic_throttle_frequency", "topic_types", "topics",
    "wait_for_subscribers",
})  # fmt: skip
# Bytes of the longest answer of the control socket.
_ANSWER_MAX = 64 << 20
# Bytes of the longest report.
_REPORT_MAX = 64 << 20
# A report is a JSON object of many lines, and only its last one begins so.
_REPORT_END = re.compile(rb"\n}\r?\n")
# Seconds between two checks of what the program does, and those that it may take to listen or to answer.
_PERIOD_S, _ANSWER_S = 0.5, 10.0
# Seconds that closing a bag may take before launch uses force; its own default is 5. A second signal abandons what is not yet written.
_CLOSE_S = "60"


class _Unanswered(ProgramError):
    """A request was sent, and no answer came."""


class _Happened(Event):  # type: ignore[misc]
    """Something that happened to a :class:`Record` or :class:`Play`."""

    def __init__(self, *, action: _Running) -> None:
        super().__init__()
        self.action = action


class Started(_Happened):
    """It listens for topics, or plays. ``status`` is what ``holdall control SOCKET status`` shows."""

    name = "holdall.launch.Started"

    def __init__(self, *, action: _Running, status: dict[str, Any]) -> None:
        super().__init__(action=action)
        self.status = status


class Split(_Happened):
    """It writes to a new file. Two splits within half a second are one event."""

    name = "holdall.launch.Split"

    def __init__(self, *, action: _Running, closed_file: str, opened_file: str) -> None:
        super().__init__(action=action)
        self.closed_file = closed_file
        self.opened_file = opened_file


class Lost(_Happened):
    """More messages were lost: ``lost`` since the last event, ``total`` since the start, ``topics`` since the last event by topic."""

    name = "holdall.launch.Lost"

    def __init__(self, *, action: _Running, lost: int, total: int, topics: dict[str, int]) -> None:
        super().__init__(action=action)
        self.lost = lost
        self.total = total
        self.topics = topics


class Alarm(_Happened):
    """An alarm began or ended: ``state`` is ``begin`` or ``end``, ``kind`` is ``silent``, ``rate``, ``loss``, ``disk``, ``end_unknown`` or
    ``contract``, ``topic`` is
    ``None`` for one about the whole recording, ``text`` is one clause, ``since_ns`` is when it began. One that is active at the end of a bag has no end."""

    name = "holdall.launch.Alarm"

    def __init__(self, *, action: _Running, state: str, kind: str, topic: str | None, text: str, since_ns: int) -> None:
        super().__init__(action=action)
        self.state = state
        self.kind = kind
        self.topic = topic
        self.text = text
        self.since_ns = since_ns


class Ended(_Happened):
    """The program has ended. ``returncode`` is 3 when messages are missing. ``reports`` are those of ``--json``, one for each bag: services may end a
    recording and begin the next one. ``report`` is the last one, empty if the program left none."""

    name = "holdall.launch.Ended"

    def __init__(self, *, action: _Running, returncode: int, reports: list[dict[str, Any]]) -> None:
        super().__init__(action=action)
        self.returncode = returncode
        self.reports = reports
        self.report = reports[-1] if reports else {}


class _On(BaseEventHandler):  # type: ignore[misc]
    """Calls a function, or runs actions, when an event of one action (or of any) happens."""

    def __init__(self, event: type[_Happened], target_action: _Running | None, then: Any, **kwargs: Any) -> None:
        if target_action is not None and not isinstance(target_action, _Running):
            raise TypeError(f"target_action must be a Record or a Play of holdall.launch, not {type(target_action).__name__}")
        super().__init__(matcher=lambda one: isinstance(one, event) and target_action in (None, one.action), **kwargs)
        self._event, self._then = event, then

    @property
    def handler_description(self) -> str:
        """What launch shows of it."""
        return repr(self._then) if callable(self._then) else "<actions>"

    @property
    def matcher_description(self) -> str:
        """What launch shows of its condition."""
        return f"event == {self._event.__name__}"

    def handle(self, event: Event, context: Any) -> Any:
        """Called by launch."""
        super().handle(event, context)
        return self._then(event, context) if callable(self._then) else self._then


class OnStart(_On):
    """Handles :class:`Started`."""

    def __init__(self, *, target_action: _Running | None = None, on_start: Any, **kwargs: Any) -> None:
        super().__init__(Started, target_action, on_start, **kwargs)


class OnSplit(_On):
    """Handles :class:`Split`."""

    def __init__(self, *, target_action: Record | None = None, on_split: Any, **kwargs: Any) -> None:
        super().__init__(Split, target_action, on_split, **kwargs)


class OnLoss(_On):
    """Handles :class:`Lost`."""

    def __init__(self, *, target_action: Record | None = None, on_loss: Any, **kwargs: Any) -> None:
        super().__init__(Lost, target_action, on_loss, **kwargs)


class OnAlarm(_On):
    """Handles :class:`Alarm`."""

    def __init__(self, *, target_action: Record | None = None, on_alarm: Any, **kwargs: Any) -> None:
        super().__init__(Alarm, target_action, on_alarm, **kwargs)


class OnEnd(_On):
    """Handles :class:`Ended`."""

    def __init__(self, *, target_action: _Running | None = None, on_end: Any, **kwargs: Any) -> None:
        super().__init__(Ended, target_action, on_end, **kwargs)


class _Program(Executable):  # type: ignore[misc]
    """The command line, made when launch arguments have their values: a flag whose value is empty or false is not in it."""

    def __init__(self, verb: str, flags: dict[str, Any], words: Sequence[Any], socket: Callable[[], str], **kwargs: Any) -> None:
        super().__init__(cmd=["holdall"], **kwargs)
        self._verb, self._flags, self._words, self._socket = verb, flags, words, socket
        self._final: list[str] = []

    def prepare(self, context: Any, action: Any) -> None:
        """Called by launch."""
        super().prepare(context, action)
        command = [program(), self._verb]
        named = {name: _words_of(context, name, value) for name, value in self._flags.items()}
        for flags in named.values():
            command += flags
        if self._verb == "record" and not any(named.get(name) for name in SELECTING):
            command.append("--all")
        command += ["--control-socket", self._socket()]
        words = [_text(context, word) for word in self._words]
        # A prefix, such as a debugger, is before the command.
        self._final = [*super().final_cmd[:-1], *command, *(["--", *words] if words else [])]

    @property
    def final_cmd(self) -> list[str]:
        """The command line."""
        return self._final


def _text(context: Any, value: Any) -> str:
    if isinstance(value, Substitution):
        value = [value]
    if isinstance(value, (list, tuple)):
        return str(perform_substitutions(context, normalize_to_list_of_substitutions([_plain(part) for part in value])))
    return str(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value if isinstance(value, (str, Substitution)) else str(value)


def _words_of(context: Any, name: str, value: Any) -> list[str]:
    """The flag ``name`` with its words; nothing if it is not wanted."""
    flag = "--" + name.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    if isinstance(value, Substitution):
        text = _text(context, value)
        if text.lower() in ("", "false", "true"):
            return [flag] if text.lower() == "true" else []
        return [f"{flag}={word}" for word in (text.split() if name in _SEVERAL else [text])]
    values = [_text(context, one) for one in value] if isinstance(value, (list, tuple)) else [_text(context, value)]
    return [f"{flag}={word}" for word in values]


class _Running(ExecuteLocal):  # type: ignore[misc]
    """The program as an action; it emits what happens to it."""

    def __init__(self, verb: str, flags: dict[str, Any], words: Sequence[Any] = ()) -> None:
        of_launch = {name: flags.pop(name) for name in sorted(_OF_LAUNCH & set(flags))}
        output = of_launch.pop("output", "screen")
        if isinstance(output, str) and output not in _OUTPUTS:
            raise ValueError(f"output={output!r} is where launch writes the log ({', '.join(sorted(_OUTPUTS))}); the bag is uri={output!r}")
        if isinstance(output, str):
            # The report is JSON: Ended has it, and one line of the log is the sum.
            output = {"stdout": "log", "stderr": output}
        own = {name: of_launch.pop(name) for name in ("name", "prefix", "cwd", "env", "additional_env") if name in of_launch}
        described = _Program(verb, {**flags, "json": True, "disable_keyboard_controls": True}, words, self._make_socket, **own)
        self._verb, self._folder, self._out = verb, "", bytearray()
        self._reports: list[dict[str, Any]] = []
        self._status: dict[str, Any] | None = None
        # Whether the bag of `_status` is closed, and whether launch has ended without a signal to the program.
        self._is_closed = self._has_no_signal = False
        self._follower: asyncio.Task[None] | None = None
        self._stopper: asyncio.Task[None] | None = None
        limits = {"sigterm_timeout": _CLOSE_S, "sigkill_timeout": _CLOSE_S}
        super().__init__(process_description=described, output=output, **{**limits, **of_launch})

    def _make_socket(self) -> str:
        """Where the program is to listen, each one that `respawn` starts: the folder stays as long as the action."""
        if not self._folder:
            self._folder = tempfile.mkdtemp(prefix="holdall-", dir=folder_of_sockets())
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._socket

    @property
    def _socket(self) -> str:
        return os.path.join(self._folder, "socket")

    def execute(self, context: Any) -> Any:
        """Called by launch."""
        def mine(action: Any) -> bool:
            return action is self

        for handler in (
            OnProcessStart(target_action=mine, on_start=self._begin),
            OnProcessIO(target_action=mine, on_stdout=self._keep),
            OnProcessExit(target_action=mine, on_exit=self._end),
            OnShutdown(on_shutdown=self._stop),
        ):
            context.register_event_handler(handler)
        return super().execute(context)

    def _begin(self, _event: Event, context: Any) -> None:
        self._out, self._reports, self._status, self._is_closed = bytearray(), [], None, False
        self._follower = context.asyncio_loop.create_task(self._follow(context))
        self._stop_if_running(context)

    def _stop(self, event: Any, context: Any) -> None:
        """Launch sends no signal after a Ctrl-C, which reaches the whole terminal; one that was sent to launch alone does not."""
        self._has_no_signal = event.due_to_sigint and not context.noninteractive
        self._stop_if_running(context)

    def _stop_if_running(self, context: Any) -> None:
        if self._has_no_signal and self._follower is not None:
            self._stopper = context.asyncio_loop.create_task(self._ask_to_stop(context))

    async def _ask_to_stop(self, context: Any) -> None:
        """Asks the program to end. One that cannot be asked gets the signal that launch did not send."""
        end = context.asyncio_loop.time() + _ANSWER_S
        while True:
            try:
                await self.request("stop")
                return
            except (FileNotFoundError, ConnectionRefusedError) as error:
                # It does not listen yet, waits for a service that begins the next bag, or closes its bag: then a signal would abandon that.
                is_closing = self._status is not None and not self._is_closed
                if is_closing or context.asyncio_loop.time() < end:
                    await asyncio.sleep(_PERIOD_S / 10)
                    continue
                reason: Exception = error
            except (asyncio.TimeoutError, ConnectionResetError, BrokenPipeError, ValueError, _Unanswered):
                # It was asked, and may close its bag, which a signal would abandon. Launch ends it when its time for that is over.
                return
            except (OSError, ProgramError) as error:
                reason = error
            break
        LogInfo(msg=f"holdall {self._verb}: cannot be asked to stop ({str(reason) or type(reason).__name__}), and gets SIGINT").execute(context)
        await context.emit_event(SignalProcess(signal_number=signal.SIGINT, process_matcher=matches_action(self)))

    def _keep(self, event: Any) -> list[Any]:
        """Takes each report that is whole."""
        actions: list[Any] = []
        known = max(0, len(self._out) - 3)
        self._out += event.text
        while end := _REPORT_END.search(self._out, known):
            text, known = bytes(self._out[: end.end()]), 0
            del self._out[: end.end()]
            actions += self._reported(text)
        if len(self._out) > _REPORT_MAX:
            self._out.clear()
        return actions

    def _reported(self, text: bytes) -> list[Any]:
        """The recording or playback of one bag has ended: what happened since the last look at it."""
        try:
            report = json.loads(text.decode(errors="replace"))
        except ValueError:
            return []
        self._reports.append(report)
        before, self._status, self._is_closed = self._status, self._last_status(report), True
        return [LogInfo(msg=self._summary(report)), *(EmitEvent(event=one) for one in self._events(before, self._status))]

    def _end(self, event: Any, _context: Any) -> list[Any]:
        for task in (self._follower, self._stopper):
            if task is not None:
                task.cancel()
        self._follower = self._stopper = None
        summary = [] if self._reports else [LogInfo(msg=f"holdall {self._verb}: ended with code {event.returncode}")]
        return [*summary, EmitEvent(event=Ended(action=self, returncode=event.returncode, reports=self._reports))]

    def _last_status(self, report: dict[str, Any]) -> dict[str, Any]:
        """A report as a status: what happened since the last look at it."""
        topics = {name: {"lost": topic.get("lost_by_stage", {})} for name, topic in report.get("topics", {}).items()}
        return {**report, "file": (report.get("files") or [None])[-1], "topics": topics} if self._verb == "record" else {}

    def _summary(self, report: dict[str, Any]) -> str:
        if self._verb == "play":
            return f"holdall play: {report.get('published', 0)} messages published"
        return f"holdall record: {report.get('message_count', 0)} messages, {report.get('lost', 0)} lost, {report.get('bag', '')}"

    async def request(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Sends a request to the program, as ``holdall control`` does; returns the answer."""
        if not self._folder:
            raise ProgramError(f"holdall {self._verb} has not been started")
        reader, writer = await asyncio.open_unix_connection(self._socket, limit=_ANSWER_MAX)
        try:
            writer.write((json.dumps({"request": name, **arguments}) + "\n").encode())
            line = await asyncio.wait_for(reader.readline(), _ANSWER_S)
        finally:
            writer.close()
        if not line:
            raise _Unanswered(f"holdall did not answer the request {name}")
        answer: dict[str, Any] = json.loads(line)
        if not answer.get("ok"):
            raise ProgramError(f"{name}: {answer.get('error')}")
        return answer

    async def _follow(self, context: Any) -> None:
        """Emits events as long as the program runs."""
        while True:
            try:
                status = (await self.request("status"))["status"]
            except (OSError, ValueError, ProgramError, asyncio.TimeoutError):
                # It does not listen yet, or does not any more.
                status = None
            # An answer may come after the report, which has more.
            if status is not None and not any(status.get("bag") == report.get("bag") for report in self._reports):
                before, self._status, self._is_closed = self._status, status, False
                for event in self._events(before, status):
                    await context.emit_event(event)
            await asyncio.sleep(_PERIOD_S if self._status else _PERIOD_S / 10)

    def _events(self, before: dict[str, Any] | None, status: dict[str, Any]) -> Iterable[_Happened]:
        """What happened between two statuses."""
        if before is None:
            yield Started(action=self, status=status)
        earlier: dict[str, Any] = before or {}
        if earlier.get("bag") == status.get("bag") and earlier.get("file") not in (None, status.get("file")):
            yield Split(action=self, closed_file=earlier["file"], opened_file=status.get("file") or "")
        # A recorder's node may begin another bag, with an account of its own.
        known = earlier if earlier.get("bag") == status.get("bag") else {}
        if isinstance(status.get("lost"), int) and status["lost"] > known.get("lost", 0):
            topics = {name: _sum(topic) - _sum(known.get("topics", {}).get(name, {})) for name, topic in status.get("topics", {}).items()}
            lost = status["lost"] - known.get("lost", 0)
            yield Lost(action=self, lost=lost, total=status["lost"], topics={name: count for name, count in topics.items() if count > 0})
        begun, over = _alarms(known)
        for key, alarm in _alarms(status)[0].items():
            about = {name: alarm[name] for name in ("kind", "topic", "text", "since_ns")}
            if key not in begun:
                yield Alarm(action=self, state="begin", **about)
            if alarm["until_ns"] is not None and key not in over:
                yield Alarm(action=self, state="end", **about)


def _alarms(status: dict[str, Any]) -> tuple[dict[Any, dict[str, Any]], set[Any]]:
    """The alarms of a status by what they are about and when they began, and those of them that are over."""
    alarms = status.get("alarms") or {}
    known = {(one["kind"], one["topic"], one["since_ns"]): one for one in [*alarms.get("ended", ()), *alarms.get("active", ())]}
    return known, {key for key, one in known.items() if one["until_ns"] is not None}


def _sum(topic: dict[str, Any]) -> int:
    return sum((topic.get("lost") or {}).values())


class Record(_Running):
    """Records; the keywords are the flags of ``holdall record``, which are those of ``ros2 bag record``, and what launch gives to a process.

    ``uri`` is the bag (``-o``); ``output`` is where launch writes the log, as for each of its actions. Any value may be a substitution; a flag
    whose value is then empty or ``false`` is left out. Without a selection everything is recorded.
    """

    def __init__(self, *, uri: Any = None, **options: Any) -> None:
        super().__init__("record", {"output_": uri, **options})


class Play(_Running):
    """Plays a bag; the keywords are the flags of ``holdall play``, which are those of ``ros2 bag play``, and what launch gives to a process."""

    def __init__(self, uri: Any, **options: Any) -> None:
        super().__init__("play", options, [uri])


class Request(Action):  # type: ignore[misc]
    """Sends a request to a :class:`Record` or :class:`Play`: ``Request(lab, "add_marker", name="goal reached")``.

    ``holdall control --help`` lists them. One that is refused is in the log.
    """

    def __init__(self, target_action: _Running, request: str, *, condition: Any = None, **arguments: Any) -> None:
        super().__init__(condition=condition)
        self._target, self._request, self._arguments = target_action, request, arguments
        self._sending: asyncio.Task[None] | None = None

    def execute(self, context: Any) -> None:
        """Called by launch."""
        arguments = {name: _text(context, value) if isinstance(value, Substitution) else value for name, value in self._arguments.items()}
        self._sending = context.asyncio_loop.create_task(self._send(context, arguments))

    async def _send(self, context: Any, arguments: dict[str, Any]) -> None:
        try:
            await self._target.request(self._request, **arguments)
        except (OSError, ValueError, ProgramError, asyncio.TimeoutError) as error:
            LogInfo(msg=f"holdall: the request {self._request} was not carried out: {error}").execute(context)
