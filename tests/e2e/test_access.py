"""Who may connect to what holdall opens, and what they may do: each row of the table in docs/security.md, tried by another user of this machine, by pages
of other sites in a real browser, and by clients that only occupy places."""

import contextlib
import http.server
import json
import os
import re
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from conftest import DEADLINE_S, HOLDALL, messages_of
from served import ask, ask_bytes, served, until
from test_foxglove import SUBPROTOCOLS, Viewer
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

STRING = "std_msgs/msg/String"
TEXT = b"\x00\x01\x00\x00\x03\x00\x00\x00hi\x00\x00"
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")


def as_nobody(script, *arguments):
    """The output of a Python script that another user runs, one that may read nothing of this one's."""
    # Only what every user can read: not the interpreter of the tests' environment.
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", script, *map(str, arguments)],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


GET = """
import http.client, json, os, sys
host, port, token, *lines = sys.argv[1:]
for line in lines:
    method, path = line.split(" ", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    headers = {"Content-Type": "application/json", **({"Authorization": "Bearer " + token} if token else {})}
    connection.request(method, path, body='{"bag": "lab", "to": "nodes"}' if method == "POST" else None, headers=headers)
    answer = connection.getresponse()
    print(json.dumps([os.getuid(), line, answer.status, len(answer.read())]))
"""


def got_by_nobody(address, lines, token=""):
    return [json.loads(line) for line in as_nobody(GET, *address, token, *lines).splitlines()]


@pytest.fixture(autouse=True)
def private_runtime(world):
    with tempfile.TemporaryDirectory(prefix="run", dir="/tmp", ignore_cleanup_errors=True) as runtime:
        world.env["XDG_RUNTIME_DIR"] = runtime
        world.env["TMPDIR"] = runtime
        yield


def recorded(world, name, topic="/chatter", storage="mcap"):
    """A bag of a few messages."""
    talker = world.talker({"topic": topic, "type": STRING, "count": 100, "rate_hz": 200, "qos": {"depth": 1000}})
    talker.wait_for("ready")
    recorder = world.holdall("record", "-s", storage, "--topics", topic, "-o", name)
    talker.done()
    code, said = recorder.stop()
    assert code == 0, said


@as_root
def test_another_user_gets_nothing_of_a_dashboard(world):
    recorder = world.holdall("record", "-a", "-o", world.folder / "bag", "--web", "127.0.0.1:0")
    address = served(recorder)
    reads = ["GET /", "GET /api/status", "GET /api/events", "GET /api/history", "GET /metrics"]
    for uid, line, status, _ in got_by_nobody(address, [*reads, "POST /api/pause", "POST /api/stop"]):
        assert (uid, status) == (NOBODY, 401), line
    # What it sends is a request that is answered when it has the token.
    assert [status for _, _, status, _ in got_by_nobody(address, ["GET /api/status"], address.token)] == [200]
    state = json.loads(ask(address, "GET", "/api/status")[1])["status"]
    assert state["recording"] and not state["paused"]
    code, said = recorder.stop()
    assert code == 0, said


@as_root
def test_another_user_gets_no_bag_of_a_folder_and_plays_none(world):
    folder = world.folder / "bags"
    folder.mkdir(mode=0o700)
    recorded(world, folder / "lab")
    web = world.holdall("web", folder, "127.0.0.1:0", "--foxglove", "127.0.0.1:0")
    address = served(web, "bags: ")
    until(lambda: json.loads(ask(address, "GET", "/api/bags")[1])["bags"], "the list")
    reads = ["GET /api/bags", "GET /api/info?bag=lab", "GET /api/download?bag=lab", "GET /api/download?bag=lab&file=lab_0.mcap", "GET /api/folder"]
    acts = ["POST /api/play", "POST /api/check", "POST /api/timeline", f"POST /running/{web.process.pid}/api/stop"]
    for uid, line, status, size in got_by_nobody(address, reads + acts):
        assert (uid, status) == (NOBODY, 401) and size < 200, line
    ((_, _, status, size),) = got_by_nobody(address, ["GET /api/download?bag=lab&file=lab_0.mcap"], address.token)
    assert (status, size) == (200, (folder / "lab" / "lab_0.mcap").stat().st_size)
    assert json.loads(ask(address, "GET", "/api/folder")[1])["playback"] is None
    assert web.stop()[0] == 0


# The begin of the answer to a viewer that connects, without a library that another user may not be able to read.
WATCH = """
import base64, os, socket, sys
def opened(address, path, name):
    client = socket.create_connection(address, timeout=30)
    key = base64.b64encode(os.urandom(16)).decode()
    client.sendall((f"GET {path} HTTP/1.1\\r\\nHost: {name}\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Key: {key}\\r\\n"
        "Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Protocol: foxglove.sdk.v1\\r\\n\\r\\n").encode())
    return client.recv(12).decode()
if len(sys.argv) == 4:
    host, port, path = sys.argv[1:]
    print(os.getuid(), opened((host, int(port)), path, host + ":" + port))
"""


def opened(address, path, name):
    scope = {}
    exec(WATCH.split("if len")[0], scope)
    return scope["opened"](tuple(address), path, name)


@as_root
@pytest.mark.parametrize("what", ["bridge", "record", "serve", "play"])
def test_another_user_gets_no_message_of_a_port_for_viewers(world, what):
    bag = world.folder / "bag"
    if what in ("serve", "play"):
        recorded(world, bag)
    arguments = {
        "bridge": ("bridge",),
        "record": ("record", "-a", "-o", bag),
        "serve": ("serve", bag),
        "play": ("play", bag, "--loop"),
    }[what]
    program = world.holdall(*arguments, "--foxglove", "127.0.0.1:0")
    address = served(program, "Foxglove: ")
    assert as_nobody(WATCH, *address, "/") == f"{NOBODY} HTTP/1.1 401\n"
    assert as_nobody(WATCH, *address, "/?token=" + "0" * 32) == f"{NOBODY} HTTP/1.1 401\n"
    assert as_nobody(WATCH, *address, f"/?token={address.token}") == f"{NOBODY} HTTP/1.1 101\n"
    program.stop()


KNOCK = """
import os, socket, sys
for path in sys.argv[1:]:
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect(path)
        print("connected to", path)
    except PermissionError:
        print("refused")
"""


@as_root
def test_another_user_cannot_reach_a_control_socket_or_the_memory_of_a_recording(world):
    os.chmod(world.folder, 0o755)
    control = Path(tempfile.mkdtemp(prefix="control", dir="/tmp"))
    os.chmod(control, 0o755)
    before = set(Path("/dev/shm").glob("holdall-*"))
    recorder = world.holdall("record", "-a", "-o", world.folder / "bag", "--control-socket", control / "s")
    recorder.wait_until_says("Listening")
    (running,) = until(lambda: list(Path(world.env["XDG_RUNTIME_DIR"], "holdall").glob("*.sock")), "the socket of what runs")
    assert as_nobody(KNOCK, control / "s", running) == "refused\nrefused\n"
    assert stat.S_IMODE((control / "s").stat().st_mode) == 0o600
    assert stat.S_IMODE(running.parent.stat().st_mode) == 0o700
    # The simulator, which may run beside, has a folder of its own there.
    memory = until(lambda: set(Path("/dev/shm").glob("holdall-*")) - before - set(Path("/dev/shm").glob("holdall-sim-*")), "the memory that survives the recorder")
    for file in memory:
        with contextlib.suppress(FileNotFoundError):
            assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file
    assert json.loads(world.run("control", control / "s", "status").stdout)["ok"]
    code, said = recorder.stop()
    assert code == 0, said
    control.rmdir()


def test_a_viewer_only_watches_until_control_is_asked_for(world):
    recorder = world.holdall("record", "-a", "-o", world.folder / "bag", "--foxglove", "127.0.0.1:0")
    recorder.wait_until_says("viewers only watch")
    address = served(recorder, "Foxglove: ")
    listener = world.listener({"topic": "/goal", "type": STRING}, expect={"/goal": 1})
    talker = world.talker({"topic": "/chatter", "type": STRING, "count": None, "rate_hz": 50}, node="talking")
    listener.wait_for("ready")
    talker.wait_for("ready")
    seen = Viewer(address.link)
    assert seen.info["capabilities"] == ["connectionGraph"], seen.info
    seen.take("/chatter")
    seen.until(lambda: len(seen.payloads("/chatter")) > 10, "messages, which it may watch")
    seen.request(op="advertise", channels=[{"id": 7, "topic": "/goal", "encoding": "cdr", "schemaName": STRING}])
    seen.request(op="setParameters", parameters=[{"name": "/talking.use_sim_time", "value": True}], id="set")
    seen.request(op="getParameters", parameterNames=[], id="get")
    seen.request(op="subscribeParameterUpdates", parameterNames=[])
    # Numbers of services are small; none was advertised.
    failures = []
    for number in range(1, 60):
        seen.socket.send(struct.pack("<BIII", 2, number, number, 3) + b"cdr" + b"\x00\x01\x00\x00\x00")
    for _ in range(20):
        seen.socket.send(struct.pack("<BI", 1, 7) + TEXT)
    end = time.monotonic() + DEADLINE_S
    while len(failures) < 59:
        assert time.monotonic() < end, "not every call was refused"
        got = seen.socket.recv(timeout=DEADLINE_S)
        if isinstance(got, str):
            told = json.loads(got)
            assert told["op"] not in ("advertiseServices", "parameterValues"), told
            if told["op"] == "serviceCallFailure":
                failures.append(told["callId"])
            if told["op"] == "status":
                seen.statuses.append(told)
    assert all("viewers only watch" in status["message"] for status in seen.statuses[:4]), seen.statuses
    # The recorder is not paused, the parameter is not changed, and nothing was published.
    value = world.calls("rclpy", {"service": "/rosbag2_recorder/is_paused", "type": "rosbag2_interfaces/srv/IsPaused", "request": {}})[0]
    assert "true" not in json.dumps(value).lower().replace('"ok": true', ""), value
    assert listener.told.empty(), "the listener heard the viewer"
    seen.socket.close()
    code, said = recorder.stop()
    assert code == 0, said
    assert "/goal" not in messages_of(world.folder / "bag")


class Site:
    """A web server of another site, with one page; what the page reports comes back."""

    def __init__(self):
        self.reports, self.pages = reports, pages = [], {}

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                if self.path.startswith("/report?"):
                    reports.append(self.path.split("?", 1)[1])
                text = pages.get(self.path, "").encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.port = self.server.server_address[1]

    def page(self, host, path, text):
        self.pages[path] = text
        return f"http://{host}:{self.port}{path}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def site():
    opened = Site()
    yield opened
    opened.close()


# A page that connects to a port for viewers, and publishes /cmd_vel when it can.
DRIVE = """
const w = new WebSocket(LINK, ["foxglove.sdk.v1"]); w.binaryType = "arraybuffer"; let opened = false;
w.onopen = () => { opened = true; w.send(JSON.stringify({op: "advertise", channels: [{id: 1, topic: "/cmd_vel", encoding: "cdr", schemaName: "std_msgs/msg/String"}]}));
  w.send(new Uint8Array([1, 1, 0, 0, 0, 0, 1, 0, 0, 3, 0, 0, 0, 104, 105, 0, 0])); };
w.onmessage = m => { report("open " + self.origin); };
w.onclose = () => { if (!opened) report("refused " + self.origin); };
"""


def test_no_page_of_another_site_gets_a_port_for_viewers(world, browser, site, tmp_path):
    allowed = f"http://localhost:{site.port}"
    bridge = world.holdall("bridge", "--foxglove", "127.0.0.1:0", "--foxglove-control", "--foxglove-origin", allowed)
    address = served(bridge, "Foxglove: ")
    listener = world.listener({"topic": "/cmd_vel", "type": STRING}, expect={"/cmd_vel": 1})
    listener.wait_for("ready")

    def tries(host, link, sandboxed):
        """What a page from this host reports that connects to `link`."""
        site.reports.clear()
        script = DRIVE.replace("LINK", json.dumps(link))
        if sandboxed:
            inner = f"<script>const report = t => parent.postMessage(t, '*');{script}</script>".replace('"', "&quot;")
            text = f'<iframe sandbox="allow-scripts" srcdoc="{inner}"></iframe><script>onmessage = e => fetch("/report?" + e.data)</script>'
        else:
            text = f"<script>const report = t => fetch('/report?' + t);{script}</script>"
        browser.open(site.page(host, "/", text))
        return until(lambda: site.reports, f"a report of the page at {host}")[0]

    # Even one that has the token: a sandboxed frame of any site, and pages of addresses, are no viewers.
    for link in (address.root, address.link):
        assert tries("127.0.0.1", link, True) == "refused%20null"
        assert tries("localhost", link, True) == "refused%20null"
        assert tries("127.0.0.1", link, False).startswith("refused")
    assert tries("localhost", address.root, False).startswith("refused"), "the named page has no token"
    assert listener.told.empty()
    bridge.wait_until_says('a page of "null" wanted to connect as a viewer')
    # A page whose origin the user has named, with the token: what is refused above works here.
    assert tries("localhost", address.link, False).startswith("open")
    until(lambda: tries("localhost", address.link, False) and not listener.told.empty(), "a message of the named page")
    listener.done()
    assert bridge.stop()[0] == 0


def test_a_page_of_a_file_is_no_viewer_in_a_browser(world, browser, tmp_path):
    """A downloaded page: browsers send the origin `null` for it. The desktop programs, whose pages are files too, send `file://`."""
    bridge = world.holdall("bridge", "--foxglove", "127.0.0.1:0")
    address = served(bridge, "Foxglove: ")
    for link in (address.root, address.link):
        page = tmp_path / "page.html"
        page.write_text(f"<script>let said = null; const report = t => said ??= t;{DRIVE.replace('LINK', json.dumps(link))}</script>")
        browser.open(page.as_uri())
        assert until(lambda: browser.script("said"), "what became of the connection") == "refused null"
    desktop = Viewer(address.link, origin="file://")
    desktop.socket.close()
    assert bridge.stop()[0] == 0


def test_no_page_of_another_site_steers_a_recording_whose_page_is_open(world, browser, site):
    recorder = world.holdall("record", "-a", "-o", world.folder / "bag", "--web", "127.0.0.1:0")
    address = served(recorder)
    # The browser has the cookie from now on.
    browser.open(address.link)
    until(lambda: "recording" in browser.script("document.getElementById('state').textContent"), "the page")
    assert "token" not in browser.script("location.href")
    attacks = f"""
      const to = {json.dumps(address.root)}, tries = [];
      for (const mode of ["no-cors", "cors"]) for (const type of ["text/plain", "application/json"])
        tries.push(fetch(to + "api/stop", {{method: "POST", mode, credentials: "include", headers: {{"Content-Type": type}}, body: "{{}}"}}));
      tries.push(fetch(to + "api/status", {{credentials: "include"}}).then(r => r.text()).then(t => fetch("/report?read " + t.slice(0, 20))));
      const form = document.createElement("form"); form.method = "post"; form.action = to + "api/stop"; form.target = "f"; form.enctype = "text/plain";
      const field = document.createElement("input"); field.name = '{{"a":"'; field.value = '"}}'; form.append(field);
      const frame = document.createElement("iframe"); frame.name = "f"; document.body.append(form, frame); form.submit();
      const script = document.createElement("script"); script.src = to + "api/status"; document.body.append(script);
      Promise.allSettled(tries).then(() => fetch("/report?done"));"""
    for host in ("127.0.0.1", "localhost"):
        site.reports.clear()
        browser.open(site.page(host, "/", f"<body><script>{attacks}</script>"))
        until(lambda: "done" in site.reports, "the end of the attacks")
        assert site.reports == ["done"], site.reports
    state = json.loads(ask(address, "GET", "/api/status")[1])["status"]
    assert state["recording"] and not state["paused"]
    # A link on another page leads to the page: it is one click, and does nothing by itself.
    browser.open(address.root)
    code, said = recorder.stop()
    assert code == 0, said


def listening(process):
    """The TCP addresses that a process listens on, and its Unix sockets that have a name."""
    owned = set()
    for number in os.listdir(f"/proc/{process}/fd"):
        with contextlib.suppress(OSError):
            owned |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(f"/proc/{process}/fd/{number}")))
    tcp = []
    for table in ("tcp", "tcp6"):
        for fields in map(str.split, Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]):
            if fields[3] == "0A" and fields[9] in owned:
                tcp.append(fields[1])
    unix = [line.split() for line in Path(f"/proc/{process}/net/unix").read_text().splitlines()[1:]]
    return tcp, [fields[7] for fields in unix if fields[6] in owned and len(fields) > 7]


def test_a_recorder_listens_on_nothing_that_was_not_asked_for(world):
    plain = world.holdall("record", "-a", "-o", world.folder / "plain")
    asked = world.holdall("record", "-a", "-o", world.folder / "asked", "--web", "127.0.0.1:0", "--foxglove", "127.0.0.1:0")
    ports = {served(asked)[1], served(asked, "Foxglove: ")[1]}
    plain.wait_until_says("Listening for topics")
    found, sockets = until(lambda: (found := listening(plain.process.pid))[1] and found, "the socket of what runs")
    assert found == []
    # Bound in a folder that only this user can enter, and moved from there.
    assert all(name.startswith(world.env["XDG_RUNTIME_DIR"]) for name in sockets), sockets
    found, _ = listening(asked.process.pid)
    assert {int(address.split(":")[1], 16) for address in found} == ports
    assert all(address.startswith("0100007F:") for address in found), "on the loopback address only"
    for program in (plain, asked):
        code, said = program.stop()
        assert code == 0, said


def test_over_zenoh_a_recorder_listens_on_this_machine_only(world):
    recorder = world.holdall("record", "-a", "--transport", "zenoh", "-o", world.folder / "bag")
    recorder.wait_until_says("Listening for topics")
    found, _ = until(lambda: (found := listening(recorder.process.pid))[0] and found, "the port of Zenoh")
    # 127.0.0.1 and ::1, as the kernel writes them.
    assert all(address.split(":")[0] in ("0100007F", "00000000000000000000000001000000") for address in found), found
    code, said = recorder.stop()
    assert code == 0, said


def test_silent_connections_keep_neither_browsers_nor_viewers_out(world):
    recorder = world.holdall("record", "-a", "-o", world.folder / "bag", "--web", "127.0.0.1:0", "--foxglove", "127.0.0.1:0")
    page, port = served(recorder), served(recorder, "Foxglove: ")
    silent = []
    for address in (page, port):
        for _ in range(200):
            client = socket.create_connection(address, timeout=DEADLINE_S)
            client.setblocking(False)
            silent.append(client)
    for _ in range(12):
        for client in silent:
            with contextlib.suppress(OSError):
                client.send(b"G")
        assert ask(page, "GET", "/api/status")[0] == 200
        viewer = Viewer(port.link)
        viewer.socket.close()
    for client in silent:
        client.close()
    code, said = recorder.stop()
    assert code == 0, said


def test_a_token_file_keeps_links_and_prometheus_gets_metrics_with_it(world):
    token = world.folder / "token"
    links = set()
    for number in range(2):
        recorder = world.holdall("record", "-a", "-o", world.folder / f"bag{number}", "--web", "127.0.0.1:0", "--token-file", token)
        address = served(recorder)
        links.add(address.token)
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert address.token == token.read_text().strip()
        assert ask(address, "GET", "/metrics", token=False)[0] == 401
        # As Prometheus sends `authorization: credentials_file`, and as `params: token`.
        code, text = ask(address, "GET", "/metrics")
        assert code == 200 and "holdall_" in text
        assert ask(address, "GET", f"/metrics?token={address.token}", token=False)[0] == 200
        code, said = recorder.stop()
        assert code == 0, said
    assert len(links) == 1
    token.chmod(0o644)
    refused = world.run("record", "-a", "-o", world.folder / "bag3", "--web", "127.0.0.1:0", "--token-file", token)
    assert refused.returncode == 2 and "other users can read" in refused.stderr, refused.stderr
    assert not (world.folder / "bag3").exists()


def test_a_name_that_leads_to_this_machine_is_no_way_around_the_token(world):
    """DNS that is bound anew: the browser believes that it talks to evil.example."""
    recorder = world.holdall("record", "-a", "-o", world.folder / "bag", "--web", "127.0.0.1:0", "--foxglove", "127.0.0.1:0")
    page, port = served(recorder), served(recorder, "Foxglove: ")
    for token in (False, True):
        assert ask(page, "GET", "/api/status", headers={"Host": f"evil.example:{page[1]}"}, token=token)[0] == 403
    # This adds a second one.
    with pytest.raises(InvalidStatus) as refused:
        connect(port.link, subprotocols=SUBPROTOCOLS, additional_headers={"Host": "evil.example"}, open_timeout=DEADLINE_S)
    assert refused.value.response.status_code == 400
    for name, status in ((f"evil.example:{port[1]}", 403), (f"localhost:{port[1]}", 101)):
        assert opened(port, f"/?token={port.token}", name) == f"HTTP/1.1 {status}"
    code, said = recorder.stop()
    assert code == 0, said


@pytest.mark.parametrize("storage, end", [("mcap", "mcap"), ("sqlite3", "db3")])
def test_a_bag_with_a_link_deep_in_it_shows_nothing_of_what_it_leads_to(world, storage, end):
    folder = world.folder / "bags"
    folder.mkdir()
    recorded(world, folder / "lab", storage=storage)
    recorded(world, world.folder / "secret", "/hidden", storage)
    secret = world.folder / "secret" / f"secret_0.{end}"
    deep = folder / "deep"
    (deep / "a/b/c/d/e").mkdir(parents=True)
    (deep / f"a/b/c/d/e/x.{end}").symlink_to(secret)
    text = (folder / "lab" / "metadata.yaml").read_text()
    (deep / "metadata.yaml").write_text(text.replace(f"lab_0.{end}", f"a/b/c/d/e/x.{end}"))
    web = world.holdall("web", folder, "127.0.0.1:0", "--foxglove", "127.0.0.1:0")
    address = served(web, "bags: ")
    bags = until(lambda: (found := json.loads(ask(address, "GET", "/api/bags")[1])["bags"]) and len(found) == 2 and found, "the list")
    assert {bag["name"]: bag["state"] for bag in bags} == {"deep": "unreadable", "lab": "complete"}

    def asked(bag):
        answers = [ask(address, "GET", f"/api/info?bag={bag}")[1], ask(address, "POST", "/api/play", {"bag": bag, "to": "viewers"})[1]]
        for path in ("/api/timeline", "/api/check"):
            done = until(lambda: "part" not in (answer := json.loads(ask(address, "POST", path, {"bag": bag})[1])) and answer, path)
            answers.append(json.dumps(done))
        return answers

    info, playing, timeline, check = map(json.loads, asked("lab"))
    assert info["info"]["message_count"] == 100 and playing["ok"], "the bag itself is read"
    assert timeline["result"]["lanes"][0]["messages"] == 100 and check["result"]["sound"]
    for answer in asked("deep"):
        assert "/hidden" not in answer and '"sound": true' not in answer and "messages" not in json.loads(answer), answer
    assert ask_bytes(address, "GET", f"/api/download?bag=deep&file=a/b/c/d/e/x.{end}")[0] in (403, 404)
    assert web.stop()[0] == 0


def of_recorder(name, kind, **request):
    return {"service": f"/rosbag2_recorder/{name}", "type": f"rosbag2_interfaces/srv/{kind}", "request": request}


def test_services_make_bags_beside_the_first_one_only(world):
    bags, outside = world.folder / "bags", world.folder / "outside"
    for folder in (bags, outside, bags / "day"):
        folder.mkdir()
    (bags / "link").symlink_to(outside)
    asked = []

    class Inside(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Inside)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    refused = [
        str(outside / "bag"),
        str(bags / ".." / "outside" / "bag"),
        str(bags / "link" / "bag"),
        str(bags / "link" / ".." / "bag"),
        str(bags / ".hidden" / "bag"),
        str(bags / "line\nbreak"),
        str(bags) + "/a" * 50,
        "/dev/shm/bag",
        "/proc/self/bag",
        f"http://127.0.0.1:{server.server_address[1]}/internal?x=1",
        "s3://bucket/bag",
        "file:///tmp/bag",
        "bag-of-the-working-folder",
    ]
    recorder = world.holdall("record", "-a", "-o", bags / "first")
    recorder.wait_until_says("Listening for topics...")
    calls = [of_recorder("record", "Record", uri=uri) for uri in [*refused, str(bags / "day" / "second")]]
    answers = world.calls("rclpy", of_recorder("stop", "Stop"), *calls, of_recorder("get_uri", "GetUri"))
    replies = [answer["reply"] for answer in answers]
    for uri, reply in zip(refused, replies[1:], strict=False):
        assert reply["return_code"] != 0 and reply["error_string"], (uri, reply)
        assert str(bags) in reply["error_string"] or "URL" in reply["error_string"], (uri, reply)
    assert replies[-2]["return_code"] == 0 and replies[-1] == {"uri": str(bags / "day" / "second")}, replies
    assert recorder.stop()[0] in (0, 3)
    server.shutdown()
    server.server_close()
    assert asked == [], "a URL was asked for"
    assert not list(outside.iterdir()) and sorted(path.name for path in bags.iterdir()) == ["day", "first", "link"]
    # Where its user allows it.
    recorder = world.holdall("record", "-a", "-o", bags / "third", "--allow-paths")
    recorder.wait_until_says("Listening for topics...")
    answers = world.calls("rclpy", of_recorder("stop", "Stop"), of_recorder("record", "Record", uri=str(outside / "bag")))
    assert answers[-1]["reply"]["return_code"] == 0, answers
    assert recorder.stop()[0] in (0, 3) and (outside / "bag" / "metadata.yaml").exists()


def test_without_services_no_node_can_stop_a_recording(world):
    recorder = world.holdall("record", "-a", "-o", world.folder / "bag", "--no-services", "--node-name", "lonely")
    recorder.wait_until_says("Listening for topics...")
    talker = world.talker({"topic": "/chatter", "type": STRING, "count": None, "rate_hz": 50})
    recorder.wait_until_says("recording /chatter")
    (answer,) = world.calls("rclpy", {**of_recorder("stop", "Stop"), "service": "/lonely/stop"})
    assert not answer["there"] and answer["answered"] == 0, answer
    assert recorder.process.poll() is None
    talker.interrupt()
    assert recorder.stop()[0] == 0


def killed(world, name, *flags):
    """A recording that is killed, with messages in memory that are not stored."""
    talker = world.talker({"topic": "/kept", "type": STRING, "count": None, "rate_hz": 100})
    talker.wait_for("ready")
    recorder = world.holdall("record", "--topics", "/kept", "-o", world.folder / name, "--max-loss-window", "600", *flags)
    recorder.wait_until_says("recording /kept")
    talker.wait_for("matched")
    before = time.monotonic()
    until(lambda: time.monotonic() > before + 1, "a second of messages")
    recorder.process.send_signal(signal.SIGKILL)
    recorder.wait()
    talker.interrupt()
    return world.folder / name


def advice(world, name, *flags, prefix=()):
    """The lines of a recorder that starts which are about memory of others."""
    recorder = world.program([*prefix, *map(str, (HOLDALL, "record", "-a", "-o", world.folder / name, *flags))])
    recorder.wait_until_says("Listening for topics...")
    code, said = recorder.stop()
    assert code in (0, 3), said
    return [line for line in said.splitlines() if "killed recording" in line]


@as_root
def test_a_recorder_in_another_container_advises_nothing_about_bags_that_it_cannot_see(world):
    """/dev/shm is shared, as with `--ipc=host`; the folder of the bags is not."""
    memory_folder, elsewhere = world.folder / "shm", world.folder / "bags"
    memory_folder.mkdir()
    elsewhere.mkdir()
    shared = ("--rescue-directory", memory_folder)
    bag = killed(world, "bags/lost", *shared)
    inside = ("unshare", "-m", "sh", "-c", f'mount -t tmpfs none "{elsewhere}" && exec "$0" "$@"')
    kept = {file.name for file in memory_folder.iterdir()}
    assert kept
    assert advice(world, "bags/other", *shared, prefix=inside) == []
    assert {file.name for file in memory_folder.iterdir()} == kept
    # Where it can be seen, one short line about the repair; `rm` only from where the recorder saw its bag, too.
    (line,) = advice(world, "first", *shared)
    assert f"holdall repair {bag}" in line and "rm " not in line and len(line) < 200 + len(str(bag)), line
    moved = world.folder / "moved"
    bag.rename(moved)
    (line,) = advice(world, "second", *shared)
    assert f"rm {memory_folder}/holdall-" in line and len(line) < 300 + len(str(bag)), line
    assert advice(world, "bags/third", *shared, prefix=inside) == []
    assert world.run("repair", moved).returncode == 0
    assert not list(memory_folder.iterdir()) and advice(world, "third", *shared) == []


@as_root
def test_a_recorder_says_nothing_about_the_memory_of_another_user(world):
    bag = killed(world, "lost")
    pointer = json.loads((bag / ".holdall-rescue.json").read_text())
    memory = Path(pointer["path"])
    os.chown(memory, NOBODY, NOBODY)
    bag.rename(world.folder / "moved")
    assert not any(memory.name in line for line in advice(world, "first"))
    assert memory.exists()
    memory.unlink()
