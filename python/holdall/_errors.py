"""What holdall raises: one tree, with the place of the fault as attributes."""

from __future__ import annotations


class Error(Exception):
    """Anything that holdall refuses or cannot do.

    ``path`` is the bag or file, ``offset`` the byte (of the file, or of the payload for a :class:`DecodeError`), ``topic`` and ``field`` what
    the fault is about; each is None where it is not known.
    """

    path: str | None
    offset: int | None
    topic: str | None
    field: str | None

    def __init__(
        self,
        text: str = "",
        *,
        path: str | None = None,
        offset: int | None = None,
        topic: str | None = None,
        field: str | None = None,
    ) -> None:
        super().__init__(text)
        self.path = path
        self.offset = offset
        self.topic = topic
        self.field = field


class BagError(Error):
    """A bag that cannot be read: it does not exist, is not a bag, or is damaged."""


class DecodeError(Error):
    """A message that does not fit its definition, or a topic without one."""


class EncodeError(Error, ValueError):
    """An object that is not a message of its type."""


class TopicError(Error, LookupError):
    """A topic that is not in the bag."""


class FieldError(Error, LookupError):
    """A field that a message does not have."""


class ExpressionError(Error, ValueError):
    """A condition that does not fit the topic's type."""


class DefinitionError(Error):
    """A message type that is not known."""


class WriteError(Error):
    """A bag that cannot be written."""


class ProgramError(Error):
    """The program ``holdall`` was not found, refused its arguments or failed; ``code`` is its exit code."""

    code: int | None

    def __init__(self, text: str = "", *, code: int | None = None, path: str | None = None) -> None:
        super().__init__(text, path=path)
        self.code = code


class InternalError(Error):
    """A bug in holdall; please report it."""


class BagWarning(UserWarning):
    """Something about a bag that its reader should know: it is torn, or its metadata was rebuilt."""
