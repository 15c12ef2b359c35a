"""Writes a D-RASP program as C-RASP: one `.cr` file a token that is ever said, and what was checked.

Either the program's own lines, followed by cases and compared on all strings; or, for lines outside C-RASP,
inequalities that were found on all strings up to a length; or the program of its task's language, with a certificate
that the two say the same on the strings of the language.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from drasp.certificates import Certificate, certified, certify
from drasp.crasp.automaton import decide, next_token_automata, of_language
from drasp.crasp.checking import Comparison, answers_to_all, checked_length, compare
from drasp.crasp.fitting import Detail, fitted
from drasp.crasp.from_drasp import to_crasp
from drasp.crasp.syntax import CraspError, CraspProgram
from drasp.crasp.text import predefined, to_text
from drasp.crasp.witness import witness as accepting
from drasp.errors import DraspError
from drasp.language import Program, ProgramError
from drasp.tasks import Task
from drasp.tasks.framed import language_of

MANIFEST = "export.json"
CERTIFICATE = "certificate.json"
SCHEMA_VERSION = 1
_SECONDS = 5.0  # for a certificate whose length nobody has asked for


@dataclass(frozen=True)
class Fitted:
    """Why a program has no C-RASP program of its own lines, and what the inequalities that were found tell apart."""

    refusal: str
    detail: Detail


@dataclass(frozen=True)
class Exported:
    """A program's C-RASP programs by the token that each is about, and on which strings both agree.

    Where a certificate says so, they are those of the language of a task, on whose strings both agree.
    """

    source: Program
    programs: Mapping[str, CraspProgram]
    agreement: Comparison | Certificate
    fitted: Fitted | None = None

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
        return files | (self.agreement.files(CERTIFICATE) if isinstance(self.agreement, Certificate) else {})

    def header(self, token: str) -> list[str]:
        kind = "a token that may come next" if self.source.output == "sigmoid" else "the next token"
        return [
            f"Says whether {json.dumps(token, ensure_ascii=False)} is {kind} after a string: by the last line, at the",
            "last position. Strings are what the D-RASP program reads, BOS and all.",
            *self.grounds(),
        ]

    def grounds(self) -> list[str]:
        """Why this should be the same program."""
        match self.agreement:
            case Certificate() as certificate:
                return [
                    f"This is the program of the language of task {certificate.task_name}, and not the lines of the",
                    f"D-RASP program. Both say the same on strings of the language: {certificate.sentence}",
                    f"({CERTIFICATE}).",
                ]
            case Comparison() as comparison if self.fitted is not None:
                return [
                    f"The D-RASP program has no C-RASP program of its own lines: {self.fitted.refusal}.",
                    "This one is of inequalities that were found on all strings of up to",
                    f"{comparison.length} ordinary tokens. They are of {self.fitted.detail}.",
                    f"Both say the same on {comparison}.",
                    "Nothing is said of other strings.",
                ]
            case Comparison() as comparison:
                return [
                    f"Scores and tensors were made rational. Both say the same on {comparison}.",
                    "Nothing is proved for longer strings.",
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
            "fitted": self.fitted and {"refusal": self.fitted.refusal, "inequalities_of": str(self.fitted.detail)},
            "checked": self.checked(),
        }

    def checked(self) -> dict[str, object]:
        match self.agreement:
            case Certificate() as certificate:
                [found] = certificate.results.values()
                kept = {key: found[key] for key in ("length", "margin")}
                how = "certificate, on strings of the task's language"
                return {"how": how, "task": certificate.task_name, "strings": found["inputs"], **kept}
            case Comparison() as comparison:
                return {
                    "how": "all strings, both run, and with error bounds",
                    "length": comparison.length,
                    "strings": comparison.strings,
                    "any_tokens_length": comparison.short_length,
                    "any_tokens_strings": comparison.short_strings,
                    "ties": comparison.ties,
                    "proved": comparison.proved,
                    "undecided": comparison.undecided,
                    "margin": comparison.margin,
                }


def export(program: Program, length: int | None = None) -> Exported:
    """The program in C-RASP, compared with itself on all strings up to a length; raises where they differ."""
    programs = to_crasp(program)
    return Exported(program, programs, _alike(compare(program, programs, length)))


def export_fitted(program: Program, length: int | None = None) -> Exported:
    """The same; or, where lines are outside C-RASP, inequalities found on all strings up to a length.

    These strings begin as inputs do, and have no other special token.
    """
    try:
        return export(program, length)
    except ProgramError as error:
        refusal = error.problem
    length = checked_length(program, length)
    try:
        programs, detail = fitted(program, *answers_to_all(program, length))
    except CraspError as error:
        raise DraspError(f"{refusal}; and no inequalities tell what it says up to length {length}: {error}") from None
    comparison = compare(program, programs, length, any_tokens=False)
    return Exported(program, programs, _alike(comparison), Fitted(refusal, detail))


def _alike(comparison: Comparison) -> Comparison:
    if (found := comparison.disagreement) is not None:
        by = "the program says" if found.said else "the program does not say"
        raise DraspError(
            f"made rational, the program would answer otherwise: after {' '.join(found.string)} {by} {found.token}; "
            "nothing was written"
        )
    return comparison


def export_language(program: Program, task: Task, length: int | None = None) -> Exported:
    """The C-RASP programs of a task's language, where the program is proved to say the same on its strings.

    Without a length, the greatest is taken that some seconds are enough for.
    """
    language = language_of(task)
    if language is None:
        raise DraspError(f"task {task.name}: not a language, so there is no C-RASP program of it")
    decision = decide(of_language(language))
    if not decision.in_crasp:
        raise DraspError(f"task {task.name}: its language is not in C-RASP: {decision.reason}")
    proof = certified(program, None, task, _SECONDS) if length is None else certify(program, None, task, length)
    if proof is None:
        raise DraspError(f"task {task.name}: nothing can be proved of this program in {_SECONDS:g} s")
    if proof.status != "proved":
        [found] = proof.results.values()
        would = f"; --length {found['length']} would do" if found["inputs"] else ""
        raise DraspError(f"the program is not that of the language {task.name}: {proof.sentence}{would}")
    # What tells the states of the language apart tells apart what may come next.
    programs = {token: accepting(decide(found)) for token, found in next_token_automata(language).items()}
    return Exported(program, programs, proof)


def standing(program: Program, task: Task, proved: bool) -> str | None:
    """What is decided of a task's language, for models without positions, and which program is a witness.

    None where the task is no language. The program is one if it is `proved` to be the language's, and C-RASP.
    """
    language = language_of(task)
    if language is None:
        return None
    decision = decide(of_language(language))
    if not decision.in_crasp:
        return f"language {task.name}, decided without positions: not in C-RASP: {decision.reason}"
    witness = f"`drasp export PROGRAM --task {task.name}` writes one"
    if proved:
        try:
            to_crasp(program)
            witness = "this program"
        except DraspError:
            pass  # a line is outside C-RASP
    return f"language {task.name}, decided without positions: in C-RASP; witness: {witness}"
