"""The W&B workspace as far as it can be built without a login."""

from __future__ import annotations

import json

import pytest

from experiments.dashboard.runs import chosen_runs
from experiments.record.index import Index

pytest.importorskip("wandb_workspaces", reason="wandb-workspaces is not installed: pip install -e '.[dashboard]'")


@pytest.fixture
def model(make, tmp_path):
    """model(*words): what would be sent to W&B."""
    for seed in (0, 1):
        make(f"a{seed}", seed=seed)
        make(f"b{seed}", seed=seed, variant="talking_heads", heads=24)
        make(f"c{seed}", seed=seed, variant="talking_heads", heads=12)

    def build(*words):
        from experiments.dashboard.workspace import workspace

        with Index(tmp_path / "runs") as index:
            results = chosen_runs(list(words), tmp_path / "runs", index)
        made = workspace("someone", "attn", list(words), results)._to_model()
        return json.loads(made.model_dump_json(by_alias=True, exclude_none=True))

    return build


def test_it_has_the_panels_of_the_page_grouped_so_that_a_group_is_its_seeds(model):
    built = model()
    assert (built["entity"], built["project"]) == ("someone", "attn")
    section = built["spec"]["section"]
    panels = [panel for each in section["panelBankConfig"]["sections"] for panel in each["panels"]]
    drawn = {}
    for panel in panels:
        config = panel["config"]
        drawn.setdefault(config.get("xAxis"), []).extend(config.get("metrics", [config.get("yAxis")]))
    curves = ["validation_loss", "validation_perplexity"]
    assert drawn == {
        "tokens": curves, "step": curves, "wall_seconds": curves,
        "summary:tokens_per_second": ["summary:perplexity"], "summary:peak_memory_bytes": ["summary:perplexity"],
        "config:heads.value": ["summary:validation_loss"], None: [None],
    }  # fmt: skip
    axes = [column["accessor"] for column in panels[-1]["config"]["columns"]]
    assert axes[:2] == ["config:variant.value.name", "config:heads.value"] and "summary:validation_loss" in axes
    (runs,) = section["runSets"]
    grouping = [key["name"] for key in runs["grouping"]]
    assert grouping[:2] == ["variant.value.name", "heads.value"] and "seed.value" not in grouping
    assert panels[0]["config"]["groupAgg"] == "mean" and panels[0]["config"]["groupArea"] == "minmax"


def test_words_become_filters_with_the_types_of_the_runs(model):
    (runs,) = model("variant=talking_heads", "heads=12,24", "b0")["spec"]["section"]["runSets"]
    filters = {each["key"]["name"]: each["value"] for each in runs["filters"]["filters"]}
    assert filters.pop("heads") == [24]
    assert sorted(filters.values()) == [["b0"], ["talking_heads"]]


def test_without_a_login_it_says_so_in_a_line(make, attn):
    make("a")
    done = attn("dashboard", "--wandb")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("attn dashboard: no workspace was saved, as nobody is logged in to W&B")
