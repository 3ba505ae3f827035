#!/usr/bin/env python3
"""Builds what a release consists of into target/dist: `make dist`.

    scripts/dist.py                      all artefacts for both architectures
    scripts/dist.py --arch aarch64       those for one
    scripts/dist.py --only deb,wheel     some; programs are built where their sources changed

For each architecture: an archive with program, manual pages, completions, units and licences; a Debian package; a wheel; a container image; a list of
what is in the program (CycloneDX); and one of checksums. Everything is compiled on this computer: zig has the C libraries of both architectures and of
the oldest supported system. The same sources give the same bytes on the same computer, the image for as long as Debian's packages are the same.
"""

import argparse
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
wheels = __import__("pack-wheel")

VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
TOOLS = TARGET / "tools" / "bin"
WORK = TARGET / "dist-work"
# RHEL 8 and manylinux_2_28 have this C library; Debian 11, Ubuntu 20.04 and JetPack 5 have 2.31.
GLIBC = (2, 28)
FEATURES = "holdall-cli/zenoh,holdall-cli/iceoryx2"
KINDS = ("tar", "deb", "wheel", "image", "sbom")
AUTHORS = "The holdall maintainers <maintainers@users.noreply.github.com>"
# The container image has these packages of Debian 13.
IMAGE_SUITE = "trixie"
IMAGE_PACKAGES = ("base-files", "ca-certificates", "libc6", "libgcc-s1", "libssl3t64", "libzstd1", "zlib1g", "netbase")
MIRROR = os.environ.get("HOLDALL_DEBIAN_MIRROR", "http://deb.debian.org/debian")


@dataclass(frozen=True)
class Architecture:
    """A kind of processor, by the names that others have for it."""

    name: str
    debian: str
    # Cargo's profile of the programs.
    profile: str = "release"

    @property
    def triple(self):
        return f"{self.name}-unknown-linux-gnu"

    @property
    def built(self):
        return TARGET / self.triple / self.profile


ARCHITECTURES = {one.name: one for one in (Architecture("x86_64", "amd64"), Architecture("aarch64", "arm64"))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--arch", action="append", choices=ARCHITECTURES, help="only this one (may be given twice)")
    parser.add_argument("--only", default=",".join(KINDS), help=f"some of {','.join(KINDS)}")
    parser.add_argument("--built", action="store_true", help="the programs are compiled already")
    parser.add_argument("--check", action="store_true", help="only see whether everything compiles")
    parser.add_argument("--profile", default="release", choices=("release", "demo"), help="demo: less optimized, in a third of the time; to try this script")
    parser.add_argument("--out", type=Path, default=TARGET / "dist")
    arguments = parser.parse_args()
    kinds = arguments.only.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"--only: expected some of {','.join(KINDS)}, found {','.join(sorted(unknown))}")
    own, *chosen = (replace(ARCHITECTURES[name], profile=arguments.profile) for name in (os.uname().machine, *(arguments.arch or ARCHITECTURES)))
    if arguments.check:
        for one in chosen:
            compile_for(one, "check")
        return
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or command("git", "log", "-1", "--format=%ct"))
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch)
    # The program of this computer writes the manual pages and completions.
    for one in dict.fromkeys([own, *chosen]):
        if not arguments.built:
            say(f"{one.name}: compiling")
            compile_for(one)
        check_symbols(one, one.built / "holdall")
        check_symbols(one, one.built / "libholdall_python.so")
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    shared = Shared.make(own)
    for one in chosen:
        stripped = strip(one, one.built / "holdall", WORK / one.name / "holdall")
        tree = files_of_release(one, shared, stripped)
        if "tar" in kinds:
            made(archive(out / f"holdall-{VERSION}-{one.name}-linux.tar.xz", f"holdall-{VERSION}", tree, epoch))
            # Debuggers look beside the program.
            debug = {"bin/holdall.debug": (0o644, (WORK / one.name / "holdall.debug").read_bytes())}
            made(archive(out / f"holdall-{VERSION}-{one.name}-linux-debug.tar.xz", f"holdall-{VERSION}", debug, epoch))
        if "deb" in kinds:
            made(debian_package(out, one, tree, epoch))
        if "wheel" in kinds:
            made(wheel(out, one, stripped, shared))
        if "image" in kinds:
            made(image(out, one, tree, epoch))
        if "sbom" in kinds:
            made(bill_of_materials(out, one))
    of_release = [path for path in sorted(out.iterdir()) if VERSION in path.name]
    sums = [f"{sha256(path.read_bytes())}  {path.name}\n" for path in of_release]
    (out / "SHA256SUMS").write_text("".join(sums))
    say(f"everything is in {out}")


# Compiling.

def compile_for(one, command="zigbuild"):
    headers = WORK / "openssl"
    copy_openssl_headers(headers)
    # Programs name no path of this computer.
    home = os.environ.get("CARGO_HOME", str(Path.home() / ".cargo"))
    maps = {str(ROOT): "/holdall", home: "/cargo", str(TARGET): "/target"}
    environment = {
        **os.environ,
        "PATH": f"{venv() / 'bin'}:{TOOLS}:{os.environ['PATH']}",
        "OPENSSL_INCLUDE_DIR": str(headers),
        "CARGO_INCREMENTAL": "0",
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(f"--remap-path-prefix={path}={name}" for path, name in maps.items()),
        "CFLAGS": " ".join(f"-ffile-prefix-map={path}={name}" for path, name in maps.items()),
    }
    packages = ["-p", "holdall-cli", "-p", "holdall-python", "--features", FEATURES]
    triple = f"{one.triple}.{GLIBC[0]}.{GLIBC[1]}"
    program = ["cargo", "auditable", "zigbuild"] if command == "zigbuild" else ["cargo-zigbuild", command]
    subprocess.run([*program, "--profile", one.profile, "--locked", "--target", triple, *packages], cwd=ROOT, env=environment, check=True)


def copy_openssl_headers(headers):
    """OpenSSL is loaded when a domain is secured, so its declarations are enough, and they are the same on all computers of 64 bits."""
    shutil.rmtree(headers, ignore_errors=True)
    headers.mkdir(parents=True)
    shutil.copytree("/usr/include/openssl", headers / "openssl")
    for folder in Path("/usr/include").glob("*-linux-gnu/openssl"):
        shutil.copytree(folder, headers / "openssl", dirs_exist_ok=True)


def check_symbols(one, program):
    """A program needs the oldest supported C library, and no library but that."""
    shown = command("readelf", "--wide", "--dyn-syms", program)
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"@GLIBC_([0-9.]+)", shown)}
    newest = max(versions, default=(0,))
    if newest > GLIBC:
        fail(f"{program} needs GLIBC_{'.'.join(map(str, newest))}, newer than {GLIBC[0]}.{GLIBC[1]}")
    needed = re.findall(r"NEEDED.*\[(.*)\]", command("readelf", "--wide", "--dynamic", program))
    allowed = re.compile(r"(libc|libm|libpthread|libdl|librt|libutil|ld-linux.*|libresolv)\.so\.\d")
    if others := [name for name in needed if not allowed.fullmatch(name)]:
        fail(f"{program} needs other libraries than the system's C library: {', '.join(others)}")
    if f"Machine: {'AArch64' if one.name == 'aarch64' else 'Advanced Micro Devices X86-64'}" not in re.sub(r" +", " ", command("readelf", "--file-header", program)):
        fail(f"{program} is for another processor than {one.name}")
    say(f"{one.name}: {program.name} needs GLIBC_{'.'.join(map(str, newest))} or newer")


def objcopy(*words):
    """Runs Rust's objcopy, which handles programs of every architecture."""
    sysroot = Path(command("rustc", "--print", "sysroot").strip())
    program = next(sysroot.glob("lib/rustlib/*/bin/rust-objcopy"))
    subprocess.run([program, *words], env={**os.environ, "LD_LIBRARY_PATH": str(sysroot / "lib")}, check=True)


def strip(one, program, to):
    to.parent.mkdir(parents=True, exist_ok=True)
    debug = to.parent / f"{to.name}.debug"
    # The program names the file with its debug information.
    objcopy("--only-keep-debug", program, debug)
    # `cargo auditable` has written the list of crates into a section of its own.
    objcopy("--strip-all", "--keep-section=.dep-v0", f"--add-gnu-debuglink={debug}", program, to)
    return to.read_bytes()


# What is in all packages.

@dataclass
class Shared:
    """Files that are the same for both architectures, by their path below /usr."""

    files: dict
    licences: bytes

    @classmethod
    def make(cls, own):
        program = own.built / "holdall"
        folder = WORK / "man"
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([program, "man", "--dir", folder], check=True)
        files = {}
        for page in sorted(folder.iterdir()):
            files[f"share/man/man1/{page.name}.gz"] = (0o644, gzip.compress(page.read_bytes(), mtime=0))
        for shell, path in (
            ("bash", "share/bash-completion/completions/holdall"),
            ("zsh", "share/zsh/vendor-completions/_holdall"),
            ("fish", "share/fish/vendor_completions.d/holdall.fish"),
        ):
            files[path] = (0o644, subprocess.run([program, "completion", shell], check=True, capture_output=True).stdout)
        files["lib/systemd/system/holdall@.service"] = (0o644, (ROOT / "examples/systemd/holdall@.service").read_bytes())
        files["share/doc/holdall/examples/robot.yaml"] = (0o644, (ROOT / "examples/systemd/robot.yaml").read_bytes())
        files["share/doc/holdall/README.md"] = (0o644, (ROOT / "README.md").read_bytes())
        licences = licence_texts()
        files["share/doc/holdall/LICENSE"] = (0o644, (ROOT / "LICENSE").read_bytes())
        files["share/doc/holdall/licences-of-dependencies.txt.gz"] = (0o644, gzip.compress(licences, mtime=0))
        return cls(files, licences)


def licence_texts():
    """The licence of each crate that is in a program, and its text: each text once."""
    platform = [f"--filter-platform={one.triple}" for one in ARCHITECTURES.values()]
    listed = json.loads(command("cargo", "metadata", "--format-version=1", "--locked", "--features", FEATURES, *platform))
    used = used_packages(listed)
    by_text = {}
    for package in sorted((package for package in listed["packages"] if package["id"] in used), key=lambda package: (package["name"], package["version"])):
        if package["source"] is None:
            continue
        folder = Path(package["manifest_path"]).parent
        # Crates that carry the sources of a C library have its licence deeper in.
        found = folder.rglob("*") if package["name"].endswith(("-sys", "-src")) else folder.iterdir()
        names = sorted(path for path in found if path.is_file() and re.match(r"(?i)(licen[cs]e|copying|notice|unlicense)", path.name))
        about = f"{package['name']} {package['version']} ({package['license'] or 'see its text'}; {package['repository'] or 'crates.io'})"
        for path in names or [None]:
            text = path.read_text(errors="replace").strip() if path else "Its package has no text of its licence."
            by_text.setdefault(text, []).append(about)
    parts = ["The programs of holdall have these parts of others.\n"]
    for text, packages in by_text.items():
        parts.append("\n".join(["=" * 80, *dict.fromkeys(packages), "-" * 80, text, ""]))
    text = "\n".join(parts)
    if "cyclonedds-src" not in text or "Eclipse Public License" not in text:
        fail("the licence of Cyclone DDS was not found")
    return text.encode()


def used_packages(listed):
    """The packages that the two programs are made of, what only builds or tests need left out."""
    nodes = {node["id"]: node for node in listed["resolve"]["nodes"]}
    names = {package["id"]: package["name"] for package in listed["packages"]}
    todo = [one for one in nodes if names[one] in ("holdall-cli", "holdall-python")]
    used = set()
    while todo:
        one = todo.pop()
        if one in used:
            continue
        used.add(one)
        dependencies = [dependency for dependency in nodes[one]["deps"] if any(kind["kind"] is None for kind in dependency["dep_kinds"])]
        todo += [dependency["pkg"] for dependency in dependencies]
        # A build script compiles these sources into the program.
        todo += [dependency["pkg"] for dependency in nodes[one]["deps"] if names[dependency["pkg"]].endswith("-src")]
    return used


def files_of_release(one, shared, program):
    return {"bin/holdall": (0o755, program), **shared.files}


# Packages.

def archive(path, top, files, epoch):
    """A .tar.xz with these files below `top`."""
    packed = lzma.compress(tar_of({f"{top}/{name}": entry for name, entry in files.items()}, epoch), preset=6)
    path.write_bytes(packed)
    return path


def tar_of(files, epoch, folders=(), links=()):
    """A tar of files (mode and content by path), folders (path, mode, user) and symbolic links, in the order of their names."""
    entries = {name: (tar_entry(name, tarfile.REGTYPE, mode, epoch), content) for name, (mode, content) in files.items()}
    for name in [*files, *(name for name, *_ in folders), *(name for name, _ in links)]:
        parts = name.split("/")
        for parent in ("/".join(parts[:end]) for end in range(1, len(parts))):
            entries.setdefault(parent, (tar_entry(parent, tarfile.DIRTYPE, 0o755, epoch), b""))
    for name, mode, user in folders:
        info = tar_entry(name, tarfile.DIRTYPE, mode, epoch)
        info.uid = info.gid = user
        entries[name] = info, b""
    for name, target in links:
        info = tar_entry(name, tarfile.SYMTYPE, 0o777, epoch)
        info.linkname = target
        entries[name] = info, b""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for _, (info, content) in sorted(entries.items()):
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def tar_entry(name, kind, mode, epoch):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.mtime = kind, mode, epoch
    info.uname = info.gname = "root"
    return info


def debian_package(out, one, tree, epoch):
    files = {f"./usr/{name}": entry for name, entry in tree.items() if not name.endswith(("README.md", "LICENSE"))}
    copyright_text = f"""Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: holdall

Files: *
Copyright: {AUTHORS}
License: Apache-2.0
 On Debian systems, the text of this licence is in /usr/share/common-licenses/Apache-2.0.
 .
 The program has parts of others, whose licences are in licences-of-dependencies.txt.gz beside this file.
"""
    date = command("date", "-R", "-u", "-d", f"@{epoch}").strip()
    changes = f"holdall ({VERSION}) unstable; urgency=medium\n\n  * See CHANGELOG.md of the sources.\n\n -- {AUTHORS}  {date}\n"
    files["./usr/share/doc/holdall/copyright"] = (0o644, copyright_text.encode())
    files["./usr/share/doc/holdall/changelog.gz"] = (0o644, gzip.compress(changes.encode(), mtime=0))
    folders = [("./etc/holdall", 0o755, 0)]
    size = sum(len(content) for _, content in files.values()) // 1024
    control = f"""Package: holdall
Version: {VERSION}
Architecture: {one.debian}
Maintainer: {AUTHORS}
Installed-Size: {size}
Depends: libc6 (>= {GLIBC[0]}.{GLIBC[1]}), adduser
Recommends: libssl3 | libssl3t64, ca-certificates
Section: science
Priority: optional
Description: recorder for live ROS 2 systems
 Records topics into bags that ros2 bag, mcap and Foxglove read, plays them back, works on bags, and accounts for every message that is not in the
 bag. Needs no ROS installation.
"""
    scripts = {name: (0o755, (ROOT / "packaging" / name).read_bytes()) for name in ("postinst", "prerm", "postrm")}
    sums = "".join(f"{hashlib.md5(content).hexdigest()}  {name[2:]}\n" for name, (_, content) in sorted(files.items()))
    members = {"./control": (0o644, wrap_description(control).encode()), "./md5sums": (0o644, sums.encode()), **{f"./{name}": entry for name, entry in scripts.items()}}
    path = out / f"holdall_{VERSION}_{one.debian}.deb"
    # An ar archive of three members: deb(5).
    parts = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.xz", lzma.compress(tar_of(members, epoch))),
        ("data.tar.xz", lzma.compress(tar_of(files, epoch, folders), preset=6)),
    ]
    with path.open("wb") as file:
        file.write(b"!<arch>\n")
        for name, content in parts:
            file.write(f"{name:<16}{epoch:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode() + content + b"\n" * (len(content) % 2))
    return path


def wrap_description(control):
    """Lines of a description are short, so that every terminal shows them."""
    head, description = control.split("\n Records", 1)
    words, lines = f"Records{description}".split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 76:
            lines.append("")
        lines[-1] += f" {word}"
    return "\n".join([head, *lines, ""])


def wheel(out, one, program, shared):
    library = WORK / one.name / "libholdall_python.so"
    strip(one, one.built / "libholdall_python.so", library)
    tag = f"cp310-abi3-manylinux_{GLIBC[0]}_{GLIBC[1]}_{one.name}"
    extra = {"holdall/bin/holdall": program, f"holdall-{VERSION}.dist-info/licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
             f"holdall-{VERSION}.dist-info/licenses/licences-of-dependencies.txt": shared.licences}
    path = Path(wheels.pack(library.read_bytes(), out, tag, extra))
    found = json.loads(command(str(venv() / "bin" / "auditwheel"), "show", "--json", path))["overall_tag"]
    version = re.match(r"manylinux_(\d+)_(\d+)_", found)
    if version is None or tuple(map(int, version.groups())) > GLIBC:
        fail(f"{path}: expected {tag}, auditwheel finds {found}")
    return path


# The container image.

def image(out, one, tree, epoch):
    """Writes the container image: one layer has packages of Debian, the other has holdall. Docker, podman and skopeo load the file."""
    system = system_layer(one, epoch)
    own = {f"usr/{name}": entry for name, entry in tree.items() if name.startswith(("bin/", "share/doc/holdall/"))}
    folders = [("bags", 0o755, 1000), ("run/holdall", 0o755, 1000)]
    layers = [system, tar_of(own, epoch, folders)]
    created = command("date", "-u", "-d", f"@{epoch}", "+%Y-%m-%dT%H:%M:%SZ").strip()
    config = {
        "created": created,
        "architecture": one.debian,
        "os": "linux",
        "config": {
            "User": "1000:1000",
            "Env": ["PATH=/usr/bin", "HOME=/bags", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
            "Entrypoint": ["/usr/bin/holdall"],
            "Cmd": ["record", "-a", "--control-socket", "/run/holdall/control"],
            "Volumes": {"/bags": {}},
            "WorkingDir": "/bags",
            "StopSignal": "SIGINT",
            # Docker's, not OCI's; others pass over it.
            "Healthcheck": {"Test": ["CMD", "/usr/bin/holdall", "control", "/run/holdall/control", "status"], "Interval": 30_000_000_000, "StartPeriod": 10_000_000_000},
            "Labels": {"org.opencontainers.image.title": "holdall", "org.opencontainers.image.version": VERSION, "org.opencontainers.image.licenses": "Apache-2.0"},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer)}" for layer in layers]},
        "history": [{"created": created, "created_by": text} for text in (f"packages of Debian {IMAGE_SUITE}", "holdall")],
    }
    blobs = {}

    def blob(content, kind):
        blobs[f"blobs/sha256/{sha256(content)}"] = (0o644, content)
        return {"mediaType": kind, "digest": f"sha256:{sha256(content)}", "size": len(content)}

    described = [blob(gzip.compress(layer, compresslevel=9, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip") for layer in layers]
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = {"schemaVersion": 2, "mediaType": kind, "config": blob(dumped(config), "application/vnd.oci.image.config.v1+json"), "layers": described}
    entry = {**blob(dumped(manifest), kind), "platform": {"architecture": one.debian, "os": "linux"}, "annotations": {"org.opencontainers.image.ref.name": VERSION, "io.containerd.image.name": f"holdall:{VERSION}"}}
    docker = [{"Config": "blobs/sha256/" + manifest["config"]["digest"][7:], "RepoTags": [f"holdall:{VERSION}"], "Layers": ["blobs/sha256/" + layer["digest"][7:] for layer in described]}]
    files = {
        "oci-layout": (0o644, dumped({"imageLayoutVersion": "1.0.0"})),
        "index.json": (0o644, dumped({"schemaVersion": 2, "manifests": [entry]})),
        # For `docker load` of versions that know no OCI layout.
        "manifest.json": (0o644, dumped(docker)),
        **blobs,
    }
    path = out / f"holdall-{VERSION}-{one.name}-image.tar"
    path.write_bytes(tar_of(files, epoch))
    return path


def dumped(value):
    return json.dumps(value, sort_keys=True).encode()


def system_layer(one, epoch):
    """The files of Debian's packages that the program needs, without what only people and package managers read."""
    index = packages_of_debian(one)
    files, links, folders, listed = {}, {}, [("tmp", 0o1777, 0), ("var/tmp", 0o1777, 0), ("run", 0o755, 0)], []
    for name in IMAGE_PACKAGES:
        package = index[name]
        listed.append(f"{name} {package['Version']}\n")
        content = fetched(f"{MIRROR}/{package['Filename']}", package["SHA256"])
        path = WORK / f"{name}-{one.debian}.deb"
        path.write_bytes(content)
        packed = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            for member in tar:
                inside = member.name.removeprefix("./")
                if inside.startswith(("usr/share/doc/", "usr/share/man/", "usr/share/locale/", "usr/share/lintian/", "usr/lib/dracut/")) and not inside.endswith("/copyright"):
                    continue
                if member.isfile():
                    files[inside] = (member.mode & 0o755, tar.extractfile(member).read())
                elif member.issym():
                    links[inside] = member.linkname
                elif not member.isdir():
                    fail(f"{path}: expected files, folders and links, found {member.name} of another kind")
    files["etc/passwd"] = (0o644, b"root:x:0:0:root:/:/usr/sbin/nologin\nholdall:x:1000:1000:holdall:/bags:/usr/sbin/nologin\n")
    files["etc/group"] = (0o644, b"root:x:0:\nholdall:x:1000:\n")
    files["etc/nsswitch.conf"] = (0o644, b"passwd: files\ngroup: files\nhosts: files dns\n")
    files["usr/share/doc/holdall/packages-of-debian.txt"] = (0o644, "".join(listed).encode())
    # update-ca-certificates does it where a package is installed.
    certificates = [content.strip() for name, (_, content) in sorted(files.items()) if name.startswith("usr/share/ca-certificates/")]
    files["etc/ssl/certs/ca-certificates.crt"] = (0o644, b"\n".join(certificates) + b"\n")
    # One tree below /usr, as Debian has had it since 12.
    links.update({name: f"usr/{name}" for name in ("bin", "lib", "sbin", "lib64")})
    moved = {}
    for name, entry in files.items():
        top = name.split("/", 1)[0]
        moved[f"usr/{name}" if top in ("bin", "lib", "sbin", "lib64") else name] = entry
    linked = {f"usr/{name}" if "/" in name and name.split("/", 1)[0] in ("bin", "lib", "sbin", "lib64") else name: target for name, target in links.items()}
    folders += [(f"usr/{name}", 0o755, 0) for name in ("bin", "lib", "sbin", "lib64")]
    return tar_of(moved, epoch, folders, [(name, target) for name, target in linked.items() if name not in moved])


def packages_of_debian(one):
    """The packages of the suite by name, from an index that Debian has signed."""
    base = f"{MIRROR}/dists/{IMAGE_SUITE}"
    signed, release = WORK / "InRelease", WORK / "Release"
    signed.write_bytes(fetched(f"{base}/InRelease"))
    release.unlink(missing_ok=True)
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    # What is read is the text that was signed, and nothing around it.
    subprocess.run(["gpgv", "--quiet", "--keyring", keyring, "--output", release, signed], capture_output=True, text=True, check=True)
    name = f"main/binary-{one.debian}/Packages.xz"
    sums = release.read_text().split("SHA256:")[1]
    digest = next(line.split()[0] for line in sums.splitlines() if line.endswith(f" {name}"))
    text = lzma.decompress(fetched(f"{base}/{name}", digest)).decode()
    packages = {}
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(" "))
        if fields.get("Package") in IMAGE_PACKAGES:
            packages[fields["Package"]] = fields
    if missing := set(IMAGE_PACKAGES) - set(packages):
        fail(f"Debian {IMAGE_SUITE} has no {', '.join(sorted(missing))} for {one.debian}")
    return packages


def fetched(address, digest=None):
    cached = WORK / "fetched" / (digest or "")
    if digest and cached.exists() and sha256(cached.read_bytes()) == digest:
        return cached.read_bytes()
    with urllib.request.urlopen(address, timeout=120) as answer:
        content = answer.read()
    if digest:
        if sha256(content) != digest:
            fail(f"{address}: expected SHA-256 {digest}, found {sha256(content)}")
        cached.parent.mkdir(parents=True, exist_ok=True)
        cached.write_bytes(content)
    return content


def bill_of_materials(out, one):
    """What is in the program, as CycloneDX."""
    name = f"holdall-{VERSION}-{one.name}"
    options = ["--format", "json", "--spec-version", "1.5", "--target", one.triple, "--features", "zenoh,iceoryx2", "--override-filename", name]
    try:
        subprocess.run([TOOLS / "cargo-cyclonedx", "cyclonedx", "--manifest-path", ROOT / "crates/holdall-cli/Cargo.toml", *options], check=True)
        listed = json.loads((ROOT / "crates/holdall-cli" / f"{name}.json").read_text())
    finally:
        # It writes one beside each member of the workspace.
        for member in [*ROOT.glob(f"*/{name}.json"), *ROOT.glob(f"*/*/{name}.json")]:
            member.unlink()
    # The same bytes each time, and no path of this computer.
    listed.pop("serialNumber", None)
    listed["metadata"].pop("timestamp", None)
    text = json.dumps(listed, indent=1, sort_keys=True).replace(f"file://{ROOT}", "file:///holdall").replace(str(ROOT), "/holdall")
    path = out / f"{name}.cdx.json"
    path.write_text(text)
    return path


# Small parts.

def venv():
    return Path(os.environ.get("HOLDALL_VENV", ROOT / ".venv")) / "dist"


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def command(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def made(path):
    say(f"{path.name}  {path.stat().st_size / 1e6:.1f} MB")


def say(text):
    print(f"\033[1m==>\033[0m {text}", flush=True)


def fail(text):
    sys.exit(f"dist: {text}")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        fail(f"{' '.join(map(str, error.cmd[:4]))} ended with {error.returncode}: {(error.stderr or '').strip()[-800:]}")
