"""Runs of encoder-decoders through the commands, as a shell runs them."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from experiments.training.decoding import texts
from tests.fixtures.device import as_computed


@pytest.fixture
def pairs_file(tmp_path) -> Path:
    chance = random.Random(0)
    said = [[chance.choice("abcdefg") for _ in range(chance.randint(2, 5))] for _ in range(300)]
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{' '.join(each)}\t{' '.join(each).upper()}\n" for each in said))
    return path


def test_train_evaluate_compare_and_show(attn, tiny, tmp_path, pairs_file, monkeypatch):
    sizes = [override for override in tiny if not override.startswith("data")]
    of_pairs = ["data=pairs", f"data.train={pairs_file}", "objective=translation", "model=transformer_nano", "heads=2"]
    assert attn("train", "--dry-run", *of_pairs, *sizes).returncode == 0
    done = attn("train", *of_pairs, *sizes, "objective.bleu_pairs=4")
    assert done.returncode == 0, done.stderr
    assert "BLEU" in done.stdout and "4 texts, nrefs:1|" in done.stdout
    result = json.loads(next((tmp_path / "runs").glob("*/result.json")).read_text())
    assert 0 <= result["text_scores"]["bleu"] <= 100

    newest = ("--checkpoint", "newest", "--format", "json")
    done = attn("evaluate", "multi_head", "--generate", *newest)
    assert done.returncode == 0, done.stderr
    score = json.loads(done.stdout)[0]
    assert score["loss"] == as_computed(result["validation_loss"])
    assert score["bleu"] == result["text_scores"]["bleu"]
    done = attn(
        "evaluate", "multi_head", "--generate", "split=test", "objective.beam=1", "objective.bleu_pairs=2", *newest
    )
    assert json.loads(done.stdout)[0]["scored_texts"] == 2
    done = attn("evaluate", "multi_head", "objective.beam=1", *newest)
    said = "objective.beam=1: an evaluation does not use objective.beam\n  one with --generate does"
    assert done.returncode == 2 and said in done.stderr
    with monkeypatch.context() as patched:
        patched.setattr("experiments.failures.missing_extra._is_there", lambda library: library != "sacrebleu")
        assert attn("evaluate", "multi_head", "--generate").returncode == 2
        done = attn("evaluate", "multi_head", *newest)
        assert "bleu" not in json.loads(done.stdout)[0] and done.returncode == 0

    shutil.move(tmp_path / "runs", tmp_path / "translations")
    assert attn("train", "model=t5_nano", "variant=talking_heads", "heads=2", *tiny).returncode == 0
    done = attn("evaluate", "talking_heads", "--generate")
    assert done.returncode == 2 and "objective=span_corruption" in done.stderr
    done = attn("evaluate", "talking_heads", "split=test", *newest)
    assert json.loads(done.stdout)[0]["loss"] > 0
    next((tmp_path / "translations").glob("multi_head*")).rename(tmp_path / "runs" / "multi_head")
    shown = attn("compare", "--format", "json")
    assert {row.get("bleu") for row in json.loads(shown.stdout)} == {None, result["text_scores"]["bleu"]}
    assert attn("dashboard").returncode == 0 and (tmp_path / "runs" / "dashboard.html").exists()


def test_references_are_the_targets_and_a_perfect_model_has_100(monkeypatch, tmp_path, pairs_file):
    from experiments.config.compose import compose
    from experiments.objectives.objective import build_objective
    from experiments.tasks.pretraining import Pretraining

    overrides = ["model=transformer_nano", "data=pairs", f"data.train={pairs_file}", "length=16", f"cache={tmp_path}"]
    settings = compose([*overrides, "tokenizer.vocabulary_size=300"])
    data = Pretraining(settings).prepare(lambda *_: None)
    objective = build_objective(settings.objective, data.tokenizer)

    class Parrot:
        training = False

        def eval(self):
            return self

        def train(self, mode):
            return self

    def said(shout, doubt=False):
        def decode(model, forward, inputs, tokenizer, decoding):
            sources = [
                tokenizer.decode(row[: int(mask.sum()) - 1].numpy())
                for row, mask in zip(inputs["tokens"], inputs["mask"], strict=True)
            ]
            encoded = tokenizer.encode([source.upper() if shout else source for source in sources])
            return [[each for i in ids.tolist() for each in [i, *[tokenizer.unk_id] * doubt]] for ids in encoded]

        monkeypatch.setattr(texts, "decode", decode)
        return texts.score(
            Parrot(), None, data.validation, data.tokenizer, objective,
            sequences=None, batch_size=4, report=lambda *_: None, again=print,
        )  # fmt: skip

    perfect = said(shout=True)
    assert perfect["text_scores"]["bleu"] == pytest.approx(100) and perfect["scored_texts"] == len(
        data.validation.tokens
    )
    assert said(shout=True, doubt=True) == perfect, "[UNK] in a translation counts for nothing"
    assert said(shout=False)["text_scores"]["bleu"] == 0
