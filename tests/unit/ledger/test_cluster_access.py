"""Secrets between the configuration, the driver and the lanes."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from heliograph.config import load_settings
from heliograph.config.load import parse_settings
from heliograph.config.settings import Settings
from heliograph.errors import ConfigError, StoreUnusable
from heliograph.lab.pki import Authority, write_identity, write_trust
from heliograph.ledger.cluster_access import Role, check_security, for_executors, security_of

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
ENCRYPTED = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
BASE = """\
clusters = a, b
a.bootstrap.servers = 127.0.0.1:1
b.bootstrap.servers = 127.0.0.1:2
a->b.enabled = true
"""


def settings_of(folder: Path, keys: str) -> Settings:
    path = folder / "mm2.properties"
    path.write_text(BASE + keys)
    return load_settings(path)


def scram(password: str, prefix: str = "a.") -> str:
    jaas = f'{MODULE} required username="u" password="{password}";'
    keys = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas}
    return "".join(f"{prefix}{key} = {value}\n" for key, value in keys.items())


def referring(folder: Path, password: str = "first") -> Settings:
    (folder / "secrets").write_text(f"pw = {password}\n")
    return settings_of(folder, scram(f"${{file:{folder}/secrets:pw}}"))


def test_a_password_file_that_changes_counts_from_the_next_login_on(tmp_path: Path) -> None:
    security = security_of(referring(tmp_path), referring(tmp_path).flows[0], Role.SOURCE_CONSUMER)
    (tmp_path / "secrets").write_text("pw = second\n")
    login = security.login(where="a")
    assert login is not None
    assert login.options["password"] == "second"


def test_a_password_file_that_is_gone_is_named_without_the_password(tmp_path: Path) -> None:
    settings = referring(tmp_path)
    security = security_of(settings, settings.flows[0], Role.SOURCE_ADMIN)
    (tmp_path / "secrets").unlink()
    with pytest.raises(StoreUnusable, match=r'"sasl.jaas.config" needs "pw" of .*secrets, which cannot be read'):
        security.login(where="a")


def test_what_lanes_of_this_machine_get_holds_references_and_no_secret(tmp_path: Path) -> None:
    settings = referring(tmp_path, "planted-password")
    security = security_of(settings, settings.flows[0], Role.SOURCE_CONSUMER)
    sent = pickle.dumps(for_executors(security, settings, is_local=True, where="a"))
    assert b"planted-password" not in sent
    login = pickle.loads(sent).login(where="a")
    assert login.options["password"] == "planted-password"


def test_what_goes_to_another_machine_needs_no_file_of_this_one(tmp_path: Path) -> None:
    authority = Authority()
    trust = write_trust(tmp_path, "JKS", [authority], "pw")
    identity = write_identity(tmp_path, "PKCS12", authority.sign("me"), "pw")
    stores = f"a.ssl.truststore.location = {trust}\na.ssl.keystore.location = {identity}\n"
    stores += "a.ssl.truststore.password = pw\na.ssl.keystore.password = pw\n"
    settings = settings_of(tmp_path, "a.security.protocol = SSL\n" + stores)
    security = security_of(settings, settings.flows[0], Role.SOURCE_CONSUMER)
    sent = for_executors(security, settings, is_local=False, where="a")
    trust.unlink()
    identity.unlink()
    assert "pw" not in sent.properties.values()
    assert sent.context(where="a").get_ca_certs()


def test_a_token_file_goes_to_another_machine_as_its_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc.def.\n")
    keys = "a.security.protocol = SASL_PLAINTEXT\na.sasl.mechanism = OAUTHBEARER\n"
    settings = settings_of(tmp_path, f"{keys}a.sasl.oauthbearer.token.endpoint.url = file://{tmp_path}/token\n")
    security = security_of(settings, settings.flows[0], Role.SOURCE_CONSUMER)
    sent = for_executors(security, settings, is_local=False, where="a")
    (tmp_path / "token").unlink()
    login = sent.login(where="a")
    assert login is not None
    assert login.options["token"] == "abc.def."


def test_secrets_for_executors_elsewhere_need_an_encrypted_spark(tmp_path: Path) -> None:
    settings = referring(tmp_path)
    check_security(settings, {}, is_local=True)
    check_security(settings, ENCRYPTED, is_local=False)
    for missing in ENCRYPTED:
        half = {key: value for key, value in ENCRYPTED.items() if key != missing}
        with pytest.raises(ConfigError, match=r"in clear.*spark.authenticate=true and spark.network.crypto.enabled"):
            check_security(settings, half, is_local=False)


def test_certificates_to_trust_are_no_secret(tmp_path: Path) -> None:
    trust = write_trust(tmp_path, "PEM", [Authority()], "")
    keys = f"a.security.protocol = SSL\na.ssl.truststore.location = {trust}\n"
    check_security(settings_of(tmp_path, keys), {}, is_local=False)


def test_executors_with_the_files_themselves_get_references_only(tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text("pw = first\n")
    mounted = settings_of(tmp_path, "executor.secrets = mount\n" + scram(f"${{file:{tmp_path}/secrets:pw}}"))
    check_security(mounted, {}, is_local=False)
    security = security_of(mounted, mounted.flows[0], Role.SOURCE_CONSUMER)
    assert b"first" not in pickle.dumps(for_executors(security, mounted, is_local=False, where="a"))
    literal = settings_of(tmp_path, "executor.secrets = mount\n" + scram("first"))
    with pytest.raises(ConfigError, match=r'sasl.jaas.config of "a" stands in the configuration itself'):
        check_security(literal, {}, is_local=False)


@pytest.mark.parametrize(
    ("prefix", "role"),
    [
        ("a.consumer.", Role.SOURCE_CONSUMER),
        ("a.admin.", Role.SOURCE_ADMIN),
        ("b.producer.", Role.TARGET_PRODUCER),
        ("b.admin.", Role.TARGET_ADMIN),
    ],
)
def test_each_role_may_have_settings_of_its_own(prefix: str, role: Role) -> None:
    settings = parse_settings(BASE + scram("x", prefix))
    protocols = {other: security_of(settings, settings.flows[0], other).protocol for other in Role}
    assert protocols == {other: "SASL_PLAINTEXT" if other is role else "PLAINTEXT" for other in Role}
