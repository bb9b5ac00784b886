"""`attn heads RUN [RUN]`: everything about the heads of one run, or of two side by side."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.config.pretrained import pretraining
from experiments.display.progress import Display
from experiments.record.find import find_run
from experiments.record.folder import RunFolder
from experiments.settings.group import WhichCheckpoint
from experiments.settings.mistake import Mistake

if TYPE_CHECKING:
    from experiments.heads.section import Options, Section
    from experiments.heads.trained_run import Subject


def show_heads(
    names: list[str],
    runs: Path,
    checkpoint: WhichCheckpoint,
    sequences: int,
    sentence: str | None,
    treebank: Path | None,
    export: int | None,
    equal: int | None,
    gates: int | None,
    penalty: float,
) -> None:
    """Write `runs/NAME/heads/`, and print where the page is. Raises Mistake, DataError, RunFolderError."""
    if len(names) > 2:
        raise Mistake(f"{len(names)} runs: attn heads shows one, or two side by side")
    if missing := [name for name in ("matplotlib", "scipy", "sklearn") if find_spec(name) is None]:
        raise Mistake(f"attn heads needs {', '.join(missing)}", 'pip install -c constraints.txt -e ".[heads]"')
    folders = [RunFolder(find_run(name, runs)) for name in names]
    from experiments.heads import report
    from experiments.heads.measures.syntax import read_treebank
    from experiments.heads.section import Options
    from experiments.heads.trained_run import open_subject

    for name, steps in (("--equal", equal), ("--gates", gates)):
        if steps is not None and steps < 1:
            raise Mistake(f"{name} {steps}: the steps to train, must be at least 1")
    if penalty < 0:
        raise Mistake(f"--penalty {penalty}: must be at least 0")
    options = Options(sentence, None if treebank is None else read_treebank(treebank), equal, gates, penalty)
    shown: list[tuple[str, str, list[Section]]] = []
    with Display() as display:
        subjects = [
            open_subject(folder, pretraining(folder), checkpoint, sequences, display.stage) for folder in folders
        ]
        for subject in subjects:
            _check(subject, options, export)
        for folder, subject in zip(folders, subjects, strict=True):
            if export is not None:
                display.message(_export(subject, export, folder.path / "heads"))
            sections = _sections(subject, options, display)
            report.save(sections, folder.path / "heads")
            shown.append((folder.name, _what(subject), sections))
            report.write_page(folder.path / "heads" / "index.html", shown[-1:])
    page = folders[0].path / "heads" / "index.html"
    if len(shown) == 2:
        page = page.with_name(f"beside-{folders[1].name}.html")
        report.write_page(page, shown)
    print(page)


def _check(subject: Subject, options: Options, export: int | None) -> None:
    """Raises Mistake where the run can't be shown as asked, before anything is written."""
    from experiments.heads.attending import sentence
    from experiments.heads.hooks import check_own_heads, value_heads

    for name, value in (("--export", export), ("--gates", options.gate_steps)):
        if value is not None:
            check_own_heads(subject.model, name)
    total = sum(value_heads(subject.model))
    if export is not None and not 0 <= export <= total:
        raise Mistake(f"--export {export}: the heads to keep, must be between 0 and {total}, which {subject.name} has")
    sentence(subject, options.sentence)


def _sections(subject: Subject, options: Options, display: Display) -> list[Section]:
    from experiments.heads.sections import SECTIONS

    found = []
    for done, section in enumerate(SECTIONS):
        display.stage(f"heads of {subject.name}", done, len(SECTIONS))
        found.append(section(subject, options))
    display.stage(f"heads of {subject.name}", len(SECTIONS), len(SECTIONS))
    return [section for section in found if section is not None]


def _what(subject: Subject) -> str:
    settings = subject.settings
    heads = " and ".join(
        str(heads) for heads in sorted({layer.attention.softmax_heads for layer in subject.model.layers})
    )
    name = str(settings.variant["name"]).replace("_", " ")
    return (
        f"{name}, {settings.layers} layers, {heads} heads; {subject.sequences} held-out sequences of {settings.length}"
    )


def _export(subject: Subject, left: int, folder: Path) -> str:
    """Write the model with that many heads left; what it is, in a line."""
    from experiments.heads.hooks import value_heads
    from experiments.heads.measures import importance, pruning

    total = sum(value_heads(subject.model))
    batches = list(subject.masked())
    importances = importance.per_layer(importance.by_gradient(subject.model, batches))
    removed = pruning.order(importances)[: total - left]
    place = folder / f"pruned-{left}"
    smaller = pruning.export(subject, removed, place)
    apart = pruning.difference(subject.model, smaller, batches, removed)
    before, after = (model.parameter_counts()["total"] for model in (subject.model, smaller))
    return (
        f"{place}: {left} of {total} heads, {after:,} of {before:,} parameters; "
        f"its logits differ by at most {apart:.1e} from those of the model with the other heads masked"
    )
