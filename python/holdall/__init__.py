"""ROS 2 bags: read messages and columns, write, check, convert, record and play them, without a ROS installation.

    bag = holdall.open("run1")
    for message in bag.messages("/imu"):
        print(message.time, message.msg.linear_acceleration.z)
    bag["/imu"].to_numpy("linear_acceleration")

numpy, pandas, polars, pyarrow and duckdb are used where they are installed; none of them is needed.
"""

from ._bag import Bag, open
from ._errors import (
    BagError,
    BagWarning,
    DecodeError,
    DefinitionError,
    EncodeError,
    Error,
    ExpressionError,
    FieldError,
    InternalError,
    ProgramError,
    TopicError,
    WriteError,
)
from ._media import image, points
from ._native import Message, Messages, Struct, __version__
from ._plan import Migration, Part, Task, catalog, find, plan, plan_migration, read
from ._program import Playback, Recording, program, run
from ._topic import Topic
from ._verbs import (
    attach,
    audit,
    burst,
    check,
    compress,
    convert,
    decompress,
    decrypt,
    diff,
    events,
    export,
    filter,
    get,
    info,
    merge,
    migrate,
    play,
    plot,
    preflight,
    record,
    reindex,
    repair,
    split,
    upload,
)
from ._writer import MessageType, Writer, create

__all__ = [
    "Bag",
    "BagError",
    "BagWarning",
    "DecodeError",
    "DefinitionError",
    "EncodeError",
    "Error",
    "ExpressionError",
    "FieldError",
    "InternalError",
    "Message",
    "MessageType",
    "Messages",
    "Migration",
    "Part",
    "Playback",
    "ProgramError",
    "Recording",
    "Struct",
    "Task",
    "Topic",
    "TopicError",
    "WriteError",
    "Writer",
    "__version__",
    "attach",
    "audit",
    "burst",
    "catalog",
    "check",
    "compress",
    "convert",
    "create",
    "decompress",
    "decrypt",
    "diff",
    "events",
    "export",
    "filter",
    "find",
    "get",
    "image",
    "info",
    "merge",
    "migrate",
    "open",
    "plan",
    "plan_migration",
    "play",
    "plot",
    "points",
    "preflight",
    "program",
    "read",
    "record",
    "reindex",
    "repair",
    "run",
    "split",
    "upload",
]
