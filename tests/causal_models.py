"""Small random models whose answers depend on their inputs, and tasks for them: for the tests of interventions."""

import numpy as np
import torch
from transformers import GPT2LMHeadModel

from drasp.causal import Amount, Trials
from drasp.model_files import load_model
from drasp.tasks import Language, Task, answer_task, language_task
from drasp.transformer import Transformer
from random_models import random_gpt2
from typed import blocks_of

# The first two letters backwards: two answers, and inputs of 6 to 8 tokens.
ANSWERS = answer_task("backwards", "abc", lambda x: x[:, 1::-1], lengths=range(2, 5), longest_answer=2, ends=False)
# Answers at every position, each a set of tokens.
SETS = language_task("any", Language("abc", "(a|b|c)*"), lengths=range(1, 5))


def lively_gpt2(seed: int, layers: int, heads: int, task: Task = ANSWERS) -> GPT2LMHeadModel:
    """Nothing speaks for a token whatever the input, and heads and MLPs have their say."""
    model = random_gpt2(seed, layers, heads, vocab=len(task.vocabulary), positions=task.n_positions)
    with torch.no_grad():
        model.transformer.ln_f.bias.zero_()
        model.transformer.ln_f.weight.fill_(2.0)
        for block in blocks_of(model):
            block.ln_1.weight.fill_(2.0)
            block.ln_2.weight.fill_(1.0)
            block.attn.c_proj.weight.mul_(3)
            block.mlp.c_proj.weight.mul_(2)
    return model


def trials_of(transformer: Transformer, task: Task = ANSWERS, count: int = 2, seed: int = 0) -> Trials:
    """`count` pairs of each kind of edit, and three times as many with another input."""
    return Trials.draw(transformer, task, Amount(3 * count, count), np.random.default_rng(seed))


def lively(seed: int, layers: int, heads: int, task: Task = ANSWERS) -> Transformer:
    return load_model(lively_gpt2(seed, layers, heads, task))
