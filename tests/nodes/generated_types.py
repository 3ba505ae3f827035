"""Makes a Python package of ROS 2 types with ROS's own generators and a C++ compiler, as a distribution ships it.

Usage: generated_types.py PACKAGE TEXTS FOLDER [--without-hashes]

TEXTS: a file of definitions, each after a line `@@ srv/Name` or `@@ msg/Name`. FOLDER then has the package, ready for PYTHONPATH, and libraries
to load first; a folder that has it already is left as it is. Without hashes the types are as those of Humble, which has none.
Generators, headers and libraries are those of the wheels beside the Python that runs this.
"""

import concurrent.futures
import fcntl
import json

import pathlib
import re
import subprocess
import sys
import sysconfig

import numpy
import rosidl_generator_c
import rosidl_generator_py
import rosidl_typesupport_c
import rosidl_typesupport_fastrtps_c
import rosidl_typesupport_introspection_c
from rosidl_adapter import convert_to_idl
from rosidl_generator_type_description import generate_type_hash

PREFIX = pathlib.Path(sys.prefix)
INTROSPECTION = "rosidl_typesupport_introspection_c"
SUPPORTS = ["rosidl_typesupport_fastrtps_c", INTROSPECTION]
DEPENDENCIES = ["builtin_interfaces", "service_msgs"]


def texts_in(path):
    """Definitions by their name, for example `srv/Stop`."""
    found = {}
    for part in pathlib.Path(path).read_text().split("@@ ")[1:]:
        name, _, text = part.partition("\n")
        found[name.strip()] = text
    return found


def write_arguments(folder, package, generator, names, descriptions, subfolder=""):
    resource = PREFIX / "share" / generator / "resource"
    arguments = {
        "package_name": package,
        "output_dir": str(folder / subfolder / package),
        "template_dir": str(resource),
        "idl_tuples": [f"{folder / package}:{name}.idl" for name in names],
        "ros_interface_dependencies": [],
        "target_dependencies": [],
        "type_description_tuples": descriptions,
        "include_paths": [f"{each}:{PREFIX / 'share' / each}" for each in DEPENDENCIES],
    }
    path = folder / f"{generator}.json"
    path.write_text(json.dumps(arguments))
    return str(path)


def visibility_control(folder, package, generator):
    template = PREFIX / "share" / generator / "resource" / f"{generator}__visibility_control.h.in"
    text = template.read_text().replace("@PROJECT_NAME_UPPER@", package.upper()).replace("@PROJECT_NAME@", package)
    target = folder / package / "msg" / f"{generator}__visibility_control.h"
    target.parent.mkdir(exist_ok=True)
    target.write_text(text)


def compile_all(folder, package):
    """One library with the types and their supports, and the extension that Python loads for each support."""
    headers = [f"-I{path}" for path in sorted((PREFIX / "include").iterdir()) if path.is_dir()]
    own = [f"-I{folder}", f"-I{folder / 'introspection'}"]
    others = [f"-I{PREFIX / 'include'}", f"-I{sysconfig.get_paths()['include']}", f"-I{numpy.get_include()}"]
    flags = ["-O0", "-DNDEBUG", "-fPIC", "-w", *own, *headers, *others]
    base = folder / package
    extensions = sorted(base.glob("_*_s.ep.*.c"))
    sources = [path for path in sorted([*folder.rglob("*.c"), *folder.rglob("*.cpp")]) if path not in extensions]

    def compiled(source):
        target = source.with_suffix(source.suffix + ".o")
        subprocess.run(["cc", *flags, "-c", source, "-o", target], check=True)
        return target

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, sources))
    libraries = [f"-L{PREFIX / 'lib'}", f"-Wl,-rpath,{PREFIX / 'lib'}"]
    used = ["rosidl_runtime_c", "rosidl_typesupport_c", "rosidl_typesupport_fastrtps_c", "rosidl_typesupport_fastrtps_cpp"]
    used += [INTROSPECTION, "fastcdr", "rmw", "rcutils"]
    for each in DEPENDENCIES:
        used += [f"{each}__rosidl_generator_c", f"{each}__rosidl_generator_py", f"{each}__rosidl_typesupport_c"]
        used += [f"{each}__{support}" for support in SUPPORTS]
    linked = [f"-l{each}" for each in used]
    library = folder / f"lib{package}.so"
    subprocess.run(["c++", "-shared", "-o", library, *objects, *libraries, *linked], check=True)
    for support in SUPPORTS:
        # What `rosidl_typesupport_c` opens by this name.
        name = f"lib{package}__{support}.so"
        found = ["-Wl,--no-as-needed", library, f"-Wl,-rpath,{folder}"]
        subprocess.run(["c++", "-shared", f"-Wl,-soname,{name}", "-o", folder / name, *found], check=True)
    for extension in extensions:
        support = extension.name.split(".")[-2]
        target = base / f"{package}_s__{support}{sysconfig.get_config_var('EXT_SUFFIX')}"
        link = [extension, library, f"-Wl,-rpath,{folder}", *libraries, *linked]
        subprocess.run(["cc", *flags, "-shared", "-o", target, *link], check=True)


def forget_hashes(base):
    """Sets the version of every hash to the one that means unset."""
    for source in base.rglob("*.c"):
        text = source.read_text()
        source.write_text(re.sub(r"(rosidl_type_hash_t \w+ = \{)1(, \{)", r"\g<1>0\2", text))


def generate(package, texts, folder, has_hashes):
    base = folder / package
    for name, text in texts.items():
        source = base / f"{name}.{name.split('/')[0]}"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        relative = pathlib.Path(f"{name}.{name.split('/')[0]}")
        convert_to_idl(base, package, relative, base)
    names = list(texts)
    generate_type_hash(write_arguments(folder, package, "rosidl_generator_type_description", names, []))
    descriptions = [f"{name}.idl:{base / name}.json" for name in names]
    for generator, made in (
        ("rosidl_generator_c", rosidl_generator_c.generate_c),
        ("rosidl_typesupport_fastrtps_c", rosidl_typesupport_fastrtps_c.generate_typesupport_fastrtps_c),
        ("rosidl_typesupport_c", lambda path: rosidl_typesupport_c.generate_c(path, SUPPORTS)),
        ("rosidl_generator_py", lambda path: rosidl_generator_py.generate_py(path, ["rosidl_typesupport_c", *SUPPORTS])),
    ):
        made(write_arguments(folder, package, generator, names, descriptions))
    # Names of its files are those of `rosidl_generator_c`, too.
    arguments = write_arguments(folder, package, INTROSPECTION, names, descriptions, "introspection")
    rosidl_typesupport_introspection_c.generate_c(arguments)
    for generator in ("rosidl_generator_c", *SUPPORTS):
        visibility_control(folder, package, generator)
    (base / "__init__.py").touch()
    if not has_hashes:
        forget_hashes(base)
    compile_all(folder, package)


def main():
    package, texts, folder = sys.argv[1], texts_in(sys.argv[2]), pathlib.Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    # Tests that run side by side make it once.
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            generate(package, texts, folder, "--without-hashes" not in sys.argv)
            (folder / "ready").touch()


if __name__ == "__main__":
    main()
