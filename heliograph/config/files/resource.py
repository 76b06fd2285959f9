"""Reads `KafkaMirrorMaker2` resources of Strimzi, AMQ Streams and IBM Event Streams.

Each document becomes parts, with the keys and defaults that Strimzi would give to the worker and to each connector. A
connector whose block is absent does not run. References to secrets become placeholders, which are resolved like those
of a property file.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace

from heliograph.config.files.layers import BYTE_ARRAY_CONVERTER, CONNECTOR_PACKAGE
from heliograph.config.files.parts import (
    Connector,
    ConnectorState,
    FlowParts,
    MirrorResource,
    Parts,
    default_entries,
    sided,
    with_client_copies,
)
from heliograph.config.files.property_file import check_alias
from heliograph.config.files.resource_fields import (
    AUTO_RESTART,
    CLUSTER,
    CONNECTOR,
    DOCUMENT,
    MIRROR,
    OLD_ONLY,
    OLD_PATTERNS,
    PATTERNS,
    SPEC,
    STORAGE,
    TARGET,
    V1_ONLY,
    FieldRole,
    check_fields,
)
from heliograph.config.files.resource_login import SecurityReader
from heliograph.config.files.yaml_nodes import NodeReader, key_place, text_of, texts_of
from heliograph.config.files.yaml_tree import Mapping as Map
from heliograph.config.files.yaml_tree import Node, Scalar, Sequence, to_plain
from heliograph.config.findings import Config, ConfigEntry, FilePlace, Report
from heliograph.config.keys.key import Scope, Where
from heliograph.config.keys.key_check import check_entry
from heliograph.config.keys.table import DEFAULTS
from heliograph.config.secrets import Resolver

GROUPS = ("kafka.strimzi.io", "eventstreams.ibm.com")
VERSIONS = ("v1alpha1", "v1beta1", "v1beta2", "v1")
ANNOTATION = "heliograph/"
"""Prefix of the annotations that hold settings of the whole mirror."""

KIND = "KafkaMirrorMaker2"
_BLOCKS = {
    "sourceConnector": Connector.SOURCE,
    "checkpointConnector": Connector.CHECKPOINT,
    "heartbeatConnector": Connector.HEARTBEAT,
}
_WORKER_DEFAULTS = {
    "group.id": "mirrormaker2-cluster",
    "offset.storage.topic": "mirrormaker2-cluster-offsets",
    "config.storage.topic": "mirrormaker2-cluster-configs",
    "status.storage.topic": "mirrormaker2-cluster-status",
    "key.converter": BYTE_ARRAY_CONVERTER,
    "value.converter": BYTE_ARRAY_CONVERTER,
    "header.converter": BYTE_ARRAY_CONVERTER,
}
_FORBIDDEN = (
    "ssl.", "sasl.", "security.", "listeners", "plugin.path", "rest.", "bootstrap.servers",
    "consumer.interceptor.classes", "producer.interceptor.classes",
)  # fmt: skip
_FORBIDDEN_V1 = tuple(STORAGE.values())
ALLOWED_IN_CONFIG = (
    "ssl.endpoint.identification.algorithm", "ssl.cipher.suites", "ssl.protocol", "ssl.enabled.protocols",
)  # fmt: skip
_OF_WORKER = (Scope.WORKER, Scope.WORKER_OR_TOP)


def read_resources(documents: list[Node], report: Report, resolver: Resolver) -> list[Parts]:
    """Returns the parts of every mirror among the documents; documents of other kinds are ignored with a notice."""
    found = [document for node in documents for document in _unpack(node)]
    parts: list[Parts] = []
    for document in found:
        kind, version = text_of(document, "kind"), text_of(document, "apiVersion")
        group = version.partition("/")[0]
        if kind == KIND:
            read = _Document(document, report, resolver).read()
            parts += [read] if read is not None else []
        elif kind == "KafkaMirrorMaker" and group in GROUPS:
            _answer_version_1(document, report)
        elif group in GROUPS and difflib.get_close_matches(kind.lower(), [KIND.lower()], cutoff=0.85):
            what, place = f'"{kind}" is not a known kind', key_place(document, "kind")
            report.error("misspelt-key", what, place, remedy=f'did you mean "{KIND}"?')
        elif not kind and any(name in document.items for name in ("spec", "connectCluster", "mirrors")):
            report.error(
                "no-kind",
                'the document has no "kind"',
                document.place,
                remedy=f'write "kind: {KIND}" and its apiVersion; check the indentation',
            )
        else:
            what = f'a document of kind "{kind or "unknown"}" ({version or "no apiVersion"}) is ignored'
            report.inform("other-document", what, document.place)
    if not parts and not report.has_errors:
        report.error("no-mirror", f"no document of the file is a {KIND}", remedy="give a file that has one")
    return parts


def _unpack(node: Node) -> list[Map]:
    """Returns the document, or the items of a `kind: List`."""
    if not isinstance(node, Map):
        return []
    items = node.get("items")
    if text_of(node, "kind").endswith("List") and isinstance(items, Sequence):
        return [item for item in items.items if isinstance(item, Map)]
    return [node]


class _Document:
    """Reads one `KafkaMirrorMaker2` document."""

    def __init__(self, document: Map, report: Report, resolver: Resolver) -> None:
        self._document = document
        self._report = report
        self._nodes = NodeReader(report)
        self._resolver = resolver
        group, _, version = text_of(document, "apiVersion").partition("/")
        self._is_v1 = version == "v1"
        if group not in GROUPS or version not in VERSIONS:
            report.error(
                "unknown-version",
                f'apiVersion "{text_of(document, "apiVersion")}" is not known',
                key_place(document, "apiVersion"),
                remedy=f"write {' or '.join(GROUPS)}, then /{', /'.join(VERSIONS)}",
            )

    def read(self) -> Parts | None:
        check_fields(self._document, DOCUMENT, "", self._report)
        spec = self._nodes.map(self._document, "spec", "the document")
        if spec is None:
            self._report.error(
                "no-spec", 'the document has no "spec"', self._document.place, remedy="check the indentation"
            )
            return None
        roles = check_fields(spec, SPEC, "spec", self._report)
        self._check_layout(spec, "spec")
        self._declare_providers(spec)
        clusters = self._clusters(spec)
        connect = self._connect_cluster(spec, clusters)
        if connect is None:
            return None
        metadata = self._nodes.map(self._document, "metadata", "the document")
        top = self._top(metadata)
        return Parts(
            clusters=clusters,
            flows=tuple(self._flows(spec, clusters, connect)),
            top=top,
            heartbeats_everywhere="emit.heartbeats.enabled" in top and top["emit.heartbeats.enabled"].value == "true",
            resource=MirrorResource(
                name=text_of(metadata, "name"),
                namespace=text_of(metadata, "namespace"),
                api_version=text_of(self._document, "apiVersion"),
                pods={name: to_plain(spec.items[name]) for name, role in roles.items() if role is FieldRole.PODS},
            ),
        )

    def _check_layout(self, node: Map, path: str) -> None:
        """Warns of fields that belong to the layout of another version: this version does not read them."""
        for name in (OLD_ONLY if self._is_v1 else V1_ONLY) & node.items.keys():
            other = "versions before v1" if self._is_v1 else "v1"
            what = f'"{path}.{name}" has no effect here: it belongs to {other}'
            self._report.warn("wrong-version", what, node.keys[name], remedy="check the apiVersion")

    # -- clusters ------------------------------------------------------------------------

    def _clusters(self, spec: Map) -> dict[str, Config]:
        clusters: dict[str, Config] = {}
        for node, path in self._cluster_nodes(spec):
            is_target = path == "spec.target"
            check_fields(node, TARGET if is_target else CLUSTER, path, self._report)
            alias = self._nodes.required(node, "alias", path)
            if alias is None:
                continue
            check_alias(alias.value, alias, self._report)
            if alias.value in clusters and not self._is_v1:
                self._report.error("alias-twice", f'two clusters have the alias "{alias.value}"', alias)
                continue
            is_connect = is_target or alias.value == text_of(spec, "connectCluster")
            clusters[alias.value] = self._cluster(node, alias.value, path, is_connect=is_connect)
        return clusters

    def _declare_providers(self, spec: Map) -> None:
        """Declares a worker's config providers before anything is resolved: they serve all clusters and connectors."""
        mirrors = [mirror for mirror, _ in self._nodes.maps(spec, "mirrors", "spec")]
        blocks = [mirror.get(field) for mirror in mirrors for field in _BLOCKS]
        for node in (*(node for node, _ in self._cluster_nodes(spec)), *blocks):
            own = node.get("config") if isinstance(node, Map) else None
            texts = texts_of(own) if isinstance(own, Map) else {}
            self._resolver.declare({key: ConfigEntry(key, text) for key, text in texts.items()})

    def _cluster_nodes(self, spec: Map) -> list[tuple[Map, str]]:
        if not self._is_v1:
            return self._nodes.maps(spec, "clusters", "spec")
        found: list[tuple[Map, str]] = []
        target = self._nodes.map(spec, "target", "spec")
        if target is not None:
            found.append((target, "spec.target"))
        for mirror, path in self._nodes.maps(spec, "mirrors", "spec"):
            source = self._nodes.map(mirror, "source", path)
            if source is not None:
                found.append((source, f"{path}.source"))
        return found

    def _cluster(self, node: Map, alias: str, path: str, *, is_connect: bool) -> Config:
        """Returns a cluster's keys as in a property file: connection settings, then its own configuration."""
        config: Config = {}

        def put(key: str, value: str, place: FilePlace | None) -> ConfigEntry:
            config[key] = self._resolved(ConfigEntry(key, value, place), alias)
            return config[key]

        servers = self._nodes.required(node, "bootstrapServers", path)
        if servers is not None:
            put("bootstrap.servers", servers.value, servers.place)
        SecurityReader(self._nodes).read(node, path, put)
        for field, key in STORAGE.items():
            value = node.get(field)
            if isinstance(value, Scalar) and value.text is not None:
                put(key, value.text, value.place)
        own = self._nodes.map(node, "config", path)
        for key, entry in self._config(own, f"{path}.config", alias).items():
            if self._is_forbidden(key):
                self._warn_ignored(entry, "use the field for it")
            elif not is_connect and key.startswith(("consumer.", "producer.", "admin.")):
                self._warn_ignored(entry, "write it in the config of sourceConnector")
            else:
                check_entry(entry, [(Where.CLUSTER, key)], (), self._report)
                config[key] = entry
                if not is_connect and key != "client.id" and key in DEFAULTS and DEFAULTS[key].scope in _OF_WORKER:
                    what = f'"{key}" has no effect here: the mirror does not run on "{alias}"'
                    self._report.inform("wrong-place", what, entry, remedy="write it in the config of the target")
        return with_client_copies(config, {})

    def _is_forbidden(self, key: str) -> bool:
        forbidden = (*_FORBIDDEN, *_FORBIDDEN_V1) if self._is_v1 else _FORBIDDEN
        return key.startswith(forbidden) and key not in ALLOWED_IN_CONFIG

    def _warn_ignored(self, entry: ConfigEntry, remedy: str) -> None:
        self._report.warn("wrong-place", f'"{entry.key}" has no effect here', entry, remedy=remedy)

    def _connect_cluster(self, spec: Map, clusters: Mapping[str, Config]) -> str | None:
        """Returns the alias of the cluster that all flows end in."""
        if self._is_v1:
            target = self._nodes.map(spec, "target", "spec")
            if target is None:
                self._report.error("no-target", '"spec.target" is missing', spec.place)
                return None
            return text_of(target, "alias") or None
        alias = self._nodes.required(spec, "connectCluster", "spec")
        if alias is None:
            return None
        if alias.value not in clusters:
            self._report.error(
                "unknown-cluster",
                f'"spec.connectCluster" names the unknown cluster "{alias.value}"',
                alias,
                remedy=f"spec.clusters has {', '.join(clusters) or 'none'}",
            )
            return None
        return alias.value

    # -- flows ---------------------------------------------------------------------------

    def _flows(self, spec: Map, clusters: Mapping[str, Config], connect: str) -> list[FlowParts]:
        paused = text_of(spec, "replicas") == "0"
        if paused:
            note = '"spec.replicas" is 0: all flows of this document are paused'
            self._report.inform("paused", note, key_place(spec, "replicas"))
        self._nodes.check_number(spec, "replicas", "spec", low=0)
        flows = []
        sources: set[str] = set()
        for mirror, path in self._nodes.maps(spec, "mirrors", "spec"):
            check_fields(mirror, MIRROR, path, self._report)
            self._check_layout(mirror, path)
            source = self._source_of(mirror, path, clusters)
            if not self._ends_in(connect, mirror, path):
                continue
            if source is not None and source == connect:
                self._report.error("flow-to-itself", f'"{path}" mirrors "{source}" to itself', mirror.place)
            elif source in sources:
                self._report.error("flow-twice", f"the flow {source}->{connect} is given twice", mirror.place)
            elif source is not None:
                sources.add(source)
                flows.append(self._flow(mirror, path, source, connect, clusters, paused=paused))
        if not flows and not self._report.has_errors:
            self._report.error("no-mirror", '"spec.mirrors" names no mirror', spec.place)
        return flows

    def _source_of(self, mirror: Map, path: str, clusters: Mapping[str, Config]) -> str | None:
        if self._is_v1:
            source = self._nodes.map(mirror, "source", path)
            if source is None:
                self._report.error("missing-field", f'"{path}.source" is missing', mirror.place)
                return None
            return text_of(source, "alias") or None
        alias = self._nodes.required(mirror, "sourceCluster", path)
        if alias is not None and alias.value not in clusters:
            self._report.error(
                "unknown-cluster",
                f'"{path}.sourceCluster" names the unknown cluster "{alias.value}"',
                alias,
                remedy=f"spec.clusters has {', '.join(clusters) or 'none'}",
            )
            return None
        return alias.value if alias is not None else None

    def _ends_in(self, connect: str, mirror: Map, path: str) -> bool:
        """Tells whether a mirror's target is the cluster that it runs on; reports an error if not."""
        if self._is_v1:
            return True
        target = self._nodes.required(mirror, "targetCluster", path)
        if target is not None and target.value != connect:
            self._report.error(
                "connect-cluster",
                f'"{path}.targetCluster" is "{target.value}" and spec.connectCluster is "{connect}"',
                target,
                remedy="they must be the same: a mirror runs on its target",
            )
            return False
        return True

    def _flow(
        self, mirror: Map, path: str, source: str, target: str, clusters: Mapping[str, Config], *, paused: bool
    ) -> FlowParts:
        connectors: dict[Connector, Config] = {}
        states: dict[Connector, ConnectorState] = {}
        patterns = self._patterns(mirror, path)
        for field, kind in _BLOCKS.items():
            if field not in mirror.items:
                self._say_absent(kind, f"{source}->{target}", mirror)
                continue
            block = self._nodes.map(mirror, field, path) or Map(mirror.keys[field])
            self._nodes.warn_empty(mirror, field, path)
            where = f"{path}.{field}"
            check_fields(block, CONNECTOR, where, self._report)
            defaults = {
                "name": f"{source}->{target}.{kind}",
                "connector.class": f"{CONNECTOR_PACKAGE}.{kind}",
                "source.cluster.alias": source,
                "target.cluster.alias": target,
                "enabled": "true",
            }
            connectors[kind] = (
                default_entries(defaults)
                | sided(clusters.get(source, {}), "source")
                | sided(clusters.get(target, {}), "target")
                | self._connector_config(block, where)
                | self._auto_restart(kind, block, where)
                | patterns
            )
            state = self._state(block, where, paused=paused)
            if state is not ConnectorState.RUNNING:
                states[kind] = state
        return FlowParts(
            source=source,
            target=target,
            worker=default_entries({"client.id": f"{source}->{target}", **_WORKER_DEFAULTS}) | clusters.get(target, {}),
            connectors=connectors,
            source_cluster=clusters.get(source, {}),
            target_cluster=clusters.get(target, {}),
            states=states,
            place=mirror.place,
        )

    def _say_absent(self, kind: Connector, flow: str, mirror: Map) -> None:
        without = {
            Connector.SOURCE: "nothing is copied",
            Connector.CHECKPOINT: "no consumer group is synced",
            Connector.HEARTBEAT: "no heartbeats are written",
        }
        self._report.inform("connector-absent", f"{flow} has no {kind}: {without[kind]}", mirror.place)

    def _patterns(self, mirror: Map, path: str) -> Config:
        """Collects the pattern fields; Strimzi gives them to every connector, against what its config says."""
        patterns: Config = {}
        for field, key in PATTERNS.items():
            node = mirror.get(field)
            if node is None or (field in OLD_PATTERNS and key in patterns):
                continue
            if field in OLD_PATTERNS:
                note = f'"{field}" is an old name'
                self._report.warn("old-name", note, mirror.keys[field], remedy=f'write "{OLD_PATTERNS[field]}"')
            text = self._nodes.scalar(node, f"{path}.{field}")
            if text is not None:
                entry = self._resolved(ConfigEntry(field, text, node.place), "")
                check_entry(replace(entry, key=key), [(Where.FLOW, key)], (), self._report)
                patterns[key] = entry
        return patterns

    def _connector_config(self, block: Map, where: str) -> Config:
        config = self._config(self._nodes.map(block, "config", where), f"{where}.config", "")
        for key, entry in config.items():
            check_entry(entry, [(Where.FLOW, key)], (), self._report)
        tasks = block.get("tasksMax")
        if tasks is not None and (text := self._nodes.scalar(tasks, f"{where}.tasksMax")) is not None:
            entry = ConfigEntry("tasksMax", text, tasks.place)
            check_entry(entry, [(Where.FLOW, "tasks.max")], (), self._report)
            config["tasks.max"] = entry
        return config

    def _auto_restart(self, kind: Connector, block: Map, where: str) -> Config:
        """Reads `autoRestart`: the source connector's is the flow's; the other connectors are always restarted."""
        field, path = self._nodes.map(block, "autoRestart", where), f"{where}.autoRestart"
        if field is None:
            return {}
        check_fields(field, dict.fromkeys(AUTO_RESTART, FieldRole.READ), path, self._report)
        config: Config = {"auto.restart.enabled": ConfigEntry("autoRestart.enabled", "true", field.place)}
        for name, key in AUTO_RESTART.items():
            node = field.get(name)
            if node is not None and (text := self._nodes.scalar(node, f"{path}.{name}")) is not None:
                config[key] = ConfigEntry(f"autoRestart.{name}", text, node.place)
                check_entry(config[key], [(Where.FLOW, key)], (), self._report)
        if kind is Connector.SOURCE:
            return config
        note = f'"{path}" has no effect here: this connector is always restarted'
        self._report.inform("resource-field", note, block.keys["autoRestart"])
        return {}

    def _state(self, block: Map, where: str, *, paused: bool) -> ConnectorState:
        state, pause = text_of(block, "state"), text_of(block, "pause")
        if pause:
            self._report.warn("old-name", '"pause" is an old name', key_place(block, "pause"), remedy='write "state"')
            self._nodes.check_flag(pause, f"{where}.pause", key_place(block, "pause"))
        if state and state not in tuple(ConnectorState):
            self._report.error(
                "bad-value",
                f'"{where}.state" must be one of {", ".join(ConnectorState)}, not "{state}"',
                key_place(block, "state"),
            )
        elif state and state != ConnectorState.RUNNING:
            return ConnectorState(state)
        return ConnectorState.PAUSED if paused or (pause == "true" and not state) else ConnectorState.RUNNING

    # -- annotations ---------------------------------------------------------------------

    def _top(self, metadata: Map | None) -> Config:
        """Reads settings of the whole mirror: `heliograph/epoch.ms` and others with this prefix."""
        annotations = metadata.get("annotations") if metadata is not None else None
        if not isinstance(annotations, Map):
            return {}
        top: Config = {}
        for name, node in annotations.items.items():
            if name.startswith(ANNOTATION) and (text := self._nodes.scalar(node, name)) is not None:
                key = name.removeprefix(ANNOTATION)
                top[key] = self._resolved(ConfigEntry(key, text, node.place), "")
                check_entry(top[key], [(Where.TOP, key)], (), self._report)
        return top

    # -- entries -------------------------------------------------------------------------

    def _config(self, node: Map | None, path: str, owner: str) -> Config:
        return {key: self._resolved(entry, owner) for key, entry in self._nodes.raw_config(node, path).items()}

    def _resolved(self, entry: ConfigEntry, owner: str) -> ConfigEntry:
        return self._resolver.resolve(entry, self._report, owner=owner)


def _answer_version_1(document: Map, report: Report) -> None:
    """Reports a MirrorMaker 1 resource and shows its equivalent: one flow that keeps names."""
    spec = document.get("spec")
    consumer, producer = (spec.get(side) if isinstance(spec, Map) else None for side in ("consumer", "producer"))
    sides = [node if isinstance(node, Map) else None for node in (consumer, producer)]
    source, target = (text_of(side, "bootstrapServers") or "host:port" for side in sides)
    topics = text_of(spec if isinstance(spec, Map) else None, "include") or text_of(
        spec if isinstance(spec, Map) else None, "whitelist"
    )
    tasks = text_of(sides[0], "numStreams") or "1"
    equivalent = (
        "clusters = source, target\n"
        f"source.bootstrap.servers = {source}\n"
        f"target.bootstrap.servers = {target}\n"
        "source->target.enabled = true\n"
        f"source->target.topics = {topics or '.*'}\n"
        f"tasks.max = {tasks}\n"
        "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    )
    indented = "".join(f"\n    {line}" for line in equivalent.splitlines())
    report.error(
        "mirror-maker-1",
        "this is a KafkaMirrorMaker, version 1, which is not supported",
        document.place,
        remedy=f"its equivalent, besides security, is:{indented}",
    )
