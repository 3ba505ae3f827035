"""The interfaces of other packages on holdall, for scripts that exist.

``holdall.compat.rosbag2_py`` is rosbag2's, ``holdall.compat.rosbags`` has an ``AnyReader`` as pip rosbags has it. A script that imports
``rosbag2_py`` runs unchanged, and without ROS, as ``python -m holdall.compat script.py``, or after::

    import holdall.compat
    holdall.compat.install()
"""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def install() -> list[str]:
    """Makes ``rosbag2_py`` this one, and ``deserialize_message``, ``serialize_message``, ``get_message`` and the classes of ROS 2's own
    messages (``from sensor_msgs.msg import Image``) where ROS is not installed.

    Returns the names of the modules.
    """
    from . import rosbag2_py, rosidl

    installed = ["rosbag2_py"]
    sys.modules["rosbag2_py"] = rosbag2_py
    for name in ("_storage", "_reader", "_writer", "_info", "_reindexer"):
        sys.modules[f"rosbag2_py.{name}"] = rosbag2_py
    if not _is_there("rclpy"):
        package, module = types.ModuleType("rclpy"), types.ModuleType("rclpy.serialization")
        module.deserialize_message = rosidl.deserialize_message  # type: ignore[attr-defined]
        module.serialize_message = rosidl.serialize_message  # type: ignore[attr-defined]
        package.serialization = module  # type: ignore[attr-defined]
        # Scripts that only read bags begin and end with these. There is no node: it would need ROS.
        package.init = package.shutdown = lambda *_, **__: None  # type: ignore[attr-defined]
        package.ok = lambda *_, **__: True  # type: ignore[attr-defined]
        sys.modules.update({"rclpy": package, "rclpy.serialization": module})
        installed += ["rclpy", "rclpy.serialization"]
    if not _is_there("rosidl_runtime_py"):
        package, module = types.ModuleType("rosidl_runtime_py"), types.ModuleType("rosidl_runtime_py.utilities")
        module.get_message = rosidl.get_message  # type: ignore[attr-defined]
        package.utilities = module  # type: ignore[attr-defined]
        package.message_to_ordereddict = rosidl.message_to_ordereddict  # type: ignore[attr-defined]
        sys.modules.update({"rosidl_runtime_py": package, "rosidl_runtime_py.utilities": module})
        installed += ["rosidl_runtime_py", "rosidl_runtime_py.utilities"]
    if not any(isinstance(finder, rosidl.Interfaces) for finder in sys.meta_path):
        # Last: packages that are installed are found before.
        sys.meta_path.append(rosidl.Interfaces())
    return installed


def __getattr__(name: str) -> Any:
    if name in ("rosbag2_py", "rosbags"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
