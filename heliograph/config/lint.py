"""Finds settings that are allowed but probably not meant: checks over parts and settings beyond single keys. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from heliograph.config.cycles import (
    Way,
    cycles_of_acls,
    cycles_of_configs,
    cycles_of_group_acls,
    cycles_of_groups,
    double_ways,
    returning_names,
    rivals_of_configs,
    unmarked_cycles,
)
from heliograph.config.files.parts import FlowParts, Parts
from heliograph.config.findings import Config, ConfigEntry, Report
from heliograph.config.keys.table import DEFAULTS
from heliograph.config.keys.values import BadValue, parse_value, split_list
from heliograph.config.name_settings import written_patterns
from heliograph.config.settings import Flow, Settings
from heliograph.names.filters import MAX_LENGTH
from heliograph.names.policies import IdentityPolicy
from heliograph.names.renaming import Rename, RenamingPolicy, without_rules
from heliograph.text import some_of

DAY_S = 86_400
MANY_REPLICAS = 3
_PATTERN_KEYS = ("topics", "topics.exclude", "topics.blacklist", "groups", "groups.exclude", "groups.blacklist")
_DOT = re.compile(r"(?<=[A-Za-z0-9])\.")
_CLASS_OR_QUOTE = re.compile(r"\\Q.*?(?:\\E|$)|\[(?:\\.|[^\]])*(?:\]|\Z)|\\.", re.DOTALL)
_GLOB = re.compile(r"(?:^|\|)\*|(?<=[A-Za-z0-9_-])\*(?=$|\|)")
_POSIX = re.compile(r"\[\[:[a-z]+:\]\]")


def lint(parts: Sequence[Parts], settings: Settings, report: Report) -> None:
    """Adds errors, warnings and infos to the report."""
    for part in parts:
        for flow in part.flows:
            for config in {id(config): config for config in flow.connectors.values()}.values():
                _check_entries(config, report)
            _check_entries(flow.worker, report)
    _check_cycles(settings, parts, report)
    _check_sync_cycles(settings, parts, report)
    _check_one_way_cycles(settings, parts, report)
    _check_marked_remaps(settings, parts, report)
    _check_checkpoints(settings, parts, report)
    _check_group_keys(settings, parts, report)
    _check_acl_keys(settings, parts, report)


def _check_entries(config: Config, report: Report) -> None:
    for name, entry in config.items():
        if entry.place is None or entry.reference:  # the value of a placeholder is never discussed
            continue
        if name.startswith("refresh.") and name.endswith(".interval.seconds"):
            _check_interval(name, entry, report)
        elif name.endswith("replication.factor"):
            _check_factor(name, entry, report)
        elif name in _PATTERN_KEYS and len(entry.value) <= MAX_LENGTH:
            for pattern in split_list(entry.value):
                _check_pattern(pattern, entry, report)
    for entry in written_patterns(config):
        if entry.place is not None and not entry.reference:
            _check_pattern(entry.value, entry, report)


def _number(name: str, entry: ConfigEntry) -> int | None:
    key = DEFAULTS.get(name)
    try:
        value = parse_value(key, entry.value) if key is not None else None
    except BadValue:
        return None
    return value if isinstance(value, int) else None


def _check_interval(name: str, entry: ConfigEntry, report: Report) -> None:
    seconds = _number(name, entry)
    if seconds is not None and seconds > DAY_S:
        likely = seconds // 1000
        meant = f"; if milliseconds are meant, write {likely}" if seconds % 1000 == 0 else ""
        report.warn(
            "long-interval",
            f'"{entry.key}" is {seconds / DAY_S:.1f} days: topics or groups created in between wait that long',
            entry,
            remedy=f"the unit is seconds{meant}",
        )


def _check_factor(name: str, entry: ConfigEntry, report: Report) -> None:
    factor = _number(name, entry)
    if factor is not None and factor > MANY_REPLICAS:
        report.inform("many-replicas", f'"{entry.key}" = {factor} is unusually high; {MANY_REPLICAS} is usual', entry)


def _check_pattern(pattern: str, entry: ConfigEntry, report: Report) -> None:
    bare = _CLASS_OR_QUOTE.sub("]", pattern)
    if _GLOB.search(bare):
        report.warn(
            "glob",
            f'"{entry.key}": in "{pattern}" the star repeats the character before it; it does not stand for any text',
            entry,
            remedy='write ".*" for any text',
        )
    if (posix := _POSIX.search(pattern)) is not None:
        report.warn(
            "posix-class",
            f'"{entry.key}": Java reads "{posix[0]}" as a set of letters',
            entry,
            remedy=r"write \p{Alpha} or a similar class",
        )
    if " " in pattern:
        report.warn("blank-in-pattern", f'"{entry.key}": "{pattern}" has a space, which no name contains', entry)
    if _DOT.search(bare):
        report.inform(
            "unescaped-dot",
            f'"{entry.key}": a dot in "{pattern}" matches any character',
            entry,
            remedy=r"write \. (in a property file \\.) for a dot",
        )


def _check_cycles(settings: Settings, parts: Sequence[Parts], report: Report) -> None:
    """Reports cycles with kept topic names, in which records would be copied for ever or arrive twice."""
    places = {flow.name: flow.place for flow in _all_flows(parts)}
    flows = (*settings.flows, *settings.elsewhere)
    for way in unmarked_cycles(flows):
        report.error(
            "identity-cycle",
            f"flows with identity naming form a cycle: {_shown(way)}; records would be copied for ever",
            places.get(way[0].name),
            remedy=f"set provenance.headers = true for {_named(way)}, or give them topics patterns without a name in "
            "common, or give all of them the default policy",
        )
    for way in cycles_of_groups(flows):
        report.error(
            "group-cycle",
            f"the flows {_shown(way)} would push group offsets forward, and groups would skip records: each writes "
            "offsets that come from its own writes",
            places.get(way[0].name),
            remedy="set sync.group.offsets.enabled = false for one of these flows, or give them groups patterns "
            "without a name in common",
        )
    for one, other in double_ways(flows):
        report.error(
            "arrives-twice",
            f'records of "{one[0].source}" would reach "{one[-1].target}" twice with the same name: over {_shown(one)} '
            f"and over {_shown(other)}",
            places.get(other[-1].name),
            remedy="remove one of the paths: a pair, a chain or a ring of flows brings each record everywhere once",
        )
    seen: set[str] = set()
    for name, way, back in (found for found in returning_names(flows) if not found.is_stopped):
        if _shown(way) in seen:
            continue
        seen.add(_shown(way))
        how = "again and again" if back == name else f'as "{back}", and are copied on under ever longer names'
        report.error(
            "returning-topic",
            f'copies of a topic such as "{name}" come back over {_shown(way)} {how}',
            places.get(way[0].name),
            remedy="give all of these flows the default policy, or exclude the copies with topics.exclude",
        )


def _check_sync_cycles(settings: Settings, parts: Sequence[Parts], report: Report) -> None:
    """Reports topic configs and ACLs that two clusters sync from each other: neither could be changed."""
    places = {flow.name: flow.place for flow in _all_flows(parts)}
    flows = (*settings.flows, *settings.elsewhere)
    topics_apart = ", or give them topics patterns without a name in common"
    set_back = "a topic config changed on one cluster would be reset from the other"
    revoked = "an ACL deleted on one cluster would be created again from the other"
    for rule, key, what, ways, apart in (
        ("config-cycle", "sync.topic.configs.enabled", set_back, cycles_of_configs(flows), topics_apart),
        ("acl-cycle", "sync.topic.acls.enabled", revoked, cycles_of_acls(flows), topics_apart),
        ("acl-cycle", "sync.group.acls.enabled", revoked, cycles_of_group_acls(flows), ""),
    ):
        if ways:
            report.error(
                rule,
                f"{what}: {some_of([*map(_shown, ways)])} with {key} in every flow of the cycle",
                places.get(ways[0][0].name),
                remedy=f"set {key} = false for the flow into the cluster where they are changed{apart}",
            )
    for one, other in rivals_of_configs(flows):
        report.error(
            "config-rivals",
            f'{one.name} and {other.name} would both overwrite the configs of the same topics of "{one.target}"',
            places.get(other.name),
            remedy=f"set sync.topic.configs.enabled = false for one of them{topics_apart}",
        )


def _check_one_way_cycles(settings: Settings, parts: Sequence[Parts], report: Report) -> None:
    """Reports one-way renaming rules in a cycle: nobody could tell from the copies' names where they came from."""
    ends: dict[str, set[str]] = {}
    for flow in settings.enabled_flows:
        ends.setdefault(flow.source, set()).add(flow.target)
    places = {flow.name: flow.place for flow in _all_flows(parts)}
    for flow in settings.enabled_flows:
        one_way = [rule for rule in _rules(flow) if rule.one_way]
        if one_way and flow.source in _reached(flow.target, ends):
            report.error(
                "one-way-cycle",
                f'{flow.name} is part of a cycle, and its rule "{one_way[0].pattern}" cannot be reversed: copies '
                "that it names would not be recognised when they come back",
                places.get(flow.name),
                remedy=f"change the rule ({one_way[0].one_way}), or disable a flow of the cycle",
            )


def _check_marked_remaps(settings: Settings, parts: Sequence[Parts], report: Report) -> None:
    """Refuses provenance headers with remapped partitions.

    Copies that share a partition must know each batch before theirs; with provenance headers other flows write there
    all the time.
    """
    places = {flow.name: flow.place for flow in _all_flows(parts)}
    for flow in settings.enabled_flows:
        if flow.provenance_headers and flow.remaps_partitions:
            report.error(
                "marked-remap",
                f"{flow.name}: provenance.headers and partition.remap cannot be used together",
                places.get(flow.name),
                remedy="give the topics the same number of partitions on both clusters, and remove partition.remap",
            )


def _rules(flow: Flow) -> list[Rename]:
    if not isinstance(flow.policy, RenamingPolicy):
        return []
    return [rule for _, renames in flow.policy.rules for rule in renames.rules]


def _reached(start: str, ends: Mapping[str, set[str]]) -> set[str]:
    found, waiting = set[str](), [start]
    while waiting:
        for following in ends.get(waiting.pop(), set()) - found:
            found.add(following)
            waiting.append(following)
    return found


def _shown(way: Way) -> str:
    return "->".join([way[0].source, *(flow.target for flow in way)])


def _named(flows: Way) -> str:
    return " and ".join(flow.name for flow in flows if not flow.provenance_headers)


def _check_checkpoints(settings: Settings, parts: Sequence[Parts], report: Report) -> None:
    syncs = any(flow.checkpoints is not None and flow.checkpoints.sync_group_offsets for flow in settings.flows)
    places = {flow.name: flow.place for flow in _all_flows(parts)}
    for flow in settings.enabled_flows:
        if flow.checkpoints is None and (syncs or _is_identity(flow)):
            report.warn(
                "no-checkpoints",
                f"{flow.name} syncs no consumer group{_because(flow)}",
                places.get(flow.name),
                remedy="add a checkpointConnector, or set emit.checkpoints.enabled = true",
            )


def _check_group_keys(settings: Settings, parts: Sequence[Parts], report: Report) -> None:
    """Reports keys that need something that another key has switched off."""
    written = {flow.name: _written(flow) for flow in _all_flows(parts)}
    for flow in settings.enabled_flows:
        keys = written.get(flow.name, {})
        sync = keys.get("sync.group.offsets.enabled")
        if flow.checkpoints is None and sync is not None and sync.value.strip().lower() == "true":
            report.warn(
                "sync-without-checkpoints",
                f'"{sync.key}" has no effect: {flow.name} syncs no consumer group',
                sync,
                remedy="set emit.checkpoints.enabled = true",
            )
        translation = keys.get("offset.translation")
        if flow.offset_translation == "mm2" and not flow.offset_syncs.enabled and translation is not None:
            report.warn(
                "translation-without-syncs",
                f'"{translation.key}" = mm2 translates no offset: {flow.name} writes no offset-syncs',
                translation,
                remedy="set emit.offset-syncs.enabled = true, or remove offset.translation",
            )


def _check_acl_keys(settings: Settings, parts: Sequence[Parts], report: Report) -> None:
    """Reports options of ACL sync where no ACLs are synced."""
    written = {flow.name: _written(flow) for flow in _all_flows(parts)}
    for flow in settings.enabled_flows:
        sync = flow.topic_sync
        idle = {
            "write.on.failover": sync.write_on_failover and not sync.acls_enabled,
            "sync.topic.acls.prefixed": sync.acls_prefixed and not sync.copies_acls,
            "sync.topic.acls.delete": sync.acls_delete and not sync.copies_acls,
        }
        for name, entry in written.get(flow.name, {}).items():
            if idle.get(name):
                report.warn(
                    "acls-not-copied",
                    f'"{entry.key}" has no effect: {flow.name} syncs no ACLs of topics',
                    entry,
                    remedy="set sync.topic.acls.enabled = true",
                )


def _written(flow: FlowParts) -> Config:
    """Returns the keys of all connectors of a flow that are written in the file."""
    return {
        name: entry for config in flow.connectors.values() for name, entry in config.items() if entry.place is not None
    }


def _because(flow: Flow) -> str:
    kept = ", but its topics keep their names, as if for a failover"
    return kept if _is_identity(flow) else ", but other flows of the file do"


def _is_identity(flow: Flow) -> bool:
    return isinstance(without_rules(flow.policy), IdentityPolicy)


def _all_flows(parts: Sequence[Parts]) -> Iterable[FlowParts]:
    return (flow for part in parts for flow in part.flows)
