"""The W&B workspace as far as it can be built without a login."""

from __future__ import annotations

import json

import pytest

from experiments.dashboard.runs import chosen_runs
from experiments.failures.failure import Mistake
from experiments.record.mirrors import wandb_views as view
from experiments.results.index import Index

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
        made = workspace(
            "someone", "attn", list(words), tmp_path / "runs", results, {"Heads": [], "Notes": ["*a*"]}
        )._to_model()
        return json.loads(made.model_dump_json(by_alias=True, exclude_none=True))

    return build


def test_it_has_the_panels_of_the_page_grouped_so_that_a_group_is_its_seeds(model):
    built = model()
    assert (built["entity"], built["project"]) == ("someone", "attn")
    section = built["spec"]["section"]
    sections = {each["name"]: each["panels"] for each in section["panelBankConfig"]["sections"]}
    assert [panel["config"]["value"] for panel in sections.pop("Notes")] == ["*a*"] and "Heads" not in sections
    panels = [panel for each in sections.values() for panel in each]
    drawn = {}
    for panel in panels:
        config = panel["config"]
        drawn.setdefault(config.get("xAxis"), []).extend(config.get("metrics", [config.get("yAxis")]))
    curves = ["validation_loss", "validation_perplexity", "loss", "perplexity"]
    assert drawn == {
        "tokens": curves, "step": curves, "wall_seconds": curves,
        "summary:tokens_per_second": ["summary:perplexity"], "summary:peak_memory_bytes": ["summary:perplexity"],
        "config:heads.value": ["summary:validation_loss"], None: [None],
    }  # fmt: skip
    axes = [column["accessor"] for column in panels[-1]["config"]["columns"]]
    assert axes[:2] == ["config:variant.value.name", "config:heads.value"] and "summary:validation_loss" in axes
    (runs,) = section["runSets"]
    grouping = [key["name"] for key in runs["grouping"]]
    assert grouping == ["variant.value.name", "heads.value"]
    assert panels[0]["config"]["groupAgg"] == "mean" and panels[0]["config"]["groupArea"] == "minmax"


def test_words_become_filters_with_the_types_of_the_runs(model):
    (runs,) = model("variant=talking_heads", "heads=12,24", "b0")["spec"]["section"]["runSets"]
    filters = {each["key"]["name"]: each["value"] for each in runs["filters"]["filters"]}
    assert filters.pop("heads") == [24]
    assert sorted(filters.values()) == [["b0"], ["talking_heads"]]


def test_it_is_made_once_and_then_updated(make, measured, tmp_path, monkeypatch, capsys):
    import wandb_workspaces.workspaces as ws

    from experiments.dashboard import workspace as module

    saved = []
    monkeypatch.setattr(view, "owner", lambda entity: entity or "someone")
    monkeypatch.setattr(ws.Workspace, "save", lambda self: saved.append(self))
    monkeypatch.setattr(ws.Workspace, "url", property(lambda self: f"https://there/{self.name}"))
    theirs = ws.Workspace(entity="someone", project="attn", name="kept")
    monkeypatch.setattr(ws.Workspace, "from_url", classmethod(lambda cls, url: theirs))
    make("a")
    module.save_workspace([], tmp_path / "runs")
    measured(make("b", heads=24))
    (tmp_path / "runs" / "tables").mkdir()
    (tmp_path / "runs" / "tables" / "a-nano.md").write_text("# A table\n")
    module.save_workspace([], tmp_path / "runs")
    made, updated = saved
    assert made.name == module.VIEW_NAME and updated is theirs
    names = ["Learning curves", "Speed and memory", "Settings"]
    assert [section.name for section in made.sections] == names
    assert [section.name for section in updated.sections] == [*names, "Papers' tables and claims", "Heads"]
    table, heads = (section.panels[0].markdown for section in updated.sections[-2:])
    assert table == "# A table\n"
    assert heads.startswith("### b\n") and "| 2 | 1 | r21 | 2.1000 | 0.5000 |" in heads
    assert [key.name for key in updated.runset_settings.groupby] == ["heads"]
    assert (
        capsys.readouterr().out == f"someone/attn: https://there/{module.VIEW_NAME}\nsomeone/attn: https://there/kept\n"
    )
    module.save_workspace([], tmp_path / "runs", "team/other")
    assert capsys.readouterr().out == f"team/other: https://there/{module.VIEW_NAME}\n"


def test_heads_of_the_softmax_and_of_the_values_may_differ_in_number():
    from experiments.dashboard.workspace import head_tables

    numbers = {"roles": [["broad", "mixed"]], "measures": {"entropy": [[1.0, 2.0]], "gradient": [[0.5]]}}
    first, *_, last, other = head_tables("run", {"encoder": numbers, "cross": numbers}).splitlines()
    assert first == "### run, encoder" and "### run, cross" in head_tables("run", {"cross": numbers})
    assert [last, other] == ["| 1 | 1 | broad | 1.0000 | 0.5000 |", "| 1 | 2 | mixed | 2.0000 | - |"]
    assert head_tables("run", {"": numbers}).startswith("### run\n")
    # without a softmax
    numbers = {"roles": [], "measures": {"gradient": [[0.5]]}}
    assert head_tables("run", {"": numbers}).splitlines()[-1] == "| 1 | 1 | 0.5000 |"


def test_a_server_that_refuses_is_told_in_a_line(make, tmp_path, monkeypatch):
    import wandb_workspaces.workspaces as ws

    from experiments.dashboard import workspace as module

    def refuse(self):
        raise RuntimeError("permission\ndenied")

    monkeypatch.setattr(view, "owner", lambda entity: entity or "someone")
    monkeypatch.setattr(ws.Workspace, "save", refuse)
    make("a")
    with pytest.raises(Mistake, match="the workspace of someone/attn was not saved: permission denied"):
        module.save_workspace([], tmp_path / "runs")


def test_without_a_login_it_says_so_in_a_line(make, attn):
    make("a")
    done = attn("dashboard", "--wandb")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("attn dashboard: nobody is logged in to W&B")
    assert done.stderr.count("\n") == 1
