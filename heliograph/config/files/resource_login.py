"""Translates a resource's `tls` and `authentication` to Kafka client keys. Secrets become placeholders."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from heliograph.config.files.resource_fields import (
    AUTHENTICATION,
    CERTIFICATE,
    CERTIFICATE_AND_KEY,
    PASSWORD_SECRET,
    SECRET,
    TLS,
    USED_BY_TYPE,
    FieldRole,
    check_fields,
)
from heliograph.config.files.yaml_nodes import NodeReader, key_place, text_of
from heliograph.config.files.yaml_tree import Mapping as Map
from heliograph.config.findings import ConfigEntry, FilePlace
from heliograph.config.keys.key import Where
from heliograph.config.keys.key_check import check_entry
from heliograph.config.secrets import secret_reference

Put = Callable[[str, str, FilePlace | None], ConfigEntry]
"""Takes a key of a cluster with its value and file position; returns the entry with its secrets resolved."""

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


class SecurityReader:
    """Reads the security fields of a cluster."""

    def __init__(self, nodes: NodeReader) -> None:
        self._nodes = nodes
        self._report = nodes.report

    def read(self, node: Map, path: str, put: Put) -> None:
        """Puts the keys of a cluster's `tls` and `authentication`."""
        has_tls = "tls" in node.items
        tls = self._nodes.map(node, "tls", path)
        if tls is not None:
            self._nodes.warn_empty(node, "tls", path)
            check_fields(tls, TLS, f"{path}.tls", self._report)
            if references := self._trusted(tls, "trustedCertificates", f"{path}.tls"):
                put("ssl.truststore.type", "PEM", key_place(tls, "trustedCertificates"))
                put("ssl.truststore.certificates", references, key_place(tls, "trustedCertificates"))
        has_sasl = False
        authentication = self._nodes.map(node, "authentication", path)
        if authentication is not None:
            has_sasl = self._authentication(authentication, f"{path}.authentication", put)
            if text_of(authentication, "type") == "tls" and not has_tls:
                what = f'"{path}.authentication" has a certificate, which needs tls'
                self._report.warn("no-tls", what, key_place(node, "authentication"), remedy='write "tls: {}"')
        protocol = ("SASL_" if has_sasl else "") + ("SSL" if has_tls else "PLAINTEXT")
        if protocol != "PLAINTEXT":
            put("security.protocol", protocol, key_place(node, "tls" if has_tls else "authentication"))

    def _trusted(self, node: Map, field: str, path: str) -> str:
        """Returns the certificates of a list, as placeholders."""
        references = []
        for certificate, where in self._nodes.maps(node, field, path):
            check_fields(certificate, CERTIFICATE, where, self._report)
            secret = self._nodes.required(certificate, "secretName", where)
            key = text_of(certificate, "certificate") or text_of(certificate, "pattern")
            if not key:
                self._report.error("missing-field", f'"{where}" has neither certificate nor pattern', certificate.place)
            elif secret is not None:
                references.append(secret_reference(secret.value, key))
        return "\n".join(references)

    def _authentication(self, node: Map, path: str, put: Put) -> bool:
        """Puts the keys of an authentication; tells whether it is SASL."""
        roles = check_fields(node, AUTHENTICATION, path, self._report)
        kind = self._nodes.required(node, "type", path)
        if kind is None:
            return False
        name = kind.value.strip()
        for field, role in roles.items() if name in USED_BY_TYPE else ():
            if role is FieldRole.READ and field != "type" and field not in USED_BY_TYPE[name]:
                what = f'"{path}.{field}" has no effect with type {name}'
                self._report.warn("wrong-place", what, node.keys[field])
        if name == "tls":
            self._certificate_and_key(node, path, put)
            return False
        if name in _SASL_MODULES:
            mechanism, module = _SASL_MODULES[name]
            user = self._nodes.required(node, "username", path)
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
            own = self._nodes.map(node, "config", path)
            for key, entry in self._nodes.raw_config(own, f"{path}.config").items():
                check_entry(put(key, entry.value, entry.place), [(Where.CLUSTER, key)], (), self._report)
            return text_of(node, "sasl") == "true"
        self._report.error("bad-value", f'"{path}.type" must be one of {", ".join(USED_BY_TYPE)}, not "{name}"', kind)
        return False

    def _certificate_and_key(self, node: Map, path: str, put: Put) -> None:
        pair = self._nodes.map(node, "certificateAndKey", path)
        if pair is None:
            self._report.error("missing-field", f'"{path}.certificateAndKey" is missing', node.place)
            return
        where = f"{path}.certificateAndKey"
        check_fields(pair, CERTIFICATE_AND_KEY, where, self._report)
        secret, certificate, key = (
            self._nodes.required(pair, name, where) for name in ("secretName", "certificate", "key")
        )
        if secret is None or certificate is None or key is None:
            return
        put("ssl.keystore.type", "PEM", pair.place)
        put("ssl.keystore.certificate.chain", secret_reference(secret.value, certificate.value), certificate.place)
        put("ssl.keystore.key", secret_reference(secret.value, key.value), key.place)

    def _oauth(self, node: Map, path: str, put: Put) -> None:
        """Puts the OAuth keys of Kafka's own clients, which need no class of Strimzi's."""
        put("sasl.mechanism", "OAUTHBEARER", node.place)
        put("sasl.login.callback.handler.class", _OAUTH_HANDLER, node.place)
        for field, key in _OAUTH_KEYS.items():
            if text_of(node, field):
                put(key, text_of(node, field), key_place(node, field))
        if text_of(node, "accessTokenLocation"):
            location = f"file://{text_of(node, 'accessTokenLocation')}"
            put("sasl.oauthbearer.token.endpoint.url", location, key_place(node, "accessTokenLocation"))
        if "clientSecret" in node.items:
            secret = self._secret(node, "clientSecret", "key", SECRET, path)
            if secret is not None:
                put("sasl.oauthbearer.client.credentials.client.secret", secret, key_place(node, "clientSecret"))
        options = {}
        if "accessToken" in node.items:
            options["oauth.access.token"] = self._secret(node, "accessToken", "key", SECRET, path)
        # The server of the tokens has certificates of its own, which have their place here and not in `ssl.`.
        if trusted := self._trusted(node, "tlsTrustedCertificates", path):
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": trusted}
        put("sasl.jaas.config", _jaas(_OAUTH_MODULE, options), node.place)

    def _secret(self, node: Map, field: str, key_field: str, known: Mapping[str, FieldRole], path: str) -> str | None:
        """Returns a reference `{secretName, <key_field>}` as a placeholder."""
        inner = self._nodes.map(node, field, path)
        if inner is None:
            self._report.error("missing-field", f'"{path}.{field}" is missing', node.place)
            return None
        check_fields(inner, known, f"{path}.{field}", self._report)
        secret = self._nodes.required(inner, "secretName", f"{path}.{field}")
        key = self._nodes.required(inner, key_field, f"{path}.{field}")
        return secret_reference(secret.value, key.value) if secret is not None and key is not None else None


def _jaas(module: str, options: Mapping[str, str | None]) -> str:
    return " ".join([module, "required", *(f'{name}="{value}"' for name, value in options.items() if value)]) + ";"


def _quotable(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
