"""Holds how a cluster is reached: protocol, TLS context and login, from Java's client keys.

Made from plain texts, so that it can be sent to a Spark task. Placeholders for secrets are resolved, and stores are
read, when a connection is opened: a replaced secret or store counts from the next connection on.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from heliograph.errors import ConfigError, StoreUnusable
from heliograph.kafka.security.key_stores import Identity, load_identity, load_trusted
from heliograph.kafka.security.sasl import Login, inline_token, read_login

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_VERSIONS = {"TLSV1.2": ssl.TLSVersion.TLSv1_2, "TLSV1.3": ssl.TLSVersion.TLSv1_3}
_OLD = ("TLSV1", "TLSV1.1", "SSLV3", "SSLV2", "SSL")
_FILES = ("ssl.truststore.location", "ssl.keystore.location")
_STORE_KEYS = (
    *(f"ssl.truststore.{name}" for name in ("location", "password", "type", "certificates")),
    *(f"ssl.keystore.{name}" for name in ("location", "password", "type", "certificate.chain", "key")),
    "ssl.key.password",
)


class SecretSource(Protocol):
    """Resolves the secrets that a text refers to; it is sent wherever the settings are."""

    def read(self, key: str, text: str) -> str:
        """Return the value of a key, from the text as written; raises StoreUnusable."""
        ...


@dataclass(frozen=True, slots=True)
class Security:
    """Holds the security settings of one cluster, or of one role on it."""

    protocol: str = "PLAINTEXT"
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    references: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further keys, whose values have placeholders that are resolved each time."""
    reader: SecretSource | None = field(default=None, repr=False)

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    @property
    def checks_host(self) -> bool:
        """Return whether the host name is checked; as in Java an empty algorithm switches it off."""
        return bool(self.properties.get("ssl.endpoint.identification.algorithm", "https").strip())

    def current(self) -> dict[str, str]:
        """Return all keys, with the secrets as they are now."""
        if self.reader is None:
            return dict(self.properties)
        return {**self.properties, **{key: self.reader.read(key, text) for key, text in self.references.items()}}

    def login(self, *, where: str) -> Login | None:
        return read_login(self.current(), where=where) if self.uses_sasl else None

    def user(self, *, where: str) -> str:
        """Return our principal as the brokers' ACLs name it, unless they map names."""
        login = self.login(where=where)
        if login is not None:
            return f"User:{login.user or '<user>'}"
        identity = load_identity(self.current(), where=where) if self.uses_tls else None
        return f"User:{identity.subject}" if identity is not None else "User:ANONYMOUS"

    def stamp(self) -> tuple[object, ...]:
        """Return a value that changes when a store file or its password does; it is as secret as they are."""
        current = self.current()
        found: list[object] = [current.get(key) for key in _STORE_KEYS]
        for key in _FILES:
            location = current.get(key, "").strip()
            if location:
                with contextlib.suppress(OSError, ValueError):
                    status = Path(location).stat()
                    found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(found)

    def inlined(self, *, where: str) -> Security:
        """Return the same settings without files and placeholders, for a process on a machine that has neither."""
        current = self.current()
        kept = {key: value for key, value in current.items() if key not in _STORE_KEYS}
        if self.uses_tls:
            trusted, identity = load_trusted(current, where=where), load_identity(current, where=where)
            if trusted is not None:
                kept["ssl.truststore.certificates"] = trusted.decode("ascii")
            if identity is not None:
                kept["ssl.keystore.certificate.chain"] = identity.certificates.decode("ascii")
                kept["ssl.keystore.key"] = identity.key.decode("ascii")
        if self.uses_sasl:
            kept |= inline_token(kept, where=where)
        return Security(self.protocol, kept)

    @property
    def has_secrets(self) -> bool:
        """Return whether it holds more than certificates to trust."""
        own = ("ssl.keystore.location", "ssl.keystore.key")
        return self.uses_sasl or (
            self.uses_tls and any(self.properties.get(key) or self.references.get(key) for key in own)
        )

    def context(self, *, where: str) -> ssl.SSLContext:
        """Return a TLS context; raises StoreUnusable or ConfigError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.checks_host
        context.verify_mode = ssl.CERT_REQUIRED
        context.options |= ssl.OP_NO_RENEGOTIATION  # as in Kafka; a send that has to wait for a read would spin
        self._set_versions(context, where)
        self._set_ciphers(context, where)
        current = self.current()
        trusted = load_trusted(current, where=where)
        if trusted is None:
            context.load_default_certs()
        else:
            try:
                context.load_verify_locations(cadata=trusted.decode("ascii"))
            except ssl.SSLError as error:
                raise StoreUnusable("a trusted certificate is damaged", where=where, why=str(error.reason)) from error
            # A store may hold a broker's own certificate, or an intermediate one, without its root.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        identity = load_identity(current, where=where)
        if identity is not None:
            with _as_file(identity) as path:
                try:
                    context.load_cert_chain(path)
                except (ssl.SSLError, OSError) as error:
                    raise StoreUnusable(
                        "certificate and key of the key store do not go together",
                        where=where,
                        why=getattr(error, "reason", ""),
                    ) from error
        return context

    def _set_versions(self, context: ssl.SSLContext, where: str) -> None:
        enabled = self.properties.get("ssl.enabled.protocols", "")
        names = [name.strip() for name in enabled.split(",") if name.strip()]
        names = names or [name for name in (self.properties.get("ssl.protocol", "").strip(),) if name]
        known = [_VERSIONS[name.upper()] for name in names if name.upper() in _VERSIONS]
        wrong = [name for name in names if name.upper() not in (*_VERSIONS, *_OLD, "TLS")]
        if wrong or (names and not known and "TLS" not in (name.upper() for name in names)):
            raise ConfigError(
                f'TLS version "{", ".join(wrong or names)}" cannot be used', where=where, remedy="TLSv1.2 or TLSv1.3"
            )
        context.minimum_version = min(known, default=ssl.TLSVersion.TLSv1_2)
        if enabled.strip():
            context.maximum_version = max(known, default=ssl.TLSVersion.TLSv1_3)

    def _set_ciphers(self, context: ssl.SSLContext, where: str) -> None:
        names = [name for name in re.split(r"[\s,]+", self.properties.get("ssl.cipher.suites", "")) if name]
        older = [openssl_name(name) for name in names if not name.startswith(("TLS_AES", "TLS_CHACHA20"))]
        if older:
            try:
                context.set_ciphers(":".join(older))
            except (ssl.SSLError, ValueError) as error:
                raise ConfigError(
                    f'ssl.cipher.suites "{", ".join(names)}" names no cipher known here', where=where
                ) from error


PLAINTEXT = Security()


def openssl_name(java: str) -> str:
    """Return OpenSSL's name of a cipher suite such as `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`."""
    name = java.removeprefix("TLS_").replace("_WITH_", "-").replace("_", "-")
    return re.sub(r"AES-(128|256)", r"AES\1", name).removeprefix("RSA-")


@contextlib.contextmanager
def _as_file(identity: Identity) -> Iterator[str]:
    """Yield certificate and key as a file, which Python's TLS requires.

    The file is in memory if the system supports that, else only we can read it, and it is deleted after use.
    """
    content = identity.key + identity.certificates
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("heliograph-key", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    descriptor, path = tempfile.mkstemp(prefix="heliograph-")  # mode 0600
    try:
        os.write(descriptor, content)
        os.close(descriptor)
        yield path
    finally:
        Path(path).unlink()
