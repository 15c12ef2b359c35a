"""Accuracies against plain loops, and against the figures published for thirteen models."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from drasp.measure import Share, agreeing, predict, predictions, share, task_accuracy
from drasp.model_files import load_model
from drasp.tasks import BINS, TASKS
from drasp.transformer import Shape, assemble, initial_weights
from typed import known

PUBLISHED = Path(__file__).parents[2] / "shared" / "models"
CLAIMS = (
    {
        m[1]: tuple(float(x) / 100 for x in m[2].split("/"))
        for m in re.finditer(r"\n\| (\S+-\S+) \| ([\d./ ]+) \|", (PUBLISHED / "README.md").read_text())
    }
    if PUBLISHED.is_dir()
    else {}
)


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    # Newcombe (1998), table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_interval(hits, total, low, high):
    assert Share(hits, total).interval == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize("name", ["unique_reverse", "D3"])
def test_accuracies_equal_plain_loops(name):
    task = TASKS[name]
    inputs = task.pool(40, np.random.default_rng(0), 1, 8)
    shape = Shape(len(task.vocabulary), task.n_positions, 8, 1, 1, 16)
    one, other = (assemble(shape, {k: 20 * w for k, w in initial_weights(shape, seed).items()}) for seed in (0, 1))

    def said(model, i):
        size, start = int(inputs.sizes[i]), int(inputs.offsets[i])
        logits = model(inputs.ids[i : i + 1, :size], torch.arange(start, start + size)[None])[0]
        answers = logits.argmax(-1) if task.output == "softmax" else logits > 0
        return [answers[p].tolist() for p in range(size) if inputs.counted[i, p]]

    wanted = [known(inputs.targets)[i][inputs.counted[i]].tolist() for i in range(40)]
    right = sum(said(one, i) == wanted[i] for i in range(40))
    same = sum(said(one, i) == said(other, i) for i in range(40))
    assert task_accuracy(one, inputs, task.output) == Share(right, 40)
    answers, others = (predict(model, inputs, task.output) for model in (one, other))
    assert share(agreeing(answers, others, inputs.counted)) == Share(same, 40)

    # One prediction changed at a counted position is enough; at any other it is none.
    changed = answers.clone()
    changed[0, -1] = ~changed[0, -1] if answers.dtype == torch.bool else changed[0, -1] + 1
    assert agreeing(answers, changed, inputs.counted).all()
    place = int(inputs.counted[3].nonzero()[0])
    changed[3, place] = ~changed[3, place] if answers.dtype == torch.bool else changed[3, place] + 1
    assert (~agreeing(answers, changed, inputs.counted)).nonzero().tolist() == [[3]]


def test_sigmoid_predictions_are_of_every_token():
    assert predictions(torch.tensor([[[-1.0, 0.0, 2.0]]]), "sigmoid").tolist() == [[[False, False, True]]]


@pytest.mark.long
@pytest.mark.skipif(not CLAIMS, reason="the folder of published models is not there")
@pytest.mark.parametrize("name", CLAIMS)
def test_published_models_score_what_is_published(name):
    task = TASKS[name.split("-")[0]]
    model = load_model(PUBLISHED / name)
    rng = np.random.default_rng(1)
    for (low, high), claim in zip(BINS, CLAIMS[name], strict=True):
        count = 150 if model.d_model > 64 else 400
        share = task_accuracy(model, task.pool(count, rng, low, high, random_offsets=False), task.output)
        least, most = known(share.interval)
        assert least - 0.02 <= claim <= most + 0.02, (low, high)
