"""Channels on which the test gives every answer."""

from __future__ import annotations

from typing import Any

from kafkacompat.deferred import Deferred


class HandChannel:
    def __init__(
        self, key: tuple[str, int, str], sent: list[Sent], versions: dict[int, tuple[int, int]]
    ) -> None:
        self.key = key
        self._sent = sent
        self._versions = versions

    def peer_versions(self, api_key: int) -> tuple[int, int] | None:
        return self._versions.get(api_key)

    def request(self, message: Any, timeout_ms: int) -> Deferred[Any]:
        sent = Sent(self.key, message, timeout_ms)
        self._sent.append(sent)
        return sent.answer


class Sent:
    """One request on a channel. The test resolves `answer`."""

    def __init__(self, key: tuple[str, int, str], message: Any, timeout_ms: int) -> None:
        self.key = key
        self.message = message
        self.timeout_ms = timeout_ms
        self.answer: Deferred[Any] = Deferred()


class HandChannels:
    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.versions: dict[int, tuple[int, int]] = {}
        """What all peers support, once they are connected."""

    def get(self, host: str, port: int, purpose: str) -> HandChannel:
        return HandChannel((host, port, purpose), self.sent, self.versions)
