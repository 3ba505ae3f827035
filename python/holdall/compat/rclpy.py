"""What scripts that read and write bags use of ``rclpy`` where ROS is not installed: times, durations, clocks and QoS profiles. There are no nodes."""

from __future__ import annotations

import enum
import time as system
from typing import Any

from . import rosidl

S_TO_NS = 10**9


class ClockType(enum.IntEnum):
    """The kind of a clock."""

    UNINITIALIZED = 0
    ROS_TIME = 1
    SYSTEM_TIME = 2
    STEADY_TIME = 3


class Duration:
    """A span in nanoseconds."""

    def __init__(self, *, seconds: float = 0, nanoseconds: int = 0) -> None:
        self._nanoseconds = int(seconds * S_TO_NS) + int(nanoseconds)
        if not -(2**63) <= self._nanoseconds < 2**63:
            raise OverflowError("Total nanoseconds value is too large to store in C duration.")

    @property
    def nanoseconds(self) -> int:
        """The whole span in nanoseconds."""
        return self._nanoseconds

    def to_msg(self) -> Any:
        """A ``builtin_interfaces/msg/Duration``."""
        seconds, nanoseconds = divmod(self._nanoseconds, S_TO_NS)
        return rosidl.get_message("builtin_interfaces/msg/Duration")(sec=seconds, nanosec=nanoseconds)

    @classmethod
    def from_msg(cls, msg: Any) -> Duration:
        """Of a ``builtin_interfaces/msg/Duration``."""
        return cls(seconds=msg.sec, nanoseconds=msg.nanosec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self._nanoseconds == other._nanoseconds

    def __lt__(self, other: Duration) -> bool:
        return self._nanoseconds < other._nanoseconds

    def __le__(self, other: Duration) -> bool:
        return self._nanoseconds <= other._nanoseconds

    def __gt__(self, other: Duration) -> bool:
        return self._nanoseconds > other._nanoseconds

    def __ge__(self, other: Duration) -> bool:
        return self._nanoseconds >= other._nanoseconds

    def __hash__(self) -> int:
        return hash(self._nanoseconds)

    def __repr__(self) -> str:
        return f"Duration(nanoseconds={self._nanoseconds})"


Infinite = Duration(nanoseconds=2**63 - 1)


class Time:
    """A point in time in nanoseconds."""

    def __init__(self, *, seconds: float = 0, nanoseconds: int = 0, clock_type: ClockType = ClockType.SYSTEM_TIME) -> None:
        if seconds < 0 or nanoseconds < 0:
            raise ValueError("Seconds and nanoseconds value must not be negative")
        self._nanoseconds = int(seconds * S_TO_NS) + int(nanoseconds)
        self._clock_type = clock_type
        if self._nanoseconds >= 2**63:
            raise OverflowError("Total nanoseconds value is too large to store in C time point.")

    @property
    def nanoseconds(self) -> int:
        """Nanoseconds since the clock's beginning."""
        return self._nanoseconds

    @property
    def clock_type(self) -> ClockType:
        """The clock."""
        return self._clock_type

    def seconds_nanoseconds(self) -> tuple[int, int]:
        """Whole seconds, and the nanoseconds after them."""
        return divmod(self._nanoseconds, S_TO_NS)

    def to_msg(self) -> Any:
        """A ``builtin_interfaces/msg/Time``."""
        seconds, nanoseconds = self.seconds_nanoseconds()
        return rosidl.get_message("builtin_interfaces/msg/Time")(sec=seconds, nanosec=nanoseconds)

    @classmethod
    def from_msg(cls, msg: Any, clock_type: ClockType = ClockType.ROS_TIME) -> Time:
        """Of a ``builtin_interfaces/msg/Time``."""
        return cls(seconds=msg.sec, nanoseconds=msg.nanosec, clock_type=clock_type)

    def __add__(self, other: Duration) -> Time:
        return Time(nanoseconds=self._nanoseconds + other.nanoseconds, clock_type=self._clock_type)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, Duration):
            return Time(nanoseconds=self._nanoseconds - other.nanoseconds, clock_type=self._clock_type)
        return Duration(nanoseconds=self._nanoseconds - self._compared(other))

    def _compared(self, other: Any) -> int:
        if not isinstance(other, Time):
            raise TypeError("Can't compare time with object of type: ", type(other))
        if self._clock_type != other._clock_type:
            raise TypeError("Can't compare times with different clock types")
        return other._nanoseconds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Time) and self._nanoseconds == self._compared(other)

    def __lt__(self, other: Time) -> bool:
        return self._nanoseconds < self._compared(other)

    def __le__(self, other: Time) -> bool:
        return self._nanoseconds <= self._compared(other)

    def __gt__(self, other: Time) -> bool:
        return self._nanoseconds > self._compared(other)

    def __ge__(self, other: Time) -> bool:
        return self._nanoseconds >= self._compared(other)

    def __hash__(self) -> int:
        return hash(self._nanoseconds)

    def __repr__(self) -> str:
        return f"Time(nanoseconds={self._nanoseconds}, clock_type={self._clock_type.name})"


class Clock:
    """A clock of this computer. There is no simulated time: that needs a node."""

    def __init__(self, *, clock_type: ClockType = ClockType.SYSTEM_TIME) -> None:
        self.clock_type = clock_type

    def now(self) -> Time:
        """The time at this moment."""
        nanoseconds = system.monotonic_ns() if self.clock_type == ClockType.STEADY_TIME else system.time_ns()
        return Time(nanoseconds=nanoseconds, clock_type=self.clock_type)


class ROSClock(Clock):
    """The clock of ROS, which is that of the system here."""

    def __init__(self) -> None:
        super().__init__(clock_type=ClockType.ROS_TIME)


class _Policy(enum.IntEnum):
    @property
    def short_key(self) -> str:
        """Its name in texts."""
        return self.name.lower()

    @classmethod
    def short_keys(cls) -> list[str]:
        """All names."""
        return [policy.short_key for policy in cls]

    @classmethod
    def get_from_short_key(cls, name: str) -> int:
        """The policy of this name."""
        return cls[name.upper()].value


class HistoryPolicy(_Policy):
    """How many messages are kept."""

    SYSTEM_DEFAULT = 0
    KEEP_LAST = 1
    KEEP_ALL = 2
    UNKNOWN = 3


class ReliabilityPolicy(_Policy):
    """Whether messages are sent again."""

    SYSTEM_DEFAULT = 0
    RELIABLE = 1
    BEST_EFFORT = 2
    UNKNOWN = 3
    BEST_AVAILABLE = 4


class DurabilityPolicy(_Policy):
    """Whether late subscribers get earlier messages."""

    SYSTEM_DEFAULT = 0
    TRANSIENT_LOCAL = 1
    VOLATILE = 2
    UNKNOWN = 3
    BEST_AVAILABLE = 4


class LivelinessPolicy(_Policy):
    """How a publisher shows that it is alive."""

    SYSTEM_DEFAULT = 0
    AUTOMATIC = 1
    MANUAL_BY_TOPIC = 3
    UNKNOWN = 4
    BEST_AVAILABLE = 5


class QoSProfile:
    """The quality of service of a publisher or a subscription."""

    def __init__(self, **settings: Any) -> None:
        if "history" not in settings and "depth" not in settings:
            raise TypeError("History and/or depth settings are required.")
        self.history = HistoryPolicy(settings.pop("history", HistoryPolicy.KEEP_LAST))
        if self.history == HistoryPolicy.KEEP_LAST and "depth" not in settings:
            raise TypeError("History set to KEEP_LAST without a depth setting.")
        self.depth = int(settings.pop("depth", 10))
        self.reliability = ReliabilityPolicy(settings.pop("reliability", ReliabilityPolicy.RELIABLE))
        self.durability = DurabilityPolicy(settings.pop("durability", DurabilityPolicy.VOLATILE))
        self.liveliness = LivelinessPolicy(settings.pop("liveliness", LivelinessPolicy.SYSTEM_DEFAULT))
        self.lifespan = settings.pop("lifespan", Duration())
        self.deadline = settings.pop("deadline", Duration())
        self.liveliness_lease_duration = settings.pop("liveliness_lease_duration", Duration())
        self.avoid_ros_namespace_conventions = bool(settings.pop("avoid_ros_namespace_conventions", False))
        if settings:
            raise TypeError(f"QoSProfile has no {', '.join(settings)}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QoSProfile) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"QoSProfile({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


def to_metadata(profile: Any) -> dict[str, Any]:
    """A QoS profile (also one of the real rclpy) as the metadata of a bag has it."""

    def text(policy: Any) -> str:
        return str(policy.name).lower()

    def span(duration: Any) -> dict[str, int]:
        # None and zero are "no limit", which bags store as the longest span.
        nanoseconds = duration.nanoseconds or 2**63 - 1
        return {"sec": nanoseconds // S_TO_NS, "nsec": nanoseconds % S_TO_NS}

    return {
        "history": text(profile.history),
        "depth": profile.depth,
        "reliability": text(profile.reliability),
        "durability": text(profile.durability),
        "deadline": span(profile.deadline),
        "lifespan": span(profile.lifespan),
        "liveliness": text(profile.liveliness),
        "liveliness_lease_duration": span(profile.liveliness_lease_duration),
        "avoid_ros_namespace_conventions": profile.avoid_ros_namespace_conventions,
    }


_BEST_EFFORT = ReliabilityPolicy.BEST_EFFORT

#: The modules of rclpy that scripts import, by name.
MODULES: dict[str, dict[str, Any]] = {
    "clock": {"Clock": Clock, "ROSClock": ROSClock, "ClockType": ClockType},
    "clock_type": {"ClockType": ClockType},
    "constants": {"S_TO_NS": S_TO_NS},
    "duration": {"Duration": Duration, "Infinite": Infinite},
    "time": {"Time": Time, "Duration": Duration, "CONVERSION_CONSTANT": S_TO_NS},
    "qos": {
        "QoSProfile": QoSProfile,
        "HistoryPolicy": HistoryPolicy, "QoSHistoryPolicy": HistoryPolicy,
        "ReliabilityPolicy": ReliabilityPolicy, "QoSReliabilityPolicy": ReliabilityPolicy,
        "DurabilityPolicy": DurabilityPolicy, "QoSDurabilityPolicy": DurabilityPolicy,
        "LivelinessPolicy": LivelinessPolicy, "QoSLivelinessPolicy": LivelinessPolicy,
        "qos_profile_sensor_data": QoSProfile(depth=5, reliability=_BEST_EFFORT),
        "qos_profile_system_default": QoSProfile(
            history=HistoryPolicy.SYSTEM_DEFAULT, depth=0, reliability=ReliabilityPolicy.SYSTEM_DEFAULT, durability=DurabilityPolicy.SYSTEM_DEFAULT
        ),
        "qos_profile_services_default": QoSProfile(depth=10),
        "qos_profile_parameters": QoSProfile(depth=1000),
        "qos_profile_parameter_events": QoSProfile(depth=1000),
        "qos_profile_action_status_default": QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL),
    },
}
