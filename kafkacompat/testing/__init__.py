"""Kafka for users' tests: in this process (`Kafka`, `KafkaCluster`), or as a process on a free loopback port (`running_broker`).

Nothing is imported before it is used: pytest loads the plugin of this package in every run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkacompat.testing.kafka import Kafka, KafkaCluster, Snapshot, Topic
    from kafkacompat.testing.operations import Refused
    from kafkacompat.testing.process import Broker, broker, running_broker
    from kafkacompat.testing.settings import UnknownSetting
    from kafkacompat.testing.values import Committed, Ends, Group, Member, Record, Transaction

__all__ = [
    "Broker",
    "Committed",
    "Ends",
    "Group",
    "Kafka",
    "KafkaCluster",
    "Member",
    "Record",
    "Refused",
    "Snapshot",
    "Topic",
    "Transaction",
    "UnknownSetting",
    "broker",
    "running_broker",
]

_MODULES = {
    **dict.fromkeys(("Kafka", "KafkaCluster", "Snapshot", "Topic"), "kafka"),
    **dict.fromkeys(("Broker", "broker", "running_broker"), "process"),
    **dict.fromkeys(("Committed", "Ends", "Group", "Member", "Record", "Transaction"), "values"),
    "Refused": "operations",
    "UnknownSetting": "settings",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import gc
    from importlib import import_module

    is_enabled = gc.isenabled()
    gc.disable()  # modules stay, and more than a hundred passes over them would take a seventh of a first start
    try:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    finally:
        if is_enabled:
            if not gc.get_freeze_count():  # none of the user's own
                gc.freeze()
                gc.unfreeze()  # into the oldest generation, so that no pass over young objects looks at them
            gc.enable()
