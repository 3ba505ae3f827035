#!/usr/bin/env python3
"""Installs what `make dist` left in clean systems, as a user does, and records a real node with it: a table on standard output.

    sudo scripts/dist-roots.py                     all systems; the first time their roots are made (debootstrap, about 300 MB each)
    sudo scripts/dist-roots.py ubuntu-22.04        one
    sudo scripts/dist-roots.py --arch aarch64 debian-11 debian-12 debian-13

Each artefact is tried in a fresh copy of the root, in a network namespace of its own with nothing but loopback, so nothing is downloaded. The node is
this computer's: rclpy of ROS 2 Jazzy; its own log says what it sent. Roots of Ubuntu are made without a check of its signature. Systems of the other
architecture are tried in the computer that arm64-machine.sh emulates, with its Cyclone DDS nodes.
"""

import argparse
import ctypes
import json
import os
import re
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
# Ubuntu has another server for ARM64.
PORTS = {UBUNTU: "http://ports.ubuntu.com/ubuntu-ports"}
DEBIAN_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
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
    "tar": "tar -C /opt -xf /dist/holdall-{version}-{arch}-linux.tar.xz && export PATH=/opt/holdall-{version}/bin:$PATH",
    "deb": "apt-get install -y /dist/holdall_{version}_{debian}.deb >/tmp/apt.log 2>&1 || {{ cat /tmp/apt.log; exit 1; }}; "
           "getent passwd holdall >/dev/null && [ -e /usr/share/man/man1/holdall.1.gz ]",
    "wheel": "python3 -m venv /tmp/venv && /tmp/venv/bin/pip install -q --no-index /dist/holdall-{version}-*{arch}.whl && export PATH=/tmp/venv/bin:$PATH",
}
READ = "/tmp/venv/bin/python -c 'import holdall; bag = holdall.open(\"/tmp/bag\"); print(sum(1 for _ in bag.messages()))'"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("systems", nargs="*", default=list(SYSTEMS), metavar="SYSTEM", help=", ".join(SYSTEMS))
    parser.add_argument("--arch", default="x86_64", choices=DEBIAN_NAMES)
    parser.add_argument("--dist", type=Path, default=TARGET / "dist")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("roots are made and entered by root")
    roots = {system: made_root(arguments.arch, system) for system in arguments.systems}
    installs = {kind: text.format(version=VERSION, arch=arguments.arch, debian=DEBIAN_NAMES[arguments.arch]) for kind, text in INSTALL.items()}
    tried = try_here if arguments.arch == os.uname().machine else try_in_emulation
    outcomes = {}
    for system, kind, outcome in tried(roots, installs, arguments.dist):
        if kind == "wheel" and system in OLD_PYTHON and "not a supported wheel" in outcome:
            outcome = "refused: its Python is older than 3.10"
        outcomes[system, kind] = outcome
        print(f"{system} {kind}: {outcome}", file=sys.stderr, flush=True)
    print("| system | " + " | ".join(INSTALL) + " |")
    print("|---|" + "---|" * len(INSTALL))
    for system in roots:
        print(f"| {system} | " + " | ".join(outcomes.get((system, kind), "FAILED: not tried") for kind in INSTALL) + " |")
    return 0 if len(outcomes) == len(roots) * len(INSTALL) and not any(outcome.startswith("FAILED") for outcome in outcomes.values()) else 1


def made_root(arch, system):
    suite, mirror = SYSTEMS[system]
    root = ROOTS / arch / system
    done = root.with_name(f"{system}.done")
    if not done.exists():
        shutil.rmtree(root, ignore_errors=True)
        root.parent.mkdir(parents=True, exist_ok=True)
        if arch == os.uname().machine:
            options = ["--components=main,universe", "--no-check-gpg"] if mirror == UBUNTU else []
            script = Path(f"/usr/share/debootstrap/scripts/{suite}")
            # Releases that are newer than debootstrap are made as others of their distribution.
            other = [] if script.exists() else ["/usr/share/debootstrap/scripts/" + ("gutsy" if mirror == UBUNTU else "sid")]
            words = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", *options, suite, root, mirror, *other]
        else:
            options = ["--components=main,universe", "--aptopt=APT::Get::AllowUnauthenticated true"] if mirror == UBUNTU else []
            words = [sys.executable, __file__, "--emulated", "mmdebstrap", "--mode=root", "--skip=check/qemu", f"--arch={DEBIAN_NAMES[arch]}", "--variant=minbase",
                     f"--include={PACKAGES}", *options, suite, root, PORTS.get(mirror, mirror)]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        done.touch()
    return root


def emulated(words):
    """Runs a command in a user namespace of its own in which the kernel starts programs for ARM64 by qemu."""
    namespace, mapped = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        clone_newns, clone_newuser = 0x20000, 0x10000000
        if ctypes.CDLL(None, use_errno=True).unshare(clone_newns | clone_newuser) != 0:
            sys.exit(f"a user namespace: {os.strerror(ctypes.get_errno())}")
        os.write(namespace[1], b".")
        os.read(mapped[0], 1)
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt", "/proc/sys/fs/binfmt_misc"], check=True)
        # Programs (2) and libraries (3) of ELF, 64 bits, little-endian, of machine 183.
        magic = r"\x7fELF\x02\x01\x01" + r"\x00" * 9 + r"\x02\x00\xb7\x00"
        mask = r"\xff" * 7 + r"\x00" + r"\xff" * 8 + r"\xfe\xff\xff\xff"
        Path("/proc/sys/fs/binfmt_misc/register").write_text(f":arm64:M::{magic}:{mask}:{shutil.which('qemu-aarch64-static')}:OCF")
        os.execvp(words[0], words)
    os.close(namespace[1])
    if os.read(namespace[0], 1):
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{child}/{name}").write_text("0 0 65536")
        os.write(mapped[1], b".")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def try_in_emulation(roots, installs, dist):
    """All artefacts in the emulated computer: a disk with the roots, the artefacts and how each is installed."""
    folder = TARGET / "arm64-machine-dist"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "dist").mkdir(parents=True)
    for path in dist.iterdir():
        if VERSION in path.name and re.search(r"aarch64-linux\.tar|arm64\.deb|aarch64\.whl", path.name):
            shutil.copy(path, folder / "dist")
    for kind, text in installs.items():
        (folder / kind).write_text("{ " + text + "; } || exit 1\nholdall --version >/dev/null\n")
    for system, root in roots.items():
        subprocess.run(["cp", "-a", root, folder / system], check=True)
    (folder / "systems").write_text("\n".join(roots) + "\n")
    disk = folder.with_suffix(".disk")
    disk.unlink(missing_ok=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-d", folder, disk, "4G"], check=True)
    shutil.rmtree(folder)
    machine = subprocess.Popen([ROOT / "scripts/arm64-machine.sh", "--artefacts", disk], stdout=subprocess.PIPE, text=True, env={**os.environ, "CARGO_TARGET_DIR": str(TARGET)})
    for line in machine.stdout:
        if found := re.search(r"== \d+\.\d+ s: (\S+) (\S+) of make dist: (.*)", line):
            yield found[1], found[2], found[3].strip()
        else:
            sys.stderr.write(line)
    machine.wait()
    disk.unlink()


def try_here(roots, installs, dist):
    for system, root in roots.items():
        for kind, install in installs.items():
            yield system, kind, try_in(root, kind, install, dist)


def try_in(root, kind, install, dist):
    """One artefact in a copy of a root: "60 of 60, 60 of 60", or what failed."""
    with tempfile.TemporaryDirectory(prefix="holdall-root-") as folder:
        folder = Path(folder)
        for name in ("upper", "work", "merged"):
            (folder / name).mkdir()
        # Where it cannot be installed, nothing waits for a recorder.
        script = "{ " + install + "; } || exit 1\nset -e\n" + RECORD + (READ if kind == "wheel" else "")
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
    elif sys.argv[1:2] == ["--emulated"]:
        sys.exit(emulated(sys.argv[2:]))
    else:
        sys.exit(main())
