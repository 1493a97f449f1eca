"""`kafkacompat cluster --secure` before any process runs: the files, their modes, and what stands in them."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kafkacompat._tests.test_cli_cluster import IDS
from kafkacompat.cli.cluster_files import BROKER, ClusterFiles, Layout, new_layout, new_node, write_whole
from kafkacompat.cli.cluster_security import ClusterSecurity
from kafkacompat.cli.node_making import make_node
from kafkacompat.config import ServerConfig
from kafkacompat.config.properties import load_properties
from kafkacompat.failure import CommandFailed
from kafkacompat.security.authority import AuthorityError, issue, new_authority
from kafkacompat.security.client_settings import (
    connection_of_client,
    security_to_brokers,
    security_to_controllers,
)
from kafkacompat.security.scram import SCRAM_BY_NAME

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    """A umask that takes nothing away: a mode of 0600 is then the command's own doing."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def files(tmp_path: Path) -> ClusterFiles:
    return ClusterFiles(tmp_path / "cluster")


def made(files: ClusterFiles, size: int = 1) -> Layout:
    layout = new_layout(size, 9092, IDS[8], IDS, is_secure=True)
    files.save(layout)
    ClusterSecurity(files).make()
    for node in layout.nodes:
        layout = make_node(files, layout, node, is_first_set=True)
    return layout


def test_every_file_with_a_key_or_a_password_is_private(files: ClusterFiles) -> None:
    made(files, 2)
    passwords = json.loads((files.root / "security" / "passwords.json").read_text())
    secrets = [*passwords.values(), "PRIVATE KEY"]
    holding = {
        path: path.stat().st_mode & 0o777
        for path in files.root.rglob("*")
        if path.is_file() and any(secret.encode() in path.read_bytes() for secret in secrets)
    }
    assert set(holding.values()) == {0o600}
    assert {path.name for path in holding} == {
        "ca.key", "passwords.json", "admin.properties", "node.pem", "server.properties",
    }  # fmt: skip
    assert (files.root / "security").stat().st_mode & 0o777 == 0o700


def test_no_other_user_reads_the_keys_of_users_in_the_first_snapshot_or_a_nodes_folder(
    files: ClusterFiles,
) -> None:
    layout = made(files, 2)
    for node in layout.nodes:
        folder = files.folder(node.node_id)
        assert folder.stat().st_mode & 0o777 == 0o700
        (checkpoint,) = (folder / "data").rglob("*.checkpoint")
        assert b"admin" in checkpoint.read_bytes()
        assert checkpoint.stat().st_mode & 0o777 == 0o400
        assert checkpoint.parent.stat().st_mode & 0o777 == 0o700


def test_a_file_whose_overrides_may_hold_a_password_is_private_in_any_cluster(files: ClusterFiles) -> None:
    layout = new_layout(1, 9092, IDS[8], IDS, overrides={"ssl.key.password": "sesame"})
    files.save(layout)
    files.write_settings(layout, layout.nodes[0], {})
    for path in (files.layout_path, files.settings_path(1)):
        assert "sesame" in path.read_text()
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_private_file_is_private_from_its_first_byte_on(tmp_path: Path) -> None:
    """Also where a killed command has left a file of another mode behind."""
    path = tmp_path / "ca.key"
    (tmp_path / "ca.key.new").write_text("left behind")
    write_whole(path, "secret", is_private=True)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    write_whole(path, "another", is_private=True)
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("another", 0o640)


def test_the_settings_make_a_secured_node(files: ClusterFiles) -> None:
    layout = made(files, 4)
    for node in layout.nodes:
        path = files.settings_path(node.node_id)
        config = ServerConfig.from_properties(load_properties(str(path)))
        assert not config.unknown
        assert set(config.security_protocols().values()) == {"SASL_SSL"}
        assert all(each.listener_name in ("SASL_SSL", "CONTROLLER") for each in config.listeners())
        assert "StandardAuthorizer" in (config.get_string("authorizer.class.name") or "")
        security_to_brokers(config)
        security_to_controllers(config)
        if not node.is_controller:
            assert "user_node=" not in path.read_text()


def test_users_are_metadata_and_their_passwords_are_not(files: ClusterFiles) -> None:
    made(files)
    security = ClusterSecurity(files)
    passwords = json.loads((files.root / "security" / "passwords.json").read_text())
    users = {user.name: user for user in security.users()}
    assert set(users) == {"node", "admin"}
    mechanism = SCRAM_BY_NAME["SCRAM-SHA-512"]
    for name, user in users.items():
        salted = mechanism.salted_password(passwords[name], user.salt, user.iterations)
        assert mechanism.credential(user.salt, salted, user.iterations).stored_key == user.stored_key
    data = b"".join(path.read_bytes() for path in (files.folder(1) / "data").rglob("*") if path.is_file())
    assert b"admin" in data
    assert not any(password.encode() in data for password in passwords.values())


def test_the_client_file_needs_no_other_file(files: ClusterFiles, tmp_path: Path) -> None:
    made(files)
    moved = tmp_path / "elsewhere.properties"
    files.client_path.rename(moved)
    (files.root / "security" / "ca.pem").unlink()
    connection = connection_of_client(load_properties(str(moved)))
    assert (connection.protocol, connection.mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    context = connection.security().context
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_files_of_a_secure_cluster_are_kept_when_it_is_made_again(files: ClusterFiles) -> None:
    """A first start that was killed goes on with the users that the formatted nodes know."""
    made(files)
    before = {path: path.read_bytes() for path in files.root.rglob("*") if path.is_file()}
    ClusterSecurity(files).make()
    assert {path: path.read_bytes() for path in files.root.rglob("*") if path.is_file()} == before


def test_a_later_node_gets_a_certificate_of_the_same_authority(files: ClusterFiles) -> None:
    layout = made(files)
    node = new_node(layout, 2, BROKER, IDS[1], None)
    make_node(files, layout.with_node(node), node, is_first_set=False)
    assert (files.folder(2) / "node.pem").stat().st_mode & 0o777 == 0o600
    layout = replace(layout, is_secure=False)
    files.write_settings(layout, layout.node(1), {})
    assert "SASL_SSL" not in files.settings_path(1).read_text()


@pytest.mark.parametrize("name", ["passwords.json", "ca.key", "ca.pem"])
def test_damage_is_named_without_a_secret(files: ClusterFiles, name: str) -> None:
    layout = made(files)
    path = files.root / "security" / name
    path.write_text('{"node": 1, damaged-s3cret')
    node = new_node(layout, 2, BROKER, IDS[1], None)
    with pytest.raises(CommandFailed) as failure:
        make_node(files, layout.with_node(node), node, is_first_set=False)
    assert str(files.root / "security") in str(failure.value)
    assert "s3cret" not in str(failure.value)


def test_a_key_of_another_authority_issues_nothing() -> None:
    _, certificate = new_authority("one", NOW)
    key, _ = new_authority("other", NOW)
    with pytest.raises(AuthorityError, match="not the one of its certificate"):
        issue(key, certificate, "node-1", ["localhost"], NOW)


def test_a_strict_verifier_believes_a_nodes_certificate(tmp_path: Path) -> None:
    key, certificate = new_authority("one", datetime.now(UTC))
    store = tmp_path / "node.pem"
    store.write_text(issue(key, certificate, "node-1", ["localhost", "127.0.0.1"], datetime.now(UTC)))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(store)
    client = ssl.create_default_context(cadata=certificate)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(ours, theirs, server_hostname="127.0.0.1"),
        server.wrap_bio(theirs, ours, server_side=True),
    ]
    for _ in range(4):
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue
    assert not ends
