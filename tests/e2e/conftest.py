"""Real nodes, the real program, own ROS domains: the fixtures of every end-to-end test."""

import contextlib
import fcntl
import itertools
import json
import os
import pty
import queue
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import imageio_ffmpeg
import pytest
from browser import PROGRAM, Browser
from buckets import Bucket

NODES = Path(__file__).resolve().parent.parent / "nodes"
DEFINITIONS = Path(__file__).resolve().parents[2] / "crates/holdall-model/data/definitions.txt"
# The interpreters with the nodes of each ROS 2; `make setup-nodes` installs them.
PYTHON = {"jazzy": sys.executable, "kilted": str(Path(sys.prefix) / "kilted" / "bin" / "python")}
HOLDALL = os.environ.get("HOLDALL_BIN", str(Path(__file__).resolve().parents[2] / "target" / "debug" / "holdall"))
DEADLINE_S = 60.0
# A node does more than one thing between two events: a flood, for example.
NODE_DEADLINE_S = 180.0
# How long a node that has reported everything may take to end.
NODE_END_S = 30.0
# A program that is started inherits what its starter ignores: `nohup` ignores SIGHUP, a shell without job control SIGINT in the background. A handler ends
# that for the programs of the tests, and the run itself still outlives its terminal.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)
# Domains 0..101 are safe with Linux's ephemeral ports; each test begins to look for a free one at another place.
_domains = itertools.count(os.getpid())


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """Names the tests that were skipped for a reason that skips.txt does not have."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):
        return
    lines = (Path(__file__).parent / "skips.txt").read_text().splitlines()
    expected = tuple(line for line in lines if line and not line.startswith("#"))
    skipped = [(report.nodeid, report.longrepr[2].removeprefix("Skipped: ")) for report in reporter.stats.get("skipped", [])]
    others = [f"{name} ({reason})" for name, reason in skipped if not reason.startswith(expected)]
    reporter.write_line(f"\nskipped: {len(skipped)}, for a reason that tests/e2e/skips.txt does not have: {', '.join(others) or 'none'}")
    if others and os.environ.get("HOLDALL_SKIPS") == "strict":
        # After 1, e2e.sh runs once more what failed; what was skipped must fail the run at once.
        session.exitstatus = 6


def take_domain():
    """A ROS domain that no other test on this network uses until the socket that is returned is closed: a name there, whatever TMPDIR a run has."""
    for place in itertools.islice(_domains, 100):
        number = 1 + place % 100
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f"\0holdall-test-domain-{number}")
            return number, lock
        except OSError:
            lock.close()
    raise AssertionError("all ROS domains are in use")


class Node:
    """A real rclpy node (talker or listener) that reports its events as JSON lines."""

    def __init__(self, script, plan, env, cwd=None, prefix=(), python=sys.executable):
        if python != sys.executable:
            # What the packages of this interpreter have set for itself.
            env = {name: value for name, value in env.items() if name not in ("LD_LIBRARY_PATH", "_ROS_WHEELS_BOOTSTRAP_COMPLETE")}
        self.process = subprocess.Popen(
            [*prefix, python, str(NODES / script), "-"], env=env, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.process.stdin.write(json.dumps(plan))
        self.process.stdin.close()
        self.told = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.told.put(json.loads(line))
        self.told.put(None)

    def wait_for(self, event, deadline_s=NODE_DEADLINE_S):
        """The next event of this name; a missing event fails the test instead of blocking the run for ever."""
        end = time.monotonic() + deadline_s
        while True:
            try:
                told = self.told.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"the node was not {event} within {deadline_s:.0f} s") from None
            assert told is not None, f"the node ended (exit {self.process.wait()}) before it was {event}"
            if told["event"] == event:
                return told

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def done(self):
        """What the node reports at its end. A node that then hangs while Fast DDS is taken down (seen once in thousands of runs) is ended."""
        told = self.wait_for("done")
        try:
            self.process.wait(NODE_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        return told


class Program:
    """The holdall program in the background, with all its output."""

    def __init__(self, arguments, env, stdin=subprocess.DEVNULL, program=(HOLDALL,), cwd=None):
        self.process = subprocess.Popen(
            [*program, *map(str, arguments)],
            env=env,
            cwd=cwd,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines = []
        self.changed = threading.Condition()
        self.threads = [threading.Thread(target=self._read, args=(s,), daemon=True) for s in (self.process.stdout, self.process.stderr)]
        for thread in self.threads:
            thread.start()

    def _read(self, stream):
        for line in stream:
            with self.changed:
                self.lines.append(line.rstrip("\n"))
                self.changed.notify_all()

    def wait_until_says(self, text, deadline_s=DEADLINE_S):
        end = time.monotonic() + deadline_s
        with self.changed:
            while not any(text in line for line in self.lines):
                left = end - time.monotonic()
                assert left > 0 and (self.process.poll() is None or self.changed.wait(1)), (
                    f"never said {text!r}; said:\n" + "\n".join(self.lines)
                )
                self.changed.wait(min(left, 1))

    def stop(self, number=signal.SIGINT):
        """Ends it as a user would and returns (exit code, all its output)."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.wait()

    def wait(self):
        code = self.process.wait(DEADLINE_S)
        for thread in self.threads:
            thread.join(DEADLINE_S)
        return code, "\n".join(self.lines)


class World:
    """A ROS domain of the test's own, and everything started in it."""

    def __init__(self, folder):
        self.folder = folder
        domain, self.domain_lock = take_domain()
        self.env = {
            **os.environ,
            "ROS_DOMAIN_ID": str(domain),
            "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
            "HOME": str(folder),
            "ROS_LOG_DIR": str(folder / "ros-log"),
        }
        self.env.pop("ROS_LOCALHOST_ONLY", None)
        self.started = []

    def _keep(self, thing):
        self.started.append(thing.process)
        return thing

    def talker(self, *publishers, ros="jazzy", **plan):
        return self._keep(Node("talker.py", {"publishers": list(publishers), **plan}, self.env, python=PYTHON[ros]))

    def listener(self, *subscriptions, ros="jazzy", **plan):
        return self._keep(Node("listener.py", {"subscriptions": list(subscriptions), **plan}, self.env, python=PYTHON[ros]))

    def events_listener(self, *subscriptions):
        return self._keep(Node("events_listener.py", {"subscriptions": list(subscriptions)}, self.env))

    def caller(self, client, *calls, **plan):
        """A node that calls services through rclpy (of Jazzy, or of Kilted) or cyclonedds."""
        python = PYTHON["kilted" if client == "kilted" else "jazzy"]
        client = "rclpy" if client == "kilted" else client
        plan = {"client": client, "definitions": str(DEFINITIONS), "calls": list(calls), **plan}
        return self._keep(Node("service_calls.py", plan, self.env, python=python))

    def calls(self, client, *calls, **plan):
        """Calls services; returns what was answered, in order."""
        node = self.caller(client, *calls, **plan)
        return [node.wait_for("answered") for _ in calls]

    def holdall(self, *arguments, **how):
        return self._keep(Program(arguments, self.env, **how))

    def program(self, command):
        """Another program in the background, with all its output."""
        return self._keep(Program((), self.env, program=command))

    def run(self, *arguments, timeout=DEADLINE_S):
        return subprocess.run(
            [HOLDALL, *map(str, arguments)], env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
        )

    def repair(self, bag):
        """Repairs a bag in place, or, where a torn header crosses a sector (one bag in some fifty), as a new one in its place."""
        done = self.run("repair", bag)
        if done.returncode == 2 and "repair it into a new bag" in done.stderr:
            new = bag.with_name(bag.name + "-repaired")
            done = self.run("repair", bag, "-o", new)
            shutil.rmtree(bag)
            new.rename(bag)
        return done

    def info(self, bag):
        told = self.run("info", "--json", bag)
        assert told.returncode == 0, told.stderr
        return json.loads(told.stdout)

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()
        self.domain_lock.close()
        remove_memory_for(self.folder)


def suspend(process):
    """Stops a program that was started here, and waits until it is stopped: under load its threads may run on for a while."""
    process.send_signal(signal.SIGSTOP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), status


def remove_memory_for(folder):
    """Removes what killed recorders left in shared memory for bags below a folder of a test."""
    needle = str(folder).encode()
    for file in Path("/dev/shm").glob("holdall-*"):
        with contextlib.suppress(OSError), open(file, "rb") as memory:
            # A living recorder has a lock.
            fcntl.flock(memory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if contains(memory, needle):
                file.unlink()


def contains(file, needle):
    """Whether a file, of which most may be holes, has these bytes."""
    end, at = file.seek(0, os.SEEK_END), 0
    while at < end:
        try:
            at = file.seek(at, os.SEEK_DATA)
        except OSError:
            return False
        if needle in file.read((1 << 20) + len(needle)):
            return True
        at += 1 << 20
    return False


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture
def ffmpeg(tmp_path, world):
    """The folder that is first in the PATH of the program, with the ffmpeg of the package imageio-ffmpeg."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "ffmpeg").symlink_to(imageio_ffmpeg.get_ffmpeg_exe())
    world.env["PATH"] = f"{programs}:{os.environ['PATH']}"
    return programs


class Terminal:
    """The program on a pseudo-terminal, as a person sees it."""

    def __init__(self, world, *arguments, ignored=(), columns=None):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            for number in ignored:
                signal.signal(number, signal.SIG_IGN)
            if columns:
                termios.tcsetwinsize(0, (24, columns))
            os.execve(HOLDALL, [HOLDALL, *map(str, arguments)], {**world.env, "TERM": "xterm-256color"})
        self.text = ""

    def wait_until_shows(self, text, deadline_s=DEADLINE_S, after=0):
        """Waits until `text` is among what came after the first `after` characters."""
        end = time.monotonic() + deadline_s
        while text not in self.text[after:]:
            assert time.monotonic() < end, f"never showed {text!r}; showed:\n{self.text}"
            self._read(0.2)

    def _read(self, wait_s):
        if select.select([self.fd], [], [], wait_s)[0]:
            try:
                self.text += os.read(self.fd, 65536).decode(errors="replace")
            except OSError:
                return False
        return True

    def read(self):
        """Takes what the program has written, waiting a moment for it."""
        self._read(0.1)

    @contextlib.contextmanager
    def stopped(self):
        """The program is stopped, and everything that it has written was read."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)
        while select.select([self.fd], [], [], 0)[0] and self._read(0):
            pass
        yield
        os.kill(self.pid, signal.SIGCONT)

    def resize(self, columns, rows=24):
        """The system sends SIGWINCH to the program."""
        termios.tcsetwinsize(self.fd, (rows, columns))

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def interrupt(self):
        os.kill(self.pid, signal.SIGINT)

    def hang_up(self):
        """The window is closed, or ssh ends: the terminal is gone."""
        os.close(self.fd)
        self.fd = None

    def exit_code(self, deadline_s=DEADLINE_S):
        """Waits for the end without reading the terminal."""
        end = time.monotonic() + deadline_s
        while not (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            assert time.monotonic() < end, "the program did not end"
            time.sleep(0.02)
        return os.waitstatus_to_exitcode(ended[1])

    def wait(self):
        while self._read(DEADLINE_S):
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                # What it wrote since the last reading is still in the terminal.
                while select.select([self.fd], [], [], 0)[0] and self._read(0):
                    pass
                return os.waitstatus_to_exitcode(status)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def terminal(world):
    opened = []

    def open_terminal(*arguments, **how):
        opened.append(Terminal(world, *arguments, **how))
        return opened[-1]

    yield open_terminal
    for one in opened:
        try:
            os.kill(one.pid, signal.SIGKILL)
            os.waitpid(one.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def messages_of(bag):
    """All messages of an MCAP bag as pip `mcap` reads them: topic -> list of payload bytes, in log-time order."""
    from mcap.reader import make_reader

    out = {}
    for path in sorted(Path(bag).glob("*.mcap"), key=lambda p: int(p.stem.rsplit("_", 1)[1])):
        with open(path, "rb") as stream:
            for _, channel, message in make_reader(stream, validate_crcs=True).iter_messages():
                out.setdefault(channel.topic, []).append(message.data)
    return out


def cdr_string(text):
    """A std_msgs/msg/String as it is on the wire: CDR, padded with zeros to a multiple of four as RTPS aligns it."""
    data = text.encode() + b"\0"
    return b"\0\1\0\0" + struct.pack("<I", len(data)) + data + bytes(-len(data) % 4)


def text_of(message):
    """The text in a serialized std_msgs/msg/String."""
    (length,) = struct.unpack_from("<I", message, 4)
    return message[8 : 8 + length - 1].decode()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium, for the tests of a file."""
    if PROGRAM is None:
        pytest.skip("needs Chromium")
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.end()


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """A bucket of a server that the tests of a file share."""
    bucket = Bucket(tmp_path_factory.mktemp("s3"))
    yield bucket
    bucket.close()


@pytest.fixture(autouse=True)
def no_faults(request):
    """Each test begins with a bucket without faults and without counted requests."""
    if "bucket" in request.fixturenames:
        bucket = request.getfixturevalue("bucket")
        bucket.proxy.fault = lambda *_: None
        bucket.proxy.before = lambda *_: None
        bucket.proxy.take()
