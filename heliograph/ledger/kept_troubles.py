"""Troubles as the ledger keeps them, for whoever asks how topics stand. Pure.

Lanes write what keeps partitions waiting and that they go on. A lane that ends, or dies, takes its last word with it:
the driver, who learns by its rows or as a new leader that it is over, takes it back. What the target refuses of a
whole topic is the driver's own word.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from heliograph.errors import HeliographError
from heliograph.ledger.records.trouble import WHOLE_TOPIC, Trouble

Troubles = Mapping[tuple[str, int], Trouble]
"""By topic of the source and partition."""


def plan_troubles(
    kept: Troubles, *, refused: Mapping[str, HeliographError], over: Collection[tuple[str, int]]
) -> list[Trouble]:
    """Return what to write: refusals of whole topics that are new or over, and partitions that go on."""
    wanted = {(topic, WHOLE_TOPIC): error for topic, error in refused.items()}
    told = [
        Trouble(topic=topic, partition=partition, code=error.code, text=str(error), final=False)
        for (topic, partition), error in wanted.items()
        if (topic, partition) not in kept or kept[topic, partition].text != str(error)
    ]
    ended = [where for where in kept if (where in over or where[1] == WHOLE_TOPIC) and where not in wanted]
    return told + [Trouble(topic=topic, partition=at, code="", text="", final=False) for topic, at in ended]


def is_lasting(trouble: Trouble) -> bool:
    """Whether it holds until another word: not what is over, only news, or of a partition that is given back."""
    return bool(trouble.text) and not trouble.final and not trouble.details
