"""Keeps which access rules a flow made on its target, and which wait for a failover. Pure.

Only rules that we made ourselves are ever removed, so they must be known whoever leads the flow next. The grants to
write that copies do not get are kept for the day when the source cannot be asked for them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from heliograph.kafka.admin.acls import Acl, AclResource
from heliograph.ledger.records.kept_acls import KeptAcls


def plan_kept(
    kept: Mapping[AclResource, KeptAcls], *, made: Mapping[Acl, Acl], withheld: Collection[Acl]
) -> list[KeptAcls]:
    """The records to write so that all of them say this; of what was handed over they say what they said."""
    made_by: dict[AclResource, dict[Acl, Acl]] = {}
    withheld_by: dict[AclResource, set[Acl]] = {}
    for acl, origin in made.items():
        made_by.setdefault(acl.resource, {})[acl] = origin
    for acl in withheld:
        withheld_by.setdefault(acl.resource, set()).add(acl)
    changed = []
    for resource in dict.fromkeys([*kept, *made_by, *withheld_by]):
        before = kept.get(resource)
        kind, pattern, name = resource
        after = KeptAcls(
            kind=kind,
            pattern=pattern,
            name=name,
            made=made_by.get(resource, {}),
            withheld=frozenset(withheld_by.get(resource, ())),
            handed=before.handed if before is not None else frozenset(),
        )
        if after != before:
            changed.append(after)
    return changed


def keep(kept: dict[AclResource, KeptAcls], record: KeptAcls) -> None:
    """Take a record into what is known."""
    if record.is_empty:
        kept.pop(record.resource, None)
    else:
        kept[record.resource] = record
