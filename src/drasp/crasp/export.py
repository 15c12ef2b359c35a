"""Writes a D-RASP program as C-RASP: one `.cr` file a token that is ever said, and what was checked."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from drasp.crasp.checking import Comparison, compare
from drasp.crasp.from_drasp import to_crasp
from drasp.crasp.syntax import Program
from drasp.crasp.text import predefined, to_text
from drasp.errors import DraspError
from drasp.language import Program as DraspProgram

MANIFEST = "export.json"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Exported:
    """A program's C-RASP programs by the token that each is about, and on which strings both agree."""

    source: DraspProgram
    programs: Mapping[str, Program]
    comparison: Comparison

    def file_names(self) -> dict[str, str]:
        names: dict[str, str] = {}
        taken: set[str] = set()
        for token in self.programs:
            plain = re.fullmatch(r"[A-Za-z0-9_]{1,40}", token) and token.lower() not in taken
            names[token] = token if plain else f"token_{self.source.vocabulary.ids[token]}"
            taken.add(names[token].lower())
        return {token: f"{name}.cr" for token, name in names.items()}

    def files(self) -> dict[str, bytes]:
        names = self.file_names()
        predicates = [p for program in self.programs.values() for p in program.predicates]
        files = {names[t]: to_text(p, self.header(t)).encode() for t, p in self.programs.items()}
        files["predefined.py"] = predefined(predicates).encode()
        files[MANIFEST] = (json.dumps(self.manifest(names), indent=2, ensure_ascii=False) + "\n").encode()
        return files

    def header(self, token: str) -> list[str]:
        kind = "a token that may come next" if self.source.output == "sigmoid" else "the next token"
        return [
            f"Says whether {json.dumps(token, ensure_ascii=False)} is {kind} after a string: by the last line, at the",
            "last position. Strings are what the D-RASP program reads, BOS and all.",
            f"Scores and tensors were made rational. Compared with the program on {self.comparison}: they agree.",
            "This is a comparison by running both, not a proof for longer strings.",
        ]

    def manifest(self, names: Mapping[str, str]) -> dict[str, object]:
        return {
            "schema_version": SCHEMA_VERSION,
            "format": "crasp",
            "program_digest": self.source.digest,
            "output": self.source.output,
            "tokens": {
                token: {
                    "file": names[token],
                    "definitions": len(program.definitions),
                    "depth": program.depth,
                    "predicates": [predicate.name for predicate in program.predicates],
                }
                for token, program in self.programs.items()
            },
            "checked": {
                "how": "all strings, both run",
                "length": self.comparison.length,
                "strings": self.comparison.strings,
                "any_tokens_length": self.comparison.short_length,
                "any_tokens_strings": self.comparison.short_strings,
                "ties": self.comparison.ties,
            },
        }


def export(program: DraspProgram, length: int | None = None) -> Exported:
    """The program in C-RASP, compared with itself on all strings up to a length; raises where they differ."""
    programs = to_crasp(program)
    comparison = compare(program, programs, length)
    if (found := comparison.disagreement) is not None:
        by = "the program says" if found.said else "the program does not say"
        raise DraspError(
            f"made rational, the program would answer otherwise: after {' '.join(found.string)} {by} {found.token}; "
            "nothing was written"
        )
    return Exported(program, programs, comparison)
