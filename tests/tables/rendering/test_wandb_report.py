"""What `attn table --wandb` sends to W&B, as far as it can be built without a login."""

from __future__ import annotations

import pytest

from experiments.failures.failure import Mistake
from experiments.record.mirrors import wandb_views as view
from experiments.tables.rendering import wandb_report as module
from experiments.tables.rendering.saved import save
from tests.tables.known import done, made

pytestmark = pytest.mark.usefixtures("heads_table")

pytest.importorskip("wandb_workspaces", reason="wandb-workspaces is not installed: pip install -e '.[dashboard]'")


class Api:
    default_entity = "someone"


class Library:
    Api = Api


def test_the_report_holds_every_table_that_the_runs_keep(tmp_path):
    save(made(), tmp_path)
    (tmp_path / "tables" / "another-nano.md").write_text("# Another\n")
    sent = module.build_report("someone", "attn", tmp_path)._to_model()
    texts = [block.content for block in sent.spec.blocks if block.type == "markdown-block"]
    assert [text.splitlines()[0] for text in texts] == ["# Another", "# More heads of less width"]
    assert "**C4, reversed.**" in texts[1] and "| h16 |" in texts[1]
    assert (sent.display_name, sent.project.name, sent.project.entity_name) == (module.TITLE, "attn", "someone")


def test_it_is_made_once_and_then_brought_up_to_date(tmp_path, monkeypatch):
    import wandb_workspaces.reports.v2 as wr

    saved, said = [], []
    theirs = wr.Report(project="attn", entity="someone", title="as they named it", blocks=[wr.P("old")])
    monkeypatch.setattr(view, "connect", lambda: Library)
    monkeypatch.setattr(module, "log_tables", lambda name, tables, logger, root: f"{name}: {', '.join(tables)}")
    monkeypatch.setattr(wr.Report, "save", lambda self: saved.append(self))
    monkeypatch.setattr(wr.Report, "url", property(lambda self: f"https://there/{self.title}"))
    monkeypatch.setattr(wr.Report, "from_url", classmethod(lambda cls, url: theirs))
    save(made(), tmp_path)
    module.mirror(made(), tmp_path, said.append)
    better = made({("h32", seed): done(3.0 + seed / 100) for seed in range(6)})
    save(better, tmp_path)
    module.mirror(better, tmp_path, said.append)
    first, second = saved
    assert first.title == module.TITLE and second is theirs
    assert "3.0250" in second.blocks[-1].text and "3.0250" not in first.blocks[-1].text
    logged = "table-me2026-heads-nano: table, claims"
    assert said == [
        logged, f"W&B report: https://there/{module.TITLE}", logged, "W&B report: https://there/as they named it"
    ]  # fmt: skip


def test_without_a_login_the_report_waits_and_a_line_says_so(tmp_path, monkeypatch):
    said = []

    def refuse():
        raise Mistake("nobody is logged in to W&B")

    monkeypatch.setattr(view, "connect", refuse)
    monkeypatch.setattr(module, "log_tables", lambda *_: "W&B offline: here")
    module.mirror(made(), tmp_path, said.append)
    later = "the report in W&B was not updated: nobody is logged in to W&B; --render-only --wandb does it later"
    assert said == ["W&B offline: here", later]


def test_an_entity_that_is_set_needs_a_login_too(monkeypatch):
    def refuse():
        raise Mistake("nobody is logged in to W&B")

    monkeypatch.setattr(view, "connect", refuse)
    with pytest.raises(Mistake, match="nobody is logged in"):
        view.owner("someone")
