"""The artefacts of a release: packed twice from the same programs, at another time and by another user, they have the same bytes, and others can read them."""

import gzip
import hashlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EPOCH = 1_790_000_000
PROGRAM, LIBRARY = b"\x7fELF program" * 5000, b"\x7fELF library" * 3000


@pytest.fixture
def dist(monkeypatch, tmp_path):
    """The script as a module, without what needs compiled programs or the network."""
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path / "target"))
    spec = importlib.util.spec_from_file_location("dist", ROOT / "scripts/dist.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "dist", module)
    spec.loader.exec_module(module)
    certificates = {"usr/share/ca-certificates/one.crt": (0o644, b"certificate")}
    monkeypatch.setattr(module, "system_layer", lambda one, epoch: module.tar_of(certificates, epoch, [("tmp", 0o1777, 0)], [("bin", "usr/bin")]))
    monkeypatch.setattr(module, "strip", lambda one, program, to: (to.parent.mkdir(parents=True, exist_ok=True), to.write_bytes(LIBRARY)))
    monkeypatch.setattr(module.subprocess, "run", auditwheel(module.subprocess.run))
    return module


def auditwheel(real):
    def run(words, **options):
        if "auditwheel" in str(words[0]):
            tag = Path(words[-1]).stem.split("-")[-1]
            return subprocess.CompletedProcess(words, 0, json.dumps({"overall_tag": tag}), "")
        return real(words, **options)

    return run


def packed(dist, folder, names):
    """All artefacts of both architectures, with files that are named in this order."""
    folder.mkdir()
    files = {"bin/holdall": (0o755, PROGRAM), "share/man/man1/holdall.1.gz": (0o644, b"page"), "share/doc/holdall/README.md": (0o644, b"read me"), "share/doc/holdall/licences-of-dependencies.txt.gz": (0o644, b"licences")}
    tree = {name: files[name] for name in sorted(files, reverse=names == "backwards")}
    for one in dist.ARCHITECTURES.values():
        dist.archive(folder / f"{one.name}.tar.xz", "holdall", tree, EPOCH)
        dist.debian_package(folder, one, tree, EPOCH)
        dist.wheel(folder, one, PROGRAM, dist.Shared(tree, b"licences"))
        dist.image(folder, one, tree, EPOCH)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_the_same_programs_give_the_same_bytes(dist, tmp_path, monkeypatch):
    first = packed(dist, tmp_path / "first", "forwards")
    monkeypatch.setattr("time.time", lambda: 2_000_000_000.0)
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    monkeypatch.setenv("USER", "another")
    mask = os.umask(0o077)
    try:
        second = packed(dist, tmp_path / "second", "backwards")
    finally:
        os.umask(mask)
    assert len(first) == 8 and second == first


def test_others_read_what_was_packed(dist, tmp_path):
    packed(dist, tmp_path / "out", "forwards")
    version = dist.VERSION
    with tarfile.open(tmp_path / "out/aarch64.tar.xz") as archive:
        member = archive.getmember("holdall/bin/holdall")
        assert (member.mode, member.uname, member.mtime, archive.extractfile(member).read()) == (0o755, "root", EPOCH, PROGRAM)
    package = tmp_path / f"out/holdall_{version}_arm64.deb"
    fields = subprocess.run(["dpkg-deb", "--field", package, "Architecture", "Depends"], check=True, capture_output=True, text=True).stdout
    assert fields == "Architecture: arm64\nDepends: libc6 (>= 2.28), adduser\n"
    listed = subprocess.run(["dpkg-deb", "--contents", package], check=True, capture_output=True, text=True).stdout
    assert "-rwxr-xr-x root/root" in next(line for line in listed.splitlines() if line.endswith(" ./usr/bin/holdall"))
    with zipfile.ZipFile(tmp_path / f"out/holdall-{version}-cp310-abi3-manylinux_2_28_aarch64.whl") as wheel:
        assert wheel.testzip() is None
        assert wheel.read("holdall/bin/holdall") == PROGRAM and wheel.read("holdall/_native.abi3.so") == LIBRARY
    with tarfile.open(tmp_path / f"out/holdall-{version}-aarch64-image.tar") as image:
        content = {member.name: image.extractfile(member).read() for member in image if member.isfile()}
    for name in (name for name in content if name.startswith("blobs/")):
        assert hashlib.sha256(content[name]).hexdigest() == name.rsplit("/", 1)[1]
    manifest = json.loads(content["blobs/sha256/" + json.loads(content["index.json"])["manifests"][0]["digest"][7:]])
    config = json.loads(content["blobs/sha256/" + manifest["config"]["digest"][7:]])
    assert (config["architecture"], config["config"]["User"]) == ("arm64", "1000:1000")
    layers = [gzip.decompress(content["blobs/sha256/" + layer["digest"][7:]]) for layer in manifest["layers"]]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    with tarfile.open(fileobj=io.BytesIO(layers[1])) as own:
        assert own.getmember("bags").uid == 1000
