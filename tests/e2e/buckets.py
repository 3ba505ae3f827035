"""S3 on this computer for tests: the real server of moto, and a proxy of ours before it that counts, delays, fails and truncates."""

import http.client
import os
import socket
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

VENV = Path(os.environ.get("HOLDALL_VENV") or Path(__file__).resolve().parents[2] / ".venv")
SERVER = VENV / "moto" / "bin" / "moto_server"
SECRET = "the/Secret+Of-These-Tests0123456789abcdef"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Proxy:
    """Passes requests on to the server. `fault(number, handler)` returns None, "fail", "late", "truncate", "cut", or a status, a text and perhaps headers to answer."""

    def __init__(self, port):
        self.requests = []  # (method, path, bytes received, bytes sent)
        self.fault = lambda number, handler: None
        self.before = lambda handler: None
        self.lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def log_message(self, *_):
                pass

            def serve(self):
                expected = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(expected)
                if len(body) < expected:
                    self.close_connection = True  # A client that was killed.
                    return
                with proxy.lock:
                    number = len(proxy.requests)
                    proxy.requests.append(None)
                proxy.before(self)
                fault = proxy.fault(number, self)
                if fault == "late":
                    time.sleep(0.3)  # It is what the fault is.
                if isinstance(fault, tuple):
                    status, text, *headers = fault
                    proxy.requests[number] = (self.command, self.path, len(body), 0)
                    self.send_response(status)
                    self.send_header("Content-Type", "application/xml")
                    for name, value in headers[0].items() if headers else ():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    if self.command != "HEAD":
                        self.wfile.write(text.encode())
                    return
                if fault == "fail":
                    proxy.requests[number] = (self.command, self.path, len(body), 0)
                    self.send_response(503)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                if fault == "cut":
                    # The server does it, but the answer is lost.
                    self.pass_on(body)
                    proxy.requests[number] = (self.command, self.path, len(body), 0)
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                answer, content = self.pass_on(body)
                proxy.requests[number] = (self.command, self.path, len(body), len(content))
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server"):
                        self.send_header(name, value)
                length = len(content) if self.command != "HEAD" else answer.getheader("Content-Length") or 0
                self.send_header("Content-Length", str(length))
                self.end_headers()
                if fault == "truncate" and self.command == "GET" and len(content) > 1:
                    self.wfile.write(content[: len(content) // 2])
                    self.wfile.flush()
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                if self.command != "HEAD":
                    self.wfile.write(content)

            def pass_on(self, body):
                upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
                upstream.request(self.command, self.path, body=body, headers=headers)
                answer = upstream.getresponse()
                content = answer.read()
                upstream.close()
                return answer, content

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = serve

            def handle(self):
                try:
                    super().handle()
                except (ConnectionError, OSError):
                    pass  # A client that was killed.

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self):
        """The requests since the last call that are answered."""
        with self.lock:
            taken = [request for request in self.requests if request]
            self.requests.clear()
        return taken

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Bucket:
    """A service with one bucket."""

    def __init__(self, folder, name="fleet"):
        self.name = name
        port = free_port()
        # Its own credentials are never asked for: nothing leaves the machine.
        self.log = open(Path(folder) / "moto.log", "wb")
        self.server = subprocess.Popen([SERVER, "-H", "127.0.0.1", "-p", str(port)], stdout=self.log, stderr=self.log)
        self.direct = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 180
        while True:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
                connection.request("PUT", f"/{name}")
                assert connection.getresponse().status == 200
                break
            except OSError:
                if self.server.poll() is not None or time.monotonic() > deadline:
                    self.server.kill()
                    raise AssertionError("moto does not start") from None
                time.sleep(0.1)
        self.port = port
        self.proxy = Proxy(port)

    def env(self, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return {
            **kept,
            "AWS_ENDPOINT_URL": self.proxy.url,
            "AWS_ACCESS_KEY_ID": "AKIAOFTHESETESTS",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
            "HOME": "/nonexistent",
            **more,
        }

    def request(self, method, key, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        # Not checked, but without one the server takes the request for that of a stranger.
        key_of = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
        connection.request(method, f"/{self.name}/{key}", body=body, headers={"Authorization": key_of})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, content

    def put(self, key, content):
        status, _ = self.request("PUT", key, content)
        assert status == 200, status

    def put_folder(self, folder, prefix):
        for path in Path(folder).iterdir():
            if path.is_file() and not path.name.startswith("."):
                self.put(f"{prefix}/{path.name}", path.read_bytes())

    def get(self, key):
        status, content = self.request("GET", key)
        return content if status == 200 else None

    def close(self):
        self.proxy.close()
        self.server.terminate()
        self.server.wait(timeout=30)
        self.log.close()
