"""What a reader is told about a table, in the order of reading. Every format writes the same page."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.display.rows import Row
from experiments.tables.rendering.columns import readable_table
from experiments.tables.rendering.sentences import (
    Detail,
    closing_sentence,
    details,
    headline,
    legend,
    missing,
    reason,
    shown_or_claimed,
)
from experiments.tables.report import Report
from experiments.tables.verdict import Verdict


@dataclass(frozen=True)
class JudgedClaim:
    """A claim with its verdict."""

    key: str
    says: str
    word: str  # the verdict
    reason: str  # a sentence on why there is no verdict; empty if there is one
    words: dict[str, str | None]  # the verdict under each scheme of positions
    details: list[Detail]

    @property
    def name(self) -> str:
        """Its key and its verdict."""
        return f"{self.key}, {self.word}"

    @property
    def statement(self) -> str:
        """What is claimed, and why there is no verdict."""
        return " ".join(filter(None, [f"{self.says}.", self.reason]))


@dataclass(frozen=True)
class Page:
    """The texts of a page. Without claims, `closing` is empty too."""

    title: str
    opening: list[str]  # what is claimed, the verdicts, and what is missing
    rows: list[Row]
    notes: list[str]
    claims: list[JudgedClaim]
    closing: str  # how to read the claims
    facts: list[tuple[str, str]]  # the conditions by their names
    command: str  # that makes the table


def page(report: Report) -> Page:
    """The page of a report."""
    return Page(
        title=report.request.table.title,
        opening=[text for text in (shown_or_claimed(report), headline(report), missing(report)) if text],
        rows=readable_table(report),
        notes=[*legend(report), *report.notes],
        claims=[_judged(verdict, report) for verdict in report.verdicts],
        closing=closing_sentence(report) if report.verdicts else "",
        facts=report.facts,
        command=report.request.command(),
    )


def _judged(verdict: Verdict, report: Report) -> JudgedClaim:
    words = {scheme: finding.word for scheme, finding in verdict.findings.items()}
    return JudgedClaim(
        key=verdict.key,
        says=verdict.claim.says,
        word=verdict.word,
        reason=reason(verdict),
        words={scheme: words.get(scheme) for scheme in report.request.schemes if scheme},
        details=details(verdict, report),
    )
