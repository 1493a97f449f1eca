"""What a client knows of the brokers of a cluster: where they are, which one coordinates a group, what to try again.

Pure: answers and the time in, decisions out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkacompat.addresses import split_host_and_port
from kafkacompat.failure import CommandFailed
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.wire.messages.find_coordinator_response import Coordinator
    from kafkacompat.wire.messages.metadata_response import MetadataResponseBroker

RETRY_BACKOFF_S, RETRY_BACKOFF_MAX_S = 0.1, 1.0
"""retry.backoff.ms and retry.backoff.max.ms of Kafka's clients."""
COORDINATOR_RETRIABLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""The coordinator is being created, loaded or moved. It is looked up again."""

ErrorCodes = frozenset(ErrorCode)
Address = tuple[str, int]


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise CommandFailed with the name of the error, unless the code is NONE."""
    if code != ErrorCode.NONE:
        raise CommandFailed(f"{what}: {error_name(code)}" + (f" ({message})" if message else ""))


def error_name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCodes else f"error {code}"


def bootstrap_address(text: str) -> Address:
    """Split 'host:port' into host and port."""
    found = split_host_and_port(text)
    if found is None:
        raise CommandFailed(
            f"--bootstrap (or --bootstrap-server) takes host:port[,host:port...], not {text!r}"
        )
    return found


class Brokers:
    """The addresses of a cluster's brokers, as far as they were told."""

    __slots__ = ("_addresses", "_bootstrap")

    def __init__(self, servers: str) -> None:
        """`servers`: 'host:port[,host:port...]'. Raises CommandFailed with the option for another text."""
        self._bootstrap = [bootstrap_address(each) for each in servers.split(",")]
        self._addresses: dict[int, Address] = {}

    @property
    def node_ids(self) -> list[int]:
        return sorted(self._addresses)

    def address_of(self, node_id: int) -> Address | None:
        """None: ask for metadata. If the broker is still unknown then, it is not alive."""
        return self._addresses.get(node_id)

    def candidates(self) -> list[Address]:
        """Where any broker may answer, in the order of trying. Brokers that were told come before the bootstrap servers."""
        return list(dict.fromkeys((*self._addresses.values(), *self._bootstrap)))

    def learn(self, brokers: Iterable[MetadataResponseBroker]) -> None:
        """Metadata names all live brokers."""
        self._addresses = {each.node_id: (each.host, each.port) for each in brokers}

    def learn_coordinator(self, found: Coordinator, group: str) -> int | None:
        """Return the coordinator's node id. None if there is none yet. Raises CommandFailed for another error."""
        if found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
            return None
        check(found.error_code, f"coordinator of group {group}", found.error_message)
        self._addresses[found.node_id] = found.host, found.port
        return found.node_id

    def forget(self) -> None:
        """A broker was not found. It may return at another address."""
        self._addresses.clear()


class Retries:
    """The pauses between tries. Each is twice as long as the last one, up to a bound."""

    __slots__ = ("_deadline_s", "_pause_s")

    def __init__(self, now_s: float, timeout_s: float) -> None:
        self._deadline_s = now_s + timeout_s
        self._pause_s = RETRY_BACKOFF_S

    def is_over(self, now_s: float) -> bool:
        """Whether the time limit is reached: a failure is final."""
        return now_s >= self._deadline_s

    def next_pause_s(self) -> float:
        pause_s = self._pause_s
        self._pause_s = min(pause_s * 2, RETRY_BACKOFF_MAX_S)
        return pause_s
