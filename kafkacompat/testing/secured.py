"""The security of a test's Kafka: users, certificates, the settings of its nodes, and those of clients.

Only the listener of clients is secured. The nodes talk to each other on another one, on loopback too.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kafkacompat.security.jaas import PLAIN_LOGIN_MODULE, SCRAM_LOGIN_MODULE
from kafkacompat.security.scram import NONCE_BITS, SCRAM_MECHANISMS, nonce_text
from kafkacompat.wire.messages.user_scram_credential_record import UserScramCredentialRecord

if TYPE_CHECKING:
    from kafkacompat.ports import Random

PLAINTEXT = "PLAINTEXT"
PROTOCOLS = ("SASL_SSL", "SASL_PLAINTEXT", "SSL")
USERS = {"client": "client-secret"}
PLAIN = "PLAIN"
HOSTS = ("localhost", "127.0.0.1", "::1")
NAME_OF_CERTIFICATE = "RULE:^CN=([^,]+).*$/$1/,DEFAULT"
"""The principal of a client's certificate is its user."""


class Security:
    """What clients need beside the address. Of a Kafka that is not secured, nothing."""

    def __init__(self, protocol: str = PLAINTEXT, users: Mapping[str, str] | None = None) -> None:
        """`users`: passwords by name."""
        self.protocol = protocol
        self.users = dict(USERS if users is None else users)
        self._authority = _new_authority() if self._has_tls else ("", "")
        self._stores: dict[str, str] = {}

    @property
    def is_on(self) -> bool:
        return self.protocol != PLAINTEXT

    @property
    def _has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def _has_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def ca_pem(self) -> str:
        """The certificate of the authority that has issued all others."""
        return self._authority[1]

    def certificate_pem(self, user: str | None = None) -> str:
        """A user's key and certificate, for a listener that asks for one (SSL)."""
        return self._issued(self._user(user))

    def ssl_context(self, user: str | None = None) -> ssl.SSLContext:
        """It trusts this Kafka, and has the user's certificate where clients show one."""
        context = ssl.create_default_context(cadata=self.ca_pem)
        if not self._has_sasl:
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # Python reads keys from files only
                file.write(self.certificate_pem(user))
                file.flush()
                context.load_cert_chain(file.name)
        return context

    def librdkafka(self, user: str | None = None, *, mechanism: str = PLAIN) -> dict[str, str]:
        """For confluent-kafka and other clients on librdkafka. The first user by default."""
        found = {"security.protocol": self.protocol}
        if self._has_tls:
            found["ssl.ca.pem"] = self.ca_pem
            if not self._has_sasl:
                found["ssl.key.pem"], found["ssl.certificate.pem"] = _parts(self.certificate_pem(user))
        if self._has_sasl:
            name = self._user(user)
            found |= {"sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": self.users[name]}
        return found

    def python(self, user: str | None = None, *, mechanism: str = PLAIN) -> dict[str, Any]:
        """For kafka-python and aiokafka, as arguments."""
        found: dict[str, Any] = {"security_protocol": self.protocol}
        if self._has_tls:
            found["ssl_context"] = self.ssl_context(user)
        if self._has_sasl:
            name = self._user(user)
            found |= {
                "sasl_mechanism": mechanism,
                "sasl_plain_username": name,
                "sasl_plain_password": self.users[name],
            }
        return found

    def java(self, user: str | None = None, *, mechanism: str = PLAIN) -> dict[str, str]:
        """Kafka's own settings of clients."""
        found = {"security.protocol": self.protocol}
        if self._has_tls:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.ca_pem}
            if not self._has_sasl:
                key, chain = _parts(self.certificate_pem(user))
                found |= {
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.key": key,
                    "ssl.keystore.certificate.chain": chain,
                }
        if self._has_sasl:
            name = self._user(user)
            module = PLAIN_LOGIN_MODULE if mechanism == PLAIN else SCRAM_LOGIN_MODULE
            login = f"username={_quoted(name)} password={_quoted(self.users[name])}"
            found |= {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} required {login};"}
        return found

    def _user(self, user: str | None) -> str:
        name = next(iter(self.users)) if user is None else user
        if name not in self.users:
            raise LookupError(f"there is no user {name!r}; those that there are: {', '.join(self.users)}")
        return name

    def _issued(self, name: str) -> str:
        from kafkacompat.security.authority import issue

        if name not in self._stores:
            self._stores[name] = issue(*self._authority, name, HOSTS, datetime.now(UTC))
        return self._stores[name]

    # For the nodes.

    def settings(self, *, has_scram: bool) -> dict[str, str]:
        found: dict[str, str] = {}
        if self._has_tls:
            key, chain = _parts(self._issued("localhost"))
            found |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": key,
                "ssl.keystore.certificate.chain": chain,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": self.ca_pem,
                "ssl.client.auth": "none" if self._has_sasl else "required",
                "ssl.principal.mapping.rules": NAME_OF_CERTIFICATE,
            }
        if self._has_sasl:
            listener = f"listener.name.{self.protocol.lower()}"
            users = " ".join(f"user_{name}={_quoted(password)}" for name, password in self.users.items())
            mechanisms = [each.name for each in SCRAM_MECHANISMS] if has_scram else []
            found["sasl.enabled.mechanisms"] = ",".join([PLAIN, *mechanisms])
            found[f"{listener}.plain.sasl.jaas.config"] = f"{PLAIN_LOGIN_MODULE} required {users};"
            for each in mechanisms:
                found[f"{listener}.{each.lower()}.sasl.jaas.config"] = f"{SCRAM_LOGIN_MODULE} required;"
        return found

    def scram_users(self, random: Random) -> list[UserScramCredentialRecord]:
        """What the metadata begins with."""
        found: list[UserScramCredentialRecord] = []
        for name, password in self.users.items() if self._has_sasl else ():
            for mechanism in SCRAM_MECHANISMS:
                salt = nonce_text(random.randrange(1 << NONCE_BITS)).encode()
                iterations = mechanism.min_iterations
                salted = mechanism.salted_password(password, salt, iterations)
                kept = mechanism.credential(salt, salted, iterations)
                found.append(
                    UserScramCredentialRecord(
                        name=name,
                        mechanism=mechanism.type,
                        salt=kept.salt,
                        stored_key=kept.stored_key,
                        server_key=kept.server_key,
                        iterations=kept.iterations,
                    )
                )
        return found


def security_of(secure: bool | str | Security, users: Mapping[str, str] | None) -> Security:
    """What `secure=` means. Raises ValueError."""
    if isinstance(secure, Security):
        return secure
    protocol = {True: PROTOCOLS[0], False: PLAINTEXT}[secure] if isinstance(secure, bool) else secure
    if protocol not in (*PROTOCOLS, PLAINTEXT):
        raise ValueError(f"secure={secure!r} is none of True, {', '.join(PROTOCOLS)}")
    if users is not None:
        if protocol == PLAINTEXT:
            raise ValueError("users= needs secure=")
        if not users:
            raise ValueError("users= names no user")
        for name in users:
            if not name or not all(each.isascii() and (each.isalnum() or each in "._-") for each in name):
                raise ValueError(f"user {name!r} has other characters than letters, digits and ._-")
    return Security(protocol, users)


def _new_authority() -> tuple[str, str]:
    """Key and certificate."""
    from kafkacompat.security.authority import new_authority  # what it imports takes long

    return new_authority("kafkacompat.testing", datetime.now(UTC))


def _parts(store: str) -> tuple[str, str]:
    """Key and certificates."""
    begin = "-----BEGIN CERTIFICATE-----"
    key, _, rest = store.partition(begin)
    return key, begin + rest


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
