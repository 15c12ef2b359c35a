"""What is handed out of a search: the frontier, the pick, its names, and the evidence for it."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple, get_args

from drasp.causal import FULL, QUICK_LOOK, EvidenceEffort
from drasp.decompiler.checkpoint import Found
from drasp.decompiler.components import Graph
from drasp.decompiler.constants import out_of_range
from drasp.decompiler.moves import norm_lines
from drasp.decompiler.result import Decompiled, Point
from drasp.decompiler.search import Search
from drasp.errors import DraspError
from drasp.fitting.oracle import Oracle, answering
from drasp.language.syntax import Program
from drasp.naming.paper import name_as_paper
from drasp.naming.pipeline import name_program
from drasp.settings import NamingSettings, Settings

Accept = Literal["causal", "answers"]
Naming = Literal["drasp", "paper"]


def check_accept(accept: str) -> Accept:
    match accept:
        case "causal" | "answers":
            return accept
        case _:
            raise DraspError(f"accept {accept}: no such criterion; there are {', '.join(get_args(Accept))}")


def check_naming(naming: str) -> Naming:
    match naming:
        case "drasp" | "paper":
            return naming
        case _:
            raise DraspError(f"naming {naming}: no such naming; there are {', '.join(get_args(Naming))}")


def dense_receivers(graph: Graph) -> tuple[str, ...]:
    """Receivers that still hear most of what they could, and more than two."""
    counts = {r: (len(graph.senders_to(r)), len(graph.anatomy.senders_to(r))) for r in graph.live_receivers()}
    return tuple(f"{r} ({kept} of {all_})" for r, (kept, all_) in counts.items() if kept > max(2, all_ / 2))


def picked(search: Search, graph: Graph, min_match: float, accept: Accept, naming: Naming = "drasp") -> Decompiled:
    """The frontier, measured on fresh inputs, and the pick, with names and evidence."""
    fresh = search.fresh(search.settings.fresh_inputs, batch_size=100)
    points: list[Point] = []
    for found in candidates(search.progress.found, search.settings, search.max_lines):
        search.note("measure", found.lines, "lines", found.match)
        points.append(_measured(search, found, fresh))
    ends: list[End] = []
    finish = partial(_END[naming], search, fresh=fresh, min_match=min_match)
    for pick in _promising(points, search.settings, min_match, search.max_lines):
        search.note("take one of these", pick.lines, "lines", pick.match.value)
        ends.append(finish(pick))
        if ends[-1].final.grade == "complete":
            break
    if accept == "causal" and not any(end.final.causal for end in ends):
        tried = {end.pick.lines for end in ends}
        for found in _longer(search, tried, min_match):
            pick = _measured(search, found, fresh)
            points = sorted([*(p for p in points if p.lines != pick.lines), pick], key=lambda point: point.lines)
            search.note("take a longer one", pick.lines, "lines", pick.match.value)
            ends.append(finish(pick))
            if ends[-1].final.causal:
                break
    pick, final = choose(ends, search.settings, accept)
    known = {end.pick.lines: end.pick for end in ends}
    frontier = tuple(known.get(p.lines) or _with_evidence(search, p, p, QUICK_LOOK) for p in points)
    return Decompiled(
        identity=search.identity,
        frontier=frontier,
        pick=pick,
        final=final,
        task_accuracy=fresh.right(answering(final.program)),
        positions=search.task.reach,
        passes=tuple(search.progress.passes),
        norms_constant=len(graph.norms),
        norms_kept=tuple(str(receiver) for receiver in norm_lines(graph)),
        dense=dense_receivers(graph),
        constants_out_of_range=out_of_range(search.components, graph, search.probe),
        seconds=search.seconds,
        naming_seconds=search.spent["naming"],
        evidence_seconds=search.spent["evidence"],
        min_match=min_match,
        max_lines=search.max_lines,
    )


def _measured(search: Search, found: Found, fresh: Oracle) -> Point:
    """The program of what was found, with its agreement on fresh inputs."""
    program = search.program_of(found)
    return Point(program, fresh.match(answering(program)), found.complete, own=found.own)


class End(NamedTuple):
    """A program of the frontier, and what is handed out of it."""

    pick: Point
    final: Point


def _named_as_paper(search: Search, pick: Point, fresh: Oracle, min_match: float) -> End:
    """A program with the paper's names, whatever is lost by them; as it is, where it agrees too seldom."""
    if pick.match.value < min_match:
        return End(pick, _with_evidence(search, pick, pick))

    def report(name: str, program: Program, match: float) -> None:
        search.note(name, program.lines, "lines", match)

    with search.timed("naming"):
        program = name_as_paper(pick.program, search.draw, report)
    named = Point(program, fresh.match(answering(program)), own=pick.cut_down)
    return End(_with_evidence(search, pick, pick, QUICK_LOOK), _with_evidence(search, named, pick))


def _end(search: Search, pick: Point, fresh: Oracle, min_match: float) -> End:
    """A program with names and its evidence; without names, should they not be true, or less complete at no gain."""
    chosen = search.settings.naming
    named = pick
    for least in (chosen.least_interchange, chosen.least_again):
        named = _named(search, pick, fresh, min_match, replace(chosen, least_interchange=least))
        search.note("evidence", named.lines, "lines", named.match.value)
        if named is pick or named.match.value < min(min_match, pick.match.value):
            break
        named = _with_evidence(search, named, pick)
        if named.grade == "complete" or (named.causal and _leaves_something_out(named)):
            return End(_with_evidence(search, pick, pick, QUICK_LOOK), named)  # the pick is no better
        if not _misnamed(named):
            break
    pick = _with_evidence(search, pick, pick)
    better = named.causal and not (pick.grade == "complete" and pick.lines <= named.lines)
    return End(pick, named if better or (named.evidence and not pick.causal) else pick)


_END = {"drasp": _end, "paper": _named_as_paper}


def _misnamed(point: Point) -> bool:
    """Whether a line that was replaced does not do what it replaced: with fewer names the program may be true."""
    assert point.evidence is not None
    found = [line.interchange_cut_down for line in point.evidence.lines if line.replaced]
    return any(measure is not None and measure.failed for measure in found)


def _leaves_something_out(point: Point) -> bool:
    """Whether a program is not complete for what it is, and not for its names."""
    assert point.evidence is not None
    own = [line.interchange for line in point.evidence.lines if not line.replaced]
    return point.evidence.complement.failed or any(found is not None and found.failed for found in own)


def _with_evidence(search: Search, point: Point, pick: Point, effort: EvidenceEffort = FULL) -> Point:
    with search.timed("evidence"):
        found = search.examination(effort).evidence(point.program, pick.cut_down)
    return replace(point, evidence=found)


def candidates(found: Sequence[Found], settings: Settings, max_lines: int) -> list[Found]:
    """The frontier from short to long: each agrees more than those before, or is the first that is so complete.

    Where none is, the truest. Of those with as many lines, a complete one, and that from which most has been cut.
    """

    def order(numbered: tuple[int, Found]) -> tuple[int, bool, int]:
        number, each = numbered
        return each.lines, each.complete < settings.complete, -number

    best: list[Found] = []
    for _, each in sorted(enumerate(found), key=order):
        if not best or (
            each.lines > best[-1].lines
            and (each.match >= best[-1].match + settings.truer or each.complete > max(f.complete for f in best))
        ):
            best.append(each)
    short = [each for each in best if each.lines <= max_lines]
    return short or best[-1:]


def _longer(search: Search, tried: set[int], min_match: float) -> list[Found]:
    """A few of the longer programs that were met on the way, the last of their lengths, with ever larger steps.

    They have more of the model, and may show its means where the shortest do not.
    """
    found = [each for each in search.progress.found if min(tried) < each.lines <= search.max_lines]
    by_lines = {each.lines: each for each in found if each.match >= min_match}
    others = [by_lines[lines] for lines in sorted(by_lines.keys() - tried)]
    return [others[2**i - 1] for i in range(search.settings.more_tried) if 2**i <= len(others)]


def _named(search: Search, pick: Point, fresh: Oracle, min_match: float, chosen: NamingSettings) -> Point:
    """The pick with names; as it is, should names turn out to cost too much on inputs that no pass has seen."""
    if pick.match.value < min_match or too_large_to_name(pick.program, search.settings):
        return pick  # names would explain another function than the model's, or take longer than all that came before

    def report(name: str, program: Program, match: float) -> None:
        search.note(name, program.lines, "lines", match)

    with search.timed("naming"):
        program = name_program(pick.program, search.fit, search.check, search.trials, min_match, report, chosen)
    if search.judged(program) < search.judged(pick.program) - chosen.tolerance:
        return pick
    return Point(program, fresh.match(answering(program)), pick.complete, own=pick.own)


def too_large_to_name(program: Program, settings: Settings) -> str | None:
    """What a program has too much of to be run as often as names have to be tried; None where it has not."""
    if program.lines > settings.most_named:
        return f"more than {settings.most_named} lines"
    numbers = sum(tensor.numel() for tensor in program.tensors.values())
    most = settings.most_numbers_named
    return f"more than {most:,} numbers in its tables" if numbers > most else None


def _promising(points: Sequence[Point], settings: Settings, min_match: float, max_lines: int) -> list[Point]:
    """The shortest that agrees well enough, and the shortest complete ones that names may bring near it.

    Where there is none, the truest of those that are short enough.
    """
    good = [point for point in points if point.match.value >= min_match and point.lines <= max_lines]
    if not good:
        return [max(points, key=lambda point: (point.lines <= max_lines, point.match.value))]
    # What has lost whatever it takes is taken only where that makes it much shorter.
    most = settings.much_shorter * min((point.lines for point in good if point.complete), default=math.inf)
    good = [point for point in good if point.complete or point.lines <= most]
    shortest = min(good, key=lambda point: point.lines)
    found = [shortest]
    for complete in (settings.complete, settings.nothing_lost):
        whole = [point for point in good if point.complete >= complete]
        most = most_lines(shortest.lines, settings) + settings.saved_by_names
        found += [point for point in whole[:1] if point.lines <= most]
    return list(dict.fromkeys(found))


def most_lines(shortest: int, settings: Settings) -> float:
    """How long a complete program may be where there is a sufficient one of so many lines."""
    return float(shortest + max(settings.more_lines, settings.more_of_lines * shortest))


def choose(ends: Sequence[End], settings: Settings, accept: Accept) -> End:
    """The shortest causal program, or a complete one that is not much longer; by answers, the shortest."""
    causal = [end for end in ends if end.final.causal]
    if accept == "answers" or not causal:
        return ends[0]
    shortest = min(causal, key=lambda end: end.final.lines)
    most = most_lines(shortest.final.lines, settings)
    whole = [end for end in causal if end.final.grade == "complete" and end.final.lines <= most]
    return min(whole, key=lambda end: end.final.lines, default=shortest)
