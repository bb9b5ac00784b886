"""The conditions under which a table's numbers were made, and notes for its reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from experiments.failures.wording import joined, plural
from experiments.measure.cores import long_wait
from experiments.record.dotted import value_at
from experiments.record.result import Fields
from experiments.results.comparability import unlike
from experiments.statistics.evidence import Anytime, Evidence, Planned, Waiting
from experiments.tables.definition.overrides import by_stage, key_of, merged, parse
from experiments.tables.definition.published import Published
from experiments.tables.definition.request import Request, without_folder
from experiments.tables.definition.table import PAPER
from experiments.tables.line import SeedLine
from experiments.tables.seed_plan import CheckedPlan
from experiments.tables.seeds import seeds_text, spans
from experiments.tables.sources.source import CellOutcome
from experiments.tables.step_times import NOT_MEASURED, StepTimes
from experiments.tables.which_cells import Place, with_cells

# when the evidence may be looked at
EVIDENCE_TEXTS = {
    Anytime.name: "anytime-valid: valid after any seed, and seeds may be added",
    Planned.name: "Student's t, because these seeds were planned before the first was trained",
    Waiting.name: "the plan is not complete, so nothing is decided yet",
}
# names of conditions that follow from the cells
PUBLISHED, SET_UP, SEEDS, PLAN = "published", f"set-up (at --budget {PAPER})", "seeds", "plan"
STEP_TIMES, EXAMPLES = "step times", "examples of "  # the latter before the name of a fine-tuning
OF_RESULTS = ("steps", "tokens", "precision", "kernel", "torch.compile", "text", "machine", "date", "code")
UNLIKE = "unlike machines or with unlike numbers of threads"
CellOutcomes = Mapping[tuple[str, int], CellOutcome]  # by row and seed
# parts of a result in which the cells of a table must not differ, besides those of `unlike`
SHARED_CONDITIONS = {
    "compiled": "choice of torch.compile",
    "tokenizer_digest": "tokenizer",
}


class Conditions(NamedTuple):
    """What a report needs besides its request and the outcomes of its cells."""

    published: Published | None = None  # the numbers that the paper printed
    step_times: StepTimes = NOT_MEASURED  # by the table's bench
    evidence: Evidence = Anytime()
    plan: CheckedPlan | None = None  # the one that the seeds follow
    other_plans: Sequence[CheckedPlan] = ()  # of the table, for any seeds
    paper_differences: str = ""  # where the settings differ from those of the budget `paper`


def facts_of_cells(request: Request, outcomes: CellOutcomes, conditions: Conditions) -> Iterator[tuple[str, str]]:
    """Names and values of the conditions that do not follow from the table's definition: seeds, text, machine, code."""
    results = [outcome.result for outcome in outcomes.values()]
    configurations = request.configurations
    placed = {
        Place(configurations[key].scheme, configurations[key].row, seed): outcome.result
        for (key, seed), outcome in outcomes.items()
    }
    if conditions.published:
        yield PUBLISHED, conditions.published.source
    if conditions.paper_differences:
        yield SET_UP, conditions.paper_differences
    yield from ((EXAMPLES + name, "; ".join(_examples(name, results))) for name in request.budget.finetune)
    yield SEEDS, spans({seed for _, seed in outcomes})
    yield from ((PLAN, each.says) for each in conditions.other_plans)
    yield from _of_results(placed)
    if rounds := conditions.step_times.rounds:
        yield STEP_TIMES, f"medians of {rounds} interleaved {plural('round', rounds)} on {conditions.step_times.device}"


def facts(
    request: Request, evidence: Evidence, plan: CheckedPlan | None, of_cells: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """Names and values of all conditions: those of the table's present definition, the plan that the seeds follow, and
    those that `facts_of_cells` gave when the cells were there.
    """
    budget = request.budget
    known = dict(of_cells)

    def named(*names: str) -> Iterator[tuple[str, str]]:
        return ((name, value) for name, value in of_cells if name in names)

    yield "paper", request.table.paper
    yield from named(PUBLISHED)
    other_text = (f"; the text is that of {override}" for override in request.overrides if key_of(override) == "data")
    yield "budget", f"{request.budget_name}: {budget.task}" + "".join(other_text)
    yield from named(SET_UP)
    if SET_UP in known:
        of_paper = request.table.budget(PAPER)
        # it may itself differ from the paper
        yield f"--budget {PAPER}", " ".join(filter(None, (f"{of_paper.task}.", of_paper.note)))
    _, of_user = by_stage(request.overrides)
    for name, text in budget.finetune.items():
        overrides = merged(parse(text), [*map(without_folder, of_user.get(name, []))])
        yield f"fine-tuning, {name}", "; ".join(filter(None, [" ".join(overrides), known.get(EXAMPLES + name)]))
    yield from named(SEEDS)
    yield "evidence", EVIDENCE_TEXTS[evidence.name]
    if plan:
        yield PLAN, plan.says
    yield from named(PLAN)
    yield "margin", f"{budget.margin.value:g}: {budget.margin.reason}"
    if trend_margin := budget.trend_margin:
        yield "margin of trends", f"{trend_margin.value:g}: {trend_margin.reason}"
    for name, scheme in request.schemes.items():
        if name:
            added = request.added_to_scheme(name)
            here = f", and at this budget {added}" if added else ""
            yield f"positions, {name}", f"{scheme.label}: {scheme.overrides}{here}"
    yield from _learning_rates(request)
    yield from named(*OF_RESULTS, STEP_TIMES)
    yield "command", request.command()


def notes_of_definition(request: Request) -> Iterator[str]:
    """Sentences on everything in the table's definition that a reader would not expect."""
    budget = request.budget
    if budget.note:
        yield budget.note
    if budget.finetune:
        yield (
            "Scores of tasks are those of the fine-tuned runs; parameters, peak memory, step time and validation loss "
            "are those of the pretraining from which each started."
        )
    if budget.metric:
        yield f"Ranks and signs are against the published {budget.metric}."
    of_budget = request.table.rows_at(request.budget_name)
    if left_out := [row.label for key, row in request.table.rows.items() if key not in of_budget]:
        yield f"This budget leaves these rows out: {'; '.join(left_out)}."
    if others := len(request.other_claims):
        rows = [row.label for key, row in of_budget.items() if key not in request.rows]
        not_needed = f", and the {plural('row', len(rows))} that it does not need: {'; '.join(rows)}" if rows else ""
        yield f"This page leaves out {others} other {plural('claim', others)} of the table{not_needed}."
    yield from untuned_families(request)
    yield from _families_with_few_trials(request)


def notes_of_cells(request: Request, outcomes: CellOutcomes, step_times: StepTimes) -> Iterator[str]:
    """Sentences on everything in the cells that a reader would not expect."""
    diverged = request.budget.diverged
    # rows that are measured in one run share what became of it
    rows_of: dict[tuple[int, str, str], list[str]] = {}
    for (row, seed), outcome in outcomes.items():
        if outcome.state in ("failed", "refused", "diverged"):
            rows_of.setdefault((seed, outcome.state, outcome.reason), []).append(row)
    for (seed, state, reason), rows in rows_of.items():
        counts = f"; counts as the {diverged} of the others" if diverged else ""
        yield f"{', '.join(rows)}, seed {seed}: {state}: {reason}" + (counts if state == "diverged" else "")
    if waited := long_wait(step_times.waited):
        yield f"The machine was busy while steps were timed: a row waited {waited} of its time for a core."
    for place, condition in SHARED_CONDITIONS.items():
        if len(distinct(outcome.result[place] for outcome in outcomes.values())) > 1:
            yield f"The cells differ in their {condition}, so their measurements are not comparable."
    for line in unlike([outcome.result | {"run": f"{row}-s{seed}"} for (row, seed), outcome in outcomes.items()]):
        yield f"{line}."


def notes_of_machines(cells: Sequence[SeedLine]) -> Iterator[str]:
    """Sentences on the machines of cells, if these are not all alike."""
    machines: dict[int, set[str]] = {}
    for cell in cells:
        machines.setdefault(cell.seed, set()).update(filter(None, [cell.machine]))
    if mixed := [seed for seed, names in machines.items() if len(names) > 1]:
        yield f"Rows of {seeds_text(mixed)} ran on {UNLIKE}, which round differently."
    alike = {Place("", "", seed): name for seed, names in machines.items() if len(names) == 1 for name in names}
    if len(parts := with_cells(alike)) > 1:
        yield f"Pairs of different seeds ran on {UNLIKE}: {'; '.join(parts)}."


def untuned_families(request: Request) -> Iterator[str]:
    """A sentence on the families whose learning rate was not tuned, if there are any."""
    if families := request.untuned_families:
        rates, was, its = ("rate", "was", "its") if len(families) == 1 else ("rates", "were", "their")
        added = f" with {joined(overrides)}" if (overrides := request.untuned_overrides) else ""
        yield (
            f"The learning {rates} of {joined(families)} {was} not tuned{added}, so {its} rows can decide a claim "
            "by being better, but not by being worse."
        )


def _families_with_few_trials(request: Request) -> Iterator[str]:
    """Sentences on the families whose learning rate was tuned by fewer trials than those of `--tune`."""
    by_limits: dict[str, list[str]] = {}
    for family, tuning in request.family_tunings.items():
        if tuning.limits and tuning.is_fair:
            by_limits.setdefault(tuning.limits, []).append(family)
    for limits, families in by_limits.items():
        rates, was, its = ("rate", "was", "its") if len(families) == 1 else ("rates", "were", "their")
        yield (
            f"The learning {rates} of {joined(families)} {was} tuned by fewer trials than --tune makes: {limits}. "
            f"Other rates may suit {its} rows better."
        )


def distinct(values: Iterable[Any]) -> list[Any]:
    """The known values, each once."""
    return [value for value in dict.fromkeys(values) if value not in (None, "")]


def _learning_rates(request: Request) -> Iterator[tuple[str, str]]:
    """The learning rates of the families, with their rows."""
    rows: dict[str | None, list[str]] = {}
    for configuration in request.configurations.values():
        rows.setdefault(configuration.definition.family, []).append(configuration.row)
    for family, tuning in request.family_tunings.items():
        of_family = list(dict.fromkeys(rows[family]))
        tried = ", ".join(f"{rate:g}: {score:.4g}" for rate, score in sorted((tuning.tried or {}).items()))
        chosen = f"{tuning.chosen:g}" if tuning.chosen else "that of the settings"
        shared = f"{plural('row', len(of_family))} {joined(of_family)}"
        was_tuned = f"tuned with {tuning.where} ({tried})" if tried else tuning.where
        yield f"learning rate of {family}", f"{chosen} in the {shared}; {was_tuned}"


def _of_results(results: Mapping[Place, Fields]) -> Iterator[tuple[str, str]]:
    """The conditions that the results record, named as in OF_RESULTS."""

    def said(value: Callable[[Fields], Any]) -> str:
        return "; ".join(with_cells({place: value(result) for place, result in results.items()}))

    for title, key in (("steps", "steps"), ("tokens", "tokens"), ("precision", "precision"), ("kernel", "backend")):
        if values := said(itemgetter(key)):
            yield title, values
    if any(result["compiled"] for result in results.values()):
        yield "torch.compile", "of layers"
    if texts := said(lambda result: _corpus(result["corpus"])):
        yield "text", texts
    if machines := said(itemgetter("device")):
        yield "machine", machines
    started = (str(value_at(result, "environment.started") or "")[:10] for result in results.values())
    if dates := sorted(distinct(started)):
        yield "date", dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    if code := ", ".join(_codes(results)):
        yield "code", code


def _codes(results: Mapping[Place, Fields]) -> Iterator[str]:
    """Each module of attention with the digest of its code, or with those of its cells."""
    modules: dict[str, dict[Place, str | None]] = {}
    for place, result in results.items():
        if digest := result["code_digest"]:
            variant = value_at(result, "config.variant")
            module = str(variant.get("module", variant["name"])) if variant else ""
            modules.setdefault(module, {})[place] = f"{module} {digest[:8]}".strip()
    for _, digests in sorted(modules.items()):
        yield from with_cells(digests)


def _examples(name: str, results: Sequence[Fields]) -> list[str]:
    """The data sets of a fine-tuning's task, by split."""
    splits = [value_at(result, f"finetune.{name}.corpus.splits") or {} for result in results]
    return distinct(f"{part}: {_corpus(identity)}" for of_result in splits for part, identity in of_result.items())


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
