"""Training against Hugging Face's model, and against itself uninterrupted."""

import errno
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import GPT2LMHeadModel

from drasp.attention import drop
from drasp.errors import DraspError
from drasp.forward import Forward
from drasp.model_files import model_files, read_folder
from drasp.output_folder import write_files
from drasp.tasks import TASKS
from drasp.training import files, session
from drasp.training.layout import lay_out, lay_out_pairs
from drasp.training.loop import TrainingRun
from drasp.training.recipe import OFFSETS, Metrics, Recipe, grid
from drasp.transformer import Shape, assemble, initial_weights
from typed import known

QUICK = Recipe("tomita4", dropout=0.1, steps=250, patience=9)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["bin_majority", "unique_copy", "count", "D4"])
@pytest.mark.parametrize(("layers", "paired"), [(1, True), (2, True), (2, False)])
def test_logits_and_gradients_equal_hugging_face(name, layers, paired, tmp_path):
    task = TASKS[name]
    shape = Shape(len(task.vocabulary), task.n_positions, 16, layers, 2, 64)
    weights = {k: (4 * w).requires_grad_() for k, w in initial_weights(shape, 1).items()}
    write_files(tmp_path, model_files(shape, weights))
    theirs = GPT2LMHeadModel.from_pretrained(tmp_path).eval()
    inputs = task.pool(24, np.random.default_rng(2), 1, 30)

    logits = theirs(inputs.ids, position_ids=inputs.positions).logits[inputs.counted]
    targets = known(inputs.targets)[inputs.counted]
    loss = F.binary_cross_entropy_with_logits if task.output == "sigmoid" else F.cross_entropy
    as_targets = (lambda t: t.float()) if task.output == "sigmoid" else (lambda t: t)
    loss(logits, as_targets(targets)).backward()

    batches = lay_out_pairs(inputs, 8) if paired else [lay_out(inputs)]
    ours = torch.cat([Forward(assemble(shape, weights))(batch.sequences).logits for batch in batches])
    said = torch.cat([batch.targets for batch in batches])
    loss(ours, as_targets(said)).backward()

    order = torch.cat([batch.owner for batch in batches]).argsort(stable=True)
    assert torch.equal(said[order], targets)
    torch.testing.assert_close(ours[order], logits, atol=2e-5, rtol=1e-4)
    for key, parameter in theirs.named_parameters():
        torch.testing.assert_close(weights[key].grad, parameter.grad, atol=2e-6, rtol=1e-3)


def test_dropout_drops_its_share_and_keeps_the_mean():
    torch.manual_seed(0)
    dropped = drop(torch.ones(999, 1001), 0.1)
    assert (dropped == 0).float().mean() == pytest.approx(0.1, abs=0.002)
    assert dropped.mean() == pytest.approx(1, abs=0.003)
    assert dropped.unique().tolist() == pytest.approx([0, 1 / 0.9])
    # No pattern: neighbours, and elements of one random number, are dropped independently.
    gone = (dropped == 0).flatten()[: 4 * 240_000].view(-1, 4).float()
    assert (gone.T.corrcoef() - torch.eye(4)).abs().max() < 0.01


def test_a_model_is_learnt_and_written(tmp_path):
    seen = []
    recipe = Recipe("bin_majority", dropout=0.1)
    metrics = session.train(TASKS["bin_majority"], recipe, tmp_path / "model", watch=seen.append)
    assert metrics.accuracies["offset 0"]["1-50"].value == 1
    assert metrics.accuracies["random offsets"]["1-50"].value == 1
    assert metrics.accuracies["offset 0"]["101-150"].value > 0.9
    assert seen[-1].step == metrics.steps < 5000
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]
    assert json.loads((tmp_path / "model" / "task.json").read_text())["task"] == "bin_majority"
    assert files.read_metrics(tmp_path / "model").accuracies == metrics.accuracies

    # Right on fresh inputs too, as Hugging Face reads and runs it.
    model = GPT2LMHeadModel.from_pretrained(tmp_path / "model").eval()
    inputs = TASKS["bin_majority"].pool(300, np.random.default_rng(99), 1, 50)
    with torch.no_grad():
        said = model(inputs.ids, position_ids=inputs.positions).logits.argmax(-1)
    assert (said == inputs.targets)[inputs.counted].float().mean() > 0.99


def test_a_resumed_run_ends_with_the_same_weights(tmp_path):
    task = TASKS["tomita4"]
    whole = TrainingRun(task, QUICK)
    while not whole.state.done:
        whole.advance()
    state = None
    for _ in range(3):
        torch.manual_seed(1234)  # what else the process does must not matter
        run = TrainingRun(task, QUICK, state)
        run.advance()
        files.save_state(tmp_path / "state", QUICK, run.state)
        state = files.load_state(tmp_path / "state", QUICK)
    assert state is not None
    assert (state.step, state.done) == (250, True)
    for name, weight in whole.state.weights.items():
        assert torch.equal(weight, state.weights[name]), name
    assert torch.rand(1).item() == torch.rand(1, generator=torch.Generator().manual_seed(1234)).item()


def test_the_state_of_a_run_that_was_killed_when_its_model_was_there_goes(tmp_path):
    """Nothing can go on with it; that of another run stays."""
    task, out = TASKS["bin_majority"], tmp_path / "model"
    recipe, state = replace(QUICK, steps=2), files.state_file(out)
    kept: list[bytes] = []
    session.train(task, recipe, out, watch=lambda _: kept.append(state.read_bytes()))
    for asked, stays in ((replace(recipe, seed=1), True), (recipe, False)):
        state.write_bytes(kept[-1])
        with pytest.raises(DraspError, match="model: exists already; choose another --out, or remove it"):
            session.train(task, asked, out, resume=True)
        assert state.exists() == stays
    lock = tmp_path / ".model.training.drasp-lock"
    lock.touch()  # as of a run that was killed when it had removed the state, and held the lock on it
    with pytest.raises(DraspError, match="exists already"):
        session.train(task, recipe, out)
    assert not lock.exists()
    files.save_state(state, replace(recipe, seed=1), TrainingRun(task, recipe).state)
    with pytest.raises(DraspError, match="exists already"):
        session.train(task, recipe, out, resume=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "model.training"]


def test_interrupted_by_ctrl_c_and_resumed(tmp_path):
    task, out = TASKS["tomita4"], tmp_path / "model"
    session.train(task, QUICK, tmp_path / "whole")

    def interrupt(progress):
        if progress.step == 200:
            raise KeyboardInterrupt

    with pytest.raises(session.InterruptedTrainingError):
        session.train(task, QUICK, out, watch=interrupt)
    assert not out.exists()
    with pytest.raises(DraspError, match=r"model.training: holds an interrupted run; go on with --resume"):
        session.train(task, QUICK, out)
    with pytest.raises(DraspError, match=r"was begun with --seed 0, found 1; use the same options"):
        session.train(task, replace(QUICK, seed=1), out, resume=True)
    session.train(task, QUICK, out, resume=True)
    whole, resumed = read_folder(tmp_path / "whole")[1], read_folder(out)[1]
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert not files.state_file(out).exists()


def test_seeds_differ():
    first, second = (TrainingRun(TASKS["tomita4"], Recipe("tomita4", steps=10, seed=seed)) for seed in (0, 1))
    first.advance()
    second.advance()
    assert any(not torch.equal(w, second.state.weights[name]) for name, w in first.state.weights.items())


@pytest.mark.long
def test_checkpoints_follow_the_rule(tmp_path):
    seen = []
    recipe = Recipe("bin_majority", lr=3e-4, steps=600)
    session.train(TASKS["bin_majority"], recipe, tmp_path / "m", checkpoints=True, watch=seen.append)
    last, expected = (0.0, 0.0, 0.0), []
    for progress in seen:
        assert all(share.total == 2000 for share in progress.accuracies)
        now = tuple(share.value for share in progress.accuracies)
        if any(a - b > 0.25 for a, b in zip(now, last, strict=True)):
            last = now
            expected.append(f"m-{progress.step}")
            written = files.read_metrics(tmp_path / expected[-1]).accuracies["offset 0"]
            assert tuple(share.value for share in written.values()) == now
    assert expected
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["m", *expected])


@pytest.mark.long
def test_a_search_keeps_the_best(tmp_path):
    task = TASKS["bin_majority"]
    given = {"task": "bin_majority", "layers": 1, "heads": 1, "dim": 16, "seed": 0, "steps": 100}
    best = session.search(task, given, tmp_path / "best", good=1.0)
    log = json.loads((tmp_path / "best" / "search.json").read_text())
    tried = {name: Metrics.from_json(m) for name, m in log["tried"].items()}
    assert set(tried) == {f"bin_majority-1l1h16d{lr}lr{drop}drop" for lr in (3, 4) for drop in ("00", "01")}
    assert best.generalisation == max(m.generalisation for m in tried.values())
    assert files.read_metrics(tmp_path / "best").recipe == tried[log["chosen"]].recipe
    assert [p.name for p in tmp_path.iterdir()] == ["best"]


def test_the_grid_begins_with_small_models():
    task = TASKS["sort"]
    recipes = list(grid(task, {"task": "sort"}))
    assert len(set(recipes)) == 3 * 3 * 3 * 2 * 2
    sizes = [r.n_weights(task) for r in recipes]
    assert sizes == sorted(sizes)
    assert recipes[0].name(task) == "sort-1l1h16d3lr00drop"


@pytest.mark.parametrize(
    ("recipe", "name"),
    [
        (Recipe("unique_reverse", 2, 1, 64, 1e-3, 0.1), "unique_reverse-2l1h64d3lr01drop"),
        (Recipe("D3", 1, 1, 16, 1e-4, 0.0), "D3-1l1h16d4lr00drop"),
    ],
)
def test_names(recipe, name):
    assert recipe.name(TASKS[recipe.task]) == name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, "--dim 16: expected a multiple of --heads 3"),
        ({"layers": 0}, "--layers 0: expected at least 1"),
        ({"lr": -1.0}, "--lr -1.0: expected a rate"),
        ({"dropout": 1.0}, "--dropout 1.0: expected"),
        ({"seed": -1}, "--seed -1"),
    ],
)
def test_recipes_that_cannot_be(options, message):
    with pytest.raises(DraspError, match=message):
        Recipe("sort", **options)


def test_divergence_is_said():
    run = TrainingRun(TASKS["bin_majority"], Recipe("bin_majority", lr=0.9, steps=100))
    with torch.no_grad():
        next(iter(run._weights.values())).fill_(float("nan"))
    with pytest.raises(DraspError, match=r"--lr 0.9: the loss is no longer a finite number"):
        run.advance()


def test_nothing_is_left_of_what_could_not_be_written(tmp_path, monkeypatch):
    task, recipe = TASKS["tomita1"], Recipe("tomita1", steps=10)
    (tmp_path / "file").write_text("")
    with pytest.raises(DraspError, match="is not a folder"):
        session.train(task, recipe, tmp_path / "file" / "model")
    with pytest.raises(DraspError, match="exists already"):
        session.train(task, recipe, tmp_path)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_files", full)
    with pytest.raises(OSError, match="No space left"):
        session.train(task, recipe, tmp_path / "model")
    # The state stays, so that the run can be ended when there is room.
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "model.training"]
    monkeypatch.setattr(files, "write_tensors_and_facts", full)
    with pytest.raises(OSError, match="No space left"):
        session.train(task, recipe, tmp_path / "other")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "model.training"]
    monkeypatch.undo()
    session.train(task, recipe, tmp_path / "model", resume=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "model"]


def test_a_state_that_is_none(tmp_path):
    with pytest.raises(DraspError, match="no interrupted run to resume"):
        session.train(TASKS["tomita1"], Recipe("tomita1"), tmp_path / "m", resume=True)
    (tmp_path / "m.training").write_text("not a state")
    with pytest.raises(DraspError, match="not what drasp has written there, or damaged"):
        session.train(TASKS["tomita1"], Recipe("tomita1"), tmp_path / "m", resume=True)


def test_the_tests_do_not_depend_on_the_order_of_bins():
    run = TrainingRun(TASKS["tomita2"], Recipe("tomita2", steps=100))
    run.advance()
    again = TrainingRun(TASKS["tomita2"], Recipe("tomita2", steps=100), run.state)
    assert run.final_accuracies() == again.final_accuracies()
    assert set(run.final_accuracies()) == set(OFFSETS)
