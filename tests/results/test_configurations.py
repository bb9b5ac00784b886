"""Which runs are compared: configurations over seeds, under one set of conditions, finished."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.record.result import UNKNOWN, Fields
from experiments.results.columns import settings_among, table_of
from experiments.results.configurations import comparable


def of(
    name: str,
    variant: str = "multi_head",
    heads: int = 6,
    seed: int = 0,
    finished: bool = True,
    corpus: str | None = None,
    **more: Any,
) -> Fields:
    """The result of a run; without an end, it has neither a loss nor a corpus."""
    sizes = {"layers": 2, "hidden_size": 96, "heads": heads, "key_size": 96 // heads, "value_size": 96 // heads}
    config = {**sizes, "norm": "pre", "seed": seed, "variant": {"name": variant}, **more}
    result = UNKNOWN | {"run": name, "config": config, "seed": seed, "status": "unfinished"}
    ended = {"status": "done", "validation_loss": 4.5, "corpus": corpus and {"kind": "text", "sha256": corpus}}
    return result | ended if finished else result


def grouped(*results: Fields) -> dict[tuple[str, str], tuple[int, int]]:
    """The configurations, each with its conditions, and the numbers of its finished and other seeds."""
    rows = table_of([*results])
    found = comparable(results, rows, settings_among(rows[0], [*results]))
    return {
        (each.name, found.comparisons[each.comparison]): (len(each.finished), len(each.runs) - len(each.finished))
        for each in found.configurations
    }


def test_seeds_are_one_configuration_and_only_finished_ones_count():
    seeds = [of("a0", seed=0), of("a1", seed=1), of("a2", seed=2, finished=False)]
    assert grouped(*seeds, of("b0", heads=24)) == {("heads 6", ""): (2, 1), ("heads 24", ""): (1, 0)}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"max_steps": 60}, ("max_steps 40", "max_steps 60")),
        ({"batch_size": 8}, ("batch_size 4", "batch_size 8")),
        ({"data": {"kind": "text"}}, ("data.kind python_docs", "data.kind text")),
        ({"objective": {"kind": "masked", "rate": 0.4}}, ("objective.rate 0.15", "objective.rate 0.4")),
        ({"tokenizer": {"vocabulary_size": 99}}, ("tokenizer.vocabulary_size 9", "tokenizer.vocabulary_size 99")),
    ],
)
def test_another_budget_corpus_tokenizer_or_objective_is_another_comparison(more, said):
    alike = {"max_steps": 40, "batch_size": 4, "data": {"kind": "python_docs"}, "tokenizer": {"vocabulary_size": 9},
             "objective": {"kind": "masked", "rate": 0.15}}  # fmt: skip
    seeds = [of(f"a{seed}", seed=seed, **alike) for seed in (0, 1)]
    assert grouped(*seeds, of("b", **alike | more), of("c", heads=12, **alike | more)) == {
        ("heads 6", said[0]): (2, 0),
        ("heads 6", said[1]): (1, 0),
        ("heads 12", said[1]): (1, 0),
    }


def test_another_text_under_the_same_settings_is_another_comparison():
    seeds = [of(f"a{seed}", seed=seed, corpus=text) for seed, text in enumerate(("aa", "aa", "bb"))]
    # its text is known when it has ended: until then it stands beside those of the same settings
    running = of("a3", seed=3, finished=False)
    assert grouped(*seeds, running) == {
        ("multi_head", "corpus.sha256 aa"): (2, 1),
        ("multi_head", "corpus.sha256 bb"): (1, 0),
    }


def test_conditions_are_told_apart_in_few_words():
    masked, causal = {"kind": "masked", "rate": 0.4}, {"kind": "causal"}
    runs = [
        of(name, objective=objective, corpus=text)
        for name, objective, text in (("a", masked, "aa"), ("b", causal, "bb"), ("c", masked | {"rate": 0.2}, "aa"))
    ]
    masked_says = {f"objective.kind masked, objective.rate {rate}" for rate in (0.4, 0.2)}
    assert {says for _, says in grouped(*runs)} == {"objective.kind causal", *masked_says}
    # the rate belongs to masked tokens
    assert {says for _, says in grouped(*runs[:2])} == {"objective.kind causal", "objective.kind masked"}


def test_of_a_long_path_in_the_conditions_the_end_is_said():
    texts = [{"kind": "text", "train": f"/home/somebody/texts/of/{name}/train.txt"} for name in ("poems", "plays")]
    says = {says for _, says in grouped(*(of(text["train"], data=text) for text in texts))}
    assert says == {"data.train ...ts/of/poems/train.txt", "data.train ...ts/of/plays/train.txt"}
    corpora = [of(name, corpus=name * 32) for name in ("ab", "cd")]
    assert {says for _, says in grouped(*corpora)} == {"corpus.sha256 " + "ab" * 12, "corpus.sha256 " + "cd" * 12}


def test_lists_in_the_conditions_are_said_as_one_types_them():
    says = {says for _, says in grouped(*(of(name, task={"texts": [name, "b"]}) for name in "ac"))}
    assert says == {"task.texts [a,b]", "task.texts [c,b]"}


def test_a_run_without_a_loss_is_not_finished():
    result = {"status": "done", "validation_loss": None, "seed": 0, "config": {}}
    row = {"variant": "multi_head", "seed": 0}
    (only,) = comparable([result], [row], ["variant", "seed"]).configurations
    assert only.name == "multi_head" and only.runs == [0] and only.finished == {}


def test_the_conditions_of_most_runs_stand_first():
    results = [
        {"status": "done", "validation_loss": 1.0, "seed": seed, "config": {"max_steps": steps}}
        for steps, seeds in ((60, 1), (40, 3), (20, 2))
        for seed in range(seeds)
    ]
    rows = [{"variant": "multi_head", "seed": result["seed"]} for result in results]
    found = comparable(results, rows, ["variant", "seed"])
    assert found.comparisons == ["max_steps 40", "max_steps 20", "max_steps 60"]
    assert {len(each.runs): each.comparison for each in found.configurations} == {3: 0, 2: 1, 1: 2}


def test_a_name_leaves_out_the_group_of_a_setting_and_what_most_have():
    runs = [
        of(f"{heads}-{position}", heads=heads, model={"position": position, "intermediate_size": 384})
        for heads in (6, 12)
        for position in ("rotary", "learned")
    ]
    wide = of("wide", heads=6, model={"position": "rotary", "intermediate_size": 768})
    assert {name for name, _ in grouped(*runs, wide)} == {
        "heads 6",
        "heads 6, position learned",
        "heads 12",
        "heads 12, position learned",
        "heads 6, intermediate_size 768",
    }


def test_configurations_of_one_comparison_have_different_names():
    clips = ((None, 2), (1.0, 2), (1.0, 4))
    runs = [of(f"{clip}-{heads}", heads=heads, optimizer={"clip": clip}) for clip, heads in clips]
    # the usual clip is said only where the name needs it
    assert [name for name, _ in grouped(*runs)] == ["heads 2, clip null", "heads 2, clip 1", "heads 4"]
    # a list is said as it is typed
    runs = [of(str(each), optimizer={"betas": each}) for each in ([0.9], [0.9, 0.98])]
    assert [name for name, _ in grouped(*runs)] == ["betas [0.9]", "betas [0.9,0.98]"]


def test_runs_that_differ_in_more_than_the_seed_are_apart():
    talking = [of(f"talking{seed}", variant="talking_heads", seed=seed, learning_rate=1e-3) for seed in (0, 1)]
    # the seed alone would tell these two apart
    plain = [of(f"plain{seed}", seed=seed, learning_rate=(1e-3, 2e-3)[seed]) for seed in (0, 1)]
    assert grouped(*talking, *plain) == {
        ("talking_heads, learning_rate 0.001", ""): (2, 0),
        ("multi_head, learning_rate 0.001", ""): (1, 0),
        ("multi_head, learning_rate 0.002", ""): (1, 0),
    }


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"learning_rate": 2e-3}, "learning_rate 0.002"),
        ({"norm": "post"}, "norm post"),
        ({"optimizer": {"clip": 5.0}}, "clip 5"),
    ],
)
def test_a_name_says_what_differs_besides_the_variant(more, said):
    alike = {"learning_rate": 1e-3, "optimizer": {"clip": 1.0}}
    runs = [of("plain", **alike), of("talking", variant="talking_heads", **alike | more)]
    assert [name for name, _ in grouped(*runs)][1] == f"talking_heads, {said}"


def finetuned(seed: int, origin: int, step: int = 40, **more: Any) -> Fields:
    """A run from the weights of a pretrained one."""
    weights = {"run": f"pretrained-{origin}-{step}", "step": step}
    return of(f"{seed}-{origin}-{step}", seed=seed, task={"name": "sst2"}, origin=weights, **more)


def test_a_second_fine_tuning_of_one_seed_leaves_the_other_seeds_together():
    runs = [finetuned(seed, seed, heads=heads) for seed in range(4) for heads in (6, 12)]
    again = finetuned(0, 1, heads=6)
    assert set(grouped(*runs)) == {("heads 6", ""), ("heads 12", "")}
    assert grouped(*runs, again) == {
        ("heads 6, run pretrained-0-40", ""): (1, 0),
        ("heads 6, run pretrained-1-40", ""): (1, 0),
        ("heads 6", ""): (3, 0),
        ("heads 12", ""): (4, 0),
    }


def test_seeds_that_were_pretrained_for_different_steps_are_apart():
    runs = [finetuned(seed, seed, step) for seed in range(2) for step in (40, 60)]
    assert grouped(*runs) == {("step 40", ""): (2, 0), ("step 60", ""): (2, 0)}
