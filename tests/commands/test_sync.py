from __future__ import annotations

from experiments.commands import sync as command
from experiments.failures.exit_code import ExitCode


def test_a_run_that_lost_its_settings_is_named_too(tmp_path, monkeypatch):
    for name in ("a/config.yaml", "b/result.json", "c/config.yaml", "c/result.json", "wandb/latest", "tables/t.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    asked = []
    monkeypatch.setattr(command, "sync", lambda folders, *_, **__: asked.extend(each.name for each in folders) or 1)
    assert command.sync_runs([], tmp_path, "attn") is ExitCode.FAILED
    assert asked == ["a", "b", "c"]
