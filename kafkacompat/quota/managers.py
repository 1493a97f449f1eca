"""All client quotas of a node (QuotaManagers): produce, fetch, request and controller mutation.

Pure. Settings: quota.window.num and .size.seconds, controller.quota.window.num and .size.seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Protocol

from kafkacompat.quota.client_quotas import ClientQuotas, Entity
from kafkacompat.quota.rate import Average, Rate, TokenBucket

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"


class Quota(Protocol):
    """A record of the metadata."""

    value: float


class QuotaManagers:
    """The quotas by kind. `is_active` is False if there are none at all."""

    def __init__(
        self,
        windows: int = 11,
        window_ms: int = 1000,
        controller_windows: int = 11,
        controller_window_ms: int = 1000,
        *,
        of_controller: bool = False,
    ) -> None:
        new_rate = partial(Rate, windows, window_ms)
        new_average = partial(Average, windows, window_ms)
        self.is_active = False
        self.change = object()
        """Another one after each change of what applies to a client. Measurements may be kept until then."""
        self.produce: ClientQuotas[Rate] = ClientQuotas(new_rate, new_average, self._changed)
        self.fetch: ClientQuotas[Rate] = ClientQuotas(new_rate, new_average, self._changed)
        self.request: ClientQuotas[Rate] = ClientQuotas(new_rate, new_average, self._changed)
        self.mutation: ClientQuotas[TokenBucket] = ClientQuotas(
            partial(TokenBucket, controller_windows, controller_window_ms),
            partial(Average, controller_windows, controller_window_ms),
            self._changed,
        )
        self.told: ClientQuotas[Rate] | ClientQuotas[TokenBucket] = (
            self.mutation if of_controller else self.request
        )
        """The kind for which connections count that are muted because of a controller's throttle time. On a broker, which
        passes that time on, it is the request quota, as in Kafka."""
        self.request_throttle_max_ms = window_ms
        """Request throttles are at most one window long, so that clients do not run into timeouts."""
        self.fetch_seconds = (windows - 1) * window_ms / 1000
        """A fetch may return the bytes of so many seconds of its quota."""
        self._taken: Mapping[tuple[Entity, str], Quota] | None = None

    def take(self, quotas: Mapping[tuple[Entity, str], Quota]) -> None:
        """Apply the quotas of an image, by entity and key. Costs nothing if they are those of the last image."""
        if quotas is self._taken or (not quotas and not self.is_active):
            return
        self._taken = quotas
        by_key: dict[str, dict[Entity, float]] = {}
        for (entity, key), record in quotas.items():
            # NaN limits nothing. Neither does a value that no controller accepts.
            by_key.setdefault(key, {})[entity] = record.value if record.value > 0 else inf
        kinds: tuple[tuple[str, ClientQuotas[Rate] | ClientQuotas[TokenBucket]], ...] = (
            (PRODUCER_BYTE_RATE, self.produce),
            (CONSUMER_BYTE_RATE, self.fetch),
            (REQUEST_PERCENTAGE, self.request),
            (CONTROLLER_MUTATION_RATE, self.mutation),
        )
        for key, kind in kinds:
            kind.take(by_key.get(key, {}))
        self.is_active = any(kind.is_active for _, kind in kinds)

    def _changed(self) -> None:
        self.change = object()
