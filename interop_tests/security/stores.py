"""Stores for TLS listeners and clients in every format, from one authority that a test creates, and the settings that
name them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from interop_tests.harness.kafka_jars import require_program
from kafkacompat._tests.certificates import Authority, Identity

PASSWORD = "changeit"
FORMS = ("PEM", "PKCS12", "JKS")
ALICE = x509.Name(
    [
        x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example, Inc."),
        x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, 'Ops=1 "a"+b<>#'),
        x509.NameAttribute(NameOID.EMAIL_ADDRESS, "alice@example.com"),
        x509.NameAttribute(NameOID.COMMON_NAME, "älice "),
    ]
)
ALICE_NAME = (
    "CN=älice\\ ,1.2.840.113549.1.9.1=#1611616c696365406578616d706c652e636f6d,"
    'OU=Ops\\=1 \\"a\\"\\+b\\<\\>\\#,O=Example\\, Inc.,C=DE'
)
"""The principal name in Kafka's form."""


class Stores:
    """The files of one authority in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = Authority()
        self.ca_pem = folder / "ca.pem"
        self.ca_pem.write_text(self.authority.pem())

    def keystore(self, name: str, identity: Identity, form: str = "PEM") -> Path:
        path = self.folder / f"{name}.{form.lower()}"
        if form == "PEM":
            path.write_text(identity.pem())
            return path
        path.write_bytes(identity.pkcs12(PASSWORD))
        return self._as_jks(path) if form == "JKS" else path

    def truststore(self, form: str = "PEM") -> Path:
        if form == "PEM":
            return self.ca_pem
        path = self.folder / f"trust.{form.lower()}"
        path.unlink(missing_ok=True)
        certificate = self.folder / "ca.der"
        certificate.write_bytes(self.authority.certificate.public_bytes(Encoding.DER))
        arguments = (
            "-importcert",
            "-noprompt",
            "-alias",
            "ca",
            "-file",
            str(certificate),
            "-keystore",
            str(path),
        )
        _keytool(*arguments, "-storetype", form, "-storepass", PASSWORD)
        return path

    def settings(
        self, identity: Identity | None, form: str = "PEM", name: str = "keys", prefix: str = ""
    ) -> dict[str, str]:
        """Settings of a listener or a client. Without an identity only the truststore."""
        found = {"ssl.truststore.type": form, "ssl.truststore.location": str(self.truststore(form))}
        if identity is not None:
            keys = self.keystore(name, identity, form)
            found |= {"ssl.keystore.type": form, "ssl.keystore.location": str(keys)}
        if form != "PEM":
            found["ssl.truststore.password"] = PASSWORD
            if identity is not None:
                found["ssl.keystore.password"] = PASSWORD
        return {prefix + key: value for key, value in found.items()}

    def _as_jks(self, source: Path) -> Path:
        """The store in keytool's own format, whatever the file name."""
        path = source.with_suffix(".keytools")
        path.unlink(missing_ok=True)
        arguments = ("-importkeystore", "-srckeystore", str(source), "-srcstorepass", PASSWORD)
        _keytool(*arguments, "-destkeystore", str(path), "-deststoretype", "JKS", "-deststorepass", PASSWORD)
        return path


def _keytool(*arguments: str) -> None:
    command = [require_program("keytool"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def with_listener(
    settings: dict[str, str], port: int, protocol: str = "SSL", name: str = "SAFE"
) -> dict[str, str]:
    """A broker's settings with one more listener."""
    added = f"{name}://127.0.0.1:{port}"
    protocols = f"{settings['listener.security.protocol.map']},{name}:{protocol}"
    return {
        "listeners": f"{settings['listeners']},{added}",
        "advertised.listeners": f"{settings['advertised.listeners']},{added}",
        "listener.security.protocol.map": protocols,
    }
