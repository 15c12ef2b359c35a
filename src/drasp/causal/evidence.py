"""Evidence: all that was measured of a program against its model, line by line, and what follows from it.

M is the model, P the program, and M|G the model cut down to what the program keeps of it: a program too, with the
model's own tensors. Two steps have to be justified: M to M|G (what was left out) and M|G to P (what was replaced).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from drasp.causal.measures import NOT_APPLICABLE, Measure, worst
from drasp.causal.parts import PartEffect
from drasp.causal.trials import DifferingCase
from drasp.errors import DraspError
from drasp.records import WrongFieldError, typed
from drasp.settings import EVIDENCE


@dataclass(frozen=True)
class LineEvidence:
    """What was measured of one line; None where a measure says nothing of lines of its kind.

    `kind` is that of the statement. `origin` is own (the model's), approximated, named, or unknown: whose numbers they
    are is not known without M|G. `attention` of a select is that of the heads that look by it.
    Interchange is against M, `interchange_cut_down` against M|G. `case` is one in which the line fails, against M|G if
    it fails there, else against M. `part` is there for a line that stands for a part of a component.
    """

    line: str
    stands_for: str
    origin: str
    attention_cut_down: Measure | None = None
    attention: Measure | None = None
    interchange_cut_down: Measure | None = None
    interchange: Measure | None = None
    splice: Measure | None = None
    case: DifferingCase | None = None
    part: PartEffect | None = None
    kind: str | None = None

    @property
    def replaced(self) -> bool:
        return self.origin != "own"

    def failures(self) -> list[str]:
        """The measures that the line fails."""
        measures = {
            "attention of the model cut down": self.attention_cut_down,
            "attention": self.attention,
            "interchange in the model cut down": self.interchange_cut_down,
            "interchange in the model": self.interchange,
            "splice": self.splice,
        }
        return [f"{name} {m}" for name, m in measures.items() if m is not None and m.failed]


@dataclass(frozen=True)
class Evidence:
    """The measures as a whole and line by line; each whole is the worst of its lines.

    `causal` and `grade` (complete, sufficient or None) are the verdict, `reasons` what stands in its way. Of programs
    without sites, and in older records, `mean_ablated` is None.
    """

    model_cut_down: Measure  # agreement of M|G with M
    program: Measure  # agreement of P with M
    edited: Measure
    attention: Measure  # of M|G
    interchange: Measure  # against M
    splice: Measure
    complement: Measure
    mean_ablated: Measure | None = (
        None  # agreement with M of M with plain means of what P leaves out; not in old records
    )
    edits: dict[str, Measure] = field(default_factory=dict[str, Measure])
    lines: tuple[LineEvidence, ...] = ()
    without_sites: tuple[str, ...] = ()
    has_cut_down: bool = False
    causal: bool = False
    grade: str | None = None
    reasons: tuple[str, ...] = ()
    edited_case: DifferingCase | None = None
    complement_case: DifferingCase | None = None

    @property
    def fitted_share(self) -> float:
        """The share of lines whose numbers were fitted to what the model's own part says: approximated ones."""
        return sum(line.origin == "approximated" for line in self.lines) / max(1, len(self.lines))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Evidence":
        """What `json` read of evidence that was written; a field of a wrong type is a WrongFieldError."""
        return typed(cls, content)

    @classmethod
    def of_record(cls, content: Mapping[str, Any] | None, place: object) -> "Evidence | None":
        """The evidence in a result's record, which may come from anybody; None where the record has none."""
        try:
            return None if content is None else cls.from_json(content)
        except WrongFieldError as error:
            raise DraspError(f"{place}: causal: {error}; make the result anew") from None

    def line(self, name: str) -> LineEvidence:
        return next(line for line in self.lines if line.line == name)


def of_lines(lines: tuple[LineEvidence, ...], measure: str) -> Measure:
    """The worst of a measure over the lines of which it says something."""
    found = {line.line: getattr(line, measure) for line in lines if getattr(line, measure) is not None}
    return worst(found)


def causal_reasons(evidence: Evidence) -> list[str]:
    """Why a program is not causal; empty where it is."""
    if evidence.without_sites:
        return [f"lines that do not say what of the model they stand for: {', '.join(evidence.without_sites)}"]
    agreement = {"the program does not agree with the model": evidence.program}
    if evidence.has_cut_down:
        agreement = {"the model cut down does not agree with the model": evidence.model_cut_down, **agreement}
    measures = {**agreement, "edited inputs": evidence.edited}
    reasons = [f"{name}: {measure}" for name, measure in measures.items() if measure.failed]
    for line in evidence.lines:
        if line.attention_cut_down is not None and line.attention_cut_down.failed:
            reasons.append(f"{line.line} does not look where the model does: overlap {line.attention_cut_down}")
        elif line.attention is not None and line.attention.failed and _is_without_case(line):
            reasons.append(f"{line.line} has no case, and does not look where the model does: overlap {line.attention}")
        elif line.replaced and line.attention is not None and _is_elsewhere(line.attention):
            reasons.append(f"{line.line} looks elsewhere than the model: overlap {line.attention}")
    replaced = [(line, _of_replacement(line, evidence.has_cut_down)) for line in evidence.lines if line.replaced]
    wanted = "what it replaced" if evidence.has_cut_down else "what the model does"
    reasons += [f"{line.line} ({line.origin}) is not {wanted}: {m}" for line, m in replaced if m.failed]
    reasons += [
        f"{line.line} ({line.origin}) has few cases, and they speak against it: {m}"
        for line, m in replaced
        if _speaks_against(m) and not _looks_right(line)
    ]
    shown = [m for line, found in replaced for m in (found, line.attention, line.splice) if m is not None]
    # That no edit ever changes an answer of either side shows something too.
    if replaced and not evidence.edited.idle and not any(measure.passed for measure in (evidence.edited, *shown)):
        reasons.append("nothing shows that the lines that were replaced are true")
    return reasons


def _is_elsewhere(attention: Measure) -> bool:
    return attention.failed and attention.value is not None and attention.value < EVIDENCE.least_overlap


def _is_without_case(line: LineEvidence) -> bool:
    """Whether nothing but where it looks could tell that a replaced line is true."""
    return line.replaced and (line.interchange_cut_down is None or not line.interchange_cut_down.n)


def _looks_right(line: LineEvidence) -> bool:
    """Whether a line is a select by which heads look where they do in the model: that is all that it does.

    The few cases that its scores have from a source are then those where the model comes near a mistake.
    """
    return line.kind == "select" and line.attention is not None and line.attention.passed


def _speaks_against(measure: Measure) -> bool:
    """Whether a measure has cases, too few to count, and does not pass on them."""
    return measure.status == "untested" and measure.value is not None and measure.value < EVIDENCE.passing


def _of_replacement(line: LineEvidence, has_cut_down: bool) -> Measure:
    """What judges a replaced line: against M|G, or, where that is not at hand, against M, which asks for more.

    Against M an interval that is too wide does not refuse a line, since not even the model's own need pass there.
    """
    if has_cut_down:
        return line.interchange_cut_down or NOT_APPLICABLE
    found = line.interchange or NOT_APPLICABLE
    passing = found.value is not None and found.value >= EVIDENCE.passing
    return replace(found, status="untested") if found.failed and passing else found


def completeness_reasons(evidence: Evidence) -> list[str]:
    """Why a causal program is not complete; empty where it is."""
    reasons: list[str] = []
    untested: dict[str, Measure] = {}
    for line in evidence.lines:
        match line.interchange:
            case Measure(status="failed") as found:
                reasons.append(f"{line.line} is not all there is: interchange in the model {found}")
            case Measure(status="untested") as found if not found.idle:
                untested[line.line] = found
            case _:
                pass
    if len(untested) > EVIDENCE.untested_allowed or any(map(_speaks_against, untested.values())):
        found = ", ".join(f"{line} {measure}" for line, measure in untested.items())
        reasons.append(f"lines with fewer than {EVIDENCE.fewest_cases} cases that matter in the model: {found}")
    if not any(line.interchange is not None and line.interchange.passed for line in evidence.lines):
        reasons.append("no line was shown to be the model's by interchange")
    match evidence.complement.status:
        case "failed":
            reasons.append(f"what is left out matters: {evidence.complement} with it from another input")
        case "untested":
            reasons.append("what is left out could not be tested")
        case _:
            pass
    return reasons
