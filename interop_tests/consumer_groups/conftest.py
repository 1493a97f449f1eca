"""The JVM of members on Kafka's own consumer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interop_tests.consumer_groups.members import JavaMembers


@pytest.fixture(scope="session")
def java_members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaMembers]:
    """One JVM for all members that nobody kills."""
    members = JavaMembers(tmp_path_factory.mktemp("java-members") / "members.log")
    yield members
    members.kill()
