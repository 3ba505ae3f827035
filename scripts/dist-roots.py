#!/usr/bin/env python3
"""Installs what `make dist` left in clean systems, as a user does, and records a real node with it: a table on standard output.

    sudo scripts/dist-roots.py                     all systems; the first time their roots are made (debootstrap, about 300 MB each)
    sudo scripts/dist-roots.py ubuntu-22.04        one

Each artefact is tried in a fresh copy of the root, in a network namespace of its own with nothing but loopback, so nothing is downloaded. The node is
this computer's: rclpy of ROS 2 Jazzy; its own log says what it sent. Roots are for x86-64. Those of Ubuntu are made without a check of its signature.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
ROOTS = TARGET / "roots"
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
NODE_PYTHON = Path(os.environ.get("HOLDALL_VENV", ROOT / ".venv")) / "bin" / "python"
DEBIAN, UBUNTU = "http://deb.debian.org/debian", "http://archive.ubuntu.com/ubuntu"
SYSTEMS = {
    "debian-11": ("bullseye", DEBIAN), "debian-12": ("bookworm", DEBIAN), "debian-13": ("trixie", DEBIAN),
    "ubuntu-20.04": ("focal", UBUNTU), "ubuntu-22.04": ("jammy", UBUNTU), "ubuntu-24.04": ("noble", UBUNTU),
}
PACKAGES = "adduser,ca-certificates,python3,python3-pip,python3-venv,xz-utils"
COUNT = 60
# Wheels need Python 3.10.
OLD_PYTHON = ("debian-11", "ubuntu-20.04")
LONGEST_S = 300

RECORD = r"""
holdall --version
rm -rf /tmp/bag
holdall record -o /tmp/bag /first /second >/tmp/record.log 2>&1 & recorder=$!
echo recording >/tmp/state
while [ ! -e /tmp/stop ]; do kill -0 $recorder || { cat /tmp/record.log; exit 1; }; sleep 0.1; done
code=0; kill -INT $recorder; wait $recorder || code=$?
[ $code = 0 ] || { cat /tmp/record.log; exit $code; }
holdall audit /tmp/bag >/tmp/audit.log 2>&1 || { cat /tmp/audit.log; exit 1; }
holdall info --json /tmp/bag >/tmp/info.json
timeout 60 holdall play /tmp/bag --rate 20 >/tmp/play.log 2>&1 || { cat /tmp/play.log; exit 1; }
"""
INSTALL = {
    "tar": "tar -C /opt -xf /dist/holdall-{version}-x86_64-linux.tar.xz && export PATH=/opt/holdall-{version}/bin:$PATH",
    "deb": "apt-get install -y /dist/holdall_{version}_amd64.deb >/tmp/apt.log 2>&1 || {{ cat /tmp/apt.log; exit 1; }}; "
           "getent passwd holdall >/dev/null && [ -e /usr/share/man/man1/holdall.1.gz ]",
    "wheel": "python3 -m venv /tmp/venv && /tmp/venv/bin/pip install -q --no-index /dist/holdall-{version}-*x86_64.whl && export PATH=/tmp/venv/bin:$PATH",
}
READ = "/tmp/venv/bin/python -c 'import holdall; bag = holdall.open(\"/tmp/bag\"); print(sum(1 for _ in bag.messages()))'"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("systems", nargs="*", default=list(SYSTEMS), metavar="SYSTEM", help=", ".join(SYSTEMS))
    parser.add_argument("--dist", type=Path, default=TARGET / "dist")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("roots are made and entered by root")
    rows, ok = [], True
    for system in arguments.systems:
        root = made_root(system)
        cells = []
        for kind in INSTALL:
            outcome = try_in(root, kind, arguments.dist)
            if kind == "wheel" and system in OLD_PYTHON and "not a supported wheel" in outcome:
                outcome = "refused: its Python is older than 3.10"
            ok &= not outcome.startswith("FAILED")
            cells.append(outcome)
            print(f"{system} {kind}: {outcome}", file=sys.stderr, flush=True)
        rows.append((system, *cells))
    print("| system | " + " | ".join(INSTALL) + " |")
    print("|---|" + "---|" * len(INSTALL))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    return 0 if ok else 1


def made_root(system):
    suite, mirror = SYSTEMS[system]
    root, done = ROOTS / system, ROOTS / f"{system}.done"
    if not done.exists():
        shutil.rmtree(root, ignore_errors=True)
        root.parent.mkdir(parents=True, exist_ok=True)
        options = ["--components=main,universe", "--no-check-gpg"] if mirror == UBUNTU else []
        script = Path(f"/usr/share/debootstrap/scripts/{suite}")
        # Releases that are newer than debootstrap are made as others of their distribution.
        other = [] if script.exists() else ["/usr/share/debootstrap/scripts/" + ("gutsy" if mirror == UBUNTU else "sid")]
        subprocess.run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", *options, suite, root, mirror, *other], check=True, stdout=subprocess.DEVNULL)
        done.touch()
    return root


def try_in(root, kind, dist):
    """One artefact in a copy of a root: "60 of 60, 60 of 60", or what failed."""
    with tempfile.TemporaryDirectory(prefix="holdall-root-") as folder:
        folder = Path(folder)
        for name in ("upper", "work", "merged"):
            (folder / name).mkdir()
        # Where it cannot be installed, nothing waits for a recorder.
        script = "{ " + INSTALL[kind].format(version=VERSION) + "; } || exit 1\nset -e\n" + RECORD + (READ if kind == "wheel" else "")
        (folder / "script").write_text(script)
        inside = f"""
set -e
ip link set lo up
mount -t overlay overlay -o lowerdir={root},upperdir={folder}/upper,workdir={folder}/work {folder}/merged
mount -t proc proc {folder}/merged/proc
mount --rbind /dev {folder}/merged/dev
mkdir -p {folder}/merged/dist
mount --bind {dist} {folder}/merged/dist
cp {folder}/script {folder}/merged/script
exec {sys.executable} {__file__} --inside {folder}
"""
        environment = {**os.environ, "ROS_DOMAIN_ID": "77", "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
        words = ["timeout", "--kill-after=5", str(LONGEST_S), "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", inside]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip().splitlines()[-1]
        lines = (done.stdout + done.stderr).strip().splitlines()
        return "FAILED: " + " / ".join(lines[-3:])


def inside(folder):
    """Runs in the namespaces: the node outside of the root, the program in it."""
    merged = Path(folder) / "merged"
    plan = {"node": "talker", "wait_for_subscriptions": 1, "linger": True, "publishers": [
        {"topic": f"/{name}", "type": "std_msgs/msg/String", "count": COUNT, "rate_hz": 30, "size": 100, "qos": {"reliability": "reliable"}} for name in ("first", "second")
    ]}
    state, stop = merged / "tmp/state", merged / "tmp/stop"
    user = subprocess.Popen(["chroot", merged, "sh", "/script"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while user.poll() is None and not state.exists():
        try:
            user.wait(0.1)
        except subprocess.TimeoutExpired:
            pass
    if user.poll() is not None:
        sys.exit(user.stdout.read())
    node = subprocess.Popen([NODE_PYTHON, ROOT / "tests/nodes/talker.py", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    node.stdin.write(json.dumps(plan))
    node.stdin.close()
    events = (json.loads(line) for line in node.stdout if line.startswith("{"))
    done = next(event["sent"] for event in events if event["event"] == "done")
    sent = {topic: sum(one["count"] for one in streams) for topic, streams in done.items()}
    stop.touch()
    output = user.communicate()[0]
    node.terminate()
    if user.returncode:
        sys.exit(output)
    info = json.loads((merged / "tmp/info.json").read_text())
    recorded = {topic["topic_metadata"]["name"]: topic["message_count"] for topic in info["topics_with_message_count"]}
    text = ", ".join(f"{recorded.get(topic, 0)} of {count}" for topic, count in sent.items())
    if any(recorded.get(topic, 0) != count for topic, count in sent.items()):
        sys.exit(f"recorded {text}")
    print(text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2])
    else:
        sys.exit(main())
