"""What the pre-flight says: steps with their verdicts. Pure; knows no cluster."""

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
    """One thing that was looked at."""

    verdict: Verdict
    cluster: str
    """Its alias; for what concerns two clusters the flow."""
    role: str = ""
    """As whom we came, if that matters."""
    step: str
    subject: str = ""
    what: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """A step before it is known whose it is: an address is looked at once and may be told of twice."""

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
    """An error brings its own remedy."""
    if isinstance(what, HeliographError):
        remedy = remedy or what.remedy
        what = "; ".join(filter(None, (what.what, what.why)))
    return Note(Verdict.FAIL, step, what, remedy)


def count_verdicts(steps: Iterable[Step]) -> dict[Verdict, int]:
    verdicts = [step.verdict for step in steps]
    return {verdict: verdicts.count(verdict) for verdict in Verdict}
