"""``python -m holdall``, and the command of the wheel: the program itself."""

from __future__ import annotations

import os
import sys

from ._errors import ProgramError
from ._program import program


def main() -> int:
    """Becomes the program."""
    try:
        path = program()
    except ProgramError as error:
        print(error, file=sys.stderr)
        return 2
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
