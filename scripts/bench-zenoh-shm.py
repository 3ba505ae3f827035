#!/usr/bin/env python3
"""Eight publishers of rmw_zenoh in shared memory, recorded by holdall: what arrives, and the recorder's CPU time.

Usage: bench-zenoh-shm.py --holdall target/release/holdall --folder SCRATCH [--seconds 20] [--publishers 8] [--size 6220800] [--rate 30]

Runs the publishers (pip eclipse-zenoh) as processes of their own and the recorder with a ring of files, so that SCRATCH needs 6 GB. Prints one
line of JSON: messages sent and recorded, bytes per second, cores used by the recorder and by all publishers, longest and p99 period of each publisher's puts.
With --alone there is no recorder but a subscriber that takes and drops, for the periods of undisturbed publishers.
"""

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import time

# sensor_msgs/msg/Image.
HASH = "RIHS01_d31d41a9a4c4bc8eae9be757b0beed306564f7526c88ea6a4588fb9582527d47"
TYPE = "sensor_msgs::msg::dds_::Image_"
DOMAIN = 75


def session(settings):
    import zenoh

    config = zenoh.Config()
    for key, value in {"mode": "peer", "scouting/multicast/enabled": False, "transport/shared_memory/enabled": True, **settings}.items():
        config.insert_json5(key, json.dumps(value))
    return zenoh.open(config)


def publish(number, options, endpoint, ready, go, results):
    import zenoh
    from pyzeros.utils import rmw_zenoh_gid

    opened = session({"connect/endpoints": [endpoint], "listen/endpoints": [], "connect/timeout_ms": -1, "connect/exit_on_failure": False})
    publisher = opened.declare_publisher(f"{DOMAIN}/image{number}/{TYPE}/{HASH}", congestion_control=zenoh.CongestionControl.BLOCK)
    token = f"@ros2_lv/{DOMAIN}/{opened.zid()}/0/1/MP/%/%/camera{number}/%image{number}/{TYPE}/{HASH}/::,:,:,:,,"
    gid = rmw_zenoh_gid(token)
    declared = opened.liveliness().declare_token(token)
    # As much as rmw_zenoh has by default.
    provider = zenoh.shm.ShmProvider.default_backend(48 << 20)
    policy = zenoh.shm.GarbageCollect()
    image = bytes(os.urandom(1 << 16) * (options.size // (1 << 16) + 1))[: options.size]
    while not publisher.matching_status.matching:
        time.sleep(0.01)
    ready.release()
    go.wait()
    start = time.monotonic() + number / options.publishers / options.rate
    sent, full, periods, last = 0, 0, [], None
    while sent < options.seconds * options.rate:
        left = start + sent / options.rate - time.monotonic()
        if left > 0:
            time.sleep(left)
        now = time.monotonic()
        if last is not None:
            periods.append(now - last)
        last = now
        attachment = struct.pack("<qqB", sent + 1, time.time_ns(), 16) + gid
        try:
            buffer = provider.alloc(options.size, policy=policy)
            buffer[:] = image
        except Exception:
            # rmw_zenoh falls back to the network as well.
            full += 1
            buffer = image
        publisher.put(buffer, attachment=attachment)
        sent += 1
    used = resource.getrusage(resource.RUSAGE_SELF)
    periods.sort()
    results.put((sent, full, periods[int(len(periods) * 0.99)], periods[-1], used.ru_utime + used.ru_stime))
    go_home = time.monotonic() + 2
    while time.monotonic() < go_home:
        time.sleep(0.1)
    del declared


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--holdall", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--publishers", type=int, default=8)
    parser.add_argument("--size", type=int, default=6_220_800)
    parser.add_argument("--rate", type=float, default=30)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--argument", action="append", default=[], help="one more argument of holdall record")
    options = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"tcp/127.0.0.1:{probe.getsockname()[1]}"
    bag = os.path.join(options.folder, "c2")
    shutil.rmtree(bag, ignore_errors=True)
    override = f'listen/endpoints=["{endpoint}"];connect/endpoints=[]'
    env = {**os.environ, "ROS_DOMAIN_ID": str(DOMAIN), "ZENOH_CONFIG_OVERRIDE": override}
    recorder = taker = None
    if options.alone:
        taker = session({"listen/endpoints": [endpoint]})
        subscription = taker.declare_subscriber(f"{DOMAIN}/*/{TYPE}/{HASH}", lambda sample: None)
    else:
        command = [options.holdall, "record", "-a", "--transport", "zenoh", "-o", bag, "-b", "1GB", "--max-bag-files", "4", "--json", *options.argument]
        recorder = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    processes = multiprocessing.get_context("spawn")
    ready, go, results = processes.Semaphore(0), processes.Event(), processes.Queue()
    children = [processes.Process(target=publish, args=(n, options, endpoint, ready, go, results)) for n in range(options.publishers)]
    for child in children:
        child.start()
    for _ in children:
        ready.acquire()
    before, began = cpu_seconds(recorder.pid if recorder else os.getpid()), time.monotonic()
    go.set()
    told = [results.get() for _ in children]
    span = time.monotonic() - began
    used = cpu_seconds(recorder.pid if recorder else os.getpid()) - before
    report = {
        "publishers": options.publishers,
        "size": options.size,
        "rate_hz": options.rate,
        "span_s": round(span, 2),
        "sent": sum(t[0] for t in told),
        "sent_without_shared_memory": sum(t[1] for t in told),
        "offered_mb_s": round(sum(t[0] for t in told) * options.size / span / 1e6, 1),
        "taker_cores": round(used / span, 3),
        "publisher_cores": round(sum(t[4] for t in told) / span, 3),
        "period_p99_ms": [round(t[2] * 1e3, 2) for t in told],
        "period_max_ms": [round(t[3] * 1e3, 2) for t in told],
    }
    for child in children:
        child.join()
    if recorder:
        recorder.send_signal(signal.SIGINT)
        out, said = recorder.communicate(timeout=120)
        counts = json.loads(out)
        report.update(
            exit_code=recorder.returncode,
            recorded=counts["message_count"],
            recorded_percent=round(100 * counts["message_count"] / report["sent"], 2),
            lost_by_stage=counts["lost_by_stage"],
            said=[line for line in said.splitlines() if "warn" in line or "error" in line][:10],
        )
        shutil.rmtree(bag, ignore_errors=True)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
