"""A Kafka that shows itself as an older release does: the versions of its APIs, its features, the defaults of its settings.

The table has what each release says of itself: `python -m interop_tests.releases` writes it. No version that this package does
not serve is shown, so what an older release served besides is refused: requests that Kafka 4.0 has removed, and APIs between
brokers with ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.api.registry import BROKER_APIS
from kafkacompat.api.route import Route
from kafkacompat.deferred import Deferred
from kafkacompat.ports import FileSlice
from kafkacompat.ports.dispatcher import ANONYMOUS, CloseConnection, Pending
from kafkacompat.wire.codec import decode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.headers import request_start
from kafkacompat.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from kafkacompat.wire.tables import ApiKey

if TYPE_CHECKING:
    from kafkacompat.ports.dispatcher import ConnectionInfo, Dispatcher, Reply

METADATA_VERSION = "metadata.version"
PROTOCOLS = "group.coordinator.rebalance.protocols"
HEADER = 8
"""Bytes of a reply before its body: size and correlation id. A response of ApiVersions has the oldest header."""
OLDEST_METADATA_VERSION = 7
"""What a node has that shows itself as a release with ZooKeeper, which has no features."""
REFUSAL_NAMES_VERSIONS = "2.4"
"""From this release on, an ApiVersions of an unknown version is told which ones there are (KIP-511)."""
NO_EPOCH = -1


class Release(NamedTuple):
    """What brokers of a release say of themselves."""

    name: str
    apis: dict[int, tuple[int, int]]
    """Lowest and highest version by key, of what clients may ask."""
    features: dict[str, tuple[int, int]]
    """Lowest and highest level by name. Empty for a release with ZooKeeper."""
    defaults: dict[str, str]
    """Of the settings whose default clients notice, by name."""

    @property
    def metadata_version(self) -> int:
        """The level that a node formats which shows itself as this release."""
        return max(self.features.get(METADATA_VERSION, (0, 0))[1], OLDEST_METADATA_VERSION)

    def serves(self, key: int, version: int) -> bool:
        lowest, highest = self.apis.get(key, (0, -1))
        return lowest <= version <= highest


def releases() -> tuple[str, ...]:
    """Their names, such as 3.9, from the oldest on."""
    return tuple(_table())


def release(version: str) -> Release:
    """The release of a version such as 3.9 or 3.9.2. Raises ValueError."""
    found = _table().get(".".join(version.split(".")[:2]))
    if found is None:
        first, *_, last = releases()
        raise ValueError(f"version={version!r} is no release from {first} to {last}: {', '.join(releases())}")
    return found


@cache
def _table() -> Mapping[str, Release]:
    text = files("kafkacompat.testing").joinpath("releases.tsv").read_text()
    (_, _, *names), *rows = (line.split("\t") for line in text.splitlines())
    found = {name: Release(name, {}, {}, {PROTOCOLS: "classic"}) for name in names}
    for kind, name, *cells in rows:
        for each, cell in zip(found.values(), cells, strict=True):
            if cell == "-":
                continue
            if kind == "default":
                each.defaults[name] = cell
                continue
            lowest, highest = map(int, cell.split("-"))
            if kind == "api":
                each.apis[int(name)] = lowest, highest
            else:
                each.features[name] = lowest, highest
    return found


class ReleaseDispatcher:
    """ports.dispatcher.Dispatcher, around a node's own."""

    def __init__(self, inner: Dispatcher, release: Release, listeners: Collection[str]) -> None:
        """`listeners`: the names of those that clients use, and no node."""
        self._inner = inner
        self._release = release
        self._listeners = listeners
        self._with_tokens: set[int] = set()
        """Connections whose frames are SASL tokens until the client is authenticated."""

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Reply | Pending | None:
        if connection.listener_name not in self._listeners:
            return self._inner.dispatch(connection, frame)
        is_unknown = connection.listener_is_sasl and connection.principal == ANONYMOUS
        if is_unknown and connection.connection_id in self._with_tokens:
            return self._inner.dispatch(connection, frame)
        key, version, correlation_id = request_start(frame)
        if not self._release.serves(key, version):
            if key == ApiKey.API_VERSIONS:
                return _written(self._refusal(), 0, correlation_id)
            raise CloseConnection(f"API {key} version {version} is not served by Kafka {self._release.name}")
        if is_unknown and (key, version) == (ApiKey.SASL_HANDSHAKE, 0):
            self._with_tokens.add(connection.connection_id)
        answer = self._inner.dispatch(connection, frame)
        if key != ApiKey.API_VERSIONS or answer is None:
            return answer
        if not isinstance(answer, Pending):
            return self._shown(answer, version, correlation_id)
        shown: Deferred[Reply | None] = Deferred()

        def show(done: Deferred[Reply | None]) -> None:
            try:
                reply = done.result()
                shown.resolve(None if reply is None else self._shown(reply, version, correlation_id))
            except Exception as error:
                shown.fail(error)

        answer.reply.on_done(show)
        return Pending(shown, answer.blocks)

    def connection_closed(self, connection: ConnectionInfo) -> None:
        self._with_tokens.discard(connection.connection_id)
        self._inner.connection_closed(connection)

    def _refusal(self) -> ApiVersionsResponse:
        lowest, highest = self._release.apis[ApiKey.API_VERSIONS]
        own = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=lowest, max_version=highest)
        is_told = releases().index(self._release.name) >= releases().index(REFUSAL_NAMES_VERSIONS)
        return ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own] if is_told else []
        )

    def _shown(self, reply: Reply, version: int, correlation_id: int) -> Reply:
        """The node's answer to ApiVersions, as far as the release has it too."""
        body = memoryview(b"".join(bytes(each) for each in reply if not isinstance(each, FileSlice)))[HEADER:]
        answer = decode(ApiVersionsResponse, version, body)
        features = self._release.features
        shown: list[ApiVersion] = []
        for each in answer.api_keys:
            lowest, highest = self._release.apis.get(each.api_key, (0, -1))
            lowest, highest = max(lowest, each.min_version), min(highest, each.max_version)
            if lowest <= highest:
                if each.api_key == ApiKey.PRODUCE:
                    lowest = each.min_version  # releases since 4.0 tell 0, and do not serve it
                shown.append(ApiVersion(api_key=each.api_key, min_version=lowest, max_version=highest))
        answer.api_keys = shown
        answer.supported_features = [each for each in answer.supported_features if each.name in features]
        for supported in answer.supported_features:
            low, high = features[supported.name]
            supported.min_version, supported.max_version = low, min(high, supported.max_version)
        answer.finalized_features = [each for each in answer.finalized_features if each.name in features]
        if not features:
            answer.finalized_features_epoch = NO_EPOCH
        return _written(answer, version, correlation_id)


def _written(answer: ApiVersionsResponse, version: int, correlation_id: int) -> Reply:
    return Route(ApiKey.API_VERSIONS, version, BROKER_APIS).reply(correlation_id, answer)
