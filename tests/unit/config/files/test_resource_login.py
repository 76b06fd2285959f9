"""`tls` and `authentication` of a resource's cluster: the client keys they become."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.helpers.resources import OAUTH, PLAIN, SCRAM, errors, inspect, of, security, with_cluster


@pytest.mark.parametrize("name", ["scram-sha-256", "scram-sha-512", "plain"])
@pytest.mark.parametrize(("tls", "protocol"), [("", "SASL_PLAINTEXT"), ("tls: {}\n", "SASL_SSL")])
def test_password_becomes_a_login(name: str, tls: str, protocol: str, secrets: Path) -> None:
    authentication = (
        f"authentication: {{type: {name}, username: me, passwordSecret: {{secretName: mine, password: password}}}}"
    )
    assert security(with_cluster(tls + authentication), secrets) == {
        "security.protocol": protocol,
        "sasl.mechanism": name.upper(),
        "sasl.jaas.config": f'{PLAIN if name == "plain" else SCRAM} required username="me" password="fake \\"word";',
    }


CERTIFICATE = "authentication: {type: tls, certificateAndKey: {secretName: mine, certificate: user.crt, key: user.key}}"


def test_certificate_becomes_a_key_store(secrets: Path) -> None:
    assert security(with_cluster("tls: {}\n" + CERTIFICATE), secrets) == {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "fake certificate",
        "ssl.keystore.key": "fake key",
    }


def test_certificate_without_tls_is_warned_of(secrets: Path) -> None:
    loaded = inspect(with_cluster(CERTIFICATE), secrets)
    assert loaded.valid_settings().clusters["A"].security_protocol == "PLAINTEXT"
    assert [warning.remedy for warning in of(loaded, "no-tls")] == ['write "tls: {}"']


def test_oauth_becomes_the_keys_of_kafkas_clients(secrets: Path) -> None:
    found = security(
        with_cluster(
            """
            tls:
              trustedCertificates:
              - {secretName: mine, certificate: ca.crt}
            authentication:
              type: oauth
              clientId: me
              clientSecret: {secretName: mine, key: token}
              tokenEndpointUri: https://tokens.example/token
              scope: all
              tlsTrustedCertificates:
              - {secretName: mine, certificate: old.crt}
            """
        ),
        secrets,
    )
    assert found == {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "fake ca",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        ),
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": "fake-token",
        "sasl.oauthbearer.token.endpoint.url": "https://tokens.example/token",
        "sasl.oauthbearer.scope": "all",
        "sasl.jaas.config": (f'{OAUTH} required ssl.truststore.type="PEM" ssl.truststore.certificates="fake old ca";'),
    }


def test_oauth_reads_a_token_from_a_file(secrets: Path) -> None:
    found = security(with_cluster("authentication: {type: oauth, accessTokenLocation: /var/token}"), secrets)
    assert found["sasl.oauthbearer.token.endpoint.url"] == "file:///var/token"
    assert found["sasl.jaas.config"] == f"{OAUTH} required;"


def test_custom_authentication_is_taken_as_written(secrets: Path) -> None:
    found = security(
        with_cluster(
            """
            tls: {}
            authentication:
              type: custom
              sasl: true
              config:
                sasl.mechanism: OAUTHBEARER
                sasl.jaas.config: Module required password="${secrets:mine:token}";
            """
        ),
        secrets,
    )
    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": 'Module required password="fake-token";',
    }


def test_custom_authentication_without_sasl_is_tls_alone(secrets: Path) -> None:
    text = with_cluster("tls: {}\nauthentication: {type: custom, sasl: false, config: {ssl.keystore.location: /k}}")
    assert security(text, secrets) == {"security.protocol": "SSL", "ssl.keystore.location": "/k"}


def test_misspelt_key_of_custom_authentication_is_refused() -> None:
    (error,) = errors(with_cluster("authentication: {type: custom, sasl: true, config: {sasl.mechanis: PLAIN}}"))
    assert 'did you mean "sasl.mechanism"?' in error


def test_unknown_authentication_is_refused() -> None:
    (error,) = errors(with_cluster("authentication: {type: kerberos}"))
    assert "must be one of tls, plain, scram-sha-256, scram-sha-512, oauth, custom" in error


def test_field_of_another_type_of_authentication_is_warned_of(secrets: Path) -> None:
    loaded = inspect(with_cluster("tls: {}\n" + CERTIFICATE.replace("{type: tls", "{type: tls, username: me")), secrets)
    assert [warning.what for warning in of(loaded, "wrong-place")] == [
        '"spec.clusters[0].authentication.username" has no effect with type tls'
    ]


def test_empty_tls_trusts_the_system(secrets: Path) -> None:
    assert security(with_cluster("tls: {}"), secrets) == {"security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("certificates", "trusted"),
    [
        ("[{secretName: mine, certificate: ca.crt}]", "fake ca"),
        ("[{secretName: mine, certificate: ca.crt}, {secretName: mine, certificate: old.crt}]", "fake ca\nfake old ca"),
        ("[{secretName: mine, pattern: 'ca.*'}]", "fake ca"),
    ],
)
def test_trusted_certificates_become_a_trust_store(certificates: str, trusted: str, secrets: Path) -> None:
    found = security(with_cluster(f"tls: {{trustedCertificates: {certificates}}}"), secrets)
    assert found == {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": trusted,
    }


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ("tls: {trustedCertificates: [{secretName: a}]}", "has neither certificate nor pattern"),
        ("authentication: {username: me}", 'authentication.type" is missing'),
        ("authentication: {type: plain, username: me}", 'authentication.passwordSecret" is missing'),
        ("authentication: {type: tls}", 'authentication.certificateAndKey" is missing'),
        ("authentication: {type: plain, passwordSecret: {secretName: a, password: b}}", 'username" is missing'),
    ],
)
def test_incomplete_security_is_refused(fields: str, error: str) -> None:
    assert any(error in found for found in errors(with_cluster(fields)))
