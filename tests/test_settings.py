"""The settings of a search: all of them reach it, its result keeps them, and passes can be left out."""

from dataclasses import fields, replace

import pytest

from drasp.decompiler.pipeline import CUTS, decompile
from drasp.errors import DraspError
from drasp.naming.pipeline import PASSES
from drasp.settings import DEFAULT, QUICK, NamingSettings, Settings
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
