"""group.consumer.assignors and group.share.assignors: Kafka's assignors by their names or by their classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.config.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

CONSUMER_ASSIGNORS = "group.consumer.assignors"
_PACKAGE = "org.apache.kafka.coordinator.group.assignor."
_NAMES = {
    "uniform": "uniform",
    "range": "range",
    f"{_PACKAGE}UniformAssignor": "uniform",
    f"{_PACKAGE}RangeAssignor": "range",
}


def consumer_assignors(entries: Iterable[str]) -> tuple[str, ...]:
    """Their names, the default first. Raises ConfigError for a class of somebody else."""
    names: list[str] = []
    for entry in entries:
        if entry not in _NAMES:
            raise ConfigError(
                CONSUMER_ASSIGNORS, entry, "expected uniform or range; other classes cannot be loaded"
            )
        if _NAMES[entry] in names:
            raise ConfigError(CONSUMER_ASSIGNORS, entry, f"{_NAMES[entry]} is named twice")
        names.append(_NAMES[entry])
    return tuple(names)


SHARE_ASSIGNORS = "group.share.assignors"
_SHARE_NAMES = {"simple": "simple", f"{_PACKAGE}SimpleAssignor": "simple"}


def share_assignor(entries: Iterable[str]) -> str:
    """Its name: all share groups have the same. Raises ConfigError for several, or for a class of somebody else."""
    names = list(entries)
    for entry in names:
        if entry not in _SHARE_NAMES:
            raise ConfigError(SHARE_ASSIGNORS, entry, "expected simple; other classes cannot be loaded")
    if len(names) != 1:
        raise ConfigError(
            SHARE_ASSIGNORS, ",".join(names), f"expected exactly one assignor, not {len(names)}"
        )
    return _SHARE_NAMES[names[0]]
