import subprocess
import sys

import pytest

from experiments.config.compose import compose
from experiments.tables.sources import row_sizes as module
from experiments.tables.sources.row_sizes import row_sizes

OTHERS = ["heads=12", "variant=talking_heads", "length=32", "layers=2", "key_size=8"]


@pytest.fixture
def composed(tmp_path):
    return lambda *overrides: compose([f"cache={tmp_path}", *overrides])


def test_the_sizes_are_those_of_the_layer(composed):
    sizes = row_sizes(composed("variant=talking_heads", "variant.key_heads=3", "hidden_size=48", "length=16"))
    assert (sizes["h_k"], sizes["h"], sizes["h_v"], sizes["d_k"]) == (3, 6, 6, 8)
    # P_l and P_w, and 16 x 16 products with each
    assert sizes["multiplies"] == 16 * 48 * (2 * 24 + 2 * 48) + 16 * 16 * (24 + 48 + 3 * 6 + 6 * 6)


@pytest.mark.parametrize("override", OTHERS)
def test_other_settings_have_other_sizes(composed, override):
    before = row_sizes(composed())
    assert row_sizes(composed(override)) != before == row_sizes(composed())


def test_other_code_has_its_own(composed, monkeypatch):
    before = row_sizes(composed())
    monkeypatch.setattr(module, "code_digest", lambda settings, backend: "other")
    monkeypatch.setattr(module, "_computed", lambda settings: {"h": 99})
    assert row_sizes(composed()) == {"h": 99}
    monkeypatch.undo()
    assert row_sizes(composed()) == before


def test_the_second_process_does_without_torch(composed, tmp_path):
    row_sizes(composed())
    code = (
        "import sys; from experiments.config.compose import compose; from experiments.tables.sources import row_sizes; "
        f"print(row_sizes.row_sizes(compose(['cache={tmp_path}']))['h'], 'torch' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert shown.stdout.split() == ["6", "False"]
