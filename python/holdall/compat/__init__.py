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
    """Makes ``rosbag2_py`` this one, and where ROS is not installed also ``rclpy`` (serialization, times, clocks, QoS profiles; no nodes),
    ``rosidl_runtime_py``, ``sensor_msgs_py.point_cloud2`` and the classes of ROS 2's own messages (``from sensor_msgs.msg import Image``).

    Returns the names of the modules.
    """
    from . import point_cloud2, rclpy, rosbag2_py, rosidl

    installed = ["rosbag2_py"]
    sys.modules["rosbag2_py"] = rosbag2_py
    for name in ("_storage", "_reader", "_writer", "_info", "_reindexer", "_transport", "_message_definitions", "_compression_options"):
        sys.modules[f"rosbag2_py.{name}"] = rosbag2_py

    def add(package: str, modules: dict[str, dict[str, Any]], **own: Any) -> None:
        if _is_there(package):
            return
        whole = types.ModuleType(package)
        # It has no folder: what it lacks is searched nowhere.
        whole.__path__ = []
        vars(whole).update(own)
        sys.modules[package] = whole
        installed.append(package)
        for name, contents in modules.items():
            module = types.ModuleType(f"{package}.{name}")
            vars(module).update(contents)
            setattr(whole, name, module)
            sys.modules[f"{package}.{name}"] = module
            installed.append(f"{package}.{name}")

    serialization = {"deserialize_message": rosidl.deserialize_message, "serialize_message": rosidl.serialize_message}
    # Scripts that only read bags begin and end with these. There is no node: it would need ROS.
    nothing = {"init": lambda *_, **__: None, "shutdown": lambda *_, **__: None, "try_shutdown": lambda *_, **__: None, "ok": lambda *_, **__: True}
    add("rclpy", {"serialization": serialization, **rclpy.MODULES}, **nothing)
    utilities = {"get_message": rosidl.get_message, "get_service": rosidl.get_service, "get_interface": rosidl.get_interface}
    converters = {
        "message_to_ordereddict": rosidl.message_to_ordereddict,
        "set_message_fields": rosidl.set_message_fields,
    }
    modules: dict[str, dict[str, Any]] = {"utilities": utilities, "convert": converters, "set_message": {"set_message_fields": rosidl.set_message_fields}}
    add("rosidl_runtime_py", modules, **converters)
    add("sensor_msgs_py", {"point_cloud2": dict(vars(point_cloud2))})
    if not any(isinstance(finder, rosidl.Interfaces) for finder in sys.meta_path):
        # Last: packages that are installed are found before.
        sys.meta_path.append(rosidl.Interfaces())
    return installed


def __getattr__(name: str) -> Any:
    if name in ("rosbag2_py", "rosbags"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
