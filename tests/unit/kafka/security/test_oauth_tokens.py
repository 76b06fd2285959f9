"""Where a bearer token comes from: a word in the configuration, a file, a client-credentials endpoint in TLS."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from heliograph.errors import AuthenticationFailed
from heliograph.kafka.security.oauth_tokens import fetch_token
from heliograph.kafka.security.sasl import Login, read_login
from heliograph.lab.pki import Authority

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


class Endpoint(BaseHTTPRequestHandler):
    """Gives a token to client "me" with the secret "s"."""

    def do_POST(self) -> None:
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        is_known = self.headers["Authorization"] == "Basic " + base64.b64encode(b"me:s").decode()
        is_right = form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
        body = json.dumps({"access_token": "abc.def.ghi"}).encode()
        self.send_response(200 if is_known and is_right else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def address(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    signed = authority.sign("endpoint")
    chain = tmp_path_factory.mktemp("endpoint") / "chain.pem"
    chain.write_text(signed.pem + signed.key_pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    server = HTTPServer(("127.0.0.1", 0), Endpoint)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    thread.join()
    server.server_close()


def login(address: str, *, secret: str = "s", options: str = "") -> Login:
    properties = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": address,
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": secret,
        "sasl.oauthbearer.scope": "kafka",
        "sasl.jaas.config": f"{MODULE} required{options};",
    }
    return read_login(properties, where="a")


def trusting(authority: Authority) -> str:
    return f' ssl.truststore.certificates="{authority.own.pem}"'


def test_a_token_is_fetched_from_an_endpoint_whose_authority_the_module_trusts(
    address: str, authority: Authority
) -> None:
    found = login(address, options=trusting(authority))
    assert fetch_token(found.options, "a") == "abc.def.ghi"


def test_an_endpoint_of_an_unknown_authority_is_named(address: str) -> None:
    with pytest.raises(AuthenticationFailed, match="the token endpoint's certificate is refused"):
        fetch_token(login(address).options, "a")


def test_a_wrong_secret_is_told_by_the_answer_and_not_shown(address: str, authority: Authority) -> None:
    found = login(address, secret="planted", options=trusting(authority))
    with pytest.raises(AuthenticationFailed, match="the token endpoint answered 401") as caught:
        fetch_token(found.options, "a")
    assert "planted" not in str(caught.value)


def test_a_token_is_read_from_a_file_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    found = login(file.as_uri())
    for token in ("one.two.", "three.four."):
        file.write_text(f"{token}\n")
        assert fetch_token(found.options, "a") == token
