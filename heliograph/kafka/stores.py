"""Trust and key stores in every form that Java's users have: JKS, PKCS12 and PEM, in a file or in the value itself.

From the client keys `ssl.truststore.*` and `ssl.keystore.*` to PEM, which is what Python's TLS takes. Reads files
each time it is asked, so that a store that was replaced is noticed; keeps nothing and writes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jks  # type: ignore[import-untyped]
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    load_pem_private_key,
    pkcs12,
)

from heliograph.errors import StoreUnusable

MAX_STORE_BYTES = 16 * 1024 * 1024
_JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_CERTIFICATE = re.compile(
    rb"-----BEGIN (?:TRUSTED )?CERTIFICATE-----.+?-----END (?:TRUSTED )?CERTIFICATE-----", re.DOTALL
)
_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.+?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL)
TYPES = ("JKS", "PKCS12", "PEM")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A client's certificate, with its chain, and key."""

    certificates: bytes
    """PEM, the client's own first."""
    key: bytes = field(repr=False)
    """PEM, not encrypted: never to be written to a file that others can read."""

    @property
    def subject(self) -> str:
        """The name in the client's own certificate, as brokers write it."""
        return x509.load_pem_x509_certificate(self.certificates).subject.rfc4514_string()


def load_trusted(properties: Mapping[str, str], *, where: str) -> bytes | None:
    """The certificates to trust, as PEM; None means those of the system."""
    inline = properties.get("ssl.truststore.certificates", "").strip()
    if inline:
        return _pem_certificates(inline.encode(), f"{where} ssl.truststore.certificates")
    location = properties.get("ssl.truststore.location", "").strip()
    if not location:
        return None
    content = _read(location, f"{where} ssl.truststore.location")
    kind = _kind(properties.get("ssl.truststore.type"), content, where)
    password = properties.get("ssl.truststore.password") or None
    place = f"{where} {location}"
    if kind == "PEM":
        return _pem_certificates(content, place)
    if kind == "JKS":
        found = [certificate for certificate, _ in _jks(content, password, place, "ssl.truststore.password").trusted]
    else:
        found = _pkcs12(content, password, place, "ssl.truststore.password").certificates
    if not found:
        raise StoreUnusable("the store has no trusted certificate", where=place)
    return b"".join(found)


def load_identity(properties: Mapping[str, str], *, where: str) -> Identity | None:
    """The client's certificate and key; None if there is none."""
    key_password = properties.get("ssl.key.password") or None
    chain, key = (properties.get(f"ssl.keystore.{name}", "").strip() for name in ("certificate.chain", "key"))
    if chain or key:
        return _pem_identity(f"{chain}\n{key}".encode(), key_password, f"{where} ssl.keystore.key")
    location = properties.get("ssl.keystore.location", "").strip()
    if not location:
        return None
    content = _read(location, f"{where} ssl.keystore.location")
    kind = _kind(properties.get("ssl.keystore.type"), content, where)
    password = properties.get("ssl.keystore.password") or None
    place = f"{where} {location}"
    if kind == "PEM":
        return _pem_identity(content, key_password or password, place)
    if kind == "JKS":
        return _jks(content, password, place, "ssl.keystore.password").identity(key_password or password, place)
    return _pkcs12(content, password, place, "ssl.keystore.password").identity(place)


def _read(location: str, where: str) -> bytes:
    try:
        with Path(location).open("rb") as file:
            content = file.read(MAX_STORE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise StoreUnusable(
            f'the store "{location}" cannot be read', where=where, why=getattr(error, "strerror", "") or str(error)
        ) from error
    if len(content) > MAX_STORE_BYTES:
        raise StoreUnusable(f'"{location}" is too large for a store', where=where)
    return content


def _kind(named: str | None, content: bytes, where: str) -> str:
    """By what is in the file: Java too reads a PKCS12 store that is called JKS, and the reverse."""
    if named and named.strip().upper() not in TYPES:
        raise StoreUnusable(f'store type "{named}" is not known', where=where, remedy=f"one of {', '.join(TYPES)}")
    if content[:4] in _JKS_MAGIC:
        return "JKS"
    return "PEM" if b"-----BEGIN " in content else "PKCS12"


# -- PEM


def _pem_certificates(content: bytes, place: str) -> bytes:
    blocks = _CERTIFICATE.findall(content)
    if not blocks:
        raise StoreUnusable("no certificate in PEM form", where=place)
    return b"".join(_checked(block, place) for block in blocks)


def _checked(block: bytes, place: str) -> bytes:
    try:
        return x509.load_pem_x509_certificate(block).public_bytes(Encoding.PEM)
    except ValueError as error:
        raise StoreUnusable("a certificate is damaged", where=place, why=str(error)) from error


def _pem_identity(content: bytes, password: str | None, place: str) -> Identity:
    keys = _KEY.findall(content)
    if not keys:
        raise StoreUnusable("no private key in PEM form", where=place)
    try:
        key = load_pem_private_key(keys[0], password.encode() if password and b"ENCRYPTED" in keys[0] else None)
    except (ValueError, TypeError) as error:
        raise _bad_password("the private key", place, "ssl.key.password") from error
    return Identity(certificates=_pem_certificates(content, place), key=_pem_key(key))


def _pem_key(key: Any) -> bytes:
    return bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


# -- PKCS12


@dataclass(frozen=True, slots=True)
class _Pkcs12:
    certificates: list[bytes]
    chain: bytes
    key: bytes | None = field(repr=False)

    def identity(self, place: str) -> Identity:
        if self.key is None or not self.chain:
            raise StoreUnusable("the store has no private key with a certificate", where=place)
        return Identity(certificates=self.chain, key=self.key)


def _pkcs12(content: bytes, password: str | None, place: str, password_key: str) -> _Pkcs12:
    try:
        store = pkcs12.load_pkcs12(content, password.encode() if password is not None else None)
    except (ValueError, TypeError) as error:
        if content[:1] != b"\x30":
            raise StoreUnusable("this is neither a JKS, a PKCS12 nor a PEM store", where=place) from error
        raise _bad_password("the store", place, password_key) from error
    others = [certificate.certificate.public_bytes(Encoding.PEM) for certificate in store.additional_certs]
    own = [store.cert.certificate.public_bytes(Encoding.PEM)] if store.cert is not None else []
    key = _pem_key(store.key) if store.key is not None else None
    return _Pkcs12(certificates=own + others, chain=b"".join(own + others) if own else b"", key=key)


# -- JKS


@dataclass(frozen=True, slots=True)
class _Jks:
    store: Any = field(repr=False)

    @property
    def trusted(self) -> list[tuple[bytes, str]]:
        return [(_der(entry.cert), alias) for alias, entry in sorted(self.store.certs.items())]

    def identity(self, password: str | None, place: str) -> Identity:
        for _, entry in sorted(self.store.private_keys.items()):
            try:
                if not entry.is_decrypted():
                    entry.decrypt(password or "")
                key = load_der_private_key(entry.pkey_pkcs8, None)
            except (jks.util.KeystoreException, ValueError, TypeError) as error:
                raise _bad_password("the private key", place, "ssl.key.password") from error
            chain = b"".join(_der(certificate) for _, certificate in entry.cert_chain)
            return Identity(certificates=chain, key=_pem_key(key))
        raise StoreUnusable("the store has no private key", where=place)


def _jks(content: bytes, password: str | None, place: str, password_key: str) -> _Jks:
    try:
        return _Jks(jks.KeyStore.loads(content, password or "", try_decrypt_keys=False))
    except jks.util.KeystoreSignatureException as error:
        raise _bad_password("the store", place, password_key) from error
    except Exception as error:  # the library lets errors of its parser through, whatever they are
        raise StoreUnusable("the JKS store is damaged", where=place, why=type(error).__name__) from error


def _der(content: bytes) -> bytes:
    return x509.load_der_x509_certificate(content).public_bytes(Encoding.PEM)


def _bad_password(what: str, place: str, key: str) -> StoreUnusable:
    return StoreUnusable(
        f"{what} cannot be opened", where=place, why="wrong password, or damaged", remedy=f"check {key}"
    )
