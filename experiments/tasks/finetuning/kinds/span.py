"""Spans: the answer to a question is a stretch of a text (Rajpurkar et al. 2016, 1606.05250)."""

# N tokens of a window, C tokens of a context, W windows

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO, ClassVar, NamedTuple

import numpy as np

from experiments.data.errors import DataError
from experiments.data.tokenizer import Tokenizer
from experiments.objectives.objective import Scores
from experiments.settings.finetuning import Span
from experiments.tasks.finetuning.answers import QuestionWindows, answer_texts
from experiments.tasks.finetuning.cmrc import cmrc_scores
from experiments.tasks.finetuning.kind import HeldOut, Logits, TaskKind
from experiments.tasks.finetuning.rows import Row, text_of
from experiments.tasks.finetuning.squad import squad_scores
from experiments.tasks.finetuning.windows import NONE, Window, answer_tokens, context_starts, widest


class Question(NamedTuple):
    """An example of a task of spans."""

    id: str
    question: str
    context: str
    answers: list[str]
    start: int  # character of the context where the first answer begins


class Kind(TaskKind[Span, Question]):
    """Questions about contexts: `[CLS] question [SEP] context [SEP]` in windows that slide over the context."""

    own_files: ClassVar[tuple[str, ...]] = ("owner", "offsets", "widest", "questions.jsonl")

    def example(self, row: Row, where: str) -> Question:
        """A question, whose first answer has to stand where the row says."""
        task = self.task
        name = text_of(row, task.id, where)
        question, context = text_of(row, task.question, where), text_of(row, task.context, where)
        answers = row[task.answers]
        if not isinstance(answers, dict) or not {"text", "answer_start"} <= answers.keys():
            raise DataError(f"{where}: column {task.answers} must hold {{text: [...], answer_start: [...]}}")
        texts, starts = answers["text"], answers["answer_start"]
        if not _is_answers(texts, starts):
            raise DataError(
                f"{where} ({name}): a question needs at least one answer, each a text with its answer_start"
            )
        start = starts[0]
        if context[start : start + len(texts[0])] != texts[0]:
            hint = f"it stands at {at}" if (at := context.find(texts[0])) >= 0 else "it is nowhere in the context"
            raise DataError(f"{where} ({name}): the answer {texts[0]!r} is not at answer_start={start}; {hint}")
        return Question(name, question, context, texts, start)

    def identifier(self, example: Question) -> str:
        """The question's id, under which its predicted answer is stored."""
        return f"{self.task.id} {example.id!r}"

    def texts(self, example: Question) -> list[str]:
        """The question and its context."""
        return [example.question, example.context]

    def windows(self, examples: list[Question], tokenizer: Tokenizer, length: int) -> Iterator[list[Window]]:
        """Yield the windows of each question; questions in a row often have the same context."""
        distinct = list(dict.fromkeys(each.context for each in examples))
        contexts = dict(zip(distinct, tokenizer.encode_with_offsets(distinct), strict=True))
        questions = tokenizer.encode([each.question for each in examples])
        for example, question in zip(examples, questions, strict=True):
            yield question_windows(example, question, *contexts[example.context], tokenizer, self.task, length)

    def write(
        self, files: dict[str, BinaryIO], example: Question, number: int, windows: list[Window], length: int
    ) -> None:
        """Append the question. For each window, append its number, the offsets of its tokens, and for which of them it
        has the most context.
        """
        for window in windows:
            assert window.offsets is not None and window.widest is not None
            missing = (0, length - len(window.tokens))
            offsets = np.pad(window.offsets, (missing, (0, 0)), constant_values=NONE)
            files["owner"].write(np.array(number, dtype="<i4").tobytes())
            files["offsets"].write(offsets.astype("<i4").tobytes())
            files["widest"].write(np.pad(window.widest, missing).tobytes())
        facts = {"id": example.id, "context": example.context, "answers": example.answers}
        files["questions.jsonl"].write((json.dumps(facts) + "\n").encode())

    def scores(self, logits: list[Logits], held_out: HeldOut) -> Scores:
        """SQuAD's or CMRC's scores of the best span of each question, and the spans' texts."""
        length, windows = held_out.length, QuestionWindows.open(held_out.folder, held_out.length)
        # batches differ in their width
        padded = [np.pad(each, ((0, 0), (0, length - each.shape[1])), constant_values=-np.inf) for each in logits]
        starts_and_ends = np.concatenate(padded).reshape(-1, 2, length)
        questions = windows.read()
        predicted = answer_texts(starts_and_ends[:, 0], starts_and_ends[:, 1], windows, questions, self.task)
        answers = {str(question["id"]): question["answers"] for question in questions}
        score = cmrc_scores if self.task.scores_of == "cmrc" else squad_scores
        return Scores(score(answers, predicted), predicted)


def question_windows(
    example: Question, question: np.ndarray, context: np.ndarray, offsets_C2: np.ndarray, tokenizer: Tokenizer,
    task: Span, length: int,
) -> list[Window]:  # fmt: skip
    """The windows of an example. One that does not hold the whole answer has its targets at [CLS] (Devlin's code)."""
    question = question[: min(task.max_question, length - 3 - len(tokenizer.between))]
    head = np.concatenate([[tokenizer.cls_id], question, tokenizer.between])
    room = length - len(head) - 1
    starts = context_starts(len(context), room, task.document_stride)
    widest_WC = widest(starts, len(context), room) if len(context) else np.zeros((1, 0), dtype=bool)
    answer = answer_tokens(offsets_C2, example.start, example.start + len(example.answers[0]))
    around = (len(head), 1)
    windows = []
    for number, start in enumerate(starts):
        part = slice(start, min(start + room, len(context)))
        targets = [0, 0]
        if answer and part.start <= answer[0] and answer[1] < part.stop:
            targets = [len(head) + position - start for position in answer]
        windows.append(
            Window(
                tokens=np.concatenate([head, context[part], [tokenizer.sep_id]]),
                boundary=len(head),
                targets=targets,
                offsets=np.pad(offsets_C2[part], (around, (0, 0)), constant_values=NONE),
                widest=np.pad(widest_WC[number, part], around),
            )
        )
    return windows


def _is_answers(texts: Any, starts: Any) -> bool:
    if not isinstance(texts, list) or not isinstance(starts, list) or not 0 < len(texts) == len(starts):
        return False
    written = all(isinstance(text, str) and text.strip() for text in texts)
    return written and all(type(start) is int and start >= 0 for start in starts)
