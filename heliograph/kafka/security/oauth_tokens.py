"""Gets bearer tokens for OAUTHBEARER: as given, from a file, or from a client-credentials endpoint. Blocking.

Redirects are not followed, and an endpoint has one time limit for everything, however slowly it answers. No error
shows a token, a secret, or more of the endpoint's address than host and path.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Mapping
from pathlib import Path

from heliograph.errors import AuthenticationFailed

TOKEN_TIMEOUT_S = 10.0
_MAX_TOKEN_BYTES = 1024 * 1024
_TOKEN = re.compile(r"[!-~]+")


def fetch_token(options: Mapping[str, str], where: str) -> str:
    """Return a token by the options `token`, or `url` with `client_id`, `client_secret` and `scope`.

    `trusted` has the certificates to trust.
    """
    if "token" in options:
        return _checked(options["token"], where)
    try:
        url = urllib.parse.urlsplit(options["url"])
        port = url.port
    except ValueError:
        raise AuthenticationFailed("the address of the token endpoint cannot be read", where=where) from None
    if url.scheme == "file":
        return _checked(_read_file(urllib.parse.unquote(url.path), where), where)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise AuthenticationFailed(f'a token cannot be fetched from "{url.scheme}:"', where=where)
    endpoint = f"{where} {url.scheme}://{url.hostname}{f':{port}' if port else ''}{url.path}"
    status, body = _post(url, options, endpoint)
    if status != 200:
        raise AuthenticationFailed(
            f"the token endpoint answered {status}", where=endpoint, remedy="check its address, client id and secret"
        )
    try:
        token = json.loads(body)["access_token"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise AuthenticationFailed("the token endpoint's answer has no access_token", where=endpoint) from None
    return _checked(token, endpoint)


def _checked(token: object, where: str) -> str:
    """Return the token if it is printable; other characters could add a field to the login message."""
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise AuthenticationFailed("the token is not one", where=where, why="it must be one word of ASCII characters")
    return token


def _read_file(location: str, where: str) -> str:
    try:
        path = Path(location)
        if not path.is_file():  # reading a pipe may block for ever
            raise FileNotFoundError
        with path.open("rb") as file:
            return file.read(_MAX_TOKEN_BYTES).decode().strip()
    except (OSError, ValueError):
        raise AuthenticationFailed(f'the token file "{location}" cannot be read', where=where) from None


def _headers(options: Mapping[str, str]) -> dict[str, str]:
    pair = f"{options.get('client_id', '')}:{options.get('client_secret', '')}"
    return {
        "Authorization": "Basic " + base64.b64encode(pair.encode(errors="replace")).decode(),
        "Accept": "application/json",
        "Content-Type": "application/x-www-form-urlencoded",
    }


def _form(options: Mapping[str, str]) -> bytes:
    form = {"grant_type": "client_credentials"}
    if "scope" in options:
        form["scope"] = options["scope"]
    return urllib.parse.urlencode(form, errors="replace").encode()


def _post(url: urllib.parse.SplitResult, options: Mapping[str, str], where: str) -> tuple[int, bytes]:
    """Post a form; return status and body."""
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    try:
        connection = _connection(url, options.get("trusted"))
        return _talk(connection, path, _headers(options), _form(options))
    except ssl.SSLCertVerificationError as error:
        raise AuthenticationFailed(
            "the token endpoint's certificate is refused",
            where=where,
            why=error.verify_message,
            remedy="put its authority into the login module's ssl.truststore.certificates",
        ) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or type(error).__name__
        raise AuthenticationFailed("the token endpoint does not answer", where=where, why=why) from None


def _talk(
    connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str], form: bytes
) -> tuple[int, bytes]:
    """Send and receive within one time limit: http.client limits each read only."""
    clock = threading.Timer(TOKEN_TIMEOUT_S, _cut, (connection,))
    clock.daemon = True
    clock.start()
    try:
        connection.request("POST", path, form, headers)
        with connection.getresponse() as answer:
            return answer.status, answer.read(_MAX_TOKEN_BYTES)
    finally:
        clock.cancel()
        connection.close()


def _connection(url: urllib.parse.SplitResult, trusted: str | None) -> http.client.HTTPConnection:
    assert url.hostname
    if url.scheme == "http":
        return http.client.HTTPConnection(url.hostname, url.port, timeout=TOKEN_TIMEOUT_S)
    context = ssl.create_default_context(cadata=trusted)
    return http.client.HTTPSConnection(url.hostname, url.port, timeout=TOKEN_TIMEOUT_S, context=context)


def _cut(connection: http.client.HTTPConnection) -> None:
    """End whatever a thread waits for on this connection."""
    try:
        connection.sock.shutdown(socket.SHUT_RDWR)
    except (OSError, AttributeError):
        return  # not connected yet, or no longer
