"""A broker with a SASL_SSL listener that takes every mechanism that is served, and what a client needs to get in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.ports import free_port
from interop_tests.security import sasl_talks
from interop_tests.security.sasl_talks import MODULES, make_user
from interop_tests.security.stores import Stores
from interop_tests.security.test_oauthbearer import AUDIENCE, ISSUER, PACKAGE, good
from kafkacompat._tests.tokens import private_key, public_entry, signed, write_jwks

USER, PASSWORD = sasl_talks.USER, sasl_talks.PASSWORD
MECHANISMS = (*sasl_talks.MECHANISMS, "OAUTHBEARER")


@dataclass(frozen=True)
class Secured:
    broker: BrokerProcess
    address: str
    """Of the SASL_SSL listener."""
    ca: Path
    """The authority's certificate, PEM."""

    def token(self) -> str:
        return signed(good())

    def java_options(self, mechanism: str) -> dict[str, str]:
        """The properties of a Java client."""
        module = {"PLAIN": "plain.PlainLoginModule"}.get(mechanism, "scram.ScramLoginModule")
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{MODULES}{module} required username="{USER}" password="{PASSWORD}";',
        }


@contextmanager
def secured(folder: Path, kind: str, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[Secured]:
    """`more`: settings of the broker."""
    stores = Stores(folder / "stores")
    broker = BrokerProcess(kind, folder / "broker")
    port = free_port()
    of = "listener.name.safe."
    bearer = f"{of}oauthbearer."
    url = write_jwks(folder / "keys.json", public_entry(private_key())).replace("file:///", "file:/")
    settings = sasl_talks.settings_of(broker, port)
    settings["listener.security.protocol.map"] = settings["listener.security.protocol.map"].replace(
        "SASL_PLAINTEXT", "SASL_SSL"
    )
    settings |= stores.settings(stores.authority.issue(), prefix=of) | {
        f"{of}sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{bearer}sasl.jaas.config": f"{PACKAGE}OAuthBearerLoginModule required;",
        f"{bearer}sasl.server.callback.handler.class": f"{PACKAGE}OAuthBearerValidatorCallbackHandler",
        f"{bearer}sasl.oauthbearer.jwks.endpoint.url": url,
        f"{of}sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{of}sasl.oauthbearer.expected.issuer": ISSUER,
    }
    broker.settings |= settings | dict(more)
    broker.jvm_options = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}",)
    try:
        broker.start()
        make_user(broker)
        yield Secured(broker, f"127.0.0.1:{port}", stores.ca_pem)
    finally:
        broker.kill()
