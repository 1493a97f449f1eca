"""What hostile requests leave alone, so that what becomes of it can be judged."""

from __future__ import annotations

from typing import Any

from kafkacompat.wire.message import Struct

from .values import WITNESS_GROUP, WITNESSED_TOPIC


def spare(struct: Struct, protected_ids: set[bytes]) -> None:
    """Whoever names what the well-behaved client needs names something else."""
    for name in struct.__slots__:
        value = getattr(struct, name)
        if isinstance(value, Struct):
            spare(value, protected_ids)
        elif type(value) is list:
            setattr(struct, name, [spared(item, protected_ids) for item in value])
        else:
            setattr(struct, name, spared(value, protected_ids))


def spared(value: Any, protected_ids: set[bytes]) -> Any:
    if isinstance(value, Struct):
        spare(value, protected_ids)
    elif isinstance(value, str) and value.startswith((WITNESSED_TOPIC, WITNESS_GROUP, "__")):
        return "t0"
    elif isinstance(value, bytes) and value in protected_ids:
        return bytes(16)
    return value
