"""Bags in a bucket: whole-bag reads beside the same number of plain range requests, catalogs of many bags, and a bag of many tiny files, with a latency of
its own for each request.

    scripts/bench-remote.py --holdall target/release/holdall [--bytes 200e6] [--bags 400] [--files 1000] [--latency-ms 20] [--rounds 3]

The server is a small one of this script (GET with ranges, HEAD, ListObjectsV2) in a process of its own, on this computer. Output: JSON.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from mcap.writer import CompressionType, Writer

PART = 4 << 20
AT_ONCE = 16
START = 1_700_000_000_000_000_000


class Handler(BaseHTTPRequestHandler):
    """Objects of the bucket `fleet` are the files of a folder."""

    protocol_version = "HTTP/1.1"
    root, latency_s = Path(), 0.0

    def log_message(self, *_):
        pass

    def answer(self, status, headers, length):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def do_GET(self):
        time.sleep(self.latency_s)
        url = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(url.query)
        if "list-type" in query:
            return self.list(query)
        path = self.root / urllib.parse.unquote(url.path).removeprefix("/fleet/")
        if not path.is_file():
            return self.answer(404, {}, 0)
        size = path.stat().st_size
        start, end = self.range(size)
        headers = {"ETag": f'"{size}-{path.stat().st_mtime_ns}"', "Last-Modified": "Mon, 23 Nov 2026 10:00:00 GMT", "Accept-Ranges": "bytes"}
        partial = "Range" in self.headers
        if partial:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        self.answer(206 if partial else 200, headers, end - start)
        if self.command == "GET":
            self.wfile.flush()
            with open(path, "rb") as file:
                while start < end:
                    start += os.sendfile(self.connection.fileno(), file.fileno(), start, end - start)

    do_HEAD = do_GET

    def range(self, size):
        wanted = self.headers.get("Range", "")
        if not wanted:
            return 0, size
        first, last = wanted.removeprefix("bytes=").split("-")
        if not first:
            return max(0, size - int(last)), size
        return int(first), min(size, int(last or size - 1) + 1)

    def list(self, query):
        prefix = query.get("prefix", [""])[0]
        after = query.get("continuation-token", [""])[0]
        found = sorted(str(path.relative_to(self.root)) for path in (self.root / prefix).rglob("*") if path.is_file())
        found = [name for name in found if name > after]
        page, more = found[:1000], len(found) > 1000
        entry = "<Contents><Key>{}</Key><LastModified>2026-11-23T10:00:00.000Z</LastModified><ETag>&quot;{}&quot;</ETag><Size>{}</Size></Contents>"
        of = lambda name: (self.root / name).stat()  # noqa: E731
        entries = "".join(entry.format(name, f"{of(name).st_size}-{of(name).st_mtime_ns}", of(name).st_size) for name in page)
        token = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if more else ""
        text = f"<?xml version='1.0'?><ListBucketResult><Name>fleet</Name><IsTruncated>{str(more).lower()}</IsTruncated>{token}{entries}</ListBucketResult>".encode()
        self.answer(200, {"Content-Type": "application/xml"}, len(text))
        self.wfile.write(text)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def serve(root, latency_s):
    Handler.root, Handler.latency_s = root, latency_s
    server = Server(("127.0.0.1", 0), Handler)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.write(writing, str(server.server_port).encode())
        os.close(writing)
        server.serve_forever()
    os.close(writing)
    port = int(os.read(reading, 10))
    server.socket.close()
    return pid, port


def write_file(path, size, topics=2, chunk=768 << 10):
    noise = random.Random(1).randbytes(1 << 20)
    with open(path, "wb") as file:
        writer = Writer(file, chunk_size=chunk, compression=CompressionType.NONE)
        writer.start("ros2")
        schema = writer.register_schema("std_msgs/msg/UInt8MultiArray", "ros2msg", b"uint8[] data")
        channels = [writer.register_channel(f"/t{number}", "cdr", schema) for number in range(topics)]
        number = 0
        while file.tell() < size:
            at = number * 7919 % (1 << 19)
            writer.add_message(channels[number % topics], START + number * 1000, noise[at : at + min(20_000, size)], START + number * 1000)
            number += 1
        writer.finish()


def ranges(port, name, size):
    """Bytes per second of plain range requests, as many at once as holdall makes."""
    local = threading.local()

    def get(start):
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection("127.0.0.1", port)
        local.connection.request("GET", f"/fleet/{name}", headers={"Range": f"bytes={start}-{min(size, start + PART) - 1}"})
        return len(local.connection.getresponse().read())

    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert sum(pool.map(get, range(0, size, PART))) == size
    return size / (time.monotonic() - began)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--holdall", required=True)
    options.add_argument("--bytes", type=float, default=200e6)
    options.add_argument("--bags", type=int, default=400)
    options.add_argument("--files", type=int, default=1000)
    options.add_argument("--latency-ms", type=float, default=20)
    options.add_argument("--rounds", type=int, default=3)
    options = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-remote-"))
    root = folder / "objects"
    (root / "large").mkdir(parents=True)
    file = root / "large/large.mcap"
    write_file(file, int(options.bytes))
    small = folder / "small.mcap"
    write_file(small, 20_000)
    for number in range(options.bags):
        (root / f"bags/run{number:05}").mkdir(parents=True)
        shutil.copy(small, root / f"bags/run{number:05}/run{number:05}_0.mcap")
    if options.bags:
        # All have the same metadata, but for the name of the file.
        first = root / "bags/run00000"
        subprocess.run([options.holdall, "reindex", first], check=True, capture_output=True)
        text = (first / "metadata.yaml").read_text()
        for number in range(1, options.bags):
            name = f"run{number:05}"
            (root / f"bags/{name}/metadata.yaml").write_text(text.replace("run00000", name))
    if options.files:
        write_file(folder / "tiny.mcap", 1000, topics=1, chunk=1000)
        (root / "tiny").mkdir()
        for number in range(options.files):
            shutil.copy(folder / "tiny.mcap", root / f"tiny/tiny_{number}.mcap")
        subprocess.run([options.holdall, "reindex", root / "tiny"], check=True, capture_output=True)
    pid, port = serve(root, options.latency_ms / 1000)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    aws = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}
    env = {**kept, **aws, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true", "AWS_EC2_METADATA_DISABLED": "true"}
    found = {"load": os.getloadavg()[0], "bytes": file.stat().st_size, "bags": options.bags, "latency_ms": options.latency_ms, "rounds": []}

    def timed(*words):
        began = time.monotonic()
        subprocess.run([options.holdall, *map(str, words)], check=True, env=env, stdout=subprocess.DEVNULL)
        return time.monotonic() - began

    try:
        size, url = file.stat().st_size, "s3://fleet/large/large.mcap"
        for number in range(options.rounds):
            out = folder / f"out{number}"
            limit = ranges(port, "large/large.mcap", size)
            one = {"range_requests_mb_s": limit / 1e6, "local_check_mb_s": size / timed("check", file) / 1e6}
            one["local_convert_mb_s"] = size / timed("convert", file, "-o", f"{out}l") / 1e6
            for name, words in {"convert": ["convert", url, "-o", out], "check": ["check", url], "cat": ["cat", "--raw", url]}.items():
                one[f"{name}_share"] = size / timed(*words) / limit
            shutil.rmtree(out)
            shutil.rmtree(f"{out}l")
            if options.bags:
                one["catalog_bags_s"] = options.bags / timed("catalog", "s3://fleet/bags", "-o", f"{out}c")
                one["unchanged_catalog_s"] = timed("catalog", "s3://fleet/bags", "-o", f"{out}c")
            if options.files:
                one["info_of_files_s"] = timed("info", "s3://fleet/tiny")
                one["cat_of_files_s"] = timed("cat", "--raw", "s3://fleet/tiny")
            found["rounds"].append(one)
    finally:
        os.kill(pid, 15)
        os.waitpid(pid, 0)
        shutil.rmtree(folder)
    json.dump(found, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
