"""What scripts import beside ``rosbag2_py`` to decode messages, without generated Python messages."""

from __future__ import annotations

import dataclasses
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
    """action_msgs actionlib_msgs builtin_interfaces diagnostic_msgs geometry_msgs lifecycle_msgs nav_msgs rcl_interfaces rmw_dds_common
    rosbag2_interfaces rosgraph_msgs sensor_msgs service_msgs shape_msgs statistics_msgs std_msgs std_srvs stereo_msgs tf2_msgs trajectory_msgs
    type_description_interfaces unique_identifier_msgs visualization_msgs""".split()
)
# The parts of services and actions, by their kind.
_PARTS = {"srv": ("Request", "Response", "Event"), "action": ("Goal", "Result", "Feedback")}

# Types that are not ROS 2's own, by name: those that the bags define that were opened.
_defined: dict[str, str] = {}
_known: dict[str, MessageType] = {}


def define(name: str, definition: str) -> None:
    """Notes the definition of a type that a bag has."""
    if not definition or _defined.get(name) == definition:
        return
    parts = definition.split("=" * 80 + "\n")
    defined = {name: definition}
    for part in parts[1:]:
        head, _, text = part.partition("\n")
        inner = head.removeprefix("MSG: ").strip().replace("/msg/", "/").replace("/", "/msg/")
        if head.startswith("MSG: ") and inner not in _defined:
            # The other parts are what it may need.
            defined[inner] = ("=" * 80 + "\n").join([text, *parts[1:]])
    for one, text in defined.items():
        _defined[one] = text
        _known.pop(one, None)
        _classes.pop(one, None)


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
        return (_unpickled, (self._type, serialize_message(self), _defined.get(self._type, "")))

    @classmethod
    def get_fields_and_field_types(cls) -> dict[str, str]:
        """The names of the fields, each with its type as generated classes name it: ``double``, ``sequence<uint8>``, ``std_msgs/Header``."""
        own = _message_type(cls._type_name)
        words = [line.partition("#")[0].split() for line in own.definition.partition("=" * 80)[0].splitlines()]
        written = {found[1]: found[0] for found in words if len(found) > 1 and "=" not in "".join(found[1:])}
        package = cls._type_name.partition("/")[0]
        return {name: _idl_type(written.get(name, ""), package) for name in own.decode(own.encode({}))._fields}


_IDL_NAMES = {"bool": "boolean", "byte": "octet", "char": "uint8", "float32": "float", "float64": "double", "Header": "std_msgs/Header"}
_PLAIN_NAMES = frozenset(["string", "wstring", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])


def _idl_type(written: str, package: str) -> str:
    """A type of a ``.msg`` text as generated classes name it."""
    element, bracket, size = written.removesuffix("]").partition("[")
    name, _, bound = element.partition("<=")
    name = _IDL_NAMES.get(name, name)
    if name not in _PLAIN_NAMES and name not in _IDL_NAMES.values() and "/" not in name:
        name = f"{package}/{name}"
    name = f"{name}<{bound}>" if bound else name
    if not bracket:
        return name
    if not size:
        return f"sequence<{name}>"
    return f"sequence<{name}, {size[2:]}>" if size.startswith("<=") else f"{name}[{size}]"


def _unpickled(name: str, payload: bytes, text: str = "") -> Message:
    if text and name not in _defined:
        define(name, text)
    return _wrapped(_message_type(name).decode(payload))


_classes: dict[str, type[Message]] = {}


def _class(name: str, view: _native.Struct | None = None) -> type[Message]:
    if name not in _classes:
        package, kind, own = name.split("/") if name.count("/") == 2 else ("", "", name)
        inner: dict[str, Any] = {"_type_name": name, "__msgtype__": name, "__module__": f"{package}.{kind}"}
        try:
            message_type = _message_type(name)
            constants = message_type.constants
            fields = message_type.decode(message_type.encode({}))._fields
        except DefinitionError:
            # A type that is only known as a part of another one.
            if view is None:
                raise
            constants, fields = {}, view._fields
        # For dataclasses.fields, asdict and replace, which scripts for rosbags use.
        inner["__dataclass_fields__"] = vars(dataclasses.make_dataclass(own, [(field, Any) for field in fields]))["__dataclass_fields__"]
        _classes[name] = type(own, (Message,), {**inner, **constants})
    return _classes[name]


def _interface(package: str, kind: str, own: str) -> type:
    """The class of a message, or that of a service or an action, which has those of its parts."""
    if kind == "msg":
        return get_message(f"{package}/msg/{own}")
    parts = {part: get_message(f"{package}/{kind}/{own}_{part}") for part in _PARTS[kind]}
    return type(own, (), {**parts, "_type_name": f"{package}/{kind}/{own}", "__module__": f"{package}.{kind}"})


def _wrapped(view: _native.Struct) -> Message:
    return _class(view._type, view)._of(view)


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


def _opened_packages() -> set[str]:
    """Packages of which the bags that were opened define a type."""
    return {name.partition("/")[0] for name in _defined}


class Interfaces(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes ``from sensor_msgs.msg import Image`` work where the package is not installed, and the same for types of bags that were opened."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Of an interface package of ROS 2, or of its messages."""
        package, _, inner = fullname.partition(".")
        kinds = ("", "msg", "srv", "action")
        if inner not in kinds or package not in _PACKAGES | _opened_packages():
            return None
        return ModuleSpec(fullname, self, is_package=not inner)

    def create_module(self, spec: ModuleSpec) -> None:
        """The usual kind."""

    def exec_module(self, module: ModuleType) -> None:
        """Its attributes are the classes of its messages, made when they are used."""
        package, _, inner = module.__name__.partition(".")

        def find(name: str) -> type:
            try:
                return _interface(package, inner, name)
            except DefinitionError as error:
                raise AttributeError(str(error)) from None

        if inner:
            module.__getattr__ = find  # type: ignore[method-assign]


def message_to_ordereddict(message: Any) -> OrderedDict[str, Any]:
    """A decoded message as a dict in the order of its definition."""
    return OrderedDict(message.to_dict())


def set_message_fields(message: Any, values: dict[str, Any]) -> None:
    """Sets fields of a message, and of those in it, from a dict."""
    for name, value in values.items():
        if isinstance(value, dict):
            set_message_fields(getattr(message, name), value)
        else:
            setattr(message, name, value)


def get_service(name: str) -> type:
    """The class of this service: ``std_srvs/srv/Trigger``."""
    package, kind, own = name.split("/")
    return _interface(package, kind, own)


def get_interface(name: str) -> type:
    """The class of this message, service or action."""
    package, kind, own = name.split("/")
    return _interface(package, kind, own)
