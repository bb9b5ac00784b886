"""Modules whose parameters are counted: they take no memory, and do without torch's compiler."""

from __future__ import annotations

import subprocess
import sys

from torch import nn

from experiments.model.without_values import without_values

# additive attention draws its own starting values
COUNTED = """
import sys
from experiments.config.compose import compose
from experiments.launch.check_cells import check_buildable
print(*check_buildable([compose([]), compose(["variant=additive"])]), "torch._dynamo" in sys.modules)
"""


def test_modules_have_no_memory_in_the_block_and_starting_values_after_it():
    with without_values():
        module = nn.Embedding(2, 3)
    assert module.weight.is_meta and module.weight.shape == (2, 3)
    assert nn.Embedding(2, 3).weight.count_nonzero() == 6


def test_counting_the_parameters_of_models_does_not_import_the_compiler():
    done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=True)
    multi_head, additive, compiler = done.stdout.split()
    # of each head a vector, in each of four layers
    assert int(additive) == int(multi_head) + 4 * 192
    assert compiler == "False"
