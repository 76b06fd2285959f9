"""The second front end: `KafkaMirrorMaker2` resources of Strimzi, AMQ Streams and IBM Event Streams.

Each document becomes parts, with the keys that Strimzi would give to the worker and to each connector, and
with its defaults. A connector whose block is absent does not run. References to secrets become placeholders,
which are resolved like those of a property file.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace

from heliograph.config.fields import (
    AUTHENTICATION,
    CERTIFICATE,
    CERTIFICATE_AND_KEY,
    CLUSTER,
    CONNECTOR,
    DOCUMENT,
    MIRROR,
    OLD_ONLY,
    OLD_PATTERNS,
    PASSWORD_SECRET,
    PATTERNS,
    SECRET,
    SPEC,
    STORAGE,
    TARGET,
    TLS,
    USED_BY_TYPE,
    V1_ONLY,
    Role,
    check_fields,
)
from heliograph.config.findings import Config, Entry, Place, Report
from heliograph.config.keycheck import check_entry
from heliograph.config.layering import BYTE_ARRAY_CONVERTER, CONNECTOR_PACKAGE
from heliograph.config.mm2file import check_alias
from heliograph.config.parts import (
    Connector,
    FlowParts,
    Parts,
    Resource,
    State,
    default_entries,
    sided,
    with_client_copies,
)
from heliograph.config.secrets import Resolver, secret_reference
from heliograph.config.table import DEFAULTS, Scope, Where
from heliograph.config.yamltree import Mapping as Map
from heliograph.config.yamltree import Node, Scalar, Sequence, to_plain

Put = Callable[[str, str, Place | None], Entry]
"""Takes a key of a cluster with its value and place; gives it with its secrets resolved."""

GROUPS = ("kafka.strimzi.io", "eventstreams.ibm.com")
VERSIONS = ("v1alpha1", "v1beta1", "v1beta2", "v1")
ANNOTATION = "heliograph/"
"""Settings of the whole mirror stand in annotations that begin so."""

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
_SASL_MODULES = {
    "plain": ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule"),
    "scram-sha-256": ("SCRAM-SHA-256", "org.apache.kafka.common.security.scram.ScramLoginModule"),
    "scram-sha-512": ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule"),
}
_OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_OAUTH_KEYS = {
    "clientId": "sasl.oauthbearer.client.credentials.client.id",
    "tokenEndpointUri": "sasl.oauthbearer.token.endpoint.url",
    "scope": "sasl.oauthbearer.scope",
}


def read_resources(documents: list[Node], report: Report, resolver: Resolver) -> list[Parts]:
    """The parts of every mirror among the documents; others are passed over with a word."""
    found = [document for node in documents for document in _unpack(node)]
    parts: list[Parts] = []
    for document in found:
        kind, version = _text(document, "kind"), _text(document, "apiVersion")
        group = version.partition("/")[0]
        if kind == KIND:
            read = _Document(document, report, resolver).read()
            parts += [read] if read is not None else []
        elif kind == "KafkaMirrorMaker" and group in GROUPS:
            _answer_version_1(document, report)
        elif group in GROUPS and difflib.get_close_matches(kind.lower(), [KIND.lower()], cutoff=0.85):
            what, place = f'"{kind}" is not a known kind', _key_place(document, "kind")
            report.error("misspelt-key", what, place, remedy=f'did you mean "{KIND}"?')
        elif not kind and any(name in document.items for name in ("spec", "connectCluster", "mirrors")):
            report.error(
                "no-kind",
                'the document has no "kind"',
                document.place,
                remedy=f'write "kind: {KIND}" and its apiVersion; look at the indentation',
            )
        else:
            what = f'a document of kind "{kind or "unknown"}" ({version or "no apiVersion"}) is passed over'
            report.inform("other-document", what, document.place)
    if not parts and not report.has_errors:
        report.error("no-mirror", f"no document of the file is a {KIND}", remedy="give a file that has one")
    return parts


def _unpack(node: Node) -> list[Map]:
    """A document, or those of a `kind: List`."""
    if not isinstance(node, Map):
        return []
    items = node.get("items")
    if _text(node, "kind").endswith("List") and isinstance(items, Sequence):
        return [item for item in items.items if isinstance(item, Map)]
    return [node]


class _Document:
    """One `KafkaMirrorMaker2`."""

    def __init__(self, document: Map, report: Report, resolver: Resolver) -> None:
        self._document = document
        self._report = report
        self._resolver = resolver
        group, _, version = _text(document, "apiVersion").partition("/")
        self._is_v1 = version == "v1"
        if group not in GROUPS or version not in VERSIONS:
            report.error(
                "unknown-version",
                f'apiVersion "{_text(document, "apiVersion")}" is not known',
                _key_place(document, "apiVersion"),
                remedy=f"write {' or '.join(GROUPS)}, then /{', /'.join(VERSIONS)}",
            )

    def read(self) -> Parts | None:
        check_fields(self._document, DOCUMENT, "", self._report)
        spec = self._map(self._document, "spec", "the document")
        if spec is None:
            self._report.error(
                "no-spec", 'the document has no "spec"', self._document.place, remedy="look at the indentation"
            )
            return None
        roles = check_fields(spec, SPEC, "spec", self._report)
        self._check_layout(spec, "spec")
        self._declare_providers(spec)
        clusters = self._clusters(spec)
        connect = self._connect_cluster(spec, clusters)
        if connect is None:
            return None
        metadata = self._map(self._document, "metadata", "the document")
        top = self._top(metadata)
        return Parts(
            clusters=clusters,
            flows=tuple(self._flows(spec, clusters, connect)),
            top=top,
            heartbeats_everywhere="emit.heartbeats.enabled" in top and top["emit.heartbeats.enabled"].value == "true",
            resource=Resource(
                name=_text(metadata, "name"),
                namespace=_text(metadata, "namespace"),
                api_version=_text(self._document, "apiVersion"),
                pods={name: to_plain(spec.items[name]) for name, role in roles.items() if role is Role.PODS},
            ),
        )

    def _check_layout(self, node: Map, path: str) -> None:
        """Each version reads only the fields of its own layout."""
        for name in (OLD_ONLY if self._is_v1 else V1_ONLY) & node.items.keys():
            other = "versions before v1" if self._is_v1 else "v1"
            what = f'"{path}.{name}" has no effect here: it belongs to {other}'
            self._report.warn("wrong-version", what, node.keys[name], remedy="look at the apiVersion")

    # -- clusters ------------------------------------------------------------------------

    def _clusters(self, spec: Map) -> dict[str, Config]:
        clusters: dict[str, Config] = {}
        for node, path in self._cluster_nodes(spec):
            is_target = path == "spec.target"
            check_fields(node, TARGET if is_target else CLUSTER, path, self._report)
            alias = self._required(node, "alias", path)
            if alias is None:
                continue
            check_alias(alias.value, alias, self._report)
            if alias.value in clusters and not self._is_v1:
                self._report.error("alias-twice", f'two clusters have the alias "{alias.value}"', alias)
                continue
            is_connect = is_target or alias.value == _text(spec, "connectCluster")
            clusters[alias.value] = self._cluster(node, alias.value, path, is_connect=is_connect)
        return clusters

    def _declare_providers(self, spec: Map) -> None:
        """Before anything is resolved: a worker's providers serve all clusters and connectors."""
        for node, _ in self._cluster_nodes(spec):
            own = node.get("config")
            texts = _texts(own) if isinstance(own, Map) else {}
            self._resolver.declare({key: Entry(key, text) for key, text in texts.items()})

    def _cluster_nodes(self, spec: Map) -> list[tuple[Map, str]]:
        if not self._is_v1:
            return self._maps(spec, "clusters", "spec")
        found: list[tuple[Map, str]] = []
        target = self._map(spec, "target", "spec")
        if target is not None:
            found.append((target, "spec.target"))
        for mirror, path in self._maps(spec, "mirrors", "spec"):
            source = self._map(mirror, "source", path)
            if source is not None:
                found.append((source, f"{path}.source"))
        return found

    def _cluster(self, node: Map, alias: str, path: str, *, is_connect: bool) -> Config:
        """A cluster's keys as in a property file: connection settings, then its own configuration."""
        config: Config = {}

        def put(key: str, value: str, place: Place | None) -> Entry:
            config[key] = self._resolved(Entry(key, value, place), alias)
            return config[key]

        servers = self._required(node, "bootstrapServers", path)
        if servers is not None:
            put("bootstrap.servers", servers.value, servers.place)
        self._security(node, path, put)
        for field, key in STORAGE.items():
            value = node.get(field)
            if isinstance(value, Scalar) and value.text is not None:
                put(key, value.text, value.place)
        own = self._map(node, "config", path)
        for key, entry in self._config(own, f"{path}.config", alias).items():
            if self._is_forbidden(key):
                self._warn_ignored(entry, "it stands in a field of its own")
            elif not is_connect and key.startswith(("consumer.", "producer.", "admin.")):
                self._warn_ignored(entry, "write it in the config of sourceConnector")
            else:
                check_entry(entry, [(Where.CLUSTER, key)], (), self._report)
                config[key] = entry
                if not is_connect and key != "client.id" and key in DEFAULTS and DEFAULTS[key].scope in _OF_WORKER:
                    what = f'"{key}" has no effect at this place: the mirror does not run on "{alias}"'
                    self._report.inform("wrong-place", what, entry, remedy="write it in the config of the target")
        return with_client_copies(config, {})

    def _is_forbidden(self, key: str) -> bool:
        forbidden = (*_FORBIDDEN, *_FORBIDDEN_V1) if self._is_v1 else _FORBIDDEN
        return key.startswith(forbidden) and key not in ALLOWED_IN_CONFIG

    def _warn_ignored(self, entry: Entry, remedy: str) -> None:
        self._report.warn("wrong-place", f'"{entry.key}" has no effect at this place', entry, remedy=remedy)

    def _connect_cluster(self, spec: Map, clusters: Mapping[str, Config]) -> str | None:
        """The alias of the cluster that all flows end in."""
        if self._is_v1:
            target = self._map(spec, "target", "spec")
            if target is None:
                self._report.error("no-target", '"spec.target" is missing', spec.place)
                return None
            return _text(target, "alias") or None
        alias = self._required(spec, "connectCluster", "spec")
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

    # -- security ------------------------------------------------------------------------

    def _security(self, node: Map, path: str, put: Put) -> None:
        has_tls = "tls" in node.items
        tls = self._map(node, "tls", path)
        if tls is not None:
            self._warn_empty(node, "tls", path)
            check_fields(tls, TLS, f"{path}.tls", self._report)
            if references := self._trusted(tls, "trustedCertificates", f"{path}.tls"):
                put("ssl.truststore.type", "PEM", _key_place(tls, "trustedCertificates"))
                put("ssl.truststore.certificates", references, _key_place(tls, "trustedCertificates"))
        has_sasl = False
        authentication = self._map(node, "authentication", path)
        if authentication is not None:
            has_sasl = self._authentication(authentication, f"{path}.authentication", put)
            if _text(authentication, "type") == "tls" and not has_tls:
                what = f'"{path}.authentication" has a certificate that is not used without tls'
                self._report.warn("no-tls", what, _key_place(node, "authentication"), remedy='write "tls: {}"')
        protocol = ("SASL_" if has_sasl else "") + ("SSL" if has_tls else "PLAINTEXT")
        if protocol != "PLAINTEXT":
            put("security.protocol", protocol, _key_place(node, "tls" if has_tls else "authentication"))

    def _trusted(self, node: Map, field: str, path: str) -> str:
        """The certificates of a list, as placeholders."""
        references = []
        for certificate, where in self._maps(node, field, path):
            check_fields(certificate, CERTIFICATE, where, self._report)
            secret = self._required(certificate, "secretName", where)
            key = _text(certificate, "certificate") or _text(certificate, "pattern")
            if not key:
                self._report.error("missing-field", f'"{where}" has neither certificate nor pattern', certificate.place)
            elif secret is not None:
                references.append(secret_reference(secret.value, key))
        return "\n".join(references)

    def _authentication(self, node: Map, path: str, put: Put) -> bool:
        """Put the keys of an authentication; whether it is SASL."""
        roles = check_fields(node, AUTHENTICATION, path, self._report)
        kind = self._required(node, "type", path)
        if kind is None:
            return False
        name = kind.value.strip()
        for field, role in roles.items() if name in USED_BY_TYPE else ():
            if role is Role.READ and field != "type" and field not in USED_BY_TYPE[name]:
                what = f'"{path}.{field}" has no effect with type {name}'
                self._report.warn("wrong-place", what, node.keys[field])
        if name == "tls":
            self._certificate_and_key(node, path, put)
            return False
        if name in _SASL_MODULES:
            mechanism, module = _SASL_MODULES[name]
            user = self._required(node, "username", path)
            password = self._secret(node, "passwordSecret", "password", PASSWORD_SECRET, path)
            put("sasl.mechanism", mechanism, kind.place)
            if user is not None and password is not None:
                jaas = _jaas(module, {"username": _quotable(user.value), "password": password})
                put("sasl.jaas.config", jaas, node.place)
            return True
        if name == "oauth":
            self._oauth(node, path, put)
            return True
        if name == "custom":
            own = self._map(node, "config", path)
            for key, entry in self._raw_config(own, f"{path}.config").items():
                check_entry(put(key, entry.value, entry.place), [(Where.CLUSTER, key)], (), self._report)
            return _text(node, "sasl") == "true"
        self._report.error("bad-value", f'"{path}.type" must be one of {", ".join(USED_BY_TYPE)}, not "{name}"', kind)
        return False

    def _certificate_and_key(self, node: Map, path: str, put: Put) -> None:
        pair = self._map(node, "certificateAndKey", path)
        if pair is None:
            self._report.error("missing-field", f'"{path}.certificateAndKey" is missing', node.place)
            return
        where = f"{path}.certificateAndKey"
        check_fields(pair, CERTIFICATE_AND_KEY, where, self._report)
        secret, certificate, key = (self._required(pair, name, where) for name in ("secretName", "certificate", "key"))
        if secret is None or certificate is None or key is None:
            return
        put("ssl.keystore.type", "PEM", pair.place)
        put("ssl.keystore.certificate.chain", secret_reference(secret.value, certificate.value), certificate.place)
        put("ssl.keystore.key", secret_reference(secret.value, key.value), key.place)

    def _oauth(self, node: Map, path: str, put: Put) -> None:
        """By the keys of Kafka's own clients, which need no class of Strimzi's."""
        put("sasl.mechanism", "OAUTHBEARER", node.place)
        put("sasl.login.callback.handler.class", _OAUTH_HANDLER, node.place)
        for field, key in _OAUTH_KEYS.items():
            if _text(node, field):
                put(key, _text(node, field), _key_place(node, field))
        if _text(node, "accessTokenLocation"):
            location = f"file://{_text(node, 'accessTokenLocation')}"
            put("sasl.oauthbearer.token.endpoint.url", location, _key_place(node, "accessTokenLocation"))
        if "clientSecret" in node.items:
            secret = self._secret(node, "clientSecret", "key", SECRET, path)
            if secret is not None:
                put("sasl.oauthbearer.client.credentials.client.secret", secret, _key_place(node, "clientSecret"))
        options = {}
        if "accessToken" in node.items:
            options["oauth.access.token"] = self._secret(node, "accessToken", "key", SECRET, path)
        # The server of the tokens has certificates of its own, which have their place here and not in `ssl.`.
        if trusted := self._trusted(node, "tlsTrustedCertificates", path):
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": trusted}
        put("sasl.jaas.config", _jaas(_OAUTH_MODULE, options), node.place)

    def _secret(self, node: Map, field: str, key_field: str, known: Mapping[str, Role], path: str) -> str | None:
        """A reference `{secretName, <key_field>}` as a placeholder."""
        inner = self._map(node, field, path)
        if inner is None:
            self._report.error("missing-field", f'"{path}.{field}" is missing', node.place)
            return None
        check_fields(inner, known, f"{path}.{field}", self._report)
        secret = self._required(inner, "secretName", f"{path}.{field}")
        key = self._required(inner, key_field, f"{path}.{field}")
        return secret_reference(secret.value, key.value) if secret is not None and key is not None else None

    # -- flows ---------------------------------------------------------------------------

    def _flows(self, spec: Map, clusters: Mapping[str, Config], connect: str) -> list[FlowParts]:
        paused = _text(spec, "replicas") == "0"
        if paused:
            note = '"spec.replicas" is 0: all flows of this document are paused'
            self._report.inform("paused", note, _key_place(spec, "replicas"))
        self._check_number(spec, "replicas", "spec", low=0)
        flows = []
        sources: set[str] = set()
        for mirror, path in self._maps(spec, "mirrors", "spec"):
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
            source = self._map(mirror, "source", path)
            if source is None:
                self._report.error("missing-field", f'"{path}.source" is missing', mirror.place)
                return None
            return _text(source, "alias") or None
        alias = self._required(mirror, "sourceCluster", path)
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
        """Whether a mirror's target is the cluster that it runs on; says it if not."""
        if self._is_v1:
            return True
        target = self._required(mirror, "targetCluster", path)
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
        states: dict[Connector, State] = {}
        patterns = self._patterns(mirror, path)
        for field, kind in _BLOCKS.items():
            if field not in mirror.items:
                self._say_absent(kind, f"{source}->{target}", mirror)
                continue
            block = self._map(mirror, field, path) or Map(mirror.keys[field])
            self._warn_empty(mirror, field, path)
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
                | patterns
            )
            state = self._state(block, where, paused=paused)
            if state is not State.RUNNING:
                states[kind] = state
        return FlowParts(
            source=source,
            target=target,
            worker=default_entries({"client.id": f"{source}->{target}", **_WORKER_DEFAULTS}) | clusters.get(target, {}),
            connectors=connectors,
            states=states,
            place=mirror.place,
        )

    def _say_absent(self, kind: Connector, flow: str, mirror: Map) -> None:
        without = {
            Connector.SOURCE: "nothing is copied",
            Connector.CHECKPOINT: "no consumer group is carried over",
            Connector.HEARTBEAT: "no heartbeats are written",
        }
        self._report.inform("connector-absent", f"{flow} has no {kind}: {without[kind]}", mirror.place)

    def _patterns(self, mirror: Map, path: str) -> Config:
        """The pattern fields, which Strimzi gives to every connector, against what its config says."""
        patterns: Config = {}
        for field, key in PATTERNS.items():
            node = mirror.get(field)
            if node is None or (field in OLD_PATTERNS and key in patterns):
                continue
            if field in OLD_PATTERNS:
                note = f'"{field}" is an old name'
                self._report.warn("old-name", note, mirror.keys[field], remedy=f'write "{OLD_PATTERNS[field]}"')
            text = self._scalar(node, f"{path}.{field}")
            if text is not None:
                entry = self._resolved(Entry(field, text, node.place), "")
                check_entry(replace(entry, key=key), [(Where.FLOW, key)], (), self._report)
                patterns[key] = entry
        return patterns

    def _connector_config(self, block: Map, where: str) -> Config:
        config = self._config(self._map(block, "config", where), f"{where}.config", "")
        for key, entry in config.items():
            check_entry(entry, [(Where.FLOW, key)], (), self._report)
        tasks = block.get("tasksMax")
        if tasks is not None and (text := self._scalar(tasks, f"{where}.tasksMax")) is not None:
            entry = Entry("tasksMax", text, tasks.place)
            check_entry(entry, [(Where.FLOW, "tasks.max")], (), self._report)
            config["tasks.max"] = entry
        return config

    def _state(self, block: Map, where: str, *, paused: bool) -> State:
        state, pause = _text(block, "state"), _text(block, "pause")
        if pause:
            self._report.warn("old-name", '"pause" is an old name', _key_place(block, "pause"), remedy='write "state"')
            self._check_flag(pause, f"{where}.pause", _key_place(block, "pause"))
        if state and state not in tuple(State):
            self._report.error(
                "bad-value",
                f'"{where}.state" must be one of {", ".join(State)}, not "{state}"',
                _key_place(block, "state"),
            )
        elif state and state != State.RUNNING:
            return State(state)
        return State.PAUSED if paused or (pause == "true" and not state) else State.RUNNING

    # -- annotations ---------------------------------------------------------------------

    def _top(self, metadata: Map | None) -> Config:
        """Settings of the whole mirror: `heliograph/epoch.ms` and its like."""
        annotations = metadata.get("annotations") if metadata is not None else None
        if not isinstance(annotations, Map):
            return {}
        top: Config = {}
        for name, node in annotations.items.items():
            if name.startswith(ANNOTATION) and (text := self._scalar(node, name)) is not None:
                key = name.removeprefix(ANNOTATION)
                top[key] = self._resolved(Entry(key, text, node.place), "")
                check_entry(top[key], [(Where.TOP, key)], (), self._report)
        return top

    # -- nodes ---------------------------------------------------------------------------

    def _map(self, parent: Map, name: str, path: str) -> Map | None:
        """A mapping below a node; an empty one for an empty field."""
        node = parent.get(name)
        if node is None or isinstance(node, Map):
            return node
        if _is_empty(node):
            return Map(parent.keys[name])
        self._report.error(
            "bad-value",
            f'"{path}.{name}" must have fields of its own',
            node.place,
            remedy="look at the indentation",
        )
        return None

    def _warn_empty(self, parent: Map, name: str, path: str) -> None:
        """Where it matters whether a field is there: Kubernetes drops one without a value."""
        if _is_empty(parent.get(name)):
            what = f'"{path}.{name}" is empty, which Kubernetes takes as absent'
            self._report.warn("empty-field", what, parent.keys[name], remedy=f'write "{name}: {{}}"')

    def _maps(self, parent: Map, name: str, path: str) -> list[tuple[Map, str]]:
        """The mappings of a list below a node, each with its path."""
        node = parent.get(name)
        if node is None or _is_empty(node):
            return []
        if not isinstance(node, Sequence):
            self._report.error(
                "bad-value", f'"{path}.{name}" must be a list', node.place, remedy='begin each item with "- "'
            )
            return []
        found = []
        for index, item in enumerate(node.items):
            where = f"{path}.{name}[{index}]"
            if isinstance(item, Map):
                found.append((item, where))
            else:
                self._report.error(
                    "bad-value", f'"{where}" must have fields', item.place, remedy="look at the indentation"
                )
        return found

    def _scalar(self, node: Node, path: str) -> str | None:
        """A text; a list of texts is joined with commas."""
        if isinstance(node, Scalar):
            return node.text or ""
        if isinstance(node, Sequence) and all(isinstance(item, Scalar) for item in node.items):
            return ",".join(item.text or "" for item in node.items if isinstance(item, Scalar))
        self._report.error(
            "bad-value", f'"{path}" must be a single value', node.place, remedy="look at the indentation"
        )
        return None

    def _required(self, parent: Map, name: str, path: str) -> Entry | None:
        node = parent.get(name)
        if node is None or _is_empty(node):
            self._report.error("missing-field", f'"{path}.{name}" is missing', parent.place)
            return None
        text = self._scalar(node, f"{path}.{name}")
        return None if text is None else Entry(name, text, node.place)

    def _config(self, node: Map | None, path: str, owner: str) -> Config:
        return {key: self._resolved(entry, owner) for key, entry in self._raw_config(node, path).items()}

    def _raw_config(self, node: Map | None, path: str) -> Config:
        config: Config = {}
        for key, value in node.items.items() if node is not None else ():
            text = self._scalar(value, f"{path}.{key}")
            if text is not None and node is not None:
                config[key] = Entry(key, text, node.keys[key])
        return config

    def _resolved(self, entry: Entry, owner: str) -> Entry:
        return self._resolver.resolve(entry, self._report, owner=owner)

    def _check_number(self, parent: Map, name: str, path: str, *, low: int) -> None:
        text = _text(parent, name)
        if text and not (text.isdigit() and int(text[:12]) >= low):
            place = _key_place(parent, name)
            self._report.error("bad-value", f'"{path}.{name}" must be a number of at least {low}, not "{text}"', place)

    def _check_flag(self, text: str, path: str, place: Place | None) -> None:
        if text not in ("true", "false"):
            self._report.error("bad-value", f'"{path}" must be true or false, not "{text}"', place)


def _is_empty(node: Node | None) -> bool:
    return isinstance(node, Scalar) and not node.text


def _text(node: Map | None, name: str) -> str:
    value = node.get(name) if node is not None else None
    return (value.text or "") if isinstance(value, Scalar) else ""


def _texts(node: Map) -> dict[str, str]:
    return {key: value.text or "" for key, value in node.items.items() if isinstance(value, Scalar)}


def _key_place(node: Map, name: str) -> Place:
    return node.keys.get(name, node.place)


def _jaas(module: str, options: Mapping[str, str | None]) -> str:
    return " ".join([module, "required", *(f'{name}="{value}"' for name, value in options.items() if value)]) + ";"


def _quotable(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _answer_version_1(document: Map, report: Report) -> None:
    """MirrorMaker 1 has one consumer, one producer and a list of topics, and keeps names."""
    spec = document.get("spec")
    consumer, producer = (spec.get(side) if isinstance(spec, Map) else None for side in ("consumer", "producer"))
    sides = [node if isinstance(node, Map) else None for node in (consumer, producer)]
    source, target = (_text(side, "bootstrapServers") or "host:port" for side in sides)
    topics = _text(spec if isinstance(spec, Map) else None, "include") or _text(
        spec if isinstance(spec, Map) else None, "whitelist"
    )
    tasks = _text(sides[0], "numStreams") or "1"
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
        "this is a KafkaMirrorMaker, version 1, which is not run here",
        document.place,
        remedy=f"its equivalent, besides security, is:{indented}",
    )
