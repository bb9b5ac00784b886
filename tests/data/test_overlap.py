"""Whether a split has text that a run was trained on, from the identities that results record."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.data.overlap import has_text_of_training

TEXT = {"kind": "text", "documents": "row"}
BOTH = {"validation": 1, "test": 1}
OF_HUB = {"kind": "hub", "path": "owner/set", "name": None, "commit": "a" * 40, "column": "text", "documents": "row"}


def text(held_out: dict[str, int], **digests: str) -> dict[str, Any]:
    """A corpus of local files, with the digest of one file for each split."""
    return TEXT | {"sha256": {split: [digest] for split, digest in digests.items()}, "held_out": held_out}


def of_hub(**splits: str) -> dict[str, Any]:
    return OF_HUB | {"splits": splits, "held_out": {} if "validation" in splits else BOTH}


def task(train: dict[str, Any], **validation: dict[str, Any]) -> dict[str, Any]:
    splits = {f"validation.{name}": place for name, place in validation.items()}
    return {"task": {"subset": "mnli"}, "splits": {"train": train, **splits}}


@pytest.mark.parametrize(
    ("trained", "scored", "split", "expected"),
    [
        (text(BOTH, train="a"), text(BOTH, train="a"), "validation", False),
        (text(BOTH, train="a"), text(BOTH, train="a"), "test", False),
        (text(BOTH, train="a"), text(BOTH, train="a"), "train", True),
        (text(BOTH, train="a"), text({}, train="b", validation="a"), "validation", True),
        (text(BOTH, train="a"), text(BOTH, train="b"), "train", False),
        (text({}, train="a", validation="b"), text({}, train="a", validation="c"), "validation", False),
        # all of it was trained on
        (text({}, train="a", validation="b"), text(BOTH, train="a"), "validation", True),
        # of twenty shares the first was held out, and now the second is a test split
        (text({"validation": 1}, train="a", test="b"), text(BOTH, train="a"), "validation", False),
        (text({"validation": 1}, train="a", test="b"), text(BOTH, train="a"), "test", True),
        (text(BOTH, train="a"), text(BOTH, train="a") | {"documents": "article"}, "validation", True),
        (of_hub(train="train"), of_hub(train="test", validation="train[:5%]"), "validation", True),
        (of_hub(train="train[5%:]"), of_hub(train="test", validation="train[:5%]"), "validation", False),
        (of_hub(train="train"), of_hub(train="train") | {"commit": "b" * 40}, "train", True),
        (of_hub(train="train"), of_hub(train="train") | {"name": "other"}, "train", False),
        (of_hub(train="train"), text(BOTH, train="a"), "train", False),
        (task({"sha256": ["a"]}), task({"sha256": ["b"]}, one={"sha256": ["c"]}, two={"sha256": ["a"]}),
         "validation", True),
        (task({"sha256": ["a"]}), task({"sha256": ["b"]}, one={"sha256": ["c"]}), "validation", False),
        (task({"split": "train", "path": "x/y"}), task({}, one={"split": "train[:9]", "path": "x/y"}),
         "validation", True),
        ({"kind": "python_docs", "sha256": "a", "held_out": BOTH}, {"kind": "python_docs", "sha256": "a",
         "held_out": BOTH}, "validation", False),
        # what is not known is not said
        ({}, text(BOTH, train="a"), "train", False),
        ({"kind": "mine"}, {"kind": "mine"}, "train", False),
        (text(BOTH, train="a"), {"task": {"subset": 1}, "splits": {"train": 3, "validation": {"sha256": {}}}},
         "validation", False),
    ],
)  # fmt: skip
def test_a_split_has_text_of_the_training(trained, scored, split, expected):
    assert has_text_of_training(trained, scored, split) is expected
