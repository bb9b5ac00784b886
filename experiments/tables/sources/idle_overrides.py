"""Overrides about settings that nothing in a table reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from experiments.failures.unread import Idle, check_none_idle
from experiments.tables.definition.overrides import FINETUNE_PREFIX
from experiments.tables.definition.request import Request
from experiments.tables.sources.source import Source


def check_overrides_read(request: Request, source: Source, rows: Iterable[str]) -> None:
    """Raises Mistake for an override about a setting that none of these rows reads, in its pretraining or in a
    fine-tuning.
    """

    def idle(row: str) -> Iterator[Idle]:
        # the pretraining is the first of what is trained
        for name, settings in zip(["", *request.budget.finetune], source.trained(row), strict=False):
            for each in settings.idle():
                yield each.within(f"{FINETUNE_PREFIX}{name}") if name else each

    # composing the fine-tunings again takes time
    if request.overrides:
        check_none_idle(request.overrides, map(idle, rows))
