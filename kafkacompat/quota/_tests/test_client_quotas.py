"""Which quota applies to a user and client id, who shares a measurement, and how many are kept."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.quota import client_quotas as module
from kafkacompat.quota.client_quotas import ClientQuotas
from kafkacompat.quota.rate import Rate


def entity(**parts: str | None) -> Any:
    return tuple(sorted((kind.replace("_", "-"), name) for kind, name in parts.items()))


IN_ORDER = [
    entity(user="alice", client_id="a"),
    entity(user="alice", client_id=None),
    entity(user="alice"),
    entity(user=None, client_id="a"),
    entity(user=None, client_id=None),
    entity(user=None),
    entity(client_id="a"),
    entity(client_id=None),
]


def quotas(*entities: Any) -> ClientQuotas[Rate]:
    made = ClientQuotas(lambda: Rate(11, 1000))
    made.take({each: float(IN_ORDER.index(each) + 1) for each in entities})
    return made


def bound(made: ClientQuotas[Rate], user: str = "alice", client_id: str | None = "a") -> float | None:
    sensor = made.sensor(user, client_id, 0)
    return None if sensor is None else sensor.bound


@pytest.mark.parametrize("first", range(len(IN_ORDER)))
def test_the_first_quota_in_the_order_of_precedence_applies(first: int) -> None:
    assert bound(quotas(*IN_ORDER[first:])) == first + 1
    assert bound(quotas(IN_ORDER[first])) == first + 1


def test_without_a_quota_nothing_is_measured() -> None:
    made = quotas()
    assert not made.is_active
    assert bound(made) is None
    made = quotas(entity(user="alice"))
    assert made.is_active
    assert bound(made, user="bob") is None


@pytest.mark.parametrize(
    ("quota", "shared", "separate"),
    [
        (entity(user="alice"), ("alice", "b"), ("bob", "a")),
        (entity(user=None), ("alice", "b"), ("bob", "a")),
        (entity(client_id="a"), ("bob", "a"), ("alice", "b")),
        (entity(client_id=None), ("bob", "a"), ("alice", "b")),
        (entity(user="alice", client_id=None), ("alice", "a"), ("alice", "b")),
        (entity(user=None, client_id=None), ("alice", "a"), ("bob", "a")),
    ],
)
def test_which_clients_share_a_quota(quota: Any, shared: tuple[str, str], separate: tuple[str, str]) -> None:
    made = quotas(quota)
    sensor = made.sensor("alice", "a", 0)
    assert made.sensor(*shared, 0) is sensor
    assert made.sensor(*separate, 0) is not sensor


@pytest.mark.parametrize("client_id", ["", None])
def test_a_client_without_an_id_has_its_users_quota_only(client_id: str | None) -> None:
    assert bound(quotas(*IN_ORDER), client_id=client_id) == 3
    assert bound(quotas(entity(user=None, client_id=None), entity(user=None)), client_id=client_id) == 6
    assert bound(quotas(entity(user=None, client_id=None)), client_id=client_id) is None
    assert bound(quotas(entity(client_id=None)), client_id=client_id) is None


def test_a_changed_quota_applies_to_what_was_measured_before() -> None:
    made = quotas(entity(user="alice"))
    sensor = made.sensor("alice", "a", 0)
    assert sensor is not None
    made.take({entity(user="alice"): 50.0})
    assert made.sensor("alice", "a", 0) is sensor
    assert sensor.bound == 50
    made.take({entity(user=None): 60.0})
    assert made.sensor("alice", "a", 0) is sensor
    assert sensor.bound == 60
    made.take({})
    assert made.sensor("alice", "a", 0) is None


def test_a_quota_that_is_set_again_applies_to_what_was_measured_before() -> None:
    made = quotas(entity(user="alice"))
    made.take({entity(user="alice"): 100.0})
    sensor = made.sensor("alice", "a", 0)
    assert sensor is not None
    sensor.stat.record(900, 1_000)
    made.take({})
    assert not made.is_active
    made.take({entity(user="alice"): 50.0})
    again = made.sensor("alice", "a", 1_000)
    assert again is not None
    assert again.stat.throttle_ms(again.bound, 1_000) == 8_000


def test_listeners_are_told_when_measurements_may_no_longer_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    made = ClientQuotas(lambda: Rate(11, 1000), when_changed=lambda: told.append(1))
    bounds = {entity(client_id=None): 5.0}
    made.take(bounds)
    made.take(dict(bounds))
    assert len(told) == 1
    made.sensor("alice", "old", 0)
    made.sensor("alice", "new", 3_599_999)
    assert len(told) == 1
    made.sensor("alice", "newer", 3_600_000)
    assert len(told) == 2, "the old one is forgotten"
    monkeypatch.setattr(module, "ENTRIES_MAX", 2)
    made.sensor("alice", "newest", 3_600_000)
    assert len(told) == 3, "there is no room"


def test_a_measurement_that_is_used_without_being_looked_up_is_kept() -> None:
    made = quotas(entity(client_id=None))
    kept = made.sensor("alice", "kept", 0)
    assert kept is not None
    kept.stat.record(1, 3_599_900)
    made.sensor("alice", "new", 3_600_000)
    assert made.sensor("alice", "kept", 3_600_000) is kept


def test_a_quota_of_more_precedence_takes_over_with_its_own_measurement() -> None:
    made = quotas(entity(client_id="a"))
    before = made.sensor("alice", "a", 0)
    made.take({entity(client_id="a"): 1.0, entity(user="alice"): 2.0})
    after = made.sensor("alice", "a", 0)
    assert after is not None
    assert after is not before
    assert after.bound == 2


def test_only_so_many_measurements_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENTRIES_MAX", 10)
    made = quotas(entity(client_id=None))
    for number in range(100):
        assert made.sensor("alice", f"client {number}", 0) is not None
        assert len(made._sensors) <= 10
        assert len(made._found) <= 10


def test_only_so_many_throttle_times_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MUTED_MAX", 10)
    muted = quotas().muted
    for number in range(100):
        muted.add(1_000 + number, 0)
        assert muted.count(0) == len(muted._until_ms) == min(number + 1, 10)
    assert muted.count(1_089) == 10
    assert muted.count(1_094) == 5
    muted.add(2_000, 1_094)
    assert muted.count(1_094) == 6


def test_measurements_that_nobody_uses_are_forgotten() -> None:
    made = quotas(entity(client_id=None))
    old = made.sensor("alice", "old", 0)
    made.sensor("alice", "used", 3_599_999)
    made.sensor("alice", "new", 3_600_000)
    assert made.sensor("alice", "old", 3_600_001) is not old
    assert len(made._sensors) == 3


def test_long_client_ids_are_kept_by_their_beginning_and_a_digest() -> None:
    """Ten thousand of them, which a client may make up, took a gigabyte."""
    long = "c" * 30_000
    made = quotas()
    made.take({entity(client_id=long): 5.0, entity(client_id=None): 6.0})
    sensors = [made.sensor("alice", name, 0) for name in (long, long + "d", "e" + long, long)]
    assert [each.bound for each in sensors if each is not None] == [5, 6, 6, 5]
    assert sensors[0] is sensors[3]
    assert len({id(each) for each in sensors}) == 3
    assert max([len(client_id or "") for _, client_id in [*made._found, *made._sensors]]) < 300
    made.take({entity(client_id=long): 7.0})
    assert sensors[0] is made.sensor("alice", long, 0)
    assert sensors[0] is not None
    assert sensors[0].bound == 7


def test_each_quota_that_a_controller_accepts_is_kept_by_the_nodes() -> None:
    managers = module.QuotaManagers()
    assert managers.kinds.keys() == module.USER_AND_CLIENT_QUOTAS.keys() == module.RESOURCES.keys()
    for key, kind in managers.kinds.items():
        managers.take({(entity(user=None), key): Quota()})
        assert [each for each in managers.kinds.values() if each.is_active] == [kind]


class Quota:
    value = 1.0
