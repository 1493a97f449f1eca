"""`kafkacompat cluster --secure`: the certificate authority, certificates, users and settings of a secured local
cluster.

Clients and brokers use SCRAM-SHA-512. Its users are in the metadata from the first start on. Controllers use PLAIN
between each other, because a controller that starts has no metadata yet. Files that hold a key or a password have mode
0600, and the nodes' folders 0700.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kafkacompat.cli.cluster_files import HOST, ClusterFiles, Node, property_line, write_whole
from kafkacompat.cli.format_options import parse_scram_credential
from kafkacompat.config.server import AUTHORIZER_CLASS_NAME
from kafkacompat.failure import CommandFailed
from kafkacompat.security.authorizer import STANDARD_AUTHORIZER
from kafkacompat.security.jaas import PLAIN_LOGIN_MODULE, SCRAM_LOGIN_MODULE

if TYPE_CHECKING:
    from kafkacompat.wire.messages.user_scram_credential_record import UserScramCredentialRecord

NODES, ADMIN = "node", "admin"
"""The user of the nodes, and that of the administrator. Both are super users."""
MECHANISM = "SCRAM-SHA-512"
CONTROLLERS_MECHANISM = "PLAIN"
HOSTS = ("localhost", HOST)
PASSWORD_BYTES = 32
AUTHORITY_NAME = "kafkacompat cluster authority"
SCRAM_MODULE = f"{SCRAM_LOGIN_MODULE} required"
PLAIN_MODULE = f"{PLAIN_LOGIN_MODULE} required"


class ClusterSecurity:
    """The security files of the cluster in DIR: DIR/security, DIR/admin.properties and DIR/node-N/node.pem."""

    def __init__(self, files: ClusterFiles) -> None:
        self._files = files
        folder = files.root / "security"
        self._folder = folder
        self._key_path, self._certificate_path = folder / "ca.key", folder / "ca.pem"
        self._passwords_path = folder / "passwords.json"

    def make(self) -> None:
        """Create the authority, the passwords and the client file. Existing files are kept, so that a start that was
        killed can be repeated. Raises CommandFailed if the disk fails."""
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise CommandFailed(f"cannot create {self._folder}: {error.strerror}") from error
        if not self._certificate_path.exists():
            from kafkacompat.security.authority import new_authority

            key, certificate = new_authority(AUTHORITY_NAME, datetime.now(UTC))
            write_whole(self._key_path, key, is_private=True)
            write_whole(self._certificate_path, certificate)
        if not self._passwords_path.exists():
            made = {user: secrets.token_urlsafe(PASSWORD_BYTES) for user in (NODES, ADMIN)}
            write_whole(self._passwords_path, json.dumps(made, indent=2) + "\n", is_private=True)
        if not self._files.client_path.exists():
            text = "".join(property_line(name, value) for name, value in self._client_settings().items())
            write_whole(self._files.client_path, text, is_private=True)

    def users(self) -> list[UserScramCredentialRecord]:
        """Return the users with which the cluster's metadata begins."""
        return [
            parse_scram_credential(f"{MECHANISM}=[name={user},password={password}]")
            for user, password in self._passwords().items()
        ]

    def secure_node(self, node: Node) -> dict[str, str]:
        """Issue the node's certificate and return the security settings of its server.properties. Raises CommandFailed."""
        from kafkacompat.security.authority import AuthorityError, issue

        name = f"{NODES}-{node.node_id}"
        try:
            key, authority = _read(self._key_path), _read(self._certificate_path)
            store = issue(key, authority, name, HOSTS, datetime.now(UTC))
        except AuthorityError as error:
            raise CommandFailed(f"{self._folder}: {error}") from error
        path = self._files.make_folder(node.node_id, is_private=True) / "node.pem"
        write_whole(path, store, is_private=True)
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(path),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._certificate_path),
            **_sasl_settings(self._passwords()[NODES], node.is_controller),
            AUTHORIZER_CLASS_NAME: STANDARD_AUTHORIZER,
            "super.users": f"User:{NODES};User:{ADMIN}",
        }

    def _client_settings(self) -> dict[str, str]:
        """The file contains the authority's certificate itself, so that a copy of this file alone is enough on other machines."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": _read(self._certificate_path),
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": _login(SCRAM_MODULE, ADMIN, self._passwords()[ADMIN]),
        }

    def _passwords(self) -> Mapping[str, str]:
        try:
            read = json.loads(_read(self._passwords_path))
            return {user: str(read[user]) for user in (NODES, ADMIN)}
        except (ValueError, TypeError, KeyError) as error:
            # The original exception may quote the file, which has passwords.
            raise CommandFailed(f"{self._passwords_path} cannot be read: {type(error).__name__}") from None


def _sasl_settings(password: str, is_controller: bool) -> dict[str, str]:
    brokers = "listener.name.sasl_ssl."
    controllers = "listener.name.controller."
    plain = _login(PLAIN_MODULE, NODES, password)
    settings = {
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        "sasl.mechanism.controller.protocol": CONTROLLERS_MECHANISM,
        f"{brokers}sasl.enabled.mechanisms": MECHANISM,
        f"{brokers}{MECHANISM.lower()}.sasl.jaas.config": _login(SCRAM_MODULE, NODES, password),
    }
    if is_controller:
        # Controllers also accept SCRAM, because tools that connect to controllers use the client file too.
        settings[f"{controllers}sasl.enabled.mechanisms"] = f"{CONTROLLERS_MECHANISM},{MECHANISM}"
        settings[f"{controllers}{MECHANISM.lower()}.sasl.jaas.config"] = f"{SCRAM_MODULE};"
        plain = plain.removesuffix(";") + f' user_{NODES}="{password}";'
    settings[f"{controllers}{CONTROLLERS_MECHANISM.lower()}.sasl.jaas.config"] = plain
    return settings


def _login(module: str, user: str, password: str) -> str:
    return f'{module} username="{user}" password="{password}";'


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from error
