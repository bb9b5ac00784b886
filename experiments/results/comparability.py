"""Whether the numbers of runs may be compared: the conditions that runs have to share, and what else may differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from experiments.measure.cores import long_wait
from experiments.record.code.digests import DECIDING, code_digest
from experiments.record.code.plugin_files import lacking_plugin
from experiments.record.dotted import Values
from experiments.record.folder import RunFolder, configuration_digest
from experiments.record.result import DIVERGED, Fields, advice_after_divergence
from experiments.results.columns import is_varied

# losses can be compared only if they share these; the digests of corpus and tokenizer are known at a run's end
CONDITIONS = {
    "max_steps": "config.max_steps",
    "epochs": "config.epochs",
    "max_tokens": "config.trainer.max_tokens",
    "max_minutes": "config.trainer.max_minutes",
    "batch_size": "config.batch_size",
    "length": "config.length",
    "evaluation_sequences": "config.trainer.evaluation_sequences",
    "objective": "config.objective",
    "task": "config.task",
    "data": "config.data",
    "tokenizer": "config.tokenizer",
    "corpus": "corpus",
    "tokenizer digest": "tokenizer_digest",
}
# conditions that precision=auto, for example, leaves to the machine -> what is said of two results that differ in one
LEFT_TO_MACHINE = {
    "precision": "computed in different precision, which alone changes losses, speeds and peak memories",
    "device": "ran on different machines, so their speeds and peak memories are not comparable",
}
OFTEN_VARIED = ("variant.name", "heads", "layers", "hidden_size", "length", "learning_rate", "max_steps", "precision")


def has_disturbed_speed(result: Fields) -> bool:
    """Whether a run has a speed that was measured while other cells ran beside it, or other processes had its cores."""
    shared = (result["cells_at_once"] or 1) > 1 or long_wait(result["waited_for_cores"])
    return result["tokens_per_second"] is not None and bool(shared)


def is_condition(place: str) -> bool:
    """Whether losses can be compared only between runs that have the same at this place."""
    return any(f"{place}.".startswith(f"{condition}.") for condition in CONDITIONS.values())


def differing_conditions(results: list[Fields]) -> list[str]:
    """The conditions in which the results that have a loss differ, by name."""
    values = Values([result for result in results if result["validation_loss"] is not None])
    return [name for name, place in CONDITIONS.items() if is_varied(values.at(place))]


def remarks(results: Sequence[Fields]) -> Iterator[str]:
    """What readers of these results should know before they compare them, in lines."""
    yield from unlike(results)
    if diverged := [result for result in results if result["status"] == "nan"]:
        advice = advice_after_divergence(diverged[0]["steps"], diverged[0]["skipped_steps"])
        yield f"{DIVERGED}: {_first(diverged)} of {len(results)} runs; {advice}"
    if line := _other_code(results):
        yield line


def unlike(results: Sequence[Fields]) -> Iterator[str]:
    """Lines about results that are not as comparable as their settings say, with the names of two runs."""
    tokens = ((name, digest, result) for result in results for name, digest in (result["sequences"] or {}).items())
    if pair := _apart(tokens):
        one, other = (result["run"] for result in pair)
        yield (
            f"{one} and {other} read different tokens of the same text, as different versions of tokenizers make them, "
            "so their losses are not comparable"
        )
    for condition, difference in LEFT_TO_MACHINE.items():
        if pair := _apart((condition, result[condition], result) for result in results if result[condition]):
            one, other = (f"{result['run']} ({result[condition]})" for result in pair)
            yield f"{one} and {other} {difference}"
    ran = [result for result in results if result["backend"] and result["config"]]
    identities = _identities(ran)
    if pair := _apart((identity, each["backend"], each) for identity, each in zip(identities, ran, strict=True)):
        one, other = (f"{result['run']} ({result['backend']})" for result in pair)
        yield f"{one} and {other} differ only in the seed, but ran with different kernels of attention"
    losses = (
        (f"{identity} {each['seed']}", str(each["validation_loss"]), each)
        for identity, each in zip(identities, ran, strict=True)
        if each["status"] == "done" and each["validation_loss"] is not None
    )
    if pair := _apart(losses):
        one, other = (f"{result['run']} ({result['validation_loss']:.4f})" for result in pair)
        yield f"{one} and {other} have the same settings and seed, but different losses; a mean counts one of them"


def _identities(results: Sequence[Fields]) -> list[str]:
    """A text for each result that is the same for those with the same settings but the seed."""
    configs = [result["config"] | {"seed": 0} for result in results]
    # runs with equal settings usually have the same objects, which is quick to see
    objects = [tuple(map(id, config.values())) for config in configs]
    distinct = dict(zip(objects, configs, strict=True))
    values = Values([*distinct.values()])
    parts = list(zip(*(map(str, values.at(name)) for name in OFTEN_VARIED), strict=True))
    # a digest of all settings takes longer, and most settings differ in a part of them
    alike = Counter(parts)
    known = {
        each: configuration_digest(config) if alike[part] > 1 else " ".join(part)
        for (each, config), part in zip(distinct.items(), parts, strict=True)
    }
    return [known[each] for each in objects]


def _other_code(results: Sequence[Fields]) -> str:
    """A line about the results that were computed with other code than the present one; empty if there are none.

    If the present code lacks a file that a folder of plugins adds, the line names both.
    """
    recorded = [result for result in results if result["code_digest"] is not None]
    values = Values(recorded)
    columns = [values.at(name) for name in ("backend", "status", *(f"config.{name}" for name in DECIDING))]
    # equal settings have equal code, so its digest is computed once for all runs that share them
    keys = list(zip(*(map(str, column) for column in columns), strict=True))
    present = {key: _present_code(result) for key, result in dict(zip(keys, recorded, strict=True)).items()}
    pairs = [(result, present[key]) for key, result in zip(keys, recorded, strict=True)]
    others = [(result, code) for result, code in pairs if code != result["code_digest"]]
    if not others:
        return ""
    lacking = (lacking_plugin(RunFolder(result["folder"])) for result, code in others if code is None)
    remedy = next(filter(None, lacking), "to train them again, give their commands with runs=FOLDER")
    named = _first([result for result, _ in others])
    return f"computed with other code than the present one: {named} of {len(results)} runs; {remedy}"


def _first(results: Sequence[Fields]) -> str:
    """`NAME`, or `NAME and 2 more`."""
    return str(results[0]["run"]) + (f" and {len(results) - 1} more" if len(results) > 1 else "")


def _apart(facts: Iterable[tuple[str, str, Fields]]) -> tuple[Fields, Fields] | None:
    """The first two results with the same first text and different second ones."""
    first: dict[str, tuple[str, Fields]] = {}
    for name, value, result in facts:
        known, of = first.setdefault(name, (value, result))
        if known != value:
            return of, result
    return None


def _present_code(result: Fields) -> str | None:
    """The digest of the code with which a run would be computed; None if this checkout does not have all of it."""
    try:
        return code_digest(result["config"] or {}, result["backend"], trained=result["status"] != "imported")
    except (LookupError, TypeError, OSError):
        return None
