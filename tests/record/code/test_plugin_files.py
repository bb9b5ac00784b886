from __future__ import annotations

import pytest

from experiments.record.code.plugin_files import lacking_plugin
from experiments.record.folder import RunFolder


@pytest.mark.parametrize(("plugins", "lacking"), [(["mine"], "attention/loud.py is added by plugins=mine"), ([], "")])
def test_only_a_run_with_plugins_lacks_one(tmp_path, settings, plugins, lacking):
    """Without plugins, a file that is no longer there was one of the project's own, under an earlier name."""
    folder = RunFolder(tmp_path / "run")
    with folder:
        folder.create(settings)
        folder.write_environment(
            {"plugins": plugins, "code": {"attention/loud.py": "0", "attention/multi_head.py": "0"}}
        )
    assert lacking_plugin(folder) == lacking
