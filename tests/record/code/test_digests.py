from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from attention.kernels import kernel_modules
from experiments.config.compose import compose
from experiments.record.code import digests as module
from experiments.record.code.digests import DECIDING, code_digests, differing
from experiments.record.code.source import module_source
from experiments.record.dotted import value_at
from experiments.settings.norm import NORM_KINDS
from experiments.settings.position import POSITION_KINDS
from experiments.training.set_up import prepare_process
from experiments.training.step.world import ALONE

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def gated():
    return compose(["variant=gated"]).model_dump()


@pytest.fixture
def edited(tmp_path, gated):
    """edited(path, before, after): the digests of a copy of the project in which one text is another."""

    def digests(path: str, before: str, after: str) -> dict[str, str]:
        for room in ("attention", "experiments"):
            shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__", "assets"))
        text = (tmp_path / path).read_text(encoding="utf-8")
        assert before in text
        (tmp_path / path).write_text(text.replace(before, after, 1), encoding="utf-8")
        return code_digests(gated, "compiled", root=tmp_path)

    return digests


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("attention/multi_head.py", "class Attention", "class Attentions"),  # the base class of gated
        ("attention/layers/attend.py", "def attend", "def attends"),
        ("attention/kernels/compiled/attend.cpp", "{", "{;"),
        ("experiments/objectives/kinds/masked.py", "class Masked", "class Masks"),
        ("experiments/objectives/loss.py", "def ", "def a_"),
        ("experiments/model/architectures/encoder.py", "def ", "def a_"),
        ("experiments/model/layers/norm.py", "def ", "def a_"),
        ("experiments/data/batches.py", "def ", "def a_"),
        ("experiments/training/step/optimizers/kinds/muon.py", "3.4445", "3.4446"),
        ("experiments/training/step/optimizers/parameter_groups.py", "(parameter, 1.0)", "(parameter, 1.1)"),
        ("experiments/training/step/schedule.py", "1 - done", "1 + done"),
        ("experiments/training/step/learner.py", "step - 1", "step - 2"),
        ("experiments/training/step/micro_batches.py", "micro_batch == 1", "micro_batch == 2"),
        ("experiments/training/run_length.py", "min(", "max("),
        ("experiments/training/evaluate.py", "1 << 12", "1 << 13"),
        ("experiments/measure/quality.py", "def ", "def a_"),
        ("experiments/data/packing.py", "FORMAT = ", "FORMAT = 9"),
    ],
)
def test_a_change_of_anything_that_a_run_computes_with_changes_its_file(gated, edited, path, before, after):
    now, changed = code_digests(gated, "compiled"), edited(path, before, after)
    assert {name for name in now if now[name] != changed[name]} == {path}
    assert differing(now, changed) == f"the code ({path})"


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("attention/multi_head.py", "\nclass Attention", "\n# a comment\n\nclass Attention"),
        ("attention/multi_head.py", '"""', '"""Another docstring. '),
        ("attention/kernels/compiled/attend.cpp", "\n", "\n// a comment\n"),
        ("attention/talking_heads.py", "class Attention", "class Attentions"),
        ("attention/kernels/blocked.py", "def attend", "def attends"),
        ("experiments/model/architectures/two_stream_encoder.py", "def ", "def a_"),
        ("experiments/training/decoding/beam.py", "def ", "def a_"),
    ],
)
def test_comments_other_variants_and_kernels_that_did_not_run_change_nothing(gated, edited, path, before, after):
    assert edited(path, before, after) == code_digests(gated, "compiled")


def test_the_kernels_are_those_that_ran(gated):
    ran = {backend: code_digests(gated, backend) for backend in ("sdpa", "blocked+compiled", None)}
    files = {module.replace(".", "/") + ".py": name for name, module in kernel_modules().items()}
    kernels = {backend: {files[name] for name in digests.keys() & files.keys()} for backend, digests in ran.items()}
    assert kernels == {"sdpa": {"sdpa"}, "blocked+compiled": {"blocked", "compiled"}, None: set()}


@pytest.mark.parametrize(
    ("backend", "folders"),
    [
        ("compiled", ["compiled"]),
        ("cuda", ["cuda"]),
        ("compiled+cuda", ["compiled", "cuda"]),
        ("blocked", []),
        (None, []),
    ],
)
def test_the_sources_of_a_compiled_kernel_count_where_it_ran(gated, backend, folders):
    files = (path for folder in folders for path in (ROOT / "attention" / "kernels" / folder).glob("*.*"))
    found = {name for name in code_digests(gated, backend) if not name.partition(":")[0].endswith(".py")}
    assert found == {path.relative_to(ROOT).as_posix() for path in files if path.suffix != ".py"}


def test_it_imports_nothing_heavy_and_is_quick_from_the_second_cell_on(gated):
    code = "import sys, experiments.record.code.digests\nprint('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False\n"
    code_digests(gated, "compiled")
    began = time.process_time()
    for _ in range(20):
        code_digests(gated, "compiled")
    assert time.process_time() - began < 20 * 0.001


def test_a_fine_tuned_run_computes_with_its_head_and_its_task_too(gated):
    finetuned = code_digests(gated | {"task": {"kind": "span"}}, "compiled")
    names = ("objective", "weights", "kinds/span", "kind", "answers", "squad", "cmrc")
    task = {f"experiments/tasks/finetuning/{name}.py" for name in names}
    head = {"experiments/model/finetuned_encoder.py"}
    assert finetuned.keys() - code_digests(gated, "compiled").keys() == task | head


@pytest.mark.parametrize("kind", ["span", "classification", "regression"])
def test_what_a_task_computes_with_counts_or_makes_windows_which_have_a_version(gated, kind):
    room = "experiments/tasks/finetuning"
    assert (ROOT / room / "kinds" / f"{kind}.py").is_file() and len([*(ROOT / room / "kinds").glob("[a-z]*.py")]) == 3
    covered = {name for name in code_digests(gated | {"task": {"kind": kind}}, None) if name.startswith(f"{room}/")}
    modules = [module_source(ROOT / name) for name in covered if ":" not in name]
    names = {name for each in modules for name in each.imported_names(room.replace("/", "."))}
    files = {f"{room}/{name.split('.')[3]}.py" for name in names if name.startswith(f"{room.replace('/', '.')}.")}
    assert files - covered <= {
        f"{room}/{name}.py" for name in ("rows", "windows", "kinds", "task", "examples", "features")
    }


def test_only_the_optimizer_that_trains_counts_and_none_for_a_run_that_is_imported(gated):
    muon, evaluation = "experiments/training/step/optimizers/kinds/muon.py", "experiments/training/evaluate.py"
    adamw = code_digests(gated | {"optimizer": {"kind": "adamw"}}, None)
    assert code_digests(gated, None).keys() - adamw.keys() == {muon}
    assert not {muon, evaluation} & code_digests(gated, None, trained=False).keys()


def test_the_decoding_counts_for_an_objective_that_generates_texts(gated):
    decoding = {f"experiments/training/decoding/{name}.py" for name in ("beam", "texts")}
    translating = code_digests(gated | {"objective": {"kind": "translation"}}, None)
    assert decoding <= translating.keys()
    assert not decoding & code_digests(gated, None).keys()


@pytest.mark.parametrize(
    "words", [["variant=gated"], ["variant=logits_only", "model.position=rotary"], ["optimizer=adamw"]]
)
@pytest.mark.parametrize("more", [{}, {"task": {"name": "squad", "kind": "span"}}])
def test_the_settings_that_decide_are_all_that_count(words, more):
    settings = compose(words).model_dump() | more
    part: dict = {}
    for name in DECIDING:
        group, _, key = name.partition(".")
        if (value := value_at(settings, name)) is not None:
            part.setdefault(group, {})[key] = value
    assert code_digests(part, "compiled") == code_digests(settings, "compiled")


def test_a_run_has_the_same_digests_whichever_others_were_asked_for_before(gated):
    before = code_digests(gated, None)
    relative = gated | {"model": gated["model"] | {"position": "relative"}}
    assert code_digests(relative, "compiled") != before
    assert code_digests(gated, None) == before


def test_of_the_tables_of_norms_and_positions_the_lines_of_the_model_count(gated, monkeypatch):
    before = code_digests(gated, None)
    monkeypatch.setitem(NORM_KINDS, "rms", NORM_KINDS["rms"]._replace(name="AnotherNorm"))
    assert code_digests(gated, None) == before
    norm, position = gated["model"]["norm_kind"], gated["model"]["position"]
    monkeypatch.setitem(NORM_KINDS, norm, NORM_KINDS[norm]._replace(options={"bias": False}))
    monkeypatch.setitem(POSITION_KINDS, position, POSITION_KINDS[position]._replace(rotation="a:b"))
    now = code_digests(gated, None)
    files = [f"experiments/settings/norm.py: {norm}", f"experiments/settings/position.py: {position}"]
    assert sorted(name for name in before if now[name] != before[name]) == files


@pytest.mark.parametrize(
    ("objective", "names"),
    [
        ("masked", {"encoder"}),
        ("permutation", {"encoder", "two_stream_encoder"}),  # with the class that it extends
        ("translation", {"encoder_decoder"}),
    ],
)
def test_of_the_architectures_that_of_the_objective_counts(gated, objective, names):
    digests = code_digests(gated | {"objective": {"kind": objective}}, None)
    folder = "experiments/model/architectures/"
    assert {name for name in digests if name.startswith(folder)} == {f"{folder}{name}.py" for name in names}


def test_every_objective_has_its_file(gated):
    for path in (ROOT / "experiments/objectives/kinds").glob("[a-z]*.py"):
        name = f"experiments/objectives/kinds/{path.name}"
        assert name in code_digests(gated | {"objective": {"kind": path.stem}}, None)


def test_what_scores_a_run_at_its_end_is_imported_at_its_beginning(monkeypatch):
    """Files may be edited in between."""
    imported: list[str] = []
    plain, translation = compose([]), compose(["objective=translation", "data=pairs", "data.train=x"])
    monkeypatch.setattr(module, "importlib", SimpleNamespace(import_module=imported.append))
    module.import_code(translation.model_dump())
    assert {"experiments.training.decoding.texts", "attention.multi_head"} <= {*imported}
    imported.clear()
    prepare_process(plain, ALONE)
    assert "attention.multi_head" in imported


def test_what_is_covered_is_read_once_and_what_is_edited_later_does_not_count(gated, monkeypatch):
    before = code_digests(gated, "blocked+compiled")
    module.import_covered()
    module._digests.cache_clear()

    def edited(path: Path, encoding: str = "") -> str:
        raise AssertionError(f"{path} is read again")

    monkeypatch.setattr(Path, "read_text", edited)
    monkeypatch.setattr(Path, "read_bytes", edited)
    monkeypatch.setattr(Path, "glob", edited)
    assert code_digests(gated, "blocked+compiled") == before
    assert "attention.talking_heads" in sys.modules
    module._digests.cache_clear()
