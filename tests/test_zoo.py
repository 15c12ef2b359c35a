"""The models that come with the package are as good as their table says."""

from pathlib import Path

import numpy as np
import pytest

import drasp
from drasp.errors import DraspError
from drasp.loading import ZOO_FOLDER, resolve_model
from drasp.measure import task_accuracy
from drasp.model_files import digest, load_model
from drasp.tasks import TASKS, task_of_model
from drasp.training.recipe import OFFSETS
from drasp.zoo import markdown_table, zoo_models
from typed import known

MODELS = {model.name: model for model in zoo_models()}


@pytest.mark.parametrize("name", MODELS)
def test_models_are_as_good_as_they_say(name):
    found, task = MODELS[name], TASKS[name]
    assert task_of_model(found.folder) is task
    model = load_model(found.folder)
    rng = np.random.default_rng(20)
    for offsets, bins in found.metrics.accuracies.items():
        for (low, high), said in zip(task.bins, bins.values(), strict=True):
            # Of a hundred, a draw is too often far off where a model is right on nine in ten; short ones are cheap.
            count = 400 if high <= 50 else 100
            inputs = task.pool(count, rng, low, high, random_offsets=offsets == OFFSETS[1])
            least, most = known(task_accuracy(model, inputs, task.output).interval)
            assert least - 0.02 <= said.value <= most + 0.02, (offsets, low, high)


def test_the_zoo_is_small():
    assert sum(file.stat().st_size for file in ZOO_FOLDER.rglob("*") if file.is_file()) < 30e6


def test_the_documented_table_is_this_zoo():
    documented = (Path(__file__).parents[1] / "docs" / "zoo.md").read_text()
    assert markdown_table() in documented


def test_models_by_name_or_folder(tmp_path, monkeypatch):
    assert resolve_model("bin_majority") == ZOO_FOLDER / "bin_majority"
    assert digest(drasp.load_model("bin_majority")) == digest(load_model(ZOO_FOLDER / "bin_majority"))
    assert resolve_model(str(tmp_path)) == tmp_path
    with pytest.raises(DraspError, match="no such folder, and no zoo model of that name; the zoo has bin_majority"):
        resolve_model("bin_majorty")
    (tmp_path / "file").write_text("")
    with pytest.raises(DraspError, match="found a file"):
        resolve_model(tmp_path / "file")
    # A folder of one's own goes before a zoo model of the same name.
    (tmp_path / "bin_majority").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve_model("bin_majority") == Path("bin_majority")
