"""The W&B sweep on the page about searches, with runs started as W&B's agent starts them."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from experiments.config.command_line import CommandLine, split_arguments
from experiments.launch.plan import SingleRun, plan

PAGE = Path(__file__).resolve().parents[2] / "docs" / "search.md"
DRAWN = {"learning_rate": 0.0004321, "heads": 12, "optimizer.weight_decay": 0.1}


def test_attn_train_takes_the_command_line_that_an_agent_builds(in_process, with_kernel):
    from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args

    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    sweep = yaml.safe_load(block)
    assert sweep["parameters"].keys() == DRAWN.keys()
    arguments = create_sweep_command_args({"args": {key: {"value": value} for key, value in DRAWN.items()}})
    # as the agent does it
    command: list[str] = []
    for word in create_sweep_command(sweep["command"]):
        command += arguments[word[2:-1]] if word.startswith("${") else [word]
    assert command[:2] == ["attn", "train"]
    planned = plan(CommandLine(*split_arguments([*command[2:], "trainer.device=cpu"])))
    assert isinstance(planned, SingleRun)
    (settings,) = planned.cells
    assert (settings.heads, settings.learning_rate, settings.variant["name"]) == (12, 0.0004321, "talking_heads")
    assert settings.optimizer.weight_decay == 0.1
