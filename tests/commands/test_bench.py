"""`attn bench`: what is timed is checked first, shares its sizes, and is printed whole."""

from __future__ import annotations

import csv
import functools
import io
import itertools
import json
import re
import sys
from pathlib import Path

import pytest
import torch

from attention.kernels import blocked
from attention.kernels.problem import Problem, Projection
from attention.layers import attend as core
from experiments.bench import rounds, side_by_side
from experiments.bench.check import check
from experiments.bench.contenders import Contender, Work, build, initialized_model, made_up_batch
from experiments.bench.figure import check_plot, described
from experiments.bench.peers import PEERS
from experiments.bench.rounds import Timing
from experiments.bench.side_by_side import groups
from experiments.bench.worker import Turn, Worker, repeat
from experiments.commands.bench import bench
from experiments.commands.frame.options import BenchOptions
from experiments.config.compose import compose
from experiments.failures.failure import Failure, Mistake
from experiments.measure.roofline import Rates, seconds
from experiments.processes.answering import AnswererEnded
from experiments.processes.environment_variables import ADDED, TUNED, set_performance_variables

LAYER = ["hidden_size=16", "heads=2", "length=9", "batch_size=2"]
TINY = ["hidden_size=16", "heads=2", "layers=1", "length=9", "batch_size=2", "tokenizer.vocabulary_size=300"]
CPU = ["trainer.device=cpu", "precision=fp32"]
VARIANTS = sorted(path.stem for path in (Path(__file__).parents[2] / "conf" / "variant").glob("*.yaml"))


def contender(*words: str, scope: str = "attention", peer: str = "") -> Contender:
    varied = {word.split("=")[0] for word in words}
    return Contender(
        compose([*(word for word in (*TINY, *CPU) if word.split("=")[0] not in varied), *words]), scope, peer
    )


def options(scope: str = "attention", peers: bool = False) -> BenchOptions:
    return BenchOptions(scope=scope, peers=peers, rounds=2)


class Inside(Worker):
    """A contender within this process. It runs the same code, but its memory can't be measured separately."""

    def __init__(self, contender):
        self.device, self.built = contender.device, build(contender)

    def __exit__(self, kind, error, trace):
        return None

    def work(self):
        return self.built.work

    def go(self, times):
        took = seconds(functools.partial(repeat, self.built.run, times), self.device) / times
        return Turn(took, 1, self.built.kernels())


@pytest.fixture
def inside(short_timings, monkeypatch):
    """Run the contenders within this process, with short timings."""
    monkeypatch.setattr(rounds, "Worker", Inside)


@pytest.mark.usefixtures("inside")
def test_a_table_of_variants(capsys):
    words = [*LAYER, *CPU, "variant=multi_head,talking_heads", "model=nano", "model.linear_bias=false"]
    assert bench(words, options(), "json", None) == 0
    rows = json.loads(capsys.readouterr().out)
    kernels = {variant: core.choose("auto", problem_of(variant)) for variant in ("multi_head", "talking_heads")}
    assert {row["contender"]: row["backend"] for row in rows} == kernels
    for row in rows:
        assert row["length"] == 9
        assert row["tokens_per_second"] == pytest.approx(2 * 9 / row["milliseconds"] * 1000)
        assert row["floor_share"] > 0 and row["peak_bytes"] > 0
    assert rows[0]["speed/first"] == 1


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize(("waited", "said"), [(None, ""), (0.05, ""), (0.3, "waited 30% of its time for a core")])
def test_a_busy_machine_is_said(capsys, monkeypatch, waited, said):
    go = Inside.go
    monkeypatch.setattr(Inside, "go", lambda self, times: go(self, times)._replace(waited=waited))
    assert bench([*LAYER, *CPU], options(), "json", None) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)[0]["waited_for_cores"] == waited
    assert said in printed.err and bool(printed.err) == bool(said)


def problem_of(variant: str):
    cell = contender(f"variant={variant}").settings
    query = torch.zeros(2, 9, 2, 8)
    eye = Projection(torch.eye(2)) if variant == "talking_heads" else None
    assert cell.variant["name"] == variant
    return Problem.of(query, query, query, logits_projection=eye, weights_projection=eye)


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_kernel_whose_numbers_are_wrong_gets_no_speed(monkeypatch, capsys, precision):
    def wrong(problem):
        return blocked.attend(problem._replace(scale=1.02 * problem.scale))

    monkeypatch.setitem(core.KERNELS, "blocked", wrong)
    words = [*LAYER, CPU[0], f"precision={precision}", "variant=talking_heads", "backend=blocked,reference"]
    assert bench(words, options(), "csv", None) == 1
    printed = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(printed.out)))
    assert [row["backend"] for row in rows] == ["reference"]
    assert "kernel blocked" in printed.err
    assert "output has a relative error" in printed.err and "gradient of x has a relative error" in printed.err


@pytest.mark.usefixtures("inside")
def test_a_backend_that_cannot_do_a_variant_is_named_and_the_others_are_timed(capsys):
    words = [*LAYER, *CPU, "variant=multi_head,talking_heads", "backend=sdpa"]
    assert bench(words, options(), "csv", None) == 0
    printed = capsys.readouterr()
    assert [row["contender"] for row in csv.DictReader(io.StringIO(printed.out))] == ["multi_head"]
    assert (
        "talking_heads" in printed.err
        and "not timed: variant=talking_heads: backend: sdpa can't do this" in printed.err
    )
    with pytest.raises(Mistake, match="nothing is left to be timed"):
        bench([*LAYER, *CPU, "variant=talking_heads", "backend=sdpa"], options(), "csv", None)


@pytest.mark.parametrize("error", [0, 0.01])
def test_a_kernel_without_float64_is_compared_in_the_precision_that_is_timed(monkeypatch, error):
    def single(problem):
        assert problem.value.dtype == torch.float32
        return blocked.attend(problem) * (1 + error)

    monkeypatch.setitem(core.REFUSALS, "cuda", lambda problem: None)
    monkeypatch.setitem(core.KERNELS, "cuda", single)
    found = check(contender("variant=talking_heads", "backend=cuda"))
    assert found.kernel == "cuda" and ("output has a relative error" in found.error) == bool(error)


def test_a_kernel_that_is_wrong_in_its_gradient_or_in_low_precision_only_is_found(monkeypatch):
    right = blocked._gradients

    def wrong(*arguments):
        query, key, value, logits, *rest = right(*arguments)
        return [query, key, value, 1.001 * logits, *rest]

    monkeypatch.setattr(blocked, "_gradients", wrong)
    found = check(contender("variant=talking_heads", "backend=blocked"))
    assert found.error.startswith("gradient of logits_projection.static has a relative error")
    assert "output" not in found.error

    monkeypatch.setattr(blocked, "_gradients", right)

    def imprecise(problem):
        return blocked.attend(problem) * (1 if problem.value.dtype == torch.float64 else 1.01)

    monkeypatch.setitem(core.KERNELS, "blocked", imprecise)
    assert "output has a relative error of 1.0e-02 in fp32" in check(contender("backend=blocked")).error


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_arithmetic_that_auto_chooses_is_right_for_every_variant(variant, precision):
    assert check(contender(f"variant={variant}", f"precision={precision}", "length=65")).error == ""


def test_the_check_is_cut_to_the_sizes_whose_maps_fit(monkeypatch):
    checked, real = set(), core.KERNELS["reference"]

    def noting(problem):
        checked.add(problem.query.shape[:2])
        return real(problem)

    monkeypatch.setitem(core.KERNELS, "reference", noting)
    for largest, sizes in ((2 * 2 * 9**2, (2, 9)), (2 * 9**2, (1, 9)), (2 * 5**2, (1, 5))):
        checked.clear()
        monkeypatch.setattr("experiments.bench.check.LARGEST_MAP", largest)
        assert check(contender("backend=reference")).error == ""
        assert checked == {sizes}


@pytest.mark.usefixtures("inside")
def test_the_memory_of_the_checks_is_given_back_before_anything_is_timed(monkeypatch):
    done = []

    def note(name):
        real = getattr(side_by_side, name)
        monkeypatch.setattr(side_by_side, name, lambda *arguments: done.append(name) or real(*arguments))

    for name in ("measure_rates", "give_back_freed_memory", "timed"):
        note(name)
    assert bench([*LAYER, *CPU, "backend=reference"], options(), "csv", None) == 0
    assert done == ["measure_rates", "give_back_freed_memory", "timed"]


@pytest.mark.parametrize("peer", ["", *PEERS])
def test_a_step_of_everyone_runs(peer):
    built = build(contender("layers=2", "learning_rate=1e-2", scope="step", peer=peer))
    built.run()
    assert min(built.work) > 0 and bool(built.kernels()) == (not peer)


@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_predicts_the_masked_positions_and_learns(peer):
    cell = contender("learning_rate=1e-2").settings
    torch.manual_seed(0)
    model, batch = PEERS[peer](cell, 300), made_up_batch(cell)
    labels = torch.full_like(batch.tokens, -100)
    labels.view(-1)[batch.positions] = batch.targets
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        losses.append(model(batch.tokens, labels))
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.8 * losses[0]


def test_peak_memory_is_that_of_a_process_of_its_own():
    with Worker(contender("length=256", "batch_size=4", "variant=talking_heads", "backend=reference")) as worker:
        assert worker.work().tokens == 4 * 256
        turn = worker.go(1)
    # the reference keeps six maps at least
    assert turn.peak_bytes > 6 * 4 * 4 * 2 * 256**2 and turn.seconds > 0 and turn.kernels == ["reference"]


@pytest.mark.campaign
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_peer_has_the_environment_of_its_user_and_ours_that_of_a_training(monkeypatch):
    for name in (*TUNED, ADDED):
        monkeypatch.setenv(name, "7")
        monkeypatch.delenv(name)
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    assert set_performance_variables() == ["OMP_WAIT_POLICY", "GLIBC_TUNABLES"] and set_performance_variables() == []

    def variables(peer: str) -> dict[str, str | None]:
        with Worker(contender(scope="step", peer=peer)) as worker:
            worker.work()
            lines = Path(f"/proc/{worker.process.pid}/environ").read_text().split("\0")
        found = dict(line.split("=", 1) for line in lines if line)
        return {name: found.get(name) for name in TUNED}

    # glibc cuts the string in its place where it reads it
    keeps_memory = TUNED["GLIBC_TUNABLES"].split(":")[0]
    assert variables("") == {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "7", "GLIBC_TUNABLES": keeps_memory}
    assert variables("torch") == {"OMP_WAIT_POLICY": None, "GOMP_SPINCOUNT": "7", "GLIBC_TUNABLES": None}


@pytest.mark.campaign
def test_a_contender_that_cannot_be_built_or_dies_says_why():
    cannot = Contender(compose([*TINY[:5], *CPU, "tokenizer=file", "tokenizer.path=x.json"]), "step")
    with Worker(cannot) as worker, pytest.raises(Mistake, match="tokenizer=file: a bench does not read files"):
        worker.work()
    with Worker(contender()) as worker:
        worker.work()
        worker.process.kill()
        with pytest.raises(AnswererEnded, match="killed by SIGKILL"):
            worker.go(1)
    with Worker(contender()) as worker:
        worker.work()
        with pytest.raises(AnswererEnded, match="TypeError: 'str' object cannot be interpreted"):
            worker.go("once")


@pytest.mark.campaign
def test_a_contender_whose_process_ends_is_named_and_the_others_are_timed(monkeypatch, capsys):
    real, calls = Worker.work, itertools.count()

    def work(self):
        found = real(self)
        if next(calls) == 1:
            self.process.kill()
        return found

    monkeypatch.setattr(Worker, "work", work)
    assert bench([*LAYER, *CPU, "backend=blocked,reference"], options(), "csv", None) == 1
    printed = capsys.readouterr()
    (row,) = csv.DictReader(io.StringIO(printed.out))
    assert row["backend"] == "blocked" and row["speed/first"] == "1.0"
    assert re.search(r"attn bench: multi_head, layers=4 .*: not timed: killed by SIGKILL", printed.err)


def test_only_what_shares_its_sizes_is_timed_side_by_side():
    words = [("length=8",), ("length=9",), ("length=8", "variant=talking_heads")]
    cells = [compose([*TINY[:3], *each]) for each in words]
    assert [len(group) for group in groups(cells)] == [2, 1]


def test_a_row_shows_its_threads_and_has_the_floor_of_as_many(monkeypatch):
    threads = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setattr(side_by_side, "measure_rates", lambda *_: Rates(threads[-1] * 1e9, 1.0))
    turn, work = Turn(1.0, 1, ["reference"]), Work(tokens=1, flops=1e9, moved_bytes=0.0)
    monkeypatch.setattr(side_by_side, "timed", lambda contenders, _: [Timing([turn], turn, work) for _ in contenders])
    cells = [contender(f"trainer.threads={count}").settings for count in (1, 2)]
    others = side_by_side.other_settings(cells)
    rows, _ = side_by_side.compare(cells, "attention", 1, peers=False, compiled=False, others=others)
    assert [row["floor_share"] for row in rows] == [1.0, 0.5]
    assert [row["trainer.threads"] for row in rows] == [1, 2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rounds", "0"], "--rounds 0: must be at least 1"),
        (["--plot", "speed.gif"], "--plot speed.gif: must end in one of .svg"),
        (["heds=3"], "heads"),
        (["variant=talkin"], "talking_heads"),
        (["data=text", "data.train=nope.txt", "--scope", "step"], "data=text: a bench does not use data"),
        (["data=text"], "data=text: a bench does not use data"),
        (["data=text", "--scope", "step"], "data=text: a bench does not use data"),
        (["layers=3"], "layers=3: --scope attention does not use layers\n  it times one layer; --scope step uses it"),
        (["model.position=alibi"], "--scope attention does not use model.position\n  it times one layer"),
        (["optimizer.weight_decay=0"], "--scope attention does not use optimizer.weight_decay"),
        (["max_steps=3"], "max_steps=3: a bench does not use max_steps"),
        (["seed=range(0,65)", *LAYER], "65 contenders have the same sizes; at most 64"),
        (
            [*TINY[:4], "norm=pre,post", "optimizer=adamw,muon", "--scope", "step", "--peers"],
            "--peers: contenders of the same sizes differ in norm, learning_rate and optimizer.kind;",
        ),
        (["backend=blocked,cuda", *CPU], "backend=cuda: it runs on a CUDA GPU, not on cpu"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_measured(attn, words, said):
    done = attn("bench", *words)
    assert done.returncode == 2 and said in done.stderr and not done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["hydra/launcher=joblib", *LAYER],
        ["hydra/launcher=joblib", "--scope", "answer"],
        ["hydra/sweeper=optuna_search", "seed=0,1", *LAYER],
    ],
)
def test_a_launcher_and_a_search_are_refused(attn, words):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    pytest.importorskip("optuna")
    done = attn("bench", *words)
    assert done.returncode == 2 and "a bench times every combination on this machine" in done.stderr, done.output


@pytest.mark.usefixtures("inside")
def test_one_round_is_one_round(capsys):
    assert bench([*LAYER, *CPU, "backend=reference"], BenchOptions(scope="attention", rounds=1), "table", None) == 0
    assert "medians of 1 interleaved round\n" in capsys.readouterr().out


@pytest.mark.usefixtures("inside")
def test_a_figure_that_no_file_can_hold_is_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "speed.svg").mkdir()
    for place, said in (("speed.svg", "is a folder"), ("nowhere/speed.svg", f"there is no folder {tmp_path}/nowhere")):
        with pytest.raises(Mistake, match=f"--plot {tmp_path / place}: {said}"):
            check_plot(tmp_path / place)
    with pytest.raises(Failure, match=r"^/proc/speed\.svg: .*"):
        check_plot(Path("/proc/speed.svg"))


def test_the_command_draws_what_it_prints(attn, tmp_path):
    check_drawing(attn, tmp_path)


@pytest.mark.campaign
def test_the_command_draws_what_processes_of_their_own_do(shell, tmp_path):
    check_drawing(shell, tmp_path)


def check_drawing(attn, tmp_path):
    done = attn("bench", *LAYER, *CPU, "--rounds", "2", "--plot", str(tmp_path / "speed.svg"))
    assert done.returncode == 0, done.stderr
    assert "tokens_per_second" in done.stdout and "multi_head" in done.stdout
    assert "<svg" in (tmp_path / "speed.svg").read_text()


def test_the_bars_say_what_differs_and_the_title_says_what_they_share():
    def row(contender, backend, threads, milliseconds):
        settings = {"heads": 4, "length": 64, "trainer.threads": threads}
        return {"contender": contender, "backend": backend} | settings | {"milliseconds": milliseconds}

    rows = [row("multi_head", "sdpa", 1, 5.0), row("multi_head", "sdpa", 2, 5.0), row("a peer", None, None, 5.0)]
    shared, labels = described(rows)
    assert shared == "heads 4, length 64"
    assert labels == ["multi_head (sdpa), trainer.threads 1", "multi_head (sdpa), trainer.threads 2", "a peer"]
    assert described(rows[:1]) == ("", ["multi_head (sdpa), heads 4, length 64, trainer.threads 1"])


def test_a_step_of_span_corruption_reads_inputs_and_targets():
    cell = contender("objective=span_corruption", "model=t5_nano", "layers=1", "length=32", scope="step")
    # 34 tokens, of which 5 in two spans are taken out: 34 - 5 + 2 + 1 are read by the encoder, 5 + 2 + 1 by the decoder
    assert cell.settings.row_length == 35
    assert made_up_batch(cell.settings).inputs["tokens"].shape == (2, 32)
    assert build(cell).work.tokens == 2 * (32 + 8)


def test_a_step_of_span_corruption_has_the_ids_of_its_sentinels():
    words = ("objective=span_corruption", "model=t5_nano", "layers=1", "objective.sentinels=70")
    embedding = initialized_model(contender(*words).settings).get_submodule("embedding.token")
    assert embedding.num_embeddings == 300 + 70


def test_a_step_of_translation_reads_sentences_as_long_as_is_allowed():
    built = build(contender("objective=translation", "model=transformer_nano", "data=pairs", "data.train=absent",
                                "layers=1", "length=16", "objective.bleu_pairs=0", scope="step"))  # fmt: skip
    built.run()
    assert built.work.tokens == 2 * (16 + 16)


def test_tokens_are_made_up_within_the_vocabulary():
    batch = made_up_batch(contender().settings)
    assert batch.tokens.max() < 300 and batch.targets.min() >= 5
    with pytest.raises(Mistake, match="tokenizer"):
        made_up_batch(compose([*TINY[:5], "tokenizer=file", "tokenizer.path=x.json"]))
