"""The YAML file of every paper's table is complete, composes at every budget, and finds its published numbers."""

from __future__ import annotations

import functools
import math
import re
from pathlib import Path

import pytest
import torch
import yaml

from experiments.config.compose import compose
from experiments.config.groups import options
from experiments.model.architectures import encoder
from experiments.tables.costs import BUDGETS
from experiments.tables.definition import published
from experiments.tables.definition.folder import TABLES, checked, names
from experiments.tables.definition.overrides import merged, parse, row_overrides
from experiments.tables.definition.request import Request, load
from experiments.tables.definition.table import TableRow
from experiments.tables.sources.choose import source_of
from experiments.tables.sources.finetuned_runs import FinetunedRuns
from experiments.tables.sources.runs import Runs
from tests.fixtures.campaign import in_campaigns

DEARER = {("shazeer2020/projections", "C9 from the identity"), ("bhojanapalli2020/figure1", "wider")}
PAPERS = {
    "bhojanapalli2020", "britz2017", "clark2019", "cordonnier2020", "follow_ups", "ioffe2015", "lan2020", "shazeer2020",
    "su2020", "vaswani2017", "xiong2020",
}  # fmt: skip
LOADED = {name: load(name) for name in names()}
OF_RUNS = [name for name, table in LOADED.items() if table.source == "runs"]
# a table that somebody adds may have fewer budgets, and rates that nobody has tuned
TRAINED = [name for name in OF_RUNS if name.split("/")[0] in PAPERS]
MEASURED = ["clark2019/head_distance", "shazeer2020/projection_structure"]  # of trained runs


@functools.cache
def runs(name: str, budget: str) -> Runs:
    return composed(name, budget, definitions(name, budget))


def composed(name: str, budget: str, rows: dict[str, TableRow]) -> Runs:
    """The runs of a table's rows. If they are fine-tuned, this is composed and checked, too."""
    source = source_of(Request(name, load(name), budget, range(1)), rows)
    runs = source.pretraining if isinstance(source, FinetunedRuns) else source
    assert isinstance(runs, Runs)
    return runs


def definitions(name: str, budget: str) -> dict[str, TableRow]:
    """The rows of a budget under the paper's own scheme of positions, and the baseline under the others."""
    table = load(name)
    own = next(iter(table.schemes_at(budget)), "")
    configurations = Request(name, table, budget, range(1)).configurations
    return {key: of.definition for key, of in configurations.items() if of.scheme == own or of.row == table.baseline}


def test_the_tables_of_the_papers_are_there():
    assert {name.split("/")[0] for name in names()} >= PAPERS
    claimed = {key for name in names() for key in load(name).claims}
    assert {*(f"C{number}" for number in range(1, 11)), "X5"} <= claimed


@pytest.mark.campaign
@pytest.mark.parametrize("name", OF_RUNS)
def test_every_row_composes_at_every_budget_and_is_a_run_of_its_own(name):
    for budget in load(name).budgets:
        configurations = Request(name, load(name), budget, range(1)).configurations
        check_rows(name, budget, {key: of.definition for key, of in configurations.items()})


@pytest.mark.parametrize("name", TRAINED)
def test_every_row_composes_at_a_budget_and_so_does_the_baseline_of_the_paper(name):
    table = load(name)
    assert set(table.budgets) == set(BUDGETS)
    check_rows(name, "nano", definitions(name, "nano"))
    composes = set(table.rows_at("nano"))
    for budget in BUDGETS[1:]:
        rows = definitions(name, budget)
        dearer = {key for key in rows if key.partition("@")[0] not in composes}
        if budget == BUDGETS[-1]:
            dearer |= {key for key in rows if key.partition("@")[0] == table.baseline}
        if dearer:
            check_rows(name, budget, {key: rows[key] for key in dearer})
        composes |= {key.partition("@")[0] for key in dearer}
    assert composes == set(table.rows)
    check_rates(name)


@pytest.mark.parametrize("name", MEASURED)
def test_rows_that_look_at_one_run_share_it(name):
    table = load(name)
    assert set(table.budgets) == set(BUDGETS)
    for budget in BUDGETS:
        source = source_of(Request(name, table, budget, range(1)))
        assert len({cell.name for cell in source.cells([0])}) == len(table.rows)
        trainings = {row.overrides.replace(row.overrides.split()[-1], "") for row in table.rows.values()}
        assert len(source._runs.cells([0])) == len(trainings) < len(table.rows)


def test_a_cell_that_two_tables_share_is_one_run():
    """Both tables then show the same number."""
    rows = {
        "shazeer2020/heads": "mh16@rotary",
        "bhojanapalli2020/table1": "quarter@rotary",
        "shazeer2020/projections": "none@rotary",
    }
    names = set()
    for name, row in rows.items():
        definition = Request(name, load(name), "nano", range(1)).configurations[row].definition
        names |= {cell.name for cell in composed(name, "nano", {row: definition}).cells([0])}
    assert len(names) == 1, names


@pytest.mark.parametrize("budget", ["nano", *in_campaigns(*BUDGETS[1:])])
@pytest.mark.parametrize(
    "name", ["shazeer2020/heads", "shazeer2020/heads_t5", "shazeer2020/albert", "vaswani2017/table3a"]
)
def test_the_width_of_all_heads_together_is_fixed(name, budget):
    table = load(name)
    scheme = next(iter(table.schemes_at(budget)))
    for key, of in Request(name, table, budget, range(1)).configurations.items():
        if of.scheme == scheme:
            config = compose(merged(parse(table.budgets[budget].overrides), parse(of.definition.overrides)))
            assert config.heads * config.key_size == config.hidden_size, key
            assert of.row == "one" or config.key_size == int(re.sub(r"\D", "", of.row)), key


@pytest.mark.parametrize("budget", ["nano", *in_campaigns(*BUDGETS[1:])])
@pytest.mark.parametrize("name", TRAINED)
def test_a_width_that_is_a_share_of_the_hidden_size_divides_it(name, budget):
    """Otherwise rows that are said to differ in their number of heads also differ in the width of all heads."""
    table = load(name)
    scheme = next(iter(table.schemes_at(budget)), "")
    of_budget = parse(table.budgets[budget].overrides)
    for key, of in Request(name, table, budget, range(1)).configurations.items():
        if of.scheme == scheme:
            overrides = merged(of_budget, parse(of.definition.overrides))
            written = {override.partition("=")[0]: override for override in overrides}
            config = compose(overrides)
            for size in ("key_size", "value_size"):
                if "floor_divide:${hidden_size}" in written.get(size, "floor_divide:${hidden_size}"):
                    assert config.hidden_size % getattr(config, size) == 0, (key, size)


@pytest.mark.campaign
@pytest.mark.parametrize("name", TRAINED)
def test_larger_budgets_have_the_text_and_the_windows_of_their_tasks(name):
    table = load(name)
    for budget in ("medium", "paper"):
        of_budget = table.budgets[budget]
        row = next(iter(Request(name, table, budget, range(1)).configurations.values())).definition
        config = compose(merged(parse(of_budget.overrides), parse(row.overrides)))
        if hasattr(config.data, "max_documents"):
            assert config.data.max_documents is None, "all of the text, so that it is not read over and over"
        if of_budget.finetune:
            assert config.length >= 128 and config.tokenizer.vocabulary_size >= 16384


@pytest.mark.parametrize("budget", ["nano", *in_campaigns(*BUDGETS[1:])])
def test_the_mechanisms_of_today_have_equal_parameters(budget):
    table, counts = load("follow_ups/today"), {}
    for row in table.rows.values():
        config = compose(merged(parse(table.budgets[budget].overrides), parse(row.overrides)))
        with torch.device("meta"):
            counts[row.label] = encoder.Architecture(config.model, config.variant, 8192).parameter_counts()["total"]
    assert all(count == pytest.approx(counts["multi-head"], rel=0.005) for count in counts.values()), counts


def check_rows(name: str, budget: str, rows: dict[str, TableRow]) -> None:
    source = runs(name, budget) if rows == definitions(name, budget) else composed(name, budget, rows)
    assert len({cell.name for cell in source.cells([0])}) == len(rows)
    sizes = {key.partition("@")[0]: source.sizes(key) for key in rows}
    for claim in load(name).claims_at(budget).values():
        for part in claim.parts_at(sizes):
            assert part.contrast(sizes).keys() <= sizes.keys()


def check_rates(name: str) -> None:
    """Check that every family at nano has the best of its learning rates that were tried, if any."""
    table = load(name)
    rates = table.budgets["nano"].learning_rates
    source, rows = runs(name, "nano"), definitions(name, "nano")
    for cell in source.cells([0]):
        tuning = rates[rows[cell.row].family]
        assert source.settings(cell).learning_rate == tuning.chosen
        assert not tuning.tried or (len(tuning.tried) >= 3 and tuning.chosen == min(tuning.tried, key=tuning.tried.get))
        check_mechanism(rows[cell.row].family, source.settings(cell).variant["name"])


def check_mechanism(family: str, variant: str) -> None:
    """Check that no row takes a rate that was tuned for another mechanism."""
    assert family not in ("multi_head", "talking_heads") or variant == family


@pytest.mark.parametrize("name", TRAINED)
def test_nano_tries_the_claims(name):
    """All claims are tested at nano, except those whose rows take more than an hour on two cores."""
    from experiments.tables.definition import inequality

    table = load(name)
    for key, claim in table.claims_at("nano").items():
        budget = "small" if (name, key) in DEARER else "nano"
        assert any(inequality.parse(sentence, table.rows_at(budget)) for sentence in claim.parts), key


def test_a_claim_names_a_key_size_of_every_budget_or_says_that_not_all_have_it():
    table = LOADED["britz2017/additive"]
    for budget in table.budgets:
        sizes = {
            size for row in table.rows_at(budget).values() for size in re.findall(r"key_size=(\d+)", row.overrides)
        }
        for key, claim in table.claims_at(budget).items():
            named = set(re.findall(r"(?<!at budgets with )d_k = (\d+)", claim.says))
            assert named <= sizes, (budget, key)


@pytest.mark.parametrize("budget", ["nano", "paper"])
def test_a_norm_has_the_same_rate_without_warm_up_as_with_it_and_its_claims_say_so(budget):
    source = runs("xiong2020/warmup", budget)
    for claim in (of for key, of in LOADED["xiong2020/warmup"].claims_at(budget).items() if key.startswith("C10")):
        assert "at the learning rate that it has with warm-up" in claim.says
    for norm in ("post", "pre"):
        rows = {cell.row for cell in source.cells([0]) if cell.row.startswith(norm)}
        assert len({source.timed(row).learning_rate for row in rows}) == 1


@pytest.mark.parametrize("experiment", options("experiment"))
def test_every_overlay_composes(experiment):
    assert compose([f"experiment={experiment}", "heads=4"]).heads == 4


@pytest.mark.parametrize(
    ("name", "larger", "matched"),
    [
        ("su2020/key_size", "plus", "matched"),
        ("bhojanapalli2020/table2a", "h16", "matched16"),
        ("bhojanapalli2020/table2a", "h32", "matched32"),
        ("bhojanapalli2020/table2b", "p256", "matched256"),
        ("bhojanapalli2020/figure1", "h16", "matched16"),
        ("bhojanapalli2020/figure1", "h32", "matched32"),
    ],
)
@pytest.mark.parametrize("budget", ["nano", *in_campaigns("medium")])
def test_matched_arms_have_the_parameters_of_what_they_match(name, larger, matched, budget):
    table = load(name)
    overrides = row_overrides({key: table.rows[key] for key in (larger, matched)}, table.budgets[budget], [])
    source = Runs(overrides, Path("runs"))
    counts = []
    for settings in map(source.settings, source.cells([0])):
        with torch.device("meta"):
            counts.append(encoder.Architecture(settings.model, settings.variant, 4096).parameter_counts()["total"])
    assert counts[0] == pytest.approx(counts[1], rel=1e-3)


def test_sizes_are_those_of_the_layer_that_is_trained():
    source = runs("shazeer2020/unequal", "nano")
    sizes = {row: source.sizes(row) for row in definitions("shazeer2020/unequal", "nano")}
    assert {(of_row["h_k"], of_row["h"], of_row["h_v"]) for of_row in sizes.values()} >= {(6, 6, 6), (24, 24, 24)}
    for cell in source.cells([0]):
        variant = source.settings(cell).variant
        names = {"h_k": "key_heads", "h": "softmax_heads", "h_v": "value_heads", "d_k": "key_size", "d_v": "value_size"}
        assert {name: sizes[cell.row][name] for name in names} == {name: variant[key] for name, key in names.items()}


@pytest.mark.parametrize("name", ["shazeer2020/heads", "shazeer2020/heads_t5", "shazeer2020/albert"])
def test_the_projections_parameters_are_as_claimed(name):
    from experiments.launch.check_cells import check_buildable
    from experiments.tables.verdict import Measures, decide

    table, source = load(name), runs(name, "nano")
    cells = {cell.row.removesuffix("@relative"): cell for cell in source.cells([0]) if cell.row.endswith("@relative")}
    counts = check_buildable([source.settings(cell) for cell in cells.values()])
    measures = Measures(
        {}, {}, {row: {0: count} for row, count in zip(cells, counts, strict=True)},
        {row: source.sizes(cell.row) for row, cell in cells.items()},
    )  # fmt: skip
    claim = {"X2 parameters": table.claims["X2 parameters"]}
    (verdict,) = decide(claim, table.budgets["nano"], table.rows_at("nano"), {"": measures})
    assert verdict.word == "holds" and len(verdict.findings[""].comparisons) == len(table.rows_at("nano")) / 2


@pytest.mark.parametrize("name", ["bhojanapalli2020/table2a", "lan2020/sharing", "vaswani2017/table3b"])
def test_the_papers_own_set_up_has_the_papers_parameters(name):
    from experiments.launch.check_cells import check_buildable

    table = load(name)
    found = published.read(name, table.published.table, None)
    own = next(iter(table.positions), "")
    rows = {key: row for key, row in definitions(name, "paper").items() if row.published and key.endswith(own)}
    source = composed(name, "paper", rows)
    cells = source.cells([0])
    counts = check_buildable([source.settings(cell) for cell in cells])
    for cell, count in zip(cells, counts, strict=True):
        assert count / 1e6 == pytest.approx(found.number(rows[cell.row].published, "params_m").value, rel=0.04)


def test_the_papers_own_vocabulary_gives_models_in_proportion_to_the_released_files():
    """The authors print the sizes of the four files, of which the vocabulary has the largest share in the smallest."""
    from experiments.launch.check_cells import check_buildable

    megabytes = {"base": 48, "plus": 67, "tiny": 27, "tiny_plus": 35}
    rows = definitions("su2020/key_size", "paper")
    source = composed("su2020/key_size", "paper", {row: rows[f"{row}@learned"] for row in megabytes})
    counts = check_buildable([source.settings(cell) for cell in source.cells([0])])
    sizes = [4e-6 * count / size for count, size in zip(counts, megabytes.values(), strict=True)]
    assert sizes == pytest.approx([sizes[0]] * 4, rel=0.01)


@pytest.mark.parametrize(
    ("name", "budgets"),
    [
        ("bhojanapalli2020/table1", ("medium", "paper")),
        ("bhojanapalli2020/table2a", ("medium", "paper")),
        ("bhojanapalli2020/table2b", ("medium", "paper")),
        ("cordonnier2020/collaborative", ("paper",)),
        ("vaswani2017/table3b", ("nano", "paper")),
    ],
)
def test_the_margin_of_a_trend_is_half_of_the_printed_one(name, budgets):
    table = load(name)
    metric, found = table.published.metric, published.read(name, table.published.table, None)
    numbers = {key: found.number(row.published, metric).value for key, row in table.rows.items() if row.published}
    if metric == "ppl":
        numbers = {key: math.log(value) for key, value in numbers.items()}
    request = Request(name, table, "paper", range(1))
    source = source_of(request)
    sizes = {of.row: source.sizes(key) for key, of in request.configurations.items()}
    claims = [claim for claim in table.claims.values() if claim.of == "score" and claim.origin == "paper"]
    (trend,) = (part for claim in claims for part in claim.parsed() if part.steps)
    effect = abs(sum(factor * numbers[row] for row, factor in trend.contrast(sizes).items()))
    for budget in budgets:
        margin = table.budget(budget).margin_of(trend).value
        assert margin == float(f"{effect / 2:.2g}"), (effect, margin)


@pytest.mark.parametrize("name", [name for name, table in LOADED.items() if table.published])
def test_every_row_finds_its_published_numbers(name):
    table = load(name)
    found = published.read(name, table.published.table, None)
    rows = [row.published for row in table.rows.values() if row.published]
    for budget in table.budgets:
        found.check(rows, table.printed_at(budget).metric)
    assert rows


@pytest.mark.parametrize("path", sorted(TABLES.glob("*/published.yaml")), ids=lambda path: path.parent.name)
def test_a_number_nobody_has_read_is_null(path):
    paper = checked(yaml.safe_load(path.read_text()), published.Paper, path.name)
    for table in paper.tables.values():
        values = [value for row in table.rows.values() for value in row.values()]
        assert (table.verification == "none") == all(value is None for value in values)


@pytest.mark.parametrize("name", [name for name in LOADED if name.split("/")[0] in PAPERS])
def test_what_was_read_of_a_claim_has_its_provenance(name):
    for key, claim in LOADED[name].claims.items():
        assert claim.published or claim.origin not in ("paper", "secondary sources"), key
        said = (claim.published or "").removeprefix("no timings were found").removeprefix("; ")
        assert not said or re.search(r"\b(primary|secondary|text only|derived)\)", said), key


def test_the_claim_on_dynamic_projections_varies_only_that_they_depend_on_the_input():
    table = load("shazeer2020/dynamic")
    (claim,) = table.claims.values()
    for part in claim.parsed():
        own, other = ({*table.rows[row].overrides.split()} for row in part.rows)
        assert own ^ other == {"variant=dynamic_talking_heads", "variant=talking_heads"}
