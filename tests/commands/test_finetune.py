"""`attn finetune`, whole: it learns what can be learned, goes on after a kill, and says what is wrong."""

from __future__ import annotations

import json
import shutil
import string
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from experiments.cells.cell import execute
from experiments.commands.compare import compare_runs
from experiments.commands.evaluate import evaluate_runs
from experiments.commands.export_checkpoint import export_run
from experiments.commands.finetune import finetune
from experiments.commands.import_checkpoint import import_checkpoint
from experiments.config.compose import compose
from experiments.config.recorded import override
from experiments.dashboard.page import page_data
from experiments.dashboard.runs import chosen_runs
from experiments.data.tokenizer import SPECIAL
from experiments.failures.failure import Mistake
from experiments.files.digest import file_digest
from experiments.record.checkpoint_paths import PREFIX
from experiments.record.folder import RunFolder, config_text
from experiments.results.index import Index
from experiments.settings.finetuning import FinetuningSettings
from experiments.tasks.finetuning.squad import squad_scores
from experiments.training.step.learner import Learner
from tests.fixtures.finetuning import PRETRAINING
from tests.fixtures.outcome import outcome

ALPHABET = [*string.ascii_lowercase, *(f"##{letter}" for letter in string.ascii_lowercase)]
ROOT = Path(__file__).resolve().parents[2]


def test_a_run_whose_path_has_an_equals_sign_is_a_run(tmp_path, monkeypatch):
    (run := tmp_path / "sweep=2" / "a").mkdir(parents=True)
    (run / "config.yaml").touch()
    monkeypatch.setattr("experiments.commands.finetune.launch_with", lambda options, line: line.overrides)
    assert finetune([str(run), "task=sst2"]) == ["task=sst2", f"pretrained='{run}'"]
    assert finetune(["sweep=2/a", "task=sst2", f"runs={tmp_path}"])[-1] == f"pretrained='{run}'"


def test_the_first_word_is_learned(tune, pretrained, home):
    folder = tune("sst2", "epochs=6", "batch_size=16")
    result = RunFolder(folder).result()
    assert result.status == "done" and result.scores["accuracy"] > 97
    assert result.perplexity is None and result.validation_loss < result.unigram_loss
    predictions = json.loads((folder / "predictions.json").read_text())
    assert len(predictions) == 40 and set(predictions) == {"negative", "positive"}
    assert result.steps == 75 and result.epochs == pytest.approx(6)
    assert result.tokens < 75 * 16 * 32, "padding is not counted"
    config = RunFolder(folder).config()
    assert config["origin"]["run"] == pretrained.name
    digest = next(pretrained.glob("checkpoint/best-*.sha256")).read_text().strip()
    assert config["origin"]["digest"] == digest and f"sst2-from-{digest[:8]}-multi_head" in folder.name


def test_the_word_after_a_marker_is_found_in_windows(tune, home):
    folder = tune("squad", "epochs=6")
    result = RunFolder(folder).result()
    assert result.scores["exact_match"] > 80 and result.scores["f1"] >= result.scores["exact_match"]
    rows = [json.loads(line) for line in (home / "asked_dev.jsonl").read_text().splitlines()]
    predictions = json.loads((folder / "predictions.json").read_text())
    assert predictions.keys() == {row["id"] for row in rows}
    assert all(predictions[row["id"]] in row["context"] for row in rows)
    again = squad_scores({row["id"]: row["answers"]["text"] for row in rows}, predictions)
    assert again == result.scores
    assert len(rows) < result.config["trainer"]["batch_size"] * 10


def test_it_starts_from_the_pretrained_weights_and_the_seed_draws_the_head(tune, pretrained):
    words = ("epochs=null", "max_steps=1", "learning_rate=1e-12")
    stored = load_file(next(pretrained.glob("checkpoint/best-*.safetensors")))
    heads = []
    for seed in (0, 1):
        tuned = load_file(max(tune("sst2", *words, f"seed={seed}").glob("checkpoint/step-*.safetensors")))
        body = {name: tensor for name, tensor in tuned.items() if name.startswith("model/body.")}
        assert body
        for name, tensor in body.items():
            assert tensor.allclose(stored[name.replace("body.", "", 1)], atol=1e-6), name
        heads.append(tuned["model/head.output.weight"])
    assert not heads[0].allclose(heads[1])


def test_cut_in_the_middle_it_goes_on_with_the_same_bytes(tune, words, tmp_path, monkeypatch):
    more = ("max_steps=14", "epochs=null", "batch_size=8", "trainer.checkpoint_every=3", "trainer.evaluate_every=20")
    whole = tune("squad", *more)
    again = words("squad", *more, f"runs={tmp_path / 'cut'}")
    take = Learner.take

    def cut(learner, step, learning_rate):
        if step == 8:
            raise SystemExit
        return take(learner, step, learning_rate)

    with monkeypatch.context() as patched, pytest.raises(SystemExit):
        patched.setattr(Learner, "take", cut)
        finetune(again)
    folder = tmp_path / "cut" / whole.name
    assert RunFolder(folder).result().status != "done"
    assert finetune(again) == 0
    assert "going on from step 6" in (folder / "log.txt").read_text()
    assert outcome(RunFolder(folder)) == outcome(RunFolder(whole))


def test_several_seeds_are_a_sweep_that_is_skipped_when_done(attn, words, tmp_path, capsys):
    line = ["finetune", *words("sst2", "seed=0,1", "epochs=null", "max_steps=2"), "-m"]
    assert finetune([*line[1:], "--dry-run"]) == 0
    assert capsys.readouterr().out.count("to do") == 2 and not (tmp_path / "runs").exists()
    first = attn(*line)
    assert first.returncode == 0, first.stdout + first.stderr
    assert finetune(line[1:]) == 0
    assert capsys.readouterr().out.count("finished before") == 2
    assert len(list((tmp_path / "runs").glob("sst2-*/result.json"))) == 2


def test_what_was_fine_tuned_is_compared_by_its_scores(tune, pretrained, home, tmp_path, capsys):
    folder = tune("sst2", "epochs=null", "max_steps=2")
    runs = tmp_path / "runs"
    (runs / pretrained.name).symlink_to(pretrained)
    capsys.readouterr()
    compare_runs([], runs, "loss", "json")
    rows = json.loads(capsys.readouterr().out)
    assert [row["task"] for row in rows] == [None, "sst2"] and rows[0]["accuracy"] is None
    assert rows[1]["accuracy"] == RunFolder(folder).result().scores["accuracy"]
    compare_runs(["task=sst2"], runs, "-accuracy", "markdown")
    table = capsys.readouterr().out
    assert "accuracy" in table and "perplexity" not in table and pretrained.name not in table.split("sst2-from")[0]
    compare_runs([], runs, "loss", "table")
    assert "perplexity" in capsys.readouterr().out
    with Index(runs) as index:
        assert [each["run"] for each in chosen_runs([], runs, index)] == [pretrained.name]
        assert [each["run"] for each in chosen_runs(["task=sst2"], runs, index)] == [folder.name]
    data = page_data(["task=sst2"], runs)
    assert data["task"] == "sst2" and data["scores"] == ["accuracy"] and "accuracy" not in data["settings"]
    evaluate_runs([folder.name, f"task.validation={home / 'labelled_train.jsonl'}"], runs, "newest", "json")
    shown = capsys.readouterr()
    (score,) = json.loads(shown.out)
    assert score["tokens"] == 200 and 0 <= score["accuracy"] <= 100
    assert "was trained on text of this validation split" in shown.err
    with pytest.raises(Mistake, match="is scored on its validation split"):
        evaluate_runs([folder.name, "split=train"], runs, "newest", "json")
    with pytest.raises(Mistake, match=r"task=cola has labels = \['unacceptable', 'acceptable'\]: .* was trained with"):
        evaluate_runs([folder.name, "task=cola"], runs, "newest", "json")
    examples = [f"task.{split}={home / 'labelled_train.jsonl'}" for split in ("train", "validation")]
    reviews = ["task=chnsenticorp", "task.texts=[sentence]", *examples]
    evaluate_runs([folder.name, *reviews], runs, "newest", "json")
    assert json.loads(capsys.readouterr().out) == [score]
    evaluate_runs([folder.name, "length=12"], runs, "newest", "json")
    assert json.loads(capsys.readouterr().out)[0]["run"] == folder.name
    other = override(RunFolder(folder).config(), ["task=squad"])
    assert isinstance(other, FinetuningSettings) and other.task.document_stride == other.length // 3
    with pytest.raises(Mistake, match=rf"is a fine-tuned run\n  name the pretrained run: {pretrained.name}"):
        export_run(folder.name, tmp_path / "exported", runs, "best", None)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["task=sqad"], ["no task 'sqad'", "did you mean squad?"]),
        (["tsk=squad"], ["which task?", "there are: chnsenticorp, cmrc2018, cola, iflytek, mnli"]),
        (["task=squad", "heads=4"], ["the pretrained run decides heads"]),
        (["task=squad", "variant=additive"], ["the pretrained run decides variant"]),
        (["task=squad", "learning_rat=1"], ["did you mean learning_rate?"]),
        (["task=squad", "task.n_bset=1"], ["did you mean task.n_best?"]),
        (["task=squad", "epochs=-1"], ["epochs = -1", "greater than 0"]),
        (["task=squad", "task.max_answer=none"], ["task.max_answer = 'none'", "whole number"]),
        (["task=squad", "task.max_question=29"], ["task.max_question = 29", "at most 28"]),
        (["task=sst2", "task.metrics=[bleu]"], ["task.metrics", "'bleu'", "accuracy, f1, matthews"]),
        (["task=sst2", "task.metrics=3"], ["task.metrics = 3: must be a list"]),
        (["task=sst2", "task.metrics=[[f1]]"], ["task.metrics.0 = ['f1']: must be one of accuracy, f1, matthews"]),
        (["task=squad", "task.scores_of=[cmrc]"], ["task.scores_of = ['cmrc']: must be one of squad, cmrc"]),
        (["task=squad", "task.kind=spam"], ["task.kind = 'spam': must be one of span", "did you mean span?"]),
        (["task=mnli", "task.metrics=[f1]"], ["f1 needs two labels"]),
        (["task=squad", "checkpoint=bst"], ["one of best, newest", "did you mean best?"]),
        (["task=squad", "trainer.evaluation_sequences=4"], ["task.validation_examples"]),
        (["task=squad", "trainer.label_smoothing=0.1"], ["trainer.label_smoothing = 0.1", "no labels to smooth"]),
        (["task=squad", "trainer.max_tokens=100"], ["set epochs or max_steps"]),
        (["task=squad", "epochs=null"], ["the run has no end: max_steps, epochs and trainer.max_minutes are null"]),
        (["task=squad", "epochs=null", "trainer.max_minutes=1"], ["set max_steps or epochs too"]),
        (["task=squad", "+more=1"], ["do not add or remove"]),
        (["task=squad", "pretrained=x"], ["give the run without a key"]),
    ],
)
def test_mistakes(pretrained, tmp_path, monkeypatch, more, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Mistake) as caught:
        finetune([str(pretrained), *more])
    assert all(part in str(caught.value) for part in said), caught.value
    assert not any(tmp_path.iterdir())


def test_a_wrong_dropout_is_named_as_it_was_given(pretrained):
    with pytest.raises(Mistake, match=r"^dropout = 2: must be less than 1$"):
        finetune([str(pretrained), "task=squad", "dropout=2"])


def test_mistakes_of_the_run_and_the_data(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def refused(*line: str) -> str:
        with pytest.raises(Mistake) as caught:
            finetune(list(line))
        assert not any((tmp_path / "runs").glob("*"))
        return str(caught.value)

    other = next(word for word in words("squad") if word.startswith("task.train="))
    assert "which run?" in refused()
    assert "no run 'absent'" in refused("absent", "task=squad")
    assert "a and b: several values need a sweep\n  add -m" in refused("a", "b", "task=squad")
    assert "no such file" in refused(*words("sst2", "task.train=absent.jsonl"))
    assert "no such column" in refused(*words("sst2", other))
    both = [word.replace("labelled_train", "labelled_dev") for word in words("sst2")]
    assert "task.train and task.validation both contain" in refused(*both)
    said = refused(*words("sst2", "task.revision=v2"))
    assert said.startswith("task.revision=v2: nothing reads it with task.train=") and said.endswith(
        "with task.train=SPLIT"
    )
    assert "has 200 windows" in refused(*words("sst2", "batch_size=1000"))
    assert "no such file" in refused(*words("sst2", "task.train=absent.jsonl", "seed=0,1"), "-m")
    (tmp_path / "rows.txt").write_text("sentence\tlabel\n")
    assert "must end in .parquet" in refused(*words("sst2", "task.train=rows.txt", "seed=0,1"), "-m")
    (tmp_path / "rows.tsv").write_text("sentence\tlabel\nyes\t2\n")
    assert "rows.tsv, line 2: unknown label '2'" in refused(*words("sst2", "task.train=rows.tsv"))


def test_a_search_for_a_score_that_the_task_does_not_have_is_refused_before_anything_is_trained(words):
    pytest.importorskip("optuna")
    search = ["hydra/sweeper=optuna_search", "hydra.sweeper.minimize=[]", "hydra.sweeper.maximize=[scores.acuracy]"]
    said = r"scores\.acuracy: .* no such number \(did you mean scores\.accuracy\?\)\n  there are: scores\.accuracy, val"
    with pytest.raises(Mistake, match=said):
        finetune([*words("sst2", "seed=0,1", *search), "-m"])
    with pytest.raises(Mistake, match="perplexity: the trials have no such number\n  there are: scores"):
        finetune([*words("sst2", "seed=0,1", search[0], "hydra.sweeper.minimize=[perplexity]"), "-m"])


def test_a_mistake_is_a_line_and_code_2(attn, pretrained, tmp_path):
    done = attn("finetune", str(pretrained), "task=sqad")
    assert done.returncode == 2 and "did you mean squad?" in done.stderr and "Traceback" not in done.stderr
    absent = pretrained.name.replace("multi_head", "multi_haed")
    done = attn("finetune", absent, "task=squad", f"runs={pretrained.parent}")
    assert done.returncode == 2 and f"there is no run {absent!r}" in done.stderr and "Traceback" not in done.stderr
    assert f"did you mean {pretrained.name}?" in done.stderr
    done = attn("train", "task=squad")
    assert done.returncode == 2 and "it is a setting of `attn finetune`" in done.stderr
    assert not any(tmp_path.iterdir())


def test_windows_may_be_longer_than_the_pretrainings_where_positions_have_no_table(tune):
    assert RunFolder(tune("sst2", "length=48", "epochs=null", "max_steps=1")).result().config["model"]["length"] == 48


def test_an_imported_bert_is_fine_tuned_with_windows_as_long_as_its_table_or_shorter(tune, home, tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=len(SPECIAL) + len(ALPHABET), hidden_size=24, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=36, max_position_embeddings=64,
    )  # fmt: skip
    theirs = transformers.BertForMaskedLM(config)
    theirs.save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs" / "vocab.txt").write_text("\n".join([*SPECIAL, *ALPHABET]) + "\n")
    text = [f"data.train={home / 'text.txt'}", f"cache={home / 'cache'}", "trainer.device=cpu"]
    import_checkpoint(str(tmp_path / "theirs"), "mine", tmp_path / "imported", ["data=text", *text])
    mine = str(tmp_path / "imported" / "mine")
    with pytest.raises(Mistake, match=r"length = 65: model\.position=learned has a table of 64 positions"):
        finetune([mine, "task=sst2", "length=65"])
    folder = tune("sst2", "length=48", "epochs=null", "max_steps=1", "learning_rate=1e-12", run=mine)
    newest = max(folder.glob("checkpoint/step-*.safetensors"))
    table = load_file(newest)["model/body.embedding.position.weight"]
    assert_close(table, theirs.bert.embeddings.position_embeddings.weight[:48].detach(), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("task", "library"), [("cola", "sklearn"), ("cmrc2018", "nltk")])
def test_a_score_without_its_library_is_said_at_once(task, library, pretrained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("experiments.failures.missing_extra.find_spec", lambda name: None)
    with pytest.raises(Mistake, match=rf"the score of task={task} needs {library}\n.*\[finetune\]"):
        finetune([str(pretrained), f"task={task}"])
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("trouble", ["missing", "flipped", "no checksum"])
@pytest.mark.parametrize("which", ["newest", "best"])
def test_an_earlier_checkpoint_than_that_of_the_pretrained_run_is_named(tune, pretrained, tmp_path, which, trouble):
    """The words are those of other commands, whatever happened to the later one."""
    said = f"is an earlier checkpoint than the {which} one of the finished run, which is missing or damaged"
    words = ("epochs=null", "max_steps=1", f"checkpoint={which}")
    folder = tmp_path / "pretraining" / pretrained.name
    shutil.copytree(pretrained, folder)
    assert said not in (tune("sst2", *words, run=str(folder)) / "log.txt").read_text()
    last = max(folder.glob(f"checkpoint/{PREFIX[which]}-*.safetensors"))
    earlier = last.with_name(f"{PREFIX[which]}-000000003.safetensors")
    with safe_open(last, framework="pt") as file:
        header = json.loads(file.metadata()["header"]) | {"validation_loss": 9.0}
    save_file(load_file(last), earlier, {"header": json.dumps(header)})
    earlier.with_suffix(".sha256").write_text(file_digest(earlier) + "\n")
    if trouble == "flipped":
        last.write_bytes(last.read_bytes()[:-1] + b"?")
    else:
        (last if trouble == "missing" else last.with_suffix(".sha256")).unlink()
    tuned = tune("sst2", *words, run=str(folder))
    assert f"{earlier}: {said}" in (tuned / "log.txt").read_text()
    assert RunFolder(tuned).config()["origin"]["step"] == 3
    earlier.unlink()
    with pytest.raises(Mistake, match=f"there is no good {which} checkpoint"):
        for each in folder.glob(f"checkpoint/{PREFIX[which]}-*.safetensors"):
            each.unlink()
        tune("sst2", *words, run=str(folder))


def test_a_run_whose_variant_is_not_here_is_refused(pretrained, tmp_path, monkeypatch):
    """It may come from another branch, or its file has another name by now."""
    monkeypatch.setattr(RunFolder, "check_files", lambda folder: None)
    folder = shutil.copytree(pretrained, tmp_path / pretrained.name)
    settings = RunFolder(folder).config()
    settings["variant"] |= {"name": "gone", "module": "gone"}
    (folder / "config.yaml").write_text(config_text(settings))
    with pytest.raises(Mistake, match=r"code that attn does not have here: there is no attention/gone\.py\n  plugins="):
        finetune([str(folder), "task=sst2"])


def test_a_run_is_found_in_the_folder_that_runs_names_in_quotes_too(pretrained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(pretrained, tmp_path / "my runs" / pretrained.name)
    arguments = [pretrained.name, "task=sst2", "--dry-run"]
    for runs in ("runs='my runs'", "runs=my runs"):
        assert finetune([*arguments, runs]) == 0 and "to do" in capsys.readouterr().out
    with pytest.raises(Mistake, match=r"runs=a,b: must be one folder"):
        finetune([*arguments, "-m", "runs=a,b"])


def test_a_run_that_is_not_finished_is_refused(pretrained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "begun").mkdir()
    shutil.copy(pretrained / "config.yaml", tmp_path / "begun")
    with pytest.raises(Mistake, match=r"begun.*not finished"):
        finetune([str(tmp_path / "begun"), "task=sst2"])
    assert [path.name for path in tmp_path.iterdir()] == ["begun"]


# the models that need other settings: a decoder, and an encoder-decoder, which has no token types
MODELS = {"causal": [], "span_corruption": ["objective.sentinels=20", "model.position=relative"]}


def trained_by(objective: str, home: Path, tmp_path: Path) -> str:
    """The folder of a model that another objective trained, with windows shorter than the rows of span corruption."""
    own = [f"runs={tmp_path / 'own'}", f"cache={home / 'cache'}", "data=text", f"data.train={home / 'text.txt'}"]
    model = MODELS.get(objective, ["model.token_types=2"])
    others = [word for word in PRETRAINING if not word.startswith("length=")]
    assert execute(compose([*others, "length=12", *own, f"objective={objective}", *model])) == 0
    (run,) = (path for path in (tmp_path / "own").iterdir() if path.is_dir())
    return str(run)


def tuned_from(run: str, tune, *more: str):
    result = RunFolder(tune("sst2", "batch_size=16", *more, run=run)).result()
    assert result.status == "done" and result.order_loss is None and result.perplexity is None
    return result


@pytest.mark.parametrize("objective", ["masked_sop", "permutation", "causal", "span_corruption"])
def test_what_another_objective_trained_is_fine_tuned_too(tune, words, home, tmp_path, capsys, objective):
    run = trained_by(objective, home, tmp_path)
    assert finetune([*words("sst2", run=run), "--dry-run"]) == 0
    assert "to do" in capsys.readouterr().out
    result = tuned_from(run, tune, "epochs=1")
    assert result.scores.keys() == {"accuracy"} and result.validation_loss < 1


@pytest.mark.campaign
@pytest.mark.parametrize("objective", ["masked_sop", "permutation", "causal", "span_corruption"])
def test_what_another_objective_trained_learns_too(tune, home, tmp_path, objective):
    assert tuned_from(trained_by(objective, home, tmp_path), tune, "epochs=6").scores["accuracy"] > 97


def test_other_weights_or_other_examples_are_another_run(tune, words, home, tmp_path):
    local, short = tmp_path / "train.jsonl", ("epochs=null", "max_steps=2")
    local.write_bytes((home / "labelled_train.jsonl").read_bytes())
    folder = tune("sst2", f"task.train={local}", *short)
    local.write_text("\n".join(local.read_text().splitlines()[:-1]))
    with pytest.raises(Mistake, match="was trained on a different text"):
        finetune(words("sst2", f"task.train={local}", *short))
    assert RunFolder(folder).result().status == "done"
    newest = tune("sst2", "checkpoint=newest", *short)
    assert newest.name != folder.name
    with pytest.raises(Mistake, match="is itself a fine-tuned run"):
        finetune([str(folder), "task=sst2"])


def test_numbers_are_learned_too(tune, home, tmp_path):
    rows = [json.loads(line) for line in (home / "labelled_train.jsonl").read_text().splitlines()]
    pairs = [{"sentence1": row["sentence"], "sentence2": "so", "label": 5.0 * row["label"]} for row in rows]
    train, validation = tmp_path / "train.json", tmp_path / "validation.json"
    train.write_text(json.dumps(pairs[:-10]))
    validation.write_text(json.dumps(pairs[-10:]))
    own = (f"task.train={train}", f"task.validation={validation}")
    folder = tune("sst2", "task=stsb", *own, "epochs=8", "batch_size=17")
    result = RunFolder(folder).result()
    assert result.scores["pearson"] > 0.75 and result.unigram_loss is None
