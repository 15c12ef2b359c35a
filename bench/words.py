"""Writes what results say in words: the programs, their sentences, and of which weights.

    python bench/words.py RESULTS --out bench/words.json

RESULTS holds results as `drasp decompile` writes them. docs/published_words.md judges by hand what is written, and a
test holds it to the file.
"""

import argparse
import json
from pathlib import Path

from drasp.language import load_program
from drasp.records import read_record
from drasp.words import names_told, paragraph, sentences

Row = dict[str, object]


def told(folder: Path) -> Row:
    """A result's folder to what it says."""
    program, record = load_program(folder), read_record(folder)
    assert record is not None
    assert record.primitives is not None
    assert record.model is not None
    grade = f" ({record.grade})" if record.grade else ""
    return {
        "model": Path(record.model).name,
        "digest": record.model_digest,
        "verdict": f"{record.verdict}{grade}: {program.lines} lines, {names_told(record.primitives)}",
        "program": str(program),
        "sentences": sentences(program),
        "words": paragraph(program),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    folders = sorted(folder for folder in arguments.results.iterdir() if (folder / "result.json").exists())
    arguments.out.write_text(json.dumps([told(f) for f in folders], indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
