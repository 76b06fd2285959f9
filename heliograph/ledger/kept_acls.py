"""What a flow did about access rules on its target, and what it will do at a failover; kept in the ledger. Pure.

Only rules that we made ourselves are ever removed, so they must be known whoever leads the flow next. The grants to
write that copies do not get are kept for the day when the source cannot be asked for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from heliograph.kafka.admin.acls import Acl, AclResource, Operation, Pattern, ResourceType
from heliograph.ledger.untrusted_json import as_flag, as_list, as_text, take

NO_ACLS: dict[str, Any] = {"made": [], "withheld": [], "handed": []}
"""The fields of a record that was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAcls:
    """Of one resource of the target."""

    kind: ResourceType
    pattern: Pattern
    name: str
    made: dict[Acl, Acl] = field(default_factory=dict)
    """Rules that we made, each with what it stands for: the source's rule as it is carried over, but for its name."""
    withheld: frozenset[Acl] = frozenset()
    """Grants to write that are handed over at a failover, not before."""
    handed: frozenset[Acl] = frozenset()
    """Those of them that we made at a failover."""

    @property
    def resource(self) -> AclResource:
        return self.kind, self.pattern, self.name

    @property
    def is_empty(self) -> bool:
        return not (self.made or self.withheld or self.handed)

    def fields(self) -> dict[str, Any]:
        return {
            "made": sorted(
                [acl.principal, acl.host, acl.operation, acl.allow, origin.pattern, origin.name]
                for acl, origin in self.made.items()
            ),
            "withheld": _grant_fields(self.withheld),
            "handed": _grant_fields(self.handed),
        }

    @classmethod
    def parse(cls, rest: Sequence[Any], fields: Mapping[str, Any]) -> KeptAcls:
        """From the end of a record's key and its fields."""
        words = [as_text(word) for word in take(rest, 3)]
        kind, pattern, name = ResourceType(words[0]), Pattern(words[1]), words[2]
        resource: dict[str, Any] = {"resource_type": kind, "pattern": pattern, "name": name}
        made = dict(_parse_made(value, resource) for value in as_list(fields["made"]))
        withheld, handed = (
            frozenset(_parse_rule(take(as_list(value), 3), resource) for value in as_list(fields[grants]))
            for grants in ("withheld", "handed")
        )
        return cls(kind=kind, pattern=pattern, name=name, made=made, withheld=withheld, handed=handed)


def _parse_rule(who: Sequence[Any], resource: Mapping[str, Any], *, allow: bool = True) -> Acl:
    principal, host, operation = who
    return Acl(
        principal=as_text(principal),
        host=as_text(host),
        operation=Operation(as_text(operation)),
        allow=allow,
        **resource,
    )


def _parse_made(value: Any, resource: Mapping[str, Any]) -> tuple[Acl, Acl]:
    """A rule that we made, and what it stands for."""
    *who, allow, pattern, name = take(as_list(value), 6)
    made = _parse_rule(who, resource, allow=as_flag(allow))
    return made, replace(made, pattern=Pattern(as_text(pattern)), name=as_text(name))


def _grant_fields(grants: Iterable[Acl]) -> list[list[str]]:
    return sorted([acl.principal, acl.host, acl.operation] for acl in grants)


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
