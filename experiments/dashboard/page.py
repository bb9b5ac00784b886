"""The comparison page: one HTML file with its data, style and script, which loads nothing else."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from experiments.dashboard.curves import (
    POINTS,
    Columns,
    averaged,
    curve_of,
    evenly,
    evenly_of,
    mean_curve,
    parse_metrics,
)
from experiments.dashboard.head_numbers import heads_of
from experiments.dashboard.runs import chosen_runs
from experiments.dashboard.searches import readable_searches
from experiments.display.lines import warn
from experiments.display.rows import Row
from experiments.failures.wording import as_typed, first_line, plural
from experiments.files.digest import unsealed
from experiments.files.disk import open_regular, written_at
from experiments.files.durable import disk_errors
from experiments.files.plain import from_json
from experiments.measure.quality import perplexity
from experiments.processes.collection import without_collection
from experiments.record.dotted import Values, value_at
from experiments.record.folder import METRICS, RENDERED
from experiments.record.result import Fields
from experiments.results.checked import CHANGED
from experiments.results.columns import TASK, rows_of, scores_of, settings_among, table_of
from experiments.results.comparability import has_disturbed_speed, remarks
from experiments.results.configurations import Comparable, Configuration, comparable
from experiments.results.differences import MARGIN, baselines, differences, measured, of_seeds, summary
from experiments.results.index import Index
from experiments.statistics.evidence import standard_error

ASSETS = Path(__file__).parent / "assets"
TITLE = b"<title>attn: comparison of runs</title>"  # of page.html
SCRIPTS = (
    "state.js", "numbers.js", "filter.js", "drawing.js", "export.js", "chart_reader.js", "chart.js", "facets.js",
    "forest.js", "heatmap.js", "parallel.js", "table.js", "panels.js", "differences.js", "curves.js", "heads.js",
    "searches.js", "paper_tables.js", "page.js",
)  # fmt: skip

# columns of a run on the page besides those of `attn compare`
MORE = {name: name for name in ("bits_per_byte", "flops_per_token", "tokens", "wall_seconds", "reason")}
# columns that are shown only for single runs
OF_RUN = ("run", "seed", "status", "reason", "loss", "tokens_per_second", "peak_memory_bytes", "wall_seconds", "steps")
# means whose interval is drawn
WITH_INTERVAL = ("loss", "tokens_per_second", "peak_memory_bytes")
# the maximum number of differences, over all configurations that may be the baseline
DIFFERENCES = 3000
# the maximum number of runs with curves on a page, and of numbers in curves
CURVES = 400
CURVE_NUMBERS = 150_000
# bytes of the results of `attn heads`
HEADS = 800_000
# bytes of the papers' tables, and of the searches
TABLES = 300_000
SEARCHES = 300_000
DIGITS = 6


@without_collection()
def page_data(selection: list[str], runs: Path, refresh: int = 0, say: Callable[[str], None] = warn) -> dict[str, Any]:
    """The data of the page for the chosen runs, ready for JSON. Raises Mistake.

    refresh: the number of seconds after which the page reloads itself; 0 for never. say: takes the remarks, in lines.
    """
    notes = [f"Made by: {' '.join(['attn dashboard', *selection])}, from {runs}/."]

    def leave_out(line: str) -> None:
        notes.append(f"Left out: {line}")
        say(notes[-1])

    with Index(runs) as index:
        results = chosen_runs(selection, runs, index, say)
        for line in remarks(results):
            notes.append(f"Remark: {line}.")
            say(line)
        table, scores = table_of(results), list(scores_of(results))
        settings = settings_among(table[0], results)
        measures = [column for column in table[0] if column not in (*settings, *scores, "run")] + [*MORE, *scores]
        rows = [row | more for row, more in zip(table, rows_of(Values(results), MORE), strict=True)]
        known = comparable(results, rows, settings)
        curves, points = _curves(known, results, index, say)
        heads = _readable_heads([result["folder"] for result in results], index, leave_out)
        shown_heads = _fitting(heads, HEADS, notes, "run", "the heads of ")
        tables = _readable_tables(runs / RENDERED, index, leave_out)
        shown_tables = _fitting(tables, TABLES, notes, "table")
        searches = readable_searches(runs, [str(result["run"]) for result in results], index, leave_out)
        shown_searches = _fitting(searches, SEARCHES, notes, "search")
    different = {column: len({str(row[column]) for row in rows}) for column in (*settings, *measures)}
    varying = [column for column in settings if column != "seed" and different[column] > 1]
    shared = [column for column in different if different[column] == 1]
    means = [column for column in measures if (column in WITH_INTERVAL or column not in shared)
             and any(isinstance(row[column], int | float) for row in rows)]  # fmt: skip
    data = {
        "settings": varying,
        "telling": [column for column in known.telling if column in varying],
        "measures": means,
        "task": value_at(results[0], TASK["task"]),
        "scores": scores,
        "margin": MARGIN,
        # the loss of a task whose targets are numbers is a squared error
        "unit": "" if value_at(results[0], "config.task.kind") == "regression" else "nats",
        "shared": {column: _as_one(rows[0][column]) for column in shared if rows[0][column] is not None},
        "comparisons": [_comparison(number, known, results) for number in range(len(known.comparisons))],
        "configurations": [_configuration(each, rows, varying, means) for each in known.configurations],
        "run_columns": [*OF_RUN, *scores],
        "runs": [[row[column] for column in (*OF_RUN, *scores)] for row in rows],
        "curves": curves,
        "heads": shown_heads,
        "tables": list(shown_tables.values()),
        "searches": shown_searches,
        "points": points,
        "beside": sum(map(has_disturbed_speed, results)),
        "notes": notes,
        "refresh": refresh,
    }  # fmt: skip
    plain: dict[str, Any] = _plain(data)
    return plain


def page(data: dict[str, Any]) -> str:
    """The HTML file. Names remain text whatever they contain: no `<` of the data can be read as a tag."""
    written = data | {"written": time.strftime("%Y-%m-%d %H:%M:%S")}
    parts = {
        "quality": "Loss" if data["task"] else "Perplexity",
        "style": (ASSETS / "page.css").read_text(encoding="utf-8"),
        "script": "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS),
        "data": json.dumps(written, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    text = (ASSETS / "page.html").read_text(encoding="utf-8")
    for name, part in parts.items():
        text = text.replace(f"{{{{{name}}}}}", part)
    return text


def is_page(path: Path) -> bool:
    """Whether a file has the title of a page in its first lines. Raises DiskError."""
    with disk_errors(path), open_regular(path) as file:
        return TITLE in file.read(1000)


def _configuration(of: Configuration, rows: list[Row], settings: list[str], measures: list[str]) -> dict[str, Any]:
    """A configuration: its settings, its runs, and means over the seeds that have finished.

    The perplexity is that of the mean loss, which has no standard error.
    """
    ended = [rows[run] for run in of.finished.values()]
    values = {column: [row[column] for row in ended if row[column] is not None] for column in measures}
    means = {column: math.fsum(known) / len(known) if known else None for column, known in values.items()}
    errors = {column: standard_error(known) for column, known in values.items()}
    if values.get("perplexity") and (loss := means["loss"]) is not None:
        means["perplexity"], errors["perplexity"] = perplexity(loss), None
    several = [column for column in WITH_INTERVAL if len(values.get(column, ())) > 1]
    return {
        "name": of.name,
        "values": [_as_one(of.settings[column]) for column in settings],
        "comparison": of.comparison,
        "runs": of.runs,
        "ended": list(of.finished.values()),
        "means": list(means.values()),
        "errors": list(errors.values()),
        "halves": {column: summary(values[column])["half"] for column in several},
    }


def _comparison(number: int, known: Comparable, results: list[Fields]) -> dict[str, Any]:
    """The configurations of one set of conditions, the conditions in words, and the differences from each baseline."""
    members = known.members(number)
    unigram = {results[run]["unigram_loss"] for of in members.values() for run in of.finished.values()} - {None}
    compared = measured(members, results)
    suited = baselines(compared)
    # the differences from each of them are computed
    chosen = suited[: max(1, DIFFERENCES // max(1, len(suited)))]
    return {
        "says": known.comparisons[number],
        "unigram": unigram.pop() if len(unigram) == 1 else None,
        "baselines": chosen,
        "differences": {baseline: differences(baseline, compared) for baseline in chosen},
    }


def _curves(
    known: Comparable, results: list[Fields], index: Index, say: Callable[[str], None]
) -> tuple[dict[str, Any], int | None]:
    """The curves of as many complete configurations as there is room for, and the places of their points if they were
    thinned.

    `means`: configuration -> its mean over the seeds that have finished; `runs`: run -> its own. A run has no places if
    they are those of its configuration.
    """
    chosen = _with_curves(known, results)
    runs = [run for number in chosen for run in known.configurations[number].runs]
    points = max(2, min(POINTS, CURVE_NUMBERS // (4 * len(runs) + 12 * len(chosen))))
    read = {run: _trusted_curve(results[run], index, say) for run in runs}
    thin = {run: {"training": averaged(of["training"], points), "validation": evenly_of(of["validation"], points)}
            for run, of in read.items()}  # fmt: skip
    means, alone = {}, {}
    for number in chosen:
        of = known.configurations[number]
        ended = [thin[run] for run in of.finished.values()]
        means[number] = {kind: mean_curve([each[kind] for each in ended]) for kind in ("training", "validation")}
        for run in of.runs:
            # a run that has no point yet must not look as if it had those of its configuration
            alone[run] = {kind: _beside(of_kind, means[number][kind]) for kind, of_kind in thin[run].items() if of_kind}
    thinned = any(max(of["lines"], of["evaluations"]) > points for of in read.values())
    return {"means": means, "runs": alone}, points if thinned else None


def _with_curves(known: Comparable, results: list[Fields]) -> list[int]:
    """The configurations whose curves are shown, spread from the lowest to the highest loss of each comparison."""

    def quality(number: int) -> tuple[int, float]:
        losses = list(of_seeds(known.configurations[number], results).values())
        return known.configurations[number].comparison, sum(losses) / len(losses) if losses else math.inf

    order = sorted(range(len(known.configurations)), key=quality)
    return evenly(order, max(1, CURVES * len(order) // max(CURVES, len(results))))


def _beside(run: Columns, mean: Columns) -> Columns:
    places = {} if run.get("step") == mean.get("step") else {key: run[key] for key in ("step", "tokens") if key in run}
    return places | {key: run[key] for key in ("seconds", "loss") if key in run}


def _trusted_curve(result: Fields, index: Index, say: Callable[[str], None]) -> dict[str, Any]:
    """The curve of a run; empty for a run whose files have changed, which was reported already, and for metrics that
    cannot be read, with a line to `say`.
    """
    if result["status"] != CHANGED:
        try:
            return curve_of(result["folder"], index)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())
            say(f"without a curve: {result['folder'] / METRICS}: {reason}")
    return parse_metrics(b"")


def _readable_heads(folders: list[Path], index: Index, leave_out: Callable[[str], None]) -> Iterator[tuple[int, Any]]:
    """The number of each run with head numbers, and these; for files that cannot be read, a line to `leave_out`."""
    for number, folder in enumerate(folders):
        try:
            if heads := heads_of(folder, index):
                yield number, heads
        except (OSError, ValueError, KeyError, TypeError) as error:
            leave_out(f"{folder / 'heads'}: {first_line(error)}; attn heads writes it again.")


def _readable_tables(folder: Path, index: Index, leave_out: Callable[[str], None]) -> Iterator[tuple[Path, Any]]:
    """The tables that `attn table` has rendered, the newest first; for a file that has changed, a line to
    `leave_out`.
    """
    for path in sorted(folder.glob("*.json"), key=written_at, reverse=True):
        try:
            if (table := index.read(path, parse_saved)) is not None:
                yield path, table
        except (OSError, ValueError) as error:
            leave_out(f"{path}: {first_line(error)}; attn table writes it again.")


def parse_saved(content: bytes) -> dict[str, Any]:
    """A table that `attn table` saved. Raises ValueError."""
    return unsealed(from_json(content))


def _fitting(items: Iterable[tuple[Any, Any]], room: int, notes: list[str], noun: str, of: str = "") -> dict[Any, Any]:
    """The (key, value) pairs whose values, as JSON, fit into `room` bytes together.

    notes: gets a line on the number of the others, if there are any. noun, of: what they are in that line.
    """
    fitting, others = {}, 0
    for key, value in items:
        size = len(json.dumps(value, separators=(",", ":")))
        if size <= room:
            fitting[key] = value
            room -= size
        else:
            others += 1
    if others:
        notes.append(f"There is no room here for {of}{others} more {plural(noun, others)}.")
    return fitting


def _as_one(setting: Any) -> Any:
    """The value of a setting; one of several parts as text, because the script tells values apart as a whole."""
    return as_typed(setting) if isinstance(setting, list | dict) else setting


def _plain(value: Any) -> Any:
    """The value as JSON can hold it, with numbers rounded for pictures; large ones keep all digits before the point."""
    # the most frequent kinds first
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return float(f"{value:.{DIGITS}g}") if abs(value) < 10**DIGITS else round(value)
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return str(value)
