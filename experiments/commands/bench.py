"""`attn bench`: variants, kernels, sizes and peers in interleaved rounds, each compared with its floor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from experiments.commands.frame.options import BenchOptions
from experiments.config.command_line import CommandLine
from experiments.display.lines import warn
from experiments.display.rows import Row, show
from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Mistake
from experiments.failures.unread import unread_settings
from experiments.failures.wording import plural
from experiments.launch.check_cells import check_data
from experiments.launch.plan import Delegated, OptunaSearch, plan
from experiments.measure.cores import long_wait
from experiments.settings.run import Settings
from experiments.settings.variant import keys_around_attention

if TYPE_CHECKING:
    from experiments.bench.contenders import Scope

CAPTIONS: dict[Scope, str] = {
    "attention": "the attention layer alone, forward and backward",
    "step": "whole training steps: forward, backward and optimizer",
}


# what a contender is made of; a group stands for all of its keys
LAYER_KEYS = {
    "variant", "model", "experiment", "hydra", "cache", "heads", "key_size", "value_size", "hidden_size", "length",
    "batch_size", "precision", "backend", "seed", "trainer.device", "trainer.precision", "trainer.batch_size",
    "trainer.threads",
}  # fmt: skip
STEP_KEYS = LAYER_KEYS | {
    "objective", "tokenizer", "optimizer", "layers", "norm", "learning_rate", "trainer.micro_batch",
}  # fmt: skip
MAY_CHOOSE_PAIRS = {"objective", "model", "experiment"}  # groups whose options may choose an objective of pairs
RANDOM_BATCHES = "it times random batches of the given sizes"
UNREAD_KEYS = {"optimizer.clip"}
CONTENDERS_AT_ONCE = 64  # contenders of the same sizes, each of which is a process


def bench(overrides: list[str], options: BenchOptions, format: str, plot: Path | None) -> ExitCode:
    """Print a row for each contender, and draw them if `plot` names a file; the exit code. Raises Mistake."""
    if plot is not None:
        from experiments.bench.figure import check_plot

        check_plot(plot)
    if options.scope != "answer":
        _check_no_data(overrides, options.scope)
    planned = plan(CommandLine(overrides, ["-m"]))
    if isinstance(planned, Delegated | OptunaSearch):
        raise Mistake(f"{planned.chosen}: a bench times every combination on this machine", "leave them out")
    cells = planned.cells
    if options.scope == "answer":
        return _answer(overrides, cells, options, format)
    _check_read(overrides, cells, options.scope)
    if options.peers and any(cell.objective.kind != "masked" for cell in cells):
        raise Mistake("--peers: the peers are encoders that predict masked tokens", "keep objective=masked")
    from experiments.bench.side_by_side import check_peers, compare, groups, other_settings

    if options.peers:
        for alike in groups(cells):
            check_peers(alike)
    others = other_settings(cells)
    rows: list[Row] = []
    code = ExitCode.DONE
    for alike in groups(cells):
        if len(alike) > CONTENDERS_AT_ONCE:
            raise Mistake(
                f"{len(alike):,} contenders have the same sizes; at most {CONTENDERS_AT_ONCE} can be timed side by side"
            )
        of_group, left_out = compare(
            alike, options.scope, options.rounds, peers=options.peers, compiled=options.compiled, others=others
        )
        rows += of_group
        for contender in left_out:
            code = ExitCode.FAILED if contender.failed else code
            warn(f"attn bench: {contender.sentence}")
    if not rows and not code:
        raise Mistake("nothing is left to be timed")
    if rows:
        if waited := long_wait(max(row["waited_for_cores"] or 0.0 for row in rows)):
            warn(f"this machine is busy: a contender waited {waited} of its time for a core")
        rounds = f"{options.rounds} interleaved {plural('round', options.rounds)}"
        caption = f"{CAPTIONS[options.scope]}; medians of {rounds}"
        show(rows, format, caption)
        if plot is not None:
            from experiments.bench.figure import draw

            draw(rows, caption, plot)
    return code


def _answer(overrides: list[str], cells: list[Settings], options: BenchOptions, format: str) -> ExitCode:
    """Print the cost of resolving a difference between the first configuration and each of the others."""
    from experiments.bench.answer import answers

    for text in overrides:
        if text.partition("=")[0] == "seed":
            raise Mistake(f"{text}: --scope answer chooses the seeds itself", "--seeds N trains with seeds 0 to N-1")
    check_data(cells)
    rows, failed = answers(cells, options.seeds, options.difference, Console(stderr=True), options.workers)
    for contender in failed:
        warn(f"attn bench: {contender.sentence}")
    show(
        rows,
        format,
        f"differences from the first, paired by {options.seeds} seeds, with anytime-valid 95% intervals; spread: their "
        f"standard deviation; seeds, and processor time of all their cells, that resolve {options.difference:g} nats",
    )
    return ExitCode.FAILED if failed else ExitCode.DONE


def _check_no_data(overrides: list[str], scope: Scope) -> None:
    """Raises Mistake for settings of data that no contender reads, before `plan` asks for those that are missing."""
    chosen = {text.partition("=")[0] for text in overrides}
    if scope == "attention" or chosen.isdisjoint(MAY_CHOOSE_PAIRS):
        for text, key, group in unread_settings(overrides, ()):
            if group == "data":
                raise Mistake(f"{text}: a bench does not use {key}", RANDOM_BATCHES)


def _check_read(overrides: list[str], cells: list[Settings], scope: Scope) -> None:
    """Raises Mistake for a setting that does not affect the timed work, and for missing sentence pairs."""
    # a batch is made up; but which objective goes with pairs is checked against the data
    of_pairs = scope == "step" and all(cell.objective.reads_pairs for cell in cells)
    read = {"attention": LAYER_KEYS, "step": STEP_KEYS}[scope] | ({"data"} if of_pairs else set())
    unread = UNREAD_KEYS | (keys_around_attention() if scope == "attention" else set())
    for text, key, group in unread_settings(overrides, read, unread):
        if {key, group} & STEP_KEYS and key not in UNREAD_KEYS:
            raise Mistake(f"{text}: --scope {scope} does not use {key}", "it times one layer; --scope step uses it")
        raise Mistake(f"{text}: a bench does not use {key}", RANDOM_BATCHES)
    if of_pairs:
        check_data(cells)
