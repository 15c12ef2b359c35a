"""Bad inputs: each is a command with one file damaged or replaced, or with an odd argument."""

import json
import os
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from campaign.commands import FINDING, LEARNING, TRAP, Tally, anew, failure, forked, located, spawned, trap_pickle

OWN_PROCESS = 32  # every so-many-th input; of these, every twentieth by a new Python
VALUES: tuple[object, ...] = (
    None, True, -1, 0, 1.5, 10**30, 1e308, float("nan"), "", "[/red]", "\x1b[2J", "a\0b", "x" * 10_000, [], {}, [[]],
    {"a": {}}, "../../etc/passwd", "trap.py:mine", "</script><script>alert(1)</script>", [1, "a", None],
)  # fmt: skip
ARGUMENTS = (
    "", "-1", "0", "99999999999999999999", "1e999", "nan", "[/red]", "\x1b[2J", "a\0b", "/dev/zero", "/", ".", "..",
    "x" * 5000, "\udcff", "--", "--out", "-h", "own.py:mine", "/dev/full", "/proc/self/mem", "3", "0.5", "RESULT",
    "MODEL", "OUT", "PLACE/certificate.json", "--debug", "--json", "--resume", "\u202e", "~", "$HOME", "*",
)  # fmt: skip
WORDS = (
    b"",
    b"-1",
    b"0",
    b"1.5",
    b"99999999999999999999",
    b"1e999",
    b"nan",
    b'"\\u001b[2J"',
    b"[[1]]",
    b"x" * 9999,
    b"\xff",
)
# How often each is drawn; those that take longer are drawn less.
COMMANDS = {
    "check RESULT": 10, "check SMALL": 10, "check PLACE/found": 5, "run RESULT BOS 1 1": 4, "run SMALL BOS 0 1": 10,
    "explain RESULT": 1, "explain RESULT 1": 0.5, "explain SMALL --json": 10, "explain SMALL 2 --json": 10,
    "explain PLACE/found": 10, "explain PLACE/found 2": 5, "report RESULT": 0.5, "report SMALL": 10,
    "report PLACE/found": 2, "explore PLACE": 10, "diff RESULT RESULT": 3, "diff SMALL PLACE/found": 10,
    "decompile MODEL --out RESULT --pick 3": 0.5, "translate MODEL --out OUT": 0.5, "translate MODEL --out RESULT": 0.5,
    "translate TINY --task bin_majority --out OUT": 3, "compile SMALL --out OUT": 10, "export SMALL --out OUT": 10,
    "export RESULT --task tomita1 --length 3 --out OUT": 3, "verify RESULT MODEL --samples 5": 10,
    "verify PLACE/found TINY --task bin_majority --causal": 0.5, "import PLACE/nano.pt --out OUT": 10,
    "language (ab)* --out OUT": 10, "language --task tomita1 --json": 5, "language (a|b)*a --alphabet abc": 5,
    "certify SMALL --length 2 --out OUT/certificate.json --task bin_majority": 8,
    "certify RESULT --length 2 --out OUT/certificate.json": 8, "certify RESULT MODEL --length 2 --out OUT/x.json": 2,
    "check-certificate PLACE/certificate.json": 10, "train own.py:mine --steps 1 --out OUT": 1,
    f"{LEARNING} --resume --out PLACE/begun": 0.2, f"{FINDING} --resume --out PLACE/begun": 0.2,
    "sweep PLACE/study.toml --out PLACE/study --quiet": 10, "tables PLACE/study": 1, "tasks": 1, "zoo": 1,
    "figures SMALL --format svg": 0.4, "figures PLACE/found --format svg": 0.2,
    "name SMALL TINY --task bin_majority --out OUT": 1,
    f"{FINDING} --out OUT": 0.2, f"{FINDING} --seeds 2 --out OUT": 0.1,
    f"{FINDING} TINY2 --out OUT": 0.1,
}  # fmt: skip
_KINDS = (
    "bits", "cut off", "a word", "a word", "inserted", "no file", "a pipe", "a device", "a folder", "a loop",
    "letters", "sparse", "a pickle", "another's", "bytes",
)  # fmt: skip


def bad_inputs(origin: Path, place: Path, numbers: range, seed: int) -> Tally:
    """Tries the inputs of these numbers, each in a folder that is made anew for it."""
    tally = Tally()
    here = Path.cwd()
    empty = place / "empty"
    work = place / "work"
    shutil.rmtree(empty, ignore_errors=True)
    try:
        for number, kind, arguments in _drawn(origin, work, numbers, seed):
            _make_trapped(empty)
            os.chdir(empty)  # odd arguments may be names of files
            run = None
            if number % OWN_PROCESS == OWN_PROCESS - 1:
                run = spawned if number % (20 * OWN_PROCESS) == OWN_PROCESS - 1 else forked
                tally.tried["of these, by a process of its own"] += 1
            tally.note(kind, f"{seed} {number} {' '.join(arguments)}", failure(arguments, work, run))
            if (empty / "sprung").exists():
                tally.failed.append(f"{kind}: {seed} {number}: code of the current folder was run")
    finally:
        os.chdir(here)
    return tally


def _make_trapped(folder: Path) -> None:
    """A folder to be in, with nothing but a trap."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "trap.py").write_text(TRAP)


def _drawn(origin: Path, place: Path, numbers: range, seed: int) -> Iterator[tuple[int, str, list[str]]]:
    for number in numbers:
        rng = random.Random(f"{seed} {number}")
        (line,) = rng.choices(list(COMMANDS), list(COMMANDS.values()))
        anew(origin, place, line)
        arguments = located(line, place)
        files = sorted(file for file in place.rglob("*") if file.is_file())
        if not files or rng.random() < 0.3:
            odd = rng.choice(ARGUMENTS)
            # With other limits, training and decompiling would take long, and rightly so.
            limits = {
                i + by for i, word in enumerate(arguments) if word in ("--steps", "--quick", "--seeds") for by in (0, 1)
            }
            at = rng.choice([i for i in range(1, len(arguments) + 1) if i not in limits])
            arguments[at : at + rng.randrange(2)] = [odd] if odd in ("\x1b[2J", "") else located(odd, place)
            kind = "argument"
        else:
            named = [f for f in files if any(str(f).startswith(word.partition(":")[0]) for word in arguments)]
            kind = _damaged(rng.choice(named or files), files, rng)
        yield number, kind, arguments


def _damaged(file: Path, files: list[Path], rng: random.Random) -> str:
    """Makes one file something else; gives the kind of damage."""
    content = file.read_bytes()
    kind = rng.choice([*_KINDS, *["a field"] * 10] if file.suffix == ".json" else _KINDS)
    at = rng.randrange(len(content) + 1)
    match kind:
        case "bits":
            at = min(at, len(content) - 1)
            file.write_bytes(content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :])
        case "cut off":
            file.write_bytes(content[:at])
        case "inserted":
            odd = rng.choice([b"\xff\xfe", b"\0", b"[" * 100_000, b"\x1b[31m", "\u202e".encode(), b"1e999", b"\n" * 9])
            file.write_bytes(content[:at] + odd + content[at:])
        case "a word":
            words = list(re.finditer(rb"[\w.]+|[^\w\s]", content)) or list(re.finditer(b"", content))[:1]
            one, other = rng.choice(words), rng.choice(words)
            odd = rng.choice([*WORDS, other[0]])
            file.write_bytes(content[: one.start()] + odd + content[one.end() :])
        case "letters":
            file.write_bytes(rng.choice([b"x", b"(", b"a = ", b"\n"]) * 250_000)
        case "bytes":
            file.write_bytes(rng.randbytes(rng.randrange(3000)))
        case "a pickle":
            file.write_bytes(trap_pickle(file.parent))
        case "another's":
            file.write_bytes(rng.choice([other for other in files if other.name != "trap.py"]).read_bytes())
        case "a field":
            file.write_text(json.dumps(_with_odd_field(json.loads(content), rng)))
        case _:
            file.unlink()
            match kind:
                case "a pipe":
                    os.mkfifo(file)
                case "a device":
                    file.symlink_to(rng.choice(["/dev/zero", "/dev/full", "/dev/null", "/dev/tty"]))
                case "a folder":
                    file.mkdir()
                case "a loop":
                    file.symlink_to(file)
                case "sparse":
                    with file.open("wb") as opened:
                        opened.truncate(10**12)
    return f"file: {kind}"


def _with_odd_field(content: object, rng: random.Random) -> object:
    """A JSON value in which one part has become another value, or is gone."""
    places: list[tuple[dict | list, object]] = []
    stack = [content]
    while stack:
        part = stack.pop()
        keys = part if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
        for key in keys:
            places.append((part, key))  # type: ignore[arg-type]
            stack.append(part[key])  # type: ignore[index]
    part, key = rng.choice(places)
    if rng.random() < 0.2:
        del part[key]  # type: ignore[arg-type]
    else:
        part[key] = rng.choice(VALUES)  # type: ignore[index]
    return content
