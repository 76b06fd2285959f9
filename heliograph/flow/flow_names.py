"""Plans the names of one flow's copies beside the other flows of the process; logs each refusal once."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from heliograph.errors import NameRefused
from heliograph.flow.opening import OpenedFlow
from heliograph.flow.partition_table import PartitionTable
from heliograph.ledger.copy_names import NameClaim, NamePlan, Rank, claims_of, may_clash, names_of, plan_names
from heliograph.text import some_of

log = logging.getLogger("heliograph")

NAMED = 20
"""Maximum number of names listed in a message."""


class FlowNames:
    """Plans the names of one flow's copies."""

    def __init__(self, opening: OpenedFlow, table: PartitionTable) -> None:
        self._opening = opening
        self._table = table
        self._order, self._rivals = 0, tuple[FlowNames, ...]()
        self._home: frozenset[str] = frozenset()
        self.refused: Mapping[str, NameRefused] = {}
        """Topics that are not mirrored, by their names on the source, as last told."""

    def meet(self, others: Sequence[FlowNames]) -> None:
        """Learn which flows run in this process, this one among them: two must not copy into one topic."""
        self._order = others.index(self)
        self._rivals = tuple(
            other for other in others if other is not self and may_clash(self._opening.flow, other._opening.flow)
        )

    def plan(self, topics: Collection[str] | None = None) -> NamePlan:
        """Plan the names of the source's topics as of the last refresh, or of these topics alone."""
        flow = self._opening
        return plan_names(
            flow.flow,
            flow.source.catalogue.topics if topics is None else topics,
            there=flow.target.catalogue.topics,
            ranks=self._ranks(),
            order=self._order,
            rivals=[rival.claims() for rival in self._rivals],
        )

    def claims(self) -> dict[str, NameClaim]:
        """List the names on the target that the flow claims."""
        flow = self._opening
        names = names_of(flow.flow, flow.source.catalogue.topics)
        return claims_of(flow.flow, names, ranks=self._ranks(), order=self._order)

    def _ranks(self) -> dict[str, Rank]:
        known = dict.fromkeys((topic for topic, _ in self._opening.ledger.entries), Rank.KNOWN)
        return known | dict.fromkeys((topic for topic, _ in self._table.entries), Rank.COPIED)

    def plan_and_tell(self, topics: Collection[str] | None = None) -> NamePlan:
        plan, name = self.plan(topics), self._opening.flow.name
        tell_refused(name, "topic", "mirrored", self.refused, plan.refused)
        if new := sorted(plan.home - self._home):
            log.info(
                "%s: not mirrored, because by the naming of other flows they are copies of the target's own topics: %s",
                *(name, some_of(new, NAMED)),
            )
        self.refused, self._home = plan.refused, plan.home
        return plan


def tell_refused(
    flow: str, noun: str, done: str, before: Mapping[str, NameRefused], now: Mapping[str, NameRefused]
) -> None:
    """Log what is refused now and was not, or for another reason, and what is no longer refused."""
    new = [error for name, error in sorted(now.items()) if str(before.get(name)) != str(error)]
    for error in new[:NAMED]:
        log.error("%s: not %s: %s", flow, done, error)
    if len(new) > NAMED:
        log.error("%s: %d more %ss not %s (see above)", flow, len(new) - NAMED, noun, done)
    if over := sorted(before.keys() - now.keys()):
        log.info("%s: no longer refused: %s", flow, some_of(over, NAMED))
