"""The `attn` command: reads its arguments and hands plain values on. Imports nothing heavy until a command needs it."""

# Long on purpose: Typer reads options and help from the signatures, so a second file would only repeat this one
from __future__ import annotations

import os
import sys

# before anything else is imported, because every other module can be replaced by a file of the user's


def _leave_out_current_folder() -> None:
    """Remove the current folder from the search path if nothing but an empty entry of PYTHONPATH put it there.

    Such an entry, as in `PYTHONPATH=$PYTHONPATH:folder` where the variable was empty, is not meant. Files of this
    folder would replace modules of the same name.
    """
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if "" not in entries or entries == [""]:
        return
    named = [os.path.realpath(entry) for entry in entries if entry]
    try:
        here = os.path.realpath(os.getcwd())  # noqa: PTH109, pathlib imports other modules
    except FileNotFoundError:
        # a folder that has been removed is in no search path
        return
    if here not in (*named, os.path.realpath(os.path.dirname(__file__))):  # noqa: PTH120
        sys.path[:] = [place for place in sys.path if os.path.realpath(place) != here]


def _replaced_module() -> str | None:
    """A line about a file in a folder of PYTHONPATH that was imported in place of a module elsewhere, if there is one.

    Python's own modules are searched last, and `random.py` is a likely name.
    """
    places = {os.path.realpath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry}
    others = [place for place in sys.path if os.path.realpath(place) not in places]
    finder = sys.modules["_frozen_importlib_external"].PathFinder
    for name, module in [*sys.modules.items()]:
        file = os.path.realpath(getattr(module, "__file__", None) or "")
        if os.path.dirname(file) in places and "." not in name and finder.find_spec(name, others):  # noqa: PTH120
            return (
                f"{file} is imported in place of the module {name!r} that attn needs; "
                "rename it, or take its folder out of PYTHONPATH"
            )
    return None


def _name_replaced_module(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """Print the line about a replaced module in place of the traceback of an import, if there is one."""
    if line := _replaced_module():
        print(f"attn: {line}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


_leave_out_current_folder()
sys.excepthook = _name_replaced_module

import atexit
import signal
import traceback
import types
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal


def _refuse_foreign_packages() -> None:
    """Exit with a message if another distribution has a package with the name, or the files, of one of ours."""
    # the beginning of each package's docstring
    for name, docstring in (("attention", "The attention mechanisms"), ("experiments", "Train, evaluate and compare")):
        spec, ours = find_spec(name), Path(__file__).resolve().parent / name / "__init__.py"
        imported = spec.origin if spec else None
        if (
            not imported
            or Path(imported).resolve() != ours
            or not ours.read_text(encoding="utf-8").startswith(f'"""{docstring}')
        ):
            print(
                f"attn: the package {name!r} ({imported or ours}) belongs to another distribution; "
                "install attn in an environment of its own",
                file=sys.stderr,
            )
            sys.exit(2)


# before anything is imported from them
_refuse_foreign_packages()

from experiments.commands.frame.ending import (
    end_silently_on_ctrl_c,
    explained,
    open_missing_streams,
    outlive_terminal,
    silent_on_ctrl_c,
    stdout_flushed,
    write_every_letter,
)

# these imports take a tenth of a second, before `main` can report anything
with silent_on_ctrl_c():
    import typer

    from experiments.commands.frame.completion import (
        complete_budget,
        complete_claim,
        complete_run,
        complete_selection,
        complete_setting,
        complete_table,
    )
    from experiments.commands.frame.options import (
        AUTO,
        BENCH,
        COSTS_OF_TABLES,
        DASHBOARD,
        LIST_OF_TABLES,
        RUNS,
        TABLE,
        BenchOptions,
        BenchScope,
        TableFormat,
        TableOptions,
    )
    from experiments.commands.frame.usage import Commands, given_options
    from experiments.failures.exit_code import ExitCode
    from experiments.failures.unread import check_read
    from experiments.heads.options import HEADS, HeadsOptions
    from experiments.processes.environment_variables import set_performance_variables
    from experiments.processes.import_hook import hold_signals_in_imports
    from experiments.processes.interruption import SIGNALS, Interrupted, Interruption

if TYPE_CHECKING:
    from experiments.settings.group import WhichCheckpoint

TENSOR_COMMANDS = ("train", "finetune", "evaluate", "table", "bench", "heads")
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}  # -m, --cfg, -cn ... are Hydra's
EXIT_CODES = "\n".join(f"  {code:<5}{code.meaning}" for code in ExitCode)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=f"""Train small BERT-style models that differ in how their heads attend, and compare them fairly.

\b
  attn train variant=talking_heads heads=24                      one run
  attn train -m variant=multi_head,talking_heads heads=6,12,24   a sweep
  attn finetune talking_heads task=squad                         fine-tune a run on a task
  attn compare variant=talking_heads --sort loss                 a table of results
  attn table shazeer2020/heads                                   a paper's table, and which claims hold
  attn heads talking_heads                                       what the heads of a run do
  attn variants                                                  all attention variants

Every command takes plugins=FOLDER, a folder with variants, tables and more of your own (docs/own_folder.md).
An option that the command would not use is refused.

\b
Exit codes:
{EXIT_CODES}
""",
)


def _print_version(requested: bool) -> None:
    if requested:
        from experiments.record.environment import versions

        print(versions())
        raise typer.Exit(ExitCode.DONE)


@app.callback()
def _attn(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the installed versions.")
    ] = False,
) -> None:
    """The options before the name of a command."""


def _settings(words: list[str] | None) -> list[str]:
    """The words, among them KEY=VALUE, with the quotes that Hydra's grammar wants around a text."""
    if all(map(str.isascii, words or [])):
        return words or []
    from experiments.config.hydra_messages import with_quotes

    return [*map(with_quotes, words or [])]


Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Settings; docs/settings.md lists them.",
        autocompletion=complete_setting,
        callback=_settings,
    ),
]
Selection = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN|KEY=VALUE",
        help="Runs by name or by settings (key=a,b: either); default: every run.",
        autocompletion=complete_selection,
    ),
]
Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A run folder, its name, or a unique start of its name.", autocompletion=complete_run
    ),
]
Runs = Annotated[Path, typer.Option(help="The folder of the run folders.")]
Checkpoint = Annotated[
    str,
    typer.Option(
        metavar="[best|newest]",
        help="The checkpoint with the lowest validation loss, or the last.",
        autocompletion=lambda: ["best", "newest"],
    ),
]
Workers = Annotated[
    str,
    typer.Option(
        metavar="N",
        help="Cells (runs) to train side by side. More than there are GPUs share them. auto: as many as the cores or "
        "GPUs allow.",
    ),
]
Format = Annotated[Literal["table", "markdown", "csv", "json"], typer.Option(help="How to print the table.")]
Project = Annotated[
    str | None, typer.Option(metavar="[ENTITY/]PROJECT", help="W&B project; default: logger.project of conf/.")
]


@app.command(context_settings=PASS_ON, add_help_option=False)
def train(ctx: typer.Context, overrides: Overrides = None) -> None:
    """Train one configuration, or sweep over several with -m."""
    from experiments.commands.train import launch

    raise typer.Exit(launch([*(overrides or []), *ctx.args]))


@app.command(context_settings=PASS_ON, add_help_option=False)
def finetune(ctx: typer.Context, arguments: Overrides = None) -> None:
    """Fine-tune a pretrained run on a task, such as SQuAD or MNLI."""
    from experiments.commands.finetune import finetune

    raise typer.Exit(finetune([*(arguments or []), *ctx.args]))


@app.command()
def variants(
    overrides: Overrides = None,
    format: Format = "table",
) -> None:
    """List every attention variant with its paper and its cost.

    The cost is the parameters, the multiplications and the cache of a layer of the given sizes.

    \b
      attn variants
      attn variants hidden_size=768 heads=24 length=512
    """
    from experiments.commands.variants import print_variants

    print_variants(overrides or [], format)


@app.command()
def evaluate(
    selection: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|KEY=VALUE",
            help="Run folders, their names or starts of their names; and settings (docs/settings.md lists them).",
            autocompletion=complete_selection,
            callback=_settings,
        ),
    ],
    runs: Runs = RUNS,
    checkpoint: Checkpoint = "best",
    generate: Annotated[
        bool, typer.Option("--generate", help="Also generate texts and score them, such as translations with BLEU.")
    ] = False,
    format: Format = "table",
) -> None:
    """Score the checkpoints of runs, for example on another split.

    Settings such as the text, the length and the mask rate may differ from those of the training.

    \b
      attn evaluate runs/talking_heads-l4-...      the validation split
      attn evaluate talking_heads split=test       every run whose name begins so
      attn evaluate talking_heads data=text data.train=book.txt split=train
      attn evaluate multi_head --generate objective.beam=1 objective.length_penalty=0
    """
    from experiments.commands.evaluate import evaluate_runs

    raise typer.Exit(evaluate_runs(selection, runs, _known(checkpoint), format, generate))


@app.command()
def compare(
    selection: Selection = None,
    runs: Runs = RUNS,
    over_seeds: Annotated[
        bool,
        typer.Option(
            "--over-seeds",
            help="A row for each configuration: means over its seeds, and the difference from a baseline.",
        ),
    ] = False,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="With --over-seeds: a setting of the baseline; may be repeated. Default: multi-head attention.",
            autocompletion=complete_setting,
        ),
    ] = None,
    sort: Annotated[str, typer.Option(help="Column to sort by; a leading - reverses the order.")] = "loss",
    format: Annotated[
        Literal["table", "markdown", "latex", "csv", "json"], typer.Option(help="How to print the table.")
    ] = "table",
) -> None:
    """Print a table of finished runs, or of configurations over their seeds.

    \b
      attn compare
      attn compare variant=talking_heads heads=24 --sort -tokens_per_second
      attn compare runs/multi_head-* --format markdown
      attn compare --over-seeds --baseline variant=multi_head --baseline heads=24
    """
    from experiments.commands.compare import compare_runs

    compare_runs(selection or [], runs, sort, format, over_seeds, baseline or [])


@app.command()
def table(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="PAPER/TABLE; without it, list all tables.", autocompletion=complete_table),
    ] = None,
    overrides: Overrides = None,
    budget: Annotated[
        str,
        typer.Option(help="The size of the runs: nano, small, medium or paper.", autocompletion=complete_budget),
    ] = TableOptions.budget,
    claim: Annotated[
        list[str] | None,
        typer.Option(
            "--claim",  # before 0.28, typer called an option of this metavar --CLAIM
            metavar="CLAIM",
            help="Make only the rows that this claim compares, and decide it; may be given several times.",
            autocompletion=complete_claim,
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Seeds 0 to N-1, or FIRST-LAST; default: those of the budget, and all that have begun."
        ),
    ] = None,
    plan: Annotated[
        int | None,
        typer.Option(metavar="N", min=2, help="Write down which N seeds decide the claims, before they are trained."),
    ] = None,
    until_resolved: Annotated[
        bool, typer.Option("--until-resolved", help="Add seeds where they help most, until every claim is decided.")
    ] = False,
    hours: Annotated[
        float | None, typer.Option(min=0, help="With --until-resolved: start no seed after this many hours.")
    ] = None,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Tune the learning rates (or those of --claim) that are not tuned; print them."),
    ] = False,
    workers: Workers = AUTO,
    rounds: Annotated[
        int, typer.Option(metavar="N", min=2, help="Rounds in which a training step of each row is timed.")
    ] = TableOptions.rounds,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells and their cost; train nothing.")] = False,
    render_only: Annotated[
        bool, typer.Option("--render-only", help="Show the existing results; train nothing.")
    ] = False,
    published: Annotated[Path | None, typer.Option(help="YAML with numbers that you have read in the paper.")] = None,
    runs: Runs = RUNS,
    format: Annotated[TableFormat, typer.Option(help="How to print the table.")] = TableOptions.format,
    out: Annotated[Path | None, typer.Option(help="Also write the table in every format into this folder.")] = None,
    wandb: Annotated[bool, typer.Option("--wandb", help="Also log the table to W&B, and add it to a report.")] = False,
) -> None:
    """Reproduce a paper's table, and decide which claims hold.

    The missing runs are trained first. The claims are decided by confidence intervals.

    \b
      attn table                                         list all tables
      attn table --dry-run                               list them with their rough cost on this machine
      attn table shazeer2020/heads --dry-run             the cells of one table, and how long they take
      attn table shazeer2020/heads --seeds 4 --out docs/results
      attn table shazeer2020/heads --until-resolved --hours 2
      attn table shazeer2020/heads --plan 24             record the next 24 seeds before they are trained
      attn table follow_ups/today --claim C8             only the rows that this claim compares
      attn table shazeer2020/dynamic --tune              tune the learning rates that have not been tuned
      attn table su2020/key_size data=text data.train=book.txt
      attn table shazeer2020/heads --render-only --format markdown

    A cell is a row trained with one seed, which is a run of `attn train`. Settings apply to every cell. The same
    command continues a table that was interrupted.
    """
    from experiments.cells.resources import parse_workers
    from experiments.commands.table import show_table

    if name is not None and "=" in name:
        # without a table, the first of the overrides stands in its place
        overrides, name = [*_settings([name]), *(overrides or [])], None
    without_name = COSTS_OF_TABLES if dry_run else LIST_OF_TABLES
    # the flags that ask for a mode are used for nothing else
    mode = check_read(TABLE, given_options(ctx), without_name if name is None else None)
    options = TableOptions(
        mode=mode, budget=budget, claims=claim or [], seeds=seeds, plan=plan, hours=hours,
        workers=parse_workers(workers), rounds=rounds, published=published, runs=runs, format=format, out=out,
        wandb=wandb,
    )  # fmt: skip
    raise typer.Exit(show_table(name, overrides or [], options))


@app.command()
def dashboard(
    ctx: typer.Context,
    selection: Selection = None,
    runs: Runs = RUNS,
    out: Annotated[
        Path | None, typer.Option(help="The HTML file; default: dashboard.html in the folder of the runs.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Update it while runs continue, until Ctrl-C.")] = False,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    wandb: Annotated[bool, typer.Option("--wandb", help="Make or update a workspace in W&B instead.")] = False,
    project: Project = None,
) -> None:
    """Write one HTML file that compares runs. It needs no network.

    It shows curves, speed, memory, heads and settings.

    \b
      attn dashboard
      attn dashboard variant=talking_heads,multi_head layers=4 --open
      attn dashboard --watch                       while a sweep is going on
    """
    from experiments.commands.dashboard import dashboard

    check_read(DASHBOARD, given_options(ctx))
    dashboard(selection or [], runs, out=out, watch=watch, show=show, wandb=wandb, project=project)


@app.command()
def heads(
    ctx: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            help="A run folder, its name, or a unique start of its name.",
            autocompletion=complete_run,
        ),
    ],
    runs: Runs = RUNS,
    checkpoint: Checkpoint = HeadsOptions.checkpoint,
    sequences: Annotated[int, typer.Option(help="Number of held-out sequences.")] = HeadsOptions.sequences,
    sentence: Annotated[str | None, typer.Option(help="The text whose attention maps are shown.")] = None,
    treebank: Annotated[Path | None, typer.Option(help="A treebank for syntactic heads: CoNLL-U or Parquet.")] = None,
    export: Annotated[int | None, typer.Option(help="Also write the model with only this many heads in all.")] = None,
    equal: Annotated[int | None, typer.Option(help="Also train this many steps from heads that start equal.")] = None,
    gates: Annotated[
        int | None, typer.Option(help="Also fine-tune this many steps with L0 gates on the heads.")
    ] = None,
    penalty: Annotated[
        float, typer.Option(help="With --gates: the penalty, in nats for each open head.")
    ] = HeadsOptions.penalty,
) -> None:
    """Show what the heads of a run do, or compare two runs.

    A page, pictures and tables are written into RUN/heads.

    \b
      attn heads talking_heads-l4-d192-h24
      attn heads multi_head-l4-d192-h24 talking_heads-l4-d192-h24
      attn heads talking_heads --sentence "The cat sat on the mat." --export 48
    """
    from experiments.commands.heads import show_heads

    check_read(HEADS, given_options(ctx))
    options = HeadsOptions(
        checkpoint=_known(checkpoint), sequences=sequences, sentence=sentence, treebank=treebank,
        export=export, equal=equal, gates=gates, penalty=penalty,
    )  # fmt: skip
    show_heads(names, runs, options)


@app.command()
def bench(
    ctx: typer.Context,
    overrides: Overrides = None,
    scope: Annotated[
        BenchScope,
        typer.Option(help="Time the attention layer, a training step, or the runs that answer which is better."),
    ] = BenchOptions.scope,
    peers: Annotated[
        bool, typer.Option("--peers", help="With --scope step: also time other libraries at the same sizes.")
    ] = False,
    compile: Annotated[
        bool,
        typer.Option("--compile", help="Also time everything with torch.compile; an answer has trainer.compile=true."),
    ] = False,
    rounds: Annotated[int, typer.Option(help="Number of interleaved rounds; the median counts.")] = BenchOptions.rounds,
    seeds: Annotated[int, typer.Option(help="With --scope answer: seeds of each configuration.")] = BenchOptions.seeds,
    difference: Annotated[
        float, typer.Option(help="With --scope answer: the difference to resolve, in nats of validation loss.")
    ] = BenchOptions.difference,
    workers: Workers = AUTO,
    format: Format = "table",
    plot: Annotated[
        Path | None, typer.Option(help="Also draw a figure: a file that ends in .svg, .png or .pdf.")
    ] = None,
) -> None:
    """Time attention layers or training steps side by side.

    \b
      attn bench variant=multi_head,talking_heads heads=24 length=128,512
      attn bench variant=talking_heads backend=compiled,blocked heads=24
      attn bench variant=talking_heads heads=24 layers=6 hidden_size=384 --scope step --peers
      attn bench variant=multi_head,talking_heads heads=24 experiment=nano_table --scope answer

    Each kernel is first compared with the papers' equations in float64; a wrong one is named and not timed.
    --scope answer trains each configuration with a few seeds, keeps these runs, and computes how many seeds and how
    much processor time it takes to resolve a difference.
    """
    from experiments.cells.resources import parse_workers
    from experiments.commands.bench import bench

    check_read(BENCH, given_options(ctx), f"--scope {scope}")
    options = BenchOptions(
        scope=scope, peers=peers, compiled=compile, rounds=rounds, seeds=seeds, difference=difference,
        workers=parse_workers(workers),
    )  # fmt: skip
    raise typer.Exit(bench(overrides or [], options, format, plot))


@app.command("import")
def import_(
    source: Annotated[
        str, typer.Argument(metavar="NAME", help="A folder with config.json, weights and a tokenizer; or owner/name.")
    ],
    overrides: Overrides = None,
    name: Annotated[str, typer.Option(help="Name of the run folder.")] = "",
    check: Annotated[
        bool, typer.Option("--check", help="First compare logits and tokens with those of transformers.")
    ] = False,
    runs: Runs = RUNS,
) -> None:
    """Make a run folder from a Hugging Face checkpoint.

    attn evaluate, heads, finetune and export accept this folder like that of a trained run.

    \b
      attn import google-bert/bert-base-uncased --name bert       from the hub
      attn import ./my_bert --check                               a local folder, compared with transformers
      attn import ./my_bert --name mine data=text data.train=book.txt

    If there is no local folder NAME, it is looked up on the Hugging Face hub.
    """
    from experiments.commands.import_checkpoint import import_checkpoint

    import_checkpoint(source, name, runs, overrides or [], check)


@app.command()
def export(
    run: Run,
    target: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A new or empty folder, other than the current one.")
    ],
    runs: Runs = RUNS,
    checkpoint: Checkpoint = "best",
    format: Annotated[
        str | None,
        typer.Option(help="A model_type of config.json, or transformers-custom; default: the first that fits."),
    ] = None,
) -> None:
    """Write a run's model as a folder for transformers.

    \b
      attn export multi_head-l12-d768 my_bert
      attn export talking_heads-l4-d192 my_model --format transformers-custom

    A setting that the format cannot express is refused. transformers-custom works for every variant: the folder
    contains the code of the model, and is loaded with trust_remote_code=True.
    """
    from experiments.commands.export_checkpoint import export_run

    export_run(run, target, runs, _known(checkpoint), format)


@app.command()
def push(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that `attn export` wrote.")],
    name: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The name on the Hugging Face hub.")],
) -> None:
    """Upload an exported folder to the Hugging Face hub. You must be logged in there.

    \b
      attn push my_bert somebody/my_bert
    """
    from experiments.commands.push import push as push_folder

    push_folder(folder, name)


@app.command()
def sync(
    selection: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="Runs to upload; default: all but those with logger.wandb=off.",
            autocompletion=complete_run,
        ),
    ] = None,
    runs: Runs = RUNS,
    project: Project = None,
) -> None:
    """Upload runs that were logged offline to W&B.

    A run that was interrupted and continued is one run there.

    \b
      wandb login
      attn sync
    """
    from experiments.commands.sync import sync_runs

    raise typer.Exit(sync_runs(selection or [], runs, project))


@app.command()
def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print the script for completion in a shell.

    It completes commands, settings, and the names of runs, tables and claims.

    \b
      eval "$(attn completion bash)"
      attn completion fish | source
    """
    from experiments.config.completion import script

    print(script(shell))


def _known(checkpoint: str) -> WhichCheckpoint:
    from experiments.settings.group import known_checkpoint

    return known_checkpoint(checkpoint, f"--checkpoint {checkpoint}")


def main() -> None:
    """Run the command line of this process, and exit."""
    open_missing_streams()
    write_every_letter()
    if "GLIBC_TUNABLES" in set_performance_variables() and sys.argv[1:2] and sys.argv[1] in TENSOR_COMMANDS:
        # glibc reads its tunables only at the start of a program; signals wait until the new program can handle them
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    outlive_terminal()
    if "_ATTN_COMPLETE" in os.environ:
        # add_completion=True would do this too, but would add two options, and a script that stops at "="
        from typer.completion import completion_init

        completion_init()
    hold_signals_in_imports()
    try:
        # from the very start, because Typer ends at a KeyboardInterrupt without a message
        with stdout_flushed(), Interruption():
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            app()
    except (Exception, KeyboardInterrupt, Interrupted) as error:
        if (code := explained(error, "attn")) is not None:
            sys.exit(code)
        traceback.print_exc()
        from experiments.processes.bug_report import bug_report

        print(_replaced_module() or bug_report(error), file=sys.stderr)
        sys.exit(ExitCode.FAILED)
    finally:
        # the last to be registered is the first to be called
        atexit.register(end_silently_on_ctrl_c)


if __name__ == "__main__":
    main()
