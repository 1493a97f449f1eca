"""A node's client quotas, made from its settings, and the quotas of its socket servers, taken from the metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkacompat.quota.client_quotas import Entity, Quota, QuotaManagers
from kafkacompat.quota.connection_rates import CONNECTION_CREATION_RATE, UNLIMITED

if TYPE_CHECKING:
    from kafkacompat.config import ServerConfig


def quota_managers(config: ServerConfig, *, of_controller: bool = False) -> QuotaManagers:
    return QuotaManagers(
        config.get_int("quota.window.num"),
        1000 * config.get_int("quota.window.size.seconds"),
        config.get_int("controller.quota.window.num"),
        1000 * config.get_int("controller.quota.window.size.seconds"),
        of_controller=of_controller,
    )


def connection_creation_rates(quotas: Mapping[tuple[Entity, str], Quota]) -> dict[str | None, int]:
    """Return connection_creation_rate by the name of the ip entity; None for the default entity."""
    rates: dict[str | None, int] = {}
    for (entity, key), quota in quotas.items():
        if key == CONNECTION_CREATION_RATE and len(entity) == 1 and entity[0][0] == "ip":
            # NaN limits nothing, and neither does a value that no controller accepts.
            rates[entity[0][1]] = int(min(quota.value, UNLIMITED)) if quota.value > 0 else UNLIMITED
    return rates
