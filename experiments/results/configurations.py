"""Runs that may be compared: configurations with their seeds, and the conditions that these have to share."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.failures.wording import as_typed
from experiments.record.dotted import Values, leaves
from experiments.record.folder import FINAL
from experiments.record.result import Fields
from experiments.results.columns import SIZES, is_varied, telling
from experiments.results.comparability import CONDITIONS, is_condition

DIGESTS = ("corpus", "tokenizer digest")
SHORT = 24  # characters of a value, which may be a digest or a path


@dataclass
class Configuration:
    """Runs that differ only in the seed."""

    name: str  # unique among those with the same conditions
    comparison: int  # number of its conditions
    runs: list[int] = field(default_factory=list)
    finished: dict[int, int] = field(default_factory=dict)  # seed -> run that has ended with a loss
    # by column, without the seed; those of the pretrained run are null unless a seed was fine-tuned from several
    settings: Fields = field(default_factory=dict)


@dataclass(frozen=True)
class Comparable:
    """All configurations, and the conditions under which they may be compared. Those with most runs stand first."""

    telling: list[str]  # settings that distinguish configurations
    configurations: list[Configuration]
    comparisons: list[str]  # the conditions in words, as far as they differ

    def members(self, comparison: int) -> dict[int, Configuration]:
        """The configurations that may be compared under these conditions, by their numbers."""
        return {number: each for number, each in enumerate(self.configurations) if each.comparison == comparison}


def comparable(results: Sequence[Fields], rows: Sequence[Fields], settings: Sequence[str]) -> Comparable:
    """Group runs into configurations, and configurations by their conditions.

    Each seed may be fine-tuned from its own pretrained run, which therefore separates only runs of one seed.

    results: the runs. rows: their columns, as of `attn compare`. settings: the columns that are settings.
    """
    columns = _distinguishing(
        [row for row, result in zip(rows, results, strict=True) if result["config"] is not None], settings
    )
    conditions = _conditions(results)
    keys = _keys(conditions)
    of_key = dict(zip(keys, conditions, strict=True))
    counts: dict[str, int] = {}
    for key, result in zip(keys, results, strict=True):
        counts[key] = counts.get(key, 0) + is_finished(result)
    _join_unfinished(keys, conditions, results)
    order = sorted(dict.fromkeys(keys), key=lambda key: -counts[key])
    origins = [column for column in columns if column.startswith("origin.")]
    own = [column for column in columns if column not in origins]
    places = [(key, *(str(row[column]) for column in own)) for key, row in zip(keys, rows, strict=True)]
    times = Counter((place, result["seed"]) for place, result in zip(places, results, strict=True))
    configurations: dict[tuple[str, ...], Configuration] = {}
    for number in sorted(range(len(results)), key=lambda number: results[number]["seed"] or 0):
        place, result, row = places[number], results[number], rows[number]
        repeated = times[place, result["seed"]] > 1
        origin = {column: row[column] if repeated else None for column in origins}
        place += tuple(map(str, origin.values()))
        if place not in configurations:
            values = {column: row[column] for column in settings if column != "seed"} | origin
            configurations[place] = Configuration("", order.index(keys[number]), settings=values)
        configurations[place].runs.append(number)
        if is_finished(result):
            configurations[place].finished[result["seed"]] = number
    _give_names(list(configurations.values()), columns)
    texts = _texts([of_key[key] for key in order])
    return Comparable(columns, list(configurations.values()), texts)


def _distinguishing(rows: Sequence[Fields], settings: Sequence[str]) -> list[str]:
    """The columns in which configurations differ under the same conditions, without sizes that follow from others."""
    values = {column: [row[column] for row in rows] for column in settings}
    sizes = list(telling({column: values[column] for column in SIZES if column in values}, [()] * len(rows)))
    others = [column for column in settings if column not in (*SIZES, "seed") and is_varied(values[column])]
    return [column for column in sizes + others if not is_condition(f"config.{column}")]


def is_finished(result: Fields) -> bool:
    """Whether a run was trained to its end and has a loss."""
    return result["status"] in FINAL and result["validation_loss"] is not None


def _conditions(results: Sequence[Fields]) -> list[dict[str, Any]]:
    """Those conditions of each run in which the runs differ."""
    values = Values(results)
    columns = {name: values.at(place) for name, place in CONDITIONS.items()}
    differing = {name: column for name, column in columns.items() if is_varied(column)}
    if not differing:
        return [{}] * len(results)
    return [dict(zip(differing, row, strict=True)) for row in zip(*differing.values(), strict=True)]


def _keys(conditions: Sequence[Mapping[str, Any]]) -> list[str]:
    """The key of each, computed once for those that look the same."""
    texts = list(map(str, conditions))
    keys = {text: _key(each) for text, each in dict(zip(texts, conditions, strict=True)).items()}
    return [keys[text] for text in texts]


def _key(conditions: Mapping[str, Any]) -> str:
    return json.dumps(conditions, sort_keys=True, default=str)


def _join_unfinished(keys: list[str], conditions: Sequence[dict[str, Any]], results: Sequence[Fields]) -> None:
    """Place a run that has not ended beside those that share its settings, because its text and tokenizer are not
    recorded.
    """
    if all(map(is_finished, results)):
        return
    of_settings: dict[str, str] = {}
    for key, values, result in zip(keys, conditions, results, strict=True):
        if is_finished(result):
            of_settings.setdefault(_settings_key(values), key)
    for number, (values, result) in enumerate(zip(conditions, results, strict=True)):
        if not is_finished(result):
            keys[number] = of_settings.get(_settings_key(values), keys[number])


def _settings_key(conditions: Mapping[str, Any]) -> str:
    return _key({name: value for name, value in conditions.items() if CONDITIONS[name].startswith("config.")})


def _give_names(configurations: Sequence[Configuration], columns: Sequence[str]) -> None:
    """Name configurations by the settings that distinguish them: "talking_heads, heads 24".

    A setting that is null or has its usual value is said only where two names would be the same without it.
    """
    usual = _usual(columns, [each.settings for each in configurations])
    alike: dict[tuple[int, str], list[Configuration]] = {}
    for each in configurations:
        each.name = _name(columns, each.settings, usual)
        alike.setdefault((each.comparison, each.name), []).append(each)
    for same in alike.values():
        differing = [column for column in columns if len({str(each.settings[column]) for each in same}) > 1]
        for each in same:
            each.name = _name(columns, each.settings, usual, differing)


def _usual(columns: Sequence[str], rows: Sequence[Fields]) -> dict[str, str]:
    """The values of settings in groups, such as `model.position`, that more than half of the configurations have."""
    counts = {column: Counter(str(row[column]) for row in rows).most_common(1) for column in columns if "." in column}
    return {column: value for column, [(value, count)] in counts.items() if 2 * count > len(rows)}


def _name(columns: Sequence[str], row: Fields, usual: Mapping[str, str], differing: Collection[str] = ()) -> str:
    """A configuration's settings, without those that are null or usual unless they are `differing`.

    The group of a setting is said only if another has the same last word.
    """
    words = Counter(column.rpartition(".")[2] for column in columns)
    parts = []
    for column in columns:
        if column in differing or (row[column] is not None and usual.get(column) != str(row[column])):
            word = column.rpartition(".")[2]
            name = word if words[word] == 1 else column
            value = as_typed(row[column])
            parts.append(value if column == "variant" else f"{name} {value}")
    return ", ".join(parts) or str(row["variant"])


def _texts(conditions: Sequence[dict[str, Any]]) -> list[str]:
    """Sets of conditions in words, as far as they differ and as far as it takes to tell them apart."""
    flat = [{key: value for key, value in leaves(values) if value is not None} for values in conditions]
    names = dict.fromkeys(name for values in flat for name in values)
    differing = [name for name in names if _different(flat, name) > 1 and not _follows_from_kind(flat, name)]
    settings = [name for name in differing if name.partition(".")[0] not in DIGESTS]
    differing = settings if _different(flat, *settings) == len(flat) else differing
    texts = [
        ", ".join(f"{name} {_shortened(name, as_typed(values[name]))}" for name in differing if name in values)
        for values in flat
    ]
    # two different digests may begin, and two paths end, with the same shown characters
    return [text if texts.index(text) == number else f"{text} [{number}]" for number, text in enumerate(texts)]


def _shortened(name: str, text: str) -> str:
    """The beginning of a digest; the end of anything else that is too long, because paths differ there."""
    if len(text) <= SHORT or name.partition(".")[0] in DIGESTS:
        return text[:SHORT]
    return f"...{text[3 - SHORT :]}"


def _different(flat: Sequence[Mapping[str, Any]], *names: str) -> int:
    """The number of different values of these names, taken together."""
    return len({tuple(str(values.get(name)) for name in names) for values in flat})


def _follows_from_kind(flat: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Whether a setting of a group differs only because the group's kind does."""
    kind = f"{name.rpartition('.')[0]}.kind"
    return name != kind and _different(flat, kind, name) == _different(flat, kind) > 1
