"""The files that messages about wrong settings name."""

from __future__ import annotations

import pytest

from experiments.config.compose import compose
from experiments.config.compose_many import Composer
from experiments.failures.failure import Mistake
from experiments.settings import plugins
from experiments.settings.conf_files import CONF
from tests.fixtures.plugins import write_files

MULTI_HEAD = (
    (CONF / "variant/multi_head.yaml").read_text().replace("name: multi_head", "name: mine\nmodule: multi_head")
)
DERIVED = "defaults: [talking_heads]\nname: mine\nmodule: talking_heads\n"
OVERLAY = "# @package _global_\n"


@pytest.mark.usefixtures("unplugged")
@pytest.mark.parametrize("composed", [compose, lambda words: Composer().compose(words)], ids=["one", "many"])
@pytest.mark.parametrize(
    ("file", "text", "words", "said"),
    [
        (
            "variant/mine.yaml", MULTI_HEAD + "dropuot: 0.1\n", ["variant=mine"],
            "{}: there is no setting 'variant.dropuot' (did you mean dropout?)",
        ),
        (
            "variant/mine.yaml", DERIVED + "sttart: identity\n", ["variant=mine"],
            "{}: there is no setting 'variant.sttart' (did you mean start?)",
        ),
        (
            "variant/mine.yaml", MULTI_HEAD.replace("memory_size:", "# "), ["variant=mine"],
            "{}: variant.memory_size is missing",
        ),
        (
            "experiment/mine.yaml", OVERLAY + "trainer: {evaluate_evry: 5}\n", ["experiment=mine"],
            "{}: there is no setting 'trainer.evaluate_evry' (did you mean evaluate_every?)",
        ),
        (
            "experiment/mine.yaml", OVERLAY + "hedas: 5\nseed: -1\n", ["experiment=mine", "heads=abc"],
            "heads = 'abc': must be a whole number\n{0}: seed = -1: must be at least 0\n"
            "{0}: there is no setting 'hedas' (did you mean heads?)",
        ),
        ("experiment/mine.yaml", OVERLAY + "seed: -1\n", ["experiment=mine", "seed=-2"], "seed = -2: must be"),
        ("data/mine.yaml", "documents: row\n", ["data=mine"], "{}: data.kind is missing"),
        ("optimizer/mine.yaml", "kind: sgd\n", ["optimizer=mine"], "{}: optimizer.kind = 'sgd': must be one of"),
    ],
)  # fmt: skip
def test_a_wrong_setting_of_a_file_is_named_with_the_file(tmp_path, composed, file, text, words, said):
    folder = write_files(tmp_path, {file: text})
    plugins.add([f"--config-dir={folder}"])
    with pytest.raises(Mistake) as caught:
        composed(words)
    assert str(caught.value).startswith(said.format(folder / file))
