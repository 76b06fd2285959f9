"""`sasl.jaas.config` as users write it, and logins made of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import AuthenticationFailed, ConfigError
from heliograph.kafka.security.jaas import format_jaas, parse_jaas
from heliograph.kafka.security.oauth_tokens import fetch_token
from heliograph.kafka.security.sasl import read_login

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@given(st.dictionaries(st.from_regex(r"[a-z_]+", fullmatch=True), st.text(max_size=12)))
def test_what_is_formatted_is_read_again(options: dict[str, str]) -> None:
    jaas = parse_jaas(format_jaas(PLAIN, options), where="x")
    assert (jaas.module, jaas.options) == (PLAIN, options)


@pytest.mark.parametrize(
    "text",
    [
        f'{PLAIN} required username="u" password="p w";',
        f'{PLAIN} required\n  username = "u"\n  password="p w" ;',
        f'{PLAIN} required username=u password="p w"',
    ],
)
def test_options_quoted_or_not(text: str) -> None:
    jaas = parse_jaas(text, where="x")
    assert (jaas.short_name, jaas.options) == ("PlainLoginModule", {"username": "u", "password": "p w"})


def test_escapes_within_quotes() -> None:
    assert parse_jaas(rf'{PLAIN} required password="a\"b\\c;=";', where="x").options == {"password": 'a"b\\c;='}


@pytest.mark.parametrize(
    "text",
    ["", "x", f"{PLAIN} username=u", f'{PLAIN} required password="hunter2', f"{PLAIN} required password hunter2;",
     f"{PLAIN} required a=b; {SCRAM} required c=d;", f"{PLAIN} required =hunter2;"],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_jaas(text, where='"A"')
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, "Kerberos is not supported"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "MSK's IAM login is not supported"),
        ({"sasl.mechanism": "MADE-UP"}, "it is not known"),
        ({"sasl.mechanism": "PLAIN"}, "needs a username and a password"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f'{SCRAM} required username="u" password="p";'},
            "does not go with sasl.mechanism PLAIN",
        ),
        ({"sasl.mechanism": "OAUTHBEARER"}, "needs a token"),
    ],
)
def test_a_login_that_cannot_work_is_refused_by_name(properties: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_login(properties, where='"A"')
    assert expected in str(caught.value)


def test_plain_sends_user_and_password() -> None:
    login = read_login(
        {"sasl.mechanism": "plain", "sasl.jaas.config": f'{PLAIN} required username="u" password="p";'}, where="x"
    )
    exchange = asyncio.run(login.begin(where="x"))
    assert exchange.auth_bytes() == b"u\x00u\x00p"
    assert "p" not in repr(login).replace("plain", "").replace("PLAIN", "").replace("repr", "").split("user=")[1][3:]


def test_a_token_comes_from_a_file_and_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    properties = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": f"file://{file}"}
    login = read_login(properties, where="x")
    assert b"auth=Bearer one" in asyncio.run(login.begin(where="x")).auth_bytes()
    file.write_text("two")
    assert b"auth=Bearer two" in asyncio.run(login.begin(where="x")).auth_bytes()
    file.unlink()
    with pytest.raises(AuthenticationFailed, match="cannot be read"):
        fetch_token(login.options, "x")
