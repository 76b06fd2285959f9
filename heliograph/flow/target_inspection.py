"""Asks the target's log what a lane cannot tell of a loss there: how much is gone, and what stands in its place.

The lane finds that the target lost records, or that its topic was made anew. Here it is found from where on the copy
is to be made again, and how many records stand there twice then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from heliograph.errors import TargetTopicLost, TargetTruncated
from heliograph.flow.target_cut import copied_of, count_strays, has_whole_count, look_for_cut
from heliograph.kafka.admin.topics import EARLIEST
from heliograph.kafka.cluster import Cluster
from heliograph.ledger.loss_outcomes import Outcome
from heliograph.ledger.partition_remap import row_of, turn_of
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.page import Page
from heliograph.ledger.runs import OpenPage
from heliograph.ledger.tail import Unsettled

INSPECTED = (TargetTruncated.code, TargetTopicLost.code)
"""What the target's log tells more about."""


async def inspect(
    outcome: Outcome,
    copy: Unsettled,
    page: OpenPage | None,
    pages: Collection[Page],
    *,
    producer_ids: Mapping[int, int],
    target: Cluster,
) -> Outcome | Entry:
    """Add to the outcome what the target's log tells, or give the entry with which the copy goes on all the same.

    `page` is the one being filled, `pages` those that are written; `producer_ids` are by row.
    """
    if outcome.code == TargetTopicLost.code:
        return await _inspect_new(outcome, copy, target=target)
    return await _inspect_shorter(outcome, copy, page, pages, producer_ids=producer_ids, target=target)


async def _inspect_new(outcome: Outcome, copy: Unsettled, *, target: Cluster) -> Outcome | Entry:
    """Look for batches of ours in a recreated topic: they were sent to the old one, by its name."""
    where = copy.assignment.target
    await target.refresh([where.topic])
    if await has_whole_count(target, where, copy):
        return copy.entry.moved(target_topic_id=target.catalogue.topics[where.topic].topic_id.hex)
    return _with_strays(outcome, await count_strays(target, where, copy))


async def _inspect_shorter(
    outcome: Outcome,
    copy: Unsettled,
    page: OpenPage | None,
    pages: Collection[Page],
    *,
    producer_ids: Mapping[int, int],
    target: Cluster,
) -> Outcome:
    entry, where = copy.entry, copy.assignment.target
    copied = copied_of(entry, page, pages)
    if not copied:
        return outcome

    def producer_id_of(count: int) -> int | None:
        return producer_ids.get(row_of(copy.assignment.partition, entry.modulo, turn_of(count)))

    cut = await look_for_cut(target, where, copied, producer_id_of)
    target_end, source = (entry.target_offset, entry.source_offset) if cut is None else cut
    starts = [entry.run_source, *(one.start for one in pages), *([page.start] if page is not None else [])]
    if target_end == copied[0].run.target and min(starts) > 0:
        source = EARLIEST  # nothing is left of what is known, and there was something before it
    details = {**outcome.details, "target_end": target_end, "source_offset": source}
    text = f"{outcome.text}; what was copied to target offsets from {target_end} on is gone"
    return _with_strays(
        outcome._replace(text=text, details=details), await count_strays(target, where, copy, target_end)
    )


def _with_strays(outcome: Outcome, strays: int) -> Outcome:
    """Batches of ours that stand where they do not belong are copied once more behind them."""
    if not strays:
        return outcome
    text = f"{outcome.text}; {strays} records that were on their way stand before what is copied now: they repeat"
    return outcome._replace(text=text, details={**outcome.details, "strays": strays})
