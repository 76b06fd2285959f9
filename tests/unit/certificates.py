"""A certificate authority for tests, and stores of every kind with what it has signed."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import jks  # type: ignore[import-untyped]
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

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Signed:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str = "") -> str:
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()


class Authority:
    """Signs certificates for hosts and clients."""

    def __init__(self, name: str = "test authority") -> None:
        self.own = self._sign(name, issuer=None, names=(), days=30, is_authority=True)

    def sign(self, name: str, *, names: tuple[str, ...] = ("127.0.0.1", "localhost"), days: int = 30) -> Signed:
        """Negative days: a certificate that has expired."""
        return self._sign(name, issuer=self.own, names=names, days=days, is_authority=False)

    def _sign(
        self, name: str, *, issuer: Signed | None, names: tuple[str, ...], days: int, is_authority: bool
    ) -> Signed:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        until = datetime.datetime.now(datetime.UTC) + days * DAY
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.certificate.subject if issuer else subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(until - 60 * DAY)
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general(item) for item in names]), False)
        return Signed(builder.sign(issuer.key if issuer else key, hashes.SHA256()), key)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def write_trust(folder: Path, kind: str, authorities: list[Authority], password: str) -> Path:
    path = folder / f"trust.{kind.lower()}"
    if kind == "PEM":
        path.write_text("\n".join(authority.own.pem for authority in authorities))
    elif kind == "PKCS12":
        certificates = [
            pkcs12.PKCS12Certificate(authority.own.certificate, f"ca{index}".encode())
            for index, authority in enumerate(authorities)
        ]
        path.write_bytes(pkcs12.serialize_java_truststore(certificates, BestAvailableEncryption(password.encode())))
    else:
        entries = [
            jks.TrustedCertEntry.new(f"ca{index}", authority.own.certificate.public_bytes(Encoding.DER))
            for index, authority in enumerate(authorities)
        ]
        jks.KeyStore.new("jks", entries).save(str(path), password)
    return path


def write_identity(folder: Path, kind: str, signed: Signed, password: str) -> Path:
    path = folder / f"identity.{kind.lower()}"
    if kind == "PEM":
        path.write_text(signed.pem + signed.key_pem(password))
    elif kind == "PKCS12":
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"me", signed.key, signed.certificate, None, BestAvailableEncryption(password.encode())
            )
        )
    else:
        der = signed.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        entry = jks.PrivateKeyEntry.new("me", [signed.certificate.public_bytes(Encoding.DER)], der, "pkcs8")
        jks.KeyStore.new("jks", [entry]).save(str(path), password)
    return path
