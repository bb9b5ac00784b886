from __future__ import annotations

import re

import yaml

from experiments.display.rows import readable
from experiments.results.columns import TAKEN_FROM, table_of, tables_of, telling
from experiments.results.selection import matching, without_match
from experiments.settings.conf_files import CONF
from tests.fixtures.growth import takes_linear_time
from tests.fixtures.record import small_result


def test_the_time_is_linear_in_the_runs():
    def begin(runs):
        results = [small_result(f"run{seed}", 5.0, seed=seed) for seed in range(runs)]
        return lambda: table_of(results)

    assert takes_linear_time(begin, 1000)


def test_columns_that_tell_nothing_more_are_left_out():
    columns = {"heads": [6, 6, 12], "key_size": [16, 16, 8], "seed": [0, 1, 0]}
    assert list(telling(columns, [()] * 3)) == ["heads", "seed"]
    assert list(telling(columns, ["a", "a", "b"])) == ["seed"]
    assert list(telling(columns, ["a", "b", "c"])) == []
    assert list(telling({"heads": []}, [])) == []


def test_a_setting_that_differs_has_a_column_whatever_else_differs_with_it():
    plain = table_of([small_result("a", 5.0), small_result("b", 4.5, seed=1), small_result("c", 4.0, heads=24)])
    assert "variant.key_heads" not in plain[0] and "learning_rate" not in plain[0] and "logger.tags" not in plain[0]
    one, other = {"learning_rate": 3e-3, "warmup": 10}, {"learning_rate": 1e-3, "warmup": 20}
    for differing in ({"seed": 1}, {"heads": 24}, {"start": "identity"}):
        rows = table_of([small_result("a", 5.0, **one), small_result("b", 4.5, **other, **differing)])
        assert [(row["learning_rate"], row["warmup"]) for row in rows] == [(3e-3, 10), (1e-3, 20)], differing
        # it follows from another column
        assert "optimizer.learning_rate" not in rows[0]
    assert [row["variant.start"] for row in rows] == ["random", "identity"]


def test_a_setting_that_only_one_kind_has_differs_within_the_kind():
    muon, adamw = {"kind": "muon", "beta1": 0.9, "momentum": 0.95}, {"kind": "adamw", "beta1": 0.9}
    rows = table_of([small_result("a", 5.0, optimizer=muon), small_result("b", 4.5, optimizer=adamw)])
    assert [row["optimizer.kind"] for row in rows] == ["muon", "adamw"]
    assert not {"optimizer.momentum", "optimizer.beta1"} & rows[0].keys()
    rows = table_of(
        [small_result(str(momentum), 5.0, optimizer=muon | {"momentum": momentum}) for momentum in (0.9, 0.95)]
    )
    assert [row["optimizer.momentum"] for row in rows] == [0.9, 0.95]


def test_a_choice_that_changes_no_result_has_no_column():
    trainers = ({"devices": 1, "sharded": False, "device": "cuda:0"}, {"devices": 2, "sharded": True, "device": "cuda"})
    one, other = (small_result(str(seed), 5.0, seed=seed, trainer=each) for seed, each in enumerate(trainers))
    assert table_of([one, other])[0].keys() == table_of([one, one])[0].keys()
    # each seed may be fine-tuned from its own pretrained run
    one, other = (small_result(str(seed), 5.0, seed=seed, origin={"run": f"pretrained-{seed}"}) for seed in (0, 1))
    assert "origin.run" not in table_of([one, other])[0]
    assert "origin.run" in table_of([one, other | {"seed": 0}])[0]


def test_a_setting_is_known_to_follow_from_that_of_its_default():
    for path in sorted(CONF.glob("*/*.yaml")):
        group, text = path.parent.name, path.read_text()
        if group in ("experiment", "hydra", "variant") or "${" not in text:
            continue
        tree = yaml.safe_load(text)
        for key, value in (tree if "# @package _global_" not in text else tree.get(group, {})).items():
            sources = re.findall(r"\$\{(\.?[a-z_]+)\}", str(value))
            of_group = [source.replace(".", f"{group}.") for source in sources]
            assert not sources or TAKEN_FROM.get(f"{group}.{key}", key) in of_group, (path, key)
    # what a variant takes from more than its sizes
    taken = {
        key for path in (CONF / "variant").glob("*.yaml") for key in re.findall(r"(\w+): \$\{model\.", path.read_text())
    }
    assert taken == {"linear_bias", "dropout"}


def test_a_loss_never_stands_beside_one_of_another_objective_unnamed():
    masked, causal = (small_result(kind, 5.0, objective={"kind": kind}, heads=heads) for kind, heads in
                      (("masked", 6), ("causal", 24)))  # fmt: skip
    rows = table_of([masked, causal])
    assert next(iter(rows[0])) == "objective" and [row["objective"] for row in rows] == ["masked", "causal"]
    assert "objective" not in table_of([masked, masked])[0]
    assert matching(["objective=causal"], [masked, causal]) == [causal]


def test_scores_stand_before_the_loss_and_only_where_there_are_any():
    translated = small_result("a", 5.0, objective={"kind": "translation"}) | {"text_scores": {"bleu": 31.5}}
    tuned = small_result("b", 0.5, objective={"kind": "causal"}, task={"name": "sst2"})
    tuned |= {"perplexity": None, "scores": {"accuracy": 90.0}}
    plain, of_task = tables_of([translated, tuned, small_result("c", 4.0, objective={"kind": "masked"})])
    assert [row["bleu"] for row in plain] == [31.5, None] and "accuracy" not in plain[0]
    columns = list(plain[0])
    assert columns[0] == "objective" and columns.index("bleu") + 1 == columns.index("loss")
    assert [row["accuracy"] for row in of_task] == [90.0] and next(iter(of_task[0])) == "task"
    assert not {"objective", "bleu", "perplexity"} & of_task[0].keys()


def test_runs_are_chosen_by_a_setting_that_is_a_list_as_it_is_typed():
    static = (["logits"], ["logits", "weights"], [])
    first, both, none = results = [
        small_result(name, 5.0, variant={"name": "talking_heads", "static": each})
        for name, each in zip("abc", static, strict=True)
    ]
    for wanted, chosen in (
        ("[logits]", [first]), ("[logits,weights]", [both]), ("[logits, weights]", [both]), ("[]", [none]),
        ("[logits],[logits,weights]", [first, both]), ("logits", []),
    ):  # fmt: skip
        assert matching([f"variant.static={wanted}"], results) == chosen, wanted
    assert without_match(["variant.static=[logit,weights]"], results).endswith("(did you mean [logits,weights]?)")
    assert [readable("variant.static", row["variant.static"]) for row in table_of(results)] == [
        "[logits]", "[logits,weights]", "[]",
    ]  # fmt: skip
