"""What an interrupted decompilation left behind: the results of its finished passes, in one safetensors file."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from drasp.decompiler.components import Anatomy, Graph
from drasp.decompiler.result import PassRecord
from drasp.errors import DraspError
from drasp.language import parse, to_text
from drasp.language.syntax import Program, ProgramError
from drasp.output_folder import write_file


@dataclass(frozen=True)
class State:
    """What the passes hand on: the graph that is left, and its program once it can be written."""

    graph: Graph
    program: Program | None = None


@dataclass(frozen=True)
class Found:
    """A program on the way, its agreement on the pool that decides, and its lines once it is simplified."""

    match: float
    program: Program
    lines: int


@dataclass
class Progress:
    """Everything that later passes depend on, beside what is drawn anew from the seed."""

    states: list[State] = field(default_factory=list[State])
    found: list[Found] = field(default_factory=list[Found])
    passes: list[PassRecord] = field(default_factory=list[PassRecord])


def checkpoint_file(out: Path) -> Path:
    """Beside the folder that the result will be in."""
    return out.with_name(f"{out.name}.decompiling")


def store(file: Path, progress: Progress, settings: Mapping[str, Any]) -> None:
    tensors: dict[str, Tensor] = {}

    def program(name: str, content: Program | None) -> str | None:
        if content is None:
            return None
        tensors.update({f"{name}/{key}": tensor.contiguous() for key, tensor in content.tensors.items()})
        return to_text(content)

    states: list[dict[str, Any]] = []
    for i, state in enumerate(progress.states):
        graph, anatomy = state.graph, state.graph.anatomy
        tensors[f"state{i}.constants"] = torch.stack([graph.constants[r] for r in anatomy.receivers])
        states.append(
            {
                "kept": sorted(anatomy.edges.index(edge) for edge in graph.kept),
                "norms": {str(anatomy.receivers.index(r)): value for r, value in graph.norms.items()},
                "program": program(f"state{i}", state.program),
            }
        )
    facts = {
        "settings": dict(settings),
        "states": states,
        "found": [
            {"match": f.match, "lines": f.lines, "program": program(f"found{i}", f.program)}
            for i, f in enumerate(progress.found)
        ],
        "passes": [asdict(record) for record in progress.passes],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, save(tensors, {"progress": json.dumps(facts)}))


def load(file: Path, anatomy: Anatomy, settings: Mapping[str, Any]) -> Progress:
    """Refuses what is damaged, or was begun with other settings."""
    try:
        with safe_open(file, "pt") as stored:
            facts = json.loads(stored.metadata()["progress"])
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        begun = facts["settings"]
        progress = Progress(
            [_state(i, content, anatomy, tensors) for i, content in enumerate(facts["states"])],
            [
                Found(content["match"], _program(f"found{i}", content["program"], tensors), content["lines"])
                for i, content in enumerate(facts["found"])
            ],
            [PassRecord(**record) for record in facts["passes"]],
        )
    except FileNotFoundError:
        raise DraspError(f"{file}: no interrupted run to resume; leave out --resume to begin one") from None
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, IndexError, AttributeError, ProgramError):
        raise DraspError(f"{file}: not the state of a decompilation; remove it to begin again") from None
    for name, value in settings.items():
        if begun.get(name) != value:
            raise DraspError(f"{file}: was begun with {name} {begun.get(name)}, found {value}; use the same options")
    return progress


def _state(i: int, content: Mapping[str, Any], anatomy: Anatomy, tensors: Mapping[str, Tensor]) -> State:
    edges, receivers = anatomy.edges, anatomy.receivers
    graph = Graph(
        anatomy,
        frozenset(edges[index] for index in content["kept"]),
        dict(zip(receivers, tensors[f"state{i}.constants"], strict=True)),
        {receivers[int(index)]: value for index, value in content["norms"].items()},
    )
    text = content["program"]
    return State(graph, None if text is None else _program(f"state{i}", text, tensors))


def _program(name: str, text: str, tensors: Mapping[str, Tensor]) -> Program:
    own = {key.removeprefix(f"{name}/"): value for key, value in tensors.items() if key.startswith(f"{name}/")}
    return parse(text, own)
