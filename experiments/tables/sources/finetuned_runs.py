"""Cells that are runs of `attn train` and then of `attn finetune`: each in its folder, shared and continued as ever."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from rich.console import Console

from experiments.config.command_line import check_overrides
from experiments.config.compose import compose_raw, resolve
from experiments.config.pretrained import check_keys, inherited
from experiments.launch.cell import folder_of
from experiments.settings.finetuning import FinetuningSettings
from experiments.settings.mistake import Mistake, nearest
from experiments.settings.run import Settings
from experiments.tables.definition import Budget
from experiments.tables.overrides import FINETUNE, apart, key_of, merged, split
from experiments.tables.sources.runs import Runs
from experiments.tables.sources.source import Cell, Finding

SAME = ("seed", "runs", "cache", "logger")  # as in the pretraining


class FinetunedRuns(Runs):
    """A finding is the pretraining's, with the results of its fine-tuned runs by name under `finetune`."""

    def __init__(self, budget: Budget, given: Sequence[str]) -> None:
        """Raises Mistake for words that `attn finetune` would not take."""
        more = apart(given)[1]
        words = {name: merged(split(text), more.get(name, [])) for name, text in budget.finetune.items()}
        self._trees = {name: _tree(name, words[name]) for name in words}
        self._places = [budget.score, *budget.columns]

    def cells(self, rows: Mapping[str, list[str]], seeds: Sequence[int], runs: Path) -> list[Cell]:
        """Of the pretraining. Raises Mistake also for what is wrong with the fine-tuning."""
        cells = super().cells(rows, seeds, runs)
        for cell in cells[: len(rows)]:
            for name in self._trees:
                try:
                    self._check_scores(name, self._planned(cell, name))
                except Mistake as mistake:
                    raise Mistake(f"{cell.row}, {FINETUNE}{name}: {mistake}") from mistake
        return cells

    def check(self, cells: list[Cell]) -> None:
        from experiments.launch.plan import check_data
        from experiments.training.run_length import planned_steps

        super().check(cells)
        planned = [self._planned(cell, name) for cell in cells for name in self._trees]
        for settings in planned:
            planned_steps(settings)
        check_data([*planned])

    def finding(self, cell: Cell) -> Finding:
        pretrained = super().finding(cell)
        if pretrained.state != "done":
            return pretrained
        results = {}
        for name in self._trees:
            try:
                tuned = super().finding(self._tuned(cell, name))
            except Mistake as mistake:
                return Finding("refused", f"{name}: {mistake}", pretrained.result)
            if tuned.state != "done":
                state = "pretrained" if tuned.state == "missing" else tuned.state
                return Finding(state, f"{name}: {tuned.reason}", pretrained.result)
            results[name] = tuned.result
        return Finding("done", "", pretrained.result | {"finetune": results})

    def make(self, cells: list[Cell], group: str, console: Console) -> None:
        """All of a seed before the next, so that a table that was cut has whole pairs."""
        from experiments.launch.local import train_cells
        from experiments.launch.plan import in_sweep

        for seed in dict.fromkeys(cell.seed for cell in cells):
            of_seed = [cell for cell in cells if cell.seed == seed]
            super().make(of_seed, group, console)
            train_cells([in_sweep(settings, group) for settings in self._to_tune(of_seed)], console)

    def _to_tune(self, cells: list[Cell]) -> Iterator[Settings]:
        """Of each cell that is pretrained what is fine-tuned, done or not; one that came to NaN isn't tried again."""
        for cell in cells:
            if super().finding(cell).state != "done":
                continue
            for name in self._trees:
                try:
                    tuned = self._tuned(cell, name)
                except Mistake:
                    continue  # as the finding says
                if super().finding(tuned).state != "diverged":
                    yield tuned.what

    def _tuned(self, cell: Cell, name: str) -> Cell:
        """The fine-tuned run of a cell that is pretrained. Raises Mistake, as when its weights are gone."""
        settings = resolve(OmegaConf.create(self._tree_of(cell, name)))
        return Cell(cell.row, cell.seed, folder_of(settings).name, settings)

    def _planned(self, cell: Cell, name: str) -> FinetuningSettings:
        """The same before there are weights to start from. Raises Mistake."""
        origin = {"run": cell.name, "step": 0, "digest": "unknown", "tokenizer": "unknown"}
        settings = resolve(OmegaConf.create(inherited(self._tree_of(cell, name), cell.what.model_dump(), origin)))
        assert isinstance(settings, FinetuningSettings)
        return settings

    def _tree_of(self, cell: Cell, name: str) -> dict[str, Any]:
        pretraining = cell.what.model_dump()
        same = {key: pretraining[key] for key in SAME}
        return self._trees[name] | same | {"pretrained": str(folder_of(cell.what).path)}

    def _check_scores(self, name: str, settings: FinetuningSettings) -> None:
        """Raises Mistake for a score that the task doesn't have, which would else be seen when all is trained."""
        known = settings.task.score_names
        for place in self._places:
            metric = place.rpartition(".")[2]
            if place.startswith(f"{FINETUNE}{name}.") and metric not in known:
                raise Mistake(f"{place}: there is no such score" + nearest(metric, known), f"it has {', '.join(known)}")


def _tree(name: str, words: list[str]) -> dict[str, Any]:
    """`conf/finetune.yaml` with these words. Raises Mistake."""
    try:
        for word in words:
            if (key := key_of(word).split(".")[0]) in SAME:
                raise Mistake(f"{word}: in a table, {key} is the pretraining's")
        check_keys(words)
        check_overrides(words, "finetune")
        tree = OmegaConf.to_container(compose_raw(words, name="finetune"), resolve=False)
    except Mistake as mistake:
        raise Mistake(f"{FINETUNE}{name}: {mistake}") from mistake
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}
