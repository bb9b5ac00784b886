"""The learning rates that `--tune` finds, with cells whose loss is a known function of their rate."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from experiments.failures.failure import Failure, Mistake
from experiments.record.result import UNKNOWN
from experiments.tables import tuning
from experiments.tables.definition.request import Request, load
from experiments.tables.definition.table import UNTUNED, Tuning
from experiments.tables.sources.source import CellOutcome, TableCell


class Known:
    """A source whose loss is 4 at the best rate, and grows with the distance from it in doublings."""

    def __init__(self, request, rows, best, asked, diverges=math.inf):
        (override,) = (each for each in request.overrides if each.startswith("learning_rate="))
        self.rate, self.best, self.diverges = float(override.partition("=")[2]), best, diverges
        self.rows, self.asked = rows, asked

    def cells(self, seeds):
        return [TableCell(row, seed, f"{row}-s{seed}") for seed in seeds for row in self.rows]

    def check(self):
        pass

    def make(self, cells, group, console, workers):
        assert group == "table-shazeer2020-heads_t5-tuning" and workers == 2
        self.asked.append((self.rate, [(cell.row, cell.seed) for cell in cells]))

    def outcome(self, cell):
        if self.rate >= self.diverges:
            return CellOutcome("diverged", "not finite")
        loss = 4 + math.log2(self.rate / self.best) ** 2 + 0.1 * (cell.seed - tuning.SEEDS[0])
        return CellOutcome("done", "", UNKNOWN | {"validation_loss": loss, "steps": 800, "precision": "fp32"})


def untuned(table):
    """The table with the rates that it has, none of them tuned, and with a claim about a family alone."""
    nano = table.budgets["nano"]
    rates = {family: of.model_copy(update={"tried": {}, "chosen": 3e-3}) for family, of in nano.learning_rates.items()}
    budgets = table.budgets | {"nano": nano.model_copy(update={"learning_rates": rates})}
    claims = table.claims | {"plain": table.claims["C7"].model_copy(update={"parts": ["mh32 > mh16"]})}
    return table.model_copy(update={"budgets": budgets, "claims": claims})


@pytest.fixture
def tuned(monkeypatch):
    """tuned(best, **more): the rates of the families of a table that has two of them, and what was asked for them."""

    def tune(best, seeds=None, overrides=(), claims=(), **more):
        asked = []
        monkeypatch.setattr(tuning, "source_of", lambda request, rows: Known(request, rows, best, asked, **more))
        table = untuned(load("shazeer2020/heads_t5"))
        seeds, names_seeds = (range(4), False) if seeds is None else (seeds, True)
        request = Request(
            "shazeer2020/heads_t5", table, "nano", seeds, overrides, Path("runs"), None, names_seeds, claims
        )
        return tuning.tune(request, Console(quiet=True), 2), asked

    return tune


@pytest.mark.parametrize("best", [3e-3, 6e-3, 9e-4, 2.3e-2])
def test_the_best_rate_lies_between_two_that_were_tried(tuned, best):
    found, _ = tuned(best)
    assert list(found) == ["multi_head", "talking_heads"]
    for of_family in found.values():
        assert abs(math.log2(of_family.chosen / best)) <= 0.28, "half a step of sqrt(2), and rounding to two digits"
        assert min(of_family.tried) < of_family.chosen < max(of_family.tried)
        # the mean over both seeds
        assert of_family.tried[of_family.chosen] == pytest.approx(
            4.05 + math.log2(of_family.chosen / best) ** 2, abs=1e-3
        )


def test_a_family_is_tuned_at_its_ends_with_seeds_that_no_table_has(tuned):
    found, asked = tuned(3e-3)
    assert [rate for rate, _ in asked[:3]] == [2.1e-3, 3e-3, 4.2e-3] and len(asked) == 6
    rows = {row.partition("@")[0] for _, cells in asked[:3] for row, _ in cells}
    assert rows == {"mh64", "mh4"}
    assert {seed for _, cells in asked for _, seed in cells} == {1000, 1001}
    assert found["multi_head"].where.startswith("rows mh64 and mh4")
    assert found["multi_head"].where.endswith(", seeds 1000-1001, 800 steps in fp32")
    request = Request("shazeer2020/heads_t5", untuned(load("shazeer2020/heads_t5")), "nano", range(4))
    assert sum(len(cells) for _, cells in asked) == tuning.fewest_trials(request).total() == 48
    _, asked = tuned(3e-3, range(7, 8))
    assert {seed for _, cells in asked for _, seed in cells} == {7}, "the user's own"


def test_the_rates_of_a_claim_are_those_of_the_whole_table(tuned):
    every, _ = tuned(3e-3)
    found, asked = tuned(3e-3, claims=["plain"])
    assert found == {"multi_head": every["multi_head"]}
    assert {row.partition("@")[0] for _, cells in asked for row, _ in cells} == {"mh64", "mh4"}


def test_a_rate_that_diverges_is_the_worst(tuned):
    found, _ = tuned(1e-2, diverges=5e-3)
    assert {of.chosen for of in found.values()} == {4.2e-3} and found["multi_head"].tried[6e-3] == math.inf


def test_a_best_rate_beyond_the_range_is_no_result(tuned):
    with pytest.raises(Failure, match=r"multi_head: no rate from 0\.0021 to 0\.048 is better than both"):
        tuned(1.0)
    with pytest.raises(Failure, match=r"multi_head: no rate from 0\.00019 to 0\.0042 is better than both"):
        tuned(3e-3, diverges=0.0)


def test_what_is_printed_is_what_a_table_reads(tuned):
    found, _ = tuned(1e-2, diverges=1.1e-2)
    read = {family: Tuning(**fields) for family, fields in yaml.safe_load(tuning.as_yaml(found)).items()}
    assert read == found and all(of.is_fair for of in read.values())


def test_what_cannot_be_tuned_is_refused(tuned):
    with pytest.raises(Mistake, match="finds the learning rate itself"):
        tuned(3e-3, overrides=["learning_rate=1e-3"])
    for name, why in [
        ("shazeer2020/heads", "no rate is left to tune; the families are multi_head and talking_heads"),
        ("bhojanapalli2020/theorem1", r"no row of the budget nano .* has a rate to tune"),
    ]:
        with pytest.raises(Mistake, match=why):
            tuning.tune(Request(name, load(name), "nano", range(4)), Console(quiet=True))
    with pytest.raises(Mistake, match=r"no row of the budget paper .* has a rate to tune"):
        tuning.tune(Request("shazeer2020/heads", load("shazeer2020/heads"), "paper", range(4)), Console(quiet=True))


def test_a_family_without_a_rate_is_tuned_from_that_of_the_settings(monkeypatch):
    asked, source_of = [], tuning.source_of

    def source(request, rows):
        tried = any(override.startswith("learning_rate=") for override in request.overrides)
        return Known(request, rows, 3e-3, asked) if tried else source_of(request, rows)

    monkeypatch.setattr(tuning, "source_of", source)
    request = Request("shazeer2020/heads_t5", load("shazeer2020/heads_t5"), "small", range(4))
    assert request.is_untuned and request.family_tunings == {"multi_head": UNTUNED, "talking_heads": UNTUNED}
    found = tuning.tune(request, Console(quiet=True), 2)
    assert [rate for rate, _ in asked[:3]] == [2.1e-3, 3e-3, 4.2e-3], "around the rate of the settings"
    assert {family: of.chosen for family, of in found.items()} == {"multi_head": 3e-3, "talking_heads": 3e-3}


def test_a_cell_that_fails_ends_it(tuned, monkeypatch):
    monkeypatch.setattr(Known, "outcome", lambda source, cell: CellOutcome("failed", "out of memory"))
    with pytest.raises(Failure, match="s1000: failed: out of memory"):
        tuned(3e-3)


@pytest.mark.campaign
def test_a_table_is_tuned_by_runs(attn, short, tmp_path, heads_table):
    from experiments.tables.definition import folder

    table = folder.TABLES / f"{heads_table}.yaml"
    table.write_text(table.read_text().replace("tried: {1.5e-3: 4.6, 3.0e-3: 4.5, 6.0e-3: 4.7}", "tried: {}"))
    words = ("table", heads_table, "--tune", "--seeds", "100-100", *short)
    done = attn(*words)
    assert done.returncode == 0, done.output
    (found,) = (Tuning(**fields) for fields in yaml.safe_load(done.stdout).values())
    assert len(found.tried) >= 3 and found.chosen == min(found.tried, key=found.tried.get)
    assert found.where.startswith("rows h8 and h32, seed 100, ")
    assert len(list(Path(tmp_path).glob("runs/*/result.json"))) == 2 * len(found.tried)
    again = attn(*words)
    assert again.stdout == done.stdout and "finished before" in again.stderr
