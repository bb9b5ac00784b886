"""Words -> checked settings: what people type works as typed, and every mistake is named."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import yaml
from omegaconf import OmegaConf
from pydantic import ValidationError

from attention import mechanisms
from experiments.cells.cell import folder_of
from experiments.config import compose_many as module
from experiments.config.check import errors_of, from_tree
from experiments.config.compose import compose, compose_raw
from experiments.config.compose_many import Composer
from experiments.config.groups import groups, options
from experiments.config.recorded import override
from experiments.config.validation_messages import sentences
from experiments.failures.failure import Mistake
from experiments.settings import plugins
from experiments.settings.conf_files import CONF
from experiments.settings.data import DataSettings
from experiments.settings.finetuning import Classification, FinetuningSettings, Regression, Span
from experiments.settings.kinds import kinds
from experiments.settings.logger import Logger
from experiments.settings.model import Model
from experiments.settings.objective import ObjectiveSettings
from experiments.settings.optimizer import Adafactor, AdamW, Lamb, Muon
from experiments.settings.run import Settings
from experiments.settings.schedule import Decay, Endless
from experiments.settings.tokenizer import FileTokenizer, TrainedTokenizer
from experiments.settings.trainer import Trainer
from experiments.settings.variant import arguments_of, module_of, schema

# groups whose YAML feeds one class, or one of several by `kind`
CLASSES = {
    "task": [Span, Classification, Regression],
    "model": [Model],
    "objective": [*kinds("experiments.objectives.kinds", ObjectiveSettings, "ObjectiveKind").values()],
    "data": [*kinds("experiments.data.kinds", DataSettings, "DataKind").values()],
    "tokenizer": [TrainedTokenizer, FileTokenizer],
    "optimizer": [AdamW, Adafactor, Muon, Lamb],
    "schedule": [Decay, Endless],
    "trainer": [Trainer],
    "logger": [Logger],
}


def message(*words: str) -> str:
    with pytest.raises(Mistake) as caught:
        compose(list(words))
    return str(caught.value)


def test_a_variant_without_a_name_is_told_where_it_belongs():
    tree = compose([]).model_dump()
    del tree["variant"]["name"]
    with pytest.raises(Mistake, match=r"^variant.name is missing: conf/variant/NAME.yaml must contain name: NAME$"):
        from_tree(tree)


def test_the_promised_command_composes_as_typed():
    composed = compose(["variant=talking_heads", "heads=24"])
    assert composed.variant["name"] == "talking_heads"
    assert {composed.variant[key] for key in ("key_heads", "softmax_heads", "value_heads")} == {24}


def test_many_runs_compose_as_one_by_one_and_each_choice_of_groups_once(monkeypatch):
    rows = [
        ["variant=talking_heads", "heads=24", "model.position=relative"],
        ["heads=6", "variant=talking_heads", "key_size='${hidden_size}'", "optimizer.weight_decay=0.25"],
        ["variant=talking_heads", "optimizer=muon", "variant.start=identity"],
        ["cache='a, b'", "seed=7"],
    ]
    one_by_one = [compose(row).model_dump_json() for row in rows]
    composed = []
    monkeypatch.setattr(
        module, "compose_raw", lambda choice, primary: composed.append(choice) or compose_raw(choice, primary)
    )
    composer = Composer()
    assert [composer.compose(row).model_dump_json() for row in [*rows, *rows[::-1]]] == one_by_one + one_by_one[::-1]
    assert composed == [["variant=talking_heads"], ["variant=talking_heads", "optimizer=muon"], []]


@pytest.mark.parametrize(
    "words",
    [["heds=24"], ["variant.strt=1"], ["heads=1,2"], ["heads=abc"], ["norm.kind=1"], ["+heads=2"]],
)
def test_many_runs_have_the_mistakes_of_one(words):
    with pytest.raises(Mistake) as caught:
        Composer().compose(words)
    assert str(caught.value) == message(*words)


@pytest.mark.parametrize(
    "rows",
    [
        [[f"seed={seed}", f"layers={layers}"] for seed in (1, 2) for layers in ("'${seed}'", 4)],
        [[f"model.dropout={rate}", "model.attention_dropout=${model.dropout}"] for rate in (0.1, 0.3)],
        # the variant has the attention dropout of the model, unless it has its own
        [["variant.dropout=0.4", f"model.attention_dropout={rate}"] for rate in (0.1, 0.4)],
    ],
)
def test_many_runs_whose_values_depend_on_each_other_compose_as_one_by_one(rows):
    composer = Composer()
    assert [composer.compose(row).model_dump() for row in rows] == [compose(row).model_dump() for row in rows]


def test_a_mistake_about_a_value_is_not_that_of_another_value():
    composer = Composer()
    with pytest.raises(Mistake, match=r"logger.tags=\{a:1\}: must be a list"):
        composer.compose(["logger.tags={a:1}"])
    assert composer.compose(["logger.tags=[a]"]).logger.tags == ["a"]


def test_a_mistake_about_a_key_is_found_once_for_all_its_values(monkeypatch):
    composer, composed = Composer(), []
    monkeypatch.setattr(
        module, "compose_raw", lambda choice, primary: composed.append(choice) or compose_raw(choice, primary)
    )
    for value in range(3):
        with pytest.raises(Mistake, match="there is no setting 'heds'"):
            composer.compose([f"heds={value}"])
    assert composed == [[], ["heds=0"]]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("hidden_size=1000000000000", "must be at most 1048576"),
        ("key_size=9999999999999999999999", "must be at most 1048576"),
        ("tokenizer.vocabulary_size=99999999999", "must be at most 1048576"),
        ("layers=1000000000", "must be at most 1000"),
        ("trainer.threads=100000", "must be at most 1024"),
        ("learning_rate=1e308", "must be at most 1000000"),
        ("optimizer.newton_schulz_steps=100", "must be at most 99"),
    ],
)
def test_what_torch_or_time_cannot_hold_is_out_of_range(word, said):
    assert f"{said}\n" in message("optimizer=muon", word) + "\n"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("h\N{CYRILLIC SMALL LETTER IE}ads=2", "U+0435, cyrillic small letter ie"),
        ("heads=\N{ARABIC-INDIC DIGIT TWO}", "U+0662, arabic-indic digit two"),
        ("learning_rate=1e\N{MINUS SIGN}3", "U+2212, minus sign"),
        ("heads=2\N{ZERO WIDTH SPACE}", "U+200B, zero width space"),
        ("data.train=\N{LATIN SMALL LETTER U WITH DIAERESIS}.txt", "write data.train="),
    ],
)
def test_a_word_that_cannot_be_read_is_named_with_its_remedy(word, said):
    assert said in message(word)


def test_sizes_follow_from_what_people_vary():
    composed = compose(["hidden_size=100", "heads=7", "length=48"])
    assert composed.key_size == composed.value_size == 100 // 7
    assert composed.variant["key_size"] == 100 // 7
    assert composed.model.intermediate_size == 400
    assert composed.model.length == 48
    assert compose(["key_size=128"]).value_size == compose([]).value_size, (
        "an enlarged key size leaves the values alone"
    )


@pytest.mark.parametrize(
    ("overrides", "learning_rate"),
    [
        ([], 1e-2),
        (["optimizer=muon"], 6e-3),
        (["optimizer=adamw"], 3e-3),
        (["optimizer=muon", "learning_rate=1e-3"], 1e-3),
        (["model=small"], 1e-3),
        (["model=small", "optimizer=muon"], 1e-3),
        (["model=base"], 1e-4),
    ],
)
def test_the_learning_rate_is_the_optimizers_unless_a_model_or_the_command_line_has_one(overrides, learning_rate):
    composed = compose(overrides)
    assert composed.learning_rate == composed.optimizer.learning_rate == learning_rate


@pytest.mark.parametrize(
    ("preset", "objective"),
    [("albert", "masked_sop"), ("gpt2", "causal"), ("t5_base", "span_corruption"), ("transformer_nano", "translation")],
)
def test_a_preset_of_a_paper_has_the_objective_of_the_paper_unless_the_command_line_names_one(preset, objective):
    assert compose([f"model={preset}"]).objective.kind == objective
    assert compose([f"model={preset}", "objective=masked", "data=wikitext2"]).objective.kind == "masked"


@pytest.mark.parametrize("preset", options("model"))
def test_a_preset_with_a_learning_rate_names_the_optimizer_that_it_is_for(preset):
    tree = yaml.safe_load((CONF / "model" / f"{preset}.yaml").read_text())
    if "learning_rate" in tree:
        assert any("override /optimizer" in default for default in tree["defaults"])


@pytest.mark.parametrize("preset", options("model"))
def test_every_model_preset_composes_and_the_command_line_wins_over_it(preset):
    assert compose([f"model={preset}", "layers=3"]).model.layers == 3


@pytest.mark.parametrize("group", sorted(set(groups()) - {"variant", "experiment"}))
def test_the_keys_of_every_yaml_are_the_fields_of_the_class_it_feeds(group):
    for option in options(group):
        tree = yaml.safe_load((CONF / group / f"{option}.yaml").read_text())
        if "defaults" in tree:  # a preset: top-level keys, and its group by the file it builds on or changes
            given = set(tree) - {"defaults"}
            changes = any(given <= set(each.model_fields) for each in CLASSES[group])
            assert changes or given - {group} <= set(Settings.model_fields), option
            continue
        if group in tree:  # it also sets what goes with it
            settings = FinetuningSettings if group == "task" else Settings
            assert set(tree) - {group} <= set(settings.model_fields), option
            tree = tree[group]
        assert any(set(tree) == set(each.model_fields) for each in CLASSES[group]), option


def test_every_top_level_key_is_read_by_a_group_or_by_the_runner():
    raw = str(OmegaConf.to_yaml(compose_raw([]), resolve=False))
    for key in set(Settings.model_fields) - set(groups()) - {"runs", "cache", "seed"}:
        assert f"${{{key}}}" in raw, f"{key} is set, but no group refers to it"


@pytest.mark.parametrize("variant", options("variant"))
def test_every_variant_composes_against_its_constructor(variant):
    composed = compose([f"variant={variant}"])
    assert composed.variant["name"] == variant
    assert module_of(composed.variant) in mechanisms()
    fields = set(schema(module_of(composed.variant)).model_fields)
    assert set(arguments_of(composed.variant)) == fields - {"name", "module"}


@pytest.mark.parametrize("path", sorted(CONF.rglob("*.yaml")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_configuration_can_import_anything(path):
    assert "_target_" not in path.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["heads=abc"], ["heads = 'abc'", "whole number"]),
        (["heads=-3"], ["heads = -3", "at least 1"]),
        (["heads=2.5"], ["heads = 2.5", "whole number"]),
        (["heads="], ["heads = ''", "whole number"]),
        (["heds=24"], ["'heds'", "did you mean heads?"]),
        (["+heds=24"], ["+heds=24", "did you mean heads?"]),
        (["++heads=24"], ["do not add", "write heads=24"]),
        (["+experiment=nano_table"], ["write experiment=nano_table"]),
        (["trainer.compile=null"], ["trainer.compile = null: must be auto, true or false"]),
        (["trainer.compile=ture"], ["trainer.compile = 'ture': must be auto, true or false (did you mean true?)"]),
        (["HEADS=2"], ["'HEADS'", "did you mean heads?"]),
        (["variant=MULTI_HEAD"], ["did you mean multi_head?"]),
        (["hidden_size={}"], ["hidden_size = {}: must be a whole number"]),
        (["heads.x=1"], ["there is no setting 'heads.x'", "heads is one setting"]),
        (["logger.tags.x=1"], ["there is no setting 'logger.tags.x'"]),
        (["logger.tags={a:1}"], ["logger.tags={a:1}: must be a list, such as [a,b]"]),
        (["~heads"], ["do not add or remove", "leave it out, or write heads=VALUE"]),
        (["runs='~/x'"], ["runs: ~/x: only a shell replaces ~", "$HOME"]),
        (["cache='~'"], ["cache: ~: only a shell replaces ~"]),
        (["runs='a\0b'"], [r"runs: 'a\x00b': has the character NUL"]),
        (["heads=6", "heads=12"], ["heads is given twice", "heads=6", "heads=12"]),
        (["heads"], ["'heads' is not an override", "key=value"]),
        (["variant=talkin"], ["no variant 'talkin'", "talking_heads"]),
        (["model.layers=1"], ["model.layers = 1", "set layers"]),
        (["variant=talking_heads", "variant.softmax_heads=3"], ["variant.softmax_heads = 3", "set heads"]),
        (["schedule=constant", "schedule.final=0.5"], ["schedule.final", "schedule=linear"]),
        (["data.train=book.txt"], ["data.train", "data=text"]),
        (["variant=talking_heads", "variant.strat=identity"], ["did you mean variant.start"]),
        (["hydra.verbose=true"], ["hydra.verbose=true: only `attn train` reads Hydra's own settings"]),
        (["variant=glob(*)"], ["variant=glob(*): several values need a sweep", "add -m"]),
        (["heads=3 heads=3"], ["cannot be read", "two settings are two words: heads=... heads=..."]),
        (["heads==12"], ["cannot be read", "write heads=12"]),
        (["variant.scaled=perhaps"], ["variant.scaled = 'perhaps'", "true or false"]),
        (["norm=prre"], ["norm = 'prre'", "post, pre, sandwich", "did you mean pre?"]),
        (["optimizer.clip=-1"], ["optimizer.clip = -1", "greater than 0"]),
        (["optimizer.lr=3"], ["optimizer.lr", "learning_rate"]),
        (["optimizer=adafactor", "optimizer.update_clip=0.5"], ["optimizer.update_clip = 0.5", "at least 1"]),
        (["epochs=3"], ["'epochs'", "it is a setting of `attn finetune`"]),
        (["evaluate_every=50"], ["no setting 'evaluate_every'", "did you mean trainer.evaluate_every?"]),
        (["evaluate_evry=50"], ["did you mean trainer.evaluate_every?"]),
        (["dropout=0.2"], ["did you mean model.dropout or variant.dropout?"]),
        (["window=5"], ["did you mean variant.window, a setting of variant=sliding_window?"]),
        (["trainer.clip=1"], ["'trainer.clip'", "did you mean optimizer.clip?"]),
        (["trainer.heads=1"], ["did you mean heads?"]),
        (["trainer.kind=x"], ["trainer has: batch_size"]),
        (["name=x"], ["`attn train --cfg job` prints every setting"]),
        (["learning_rate=nan"], ["learning_rate = nan", "finite"]),
        (["heads=1000"], ["heads = 1000: hidden_size = 192 has no width for so many heads; give at most 192 heads"]),
        (["hidden_size=1", "heads=4"], ["give at most 1 head, or set key_size"]),
        (["tokenizer=file"], ["tokenizer.path has no value"]),
        (["heads=6,12"], ["heads=6,12: several values need a sweep", "add -m; to give a list"]),
        (["seed=-1"], ["seed = -1", "at least 0"]),
        (["cache=~/else where"], ["'cache=~/else where' cannot be read", """write cache="'$HOME/else where'\""""]),
        (["data.train=\u00e9t\u00e9.txt"], ["cannot be read", """write data.train="'\u00e9t\u00e9.txt'\""""]),
        (["seed=${env:SEED}"], ["seed: Unsupported interpolation type env"]),
        (["heads=4\r"], ["'heads=4\\r' cannot be read", "remove the carriage return", "Windows line ends"]),
        (
            ["data=book.txt"],
            ["there is no data 'book.txt'", "data=text data.train=book.txt reads it", "python_docs"],
        ),
        (["data=a/b.parquet"], ["there is no data 'a/b.parquet'", "data=parquet data.train=a/b.parquet reads it"]),
        (["data=a/b.csv.gz"], ["data=hub data.path=FOLDER data.column=NAME reads it, in a folder of its own"]),
        (["data=csv"], ["there is no data 'csv'", "data=hub data.path=FOLDER data.column=NAME reads such files"]),
        (["data=owner/set"], ["data=hub data.path=owner/set data.column=NAME reads a data set of the hub"]),
        (["data=/"], ["data=hub data.path=/ data.column=NAME reads the CSV, JSONL or Parquet files of the folder"]),
        (["data.train=train[:50%]"], ["cannot be read", """write data.train="'train[:50%]'\""""]),
        (["data.train=[a"], ["'data.train=[a' cannot be read", "quote parts"]),
        (["objective=translation"], ["objective.kind = 'translation'", "data=pairs"]),
        (["runs=${seed}"], ["runs = 0: must be a text; it is ${seed}"]),
        (["variant.scaled=${norm}"], ["variant.scaled = 'pre': must be true or false; it is ${norm}"]),
        (["tokenizer.kind=wordpeice"], ["tokenizer.kind = 'wordpeice'", "wordpiece, file (did you mean wordpiece?)"]),
        (["data.kind=txt"], ["data.kind = 'txt'", "parquet, python_docs, text (did you mean text?)"]),
        (["objective.kind=[mask]"], ["objective.kind = ['mask']: must be one of causal, masked"]),
        (["optimizer.kind=null"], ["optimizer.kind = null: must be one of adamw, adafactor, muon, lamb"]),
        (["schedule.kind=${norm}"], ["schedule.kind = 'pre': must be one of linear, cosine", "it is ${norm}"]),
        (["data=wmt14"], ["data.kind = 'hub_pairs'", "objective=translation"]),
    ],
)
def test_a_mistake_names_the_key_the_value_and_what_is_allowed(words, said):
    text = message(*words)
    for part in said:
        assert part in text, text


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"texts": []}, "task.texts = []: must be a list of at least 1"),
        ({"texts": ["a", "b", "c"]}, "task.texts = ['a', 'b', 'c']: must be a list of at most 2"),
        ({"texts": [""]}, "task.texts.0 = '': must be a text that is not empty"),
        ({"texts": ["a", "label"]}, "task: texts ['a', 'label']: label is task.label, which a model must not read"),
        ({"labels": ["a", "b", "a"]}, "task: labels ['a', 'b', 'a']: a is given twice; each label needs its own name"),
    ],
)
def test_texts_and_labels_of_a_task_that_cannot_be_used_are_told_what_is_allowed(wrong, said):
    task = yaml.safe_load((CONF / "task" / "rte.yaml").read_text())["task"]
    with pytest.raises(ValidationError) as caught:
        Classification.model_validate(task | wrong)
    assert sentences(caught.value, Classification, "task") == [said]


@pytest.mark.parametrize(
    ("group", "value", "said"),
    [
        (
            "task",
            {"kind": "spam"},
            "task.kind = 'spam': must be one of span, classification, regression (did you mean span?)",
        ),
        ("data", {}, "data.kind is missing"),
        ("data", 3, "data = 3: must be a mapping, KEY: VALUE"),
        ("model", [3], "model = [3]: must be a mapping, KEY: VALUE"),
    ],
)
def test_a_wrong_group_of_a_file_is_named_with_its_kinds(group, value, said):
    assert said in errors_of(compose([]).model_dump() | {group: value}, FinetuningSettings)


def test_a_variant_of_a_class_that_there_is_not_is_told_the_nearest():
    said = "there is no file attention/taking_heads.py (did you mean talking_heads?); there are: additive"
    with pytest.raises(Mistake, match=re.escape(said)):
        from_tree(compose([]).model_dump() | {"variant": {"name": "mine", "module": "taking_heads"}})


def test_one_wrong_value_is_one_message():
    assert len(message("heads=abc").splitlines()) == len(message("heads=1000").splitlines()) == 1


def test_mistakes_within_and_outside_of_groups_are_said_together():
    said = message("seed=-1", "model.dropout=2", "variant.scaled=3").splitlines()
    assert [line.partition(" =")[0] for line in said] == ["seed", "model.dropout", "variant.scaled"]
    # what an expression or another cell gives is neither wrong nor missing
    assert Composer().compose(["tokenizer.kind=wordpiece", "tokenizer.alphabet=9"]).tokenizer.kind == "wordpiece"


def test_a_whole_number_for_a_real_one_is_the_same_run():
    assert folder_of(compose(["model.attention_dropout=0"])).name == folder_of(compose([])).name
    assert folder_of(compose(["variant.dropout=0"])).name == folder_of(compose([])).name


def test_a_run_folder_config_reads_back_as_the_same_settings():
    composed = compose(["heads=12", "data=text", "data.train=book.txt"])
    assert from_tree(yaml.safe_load(yaml.safe_dump(composed.model_dump()))) == composed


def test_a_finished_run_takes_another_corpus_and_keeps_the_rest():
    run = compose(["heads=12", "objective.rate=0.3"]).model_dump()
    other = override(run, ["data=text", "data.train=book.txt"])
    assert (other.heads, other.objective.rate, other.data.train) == (12, 0.3, "book.txt")
    assert override(run, ["objective.rate=0.5"]).objective.rate == 0.5
    with pytest.raises(Mistake, match="seed=0,1: one value"):
        override(run, ["seed=0,1"])
    with pytest.raises(Mistake, match=r"no setting 'objective\.rat'"):
        override(run, ["objective.rat=0.5"])
    with pytest.raises(Mistake, match="experiment=nano_table: a run has no experiment\n  name the settings themselves"):
        override(run, ["experiment=nano_table"])


def test_a_wrong_value_for_a_run_is_said_once_whatever_places_take_it():
    run = compose(["heads=12", "variant=talking_heads"]).model_dump()
    for word, said in (("heads=0", "heads = 0: must be at least 1"), ("batch_size=0", "batch_size = 0: must be at")):
        with pytest.raises(Mistake, match=rf"^{said}[^\n]*$"):
            override(run, [word])
    other = override(run, ["batch_size=4", "heads=6"])
    assert (other.trainer.batch_size, other.variant["softmax_heads"]) == (4, 6)


def test_composing_leaves_torch_out():
    code = "import sys; from experiments.config.compose import compose; compose([]); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_launcher_that_there_is_not_is_refused_with_those_that_there_are():
    said = r"no hydra/launcher 'submitit_slrm' \(did you mean submitit_slurm\?\)\n  there are: basic, joblib, "
    with pytest.raises(Mistake, match=said):
        compose_raw(["hydra/launcher=submitit_slrm"], with_hydra=True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"name: loud\nstart: [\n", "loud.yaml: line 3: while parsing a flow node"),
        (b"name: loud\n# \xe9\n", "loud.yaml: line 2: the byte 0xe9 is not UTF-8"),
        (b"name: loud\nname: loud\n", "loud.yaml: line 2: the key name is given twice"),
    ],
)
def test_a_file_that_is_not_yaml_is_named_with_the_line(content, said, loud):
    plugins.add([f"plugins={loud}"])
    (loud / "conf/variant/loud.yaml").write_bytes(content)
    assert said in message("variant=loud")
    assert said in message("variant.spread=2"), "the files of the group are read for a hint"
