from __future__ import annotations

from experiments.data.repetition import Repetitions, remarks


def test_texts_that_the_training_split_also_has_are_counted_with_their_copies() -> None:
    repetitions = Repetitions()
    for text in ("a", "b"):
        repetitions.add("train", text)
    for text in ("a", "a", "c"):
        repetitions.add("validation", text)
    assert [repetitions.count(split) for split in ("train", "validation", "test")] == [0, 2, 0]


def test_an_input_of_several_texts_is_told_from_their_concatenation() -> None:
    repetitions = Repetitions()
    repetitions.add("train", "ab", "c")
    for texts in (("a", "bc"), ("abc",), ("ab", "c")):
        repetitions.add("validation", *texts)
    assert repetitions.count("validation") == 1


def test_few_repetitions_are_said_only_where_they_matter() -> None:
    counts = {"train": (0, 1000), "validation": (10, 1000), "test": (1, 2)}
    assert [*remarks("documents", counts)] == ["1 of the 2 documents of test is also in train"]
    assert [*remarks("examples", counts, share=0)] == [
        "10 of the 1,000 examples of validation are also in train",
        "1 of the 2 examples of test is also in train",
    ]
