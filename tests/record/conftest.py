"""The folder of a run that has begun."""

from __future__ import annotations

import pytest

from experiments.record.folder import RunFolder, run_name


@pytest.fixture
def folder(settings, tmp_path):
    with RunFolder(tmp_path / "runs" / run_name(settings)) as folder:
        folder.create(settings)
        yield folder
