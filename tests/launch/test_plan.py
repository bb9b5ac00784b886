"""The cells of a sweep, composed and checked before anything trains."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from attention.kernels.cuda import kernel
from experiments.config.command_line import CommandLine
from experiments.config.compose import compose
from experiments.failures.failure import Mistake
from experiments.launch.check_cells import check_buildable
from experiments.launch.plan import HydraSweep, LocalSweep, SingleRun, plan
from experiments.search.space import space_of
from experiments.training.distributed.start import TORCHRUN_VARIABLES


def sizes(words: list[str], flags: list[str]) -> list[tuple[str, int]]:
    return [(cell.variant["name"], cell.heads) for cell in plan(CommandLine(words, flags)).cells]


def test_a_grid_is_every_combination_in_order():
    assert sizes(["variant=multi_head,talking_heads", "heads=6,12"], ["-m"]) == [
        ("multi_head", 6),
        ("multi_head", 12),
        ("talking_heads", 6),
        ("talking_heads", 12),
    ]


def test_hydras_own_sweep_grammar():
    assert sizes(["heads=range(2,7,2)"], ["-m"]) == [("multi_head", 2), ("multi_head", 4), ("multi_head", 6)]
    variants = {name for name, _ in sizes(["variant=glob(*talking_heads)"], ["--multirun"])}
    assert variants == {"talking_heads", "dynamic_talking_heads"}


def test_equal_cells_are_trained_once():
    assert sizes(["heads=6,6"], ["-m"]) == [("multi_head", 6)]


def test_cells_that_would_be_one_run_are_refused():
    for word, key in (("logger.project=a,b", "logger.project"), ("cache=x,y", "cache")):
        with pytest.raises(Mistake, match=rf"^{key}: cells that differ only in this are one run(.|\n)*runs=FOLDER"):
            plan(CommandLine([word, "heads=6,12"], ["-m"]))
    assert sizes(["runs=a,b"], ["-m"]) == 2 * [("multi_head", 6)]


def test_one_configuration_is_no_sweep():
    single = plan(CommandLine(["heads=12"], []))
    assert isinstance(single, SingleRun)
    assert [cell.heads for cell in single.cells] == [12]


def test_a_sweep_may_be_asked_for_by_configuration():
    swept = plan(CommandLine(["hydra.mode=MULTIRUN", "heads=6,12"], []))
    assert isinstance(swept, LocalSweep)
    assert len(swept.cells) == 2


def test_other_launchers_are_left_to_hydra_after_the_check():
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    delegated = plan(CommandLine(["hydra/launcher=joblib", "heads=6,12"], ["-m"]))
    assert isinstance(delegated, HydraSweep)
    assert len(delegated.cells) == 2


def test_whether_a_kernel_runs_here_is_asked_only_of_cells_that_do(monkeypatch):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    monkeypatch.setattr(kernel, "absence", lambda device: "it isn't here")
    words = ["backend=auto,cuda", "trainer.device=cpu"]
    with pytest.raises(Mistake, match="backend=cuda: backend=cuda: it isn't here; here it must be one of auto"):
        plan(CommandLine(words, ["-m"]))
    assert len(plan(CommandLine(["hydra/launcher=joblib", *words], ["-m"])).cells) == 2


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("trainer.device=cuda:99", "trainer.device=cuda:99"),
        ("trainer.devices=99", "trainer.devices=99: this machine has"),
    ],
)
def test_a_device_that_is_missing_is_refused_before_a_run_begins_here(word, said, monkeypatch):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    words = [word, "batch_size=99"]
    with pytest.raises(Mistake, match=said):
        plan(CommandLine(words, []))
    assert plan(CommandLine(["hydra/launcher=joblib", *words], ["-m"])).cells
    # it counts the devices of all machines
    for name in TORCHRUN_VARIABLES:
        monkeypatch.setenv(name, "99")
    assert plan(CommandLine(words, [])).cells


LEARNED = "model.position=learned"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["model.sinusoidal_base=9"],
            "model.position=rotary; it is read with model.position=learned or sinusoidal",
        ),
        (["model.sinusoidal_base=9", LEARNED], "model.position_start=normal; it is read with model.position_start=sin"),
        (
            ["model.rotary_base=9", "model.position=alibi"],
            "model.position=alibi; it is read with model.position=rotary",
        ),
        (["model.relative_buckets=8"], "it is read with model.position=relative"),
        (["model.relative_distance=256"], "it is read with model.position=relative"),
        (["model.position_start=sinusoidal"], "it is read with model.position=learned"),
        (["model.global_every=2"], "with model.local_window=null; it is read with model.local_window=TOKENS"),
        (["model.local_rotary_base=9"], "with model.local_window=null; it is read with model.local_window=TOKENS"),
        (["model.local_window=9", "model.global_every=1"], "it is read with model.global_every=2 or more"),
        (["trainer.guard_limit=9"], "with trainer.guard=stop; it is read with trainer.guard=skip or reload"),
        (["optimizer.position_rate_factor=9"], "it is read with model.position=learned or relative"),
        (["optimizer.head_mixing_rate_factor=9"], "with variant=multi_head; it is read with variant=talking_heads"),
        (["key_size=9", "variant=general_bilinear"], "with variant=general_bilinear; it is read with variant=multi_he"),
    ],
)
def test_a_word_that_nothing_reads_is_refused_with_what_would_read_it(words, said):
    for flags in ([], ["-m"]):
        with pytest.raises(Mistake) as caught:
            plan(CommandLine([*words, "cache=elsewhere"], flags))
        assert str(caught.value).startswith(f"{words[0]}: nothing reads it with ") and said in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        ["model.sinusoidal_base=9", "model.position=rotary,sinusoidal"],
        ["model.sinusoidal_base=9", LEARNED, "model.position_start=normal,sinusoidal"],
        ["model.local_rotary_base=9", "model.local_window=9", "model.global_every=1,2"],
        ["optimizer.head_mixing_rate_factor=9", "variant=multi_head,multi_token"],
        ["value_size=9", "variant=general_bilinear,talking_heads"],
        ["trainer.guard_limit=9", "trainer.guard=stop,skip"],
        # of files, which pin what only some of their users read
        ["model=t5_nano", "model.position=rotary"],
    ],
)
def test_a_word_that_one_cell_of_a_sweep_reads_and_one_of_a_file_are_taken(words):
    assert plan(CommandLine(words, ["-m"])).cells
    if any("," in word for word in words):
        # the other reason may be that of all cells
        of_first = [word.partition(",")[0] for word in words]
        with pytest.raises(Mistake, match="nothing reads it"):
            plan(CommandLine([*of_first, "seed=0,1"], ["-m"]))


def test_a_word_that_each_cell_of_a_sweep_leaves_for_a_reason_of_its_own_is_refused():
    with pytest.raises(Mistake) as caught:
        plan(CommandLine(["model.sinusoidal_base=9", "model.position=rotary,learned"], ["-m"]))
    assert str(caught.value) == (
        "model.sinusoidal_base=9: nothing reads it with model.position=rotary and model.position_start=normal; "
        "it is read with model.position=learned or sinusoidal or model.position_start=sinusoidal"
    )


def test_a_search_reads_a_word_though_none_of_its_ends_does():
    pytest.importorskip("optuna")
    words = ["hydra/sweeper=optuna_search", "model.local_rotary_base=interval(9,99)", "model.local_window=null,9"]
    assert plan(CommandLine([*words, "model.position=learned,rotary"], ["-m"])).cells
    said = "model.local_rotary_base=interval(9,99): nothing reads it with model.position=learned; it is read with"
    with pytest.raises(Mistake, match=re.escape(said)):
        plan(CommandLine([*words, "model.position=learned"], ["-m"]))


def test_an_interval_of_a_setting_that_is_whole_is_told_how_to_be_drawn():
    pytest.importorskip("optuna")
    search = ["hydra/sweeper=optuna_search", "layers=int(interval(1,2))"]
    with pytest.raises(Mistake) as caught:
        plan(CommandLine([*search, "heads=interval(1,6)", "norm=posst,pre"], ["-m"]))
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("heads = 1.0: must be a whole number; int(interval(...)) draws these")
    assert not any("int(interval" in line for line in lines if "heads = " not in line)
    assert plan(CommandLine([*search, "heads=int(interval(1,6))"], ["-m"])).cells


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["random_trials=9", "sampler=random"],
            "hydra.sweeper.sampler=random; it is read with hydra.sweeper.sampler=",
        ),
        (["prune_after_step=9", "pruner=none"], "hydra.sweeper.pruner=none; it is read with hydra.sweeper.pruner=auto"),
        (
            ["prune_after_trials=9", "minimize=[parameters]"],
            "hydra.sweeper.minimize=[parameters]; it is read with ",
        ),
    ],
)
def test_a_word_about_a_search_that_nothing_reads_is_refused(words, said):
    pytest.importorskip("optuna")
    with pytest.raises(Mistake) as caught:
        of_search = [f"hydra.sweeper.{word}" for word in words]
        plan(CommandLine(["hydra/sweeper=optuna_search", "seed=0,1", *of_search], ["-m"]))
    assert str(caught.value).startswith(f"hydra.sweeper.{words[0]}: nothing reads it with {said}")


def test_all_wrong_cells_are_named_and_none_is_kept():
    with pytest.raises(Mistake) as caught:
        plan(CommandLine(["heads=6,1000", "hidden_size=64,abc"], ["-m"]))
    for words in ("heads=6 hidden_size=abc", "heads=1000 hidden_size=64", "heads=1000 hidden_size=abc"):
        assert words in str(caught.value)
    assert "3 of 4 cells are wrong" in str(caught.value)


def test_a_mistake_of_several_cells_is_said_once():
    with pytest.raises(Mistake) as caught:
        plan(CommandLine(["seed=range(0,5)", "norm=pre,pots"], ["-m"]))
    first, second = str(caught.value).splitlines()
    assert first.startswith("seed=0 norm=pots, seed=1 norm=pots and 3 more: norm = 'pots': must be one of")
    assert second == "  5 of 10 cells are wrong; none was started"


@pytest.mark.parametrize("variant", ["talking_heads", "differential", "additive"])
def test_a_kernel_that_cannot_compute_a_variant_refuses_its_cells_before_one_begins(tiny, variant):
    words = [*tiny, "heads=2", "backend=sdpa"]
    cells = [compose([f"variant={each}", *words]) for each in ("multi_head", variant)]
    assert len(check_buildable(cells[:1])) == 1
    with pytest.raises(Mistake, match=rf"variant={variant}: backend: sdpa can't do this: [^\0]*1 of 2 cells are wrong"):
        check_buildable(cells)


@pytest.mark.parametrize("words", [["backend=cuda"], ["backend=sdpa", "trainer.device=cuda"]])
def test_a_kernel_that_only_another_machine_has_is_left_to_it(tiny, words):
    given = [word for word in tiny if not word.startswith("trainer.device=")]
    planned = plan(CommandLine([*given, *words, "hydra/launcher=submitit_slurm"], ["-m"]))
    assert isinstance(planned, HydraSweep) and len(check_buildable(planned.cells, runs_here=False)) == 1
    with pytest.raises(Mistake, match="GPU"):
        check_buildable(planned.cells)


def test_a_sweep_is_known_by_its_words_not_their_order():
    def name(*overrides: str) -> str:
        return CommandLine([*overrides], ["-m"]).sweep

    assert name("heads=6,12", "seed=0,1") == name("seed=0,1", "heads=6,12")
    assert name("heads=6,12") != name("heads=6,24")
    assert name("heads=6,12", "hydra/launcher=joblib") == name("heads=6,12")


def test_cells_are_the_same_however_they_are_composed():
    """Values and interpolations are the same as if each cell were composed separately."""
    overrides = ["seed=3,4", "variant=multi_head,talking_heads", "heads=2,4", "learning_rate=1e-3,2e-3", "length=16"]
    combinations = itertools.product(*(values.split(",") for values in (each.split("=")[1] for each in overrides)))
    keys = [each.split("=")[0] for each in overrides]
    expected = [compose([f"{key}={value}" for key, value in zip(keys, each, strict=True)]) for each in combinations]
    assert plan(CommandLine(overrides, ["-m"])).cells == expected


def test_ten_thousand_cells_are_planned_and_more_are_refused_at_once():
    assert len(plan(CommandLine(["seed=range(0,2500)", "layers=1,2,3,4"], ["-m"])).cells) == 10_000
    for overrides in (["seed=range(0,10001)"], ["seed=range(0,1000000000000)"], ["seed=range(0,5000)", "heads=1,2,3"]):
        with pytest.raises(Mistake, match=r"cells: a sweep has at most 10,000"):
            plan(CommandLine(overrides, ["-m"]))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed=range(0,5,0)", "a step other than 0"),
        ("seed=range(5,0)", "lists no value"),
        ("learning_rate=range(0.0,1.0,0.0)", "a step other than 0"),
        ("seed=interval(0,1)", "glob(...); hydra/sweeper=optuna_search draws from an interval"),
        ("variant=glob(nope*)", "lists no value"),
        ("seed=range(-20,0)", "and 10 more"),
    ],
)
def test_lists_without_values_are_named(override, message):
    with pytest.raises(Mistake, match=re.escape(message)):
        plan(CommandLine([override], ["-m"]))


def test_the_folder_of_runs_may_refer_to_other_settings():
    words = ["runs=${data.train}-runs", "data=text", "data.train=book.txt", "seed=0,1"]
    assert {cell.runs for cell in plan(CommandLine(words, ["-m"])).cells} == {"book.txt-runs"}
    for wrong, said in (
        ("runs=${nope}", "runs refers to it, but there is no setting 'nope'"),
        ("runs=${oc.env:NOPE}", "NOPE"),
    ):
        with pytest.raises(Mistake, match=said):
            plan(CommandLine([wrong, "seed=0,1"], ["-m"]))


def test_a_search_is_kept_beside_its_runs():
    pytest.importorskip("optuna")
    words = ["hydra/sweeper=optuna_search", "runs=of-${variant.name}", "variant=talking_heads", "seed=0,1"]
    assert plan(CommandLine(words, ["-m"])).folder.parent == Path("of-talking_heads/sweeps")


def test_another_space_is_another_search():
    pytest.importorskip("optuna")
    planned = plan(CommandLine(["hydra/sweeper=optuna_search", "variant=glob(logits*)"], ["-m"]))

    def folder(*overrides: str) -> Path:
        return planned._replace(space=space_of([*overrides])).folder

    assert folder("variant=logits_only,talking_heads") != folder("variant=glob(logits*)") == planned.folder
    # as an overlay may list them
    assert folder("variant=glob(logits*)", "seed=0,1") != planned.folder


def test_a_wrong_expression_is_shown_as_it_was_written():
    said = "seed=${times:1}: seed: ${times:1}: must be ${times:FACTOR,NUMBER}"
    with pytest.raises(Mistake, match=re.escape(said)):
        plan(CommandLine(["seed=${times:1},2"], ["-m"]))


JOBLIB = "hydra/launcher=joblib"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hydra/launcher=basic,joblib"], "hydra/launcher=basic,joblib: each of Hydra's own settings has one value"),
        (["hydra/sweeper=basic,optuna_search"], "each of Hydra's own settings has one value"),
        (["hydra.mode=RUN,MULTIRUN"], "each of Hydra's own settings has one value"),
        (["hydra.sweep.mode=1", "hydra.sweep.mode=2"], "hydra.sweep.mode is given twice: hydra.sweep.mode=1 and"),
        (["hydra.mode=mutlirun"], "hydra.mode=mutlirun: must be one of RUN, MULTIRUN (did you mean MULTIRUN?)"),
        (["hydra/launcher=null"], "each of Hydra's own settings has one value"),
        (["~hydra/launcher"], "each of Hydra's own settings has one value"),
        (["hydra.sweeper.params={seed:'1,2'}"], "list the values in the overrides: seed=1,2"),
        (["+hydra.sweeper.params.seed='1,2'", JOBLIB], "list the values in the overrides: seed=1,2"),
        (["hydra.sweeper.max_batch_size=1"], "hydra/launcher=basic hydra/sweeper=basic do not read it"),
        (["hydra.launcher.n_jobs=1"], "hydra/launcher=basic hydra/sweeper=basic do not read it"),
        (["hydra.sweep.dir=zz"], "do not read it\n  runs=FOLDER is the folder of the runs"),
        (["hydra.sweep.dir=zz", JOBLIB], "do not read it\n  runs=FOLDER is the folder of the runs"),
        (["hydra.job.env_copy=[NOPE]", JOBLIB], "hydra.job.env_copy: the environment has no NOPE"),
        (["hydra.run.dir=zz", JOBLIB], "hydra/launcher=joblib hydra/sweeper=basic do not read it"),
        (["hydra.job.chdir=true", JOBLIB], "hydra/launcher=joblib hydra/sweeper=basic do not read it"),
        (["hydra.launcher._target_=os.system", JOBLIB], "hydra/launcher=joblib hydra/sweeper=basic do not read it"),
    ],
)
def test_a_setting_of_hydras_that_a_sweep_does_not_read_is_refused(words, said):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    with pytest.raises(Mistake, match=re.escape(said)):
        plan(CommandLine([*words, "heads=6,12"], ["-m"]))


def test_what_hydra_reads_for_its_launchers_is_taken():
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    jobs = ["hydra.launcher.n_jobs=1", "+hydra.job.env_set.KEY=1", "hydra.job.env_copy=[PATH]"]
    read = [*jobs, "hydra.sweeper.max_batch_size=1"]
    assert len(plan(CommandLine([JOBLIB, *read, "heads=6,12"], ["-m"])).cells) == 2


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("hydra/launcher=joblib", "\n  add -m for a sweep"),
        ("hydra.sweeper.params={seed:'1,2'}", "\n  add -m for a sweep"),
        ("hydra.run.dir=zz", ""),
        ("hydra.job.chdir=true", ""),
    ],
)
def test_a_single_run_takes_no_setting_of_hydras_but_its_mode(word, hint):
    with pytest.raises(Mistake, match=re.escape(f"{word}: a single run does not read it{hint}") + "$"):
        plan(CommandLine([word], []))
    assert isinstance(plan(CommandLine(["hydra.mode=RUN"], [])), SingleRun)
