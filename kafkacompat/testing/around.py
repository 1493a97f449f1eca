"""What stands around the ports of a node's network: everything passes, but for what a user of this module changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkacompat.config import EndPoint
    from kafkacompat.deferred import Deferred
    from kafkacompat.ports import Channel, Channels, Network, ProbeResult, SocketServer

Address = tuple[str, int]
"""Host and port of another node."""
Probe = Callable[[Address, Callable[[], "Deferred[ProbeResult]"]], "Deferred[ProbeResult]"]
"""Called with the address and with what probes it."""


class PassedNetwork:
    """ports.Network."""

    def __init__(self, inner: Network) -> None:
        self._inner = inner

    @property
    def channels(self) -> Channels:
        return self._inner.channels

    @property
    def controller_channels(self) -> Channels:
        return self._inner.controller_channels

    def socket_server(self) -> SocketServer:
        return self._inner.socket_server()

    def own_name(self, endpoints: Iterable[EndPoint]) -> Deferred[str]:
        return self._inner.own_name(endpoints)

    def resolve(self, host: str) -> Deferred[str | None]:
        return self._inner.resolve(host)


class PassedChannel:
    """ports.Channel, to the node at an address."""

    def __init__(self, inner: Channel, address: Address) -> None:
        self._inner = inner
        self._address = address

    @property
    def on_refused(self) -> Callable[[], None] | None:
        return self._inner.on_refused

    @on_refused.setter
    def on_refused(self, callback: Callable[[], None] | None) -> None:
        self._inner.on_refused = callback

    @property
    def is_closed(self) -> bool:
        return self._inner.is_closed

    def peer_versions(self, api_key: int) -> tuple[int, int] | None:
        return self._inner.peer_versions(api_key)

    def request(self, message: Any, timeout_ms: int, *, max_version: int | None = None) -> Deferred[Any]:
        return self._inner.request(message, timeout_ms, max_version=max_version)

    def close(self) -> None:
        self._inner.close()


class AroundChannels(PassedNetwork):
    """A network with something around each of its channels."""

    def __init__(self, inner: Network, wrap: Callable[[Channel, Address], Channel], probe: Probe) -> None:
        super().__init__(inner)
        self._channels = _Channels(inner.channels, wrap, probe)
        self._controller_channels = _Channels(inner.controller_channels, wrap, probe)

    @property
    def channels(self) -> Channels:
        return self._channels

    @property
    def controller_channels(self) -> Channels:
        return self._controller_channels


class _Channels:
    """ports.Channels."""

    def __init__(self, inner: Channels, wrap: Callable[[Channel, Address], Channel], probe: Probe) -> None:
        self._inner = inner
        self._wrap = wrap
        self._probe = probe
        self._wrapped: dict[Channel, Channel] = {}

    def get(self, host: str, port: int, purpose: str, *, client_id: str | None = None) -> Channel:
        inner = self._inner.get(host, port, purpose, client_id=client_id)
        wrapped = self._wrapped.get(inner)
        if wrapped is None:
            self._wrapped = {each: one for each, one in self._wrapped.items() if not each.is_closed}
            wrapped = self._wrapped[inner] = self._wrap(inner, (host, port))
        return wrapped

    def probe(self, host: str, port: int, timeout_ms: int) -> Deferred[ProbeResult]:
        return self._probe((host, port), lambda: self._inner.probe(host, port, timeout_ms))

    def close_all(self) -> None:
        self._inner.close_all()
