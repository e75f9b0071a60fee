# SPDX-License-Identifier: MIT
"""The comments of a C source and the declarations that they document. C's parsers drop comments; this finds them
by the places of the names."""

from __future__ import annotations

import re


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


class Comments:
    def __init__(self, text: str) -> None:
        self._comments = [(m.start(), m.end(), m[0]) for m in re.finditer(r"/\*.*?\*/|//[^\n]*", text, re.S)]
        code = re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: _blank(m[0]), text, flags=re.S)
        # A line of the preprocessor ends a declaration, as a semicolon does.
        self._code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: _blank(m[0])[:-1] + ";", code, flags=re.M)
        self._lines = [0] + [m.end() for m in re.finditer(r"\n", text)]

    def _between(self, begin: int, end: int) -> list[tuple[int, int, str]]:
        return [c for c in self._comments if begin <= c[0] < end]

    def of(self, name: str, line: int, ends: str = ";{}") -> str:
        """The comment on the declaration of `name` in that line (from 1): the one behind it in its
        last line, otherwise the one in front of it. `ends`: what separates declarations."""
        found = re.compile(rf"\b{name}\b").search(self._code, self._lines[line - 1])
        if found is None:
            return ""
        end = re.compile(f"[{ends}]").search(self._code, found.end())
        behind = self._behind(found.end(), end.start() if end else len(self._code))
        return behind or self._in_front(found.start(), ends)

    def _behind(self, begin: int, end: int) -> str:
        inside = self._between(begin, end)
        if self._code[end:end + 1] in ("{", ""):
            return ""
        line_end = self._code.find("\n", end)
        after = [c for c in self._between(end, line_end) if not self._code[end + 1:c[0]].strip()]
        found = inside[-1:] or after[:1]
        return plain(found[0][2]) if found else ""

    def _in_front(self, name: int, ends: str) -> str:
        begin = max(self._code.rfind(e, 0, name) for e in ends) + 1
        first_line_end = self._code.find("\n", begin) if begin else -1
        candidates = [c for c in self._between(begin, name) if c[0] > first_line_end]
        if not candidates:
            return ""
        _, end, text = candidates[-1]
        separated = re.match(r"[ \t]*\n[ \t]*\n", self._code[end:name])
        return "" if separated else plain(text)


def plain(comment: str) -> str:
    """A comment's text, without what marks it as one."""
    body = comment[2:] if comment.startswith("//") else comment[2:-2]
    lines = [re.sub(r"^\s*\* ?", "", line) if i else line for i, line in enumerate(body.split("\n"))]
    return "\n".join(line.rstrip() for line in lines).strip()
