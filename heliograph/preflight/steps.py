"""Defines what the pre-flight reports: steps with their verdicts. Pure; knows no cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from heliograph.errors import HeliographError

NAMED = 3
"""Maximum number of items that a line of the check lists: a thousand topics may have the same fault."""


class Verdict(StrEnum):
    PASS = "PASS"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The result of one check."""

    verdict: Verdict
    cluster: str
    """The cluster's alias, or the flow for what concerns two clusters."""
    role: str = ""
    """The role that we logged in with, if it matters."""
    step: str
    subject: str = ""
    what: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """A step without its owner: an address is checked once and may be reported for two."""

    verdict: Verdict
    step: str
    what: str
    remedy: str = ""

    def of(self, cluster: str, role: str = "", subject: str = "") -> Step:
        return Step(
            verdict=self.verdict,
            cluster=cluster,
            role=role,
            step=self.step,
            subject=subject,
            what=self.what,
            remedy=self.remedy,
        )


def passed(step: str, what: str) -> Note:
    return Note(Verdict.PASS, step, what)


def warned(step: str, what: str, remedy: str = "") -> Note:
    return Note(Verdict.WARN, step, what, remedy)


def failed(step: str, what: str | HeliographError, remedy: str = "") -> Note:
    """Makes a failed note; an error has its own remedy."""
    if isinstance(what, HeliographError):
        remedy = remedy or what.remedy
        what = "; ".join(filter(None, (what.what, what.why)))
    return Note(Verdict.FAIL, step, what, remedy)


def count_verdicts(steps: Iterable[Step]) -> dict[Verdict, int]:
    verdicts = [step.verdict for step in steps]
    return {verdict: verdicts.count(verdict) for verdict in Verdict}
