"""The lab's certificates are what was asked for; its stores open with their passwords and are nobody else's."""

from __future__ import annotations

import datetime
import stat
from pathlib import Path

import pytest
from cryptography import x509

from heliograph.errors import StoreUnusable
from heliograph.kafka.security.key_stores import load_identity, load_trusted
from heliograph.lab.pki import Authority, key_store, trust_store, write_private

STORE, KEY = 'st"ore \\1', 'k"ey \\2'


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.mark.parametrize("days", [10, -1])
def test_names_and_times_are_those_asked_for(authority: Authority, days: int) -> None:
    signed = authority.sign("me", names=("10.1.2.3", "a.example"), days=days).certificate
    names = signed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["10.1.2.3", "a.example"]
    left = signed.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert round(left / datetime.timedelta(days=1)) == days
    assert signed.issuer == authority.own.certificate.subject
    signed.verify_directly_issued_by(authority.own.certificate)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12", "PEM"])
def test_key_store_has_two_passwords_where_its_kind_can(kind: str, authority: Authority, tmp_path: Path) -> None:
    signed = authority.sign("me")
    path = write_private(tmp_path / "store", key_store(kind, signed, STORE, KEY))
    properties = {"ssl.keystore.location": str(path), "ssl.keystore.password": STORE}
    key_password = STORE if kind == "PKCS12" else KEY
    identity = load_identity({**properties, "ssl.key.password": key_password}, where="x")
    assert identity is not None
    assert identity.certificates.decode() == signed.pem
    assert identity.key.decode() == signed.key_pem()
    if kind != "PKCS12":
        with pytest.raises(StoreUnusable, match=r"check ssl\.key\.password"):
            load_identity({**properties, "ssl.key.password": STORE}, where="x")


@pytest.mark.parametrize("kind", ["JKS", "PKCS12", "PEM"])
def test_trust_store_has_every_authority(kind: str, authority: Authority, tmp_path: Path) -> None:
    other = Authority("other")
    path = write_private(tmp_path / "store", trust_store(kind, [authority, other], STORE))
    trusted = load_trusted({"ssl.truststore.location": str(path), "ssl.truststore.password": STORE}, where="x")
    assert trusted is not None
    assert {authority.own.pem, other.own.pem} == {
        part + "-----END CERTIFICATE-----\n" for part in trusted.decode().split("-----END CERTIFICATE-----\n")[:-1]
    }


def test_private_files_are_private_even_over_open_ones(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    write_private(path, "first")
    path.chmod(0o644)
    write_private(path, "second")
    assert path.read_text() == "second"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
