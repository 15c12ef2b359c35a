"""The house: which module may import which, one name for one class, and tests that stand alone."""

import ast
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import torch
from jaxtyping import TypeCheckError

import drasp
from drasp.attention import causal_weights
from drasp.language.syntax import STATEMENTS
from drasp.report import explore, page

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"

# Who alone may import a package: beside itself, and the lists of public names.
READERS = {
    "cli": {"__main__", "demo"},
    "study": {"cli"},
    "report": {"cli", "demo", "results", "study", "translation_result"},
    "results": {"cli", "demo", "study"},
    "zoo": {"cli"},
    "training": {"cli", "compiler", "report", "study", "zoo"},
    "naming": {"cli", "decompiler"},
    "decompiler": {"cli", "demo", "results", "study"},
    "certificates": {"cli", "crasp", "results"},
    "crasp": {"cli"},
}
# What the language rests on: inputs, tokens, places, files, and nothing that knows a model.
BELOW_LANGUAGE = {"activations", "attention", "edits", "errors", "input_files", "sequences", "sites", "vocabulary"}

# What matches all kinds of statements but one, which is no such line: the fewer, the better.
ALL_KINDS_BUT_ONE = {
    "causal.mechanism.stands_for",
    "causal.swaps._model_swap",
    "causal.program_swaps._program_swap",
    "certificates.lowering._step",
    "compiler.truth.sites",
    "compiler.truth.with_sites",
    "crasp.from_drasp.programs",
    "decompiler.moves._lines",
    "fitting.dropping._drop_variable",
    "fitting.dropping.divided_by_constant",
    "naming.splitting.expanded",
    "rewriting.provenance.hearing",
    "rewriting.rewrite.changed",
}

# Numbers of the search and its neighbours that are no settings.
NO_SETTINGS = {
    # What guards against rounding.
    "causal.origins._ROUNDING",
    "decompiler.constants._LEAST",
    "naming.difference._SAME",
    # Memory: tokens of a batch, logits and what is at sites that are kept, and rows of a table that is only counted.
    "causal.evaluate._TOKENS",
    "causal.trials._TOKENS",
    "causal.trials._WIDE",
    "causal.trials._MOST_KEPT",
    "decompiler.outline.MOST_ROWS",
    "decompiler.standards._MOST_BYTES",
    # How L-BFGS goes, whatever it is used for.
    "fitting.descent._MEMORY",
    "fitting.descent._ENOUGH",
    "fitting.descent._HALVINGS",
    "fitting.descent._STALLED",
    "fitting.descent._STEPS_STALLED",
    # Options of the command line, which a result keeps.
    "decompiler.pipeline.decompile.min_match",
    "decompiler.pipeline.decompile.max_lines",
    "decompiler.search.__init__.max_lines",
    "decompiler.verify.verify.samples",
    "decompiler.verify.verify.show",
    # What a person is shown.
    "naming.explain._SHOWN",
    "naming.explain._ENTRIES",
    "naming.explain._KINDS",
    "naming.explain._SAMPLES",
    "naming.explain._ONE_HOT",
    "naming.inputs._COUNT",
    # An order, and the paper's lists of primitives with their parameters.
    "naming.families._PREFERENCE",
    "naming.paper._STEPS_BACK",
    "naming.paper._EVERY",
    "naming.paper.OF_ONE",
}
NO_THRESHOLDS = {
    # The normal distribution's 95 %.
    "causal.measures.weighted_mean": [1.96],
    "causal.splice._ratio": [1.96],
    # Rounding: chances near 0 and 1, singular values of what depends on each other.
    "decompiler.ugs.gates.unigram_loss": [1e-7],
    "naming.linear._nearest_linear": [1e-6],
    # What a person is shown: entries and effects that are nothing, distances of vectors that are one.
    "naming.explain.shown": [1e-3],
    "naming.explain.logit_path": [1e-3],
    "naming.explain._clusters": [1e-4],
}


# Functions that no module of drasp calls: Python does, or a file that is run, or users of C-RASP in Python.
CALLED_FROM_OUTSIDE = {
    "drasp.__getattr__",
    "drasp.__dir__",
    "drasp.certificates.checker.main",
    "drasp.crasp.text.parse",
    "drasp.crasp.to_drasp.to_drasp",
}


@cache
def modules() -> Mapping[str, Path]:
    """Every module of drasp, by its dotted name."""
    files = sorted((SOURCE / "drasp").rglob("*.py"))
    return {".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


def sources() -> Iterator[Path]:
    """All Python of the project: the package, what measures it and what tests it."""
    for folder in ("src", "bench", "tests"):
        yield from sorted((ROOT / folder).rglob("*.py"))


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules of drasp that a piece of code imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in modules() else node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@cache
def arrows() -> Mapping[str, set[str]]:
    """What each module imports, anywhere in it."""
    found = {}
    for name, file in modules().items():
        tree = ast.parse(file.read_text())
        found[name] = {other for other in imported(tree) if other in modules() and other != name}
    return found


def part(module: str) -> str:
    """The package, or the module beside the packages, in which a module lies."""
    return [*module.split("."), ""][1]


def cycle(graph: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def pairs() -> list[tuple[str, str]]:
    return [(a, b) for a, others in arrows().items() for b in others]


def test_modules_import_each_other_in_no_circle():
    assert cycle(arrows()) == []


def test_packages_import_each_other_in_no_circle():
    packages: dict[str, set[str]] = defaultdict(set)
    for importer, other in pairs():
        if part(importer) and part(importer) != part(other):
            packages[part(importer)].add(part(other))
    assert cycle(packages) == []


def test_no_arrow_points_the_wrong_way():
    wrong = [
        f"{a} imports {b}"
        for a, b in pairs()
        if part(a) not in {"", part(b)}
        and (
            part(a) not in READERS.get(part(b), {part(a)}) or (part(a) == "language" and part(b) not in BELOW_LANGUAGE)
        )
    ]
    assert wrong == []


def test_arrows_that_are_allowed_are_there():
    """What nobody follows any more is not allowed for long."""
    followed = {(part(a), part(b)) for a, b in pairs()}
    assert [(a, b) for b, readers in READERS.items() for a in readers if (a, b) not in followed] == []
    assert {b for a, b in followed if a == "language"} - {"language"} == BELOW_LANGUAGE


def test_decompile_loads_neither_zoo_nor_training_nor_page():
    code = (
        "import sys; from drasp import decompile; print(*(name for name in sys.modules if name.startswith('drasp.')))"
    )
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert {"drasp.decompiler.pipeline", "drasp.causal.evaluate", "drasp.language"} <= loaded
    unwanted = ("drasp.zoo", "drasp.training", "drasp.report.page", "drasp.cli")
    assert [module for module in loaded if module.startswith(unwanted)] == []


def test_no_two_classes_have_one_name():
    places: dict[str, list[str]] = defaultdict(list)
    for file in sources():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_tests_do_not_import_each_other():
    """What they share stands in modules that are no tests."""
    found = [
        f"{file.name} imports {name}"
        for file in sorted((ROOT / "tests").glob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
        if name.startswith("test_")
    ]
    assert found == []


def test_long_files_say_why():
    """No file has more than 400 lines without a reason in it, and none keeps a reason that it does not need."""
    files = [file for file in (SOURCE / "drasp").rglob("*") if file.suffix in {".py", ".js", ".css"}]
    long = {file.name for file in files if len(file.read_text().splitlines()) > 400}
    assert {file.name for file in files if "Longer than 400 lines: " in file.read_text()} == long


def test_all_scripts_of_the_pages_are_type_checked():
    """`page/` lists the scripts of each page, as the page itself does."""
    for name, scripts in (("report", page._SCRIPTS), ("explore", explore._SCRIPTS)):
        files = json.loads((ROOT / "page" / f"{name}.json").read_text())["files"]
        assert [Path(file).name for file in files] == ["types.d.ts", *scripts]


def test_every_module_is_on_the_map():
    """The first table of `docs/architecture.md` names all files, or their folder, and none that is not there."""
    package, mapped = SOURCE / "drasp", set[Path]()
    table = (ROOT / "docs" / "architecture.md").read_text().partition("\n## ")[0]
    for names in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE):
        folder = package
        for name in re.findall(r"`([^`]+)`", names):
            # Behind the first of a folder, its name is left out.
            found = [*folder.glob(name)] or [*package.glob(name)]
            assert found, f"{name} is not there"
            mapped |= {file for each in found for file in (each.rglob("*") if each.is_dir() else [each])}
            folder = found[0].parent
    kinds = {".py", ".js", ".css", ".html", ".lark"}
    files = {file for file in package.rglob("*") if file.suffix in kinds and file.name != "__init__.py"}
    assert files - mapped == set()


def test_public_names_stand_in_one_table():
    assert list(drasp._HOMES) == drasp.__all__
    tree = ast.parse(modules()["drasp"].read_text())
    typed = {a.name: n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
    assert {name: typed[name] for name in drasp.__all__} == {n: f"drasp.{home}" for n, home in drasp._HOMES.items()}


def called() -> set[str]:
    """The functions of drasp that its modules use, by their homes, whichever package hands them on."""
    trees = {name: ast.parse(file.read_text()) for name, file in modules().items()}
    known: dict[str, dict[str, str]] = {}
    for name, tree in trees.items():
        known[name] = {n.name: f"{name}.{n.name}" for n in tree.body if isinstance(n, ast.FunctionDef)}
        for node in (n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)):
            known[name] |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}

    def home(place: str) -> str:
        module, _, name = place.rpartition(".")
        further = known.get(module, {}).get(name, place)
        return place if further == place else home(further)

    found: set[str] = set()
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in known[name]:
                found.add(home(known[name][node.id]))
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                found.add(home(f"{known[name].get(node.value.id, '')}.{node.attr}"))
    return found | {home(f"drasp.{module}.{name}") for name, module in drasp._HOMES.items()}


def test_no_function_is_there_for_the_tests_alone():
    """Those with a decorator are registered somewhere."""
    functions = {
        f"{name}.{node.name}"
        for name, file in modules().items()
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef) and not node.decorator_list
    }
    assert functions - called() == CALLED_FROM_OUTSIDE


def kinds_matched() -> dict[str, set[str]]:
    """The kinds of statements that each function outside the language matches or asks for."""
    kinds, found = {kind.__name__ for kind in STATEMENTS}, {}
    for name, file in modules().items():
        for function in ast.walk(ast.parse(file.read_text())) if part(name) != "language" else ():
            if isinstance(function, ast.FunctionDef):
                patterns = [n.cls for n in ast.walk(function) if isinstance(n, ast.MatchClass)]
                calls = [n for n in ast.walk(function) if isinstance(n, ast.Call)]
                tests = [n.args[1] for n in calls if isinstance(n.func, ast.Name) and n.func.id == "isinstance"]
                named = {n.id for each in (*patterns, *tests) for n in ast.walk(each) if isinstance(n, ast.Name)}
                found[f"{name.removeprefix('drasp.')}.{function.name}"] = kinds & named
    return found


def test_no_function_outside_the_language_matches_all_kinds_of_statements():
    """Where one more kind is to be thought of; sentences alone are different for each."""
    found = kinds_matched()
    assert [name for name, kinds in found.items() if len(kinds) == len(STATEMENTS)] == ["words.lines.sentence"]


def test_functions_that_match_all_kinds_but_one_are_known():
    """Their `_` is one kind, or two: whoever adds a statement reads these."""
    nearly = {name for name, kinds in kinds_matched().items() if len(kinds) == len(STATEMENTS) - 1}
    assert nearly == ALL_KINDS_BUT_ONE


def test_no_cache_stands_before_a_registry():
    """A primitive that is registered after the first use is seen: what is remembered is keyed by all there are."""
    found = []
    for name, file in modules().items():
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef) and {"cache", "lru_cache"} & {
                n.id for each in function.decorator_list for n in ast.walk(each) if isinstance(n, ast.Name)
            }:
                read = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
                found += [name] if read & {"_REGISTRY", "tensor_primitives", "function_primitives"} else []
    assert found == []


def numbers_of_modules(packages: set[str]) -> dict[str, str]:
    """The numbers that stand in modules of these packages for themselves: at the top, or as a function's default."""
    found: dict[str, str] = {}
    for name, file in modules().items():
        tree = ast.parse(file.read_text()) if part(name) in packages else ast.Module([], [])
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and numbers(node.value):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {f"{name.removeprefix('drasp.')}.{ast.unparse(each)}": ast.unparse(node) for each in targets}
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                arguments = [*function.args.posonlyargs, *function.args.args][::-1]
                for argument, default in zip(arguments, function.args.defaults[::-1], strict=False):
                    if numbers(default):
                        found[f"{name.removeprefix('drasp.')}.{function.name}.{argument.arg}"] = ast.unparse(default)
    return found


def numbers(node: ast.AST) -> list[float]:
    """Those that say how much: not 0 or 1, nor what guards against rounding."""
    values = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
    counts = [x for x in values if isinstance(x, int | float) and not isinstance(x, bool)]
    return [x for x in counts if x not in (0, 1) and abs(x) > 1e-9]


def thresholds(packages: set[str]) -> dict[str, list[float]]:
    """Shares that stand in the text of a function: what has a decimal point and is neither a half nor a whole."""
    found: dict[str, list[float]] = defaultdict(list)
    for name, file in modules().items():
        for function in ast.walk(ast.parse(file.read_text())) if part(name) in packages else ():
            if isinstance(function, ast.FunctionDef):
                inside = [n for line in function.body for n in numbers(line)]
                shares = [x for x in inside if x != 0.5 and not float(x).is_integer()]
                if shares:
                    found[f"{name.removeprefix('drasp.')}.{function.name}"] += shares
    return found


def test_numbers_of_the_search_the_names_and_the_evidence_are_settings():
    """What stands elsewhere guards against rounding, bounds memory, is an option, or is for whoever reads."""
    searching = {"causal", "decompiler", "fitting", "naming", "rewriting"}
    assert set(numbers_of_modules(searching)) == NO_SETTINGS
    assert thresholds(searching) == NO_THRESHOLDS


def test_every_setting_says_why():
    """What it is, and why it is so large, stands behind each."""
    file = modules()["drasp.settings"]
    lines = file.read_text().splitlines()
    silent: list[str] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.AnnAssign) and not ("  # " in lines[node.lineno - 1] or "field(" in ast.unparse(node)):
            silent.append(ast.unparse(node.target))
    assert silent == []


def test_exact_rewriting_knows_no_model_no_judge_and_no_threshold():
    below = BELOW_LANGUAGE | {"language", "passes", "rewriting", "tasks"}
    assert [f"{a} imports {b}" for a, b in pairs() if part(a) == "rewriting" and part(b) not in below] == []


def test_shapes_are_checked():
    """A module that states shapes refuses tensors of others: what the tests run is checked by it."""
    scores, bias = torch.zeros(2, 3), torch.zeros(2, 4)
    with pytest.raises(TypeCheckError):
        causal_weights(scores, bias)
