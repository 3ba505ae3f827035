"""A headless Chromium by its debugging pipe: enough of a browser to read, press keys in, and photograph a page."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time

DEADLINE_S = 60.0
PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def _above_those(descriptor):
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


class Browser:
    """One page in one process. Messages are JSON that ends with a zero byte: to descriptor 3, from descriptor 4."""

    def __init__(self, folder):
        # The descriptors get their numbers in the child only, and are not among these before.
        down, self._write, self._read, up = (_above_those(end) for end in (*os.pipe(), *os.pipe()))
        mapped = f'exec "$@" 3<&{down} 4>&{up} {down}<&- {up}>&-'
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={folder}"]
        self.process = subprocess.Popen(
            ["bash", "-c", mapped, "browser", PROGRAM, *flags, "about:blank"], pass_fds=(down, up), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(down)
        os.close(up)
        self._buffer, self._number, self.events, self._session = b"", 0, [], None
        (page,) = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def _message(self):
        deadline = time.monotonic() + DEADLINE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser did not answer in time"
            some = os.read(self._read, 1 << 20)
            assert some, f"the browser ended (exit {self.process.wait(DEADLINE_S)})"
            self._buffer += some
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            request["sessionId"] = self._session
        os.write(self._write, json.dumps(request).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self._number:
                assert "error" not in message, (method, message["error"])
                return message["result"]
            self.events.append(message)

    def open(self, address):
        self.events.clear()
        self.call("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message())

    def script(self, text):
        """The value of an expression, as JSON carries it."""
        told = self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def press(self, key):
        code = {"Tab": 9, "Enter": 13, " ": 32, "ArrowRight": 39}[key]
        text = {"Enter": "\r", " ": " "}.get(key, "")
        about = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **about)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def look(self, width, height, scheme, is_phone=False):
        """A window of this size, light or dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def photograph(self, path, whole=True):
        told = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(told["data"]))

    def end(self):
        os.close(self._write)
        os.close(self._read)
        self.process.terminate()
        self.process.wait(DEADLINE_S)
