"""Checks the rights that a configuration needs, one by one, each with its own step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from heliograph.config.settings import Flow, Settings
from heliograph.errors import HeliographError
from heliograph.flow.required_topics import wanted_topics
from heliograph.kafka.catalogue import Catalogue
from heliograph.kafka.cluster import Cluster
from heliograph.preflight.steps import NAMED, Note, Step, failed, passed, warned
from heliograph.rights.granted import Grant, Grants
from heliograph.text import some_of


async def check_flow_rights(
    flow: Flow, settings: Settings, *, source: Cluster, target: Cluster, catalogue: Catalogue
) -> list[Step]:
    """Checks every right of a flow; `catalogue` is the source's."""
    with contextlib.closing(Grants(flow, settings, source=source, target=target)) as grants:
        try:
            found = await grants.look(list(wanted_topics(flow, catalogue)))
        except HeliographError as error:
            return [failed("rights", error).of(flow.name)]
    return [judge(grant).of(grant.cluster, grant.user, grant.right.resource.name) for grant in found]


def judge(grant: Grant) -> Note:
    """Judges a right: FAIL if missing and vital, WARN if missing otherwise, or granted for existing topics only."""
    right = grant.right
    if not grant.is_missing:
        if grant.later:
            return warned(
                "rights", f"{right}: granted for the existing topics, not for new ones: {right.without}", grant.remedy
            )
        return passed("rights", str(right))
    names = (
        ""
        if right.resource.is_one or grant.lacking == (right.resource.name,)
        else f", for {some_of(grant.lacking, NAMED)}"
    )
    what = f"{grant.what}{names}"
    return failed("rights", what, grant.remedy) if right.is_vital else warned("rights", what, grant.remedy)


def once(steps: Iterable[Step]) -> list[Step]:
    """Removes repeated steps: flows of the same clusters share rights."""
    return list(dict.fromkeys(steps))
