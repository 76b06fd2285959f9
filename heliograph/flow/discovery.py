"""What a look at the topics of both clusters finds: what there is to copy, what is new, what is gone and why. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from heliograph.kafka.catalogue import Catalogue
from heliograph.ledger.model import PartitionName
from heliograph.text import some_of

Counts = Mapping[str, int]
"""How many partitions each topic of the source has."""


def counts_of(source: Catalogue) -> dict[str, int]:
    return {name: len(meta.partitions) for name, meta in source.topics.items()}


def as_known(source: Catalogue, counts: Counts) -> Catalogue:
    """Leave out topics and partitions that have come since an earlier refresh; what has gone is gone."""
    return replace(
        source,
        topics={
            name: meta._replace(partitions=meta.partitions[: counts[name]])
            for name, meta in source.topics.items()
            if name in counts
        },
    )


def tell_gone(gone: Collection[PartitionName], source: Catalogue, wanted: Mapping[str, str]) -> Iterator[str]:
    """Say why partitions are not copied any more, a line for each reason."""
    reasons: dict[str, set[str]] = {}
    for topic, partition in gone:
        meta = source.topics.get(topic)
        if meta is None or partition >= len(meta.partitions):
            reason = "deleted on the source"
        elif topic not in wanted:
            reason = "not selected any more"
        else:
            reason = "not on the target any more"
        reasons.setdefault(reason, set()).add(topic)
    for reason, topics in reasons.items():
        yield f"no longer mirrored: {some_of(sorted(topics))} ({reason}); what was copied stays"
