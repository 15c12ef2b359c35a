"""The settings of a search: all of them reach it, its result keeps them, and passes can be left out."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

import ablation
from drasp.decompiler.pipeline import CUTS, decompile
from drasp.errors import DraspError
from drasp.naming.pipeline import PASSES
from drasp.settings import DEFAULT, QUICK, NamingSettings, Settings
from drasp.study.engine import code_digest
from small_graphs import TASK, only_token_to_output

SMALL = replace(QUICK, inputs=60, fresh_inputs=100, unseen_inputs=60, trials_from_task=16, trials_of_each_edit=12)


def steps(passes) -> set[str]:
    return {each.name.removeprefix("cut ").split(":")[0] for each in passes}


def test_passes_that_are_left_out_are_not_taken_and_the_result_keeps_every_setting():
    chosen = replace(SMALL, without=("edges", "lines"), naming=replace(DEFAULT.naming, without=("name projects",)))
    found = decompile(only_token_to_output(), TASK, settings=chosen)
    assert not {"edges", "lines", "name projects"} & steps(found.passes)
    assert {"components", "name tables"} <= steps(found.passes)
    assert found.identity.settings["search"] == chosen.to_json()
    assert found.final.match.total == SMALL.fresh_inputs
    assert set(chosen.to_json()) == {each.name for each in fields(Settings)}
    assert set(chosen.to_json()["naming"]) == {each.name for each in fields(NamingSettings)}


@pytest.mark.parametrize(
    ("chosen", "known"),
    [
        (Settings(without=("egdes",)), CUTS),
        (Settings(naming=NamingSettings(without=("egdes",))), [step.name for step in PASSES]),
    ],
)
def test_a_pass_that_there_is_not_cannot_be_left_out(chosen, known):
    with pytest.raises(DraspError, match=f"^without egdes: no such pass; there are {', '.join(known)}$"):
        decompile(only_token_to_output(), TASK, settings=chosen)


def test_an_ablation_that_was_stopped_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    """Every pass is left out once on each model, nothing twice; rows of other code are not taken."""
    (tmp_path / "models" / "one").mkdir(parents=True)
    measured: list[tuple[str, Settings]] = []
    out = tmp_path / "rows"

    def apart(_run, folder: Path, without: str, settings: Settings) -> dict[str, object]:
        if len(measured) == 3:
            raise KeyboardInterrupt
        measured.append((without, settings))
        told = dict.fromkeys(("verdict", "lines", "named", "match", *ablation.MEASURES), "")
        return {**told, "model": folder.name, "without": without, "code": code_digest(), "seconds": len(measured)}

    monkeypatch.setattr("ablation.apart", apart)
    monkeypatch.setattr("sys.argv", ["ablation.py", str(tmp_path / "models"), "--out", str(out)])
    with pytest.raises(KeyboardInterrupt):
        ablation.main()
    first, measured = measured, [("", DEFAULT)] * 4
    out.write_text(out.read_text() + json.dumps({"model": "one", "without": "lines", "code": "other"}) + "\n")
    capsys.readouterr()
    ablation.main()
    left_out = [*first, *measured[4:]]
    assert [name for name, _ in left_out] == ["nothing", *CUTS, *(step.name for step in PASSES)]
    assert [(*s.without, *s.naming.without) for _, s in left_out] == [(), *((name,) for name, _ in left_out[1:])]
    table = capsys.readouterr().out.splitlines()[2:]
    assert [row.split(" | ")[1] for row in table] == [name for name, _ in left_out]
    assert [row.split(" | ")[-1] for row in table[:3]] == ["1.00 |", "2.00 |", "3.00 |"]
