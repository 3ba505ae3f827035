#!/usr/bin/env python3
"""Packs a built libholdall_python.so and python/holdall into a wheel, and the program if it is named; both without their debug information.

    scripts/pack-wheel.py target/debug/libholdall_python.so FOLDER [target/debug/holdall]
"""

import base64
import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(library, folder, program=None):
    extra = {"holdall/bin/holdall": stripped(program)} if program else {}
    print(pack(stripped(library), folder, f"cp310-abi3-linux_{platform.machine()}", extra, compression=1))


def stripped(path):
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "stripped"
        if subprocess.run(["strip", "-g", "-o", copy, path], check=False).returncode:
            shutil.copy(path, copy)
        return copy.read_bytes()


def pack(library, folder, tag, extra, compression=9):
    """Writes the wheel with this library, and `extra` files by their path in it; returns its path."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    project = tomllib.loads((ROOT / "python/pyproject.toml").read_text())["project"]
    info = f"holdall-{version}.dist-info"
    files = {f"holdall/{path.relative_to(ROOT / 'python/holdall')}": path.read_bytes() for path in sources()}
    files["holdall/_native.abi3.so"] = library
    metadata = [
        "Metadata-Version: 2.4", "Name: holdall", f"Version: {version}", f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}", "License-Expression: Apache-2.0",
        *(f"Classifier: {one}" for one in project["classifiers"]),
    ]
    for name, packages in project["optional-dependencies"].items():
        metadata += [f"Provides-Extra: {name}", *(f"Requires-Dist: {package}; extra == '{name}'" for package in packages)]
    readme = (ROOT / "python/README.md").read_text()
    metadata += [f"License-File: {name.removeprefix(f'{info}/licenses/')}" for name in extra if name.startswith(f"{info}/licenses/")]
    files[f"{info}/METADATA"] = "\n".join([*metadata, "Description-Content-Type: text/markdown", "", readme]).encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: holdall\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    lines = [line for group, points in groups.items() for line in (f"[{group}]", *(f"{name} = {target}" for name, target in points.items()), "")]
    files[f"{info}/entry_points.txt"] = "\n".join(lines).encode()
    files |= extra
    record = "".join(f"{name},sha256={digest(content)},{len(content)}\n" for name, content in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"holdall-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            # Of no time, so that the same content gives the same wheel.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100755 if name.endswith("bin/holdall") else 0o100644) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, compression)
    return wheel


def sources():
    package = ROOT / "python/holdall"
    return sorted(path for path in package.rglob("*") if (path.suffix in (".py", ".pyi") or path.name == "py.typed") and "__pycache__" not in path.parts)


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    main(*sys.argv[1:])
