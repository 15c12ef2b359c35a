"""Puts the modules that recompute a certificate into one file that needs NumPy alone."""

import ast
from importlib.resources import files

_MODULES = ("bounds", "level", "functions", "program_levels", "model_levels", "tree", "findings", "checker")
_HEAD = '''\
"""Checks certificates of drasp; needs Python 3.10 or newer and NumPy.

    python check_certificate.py certificate.json

A certificate holds a program, a model, a task, and what was found for all inputs up to a length. This recomputes it
with error bounds, and says whether it holds.
"""

'''
CHECKER = "check_certificate.py"


def standalone_checker() -> str:
    """The text of `check_certificate.py`."""
    imports, bodies = set[str](), list[str]()
    for module in _MODULES:
        source = (files("drasp.certificates") / f"{module}.py").read_text()
        lines, tree = source.splitlines(), ast.parse(source)
        kept = list(lines)
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                if "drasp" not in ast.unparse(node):
                    imports.add(ast.unparse(node))
                kept[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or 0) - node.lineno + 1)
        bodies.append("\n".join(kept).strip().replace("\n\n\n\n", "\n\n\n"))
    return "\n".join([_HEAD + "\n".join(sorted(imports)), *(f"\n\n{body}\n" for body in bodies), _LAST])


_LAST = """

if __name__ == "__main__":
    main()
"""
