"""What scripts import beside ``rosbag2_py`` to decode messages, without generated Python messages."""

from __future__ import annotations

import importlib.abc
from collections import OrderedDict
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .. import _native
from .._errors import DefinitionError
from .._writer import MessageType

# Packages whose messages scripts import as Python modules.
_PACKAGES = frozenset(
    """action_msgs actionlib_msgs builtin_interfaces composition_interfaces diagnostic_msgs example_interfaces geometry_msgs lifecycle_msgs
    map_msgs nav_msgs rcl_interfaces rosgraph_msgs sensor_msgs shape_msgs statistics_msgs std_msgs stereo_msgs tf2_msgs trajectory_msgs
    unique_identifier_msgs visualization_msgs""".split()
)

# Types that are not ROS 2's own, by name: those that the bags define that were opened.
_defined: dict[str, str] = {}
_known: dict[str, MessageType] = {}


def define(name: str, definition: str) -> None:
    """Notes the definition of a type that a bag has."""
    if definition and _defined.get(name) != definition:
        _defined[name] = definition
        _known.pop(name, None)
        _classes.pop(name, None)


def definition(name: str) -> str:
    """The definition of a type in the bags that were opened; empty where none has it."""
    return _defined.get(name, "")


def _message_type(name: str) -> MessageType:
    if name not in _known:
        _known[name] = MessageType(name, _defined.get(name))
    return _known[name]


class Message:
    """A message whose fields can be read and set, as those of generated classes; one that is not set is read from the payload."""

    _type_name = ""
    _view: _native.Struct

    def __init__(self, **fields: Any) -> None:
        own = _message_type(self._type_name)
        object.__setattr__(self, "_view", own.decode(own.encode({})))
        for name, value in fields.items():
            setattr(self, name, value)

    @classmethod
    def _of(cls, view: _native.Struct) -> Message:
        message = cls.__new__(cls)
        object.__setattr__(message, "_view", view)
        return message

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._view._fields:
            raise AttributeError(f"{self._type} has no field {name}; it has {', '.join(self._view._fields)}")
        value = _settable(self._view[name])
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._view._fields:
            raise AttributeError(f"{self._type} has no field {name}; it has {', '.join(self._view._fields)}")
        self.__dict__[name] = value

    @property
    def _type(self) -> str:
        return self._view._type

    @property
    def _fields(self) -> tuple[str, ...]:
        return self._view._fields

    def to_dict(self) -> dict[str, Any]:
        """All fields as a dict of plain Python objects."""
        return {name: _plain(getattr(self, name)) for name in self._fields}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self._type == other._type and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self._type}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._fields)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickled, (self._type, serialize_message(self)))


def _unpickled(name: str, payload: bytes) -> Message:
    return _wrapped(_message_type(name).decode(payload))


_classes: dict[str, type[Message]] = {}


def _class(name: str) -> type[Message]:
    if name not in _classes:
        package, kind, own = name.split("/") if name.count("/") == 2 else ("", "", name)
        _classes[name] = type(own, (Message,), {"_type_name": name, "__module__": f"{package}.{kind}"})
    return _classes[name]


def _wrapped(view: _native.Struct) -> Message:
    return _class(view._type)._of(view)


def _settable(value: Any) -> Any:
    if isinstance(value, _native.Struct):
        return _wrapped(value)
    if isinstance(value, list):
        return [_settable(item) for item in value]
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return value.to_dict()
    if hasattr(value, "tolist"):
        return value.tobytes() if str(getattr(value, "dtype", "")) == "uint8" else value.tolist()
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def get_message(name: str) -> type[Message]:
    """The class of this type: ``std_msgs/msg/String``. A type that neither ROS 2 nor an opened bag defines is an error."""
    _message_type(name)
    return _class(name)


def _type_of(message_type: Any) -> MessageType:
    if isinstance(message_type, MessageType):
        return message_type
    if isinstance(message_type, str):
        return _message_type(message_type)
    own = getattr(message_type, "_type_name", "")
    if own:
        return _message_type(own)
    # A generated class: std_msgs.msg._string.String.
    package, kind, *_ = message_type.__module__.split(".")
    return _message_type(f"{package}/{kind}/{message_type.__name__}")


def deserialize_message(serialized: bytes, message_type: Any) -> Message:
    """A message of its CDR."""
    return _wrapped(_type_of(message_type).decode(serialized))


def serialize_message(message: Any) -> bytes:
    """A message as CDR."""
    name = getattr(message, "_type", None)
    return (_message_type(name) if name else _type_of(type(message))).encode(message)


class Interfaces(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes ``from sensor_msgs.msg import Image`` work where the package is not installed."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Of an interface package of ROS 2, or of its messages."""
        package, _, inner = fullname.partition(".")
        if package not in _PACKAGES or inner not in ("", "msg"):
            return None
        return ModuleSpec(fullname, self, is_package=not inner)

    def create_module(self, spec: ModuleSpec) -> None:
        """The usual kind."""

    def exec_module(self, module: ModuleType) -> None:
        """Its attributes are the classes of its messages, made when they are used."""
        package, _, inner = module.__name__.partition(".")

        def find(name: str) -> type[Message]:
            try:
                return get_message(f"{package}/msg/{name}")
            except DefinitionError as error:
                raise AttributeError(str(error)) from None

        if inner:
            module.__getattr__ = find  # type: ignore[method-assign]


def message_to_ordereddict(message: Any) -> OrderedDict[str, Any]:
    """A decoded message as a dict in the order of its definition."""
    return OrderedDict(message.to_dict())
