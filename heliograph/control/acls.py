"""Access rules of the source's topics, and if wished of its groups, carried over to the target.

By MirrorMaker 2's rule nobody gets a right to write to a copy by it: grants to write stay behind, a grant of everything
becomes one to read, and all else, denials included, is taken as it is, under the name of the copy. A rule on a prefix,
or on everything (`*`), is carried over only if that is asked for: as a rule on the prefix that the copies have, or,
where names do not keep one, as rules on the copies that exist. It never becomes a rule on all that the target has.

`plan_acl_sync` decides, and asks for differences only. What we made is kept in the ledger, and nothing else is ever
removed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from heliograph.config.settings import Flow
from heliograph.errors import ConfigError, HeliographError, NotAuthorized
from heliograph.flow.flow import FlowDriver
from heliograph.flow.supervisor import counted
from heliograph.kafka.admin.acls import (
    WILDCARD,
    Acl,
    AclResource,
    Operation,
    Pattern,
    ResourceType,
    create_acls,
    delete_acls,
    in_lots,
    maybe_describe_acls,
)
from heliograph.kafka.admin.groups import list_groups
from heliograph.kafka.cluster import Cluster
from heliograph.ledger import store
from heliograph.ledger.copy_names import GroupPlan, NamePlan, plan_groups
from heliograph.ledger.kept_acls import keep, plan_kept
from heliograph.ledger.records.seen_group import DELETED
from heliograph.names.policies import DefaultPolicy, IdentityPolicy
from heliograph.text import some_of

log = logging.getLogger("heliograph")

ALTER = "grant Alter on the cluster"
NAMED = 5
"""Maximum number of ACLs listed in a message."""


# -- what becomes of one rule


def carried(rule: Acl) -> Acl | None:
    """Decide what a rule of the source becomes on the target, under its old name; None if it is not copied."""
    if rule.resource_type not in (ResourceType.TOPIC, ResourceType.GROUP):
        return None
    if not rule.allow:
        return rule
    if rule.operation is Operation.ALL:
        return replace(rule, operation=Operation.READ)
    if rule.resource_type is ResourceType.GROUP:
        return rule if rule.operation in (Operation.READ, Operation.DESCRIBE) else None
    return rule if rule.operation is not Operation.WRITE else None


def grants_writing(rule: Acl) -> bool:
    """Whether it is a grant of which copies get nothing, or not all, before a failover."""
    is_topic = rule.resource_type is ResourceType.TOPIC
    return is_topic and rule.allow and rule.operation in (Operation.WRITE, Operation.ALL)


def is_wide(resource: AclResource) -> bool:
    """Whether it is more than one name."""
    _, pattern, name = resource
    return pattern is Pattern.PREFIXED or name == WILDCARD


@dataclass(frozen=True, slots=True)
class _Names:
    """Maps names of one kind to the target."""

    remote: Callable[[str], str | None]
    """A name's name there; None if it is not copied."""
    prefix: Callable[[str], str]
    """What the names with a prefix begin with there; empty if that is nothing of their own."""
    known: Mapping[str, str]
    """The names that exist and are copied, with those on the target."""

    def places(self, resource: AclResource) -> list[tuple[Pattern, str]]:
        """List the target resources for rules on a source resource; none if nothing of it is copied."""
        _, pattern, name = resource
        if not is_wide(resource):
            there = self.remote(name)
            return [(Pattern.LITERAL, there)] if there is not None else []
        beginning = name if pattern is Pattern.PREFIXED else ""
        covered = [remote for known, remote in self.known.items() if known.startswith(beginning)]
        if covered and (prefix := self.prefix(beginning)):
            return [(Pattern.PREFIXED, prefix)]
        return [(Pattern.LITERAL, remote) for remote in covered]


def _all_names(flow: Flow, topics: NamePlan, groups: GroupPlan) -> dict[ResourceType, _Names]:
    """Make the names of each kind that the flow copies ACLs of."""
    sync = flow.topic_sync
    found: dict[ResourceType, _Names] = {}
    if sync.acls_enabled:
        rivalled = [topic for topic, error in topics.refused.items() if "rival" in error.details]

        def new_topic(topic: str) -> str | None:
            return flow.remote_topic(topic) if flow.mirrors(topic) else None

        def prefix(beginning: str) -> str:
            """Empty also where somebody else's copy has it."""
            keeps_prefixes = type(flow.policy) in (DefaultPolicy, IdentityPolicy)
            is_own = not any(topic.startswith(beginning) for topic in rivalled)
            return flow.remote_topic(beginning) if keeps_prefixes and is_own else ""

        found[ResourceType.TOPIC] = _Names(_literal(topics, topics.taken, new_topic), prefix, topics.wanted)
    if (selected := sync.group_acls) is not None:

        def new_group(group: str) -> str | None:
            return flow.remote_group(group) if selected.accepts(group) else None

        remote = _literal(groups, frozenset(groups.wanted.values()), new_group)
        found[ResourceType.GROUP] = _Names(remote, (lambda _: "") if flow.group_renames else str, groups.wanted)
    return found


def _literal(
    plan: NamePlan | GroupPlan, taken: Collection[str], new: Callable[[str], str | None]
) -> Callable[[str], str | None]:
    """Map one name: as planned, or, if it does not exist yet, as `new` says and nobody else's is."""

    def remote(name: str) -> str | None:
        if name in plan.wanted or name in plan.refused:
            return plan.wanted.get(name)
        try:
            there = new(name)
        except ConfigError:  # told as NAME_REFUSED when it exists
            return None
        return there if there and there not in taken else None

    return remote


# -- what to do


@dataclass(frozen=True, slots=True, kw_only=True)
class AclPlan:
    """The changes that make the target's rules what they should be."""

    create: dict[Acl, Acl]
    """Each with what it stands for: the source's rule as it is copied, but for its name."""
    delete: tuple[Acl, ...]
    made: dict[Acl, Acl]
    """The rules that we made before and that are still there."""
    withheld: frozenset[Acl]
    """Grants to write, for a failover."""
    left_out: tuple[Acl, ...]
    """Rules of the source on more than one name, of which some are carried over, while that is not asked for."""


def plan_acl_sync(
    source: Iterable[Acl],
    target: Collection[Acl],
    *,
    flow: Flow,
    topics: NamePlan,
    groups: GroupPlan,
    made: Mapping[Acl, Acl],
) -> AclPlan:
    """Plan which rules to make and which to remove, given the rules of both clusters.

    `topics` are the names of the source's topics on the target, `groups` those of its groups, `made` the rules that we
    made earlier. Of these one is removed only when the rule that it stands for has gone from the source: not because
    its topic, or the option that brought it, was deselected.
    """
    sync, names = flow.topic_sync, _all_names(flow, topics, groups)
    rules: dict[AclResource, list[Acl]] = {}
    for rule in source:
        rules.setdefault(rule.resource, []).append(rule)
    wanted: dict[Acl, Acl] = {}
    withheld: set[Acl] = set()
    left_out: list[Acl] = []
    for resource, found in rules.items():
        places = names[resource[0]].places(resource) if resource[0] in names else []
        if places and is_wide(resource) and not sync.acls_prefixed:
            left_out += (rule for rule in found if carried(rule) or (sync.write_on_failover and grants_writing(rule)))
            continue
        for pattern, name in places:
            for rule in found:
                if (origin := carried(rule)) is not None:
                    wanted.setdefault(replace(origin, pattern=pattern, name=name), origin)
                if sync.write_on_failover and grants_writing(rule):
                    withheld.add(replace(rule, pattern=pattern, name=name))
    there = frozenset(target)
    standing = {acl: wanted.get(acl, origin) for acl, origin in made.items() if acl in there}
    asked = {carried(rule) for found in rules.values() for rule in found}
    gone = (acl for acl, origin in standing.items() if acl not in wanted and origin not in asked)
    return AclPlan(
        create={acl: origin for acl, origin in wanted.items() if acl not in there},
        delete=tuple(gone) if sync.acls_delete else (),
        made=standing,
        withheld=frozenset(withheld),
        left_out=tuple(left_out),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    created: tuple[Acl, ...]
    deleted: tuple[Acl, ...]
    refused: dict[Acl, HeliographError]


async def apply_acl_sync(
    target: Cluster, plan: AclPlan, *, keep_made: Callable[[Mapping[Acl, Acl]], Awaitable[None]]
) -> Applied:
    """Make and remove rules; `keep_made` is told all that are ours after each request, that a crash forgets little.

    Raises NotAuthorized if we may not; what the target refuses for another reason does not keep the others.
    """
    made = dict(plan.made)
    created: list[Acl] = []
    deleted: list[Acl] = []
    refused: dict[Acl, HeliographError] = {}
    await keep_made(made)
    for few in in_lots(list(plan.create)):
        done = _done(await create_acls(target, few), refused)
        made |= {acl: plan.create[acl] for acl in done}
        created += done
        await keep_made(made)
    for few in in_lots(plan.delete):
        done = _done(await delete_acls(target, few), refused)
        made = {acl: origin for acl, origin in made.items() if acl not in done}
        deleted += done
        await keep_made(made)
    if error := next((error for error in refused.values() if isinstance(error, NotAuthorized)), None):
        request = "CreateAcls" if plan.create else "DeleteAcls"
        raise NotAuthorized(f"{request} refused", where=error.where, why=error.why, remedy=error.remedy)
    return Applied(created=tuple(created), deleted=tuple(deleted), refused=refused)


def _done(outcome: Mapping[Acl, HeliographError | None], refused: dict[Acl, HeliographError]) -> list[Acl]:
    refused |= {acl: error for acl, error in outcome.items() if error is not None}
    return [acl for acl, error in outcome.items() if error is None]


# -- again and again


class AclSync:
    """Syncs the ACLs of one flow."""

    def __init__(self, flow: FlowDriver) -> None:
        self._flow = flow
        self._lacking = ""
        self._left_out: frozenset[Acl] = frozenset()
        self._refused: frozenset[Acl] = frozenset()
        self._withheld = 0
        self.created = self.deleted = 0
        """Over all passes."""

    def interval_s(self) -> float | None:
        flow = self._flow.flow
        return float(flow.topic_sync.acls_interval_s) if flow.is_running and flow.topic_sync.copies_acls else None

    async def sync(self) -> None:
        """Bring the target's ACLs in line with the source's."""
        flow, settings = self._flow, self._flow.flow
        source = await maybe_describe_acls(flow.source)
        target = await self._target_rules() if source is not None else None
        self._tell_lacking(settings.source if source is None else settings.target if target is None else "")
        if source is None or target is None:
            return
        plan = plan_acl_sync(
            source,
            target,
            flow=settings,
            topics=flow.topics.names.plan(),
            groups=await self._groups(source),
            made={acl: origin for kept in flow.ledger.acls.values() for acl, origin in kept.made.items()},
        )
        self._tell_left_out(plan.left_out)
        if not flow.opening.leads():
            return

        async def keep_made(made: Mapping[Acl, Acl]) -> None:
            changed = plan_kept(flow.ledger.acls, made=made, withheld=plan.withheld)
            await store.write_records(flow.target, flow.ledger_topic, settings.group_id, changed)
            for record in changed:
                keep(flow.ledger.acls, record)

        self._tell(plan, await apply_acl_sync(flow.target, plan, keep_made=keep_made))

    async def _target_rules(self) -> tuple[Acl, ...] | None:
        """Read the target's rules; the right to ask for is the one to change them, which includes reading."""
        try:
            return await maybe_describe_acls(self._flow.target)
        except NotAuthorized as error:
            raise NotAuthorized(error.what, where=error.where, why=error.why, remedy=ALTER) from error

    async def _groups(self, source: Iterable[Acl]) -> GroupPlan:
        """Plan the names of the source's groups, if they matter: for wide rules, and where two may clash."""
        flow, seen = self._flow.flow, self._flow.ledger.groups
        selected = flow.topic_sync.group_acls
        is_wanted = selected is not None and any(
            rule.resource_type is ResourceType.GROUP and (is_wide(rule.resource) or flow.group_renames)
            for rule in source
        )
        groups = await list_groups(self._flow.source) if is_wanted else ()
        known = [name for name, group in seen.items() if group.state != DELETED]
        return plan_groups(flow, groups, known=known, selected=selected)

    # -- what is said of it

    def _tell_lacking(self, cluster: str) -> None:
        """Log that a cluster has no authorizer, so no rules to copy or keep, and that it has one again."""
        if cluster == self._lacking:
            return
        if cluster:
            log.info('%s: no access rules are copied: "%s" has no authorizer', self._flow.name, cluster)
        else:
            log.info('%s: "%s" has an authorizer now: access rules are copied', self._flow.name, self._lacking)
        self._lacking = cluster

    def _tell_left_out(self, left_out: Sequence[Acl]) -> None:
        if not frozenset(left_out) <= self._left_out:
            denials = sum(not rule.allow for rule in left_out)
            log.log(
                logging.WARNING if denials else logging.INFO,
                '%s: not copied without sync.topic.acls.prefixed=true: %s of "%s" on prefixes or on everything%s: %s',
                *(self._flow.name, counted(len(left_out), "access rule"), self._flow.flow.source),
                f" ({denials} deny: copies are more open than their source without them)" if denials else "",
                some_of(left_out, separator="; "),
            )
        self._left_out = frozenset(left_out)

    def _tell(self, plan: AclPlan, applied: Applied) -> None:
        flow = self._flow
        self.created += len(applied.created)
        self.deleted += len(applied.deleted)
        for what, rules in (("made", applied.created), ("removed", applied.deleted)):
            if rules:
                log.info(
                    '%s: %s %s on "%s": %s',
                    *(
                        flow.name,
                        counted(len(rules), "access rule"),
                        what,
                        flow.flow.target,
                        some_of(rules, separator="; "),
                    ),
                )
        news = [str(error) for acl, error in applied.refused.items() if acl not in self._refused]
        for text in news[:NAMED]:
            log.warning("%s: an access rule is not copied: %s", flow.name, text)
        if news[NAMED:]:
            log.warning("%s: %d more access rules are refused", flow.name, len(news) - NAMED)
        if self._refused and not applied.refused:
            log.info("%s: access rules are accepted again", flow.name)
        self._refused = frozenset(applied.refused)
        if len(plan.withheld) != self._withheld:
            log.info(
                '%s: kept on "%s" for a failover: %s',
                *(flow.name, flow.flow.target, counted(len(plan.withheld), "write grant")),
            )
        self._withheld = len(plan.withheld)
