"""What an interrupted decompilation left behind: the results of its finished passes, in one safetensors file.

It says what run it is of, and what each pass is called: another run does not go on from there. It has a digest of all
that is in it, so that none goes on from what was damaged.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from drasp.decompiler.components import Anatomy, Cuttable, Graph
from drasp.errors import DraspError
from drasp.input_files import read_tensors_and_facts
from drasp.language import parse, to_text
from drasp.language.syntax import Program, ProgramError
from drasp.output_folder import write_tensors_and_facts
from drasp.records import Identity, PassRecord, typed
from drasp.sites import Edge, Product, Read, parse_site


@dataclass(frozen=True)
class State:
    """What the passes hand on: the graph that is left, and its program once it can be written.

    `settled` is whether better constants have been looked for since something was cut. `kept` is what a pass wants to
    find again and is neither graph nor program.
    """

    graph: Graph
    program: Program | None = None
    settled: bool = False
    kept: "Kept | None" = None


@dataclass(frozen=True, eq=False)
class Kept:
    """Facts, as JSON has them, and tensors."""

    facts: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True)
class Found:
    """What was left of the model on the way, its agreement on the pool that decides, and the lines of its program.

    It is a graph, whose program is written where it is handed out, or a program that is no graph's. `complete` is how
    many answers were seen to stay, at least, when what it leaves out comes from another input; 0 where nobody looked.
    `own` is the program with the model's own tensors, where this one has others.
    """

    match: float
    left: Graph | Program
    lines: int
    complete: float
    own: Program | None = None


@dataclass
class Progress:
    """Everything that later passes depend on, beside what is drawn anew from the seed; states by names of passes."""

    states: list[tuple[str, State]] = field(default_factory=list[tuple[str, State]])
    found: list[Found] = field(default_factory=list[Found])
    passes: list[PassRecord] = field(default_factory=list[PassRecord])

    def copy(self) -> "Progress":
        return Progress(list(self.states), list(self.found), list(self.passes))


def checkpoint_file(out: Path, seed: int | None = None) -> Path:
    """The checkpoint's file, beside the folder that the result will be in; with a seed, for one of several searches."""
    return out.with_name(f"{out.name}{'' if seed is None else f'.{seed}'}.decompiling")


def store(file: Path, progress: Progress, identity: Identity, seconds: float) -> None:
    """Writes what is finished of a run, and the seconds that it has taken so far."""
    tensors: dict[str, Tensor] = {}
    names: dict[int, str] = {}  # of tensors of programs, by the objects: programs share many, and each is written once
    stores: set[int] = set()

    def name_of(tensor: Tensor) -> str:
        if id(tensor) not in names:
            names[id(tensor)] = f"tensor{len(names)}"
            place = tensor.untyped_storage().data_ptr()
            tensors[names[id(tensor)]] = tensor.clone() if place in stores else tensor  # two parts of one are refused
            stores.add(place)
        return names[id(tensor)]

    def program(content: Program | None) -> dict[str, Any] | None:
        if content is None:
            return None
        return {"text": to_text(content), "tensors": {key: name_of(t) for key, t in content.tensors.items()}}

    def graph_facts(graph: Graph) -> dict[str, Any]:
        edges, receivers = graph.anatomy.edges, graph.anatomy.receivers
        constants = torch.stack([graph.constants[r] for r in receivers])
        return {
            "constants": name_of(constants),
            "kept": sorted(edges.index(edge) for edge in graph.kept),
            "norms": {str(receivers.index(r)): value for r, value in graph.norms.items()},
            "closed": sorted(map(str, graph.closed)),
            "bare": {str(receivers.index(r)): value for r, value in graph.bare.items()},
        }

    states: list[dict[str, Any]] = []
    for i, (name, state) in enumerate(progress.states):
        if state.kept is not None:
            tensors |= {f"kept{i}/{key}": tensor.clone() for key, tensor in state.kept.tensors.items()}
        states.append(
            {
                "pass": name,
                "graph": graph_facts(state.graph),
                "program": program(state.program),
                "settled": state.settled,
                "kept_facts": state.kept and state.kept.facts,
            }
        )
    facts = {
        "identity": asdict(identity),
        "seconds": seconds,
        "states": states,
        "found": [
            {
                "match": f.match,
                "lines": f.lines,
                "complete": f.complete,
                "graph": graph_facts(f.left) if isinstance(f.left, Graph) else None,
                "program": program(f.left) if isinstance(f.left, Program) else None,
                "own": program(f.own),
            }
            for f in progress.found
        ],
        "passes": [asdict(record) for record in progress.passes],
    }
    write_tensors_and_facts(file, tensors, "progress", facts)


def load(file: Path, anatomy: Anatomy, identity: Identity) -> tuple[Progress, float]:
    """What is finished of the run of this identity, and its seconds; refuses a damaged file, or another run."""
    stored = read_tensors_and_facts(file, "progress")
    if stored is None:
        raise DraspError(f"{file}: no interrupted run to resume; leave out --resume to begin one")
    tensors, facts = stored
    try:
        for difference in typed(Identity, facts["identity"]).differences(identity):
            raise DraspError(f"{file}: was begun with {difference}; go on with the same, or remove it to begin again")
        progress = Progress(
            [(each["pass"], _state(i, each, anatomy, tensors)) for i, each in enumerate(facts["states"])],
            [
                Found(
                    float(each["match"]),
                    _left(each, anatomy, tensors),
                    int(each["lines"]),
                    float(each["complete"]),
                    None if each["own"] is None else _program(each["own"], tensors),
                )
                for each in facts["found"]
            ],
            [typed(PassRecord, record) for record in facts["passes"]],
        )
        return progress, float(facts["seconds"])
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, ProgramError):
        raise DraspError(f"{file}: not the state of a decompilation; remove it to begin again") from None


def _state(i: int, content: Mapping[str, Any], anatomy: Anatomy, tensors: Mapping[str, Tensor]) -> State:
    facts = content["kept_facts"]
    program = None if content["program"] is None else _program(content["program"], tensors)
    kept = None if facts is None else Kept(facts, _under(f"kept{i}/", tensors))
    return State(_graph(content["graph"], anatomy, tensors), program, bool(content["settled"]), kept)


def _left(content: Mapping[str, Any], anatomy: Anatomy, tensors: Mapping[str, Tensor]) -> Graph | Program:
    graph, program = content["graph"], content["program"]
    return _program(program, tensors) if graph is None else _graph(graph, anatomy, tensors)


def _graph(content: Mapping[str, Any], anatomy: Anatomy, tensors: Mapping[str, Tensor]) -> Graph:
    edges, receivers = anatomy.edges, anatomy.receivers
    return Graph(
        anatomy,
        frozenset(edges[index] for index in content["kept"]),
        dict(zip(receivers, tensors[content["constants"]], strict=True)),
        {receivers[int(index)]: value for index, value in content["norms"].items()},
        frozenset(_cuttable(text) for text in content["closed"]),
        {receivers[int(index)]: value for index, value in content["bare"].items()},
    )


def _cuttable(text: str) -> Cuttable:
    match parse_site(text):
        case Edge() | Read() | Product() as site:
            return site
        case _:
            raise ValueError(f"expected an edge, a read or a product, found {text}")


def _program(content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Program:
    return parse(content["text"], {key: tensors[name] for key, name in content["tensors"].items()})


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
