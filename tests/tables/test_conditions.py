"""What a page says of the conditions of its cells: rates, texts, machines, and what cells do not share."""

from __future__ import annotations

import pytest

from experiments.failures.wording import joined
from experiments.measure.cores import BUSY
from experiments.tables.conditions import Conditions, untuned_families
from experiments.tables.definition.request import Request, load
from experiments.tables.sources.source import CellOutcome
from tests.tables.known import LOSSES, STEP_TIMES, Known, done, made, report_of

pytestmark = pytest.mark.usefixtures("heads_table")
WARMUP, HEADS = load("xiong2020/warmup"), load("shazeer2020/heads")


def test_another_text_is_said():
    assert "the text is" not in dict(made().facts)["budget"]
    found = made(overrides=("data=text", "data.train=a.txt"))
    assert dict(found.facts)["budget"].endswith("; the text is that of data=text")


def test_a_learning_rate_that_is_given_stands_in_place_of_the_tuned_one():
    table = WARMUP
    source = Known({(row, 0): CellOutcome("missing") for row in table.rows_at("nano")})
    source.sizes = lambda row: {}
    for given in ((), ("learning_rate=0.1",), ("max_steps=100", "learning_rate=0.1")):
        request = Request("xiong2020/warmup", table, "nano", range(1), given)
        facts = report_of(request, source, Conditions()).facts
        rates = [value for name, value in facts if name.startswith("learning rate of")]
        assert len(rates) == 3 and request.is_untuned == bool(given)
        assert not given or {*rates} == {"that of the settings; given on the command line"}
        (line,) = untuned_families(request)
        assert not given or f"not tuned with {joined(given)}" in line
        assert "learning_rate" not in request.tuning_command()


@pytest.mark.parametrize("budget", ["nano", "paper"])
@pytest.mark.parametrize(
    "override", ["optimizer=adamw", "optimizer.beta2=0.9", "schedule=linear", "max_steps=10", "trainer.max_tokens=9"]
)
def test_a_rate_is_tuned_for_the_settings_of_its_trials_only(budget, override):
    same = ["data=text", "data.train=a.txt", "precision=bf16", "trainer.device=cpu", "cache=folder", "logger.wandb=off"]
    table = WARMUP
    tuned, changed = (
        Request("xiong2020/warmup", table, budget, range(1), overrides) for overrides in (same, [*same, override])
    )
    assert tuned.tunings == Request("xiong2020/warmup", table, budget, range(1)).tunings and not tuned.is_untuned
    assert changed.is_untuned and set(changed.tunings) == set(tuned.tunings)
    assert {of.where for of in changed.tunings.values()} == {f"not tuned with {override}"}
    (line,) = untuned_families(changed)
    families = joined([*tuned.family_tunings])
    assert line.startswith(f"The learning rates of {families} were not tuned with {override}, so their rows can ")


def test_the_rate_of_a_papers_own_settings_is_not_tuned_for_others():
    name = "shazeer2020/heads"
    paper, changed = (Request(name, HEADS, "paper", range(1), each) for each in ([], ["max_steps=10"]))
    assert paper.tunings == {} and changed.is_untuned
    assert changed.tuning_command() == f"attn table {name} --budget paper --tune max_steps=10"


def test_machines_stand_with_their_seeds():
    def on(machine: str, seed: int) -> CellOutcome:
        return done(4.0, device=machine, config={"variant": {"name": "multi_head"}, "seed": seed})

    found = made({(row, seed): on("a GPU" if seed < 4 else "a CPU", seed) for row in LOSSES for seed in range(6)})
    assert dict(found.facts)["machine"] == "a GPU (seeds 0-3); a CPU (seeds 4-5)"


def test_a_wait_for_cores_that_makes_a_machine_busy_is_said():
    def notes(waited):
        return [note for note in made(step_times=STEP_TIMES._replace(waited=waited)).notes if "busy" in note]

    said = "The machine was busy while steps were timed: a row waited 11% of its time for a core."
    assert notes(BUSY + 0.01) == [said] and notes(BUSY) == notes(None) == []


def test_two_machines_are_said():
    def notes(*rows: str) -> list[str]:
        there = {(row, 0): done(4.0, device="another") for row in rows}
        return [note for note in made(there).notes if "machines" in note]

    mixed, note = notes("h8")
    assert mixed == "Rows of seed 0 were trained on different machines, whose rounding differs."
    assert "h8-s0 (another)" in note and note.endswith("speeds and peak memories are not comparable.")
    assert len(notes(*LOSSES)) == 1, "where all rows of a seed have the other machine, their differences are of one"


def test_cells_that_read_other_tokens_are_said():
    def notes(*tokens):
        return [
            note
            for note in made(
                {("h8", seed): done(4.0, sequences={"packed/a": of}) for seed, of in enumerate(tokens)}
            ).notes
            if "tokens" in note
        ]

    assert notes("one", "one") == []
    (note,) = notes("one", "other")
    assert note.startswith("h8-s0 and h8-s1 read different tokens of the same text") and note.endswith("comparable.")


@pytest.mark.parametrize(
    ("place", "values", "condition"),
    [("compiled", (True, False), "choice of torch.compile"), ("tokenizer_digest", ("ab", "cd"), "tokenizer")],
)
def test_a_condition_that_cells_do_not_share_is_said(place, values, condition):
    def notes(*values):
        found = made({("h8", seed): done(4.0, **{place: value}) for seed, value in enumerate(values)})
        return [note for note in found.notes if "The cells differ" in note]

    assert notes(values[0], values[0]) == []
    assert notes(*values) == [f"The cells differ in their {condition}, so their measurements are not comparable."]


def test_torch_compile_is_said():
    compiled = {(row, seed): done(loss, compiled=True) for row in LOSSES for seed, loss in enumerate(LOSSES[row])}
    assert dict(made(compiled).facts)["torch.compile"] == "of layers"
    assert "torch.compile" not in dict(made().facts)
