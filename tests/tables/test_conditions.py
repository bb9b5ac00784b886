"""What a page says of the conditions of its cells: rates, texts, machines, and what cells do not share."""

from __future__ import annotations

import pytest

from experiments.failures.wording import joined
from experiments.measure.cores import BUSY
from experiments.tables.conditions import Conditions, untuned_families
from experiments.tables.definition.request import Request, load
from experiments.tables.rendering.sentences import comparison_line
from experiments.tables.report import Report
from experiments.tables.sources.source import CellOutcome
from tests.tables.known import LOSSES, STEP_TIMES, Known, done, made, report_of, table_under

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
        assert not given or rates[0] == (
            "that of the settings in the rows post_warm12 and post_none12; given on the command line"
        )
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


def test_a_rate_stands_with_its_rows_and_one_of_few_trials_is_said():
    def said(*overrides: str) -> tuple[dict[str, str], list[str]]:
        source = Known({(row, 0): CellOutcome("missing") for row in WARMUP.rows_at("nano")})
        source.sizes = lambda row: {}
        found = report_of(Request("xiong2020/warmup", WARMUP, "nano", range(1), overrides), source, Conditions())
        return dict(found.facts), [note for note in found.notes if "fewer trials" in note]

    facts, notes = said()
    assert facts["learning rate of pre"].startswith("0.003 in the row pre_warm12; tuned with masked tokens (40%), ")
    assert facts["learning rate of pre"].endswith(", seed 100 (0.0015: 5.139, 0.003: 4.936, 0.006: 5.146)")
    assert (
        facts["learning rate of pre_without_warmup"] == "0.003 in the row pre_none12; not tuned; the rate with warm-up"
    )
    assert notes == [
        "The learning rates of post and pre were tuned by fewer trials than --tune makes: one seed, half of the steps "
        "and rates a factor of 2 apart. Other rates may suit their rows better."
    ]
    assert said("max_steps=10")[1] == [], "with other steps, none is tuned"


def test_the_rate_of_a_papers_own_settings_is_not_tuned_for_others():
    name = "shazeer2020/heads"
    paper, changed = (Request(name, HEADS, "paper", range(1), each) for each in ([], ["max_steps=10"]))
    assert paper.tunings == {} and changed.is_untuned
    assert changed.tuning_command() == f"attn table {name} --budget paper --tune max_steps=10"


def test_machines_stand_with_their_seeds():
    there = {
        (row, seed): done(4.0, device="a GPU" if seed < 4 else "a CPU, 1 thread") for row in LOSSES for seed in range(6)
    }
    found = made(there)
    said = "a GPU (seeds 0-3); a CPU, 1 thread (seeds 4-5)"
    assert dict(found.facts)["machine"] == said
    assert f"Pairs of different seeds ran on unlike machines or with unlike numbers of threads: {said}." in found.notes
    assert not any("Pairs of different" in note for note in made().notes)


def test_conditions_of_which_there_are_several_stand_with_their_cells():
    table = table_under("learned", "rotary")

    def said(**changes) -> dict[str, str]:
        there = {
            (f"{row}@{scheme}", seed): done(4.0, **{name: of(scheme, row, seed) for name, of in changes.items()})
            for scheme in ("learned", "rotary")
            for row in LOSSES
            for seed in range(6)
        }
        return dict(made(there, table=table).facts)

    facts = said(
        tokens=lambda scheme, row, seed: 1000 + seed // 3,
        code_digest=lambda scheme, row, seed: f"{scheme}-digest",
        backend=lambda scheme, row, seed: "blocked" if row == "h32" else "compiled",
    )
    assert facts["tokens"] == "1,000 (seeds 0-2); 1,001 (seeds 3-5)"
    assert facts["code"] == "multi_head learned- (learned), multi_head rotary-d (rotary)"
    assert facts["kernel"] == "compiled (rows h8 and h16); blocked (row h32)" and facts["steps"] == "1,200"
    facts = said(
        precision=lambda scheme, row, seed: "bf16" if scheme == "rotary" and seed == 5 else "fp32",
        backend=lambda scheme, row, seed: "blocked" if (scheme, row) == ("rotary", "h8") else "sdpa",
    )
    assert facts["precision"].endswith("bf16 (rotary, seed 5)")
    assert facts["kernel"] == "sdpa (learned; rotary, rows h16 and h32); blocked (rotary, row h8)"


def test_digests_of_several_modules_stand_with_the_rows_that_differ_in_them():
    def with_module(row: str) -> dict[str, object]:
        return {"variant": {"name": "talking_heads" if row == "h32" else "multi_head"}}

    there = {
        (row, seed): done(4.0, config=with_module(row), code_digest=f"{row} digest")
        for row in LOSSES
        for seed in range(6)
    }
    code = "multi_head h8 diges (row h8), multi_head h16 dige (row h16), talking_heads h32 dige"
    assert dict(made(there).facts)["code"] == code


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
    unlike = "unlike machines or with unlike numbers of threads"
    assert mixed == f"Rows of seed 0 ran on {unlike}, which round differently."
    assert "h8-s0 (another)" in note and note.endswith("speeds and peak memories are not comparable.")
    pairs, _ = notes(*LOSSES)
    assert pairs.startswith("Pairs of different seeds"), "their differences are of one machine each"
    said = comparison_lines(made({("h8", 0): done(4.0, device="another")}))
    assert [line.endswith(f"; with seed 0, its rows ran on {unlike}") for line in said] == [True, False]


def comparison_lines(found: Report) -> list[str]:
    comparisons = found.verdicts[0].findings[""].comparisons
    return [comparison_line(comparison, found, "", "seed") for comparison in comparisons]


def test_a_cell_that_was_continued_or_fine_tuned_elsewhere_has_all_its_machines():
    def machine(**more) -> str | None:
        found = made({("h8", 0): done(4.0, **more)})
        return next(cell.machine for cell in found.by_seed if (cell.row, cell.seed) == ("h8", 0))

    last = "a machine, 2 threads"
    assert machine() == last and machine(device=None) is None
    earlier = [{"torch": {"device": name}} for name in ("a GPU", last)]
    assert machine(environment={"earlier": earlier}) == f"a GPU, then {last}"
    assert machine(finetune={"squad": done(4.0, device="a GPU").result}) == f"{last}, then a GPU"


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
