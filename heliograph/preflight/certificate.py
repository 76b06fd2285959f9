"""Describes a broker's certificate, and checks when it expires. Pure."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from cryptography import x509

from heliograph.preflight.steps import Note, passed, warned

SOON = datetime.timedelta(days=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    names: tuple[str, ...]
    issuer: str
    expires: datetime.datetime

    @property
    def text(self) -> str:
        names = ", ".join(self.names) or "no name"
        return f"certificate for {names}, by {self.issuer}, until {self.expires:%Y-%m-%d}"


def parse_certificate(der: bytes) -> Certificate:
    """Parses a certificate; raises ValueError if the bytes are none."""
    found = x509.load_der_x509_certificate(der)
    return Certificate(
        names=_names(found), issuer=found.issuer.rfc4514_string() or "nobody", expires=found.not_valid_after_utc
    )


def _names(found: x509.Certificate) -> tuple[str, ...]:
    """Returns the names that are checked against the host; the subject if there are none, to show whose it is."""
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return (found.subject.rfc4514_string(),)
    return (
        *names.get_values_for_type(x509.DNSName),
        *(str(address) for address in names.get_values_for_type(x509.IPAddress)),
    )


def judge(certificate: Certificate, *, version: str, checks_host: bool, now: datetime.datetime) -> list[Note]:
    """Judges a certificate after a successful handshake."""
    notes = [passed("tls", f"{version}, {certificate.text}")]
    if certificate.expires - now < SOON:
        days = (certificate.expires - now).days
        notes = [warned("tls", f"{version}, {certificate.text}: expires in {days} days", "renew the certificate soon")]
    if not checks_host:
        notes.append(
            warned(
                "tls host",
                "host names are not checked: anyone with a certificate of this authority can pose as the broker",
                "remove ssl.endpoint.identification.algorithm once the certificates have the brokers' names",
            )
        )
    return notes
