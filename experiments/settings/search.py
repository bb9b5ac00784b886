"""A search for good settings, as `hydra/sweeper=optuna_search` gives it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import model_validator

from experiments.failures.unread import Idle
from experiments.settings.group import Count, Group, Number, Seed, Text

Direction = Literal["minimize", "maximize"]
JOURNAL = "study.journal"  # file of a study, in a folder of `runs/sweeps`
PRUNED_BY = ({"validation_loss"}, {"best_validation_loss"})  # what intermediate validation losses tell of


class Search(Group):
    """The goal of a search, its number of trials, and how points are drawn."""

    trials: Number  # of the whole study
    minimize: list[Text]  # fields of result.json
    maximize: list[Text]
    sampler: Literal["tpe", "random"]
    random_trials: Count  # before tpe learns from the others
    pruner: Literal["auto", "median", "none"]
    prune_after_trials: Count  # that are done
    prune_after_step: Count  # of a run
    seed: Seed
    params: dict[str, str] | None  # overrides of an overlay

    @property
    def objectives(self) -> dict[str, Direction]:
        """Field of result.json -> its direction."""
        down: dict[str, Direction] = dict.fromkeys(self.minimize, "minimize")
        up: dict[str, Direction] = dict.fromkeys(self.maximize, "maximize")
        return down | up

    @property
    def prunes(self) -> bool:
        """Whether runs with hopeless validation losses are ended."""
        return self.pruner == "median" or (self.pruner == "auto" and self._tells_early())

    def _tells_early(self) -> bool:
        return not self.maximize and set(self.minimize) in PRUNED_BY

    def idle(self) -> Iterator[Idle]:
        """Those of a sampler that learns, and of a pruner, if the search has none."""
        if self.sampler == "random":
            yield Idle("random_trials", "sampler=random", "sampler=tpe")
        if not self.prunes:
            list_ = "maximize" if self.maximize else "minimize"
            of_objectives = f"{list_}=[{','.join(getattr(self, list_))}]", "minimize=[validation_loss]"
            why = ("pruner=none", "pruner=auto") if self.pruner == "none" else of_objectives
            yield from (Idle(key, *why) for key in ("prune_after_trials", "prune_after_step"))

    @model_validator(mode="after")
    def _check(self) -> Search:
        names = [*self.minimize, *self.maximize]
        if not names:
            raise ValueError("minimize and maximize are both empty; name a field of result.json")
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"{repeated} is given twice in minimize and maximize")
        if self.pruner == "median" and not self._tells_early():
            raise ValueError("pruner = median: runs can be pruned only if validation_loss alone is minimized")
        return self
