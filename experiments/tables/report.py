"""A table as it stands: what is published, what was measured, the verdicts, and under which conditions."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.record.dotted import value_at
from experiments.tables.definition import Budget, Printed, Row, Table
from experiments.tables.overrides import apart, key_of, merged, split
from experiments.tables.published import Number, Published
from experiments.tables.sources.source import Cell, Finding, Source
from experiments.tables.statistics import standard_error, t_interval
from experiments.tables.verdict import Measures, Verdict, decide

Line = dict[str, Any]
# what the cells of a table must not differ in, of a result
ALIKE = {
    "device": "machine",
    "precision": "precision",
    "compiled": "choice of torch.compile",
    "tokenizer_digest": "tokenizer",
}


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    name: str
    table: Table
    budget_name: str
    seeds: range
    given: list[str]  # further overrides
    published_file: Path | None = None

    @property
    def budget(self) -> Budget:
        return self.table.budgets[self.budget_name]  # type: ignore[index]

    @property
    def rows(self) -> dict[str, Row]:
        return self.table.rows_at(self.budget_name)

    @property
    def printed(self) -> Printed | None:
        return self.table.printed_at(self.budget_name)

    @property
    def columns(self) -> list[str]:
        return [*self.table.columns, *self.budget.columns]

    @property
    def span(self) -> str:
        """FIRST-LAST of seeds that don't begin with 0, else empty."""
        return f"{self.seeds[0]}-{self.seeds[-1]}" if self.seeds[0] else ""

    @property
    def stem(self) -> str:
        """Of names of files and of runs in W&B."""
        return "-".join([self.name.replace("/", "-"), self.budget_name, *([self.span] if self.span else [])])

    def command(self) -> str:
        """As it can be typed again; of a file only its name, as folders differ between machines."""
        words = ["attn", "table", self.name, "--budget", self.budget_name, "--seeds", self.span or str(len(self.seeds))]
        if self.published_file:
            words += ["--published", self.published_file.name]
        return shlex.join([*words, *map(_without_folder, self.given)])


@dataclass(frozen=True)
class Report:
    asked: Asked
    score: str  # name of the score's column
    lines: list[Line]  # a row each: the CSV's columns
    printed: dict[str, dict[str, Number]]  # row -> metric -> what the paper printed
    verdicts: list[Verdict]
    facts: list[tuple[str, str]]
    notes: list[str]


def report(asked: Asked, source: Source, cells: list[Cell], published: Published | None) -> Report:
    findings = {(cell.row, cell.seed): source.finding(cell) for cell in cells}
    sizes = {cell.row: source.sizes(cell) for cell in cells}
    scores = _scores(asked.budget, findings)
    measures = Measures(
        score=scores,
        step_time=_of_results(findings, "tokens_per_second", lambda speed: 1 / speed),
        parameters=_of_results(findings, "parameters.total", lambda count: count),
        sizes=sizes,
    )
    score = asked.budget.score.rpartition(".")[2]
    printed = _printed(asked.rows, published)
    lines = [
        {"row": key, "label": row.label, **sizes[key], **_published_columns(published, printed.get(key)),
         **_measured_columns(asked, key, score, measures, findings)}
        for key, row in asked.rows.items()
    ]  # fmt: skip
    _rank(asked, lines, printed, score)
    return Report(
        asked, score, lines, printed, decide(asked.table.claims, asked.budget, asked.rows, measures),
        list(_facts(asked, findings, published)), list(_notes(asked, findings)),
    )  # fmt: skip


def _scores(budget: Budget, findings: Mapping[tuple[str, int], Finding]) -> dict[str, dict[int, float]]:
    """Of done cells their score; of diverged ones what the budget says they count as."""
    found: dict[str, dict[int, float]] = {}
    done = [finding.result for finding in findings.values() if finding.state == "done"]
    stand_ins = [value for result in done if budget.diverged and (value := value_at(result, budget.diverged))]
    for (row, seed), finding in findings.items():
        value = value_at(finding.result, budget.score) if finding.state == "done" else None
        if finding.state == "diverged" and stand_ins:
            value = max(stand_ins)
        if value is not None:
            found.setdefault(row, {})[seed] = value
    return found


def _of_results(
    findings: Mapping[tuple[str, int], Finding], place: str, value: Callable[[float], float]
) -> dict[str, dict[int, float]]:
    """What follows from a number of every done cell whose result has it: a short run has no speed."""
    found: dict[str, dict[int, float]] = {}
    for (row, seed), finding in findings.items():
        if finding.state == "done" and (number := value_at(finding.result, place)):
            found.setdefault(row, {})[seed] = value(number)
    return found


def _printed(rows: Mapping[str, Row], published: Published | None) -> dict[str, dict[str, Number]]:
    if published is None:
        return {}
    return {
        key: {metric: published.number(row.published, metric) for metric in published.metrics}
        for key, row in rows.items()
        if row.published
    }


def _published_columns(published: Published | None, numbers: dict[str, Number] | None) -> Line:
    if published is None:
        return {}
    columns: Line = {}
    for metric in published.metrics:
        number = numbers[metric] if numbers else Number(None, None, "")
        columns |= {f"published_{metric}": number.value, f"published_{metric}_pm": number.spread}
        columns |= {f"published_{metric}_mark": number.mark}
    return columns


def _measured_columns(
    asked: Asked, row: str, score: str, measures: Measures, findings: Mapping[tuple[str, int], Finding]
) -> Line:
    own, base = measures.score.get(row, {}), measures.score.get(asked.table.baseline, {})
    values = list(own.values())
    differences = [own[seed] - base[seed] for seed in own if seed in base] if row != asked.table.baseline else []
    low, high = (t_interval(differences) if differences else None) or (None, None)
    results = [finding.result for (key, _), finding in findings.items() if key == row and finding.state == "done"]
    return {
        score: float(np.mean(values)) if values else None,
        "standard_error": standard_error(values) if values else None,
        "seeds": len(values),
        **{place.rpartition(".")[2]: _mean(value_at(result, place) for result in results) for place in asked.columns},
        "difference": float(np.mean(differences)) if differences else None,
        "difference_low": low,
        "difference_high": high,
        "parameters": _first(value_at(result, "parameters.total") for result in results),
        "tokens_per_second": _mean(result.get("tokens_per_second") for result in results),
        "peak_memory_bytes": max((result.get("peak_memory_bytes") or 0 for result in results), default=0) or None,
        "step_time": _ratio(measures.step_time.get(row, {}), measures.step_time.get(asked.table.baseline, {})),
        "state": _state([finding for (key, _), finding in findings.items() if key == row]),
    }


def _ratio(own: Mapping[int, float], base: Mapping[int, float]) -> float | None:
    """Geometric mean over seeds of the step time relative to the baseline's."""
    logs = [float(np.log(own[seed] / base[seed])) for seed in own if seed in base]
    return float(np.exp(np.mean(logs))) if logs else None


def _rank(asked: Asked, lines: list[Line], printed: dict[str, dict[str, Number]], score: str) -> None:
    """Ranks among the rows that have both numbers, and whether the difference to the baseline has the paper's sign."""
    theirs: dict[str, float] = {}
    if asked.printed:
        metric = asked.printed.metric
        theirs = {row: value for row, numbers in printed.items() if (value := numbers[metric].value) is not None}
    both = [line for line in lines if line["row"] in theirs and line[score] is not None]
    ours_sign = 1 if asked.budget.better == "higher" else -1
    theirs_sign = 1 if asked.printed and asked.printed.better == "higher" else -1
    for line in lines:
        row = line["row"]
        line |= {"rank": None, "published_rank": None, "rank_deviation": None, "sign": None}
        if line not in both:
            continue
        line["rank"] = 1 + sum(ours_sign * (other[score] - line[score]) > 0 for other in both)
        line["published_rank"] = 1 + sum(theirs_sign * (theirs[other["row"]] - theirs[row]) > 0 for other in both)
        line["rank_deviation"] = line["rank"] - line["published_rank"]
        if asked.table.baseline in theirs and row != asked.table.baseline:
            line["sign"] = _sign(line, ours_sign, theirs_sign * (theirs[row] - theirs[asked.table.baseline]))


def _sign(line: Line, ours_sign: int, published_gain: float) -> str:
    low, high = line["difference_low"], line["difference_high"]
    if low is None or low <= 0 <= high or published_gain == 0:
        return "not resolved"
    return "same" if ours_sign * line["difference"] * published_gain > 0 else "opposite"


def _facts(
    asked: Asked, findings: Mapping[tuple[str, int], Finding], published: Published | None
) -> Iterator[tuple[str, str]]:
    table, budget = asked.table, asked.budget
    results = [finding.result for finding in findings.values() if finding.result]
    yield "paper", table.paper
    if published:
        yield "published", published.source
    other = "".join(f"; the text is that of {word}" for word in asked.given if word.startswith("data="))
    yield "budget", f"{asked.budget_name}: {budget.task}{other}"
    for name, words in budget.finetune.items():
        given = map(_without_folder, apart(asked.given)[1].get(name, []))
        yield f"fine-tuning, {name}", "; ".join([" ".join(merged(split(words), [*given])), *_examples(name, results)])
    yield "seeds", ", ".join(map(str, sorted({seed for _, seed in findings})))
    of_user = any(key_of(word) == "learning_rate" for word in asked.given)
    families = set() if of_user else {row.family for row in asked.rows.values()}
    for key, tuning in budget.learning_rates.items():
        if key in families:
            tried = ", ".join(f"{rate:g}: {score:.4g}" for rate, score in sorted(tuning.tried.items()))
            yield f"learning rate of {key}", f"{tuning.chosen:g}; {tuning.where}" + (f" ({tried})" if tried else "")
    for title, place in (("steps", "steps"), ("tokens", "tokens"), ("precision", "precision"), ("kernel", "backend")):
        if values := _distinct(value_at(result, place) for result in results):
            yield title, ", ".join(f"{value:,}" if isinstance(value, int) else str(value) for value in values)
    if any(result.get("compiled") for result in results):
        yield "torch.compile", "of layers"
    if texts := _distinct(_corpus(result.get("corpus")) for result in results):
        yield "text", "; ".join(texts)
    if machines := _distinct(result.get("device") for result in results):
        yield "machine", "; ".join(machines)
    if dates := sorted(_distinct(str(value_at(result, "environment.started") or "")[:10] for result in results)):
        yield "date", dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    if code := _distinct(_code(result) for result in results):
        yield "code", ", ".join(sorted(code))
    yield "command", asked.command()


def _notes(asked: Asked, findings: Mapping[tuple[str, int], Finding]) -> Iterator[str]:
    if asked.budget.note:
        yield asked.budget.note
    if asked.budget.finetune:
        yield (
            "Scores of tasks are those of the fine-tuned runs; parameters, tokens/s, peak memory, step time and "
            "validation loss are those of the pretraining that each started from."
        )
    if asked.budget.metric:
        yield f"Ranks and signs are against the published {asked.budget.metric}."
    if left_out := [row.label for key, row in asked.table.rows.items() if key not in asked.rows]:
        yield f"Not at this budget: {', '.join(left_out)}."
    for (row, seed), finding in findings.items():
        if finding.state in ("failed", "refused", "diverged"):
            counts = f"; counts as the {asked.budget.diverged} of the others" if asked.budget.diverged else ""
            said = f"{row}, seed {seed}: {finding.state}: {finding.reason}"
            yield said + (counts if finding.state == "diverged" else "")
    for place, what in ALIKE.items():
        if len(_distinct(finding.result.get(place) for finding in findings.values())) > 1:
            yield f"The cells are of more than one {what}: what is measured of them is not comparable."


def _state(findings: Sequence[Finding]) -> str:
    done = sum(finding.state == "done" for finding in findings)
    others = _distinct(finding.state for finding in findings if finding.state != "done")
    return "done" if not others else f"{done} of {len(findings)} done, {', '.join(others)}"


def _examples(name: str, results: Sequence[dict[str, Any]]) -> list[str]:
    """What the splits of a fine-tuning's task were."""
    splits = [value_at(result, f"finetune.{name}.corpus.splits") or {} for result in results]
    return _distinct(f"{part}: {_corpus(identity)}" for found in splits for part, identity in found.items())


def _corpus(identity: dict[str, Any] | None) -> str | None:
    """Name and digest of a text."""
    if not identity:
        return None
    names = [str(identity[key]) for key in ("kind", "path", "name", "commit", "python") if identity.get(key)]
    digests = identity.get("sha256") or [""]
    if isinstance(digests, dict):
        digests = digests.get("train", [""])
    first = digests if isinstance(digests, str) else digests[0]
    return " ".join([*names, *([f"SHA-256 {first[:8]}"] if first else [])])


def _code(result: dict[str, Any]) -> str | None:
    digest, variant = result.get("attention_digest"), value_at(result, "config.variant")
    if not digest:
        return None
    return " ".join(filter(None, [variant and str(variant.get("module", variant["name"])), str(digest)[:8]]))


def _without_folder(word: str) -> str:
    key, equals, value = word.partition("=")
    return f"{key}{equals}{Path(value).name}" if "/" in value else word


def _distinct(values: Any) -> list[Any]:
    return [value for value in dict.fromkeys(values) if value not in (None, "")]


def _first(values: Iterator[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def _mean(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
