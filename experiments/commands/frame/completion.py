"""The words that the shell offers, of one kind by each function. Imports nothing more until the shell asks."""

from __future__ import annotations

from pathlib import Path

import typer

from experiments.commands.frame.options import RUNS


def complete_setting(ctx: typer.Context, incomplete: str) -> list[str]:
    """Settings and their values; of `attn finetune`, first the name of a run."""
    arguments = [*(ctx.params.get("overrides") or ctx.params.get("arguments") or []), *ctx.args]
    finetunes = ctx.info_name == "finetune"
    if finetunes and all("=" in each for each in arguments) and (names := complete_run(ctx, incomplete)):
        return names
    from experiments.config.completion import complete
    from experiments.config.primary import FINETUNING, PRETRAINING

    return complete(arguments, incomplete, FINETUNING if finetunes else PRETRAINING)


def complete_run(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of runs."""
    from experiments.results.find import names_with_start

    return names_with_start(incomplete, Path(ctx.params.get("runs") or RUNS))


def complete_selection(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of runs, and settings."""
    return [*complete_run(ctx, incomplete), *complete_setting(ctx, incomplete)]


def complete_budget() -> list[str]:
    """The budgets."""
    from experiments.tables.definition.table import BUDGETS

    return [*BUDGETS]


def complete_table() -> list[str]:
    """The names of tables."""
    from experiments.tables.definition.folder import names

    return names()


def complete_claim(ctx: typer.Context) -> list[str]:
    """The claims of the table that has been typed."""
    from experiments.tables.definition.folder import names
    from experiments.tables.definition.request import load

    # click does not read the arguments before an option that has no value yet
    name = ctx.params.get("name") or next(iter(ctx.args), "")
    return [*load(name).claims] if name in names() else []
