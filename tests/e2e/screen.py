"""What a person sees on a terminal whose size changes: the few control sequences that holdall writes, and what terminals do to rows."""

import re

_SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b\][^\x07]*\x07|\r|\n|[^\x1b\r\n]+")


class Screen:
    """Rows of text with a cursor. `reflows`: rows that were wrapped are joined and wrapped anew when the width changes, as VTE, kitty and
    tmux do; else rows are cut off, as xterm does. Nothing scrolls away: rows above the window stay in `rows`."""

    def __init__(self, columns, reflows):
        self.columns, self.reflows = columns, reflows
        self.rows, self.continues = [""], [False]
        self.row = self.column = 0
        self.seen = 0

    def feed(self, text):
        """Applies what was written after the last call; `text` is everything since the start."""
        last = text.rfind("\x1b")
        # A sequence of which a part has come waits for the rest.
        is_whole = last < 0 or _SEQUENCE.match(text, last)
        whole = text if is_whole else text[:last]
        for found in _SEQUENCE.finditer(whole, self.seen):
            self._apply(found)
        self.seen = len(whole)

    def _apply(self, found):
        piece = found.group(0)
        if piece == "\r":
            self.column = 0
        elif piece == "\n":
            self._down(False)
        elif found.group(2) == "A":
            self.row = max(0, self.row - int(found.group(1) or 1))
        elif found.group(2) == "J":
            self.rows[self.row] = self.rows[self.row][: self.column]
            del self.rows[self.row + 1 :], self.continues[self.row :]
            self.continues.append(False)
        elif piece[0] != "\x1b":
            for letter in piece:
                self._write(letter)

    def _write(self, letter):
        if self.column == self.columns:
            self._down(True)
            self.column = 0
        row = self.rows[self.row].ljust(self.column)
        self.rows[self.row] = row[: self.column] + letter + row[self.column + 1 :]
        self.column += 1

    def _down(self, continues):
        self.continues[self.row] = continues
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append("")
            self.continues.append(False)

    def resize(self, columns):
        self.columns = columns
        if not self.reflows:
            self.rows = [row[:columns] for row in self.rows]
            self.column = min(self.column, columns)
            return
        rows, continues, cursor, line = [], [], None, ""
        start = 0
        for at, row in enumerate(self.rows):
            if at == self.row:
                cursor = len(line) + self.column
            line += row.ljust(self.columns) if self.continues[at] else row
            if self.continues[at]:
                continue
            start = len(rows)
            pieces = [line[i : i + columns] for i in range(0, len(line), columns)] or [""]
            rows += pieces
            continues += [True] * (len(pieces) - 1) + [False]
            if cursor is not None:
                self.row, self.column = min(start + cursor // columns, len(rows) - 1), cursor % columns
                cursor = None
            line = ""
        self.rows, self.continues = rows, continues

    def text(self):
        return "\n".join(row.rstrip() for row in self.rows)

    def wrapped(self):
        """Rows that go on in the next one."""
        return [row for row, continues in zip(self.rows, self.continues) if continues]
