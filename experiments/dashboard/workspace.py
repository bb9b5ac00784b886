"""`attn dashboard --wandb`: the panels of the comparison page as a saved workspace of the user's W&B project."""

from __future__ import annotations

from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from experiments.config.recorded import project_and_entity
from experiments.dashboard.head_numbers import heads_of
from experiments.dashboard.runs import chosen_runs
from experiments.display.lines import warn
from experiments.display.rows import as_markdown
from experiments.record.dotted import value_at
from experiments.record.mirrors import wandb_views as view
from experiments.record.result import Fields
from experiments.results.columns import place_of, scores_of, table_of, telling
from experiments.results.comparability import remarks
from experiments.results.index import Index
from experiments.results.selection import settings_in

VIEW_NAME = "attn: comparison of runs"
MEASURES = ("validation_loss", "tokens_per_second", "peak_memory_bytes")
CURVES = {
    "Validation loss": "validation_loss",
    "Validation perplexity": "validation_perplexity",
    "Training loss": "loss",
    "Training perplexity": "perplexity",
}
HEADS = 10  # runs whose heads there is a panel for


def save_workspace(selection: list[str], runs: Path, project_path: str | None = None) -> None:
    """Make or update the workspace of the runs that `selection` chooses. Raises Failure.

    Its project and address are printed. project_path: its project, as [ENTITY/]PROJECT; None for that of this machine.
    """
    project, entity = project_and_entity(project_path)
    with Index(runs) as index:
        results = chosen_runs(selection, runs, index)
        for line in remarks(results):
            warn(line)
        owner = view.owner(entity)
        # read one by one, only as many as are shown
        measured = ((result["run"], heads_of(result["folder"], index)) for result in results)
        tables = (head_tables(run, heads) for run, heads in measured if heads)
        texts = {"Papers' tables and claims": view.rendered_tables(runs), "Heads": list(islice(tables, HEADS))}
    workspace_of_runs = workspace(owner, project, selection, runs, results, texts)
    print(f"{owner}/{project}: {view.save(workspace_of_runs, ('sections', 'runset_settings'), runs)}")


def head_tables(run: str, heads: dict[str, Any]) -> str:
    """Markdown: the name of a run, and a table for each kind of attention, from the result of `heads_of`."""
    names = {attention: f"### {run}{attention and f', {attention}'}" for attention in heads}
    return "\n\n".join(f"{names[attention]}\n\n{head_table(numbers)}" for attention, numbers in heads.items())


def head_table(heads: dict[str, Any]) -> str:
    """A Markdown table with a row for each head of one kind of attention."""
    # heads without a softmax have no roles
    columns = ({"role": heads["roles"]} if heads["roles"] else {}) | heads["measures"]
    return as_markdown(
        [
            {"layer": layer, "head": head, **dict(zip(columns, values, strict=True))}
            for layer, of_layer in enumerate(zip(*columns.values(), strict=True), start=1)
            for head, values in enumerate(zip_longest(*of_layer), start=1)
        ]
    )


def workspace(
    entity: str, project: str, selection: list[str], runs: Path, results: list[Fields], texts: dict[str, list[str]]
) -> Any:
    """The workspace, not yet saved; needs no login.

    Runs are grouped by the settings that differ, so the runs of a group are its seeds, and filtered by `selection`.
    texts: sections of panels in Markdown; an empty one is left out.
    """
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws

    keys = differing(results)
    axes = [wr.Config(key) for key in keys] + [wr.SummaryMetric(name) for name in MEASURES]
    sections = {
        "Learning curves": [
            wr.LinePlot(title=f"{title} against {against}", x=x, y=[y], log_y=y.endswith("perplexity"),
                        groupby_aggfunc="mean", groupby_rangefunc="minmax")
            for title, y in CURVES.items()
            for against, x in (("tokens", "tokens"), ("steps", "step"), ("seconds", "wall_seconds"))
        ],
        "Speed and memory": [
            _against("Perplexity against tokens/s", "tokens_per_second"),
            # from the left, the lowest perplexity so far is the Pareto front
            _against("Perplexity against peak memory (bytes)", "peak_memory_bytes", running_ymin=True),
        ],
        "Settings": [
            wr.ScatterPlot(title="Loss against heads", x=wr.Config("heads"), y=wr.SummaryMetric("validation_loss")),
            wr.ParallelCoordinatesPlot(
                title="Settings and outcomes", columns=[wr.ParallelCoordinatesPlotColumn(metric=axis) for axis in axes]
            ),
        ],
    }  # fmt: skip
    sections |= {name: [wr.MarkdownPanel(markdown=text) for text in each] for name, each in texts.items() if each}
    return ws.Workspace(
        entity=entity,
        project=project,
        name=VIEW_NAME,
        sections=[ws.Section(name=name, panels=panels, is_open=True) for name, panels in sections.items()],
        runset_settings=ws.RunsetSettings(
            groupby=[ws.Config(key) for key in keys],
            order=[ws.Ordering(ws.Summary("validation_loss"), ascending=True)],
            filters=ws.And(*_filters(selection, runs, results)),
        ),
    )


def differing(results: list[Fields]) -> list[str]:
    """The settings that distinguish the runs, as keys of W&B's configuration.

    The seed is left out, and so are settings that follow from earlier ones, as key_size often does from heads.
    """
    rows, scores = table_of(results), scores_of(results)
    settings = [column for column in rows[0] if column not in scores and _is_setting(column)]
    columns = {column: [row[column] for row in rows] for column in settings}
    return [_key(column) for column in telling(columns, [0] * len(rows))] or ["variant.name"]


def _against(title: str, measure: str, **more: Any) -> Any:
    import wandb_workspaces.reports.v2 as wr

    return wr.ScatterPlot(
        title=title, x=wr.SummaryMetric(measure), y=wr.SummaryMetric("perplexity"), log_y=True, **more
    )


def _filters(selection: list[str], runs: Path, results: list[Fields]) -> list[Any]:
    """W&B's filters for `selection`, with values of the types that the runs have."""
    import wandb_workspaces.workspaces as ws

    filters = []
    settings = settings_in(selection, runs)
    for column in (item.split("=", 1)[0] for item in settings):
        values = {str(value): value for value in (value_at(result, place_of(column)) for result in results)}
        metric = ws.Config if _is_setting(column) else ws.Summary
        filters.append(metric(_key(column)).isin(list(values.values())))
    if len(settings) < len(selection):
        filters.append(ws.Metric("Name").isin([result["run"] for result in results]))
    return filters


def _is_setting(column: str) -> bool:
    return place_of(column).startswith("config.")


def _key(column: str) -> str:
    return place_of(column).removeprefix("config.")
