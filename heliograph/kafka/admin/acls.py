"""Reads, creates and deletes a cluster's ACLs. Knows nothing of mirroring.

Words are those of Kafka's own tools. An ACL of an unknown kind, from a newer broker, is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from heliograph.errors import BrokerRefused, HeliographError, NotAuthorized, ProtocolError, UnsupportedVersion
from heliograph.kafka import messages
from heliograph.kafka.cluster import Cluster, refused
from heliograph.kafka.error_codes import Code

WILDCARD = "*"
"""As a literal name it means every resource of the type, as a host every host."""
CLUSTER_NAME = "kafka-cluster"
AT_ONCE = 500
"""Maximum number of ACLs created or deleted in one request."""
_ANY = 1
_DENY, _ALLOW = 2, 3


class Operation(StrEnum):
    ALL = "All"
    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    CLUSTER_ACTION = "ClusterAction"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"
    CREATE_TOKENS = "CreateTokens"
    DESCRIBE_TOKENS = "DescribeTokens"
    TWO_PHASE_COMMIT = "TwoPhaseCommit"


class ResourceType(StrEnum):
    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    TRANSACTIONAL_ID = "TransactionalId"
    DELEGATION_TOKEN = "DelegationToken"
    USER = "User"


class Pattern(StrEnum):
    LITERAL = "Literal"
    PREFIXED = "Prefixed"


# The wire's numbers follow the order above.
_OPERATIONS = dict(enumerate(Operation, start=2))
_RESOURCE_TYPES = dict(enumerate(ResourceType, start=2))
_PATTERNS = dict(enumerate(Pattern, start=3))


AclResource = tuple[ResourceType, Pattern, str]
"""The resource of an ACL: type, pattern type and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """Holds one ACL; `allow` False denies. The cluster's own name is CLUSTER_NAME."""

    principal: str
    operation: Operation
    resource_type: ResourceType
    name: str
    pattern: Pattern = Pattern.LITERAL
    host: str = WILDCARD
    allow: bool = True

    @property
    def resource(self) -> AclResource:
        return self.resource_type, self.pattern, self.name

    def __str__(self) -> str:
        verb = "allow" if self.allow else "deny"
        what = f'{self.operation} on {self.resource_type} "{self.name}" ({self.pattern})'
        return f"{verb} {self.principal} from {self.host} {what}"


async def describe_acls(cluster: Cluster, *, node_id: int | None = None) -> tuple[Acl, ...]:
    """Return every ACL as one broker knows it now. Raises NotAuthorized, or BrokerRefused if there is no authorizer."""
    request = messages.DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    response = await cluster.call(request, node_id=node_id)
    if response.error_code:
        raise _refusal(cluster, response, "DescribeAcls", "grant Describe on the cluster")
    found = (
        _maybe_acl(resource, resource.pattern_type, acl) for resource in response.resources for acl in resource.acls
    )
    return tuple(acl for acl in found if acl is not None)


async def maybe_describe_acls(cluster: Cluster) -> tuple[Acl, ...] | None:
    """Do the same as `describe_acls`; return None if there is no authorizer."""
    try:
        return await describe_acls(cluster)
    except BrokerRefused as error:
        if error.details.get("error_code") != Code.SECURITY_DISABLED:
            raise
        return None


async def has_authorizer(cluster: Cluster) -> bool:
    """Return whether the cluster has an authorizer; without one everybody may do everything."""
    request = messages.DescribeAclsRequest(
        resource_type_filter=_number(_RESOURCE_TYPES, ResourceType.CLUSTER),
        resource_name_filter=CLUSTER_NAME,
        pattern_type_filter=_number(_PATTERNS, Pattern.LITERAL),
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    try:
        response = await cluster.call(request)
    except UnsupportedVersion:
        return True
    return bool(response.error_code != Code.SECURITY_DISABLED)


async def create_acls(cluster: Cluster, acls: Sequence[Acl]) -> dict[Acl, HeliographError | None]:
    """Create ACLs; return the outcome of each. One that exists already counts as created."""
    creation = messages.CreateAclsRequest.AclCreation
    request = messages.CreateAclsRequest(
        creations=[
            creation(
                resource_type=_number(_RESOURCE_TYPES, acl.resource_type),
                resource_name=acl.name,
                resource_pattern_type=_number(_PATTERNS, acl.pattern),
                principal=acl.principal,
                host=acl.host,
                operation=_number(_OPERATIONS, acl.operation),
                permission_type=_ALLOW if acl.allow else _DENY,
            )
            for acl in acls
        ]
    )
    response = await cluster.call(request, node_id=await cluster.controller())
    return _outcome(cluster, acls, response.results, "CreateAcls")


async def delete_acls(cluster: Cluster, acls: Sequence[Acl]) -> dict[Acl, HeliographError | None]:
    """Delete exactly these ACLs; return the outcome of each. One that does not exist counts as deleted."""
    acl_filter = messages.DeleteAclsRequest.DeleteAclsFilter
    request = messages.DeleteAclsRequest(
        filters=[
            acl_filter(
                resource_type_filter=_number(_RESOURCE_TYPES, acl.resource_type),
                resource_name_filter=acl.name,
                pattern_type_filter=_number(_PATTERNS, acl.pattern),
                principal_filter=acl.principal,
                host_filter=acl.host,
                operation=_number(_OPERATIONS, acl.operation),
                permission_type=_ALLOW if acl.allow else _DENY,
            )
            for acl in acls
        ]
    )
    response = await cluster.call(request, node_id=await cluster.controller())
    return _outcome(cluster, acls, [_worst(result) for result in response.filter_results], "DeleteAcls")


def _worst(result: Any) -> Any:
    """Return the part of an answer that failed, of a filter and the ACLs it matched."""
    return next((part for part in (result, *(result.matching_acls or ())) if part.error_code), result)


def _outcome(
    cluster: Cluster, acls: Sequence[Acl], results: Sequence[Any], request: str
) -> dict[Acl, HeliographError | None]:
    if len(results) != len(acls):
        raise ProtocolError(
            f"an answer to {request} has {len(results)} results for {len(acls)} ACLs", where=f'"{cluster.alias}"'
        )
    return {
        acl: _refusal(cluster, result, f"{request} to {acl}", "grant Alter on the cluster")
        if result.error_code
        else None
        for acl, result in zip(acls, results, strict=True)
    }


def _refusal(cluster: Cluster, result: Any, what: str, remedy: str) -> HeliographError:
    where = f'"{cluster.alias}"'
    if result.error_code == Code.CLUSTER_AUTHORIZATION_FAILED:
        # The broker's own words are about one request and its buffers: never the same twice.
        return NotAuthorized(f"{what} refused", where=where, remedy=remedy)
    return refused(result.error_code, what, where=where, message=result.error_message)


def _maybe_acl(resource: Any, pattern: int, acl: Any) -> Acl | None:
    known = (_OPERATIONS, acl.operation), (_RESOURCE_TYPES, resource.resource_type), (_PATTERNS, pattern)
    if any(number not in words for words, number in known) or acl.permission_type not in (_DENY, _ALLOW):
        return None
    return Acl(
        principal=acl.principal,
        operation=_OPERATIONS[acl.operation],
        resource_type=_RESOURCE_TYPES[resource.resource_type],
        name=resource.resource_name,
        pattern=_PATTERNS[pattern],
        host=acl.host,
        allow=acl.permission_type == _ALLOW,
    )


def _number(words: Mapping[int, StrEnum], word: StrEnum) -> int:
    return next(number for number, known in words.items() if known is word)


def in_lots(acls: Sequence[Acl]) -> Iterator[Sequence[Acl]]:
    """Split ACLs into requests of a size that brokers accept."""
    return (acls[at : at + AT_ONCE] for at in range(0, len(acls), AT_ONCE))
