"""Cells that are runs of `attn train` followed by `attn finetune`.

Each run has its own folder, shared with other commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from omegaconf import OmegaConf
from rich.console import Console

from experiments.cells.cell import folder_of
from experiments.cells.resources import Workers
from experiments.config.command_line import check_overrides
from experiments.config.compose import compose_raw, resolve
from experiments.config.pretrained import check_keys, inherited
from experiments.config.primary import FINETUNING
from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.settings.finetuning import FinetuningSettings
from experiments.settings.run import Settings
from experiments.tables.definition.overrides import FINETUNE_PREFIX, by_stage, key_of, merged, parse
from experiments.tables.definition.table import Budget, column_name
from experiments.tables.sources.runs import Runs, outcome_of_run
from experiments.tables.sources.source import TO_TRAIN, CellOutcome, Prediction, TableCell, Value
from experiments.tables.sources.step_clock import StepClock

SHARED_SETTINGS = ("seed", "runs", "cache", "logger")  # as in the pretraining


class FinetunedRuns:
    """A source whose cells are pretrainings.

    The outcome of a cell has the results of its fine-tuned runs, by name, in `finetune`.
    """

    def __init__(self, pretraining: Runs, budget: Budget, user_overrides: Sequence[str]) -> None:
        """Raises Mistake for overrides that `attn finetune` would refuse, and for scores that a task does not have."""
        _, of_user = by_stage(user_overrides)
        overrides = {name: merged(parse(text), of_user.get(name, [])) for name, text in budget.finetune.items()}
        self.pretraining = pretraining
        self._trees = {name: _tree(name, overrides[name]) for name in overrides}
        self._places = [budget.score, *budget.columns]
        for row, settings in pretraining.rows.items():
            for name in self._trees:
                try:
                    self._check_scores(name, self._planned(settings, name))
                except Mistake as mistake:
                    raise Mistake(f"{row}, {FINETUNE_PREFIX}{name}: {mistake}") from mistake

    def cells(self, seeds: Sequence[int]) -> list[TableCell]:
        """The cells of the pretraining."""
        return self.pretraining.cells(seeds)

    def kept_seeds(self) -> set[int]:
        """The seeds of pretrained and fine-tuned runs."""
        return self.pretraining.kept_seeds()

    def timed(self, row: str) -> Settings:
        """The settings of the row's pretraining."""
        return self.pretraining.timed(row)

    def trained(self, row: str) -> list[Settings]:
        """The settings of the row's pretraining and of its fine-tunings."""
        settings = self.pretraining.rows[row]
        return [settings, *(self._planned(settings, name) for name in self._trees)]

    def check(self) -> None:
        """Raises Mistake or DataError for everything that is certain to fail in the pretraining or the fine-tuning."""
        from experiments.launch.check_cells import check_data
        from experiments.training.run_length import planned_steps

        self.pretraining.check()
        planned = [self._planned(of_row, name) for of_row in self.pretraining.rows.values() for name in self._trees]
        for settings in planned:
            planned_steps(settings)
        check_data([*planned])

    def outcome(self, cell: TableCell) -> CellOutcome:
        """The results of a pretraining and of its fine-tuned runs; `pretrained` while some of these are missing."""
        pretrained = self.pretraining.outcome(cell)
        if pretrained.state != "done":
            return pretrained
        results = {}
        for name in self._trees:
            try:
                finetuned = outcome_of_run(self._finetuning(cell, name))
            except Mistake as mistake:
                return CellOutcome("refused", f"{name}: {mistake}", pretrained.result)
            if finetuned.state != "done":
                state = "pretrained" if finetuned.state in TO_TRAIN else finetuned.state
                return CellOutcome(state, f"{name}: {finetuned.reason or finetuned.state}", pretrained.result)
            results[name] = finetuned.result
        return CellOutcome("done", "", pretrained.result | {"finetune": results})

    def sizes(self, row: str) -> dict[str, Value]:
        """The sizes of the pretrained model."""
        return self.pretraining.sizes(row)

    def predict(self, cell: TableCell, clock: StepClock, roughly: bool = False) -> Prediction:
        """The predicted cost of the pretraining.

        The cost of the fine-tuning is unknown, because only the examples determine the number of windows.
        """
        return self.pretraining.predict(cell, clock, roughly)

    def at_once(self, cells: Sequence[TableCell], workers: Workers) -> int:
        """The number of these cells that are pretrained side by side, which have the same seed."""
        return self.pretraining.at_once([cell for cell in cells if cell.seed == cells[0].seed], workers)

    def make(self, cells: Sequence[TableCell], group: str, console: Console, workers: Workers = "auto") -> None:
        """Train and fine-tune all cells of a seed before those of the next, so a table that is interrupted has complete
        pairs.
        """
        from experiments.launch.local import train_cells
        from experiments.launch.plan import labelled_with_sweep

        for seed in dict.fromkeys(cell.seed for cell in cells):
            of_seed = [cell for cell in cells if cell.seed == seed]
            self.pretraining.make(of_seed, group, console, workers)
            train_cells(
                [labelled_with_sweep(settings, group) for settings in self._to_finetune(of_seed)], console, workers
            )

    def _to_finetune(self, cells: list[TableCell]) -> Iterator[Settings]:
        """The runs to fine-tune from each pretrained cell, finished or not.

        A run that ended in NaN is not tried again.
        """
        for cell in cells:
            if self.pretraining.outcome(cell).state != "done":
                continue
            for name in self._trees:
                try:
                    finetuning = self._finetuning(cell, name)
                except Mistake:
                    continue  # as the outcome says
                if outcome_of_run(finetuning).state != "diverged":
                    yield finetuning

    def _finetuning(self, cell: TableCell, name: str) -> Settings:
        """The run to fine-tune from a pretrained cell. Raises Mistake, for example if the weights are missing."""
        return resolve(OmegaConf.create(self._tree_of(self.pretraining.settings(cell), name)))

    def _planned(self, pretraining: Settings, name: str) -> FinetuningSettings:
        """The run to fine-tune from a pretraining before there are weights to start from. Raises Mistake."""
        origin = {"run": folder_of(pretraining).name, "step": 0, "digest": "unknown", "tokenizer": "unknown"}
        tree = inherited(self._tree_of(pretraining, name), pretraining.model_dump(), origin)
        settings = resolve(OmegaConf.create(tree))
        assert isinstance(settings, FinetuningSettings)
        return settings

    def _tree_of(self, pretraining: Settings, name: str) -> dict[str, Any]:
        settings = pretraining.model_dump()
        same = {key: settings[key] for key in SHARED_SETTINGS}
        return self._trees[name] | same | {"pretrained": str(folder_of(pretraining).path)}

    def _check_scores(self, name: str, settings: FinetuningSettings) -> None:
        """Raises Mistake for a score that the task does not have, which would otherwise be noticed only after all
        trainings.
        """
        known = settings.task.score_names
        for place in self._places:
            metric = column_name(place)
            if place.startswith(f"{FINETUNE_PREFIX}{name}.") and metric not in known:
                raise Mistake(
                    f"{place}: there is no such score" + did_you_mean(metric, known), f"it has {', '.join(known)}"
                )


def _tree(name: str, overrides: list[str]) -> dict[str, Any]:
    """`conf/finetune.yaml` with these overrides. Raises Mistake."""
    try:
        for override in overrides:
            if (key := key_of(override).split(".")[0]) in SHARED_SETTINGS:
                raise Mistake(f"{override}: in a table, the pretraining sets {key}")
        check_keys(overrides)
        check_overrides(overrides, FINETUNING)
        tree = OmegaConf.to_container(compose_raw(overrides, FINETUNING), resolve=False)
    except Mistake as mistake:
        raise Mistake(f"{FINETUNE_PREFIX}{name}: {mistake}") from mistake
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}
