"""Another reader of `.cr` files, which shares nothing with drasp's own: for what other interpreters make of them.

What binds more closely is a table that can be changed: files in brackets mean the same by every table.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

TABLES: Mapping[str, Mapping[str, int]] = {
    # `!` and `#` take all that follows, and `3 * n - m` is 3(n - m).
    "loose": {"||": 2, "&&": 3, "!": 1, "#": 1, "==": 4, "+": 7, "-": 6, "*": 5},
    "as in C": {"||": 1, "&&": 2, "==": 3, "+": 4, "-": 4, "*": 5, "!": 6, "#": 6},
    "one for all": dict.fromkeys(("||", "&&", "!", "#", "==", "+", "-", "*"), 1),
}
_TOKEN = re.compile(r'\s*("[^"\n]*"|#\[\w+\]|\d+|[A-Za-z_]\w*|&&|\|\||==|!=|<=|>=|[-+*<>!#()])')
_KEYWORDS = {"true", "false", "if", "else", "min", "max"}
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def accepted(text: str, word: list[str], table: Mapping[str, int], predefined: str = "") -> bool:
    """What the last line says at the last position."""
    functions: dict[str, Any] = {}
    exec(predefined, functions)
    values: dict[str, list[Any]] = {}
    last = ""
    for line in text.splitlines():
        if not line or line.startswith("//"):
            continue
        if line.startswith("#import "):
            name = line.removeprefix("#import ")
            if functions[name].__code__.co_argcount == 1:
                values[name] = [functions[name](i) for i in range(len(word))]
            continue
        last, expression = line.split(" = ", 1)
        assert re.fullmatch(r"[A-Za-z_]\w*", last)
        assert last not in _KEYWORDS | values.keys()
        values[last] = _Line(expression, word, table, values, functions).value()
    return values[last][-1]


class _Line:
    def __init__(self, text: str, word: list[str], table: Mapping[str, int], values: Any, functions: Any) -> None:
        self.parts: list[str] = []
        place = 0
        while place < len(text):
            found = _TOKEN.match(text, place)
            assert found, text[place:]
            self.parts.append(found[1])
            place = found.end()
        self.word, self.table, self.values, self.functions = word, table, values, functions

    def value(self) -> list[Any]:
        found = self.expression(0)
        assert not self.parts
        return found

    def next(self) -> str:
        return self.parts[0] if self.parts else ""

    def expression(self, least: int) -> list[Any]:
        left = self.unit()
        while (sign := self.next()) not in ("", ")"):
            binds = self.table["==" if sign in _COMPARISONS else sign]
            if binds < least:
                break
            self.parts.pop(0)
            right = self.expression(binds + (self.table["+"] != self.table["=="]))
            left = [self.joined(sign, a, b) for a, b in zip(left, right, strict=True)]
        return left

    def joined(self, sign: str, a: Any, b: Any) -> Any:
        if sign in ("&&", "||"):
            assert type(a) is type(b) is bool
            return (a and b) if sign == "&&" else (a or b)
        assert type(a) is type(b) is int
        return _COMPARISONS[sign](a, b) if sign in _COMPARISONS else {"+": a + b, "-": a - b, "*": a * b}[sign]

    def unit(self) -> list[Any]:
        part = self.parts.pop(0)
        if part == "(":
            found = self.expression(0)
            assert self.parts.pop(0) == ")"
            return found
        if part == "!":
            return [not x for x in self.expression(self.table["!"])]
        if part.startswith("#"):
            body = self.expression(self.table["#"])
            assert all(type(x) is bool for x in body)
            seen = self.functions[part[2:-1]] if part != "#" else lambda i, j: True
            return [sum(body[j] and bool(seen(i, j)) for j in range(i + 1)) for i in range(len(body))]
        if part.startswith('"'):
            return [token == part[1:-1] for token in self.word]
        if part.isdigit():
            return [int(part)] * len(self.word)
        assert part not in _KEYWORDS
        return self.values[part]
