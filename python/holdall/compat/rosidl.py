"""What scripts import beside ``rosbag2_py`` to decode messages, without generated Python messages."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from .._writer import MessageType

# Types that are not ROS 2's own, by name: those that the bags define that were opened.
_defined: dict[str, str] = {}
_known: dict[str, MessageType] = {}


def define(name: str, definition: str) -> None:
    """Notes the definition of a type that a bag has."""
    if definition and _defined.get(name) != definition:
        _defined[name] = definition
        _known.pop(name, None)


def get_message(name: str) -> MessageType:
    """The type of this name: ``std_msgs/msg/String``."""
    if name not in _known:
        _known[name] = MessageType(name, _defined.get(name))
    return _known[name]


def _type_of(message_type: Any) -> MessageType:
    if isinstance(message_type, MessageType):
        return message_type
    if isinstance(message_type, str):
        return get_message(message_type)
    # A generated class: std_msgs.msg._string.String.
    package, kind, *_ = message_type.__module__.split(".")
    return get_message(f"{package}/{kind}/{message_type.__name__}")


def deserialize_message(serialized: bytes, message_type: Any) -> Any:
    """A message of its CDR."""
    return _type_of(message_type).decode(serialized)


def serialize_message(message: Any) -> bytes:
    """A message as CDR."""
    name = getattr(message, "_type", None)
    return (get_message(name) if name else _type_of(type(message))).encode(message)


def message_to_ordereddict(message: Any) -> OrderedDict[str, Any]:
    """A decoded message as a dict in the order of its definition."""
    return OrderedDict(message.to_dict())
