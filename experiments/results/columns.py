"""Runs side by side, as rows: the columns that distinguish them, and their measurements."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, takewhile
from typing import Any

from experiments.record.dotted import Values
from experiments.record.folder import deciding_settings
from experiments.record.result import UNKNOWN, Fields
from experiments.settings.run import Settings

# column -> where it stands in a result; dotted keys of the configuration under `config`
COLUMNS = {
    "variant": "config.variant.name",
    "layers": "config.layers",
    "hidden_size": "config.hidden_size",
    "heads": "config.heads",
    "key_size": "config.key_size",
    "value_size": "config.value_size",
    "norm": "config.norm",
    "loss": "validation_loss",
    "perplexity": "perplexity",
    "unigram_loss": "unigram_loss",
    "tokens_per_second": "tokens_per_second",
    "peak_memory_bytes": "peak_memory_bytes",
    "parameters": "parameters.total",
    "steps": "steps",
    "backend": "backend",
    "seed": "seed",
    "status": "status",
    "run": "run",
}
# columns that only some tables have
TASK = {"task": "config.task.name"}  # of fine-tuned runs
OBJECTIVE = {"objective": "config.objective.kind"}  # of pretrained runs that differ in it
NAMED = TASK | OBJECTIVE | COLUMNS
# a variant and its sizes, of which one may follow from the others
SIZES = ("variant", "layers", "hidden_size", "heads", "key_size", "value_size")
# setting -> that from which its default is taken or computed, if it is not the one of the same name outside of groups
TAKEN_FROM = {
    "model.intermediate_size": "hidden_size",
    "model.embedding_size": "hidden_size",
    "model.rotary_base": "length",
    "model.local_rotary_base": "model.rotary_base",
    "task.document_stride": "length",
    "task.max_question": "length",
    "variant.linear_bias": "model.linear_bias",
    "variant.dropout": "model.attention_dropout",
    "variant.backend": "variant.backend",  # nothing else shows it: the column `backend` has the kernel that ran
}
# fields of a result that hold scores by the name of the metric, as a task or an objective names them
SCORES = ("scores", "text_scores")


def tables_of(results: list[Fields]) -> list[list[Fields]]:
    """A table of pretrained runs, and one for each task of fine-tuned runs, because they have different scores."""
    return [table_of(of_task) for of_task in by_task(results).values()]


def by_task(results: list[Fields]) -> dict[str | None, list[Fields]]:
    """The results of each task, by its name; first those of pretrained runs, under None."""
    tasks: dict[str | None, list[Fields]] = {}
    for task, result in zip(Values(results).at(TASK["task"]), results, strict=True):
        tasks.setdefault(task, []).append(result)
    return dict(sorted(tasks.items(), key=lambda item: item[0] or ""))


def table_of(results: list[Fields]) -> list[Fields]:
    """A row for each result, with a column for every setting in which two of them differ.

    A setting has no column if it follows from the one that it is taken from, or if it is a variant's own and follows
    from the variant and its sizes. None follows from the seed: runs that agree in the columns before that of the seed
    differ only in the seed.
    """
    values = Values(results)
    columns = _task_or_objective(values)
    columns |= {column: place for column, place in COLUMNS.items() if place.startswith("config.")}
    settings = [deciding_settings(config) for config in values.at("config") if config]
    shown = {*COLUMNS, *(place.removeprefix("config.") for place in columns.values())}
    differing = [key for key in _differing(settings) if key not in shown and not _follows(values, key)]
    own, origins = ([key for key in differing if key.startswith(group)] for group in ("variant.", "origin."))
    columns |= _places(key for key in differing if key not in (*own, *origins))
    columns |= _places(_telling(values, own, _places(SIZES)))
    columns["seed"] = "seed"
    # each seed may be fine-tuned from its own pretrained run, whose steps say more than its name
    origins.sort(key=lambda key: key != "origin.step")
    columns |= _places(_telling(values, origins, columns))
    columns |= _measured(results)
    return rows_of(values, columns)


def _places(keys: Iterable[str]) -> dict[str, str]:
    return {key: place_of(key) for key in keys}


def _telling(values: Values, keys: Iterable[str], columns: Mapping[str, str]) -> Iterator[str]:
    """The settings that separate results which are equal in these columns and in the settings before."""
    return telling({key: values.at(place_of(key)) for key in keys}, _texts(values, columns))


def _follows(values: Values, key: str) -> bool:
    """Whether results with the same value of the setting that this one is taken from do not differ in this one."""
    source = TAKEN_FROM.get(key, key.rpartition(".")[2])
    return source != key and not any(_telling(values, [key], {source: f"config.{source}"}))


def _texts(values: Values, columns: Mapping[str, str]) -> list[tuple[str, ...]]:
    """What each result has in these columns, as text."""
    texts = [list(map(str, values.at(place))) for place in columns.values()]
    return list(zip(*texts, strict=True)) if texts else [()] * len(values)


def _task_or_objective(values: Values) -> dict[str, str]:
    """A column with the task or the objective, if runs with different ones are shown together."""
    if any(values.at(TASK["task"])):
        return dict(TASK)
    kinds = set(values.at(OBJECTIVE["objective"]))
    return dict(OBJECTIVE) if len(kinds) > 1 else {}


def _measured(results: list[Fields]) -> dict[str, str]:
    """COLUMNS, with the scores that any of the results has before the loss; a task has no perplexity."""
    columns = dict(COLUMNS)
    if any(result["scores"] for result in results):
        del columns["perplexity"]
    before = dict(takewhile(lambda item: item[0] != "loss", columns.items()))
    return before | scores_of(results) | columns


def scores_of(results: list[Fields]) -> dict[str, str]:
    """The places of the scores, besides losses, that any of the results has: those of a task, or of texts."""
    return {name: f"{field}.{name}" for field in SCORES for result in results for name in result[field] or {}}


def settings_among(columns: Iterable[str], results: list[Fields]) -> list[str]:
    """Those columns of a table of results that are settings, the seed included."""
    others = {column for column, place in COLUMNS.items() if not place.startswith("config.")} - {"seed"}
    others |= scores_of(results).keys()
    return [column for column in columns if column not in others]


def settings_beside(shown: Sequence[str], cells: Sequence[Settings]) -> list[str]:
    """The columns of the settings that tell runs apart, before they are trained, which agree in the columns `shown`."""
    results = [untrained(cell) for cell in cells]
    rows = table_of(results)
    columns = {name: [row[name] for row in rows] for name in settings_among(rows[0], results)}
    values = Values(results)
    so_far = zip(*(map(str, values.at(place_of(name))) for name in shown), strict=True)
    return [*telling(columns, list(so_far))]


def settings_of(cell: Settings, columns: Iterable[str]) -> Fields:
    """The values of those settings of a run, by the names of their columns."""
    values = Values([untrained(cell)])
    return {column: values.at(place_of(column))[0] for column in columns}


def untrained(cell: Settings) -> Fields:
    """The result of a run of which only the settings are known."""
    return UNKNOWN | {"config": cell.model_dump(), "seed": cell.seed}


def rows_of(values: Values, columns: dict[str, str]) -> list[Fields]:
    """A row for each result: the value of each column at its place, None where the result has none."""
    rows = zip(*(values.at(place) for place in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def is_varied(column: Sequence[Any]) -> bool:
    """Whether the values differ; in a tenth of the time of making a set of them, which may be dicts."""
    return bool(column) and column.count(column[0]) < len(column)


def place_of(key: str) -> str:
    """The place of a column, or of a setting by its dotted keys, in a result."""
    return NAMED.get(key, f"config.{key}")


def telling(columns: Mapping[str, Sequence[object]], so_far: Sequence[Hashable]) -> Iterator[str]:
    """The names of the columns that separate rows which are equal in all earlier columns.

    so_far: what already distinguishes each row.
    """
    alike = _numbered(so_far)
    for name, values in columns.items():
        if len(set(alike)) == len(alike):
            # no two rows are left to separate
            return
        apart = _numbered(list(zip(alike, map(str, values), strict=True)))
        if max(apart, default=0) > max(alike, default=0):
            alike = apart
            yield name


def _numbered(values: Sequence[Hashable]) -> list[int]:
    """Number the kinds of values from 0, in order of appearance."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(value, len(numbers)) for value in values]


def _differing(trees: Sequence[Mapping[str, Any]], above: str = "") -> Iterator[str]:
    """The dotted keys of settings in which two of those differ that have them; those outside of groups come first.

    Only some kinds of a group have a setting, and `kind` then says more than that the others lack it.
    """
    groups: dict[str, list[Any]] = {}
    for key in dict.fromkeys(chain.from_iterable(trees)):
        # runs share most of their settings, so few objects of thousands have to be compared
        found = list({id(tree[key]): tree[key] for tree in trees if key in tree}.values())
        if not is_varied(found):
            continue
        if isinstance(found[0], dict):
            groups[f"{above}{key}."] = found
        else:
            yield f"{above}{key}"
    for group, found in groups.items():
        yield from _differing(found, group)
