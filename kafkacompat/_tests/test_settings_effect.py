"""A setting counts as honoured when its row in config/tables has a documentation: then some module must read it, and the reverse.

Reading is all that a walk over the sources can see; that changes have their effect is tested against running brokers.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from kafkacompat.config.keys import broker_keys, broker_synonyms, group_keys, topic_keys

ROOT = Path(__file__).resolve().parents[1]
NOT_READING = {
    "config/dynamic.py",
    "config/of_listeners.py",
    "config/topic.py",
    "config/group.py",
}
"""They check settings or pass them on; nothing happens in them."""


@cache
def sources() -> str:
    return "\n".join(
        path.read_text("utf-8")
        for path in sorted(ROOT.rglob("*.py"))
        if "_tests" not in path.parts and str(path.relative_to(ROOT)) not in NOT_READING
    )


@cache
def constants() -> dict[str, str]:
    """By setting, the name that a module which does not read it gives to it."""
    texts = ((ROOT / path).read_text("utf-8") for path in sorted(NOT_READING))
    return {
        setting: constant
        for text in texts
        for constant, setting in re.findall(
            r'^([A-Z][A-Z_]*)(?:: Final)? = "([a-z0-9.]+)"', text, re.MULTILINE
        )
    }


def is_named(name: str) -> bool:
    """By a module that reads it, itself or by the constant of another module."""
    constant = constants().get(name)
    return f'"{name}"' in sources() or (
        constant is not None and re.search(rf"\b{constant}\b", sources()) is not None
    )


def topic_setting_is_read(name: str) -> bool:
    field = name.replace(".", "_")
    attribute = {"cleanup_policy": "delete|compact|cleanup_policy"}.get(field, field)
    return re.search(rf"config\.(?:{attribute})\b", sources()) is not None or is_named(name)


def is_bound_of_a_group_setting(name: str) -> bool:
    """config/group.py keeps what a group has of its own within these bounds."""
    return any(name in (key.minimum, key.maximum) and key.honoured for key in group_keys().values())


def is_read_for_each_kind_of_group(name: str) -> bool:
    """By the kind's own name and the same ending. The kinds that are served are those whose settings are explained."""
    known = group_keys().get(name)
    return known is not None and known.honoured and f'}}.{name.partition(".")[2]}"' in sources()


def broker_setting_is_read(name: str) -> bool:
    """Also as what a group has without a setting of its own."""
    of_groups = name.removeprefix("group.")
    return (
        is_named(name)
        or is_bound_of_a_group_setting(name)
        or (of_groups != name and of_groups in group_keys() and is_named(of_groups))
        or is_read_for_each_kind_of_group(of_groups)
        or any(
            topic_setting_is_read(topic)
            for topic, key in topic_keys().items()
            if name in broker_synonyms(key.broker)
        )
    )


def test_what_is_explained_is_read_and_what_is_read_is_explained_for_topics() -> None:
    read = {name for name in topic_keys() if topic_setting_is_read(name)}
    assert {name for name, key in topic_keys().items() if key.honoured} == read


def test_what_is_explained_is_read_and_what_is_read_is_explained_for_brokers() -> None:
    read = {name for name in broker_keys() if broker_setting_is_read(name)}
    assert {name for name, key in broker_keys().items() if key.honoured} == read


def test_what_is_explained_is_read_and_what_is_read_is_explained_for_groups() -> None:
    read = {name for name in group_keys() if is_named(name) or is_read_for_each_kind_of_group(name)}
    assert {name for name, key in group_keys().items() if key.honoured} == read
