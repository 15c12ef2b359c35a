"""Programs whose operations have lost their names."""

from dataclasses import replace

from drasp.language import Program
from drasp.language.syntax import Project, Select
from drasp.rewriting.rewrite import dense_ops, with_op


def without_names(named: Program) -> Program:
    """The same numbers, stored."""
    statements = tuple(with_op(s, f"T{s.name}") if isinstance(s, Select | Project) else s for s in named.statements)
    stored = {f"T{name}": op.clone() for name, op in dense_ops(named).items()}
    return replace(named, statements=statements, tensors={**named.tensors, **stored})
