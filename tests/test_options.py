"""Options that several commands share: `--device`."""

import numpy as np
import pytest
import torch

from cases import CASES
from command import drasp, fails
from drasp.language import load_program, program_files
from drasp.loading import ZOO_FOLDER
from drasp.model_files import load_model
from drasp.tasks import TASKS
from drasp.transformer import Shape, initial_weights

MAJORITY = next(case.program for case in CASES if case.name == "binary majority")


@pytest.fixture
def program(tmp_path):
    (tmp_path / "program").mkdir()
    for name, content in program_files(MAJORITY).items():
        (tmp_path / "program" / name).write_bytes(content)
    return tmp_path / "program"


@pytest.mark.parametrize(
    "command",
    ["decompile abcde", "translate abcde", "train abcde", "name PROGRAM bin_majority", "verify PROGRAM abcde"],
)
@pytest.mark.parametrize("device", ["cuda:99", "meta", "nowhere"])
def test_a_device_that_is_not_there_is_one_line(program, tmp_path, command, device):
    out = [] if command.startswith("verify") else ["--out", tmp_path / "out"]
    said = fails(*command.replace("PROGRAM", str(program)).split(), *out, "--device", device)
    assert said == f"drasp: --device {device}: not available here; expected cpu, or a device that torch has"
    assert not (tmp_path / "out").exists()


def test_the_cpu_is_there(program):
    said = [drasp("verify", program, "bin_majority", "--samples", "50", *more) for more in ([], ["--device", "cpu"])]
    assert said[0].code == 0, said[0].err
    assert said[0] == said[1]


def test_models_programs_and_inputs_are_made_on_the_default_device(program):
    """Here `meta`, which every torch has and which holds no numbers."""
    shape = Shape(n_vocab=6, n_positions=154, d_model=8, n_layers=1, n_heads=1, d_hidden=32)
    with torch.device("meta"):
        tensors = [load_model(ZOO_FOLDER / "bin_majority").unembedding, *initial_weights(shape, 0).values()]
        tensors += load_program(program).tensors.values()
        inputs = TASKS["bin_majority"].pool(5, np.random.default_rng(0))
    tensors += [load_model(ZOO_FOLDER / "bin_majority", "meta").unembedding, inputs.ids, inputs.offsets, inputs.targets]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
