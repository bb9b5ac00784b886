"""`plugins=FOLDER`: what a folder outside of the project adds is trained, swept, tabled and evaluated."""

from __future__ import annotations

import json
import re
import shutil
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

import experiments
from experiments.config.compose import compose
from experiments.failures.failure import Mistake
from experiments.formats.custom_model import copy_code
from experiments.model.architectures import encoder
from experiments.objectives.kinds.masked import Masked
from experiments.record.code import digests
from experiments.record.code.digests import code_digests
from experiments.record.code.source import module_source
from experiments.settings import conf_files, plugins
from experiments.tasks.pretraining import Pretraining
from tests.fixtures.finetuning import FINE_TUNING, labelled, write_lines
from tests.fixtures.plugins import FILES, LOUD, write_files
from tests.fixtures.tiny import TINY

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
KINDS = re.compile(r"`([\w/]+/(?:skip|commented)\.(?:py|yaml))`\n\n```\w+\n(.*?)```", re.DOTALL)
# modules of the user's, each in a way that Python can import it
OWN = (
    "halls/__init__.py", "halls/large.py", "halls/large/__init__.py", "halls/old.pyc",
    f"halls/fast{EXTENSION_SUFFIXES[0]}", "scripts/__init__.py", "scripts/echo.py",
    "colorsys.py",
)  # fmt: skip
SMALL = ["hidden_size=24", "heads=2", "layers=1", "length=16"]
QUIET = """
from experiments.model.architectures import encoder


class Architecture(encoder.Architecture):
    quiet = True
"""
SHORT = ["max_steps=2", "heads=2", "trainer.log_every=1"]


@pytest.fixture
def short(tiny: list[str]) -> list[str]:
    return [*(word for word in tiny if not word.startswith(("max_steps", "trainer.log_every"))), *SHORT]


def results(runs: Path) -> dict[str, dict]:
    return {path.parent.name: json.loads(path.read_text()) for path in runs.glob("*/result.json")}


def test_a_run_is_evaluated_only_with_the_folder_that_it_was_made_with(attn, loud, short, tmp_path, monkeypatch):
    done = attn("train", f"plugins={loud}", "variant=loud", *short)
    assert done.returncode == 0, done.stderr
    ((name, result),) = results(tmp_path / "runs").items()
    assert result["config"]["variant"]["gain"] == 2.0
    code = json.loads((tmp_path / "runs" / name / "environment.json").read_text())["code"]
    assert {"attention/loud.py", "attention/loudness.py", "attention/multi_head.py"} <= code.keys()

    with monkeypatch.context() as without:
        without.setattr(plugins, "_code", [])
        without.setattr(conf_files, "_added", [])
        refused = attn("evaluate", "loud")
        compared = attn("compare")
    assert refused.returncode == 2
    assert f"{name}: attention/loud.py is added by plugins={loud}\n" in refused.stderr
    assert f"{name} of 1 runs; attention/loud.py is added by plugins={loud}\n" in compared.stderr
    again = attn("evaluate", "loud", f"plugins={loud}", "--format", "json")
    assert json.loads(again.stdout)[0]["loss"] == pytest.approx(result["validation_loss"], abs=1e-4)

    pytest.importorskip("transformers")
    exported = attn("export", "loud", "there", f"plugins={loud}", "--format", "transformers-custom")
    assert exported.returncode == 0, exported.stderr
    for file in ("attention/loud.py", "attention/loudness.py"):
        assert (tmp_path / "there" / "source" / file).read_bytes() == (loud / file).read_bytes()


def test_a_run_is_fine_tuned_with_the_folder_that_it_was_made_with(attn, loud, short, tmp_path, monkeypatch):
    assert attn("train", f"plugins={loud}", "variant=loud", *short).returncode == 0
    ((pretrained, _),) = results(tmp_path / "runs").items()
    examples = (
        f"task.{part}={write_lines(tmp_path / f'{part}.jsonl', labelled(24, seed))}"
        for seed, part in enumerate(("train", "validation"))
    )
    tune = ["finetune", f"runs/{pretrained}", "task=sst2", *examples, *FINE_TUNING]
    tune += ["max_steps=2", "batch_size=8", "runs=tuned"]

    def without_a_folder(*words):
        with monkeypatch.context() as without:
            without.setattr(plugins, "_code", [])
            without.setattr(conf_files, "_added", [])
            done = attn(*words)
        assert done.returncode == 2 and not (tmp_path / "tuned").exists()
        return done.stderr

    assert f"{pretrained}: attention/loud.py is added by plugins={loud}\n" in without_a_folder(*tune)
    other = write_files(tmp_path / "other", FILES | {"attention/loudness.py": "def louder(x, gain):\n    return x\n"})
    changed = without_a_folder(*tune, f"plugins={other}")
    assert f"{pretrained}: attention/loudness.py has changed since the run, which had plugins={loud}\n" in changed
    assert "  give the plugins=FOLDER that it was made with, unchanged\n" in changed
    done = attn(*tune, f"plugins={other}/../{loud.name}")
    assert done.returncode == 0, done.stderr
    ((name, result),) = results(tmp_path / "tuned").items()
    assert result["config"]["variant"]["gain"] == 2.0 and "accuracy" in result["scores"]
    facts = json.loads((tmp_path / "tuned" / name / "environment.json").read_text())
    assert "attention/loudness.py" in facts["code"] and facts["plugins"] == [str(loud)]


def test_a_file_that_an_added_one_imports_is_a_part_of_the_run(loud, short):
    plugins.add([f"plugins={loud}"])
    before = code_digests(compose([*short, "variant=loud"]).model_dump(), "reference")
    changed = {"attention/loudness.py": "def louder(x, gain):\n    return x + gain\n"}
    other = write_files(loud.parent / "other", FILES | changed)
    plugins._code[:] = [other]
    now = code_digests(compose([*short, "variant=loud"]).model_dump(), "reference")
    assert {name for name in now if before[name] != now[name]} == {"attention/loudness.py"}


def test_the_users_own_modules_that_an_added_file_imports_count_too(attn, loud, short, tmp_path, monkeypatch):
    """but not those of Python and of installed packages"""
    files = {
        "attention/loudness.py": "import json, numpy\nfrom acoustics.gains import by\nfrom .echo import louder\n",
        "attention/echo.py": "import acoustics as of\n\ndef louder(x, gain):\n    return of.gains.by(x, gain)\n",
    }
    write_files(loud, files)
    write_files(
        tmp_path / "own",
        {
            "acoustics/__init__.py": "",
            "acoustics/gains.py": "from . import rooms\n\ndef by(x, gain):\n    return gain * x\n",
            "acoustics/rooms.py": "SIZE = 1\n",
            "acoustics/unused.py": "SIZE = 1\n",
        },
    )
    monkeypatch.syspath_prepend(str(tmp_path / "own"))
    words = ["train", f"plugins={loud}", "variant=loud", *short]
    done = attn(*words)
    assert done.returncode == 0, done.stderr
    ((name, _),) = results(tmp_path / "runs").items()
    code = json.loads((tmp_path / "runs" / name / "environment.json").read_text())["code"]
    own = {file for file in code if (loud / file).is_file() or "acoustics" in file}
    added = {"attention/loud.py", *files}
    assert own == added | {"acoustics/__init__.py", "acoustics/gains.py", "acoustics/rooms.py"}
    assert {file for file in code if not (ROOT / file).is_file() and file.endswith(".py")} == own
    if find_spec("transformers"):
        exported = attn("export", "loud", "there", f"plugins={loud}", "--format", "transformers-custom")
        assert exported.returncode == 0, exported.stderr
        assert all((tmp_path / "there" / "source" / file).is_file() for file in own)
    write_files(tmp_path / "own", {"acoustics/rooms.py": "SIZE = 2\n"})
    module_source.cache_clear()
    digests._digests.cache_clear()
    again, evaluated = attn(*words), attn("evaluate", "loud", f"plugins={loud}")
    assert again.returncode == evaluated.returncode == 2
    assert "the code (acoustics/rooms.py)" in again.stderr
    assert f"{name}: acoustics/rooms.py has changed since the run, which had plugins={loud}\n" in evaluated.stderr


def test_an_architecture_is_built_counted_and_exported(unplugged, tmp_path, monkeypatch):
    monkeypatch.setattr(Masked, "architecture", "quiet_encoder")
    file = "experiments/model/architectures/quiet_encoder.py"
    folder = write_files(tmp_path / "mine", {file: QUIET})
    plugins.add([f"plugins={folder}"])
    settings = compose([*SMALL, "objective=masked"])
    model = Pretraining(settings).build_initialized_model(23)
    assert isinstance(model, encoder.Architecture) and model.quiet
    assert file in code_digests(settings.model_dump(), None)
    (tmp_path / "there").mkdir()
    copy_code(tmp_path / "there", settings)
    assert (tmp_path / "there" / "source" / file).read_text(encoding="utf-8") == QUIET


@pytest.mark.parametrize(
    ("imported", "file"),
    [
        ("halls.large", "halls/large/__init__.py"),  # Python prefers a package to a module of the same name
        ("halls.old", "halls/old.pyc"),
        ("halls.fast", f"halls/fast{EXTENSION_SUFFIXES[0]}"),
        ("packed", "rooms.zip"),
        ("colorsys", "colorsys.py"),  # although Python has a module of this name
        ("scripts.echo", "scripts/echo.py"),  # although the project has a folder with this name
        ("long", "long.py"),
        ("broken", "broken.py"),
    ],
)
def test_each_file_counts_that_python_would_import(imported, file, loud, tmp_path, monkeypatch):
    own = write_files(tmp_path / "own", dict.fromkeys(OWN, "SIZE = 1\n"))
    write_files(own, {"long.py": f"SIZE = {'+'.join('1' * 1500)}\n", "broken.py": "def (\n"})
    with ZipFile(own / "rooms.zip", "w") as archive:
        archive.writestr("packed.py", "SIZE = 1\n")
    for module in [name for name in sys.modules if name.partition(".")[0] in ("scripts", "colorsys")]:
        monkeypatch.delitem(sys.modules, module)
    write_files(loud, {"attention/loudness.py": f"import {imported}\n"})
    monkeypatch.syspath_prepend(str(own))
    monkeypatch.syspath_prepend(str(own / "rooms.zip"))
    plugins.add([f"plugins={loud}"])
    before = digests.added_digests()
    if file == "rooms.zip":
        with ZipFile(own / file, "a") as archive:
            archive.writestr("more.py", "")
    else:
        (own / file).write_bytes(b"SIZE = 2\n")
    module_source.cache_clear()
    assert digests.added_digests() != before


def test_modules_that_the_copy_in_an_export_could_not_replace_are_refused(loud, tmp_path, monkeypatch):
    own = tmp_path / "own"
    write_files(own, {"colorsys.py": "SIZE = 1\n"})
    with ZipFile(own / "rooms.zip", "w") as archive:
        archive.writestr("packed.py", "SIZE = 1\n")
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    for folder in (own, own / "rooms.zip"):
        monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr("experiments.formats.custom_model.PACKAGES", ())
    plugins.add([f"plugins={loud}"])
    for module, reason in (("packed", "is in an archive"), ("colorsys", "has the name of a module of Python")):
        write_files(loud, {"attention/loudness.py": f"import {module}\n"})
        module_source.cache_clear()
        digests._digests.cache_clear()
        (tmp_path / "there").mkdir()
        with pytest.raises(Mistake, match=rf"{own}/.*: {module}, which the model needs, {reason}"):
            copy_code(tmp_path / "there", compose(["variant=loud"]))
        shutil.rmtree(tmp_path / "there")


def test_the_page_of_a_table_names_the_folder_in_its_command(attn, loud):
    page = attn("table", "me2026/loud", f"plugins={loud}", "--render-only").stdout
    assert f"command: attn table me2026/loud --budget nano plugins={loud.name}\n" in page


@pytest.mark.campaign
@pytest.mark.usefixtures("short_timings")
def test_a_sweep_a_table_and_the_list_of_variants_have_it(attn, loud, short, tmp_path):
    listed = attn("variants", f"plugins={loud}")
    assert "multiplied by a gain" in listed.stdout
    swept = attn("train", "-m", f"plugins={loud}", "variant=loud,multi_head", "runs=swept", *short)
    assert swept.returncode == 0, swept.stderr
    found = results(tmp_path / "swept")
    assert sorted(result["config"]["variant"]["name"] for result in found.values()) == ["loud", "multi_head"]
    assert "me2026/loud" in attn("table", f"plugins={loud}").stdout
    made = attn("table", "me2026/loud", f"plugins={loud}", "--seeds", "1", *short)
    assert made.returncode == 0, made.stderr
    assert len(results(tmp_path / "runs")) == 2 and "Loud heads are better" in made.stdout


def test_a_variant_that_is_broken_hides_no_other_in_the_list(attn, loud):
    broken = "    def cost(self, queries, memory):\n        raise NotImplementedError\n\n    def combine"
    (loud / "attention/loud.py").write_text(LOUD.replace("    def combine", broken))
    listed = attn("variants", f"plugins={loud}")
    assert listed.returncode == 0 and "left out: loud: NotImplementedError\n" in listed.stderr
    assert "\nmulti_head " in listed.stdout


def test_a_program_uses_a_folder_too(loud, short, tmp_path, monkeypatch, in_process):
    monkeypatch.chdir(tmp_path)
    assert experiments.train([f"plugins={loud}", "variant=loud", *short]).status == "done"
    experiments.use_plugins(loud)
    assert experiments.train(["variant=loud", *short]).status == "done"
    model, _, settings = experiments.load("loud")
    assert settings.variant["gain"] == model.layers[0].attention.gain == 2.0


def test_an_error_in_an_added_file_names_it(attn, loud, short):
    (loud / "attention/loud.py").write_text(LOUD.replace("import loudness", "import softness as loudness"))
    with pytest.raises(ImportError) as caught:
        attn("train", f"plugins={loud}", "variant=loud", *short)
    from experiments.processes.bug_report import bug_report

    assert f"the error is in {loud}/attention/loud.py" in bug_report(caught.value)


@pytest.mark.campaign
def test_cells_of_a_kind_that_a_folder_adds_are_forked(shell, loud, text_file, tmp_path):
    """An objective and a kind of data, which are listed when the settings are imported."""
    write_files(loud, dict(KINDS.findall(PAGE)))
    (tmp_path / "remarks.txt").write_text(text_file.read_text().replace("\n\n", "\n# a remark\n"))
    words = [word for word in TINY if not word.startswith(("max_steps", "trainer.log_every"))]
    kinds = ["variant=loud", "objective=skip", "data=commented", "data.train=remarks.txt"]
    done = shell("train", "-m", f"plugins={loud}", "seed=0,1", *kinds, *words, *SHORT)
    assert done.returncode == 0, done.output
    found = results(tmp_path / "runs").values()
    assert len(found) == 2
    assert all(result["corpus"]["code"] and result["config"]["objective"]["kind"] == "skip" for result in found)


@pytest.mark.campaign
def test_jobs_of_a_launcher_are_told_of_the_folder(shell, loud, text_file, tmp_path):
    write_files(loud, dict(KINDS.findall(PAGE)))
    words = [word for word in TINY if not word.startswith(("max_steps", "trainer.log_every"))]
    kinds = ["variant=loud", "objective=skip", "data=text", f"data.train={text_file}"]
    done = shell("train", "-m", f"plugins={loud}", "hydra/launcher=joblib", "seed=0", *kinds, *words, *SHORT)
    assert done.returncode == 0 and len(results(tmp_path / "runs")) == 1, done.output
