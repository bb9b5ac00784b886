"""Whether a split has text, or examples, that a run was trained on, and whether these are still the same; told by the
recorded identities of both.

Files are compared by their digests, splits of the hub by their expressions. A copy with changes is not recognized.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from experiments.data.readers import hub

# decides which documents a text has, and so which of them are held out
DOCUMENTS = ("kind", "documents", "column", "source", "target")


class _Place(NamedTuple):
    """Where a split is read from: local files, or a data set of the hub."""

    files: frozenset[str] = frozenset()  # their digests
    data_set: tuple[str, str | None] | None = None  # path, or digest of the folder; configuration
    expression: str = ""  # of the data set's split

    def overlaps(self, other: _Place) -> bool:
        """Whether both certainly have a common row."""
        same_set = self.data_set is not None and self.data_set == other.data_set
        return bool(self.files & other.files) or (same_set and hub.share_rows(self.expression, other.expression))


def has_text_of_training(trained: Mapping[str, Any], scored: Mapping[str, Any], split: str) -> bool:
    """Whether the split of the corpus `scored` certainly has text of the training split of the corpus `trained`.

    Both are identities, as in `corpus` of a result; of a task, `split` stands for all its validation splits. The
    commit of a data set is not compared, because most commits of a set leave its rows as they are.
    """
    training, places = _places(trained).get("train"), _places(scored)
    if training is None:
        return False
    own = [place for name, place in places.items() if name.partition(".")[0] == split]
    if own:
        return any(place.overlaps(training) for place in own)
    return "train" in places and places["train"].overlaps(training) and not _held_out_of_both(trained, scored, split)


def other_version(run: str, trained: Mapping[str, Any], present: Mapping[str, Any]) -> str:
    """A line if the text that a run's settings name is not the one that it was trained on; empty if it is, or unknown.

    Both are identities, as in `corpus` of a result; an empty one is not known.
    """
    if not trained or trained == present:
        return ""
    return f"{run} was trained on another version of its text; these are numbers of the present one"


def _held_out_of_both(trained: Mapping[str, Any], scored: Mapping[str, Any], split: str) -> bool:
    """Whether the documents that `scored` holds out for the split are among those that `trained` holds out.

    Shares of the documents are held out in the order of the splits, as in `documents.split_of`.
    """
    if any(trained.get(key) != scored.get(key) for key in DOCUMENTS):
        return False
    shares = _held_out(scored)
    names = list(shares)
    if split not in names:
        return True
    return sum(shares[name] for name in names[: names.index(split) + 1]) <= sum(_held_out(trained).values())


def _held_out(identity: Mapping[str, Any]) -> dict[str, int]:
    shares = identity.get("held_out")
    return shares if isinstance(shares, dict) and all(isinstance(each, int) for each in shares.values()) else {}


def _places(identity: Mapping[str, Any]) -> dict[str, _Place]:
    """The place of each split that has one; empty for the identity of a kind that is not known here."""
    match identity:
        case {"task": {"subset": subset}, "splits": dict(splits)}:
            return {split: _place(of_split, subset) for split, of_split in splits.items()}
        case {"name": name, "splits": dict(splits)}:
            return {split: _place({**identity, "split": expression}, name) for split, expression in splits.items()}
        case {"sha256": dict(files)}:
            return {split: _place({"sha256": digests}, None) for split, digests in files.items()}
        case {"sha256": str(digest)}:
            return {"train": _place({"sha256": [digest]}, None)}
    return {}


def _place(source: Any, configuration: str | None) -> _Place:
    """The place of a split. Content that no run has recorded, as of a changed folder, is no place."""
    match source:
        case {"split": str(expression), "path": str(data_set)} | {"split": str(expression), "sha256": str(data_set)}:
            return _Place(data_set=(data_set, configuration), expression=expression)
        case {"sha256": [*digests]}:
            return _Place(frozenset(map(str, digests)))
    return _Place()
