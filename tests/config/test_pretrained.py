"""The settings of a fine-tuned run before there is one."""

from __future__ import annotations

import re

import pytest
from omegaconf import OmegaConf

from experiments.config.compose import compose, compose_raw, resolve
from experiments.config.pretrained import inherited
from experiments.config.primary import FINETUNING
from experiments.failures.failure import Mistake
from experiments.settings import plugins
from tests.fixtures.plugins import write_files


@pytest.mark.usefixtures("unplugged")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("task:\n  kind: regression\n", "task.name is missing"),
        ("task: 3\n", "task = 3: must be a mapping, KEY: VALUE"),
        ("epochs: 1\n", "task is missing"),
    ],
)
def test_what_the_file_of_a_task_lacks_is_named(tmp_path, text, said):
    folder = write_files(tmp_path, {"task/mine.yaml": f"# @package _global_\n{text}"})
    plugins.add([f"--config-dir={folder}"])
    tree = OmegaConf.to_container(compose_raw(["task=mine"], FINETUNING), resolve=False)
    origin = {"run": "one", "step": 1, "digest": "a", "tokenizer": "b"}
    with pytest.raises(Mistake, match=rf"(?m)^{re.escape(said)}$"):
        resolve(OmegaConf.create(inherited(tree | {"pretrained": "one"}, compose([]).model_dump(), origin)))
