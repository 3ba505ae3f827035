#!/usr/bin/env python3
"""What viewers and the dashboard cost a recording, and how late small topics are at a viewer on a slow link.

Usage: bench-viewers.py load --holdall target/demo/holdall --folder SCRATCH [--pairs 3] [--seconds 20] [--cameras 4] [--rate 30]
       bench-viewers.py link --holdall target/demo/holdall --folder SCRATCH [--link rate=20Mb/s,delay=10ms,queue=200ms] [--image 1000000] [--rate 100]

load: cameras (pip iceoryx2, 1920x1080 RGB, processes of their own) are recorded in pairs, alternately without and with the dashboard open and two viewers
that take every camera. Prints one line of JSON for each recording: messages sent and recorded, cores of the whole recorder and of its threads that serve no client,
and at the end the ratios. The parallel viewers read all that they get and drop it. SCRATCH needs 6 GB.

link: a bag with a camera and two small topics (100 Hz of 100 bytes, 10 Hz of 20 kB) is served over an emulated link (holdall bench link, needs root or user
namespaces) to one viewer of the protocol foxglove.sdk.v1 that takes all three. Prints the delay of the small topics beyond the fastest message, and the
share of the images that came. Needs pip websockets and mcap.
"""

import argparse
import http.client
import json
import multiprocessing
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

WIDTH, HEIGHT = 1920, 1080
SIZE = WIDTH * HEIGHT * 3


def publish(number, options, ready, go, results):
    """One camera."""
    import ctypes

    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../tests/nodes"))
    import iceoryx2 as iox2
    from iceoryx2_peer import Known, service_of

    node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
    plan = {"role": "publish", "service": f"ros2://topics/camera{number}/image", "attributes": {"ros_type": "sensor_msgs/msg/Image"}, "count": 30, "buffer": 30, "borrow": 30}
    service, header = service_of(node, plan)
    assert header is Known
    publisher = service.publisher_builder().initial_max_slice_len(SIZE).create()
    image = os.urandom(1 << 16) * (SIZE // (1 << 16) + 1)
    while service.dynamic_config.number_of_subscribers == 0:
        time.sleep(0.01)
    ready.release()
    go.wait()
    start, sent = time.monotonic() + number / options.cameras / options.rate, 0
    while sent < options.seconds * options.rate:
        time.sleep(max(0.0, start + sent / options.rate - time.monotonic()))
        sample = publisher.loan_slice_uninit(SIZE)
        facts = sample.user_header().contents
        facts.sequence, facts.source_timestamp = sent + 1, time.time_ns()
        ctypes.memmove(sample.payload_ptr, image, SIZE)
        sample.assume_init().send()
        sent += 1
    results.put((sent, time.monotonic() - start - (sent - 1) / options.rate))
    go.clear()
    time.sleep(2)


def view(link, results, end):
    """A viewer that takes every channel, and drops what it gets."""
    from websockets.sync.client import connect

    messages = size = 0
    with connect(link, subprotocols=["foxglove.sdk.v1"], max_size=None, legacy=True) as socket:
        while not end.is_set():
            try:
                got = socket.recv(timeout=0.5)
            except TimeoutError:
                continue
            except Exception:
                break
            if isinstance(got, bytes):
                messages, size = messages + (got[0] == 1), size + len(got)
            elif (reply := json.loads(got))["op"] == "advertise":
                wanted = [{"id": channel["id"], "channelId": channel["id"]} for channel in reply["channels"]]
                socket.send(json.dumps({"op": "subscribe", "subscriptions": wanted}))
    results.put((messages, size))


def watch(address, results, end):
    """An open page: reads every event."""
    host, port, token = re.search(r"http://([\d.]+):(\d+)/[?]token=(\w+)", address).groups()
    connection = http.client.HTTPConnection(host, int(port), timeout=5)
    connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {token}"})
    answer, events, largest = connection.getresponse(), 0, 0
    while not end.is_set() and (line := answer.readline()):
        events, largest = events + line.startswith(b"data"), max(largest, len(line))
    results.put((events, largest))


def threads(pid):
    """Seconds of processor time by thread."""
    used = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            text = open(f"/proc/{pid}/task/{task}/stat").read()
        except OSError:
            continue
        name, fields = text[text.index("(") + 1 : text.rindex(")")], text.rsplit(")", 1)[1].split()
        used[task, name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used


def record(options, with_viewers):
    bag = os.path.join(options.folder, "viewers-bag")
    shutil.rmtree(bag, ignore_errors=True)
    command = [options.holdall, "record", "-a", "--transport", "iceoryx2", "-o", bag, "-b", "1GB", "--max-bag-files", "4", "--json"]
    if with_viewers:
        command += ["--web", "127.0.0.1:0", "--foxglove", "127.0.0.1:0"]
    log = open(os.path.join(options.folder, "viewers.log"), "w+")
    recorder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    processes = multiprocessing.get_context("spawn")
    ready, go, results, end = processes.Semaphore(0), processes.Event(), processes.Queue(), processes.Event()
    cameras = [processes.Process(target=publish, args=(n, options, ready, go, results)) for n in range(options.cameras)]
    for camera in cameras:
        camera.start()
    for _ in cameras:
        ready.acquire()
    seen, clients = processes.Queue(), []
    if with_viewers:
        said = ""
        while not ("Foxglove: " in said and "dashboard: " in said):
            time.sleep(0.1)
            said = open(log.name).read()
        link, page = re.search(r"ws://\S+", said).group(), re.search(r"http://\S+", said).group()
        clients = [processes.Process(target=view, args=(link, seen, end)) for _ in range(2)] + [processes.Process(target=watch, args=(page, seen, end))]
        for client in clients:
            client.start()
        time.sleep(3)
    before, began = threads(recorder.pid), time.monotonic()
    go.set()
    counts = [results.get() for _ in cameras]
    span, after = time.monotonic() - began, threads(recorder.pid)
    used = {key: seconds - before.get(key, 0) for key, seconds in after.items()}
    recorder.send_signal(signal.SIGINT)
    out, _ = recorder.communicate(timeout=120)
    end.set()
    views = [seen.get(timeout=30) for _ in clients]
    for process in cameras + clients:
        process.join()
    recorded = json.loads(out)
    shutil.rmtree(bag, ignore_errors=True)
    sent = sum(count for count, _ in counts)
    by_name = {}
    for (_, name), seconds in used.items():
        by_name[name] = round(by_name.get(name, 0) + seconds / span, 3)
    report = {
        "viewers": with_viewers,
        "load": os.getloadavg()[0],
        "span_s": round(span, 2),
        "offered_mb_s": round(sent * SIZE / span / 1e6, 1),
        "latest_camera_s": round(max(late for _, late in counts), 3),
        "sent": sent,
        "recorded": recorded["message_count"],
        "lost_by_stage": recorded["lost_by_stage"],
        "cores": round(sum(used.values()) / span, 3),
        "cores_without_web_threads": round(sum(s for (_, name), s in used.items() if not name.startswith("web ")) / span, 3),
        "cores_by_thread": {name: cores for name, cores in sorted(by_name.items(), key=lambda pair: -pair[1]) if cores >= 0.01},
        "seen": views,
        "exit_code": recorder.returncode,
    }
    print(json.dumps(report), flush=True)
    return report


def load(options):
    pairs = [(record(options, False), record(options, True)) for _ in range(options.pairs)]
    ratio = lambda key: [round(there[key] / without[key], 3) for without, there in pairs if without[key]]
    print(json.dumps({"cores": ratio("cores"), "cores_without_web_threads": ratio("cores_without_web_threads"), "lost": [[r["sent"] - r["recorded"] for r in pair] for pair in pairs]}))


def write_bag(path, options):
    """Small compressed: the images are zeros, and the time is in the messages."""
    from mcap.writer import CompressionType, Writer

    with open(path, "wb") as stream:
        writer = Writer(stream, compression=CompressionType.ZSTD, chunk_size=8 << 20)
        writer.start(profile="ros2")
        schema = writer.register_schema("std_msgs/msg/UInt8MultiArray", "ros2msg", b"uint8[] data")
        channels = {name: writer.register_channel(name, "cdr", schema) for name in ("/camera", "/small", "/medium")}
        topics = [("/camera", options.image, options.rate), ("/small", 100, 100), ("/medium", 20_000, 10)]
        due = sorted((number / rate, name, size) for name, size, rate in topics for number in range(int(options.seconds * rate)))
        for at, name, size in due:
            stamp = 1_700_000_000_000_000_000 + int(at * 1e9)
            data = struct.pack("<Qd", 0x0100, at) + bytes(size)
            writer.add_message(channels[name], log_time=stamp, publish_time=stamp, data=data)
        writer.finish()


def link(options):
    bag, log = os.path.join(options.folder, "link.mcap"), os.path.join(options.folder, "link.log")
    write_bag(bag, options)
    done = os.path.join(options.folder, "link.done")
    end = f'while [ ! -e "{done}" ]; do sleep 0.2; done; kill -INT $!; wait $!; rm "{done}"'
    serve = f'"{options.holdall}" serve "{bag}" --foxglove 0.0.0.0:8765 2>"{log}" & {end}'
    open(log, "w").close()
    viewer = [sys.executable, os.path.abspath(__file__), "view", "--holdall", options.holdall, "--folder", options.folder, "--seconds", str(options.seconds)]
    command = [options.holdall, "bench", "link", options.link, "--", "sh", "-c", serve, "--", *viewer]
    subprocess.run(command, check=False)
    os.remove(bag)


def view_link(options):
    """The viewer on the other end of the link."""
    from websockets.sync.client import connect

    log, token = os.path.join(options.folder, "link.log"), None
    while not token:
        token = re.search(r"token=([0-9a-f]+)", open(log).read())
        time.sleep(0.1)
    arrived, names, began = {}, {}, None
    with connect(f"ws://10.99.0.1:8765/?token={token.group(1)}", subprotocols=["foxglove.sdk.v1"], max_size=None, legacy=True) as socket:
        while True:
            got, now = socket.recv(timeout=60), time.monotonic()
            if isinstance(got, bytes):
                if got[0] == 1:
                    subscription, stamp = struct.unpack_from("<IQ", got, 1)
                    arrived.setdefault(names[subscription], []).append((stamp, now))
                elif got[0] == 5 and got[1] == 3 and began and now - began > options.seconds - 5:
                    break
                continue
            reply = json.loads(got)
            if reply["op"] == "advertise":
                names.update({channel["id"]: channel["topic"] for channel in reply["channels"]})
                wanted = [{"id": channel["id"], "channelId": channel["id"]} for channel in reply["channels"]]
                socket.send(json.dumps({"op": "subscribe", "subscriptions": wanted}))
                if len(names) == 3 and began is None:
                    began = time.monotonic()
                    socket.send(struct.pack("<BBfBQI", 3, 0, 1.0, 0, 0, 1) + b"p")
            elif reply["op"] == "status":
                print(reply["message"], flush=True)
    report = {"load": os.getloadavg()[0]}
    fastest = min(at - stamp / 1e9 for name in ("/small", "/medium") for stamp, at in arrived.get(name, []))
    for name, messages in arrived.items():
        delays = sorted((at - stamp / 1e9 - fastest) * 1e3 for stamp, at in messages)
        pick = lambda part: round(delays[min(len(delays) - 1, int(part * len(delays)))], 1)
        report[name] = {"messages": len(delays), "p50_ms": pick(0.5), "p95_ms": pick(0.95), "p99_ms": pick(0.99), "max_ms": pick(1), "over_200_ms": sum(d > 200 for d in delays)}
    print(json.dumps(report), flush=True)
    open(os.path.join(options.folder, "link.done"), "w").close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["load", "link", "view"])
    parser.add_argument("--holdall", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--cameras", type=int, default=4)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--image", type=int, default=1_000_000)
    parser.add_argument("--link", default="rate=20Mb/s,delay=10ms,queue=200ms")
    options = parser.parse_args()
    options.holdall = os.path.abspath(options.holdall)
    options.rate = options.rate or {"load": 30, "link": 100, "view": 100}[options.what]
    {"load": load, "link": link, "view": view_link}[options.what](options)


if __name__ == "__main__":
    main()
