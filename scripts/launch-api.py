#!/usr/bin/env python3
"""Writes what `holdall.launch` and the launch files in examples/ use of ROS 2's launch: names and keyword arguments, from its sources.

    scripts/launch-api.py DISTRO=FOLDER[:FOLDER...]...  > tests/e2e/launch_api.json

FOLDER has the packages launch or launch_ros of that distribution, as their repositories have them.
"""

import ast
import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def sources():
    """The files that use launch."""
    return [ROOT / "python/holdall/launch.py", ROOT / "tests/e2e/launching.py", *sorted((ROOT / "examples/launch").glob("*.py"))]


def used():
    """Each name that is imported from launch."""
    nodes = [node for path in sources() for node in ast.walk(ast.parse(path.read_text()))]
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("launch", "launch_ros")]
    return sorted({f"{node.module}.{name.name}" for node in imports for name in node.names})


def keywords(thing):
    """The keyword arguments that it takes, those of the classes below it too."""
    found, classes = set(), [one for one in getattr(thing, "__mro__", ()) if one is not object] or [thing]
    for one in classes:
        own = one.__dict__.get("__init__") if inspect.isclass(one) else one
        if own is None:
            continue
        parameters = inspect.signature(own).parameters.values()
        found |= {parameter.name for parameter in parameters if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)}
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            break
    return sorted(found - {"self"})


def main(*distributions):
    if distributions[0] == "--names":
        for folder in distributions[1].split(":"):
            sys.path.insert(0, folder)
        names = {}
        for name in used():
            module, _, attribute = name.rpartition(".")
            thing = getattr(importlib.import_module(module), attribute, None)
            names[name] = None if thing is None else keywords(thing)
        print(json.dumps(names))
        return
    api = {}
    for word in distributions:
        distribution, _, folders = word.partition("=")
        api[distribution] = json.loads(subprocess.run([sys.executable, __file__, "--names", folders], stdout=subprocess.PIPE, text=True, check=True).stdout)
    # A line for each name.
    blocks = [f"{json.dumps(one)}: {{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(found)}" for name, found in api[one].items()) + "\n}" for one in api]
    print("{" + ",\n".join(blocks) + "}")


if __name__ == "__main__":
    main(*sys.argv[1:])
