"""Makes a secured cluster's secrets: key material, users with their passwords, and client settings.

folder/   ca.crt  ca.p12  ca.jks                            whom to trust
          users/<name>/user.crt .key .p12 .jks .pem token   who a user is; the key in user.pem is encrypted
          brokers/<id>/server.p12 expired.p12 wrong_host.p12
          hosts                                             names behind the proxy, for -Djdk.net.hosts.file

Only the owner can read the files. The folder is in the lab's data and is removed with it.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from heliograph.errors import LabError
from heliograph.kafka.security.jaas import format_jaas
from heliograph.lab.listeners import LISTENERS, MODULES, WRONG_HOST, bootstrap_name, broker_name, security_properties
from heliograph.lab.pki import LIFETIME, LOOPBACK, Authority, Signed, key_store, trust_store, write_private

USERS = ("mirror", "app")
STORES = ("PEM", "PKCS12", "JKS", "INLINE")
_SUFFIX = {"PEM": "pem", "PKCS12": "p12", "JKS": "jks"}


def new_password() -> str:
    """Makes a password with characters that must be escaped somewhere: a double quote, a backslash and a space."""
    return f'{secrets.token_hex(6)}" \\{secrets.token_hex(6)}'


def unsigned_token(user: str, *, lifetime_s: float = LIFETIME.total_seconds()) -> str:
    """Makes a token (JWS with algorithm "none") that Kafka's unsecured validator accepts. No two are equal."""
    now = int(time.time())
    claims = {"sub": user, "iat": now, "exp": now + int(lifetime_s), "jti": secrets.token_hex(8)}
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in ({"alg": "none"}, claims))
    return ".".join(part.rstrip("=") for part in parts) + "."


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    name: str
    password: str = field(repr=False)
    token: str = field(repr=False)
    signed: Signed = field(repr=False)


class Secured:
    """Secrets of one cluster. Nothing is written before `write`."""

    def __init__(self, alias: str, folder: Path, authority: Authority, *, proxy_port: int) -> None:
        self.alias = alias
        self.folder = folder
        self.authority = authority
        self.store_password = new_password()
        self.key_password = new_password()
        self.proxy_port = proxy_port
        self._users = {
            name: User(
                name=name, password=new_password(), token=unsigned_token(name), signed=authority.sign(name, names=())
            )
            for name in USERS
        }
        self._ports: Mapping[int, Mapping[str, int]] = {}

    def password(self, user: str) -> str:
        return self._user(user).password

    @property
    def passwords(self) -> dict[str, str]:
        return {user.name: user.password for user in self._users.values()}

    def secrets(self) -> dict[str, str]:
        """Returns every text that must not be shown anywhere, by what it is.

        A key is represented by the first line of its PEM form. A password is included whole, and by its beginning,
        which no escaping changes.
        """
        named = {"store": self.store_password, "key": self.key_password, **self.passwords}
        found = {f"password of {name}": password for name, password in named.items()}
        found |= {f"beginning of the password of {name}": text.partition('"')[0] for name, text in named.items()}
        for user in self._users.values():
            found[f"token of {user.name}"] = user.token
            found[f"key of {user.name}"] = user.signed.key_pem().splitlines()[1]
        return found

    @property
    def hosts(self) -> Path:
        return self.folder / "hosts"

    def broker_properties(self, broker_id: int) -> dict[str, str]:
        return security_properties(
            self._broker_folder(broker_id),
            self.folder / "ca.p12",
            store_password=self.store_password,
            passwords=self.passwords,
        )

    def locate(self, ports: Mapping[int, Mapping[str, int]]) -> None:
        """Sets the ports of the listeners, by broker id and listener."""
        self._ports = ports

    def bootstrap(self, listener: str) -> str:
        """Returns `bootstrap.servers` of a listener, all brokers."""
        if listener == "SNI":
            return f"{bootstrap_name(self.alias)}:{self.proxy_port}"
        return ",".join(f"127.0.0.1:{of_broker[listener]}" for of_broker in self._ports.values())

    def routes(self) -> dict[str, tuple[int, ...]]:
        """Returns the ports by the names that the proxy knows."""
        ports = {broker_id: of_broker["SNI"] for broker_id, of_broker in self._ports.items()}
        own = {broker_name(self.alias, broker_id): (port,) for broker_id, port in ports.items()}
        return {**own, bootstrap_name(self.alias): tuple(ports.values())}

    def write(self) -> None:
        """Writes the files."""
        for name, kind in (("ca.crt", "PEM"), ("ca.p12", "PKCS12"), ("ca.jks", "JKS")):
            write_private(self.folder / name, trust_store(kind, [self.authority], self.store_password))
        for user in self._users.values():
            own = self._user_folder(user.name)
            write_private(own / "user.crt", user.signed.pem)
            write_private(own / "user.key", user.signed.key_pem())
            write_private(own / "token", user.token)
            for kind, suffix in _SUFFIX.items():
                content = key_store(kind, user.signed, self.store_password, self.key_password)
                write_private(own / f"user.{suffix}", content)
        for broker_id in self._ports:
            self._write_broker(broker_id)
        # Java asks the system's resolver, which may not know names under localhost.
        write_private(self.hosts, "".join(f"127.0.0.1 {name}\n" for name in ("localhost", *self.routes())))

    def _write_broker(self, broker_id: int) -> None:
        routed = broker_name(self.alias, broker_id)
        signed = {
            "server": self.authority.sign(routed, names=(*LOOPBACK, routed, bootstrap_name(self.alias))),
            "expired": self.authority.sign(routed, days=-1),
            "wrong_host": self.authority.sign(WRONG_HOST, names=(WRONG_HOST,)),
        }
        for name, certificate in signed.items():
            content = key_store("PKCS12", certificate, self.store_password)
            write_private(self._broker_folder(broker_id) / f"{name}.p12", content)

    def client_properties(
        self, listener: str, *, mechanism: str = "", user: str = "mirror", stores: str = "PEM"
    ) -> dict[str, str]:
        """Builds a client's keys for a listener, as Java and our own client read them.

        `mechanism` is for the listeners with a login, SCRAM-SHA-512 by default. INLINE stores are PEM texts.
        """
        if listener not in LISTENERS or stores not in STORES:
            raise LabError(
                f'no listener "{listener}" with "{stores}" stores',
                remedy=f"listeners: {', '.join(LISTENERS)}; stores: {', '.join(STORES)}",
            )
        protocol = LISTENERS[listener]
        properties = {"bootstrap.servers": self.bootstrap(listener), "security.protocol": protocol}
        if protocol.endswith("SSL"):
            properties |= self._trust_properties(stores)
        if listener == "MTLS":
            properties |= self._key_properties(stores, self._user(user))
        if protocol.startswith("SASL"):
            properties |= self._login_properties(mechanism or "SCRAM-SHA-512", self._user(user))
        return properties

    def _trust_properties(self, stores: str) -> dict[str, str]:
        if stores == "INLINE":
            return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.authority.own.pem}
        name = "ca.crt" if stores == "PEM" else f"ca.{_SUFFIX[stores]}"
        properties = {"ssl.truststore.type": stores, "ssl.truststore.location": str(self.folder / name)}
        # Java refuses a password for PEM, which has none.
        return properties if stores == "PEM" else {**properties, "ssl.truststore.password": self.store_password}

    def _key_properties(self, stores: str, user: User) -> dict[str, str]:
        if stores == "INLINE":
            return {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": user.signed.pem,
                "ssl.keystore.key": user.signed.key_pem(self.key_password),
                "ssl.key.password": self.key_password,
            }
        properties = {
            "ssl.keystore.type": stores,
            "ssl.keystore.location": str(self._user_folder(user.name) / f"user.{_SUFFIX[stores]}"),
            "ssl.key.password": self.store_password if stores == "PKCS12" else self.key_password,
        }
        return properties if stores == "PEM" else {**properties, "ssl.keystore.password": self.store_password}

    def _login_properties(self, mechanism: str, user: User) -> dict[str, str]:
        if mechanism not in MODULES:
            raise LabError(f'no mechanism "{mechanism}"', remedy=f"one of {', '.join(MODULES)}")
        if mechanism == "OAUTHBEARER":
            # Our client reads the token's file. Java makes its own token from the option and ignores the URL.
            return {
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": format_jaas(MODULES[mechanism], {"unsecuredLoginStringClaim_sub": user.name}),
                "sasl.oauthbearer.token.endpoint.url": (self._user_folder(user.name) / "token").as_uri(),
            }
        options = {"username": user.name, "password": user.password}
        return {"sasl.mechanism": mechanism, "sasl.jaas.config": format_jaas(MODULES[mechanism], options)}

    def _user(self, name: str) -> User:
        if name not in self._users:
            raise LabError(f'cluster "{self.alias}" has no user "{name}"', why=f"it has {', '.join(self._users)}")
        return self._users[name]

    def _user_folder(self, name: str) -> Path:
        return self.folder / "users" / name

    def _broker_folder(self, broker_id: int) -> Path:
        return self.folder / "brokers" / str(broker_id)
