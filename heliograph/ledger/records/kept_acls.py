"""The ledger record "acls": which access rules of a resource we made, and which wait for a failover. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from heliograph.kafka.admin.acls import Acl, AclResource, Operation, Pattern, ResourceType
from heliograph.ledger.records.ledger_record import JsonRecord
from heliograph.ledger.records.untrusted_json import as_flag, as_list, as_text, take


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAcls(JsonRecord):
    """The access rules of one resource of the target that we made, and those that are kept for a failover."""

    KIND: ClassVar[str] = "acls"
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

    def key_parts(self) -> Sequence[Any]:
        return self.resource

    def fields(self) -> Mapping[str, Any] | None:
        """Return the value's fields; a record that has nothing to say is deleted."""
        if self.is_empty:
            return None
        return {
            "made": sorted(
                [acl.principal, acl.host, acl.operation, acl.allow, origin.pattern, origin.name]
                for acl, origin in self.made.items()
            ),
            "withheld": _grant_fields(self.withheld),
            "handed": _grant_fields(self.handed),
        }

    @classmethod
    def parse_fields(cls, rest: Sequence[Any], fields: Mapping[str, Any]) -> KeptAcls:
        empty = cls.parse_deleted(rest)
        resource: dict[str, Any] = {"resource_type": empty.kind, "pattern": empty.pattern, "name": empty.name}
        made = dict(_parse_made(value, resource) for value in as_list(fields["made"]))
        withheld, handed = (
            frozenset(_parse_rule(take(as_list(value), 3), resource) for value in as_list(fields[grants]))
            for grants in ("withheld", "handed")
        )
        return replace(empty, made=made, withheld=withheld, handed=handed)

    @classmethod
    def parse_deleted(cls, rest: Sequence[Any]) -> KeptAcls:
        kind, pattern, name = map(as_text, take(rest, 3))
        return cls(kind=ResourceType(kind), pattern=Pattern(pattern), name=name)


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
    """Return a rule that we made, and what it stands for."""
    *who, allow, pattern, name = take(as_list(value), 6)
    made = _parse_rule(who, resource, allow=as_flag(allow))
    return made, replace(made, pattern=Pattern(as_text(pattern)), name=as_text(name))


def _grant_fields(grants: Iterable[Acl]) -> list[list[str]]:
    return sorted([acl.principal, acl.host, acl.operation] for acl in grants)
