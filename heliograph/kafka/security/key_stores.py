"""Reads trust and key stores in every form of Java's clients: JKS, PKCS12 and PEM, in a file or in the value itself.

Turns the client keys `ssl.truststore.*` and `ssl.keystore.*` into PEM, which Python's TLS takes. Reads files each time
it is asked, so that a replaced store is noticed; keeps nothing and writes nothing.

Whatever a parser raises becomes StoreUnusable, without its cause: that may show a password or a key.
"""

from __future__ import annotations

import binascii
import contextlib
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jks
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

MAX_STORE_BYTES = 4 * 1024 * 1024
"""Maximum size of a store; Java's own store with every public authority has 0.2 MB."""
MAX_ITERATIONS = 5_000_000
"""Maximum iterations of the hashing that makes a key from a password: Java does 10,000, OWASP asks for 600,000; a
damaged or hostile store may ask for hours."""
_JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PEM_LABEL = re.compile(rb"([A-Z0-9 ]{1,40})-----")
TYPES = ("JKS", "PKCS12", "PEM")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Holds a client's certificate, with its chain, and key."""

    certificates: bytes
    """PEM, the client's own certificate first."""
    key: bytes = field(repr=False)
    """PEM, not encrypted: must never be written to a file that others can read."""

    @property
    def subject(self) -> str:
        """The subject of the client's own certificate, as brokers write it."""
        return x509.load_pem_x509_certificate(self.certificates).subject.rfc4514_string()


def load_trusted(properties: Mapping[str, str], *, where: str) -> bytes | None:
    """Return the certificates to trust, as PEM; None means those of the system."""
    inline = properties.get("ssl.truststore.certificates", "").strip()
    if inline:
        return _pem_certificates(_bytes(inline), f"{where} ssl.truststore.certificates")
    opened = _open(properties, "ssl.truststore", where)
    if opened is None:
        return None
    content, kind, password, origin, password_key = opened
    if kind == "PEM":
        return _pem_certificates(content, origin)
    if kind == "JKS":
        found = _jks(content, password, origin, password_key).trusted(origin)
    else:
        found = _pkcs12(content, password, origin, password_key).certificates
    if not found:
        raise StoreUnusable("the store has no trusted certificate", where=origin)
    return b"".join(found)


def load_identity(properties: Mapping[str, str], *, where: str) -> Identity | None:
    """Return the client's certificate and key; None if there is none."""
    key_password = _password(properties, "ssl.key.password", where)
    chain, key = (properties.get(f"ssl.keystore.{name}", "").strip() for name in ("certificate.chain", "key"))
    if chain or key:
        return _pem_identity(_bytes(f"{chain}\n{key}"), key_password, f"{where} ssl.keystore.key")
    opened = _open(properties, "ssl.keystore", where)
    if opened is None:
        return None
    content, kind, password, origin, password_key = opened
    if kind == "PEM":
        return _pem_identity(content, key_password or password, origin)
    if kind == "JKS":
        return _jks(content, password, origin, password_key).identity(key_password or password, origin)
    return _pkcs12(content, password, origin, password_key).identity(origin)


class _Opened(NamedTuple):
    """Holds a store's bytes, not yet parsed."""

    content: bytes
    kind: str
    password: str | None
    origin: str
    password_key: str


def _open(properties: Mapping[str, str], prefix: str, where: str) -> _Opened | None:
    """Return the file that `<prefix>.location` names; None if it names none."""
    location = properties.get(f"{prefix}.location", "").strip()
    if not location:
        return None
    content = _read(location, f"{where} {prefix}.location")
    kind = _kind(properties.get(f"{prefix}.type"), content, where)
    password_key = f"{prefix}.password"
    return _Opened(content, kind, _password(properties, password_key, where), f"{where} {location}", password_key)


def _password(properties: Mapping[str, str], key: str, where: str) -> str | None:
    """Return a password that is fit to use: at NUL the PKCS12 library writes it to stderr, surrogates are no UTF-8."""
    password = properties.get(key) or None
    if password is not None and re.search("[\0\ud800-\udfff]", password):
        raise StoreUnusable(f"{key} has characters that no password can have", where=where)
    return password


def _bytes(text: str) -> bytes:
    """Encode a text; characters that no encoding has, and no PEM either, become question marks."""
    return text.encode(errors="replace")


def _read(location: str, where: str) -> bytes:
    try:
        path = Path(location)
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe may block for ever
            raise StoreUnusable(f'the store "{location}" is not a file', where=where)
        with path.open("rb") as file:
            content = file.read(MAX_STORE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise StoreUnusable(
            f'the store "{location}" cannot be read', where=where, why=getattr(error, "strerror", "") or str(error)
        ) from error
    if len(content) > MAX_STORE_BYTES:
        raise StoreUnusable(f'"{location}" is too large for a store', where=where)
    return content


def _kind(named: str | None, content: bytes, where: str) -> str:
    """Return the store's type by its bytes: Java too reads a PKCS12 store that is called JKS, and the reverse."""
    if named and named.strip().upper() not in TYPES:
        raise StoreUnusable(f'store type "{named}" is not known', where=where, remedy=f"one of {', '.join(TYPES)}")
    if content[:4] in _JKS_MAGIC:
        return "JKS"
    return "PEM" if b"-----BEGIN " in content else "PKCS12"


# -- PEM


def _pem_blocks(content: bytes, label: bytes) -> Iterator[bytes]:
    """Yield the blocks whose label ends so, in one pass: a search for each end could take quadratic time."""
    for part in content.split(b"-----BEGIN ")[1:]:
        match = _PEM_LABEL.match(part)
        if match is None or not match[1].endswith(label):
            continue
        body, end, _ = part.partition(b"-----END " + match[0])
        if end:
            yield b"-----BEGIN " + body + end


def _pem_certificates(content: bytes, origin: str) -> bytes:
    blocks = list(_pem_blocks(content, b"CERTIFICATE"))
    if not blocks:
        raise StoreUnusable("no certificate in PEM form", where=origin)
    with _or(StoreUnusable("a certificate is damaged", where=origin)):
        return b"".join(x509.load_pem_x509_certificate(block).public_bytes(Encoding.PEM) for block in blocks)


def _pem_identity(content: bytes, password: str | None, origin: str) -> Identity:
    block = next(_pem_blocks(content, b"PRIVATE KEY"), None)
    if block is None:
        raise StoreUnusable("no private key in PEM form", where=origin)
    is_encrypted = b"ENCRYPTED" in block
    if is_encrypted:
        _refuse_slow(_unarmoured(block), origin)
    with _or(_bad_password("the private key", origin, "ssl.key.password")):
        key = _pem_key(load_pem_private_key(block, password.encode() if password and is_encrypted else None))
    return Identity(certificates=_pem_certificates(content, origin), key=key)


def _unarmoured(block: bytes) -> bytes:
    try:
        return binascii.a2b_base64(b"".join(block.splitlines()[1:-1]))
    except binascii.Error:
        return b""


def _pem_key(key: Any) -> bytes:
    return bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


# -- PKCS12


@dataclass(frozen=True, slots=True)
class _Pkcs12:
    certificates: list[bytes]
    chain: bytes
    key: bytes | None = field(repr=False)

    def identity(self, origin: str) -> Identity:
        if self.key is None or not self.chain:
            raise StoreUnusable("the store has no private key with a certificate", where=origin)
        return Identity(certificates=self.chain, key=self.key)


def _pkcs12(content: bytes, password: str | None, origin: str, password_key: str) -> _Pkcs12:
    _refuse_slow(content, origin)
    failure = _bad_password("the store", origin, password_key)
    if content[:1] != b"\x30":
        failure = StoreUnusable("this is neither a JKS, a PKCS12 nor a PEM store", where=origin)
    with _or(failure):
        store = pkcs12.load_pkcs12(content, password.encode() if password is not None else None)
        others = [certificate.certificate.public_bytes(Encoding.PEM) for certificate in store.additional_certs]
        own = [store.cert.certificate.public_bytes(Encoding.PEM)] if store.cert is not None else []
        key = _pem_key(store.key) if store.key is not None else None
    return _Pkcs12(certificates=own + others, chain=b"".join(own + others) if own else b"", key=key)


# -- JKS


@dataclass(frozen=True, slots=True)
class _Jks:
    store: Any = field(repr=False)

    def trusted(self, origin: str) -> list[bytes]:
        return [_der(entry.cert, origin) for _, entry in sorted(self.store.certs.items())]

    def identity(self, password: str | None, origin: str) -> Identity:
        entry = next((entry for _, entry in sorted(self.store.private_keys.items())), None)
        if entry is None:
            raise StoreUnusable("the store has no private key", where=origin)
        _refuse_slow(entry._encrypted or b"", origin)
        with _or(_bad_password("the private key", origin, "ssl.key.password")):
            entry.decrypt(password or "")
            key = _pem_key(load_der_private_key(entry.pkey_pkcs8, None))
        chain = b"".join(_der(certificate, origin) for _, certificate in entry.cert_chain)
        if not chain:
            raise StoreUnusable("the private key has no certificate", where=origin)
        return Identity(certificates=chain, key=key)


def _jks(content: bytes, password: str | None, origin: str, password_key: str) -> _Jks:
    """Read a JKS store; without a password its integrity is not checked, as in Java."""
    with _or(StoreUnusable("the JKS store is damaged", where=origin)):
        try:
            return _Jks(jks.KeyStore.loads(content, password, try_decrypt_keys=False))
        except jks.util.KeystoreSignatureException:
            raise _bad_password("the store", origin, password_key) from None


def _der(content: bytes, origin: str) -> bytes:
    with _or(StoreUnusable("a certificate is damaged", where=origin)):
        return x509.load_der_x509_certificate(content).public_bytes(Encoding.PEM)


# -- what goes wrong


def _refuse_slow(content: bytes, origin: str) -> None:
    """Refuse too many iterations: the number after each salt, wherever it is in what is not encrypted."""
    if any(number > MAX_ITERATIONS for number in _numbers_after_salts(content)):
        raise StoreUnusable(
            f"opening it would take more than {MAX_ITERATIONS} rounds of hashing",
            where=origin,
            why="damaged, or a trap",
        )


def _numbers_after_salts(content: bytes) -> Iterator[int]:
    """Yield the INTEGERs that follow an OCTET STRING in a DER structure, down through every SEQUENCE and string."""
    todo = [(0, len(content))]
    while todo:
        at, end = todo.pop()
        previous = 0
        while at + 2 <= end:
            tag, first = content[at], content[at + 1]
            size_bytes = first - 0x80 if first > 0x80 else 0
            size = int.from_bytes(content[at + 2 : at + 2 + size_bytes], "big") if size_bytes else first & 0x7F
            at += 2 + size_bytes
            stop = min(at + size, end)
            if tag in (0x30, 0x31, 0x24, 0xA0) or (tag == 0x04 and content[at : at + 1] == b"\x30"):
                todo.append((at, stop))
            elif tag == 0x02 and previous == 0x04 and stop - at <= 8:  # what is longer is no count, but a key's number
                yield int.from_bytes(content[at:stop], "big")
            previous, at = tag, stop


@contextlib.contextmanager
def _or(failure: StoreUnusable) -> Iterator[None]:
    """Raise this failure for whatever a parser raises: the libraries let errors of every kind through."""
    try:
        yield
    except StoreUnusable:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":  # of Rust, in cryptography
            raise failure from None
        raise


def _bad_password(what: str, origin: str, key: str) -> StoreUnusable:
    return StoreUnusable(
        f"{what} cannot be opened", where=origin, why="wrong password, or damaged", remedy=f"check {key}"
    )
