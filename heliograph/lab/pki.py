"""Makes a certificate authority, and stores of every kind with certificates it has signed.

Uses elliptic keys, which are made quickly. Files are written so that only their owner can read them.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jks
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

LIFETIME = datetime.timedelta(days=60)
LOOPBACK = ("127.0.0.1", "localhost")
_SHROUDED_KEY_BAG = bytes.fromhex("060b2a864886f70d010c0a0102")
"""The object identifier that precedes an encrypted key in a PKCS12 store (RFC 7292)."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def key_pem(self, password: str = "") -> str:
        """Returns the key in PKCS8, encrypted if there is a password."""
        if password:
            return _pem("ENCRYPTED PRIVATE KEY", _encrypted_key(self.key, password))
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _encrypted_key(key: ec.EllipticCurvePrivateKey, password: str) -> bytes:
    """Returns an EncryptedPrivateKeyInfo that Java 17 opens; it cannot open PBES2 in PEM, which the library writes.

    The library does write the older encryption into a PKCS12 store, from which it is taken.
    """
    older = pkcs12.PBES.PBESv1SHA1And3KeyTripleDESCBC
    builder = PrivateFormat.PKCS12.encryption_builder().kdf_rounds(2048).key_cert_algorithm(older)
    protected = builder.hmac_hash(hashes.SHA1()).build(password.encode())
    store = pkcs12.serialize_key_and_certificates(None, key, None, None, protected)
    return _der_content(store[store.index(_SHROUDED_KEY_BAG) + len(_SHROUDED_KEY_BAG) :])


def _der_content(data: bytes) -> bytes:
    """Returns the content of the first element."""
    start, size = 2, data[1]
    if size >= 0x80:
        start, size = 2 + size - 0x80, int.from_bytes(data[2 : 2 + size - 0x80], "big")
    return data[start : start + size]


def _pem(label: str, der: bytes) -> str:
    text = base64.encodebytes(der).decode().replace("\n", "")
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


class Authority:
    """Signs certificates for brokers and clients."""

    def __init__(self, name: str = "lab authority") -> None:
        self.own = _make(name, issuer=None, names=(), days=LIFETIME.days)

    def sign(self, name: str, *, names: Sequence[str] = LOOPBACK, days: int = LIFETIME.days) -> Signed:
        """Signs a certificate for the hosts `names`; it expires in this number of days, in the past if negative."""
        return _make(name, issuer=self.own, names=names, days=days)


def _make(name: str, *, issuer: Signed | None, names: Sequence[str], days: int) -> Signed:
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - 2 * LIFETIME)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if names:
        alternatives = x509.SubjectAlternativeName([_general(item) for item in names])
        builder = builder.add_extension(alternatives, critical=False)
    return Signed(builder.sign(issuer.key if issuer else key, hashes.SHA256()), key)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def trust_store(kind: str, authorities: Sequence[Authority], password: str) -> bytes:
    """Returns a store of the authorities to trust; `kind` is JKS, PKCS12 or PEM, which has no password."""
    owned = [(f"ca{index}", authority.own) for index, authority in enumerate(authorities)]
    if kind == "PEM":
        return "".join(own.pem for _, own in owned).encode()
    if kind == "PKCS12":
        entries = [pkcs12.PKCS12Certificate(own.certificate, alias.encode()) for alias, own in owned]
        return pkcs12.serialize_java_truststore(entries, BestAvailableEncryption(password.encode()))
    trusted = [jks.TrustedCertEntry.new(alias, own.der) for alias, own in owned]
    return bytes(jks.KeyStore.new("jks", trusted).saves(password))


def key_store(kind: str, signed: Signed, password: str, key_password: str = "") -> bytes:
    """Returns a store with a certificate and its key; `key_password` defaults to the store's; PKCS12 ignores it."""
    if kind == "PEM":
        return (signed.pem + signed.key_pem(key_password or password)).encode()
    if kind == "PKCS12":
        protected = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"me", signed.key, signed.certificate, None, protected)
    der = signed.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    entry = jks.PrivateKeyEntry.new("me", [signed.der], der, "pkcs8")
    entry.encrypt(key_password or password)
    return bytes(jks.KeyStore.new("jks", [entry]).saves(password))


def write_trust(folder: Path, kind: str, authorities: Sequence[Authority], password: str) -> Path:
    return write_private(folder / f"trust.{kind.lower()}", trust_store(kind, authorities, password))


def write_identity(folder: Path, kind: str, signed: Signed, password: str) -> Path:
    return write_private(folder / f"identity.{kind.lower()}", key_store(kind, signed, password))


def write_private(path: Path, content: bytes | str) -> Path:
    """Writes a file that only its owner can ever read; folders made for it are as private."""
    for folder in reversed(path.parents):
        folder.mkdir(mode=0o700, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content.encode() if isinstance(content, str) else content)
    return path
