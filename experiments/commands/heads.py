"""`attn heads RUN [RUN]`: everything about the heads of one run, or of two side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.config.recorded import pretraining
from experiments.display.progress import Display
from experiments.failures.failure import Mistake
from experiments.failures.missing_extra import check_installed
from experiments.failures.wording import joined
from experiments.files.durable import check_writable, or_elsewhere
from experiments.heads.options import HeadsOptions
from experiments.record.errors import RunFolderError
from experiments.record.folder import MEASURED_HEADS, RunFolder
from experiments.results.find import find_run

if TYPE_CHECKING:
    from experiments.heads.section import Section
    from experiments.heads.trained_run import TrainedRun


@or_elsewhere("name a copy of the run that you may change", RunFolderError)
def show_heads(names: list[str], runs: Path, options: HeadsOptions) -> None:
    """Write `runs/NAME/heads/`, and print the path of the page. Raises Mistake, DataError, RunFolderError."""
    if len(names) > 2:
        raise Mistake(f"{len(names)} runs: attn heads shows one run, or two side by side")
    check_installed("heads", "attn heads", "matplotlib", "scipy", "sklearn")
    folders = [RunFolder(find_run(name, runs)) for name in names]
    if len({folder.path.resolve() for folder in folders}) < len(folders):
        raise Mistake(f"{' and '.join(names)}: are the same run", "name one, or two that differ")
    for folder in folders:
        check_writable(folder.path / MEASURED_HEADS / "index.html")
    # read once, and before anything is opened
    _ = options.trees
    from experiments.heads.output import save_sections, share_scales, undrawable_tokens, write_page
    from experiments.heads.section import Column
    from experiments.heads.trained_run import open_trained_run

    columns: list[Column] = []
    with Display() as display:
        trained = [
            open_trained_run(folder, pretraining(folder), options.checkpoint, options.sequences, display)
            for folder in folders
        ]
        for run in trained:
            _check(run, options)
        if options.treebank is not None:
            _check_softmax(trained)
        for folder, run in zip(folders, trained, strict=True):
            if options.export is not None:
                display.message(_export(run, options.export, folder.path / MEASURED_HEADS))
            sections = _sections(run, options, display)
            save_sections(sections, folder.path / MEASURED_HEADS)
            if lacking := undrawable_tokens(sections):
                display.message(
                    f"no font of this machine has {len(lacking)} characters of the maps, such as {lacking[:5]}: the "
                    "PNG shows boxes; index.html and the SVG use the fonts of their reader"
                )
            columns.append(Column(folder.name, _summary(run), sections))
            write_page(folder.path / MEASURED_HEADS / "index.html", columns[-1:])
    page = folders[0].path / MEASURED_HEADS / "index.html"
    if len(columns) == 2:
        page = page.with_name(f"beside-{folders[1].name}.html")
        share_scales(columns)
        write_page(page, columns)
    print(page)


def _check(run: TrainedRun, options: HeadsOptions) -> None:
    """Raises Mistake if the run cannot be shown with these options, before anything is written."""
    from experiments.heads.hooks import check_prunable, check_removable, check_unshared_heads, value_heads
    from experiments.heads.sections.maps import shown_inputs

    if options.export is not None:
        check_removable(run.model, "--export")
    if options.gates is not None:
        check_unshared_heads(run.model, "--gates")
    if options.equal is not None:
        check_prunable(run.model, "--equal")
    total, heads_left = sum(value_heads(run.model)), options.export
    if heads_left is not None and not 0 <= heads_left <= total:
        raise Mistake(
            f"--export {heads_left}: the number of heads to keep must be from 0 to {total}, which {run.name} has"
        )
    shown_inputs(run, options.sentence)
    if options.treebank is not None and run.has_two_sides:
        raise Mistake(f"--treebank: needs an encoder or a decoder; {run.name} is an encoder-decoder")


def _check_softmax(trained: list[TrainedRun]) -> None:
    """Raises Mistake if no run has maps of a softmax, which a treebank is compared with."""
    from experiments.heads.hooks import has_stages

    if not any(has_stages(run.model, "weights") for run in trained):
        raise Mistake(f"--treebank: needs a softmax; the attention of {joined([run.name for run in trained])} has none")


def _sections(run: TrainedRun, options: HeadsOptions, display: Display) -> list[Section]:
    from experiments.heads.sections import SECTIONS
    from experiments.training.step.non_finite import NonFiniteError

    sections = []
    for done, make in enumerate(SECTIONS):
        name = make.__module__.rpartition(".")[2].replace("_", " ")
        display.stage(f"heads of {run.name}: {name}", done, len(SECTIONS))
        try:
            sections.append(make(run, options))
        except NonFiniteError as error:
            raise Mistake(f"--equal and --gates train {run.name} further, which diverged: {error}") from error
    display.stage(f"heads of {run.name}", len(SECTIONS), len(SECTIONS))
    return [section for section in sections if section is not None]


def _summary(run: TrainedRun) -> str:
    settings = run.settings
    heads = " and ".join(
        str(heads) for heads in sorted({attention.softmax_heads for attention in run.model.attentions})
    )
    name = str(settings.variant["name"]).replace("_", " ")
    return f"{name}, {settings.layers} layers, {heads} heads; {run.sequences} held-out sequences of {settings.length}"


def _export(run: TrainedRun, heads_left: int, folder: Path) -> str:
    """Write the model with this number of heads left; returns a line about it."""
    from experiments.heads.hooks import value_heads
    from experiments.heads.measures import importance, pruning

    total = sum(value_heads(run.model))
    batches = list(run.masked_batches())
    importances = importance.normalized_by_layer(importance.of_run_by_gradient(run))
    removed = pruning.removal_order(importances)[: total - heads_left]
    target = folder / f"pruned-{heads_left}"
    smaller = pruning.export_pruned(run, removed, target)
    difference = pruning.largest_logit_difference(run.model, smaller, batches, removed)
    before, after = (model.parameter_counts()["total"] for model in (run.model, smaller))
    return (
        f"{target}: {heads_left} of {total} heads, {after:,} of {before:,} parameters; "
        f"its logits differ by at most {difference:.1e} from those of the model with the other heads masked"
    )
