"""How long a new connection waits under max.connection.creation.rate, or is held under connection_creation_rate."""

from __future__ import annotations

from kafkacompat.quota.client_quotas import ENTRIES_MAX, EXPIRES_MS, IP
from kafkacompat.quota.connection_rates import IP_QUOTAS, AddressRates, ConnectionRates
from kafkacompat.server.shared_server import connection_creation_rates
from kafkacompat.wire.messages.client_quota_record import ClientQuotaRecord

UNLIMITED = 2**31 - 1


def waits(rates: ConnectionRates, count: int, node: int | None, listener: int, name: str = "A") -> list[int]:
    return [rates.record(name, node, listener, 0) for _ in range(count)]


def test_connections_over_the_rate_wait_for_one_window_at_most() -> None:
    rates = ConnectionRates(11, 1000)
    # Ten seconds of one connection each are free.
    assert waits(rates, 13, 1, UNLIMITED) == [0] * 10 + [1000, 1000, 1000]
    assert ConnectionRates(11, 1000).record("A", UNLIMITED, UNLIMITED, 0) == 0


def test_listeners_have_rates_of_their_own() -> None:
    rates = ConnectionRates(11, 1000)
    assert waits(rates, 11, UNLIMITED, 1)[-1] == 1000
    assert waits(rates, 10, UNLIMITED, 1, "B")[-1] == 0


def test_a_protected_listener_is_not_counted_in_the_nodes_rate() -> None:
    rates = ConnectionRates(11, 1000)
    assert waits(rates, 50, None, UNLIMITED, "INTERNAL")[-1] == 0
    assert waits(rates, 10, 1, UNLIMITED)[-1] == 0


def test_later_connections_wait_less() -> None:
    rates = ConnectionRates(11, 1000)
    waits(rates, 21, 2, UNLIMITED)
    assert rates.record("A", 2, UNLIMITED, 900) == 100


def test_a_rate_of_zero_lets_in_one_per_window() -> None:
    assert ConnectionRates(11, 1000).record("A", 0, UNLIMITED, 0) == 1000


def address_rates(default: int = UNLIMITED, **bounds: int) -> AddressRates:
    rates = AddressRates(11, 1000)
    rates.take(bounds, default)
    return rates


def test_an_address_over_its_rate_is_held_and_not_counted() -> None:
    rates = address_rates(a=1)
    held = [rates.record("a", 0) for _ in range(13)]
    assert held == [0] * 10 + [1000, 1000, 1000]
    # Had the three connections counted, this one would be over the rate too.
    assert rates.record("a", 11_000) == 0
    assert [rates.record("b", 0) for _ in range(50)][-1] == 0


def test_an_address_with_a_rate_of_zero_is_held_for_a_window_and_never_counted() -> None:
    """A quota may be as small as 0.000001, of which the whole number is 0. Kafka lets none in either."""
    quota = ClientQuotaRecord(key="connection_creation_rate", value=1e-6)
    bounds = connection_creation_rates({(((IP, None),), "connection_creation_rate"): quota})
    assert bounds == {None: 0}
    rates = address_rates(default=bounds[None], b=1)
    assert [rates.record("a", now_ms) for now_ms in (0, 0, 500, 60_000)] == [1000] * 4
    rates.take({"a": 1}, UNLIMITED)
    assert [rates.record("a", 60_000) for _ in range(10)] == [0] * 10


def test_the_default_is_for_each_other_address() -> None:
    rates = address_rates(default=1, a=2)
    for address, free in (("a", 20), ("b", 10), ("c", 10)):
        assert [rates.record(address, 0) for _ in range(free)] == [0] * free
        assert rates.record(address, 0) > 0


def test_a_changed_bound_applies_to_what_was_measured_before() -> None:
    rates = address_rates(a=1)
    assert [rates.record("a", 0) for _ in range(11)][-1] == 1000
    rates.take({"a": 5}, UNLIMITED)
    assert rates.record("a", 0) == 0
    rates.take({}, UNLIMITED)
    assert [rates.record("a", 0) for _ in range(100)][-1] == 0
    rates.take({"a": 1}, UNLIMITED)
    assert rates.record("a", 0) == 1000


def test_the_longest_unused_addresses_are_forgotten() -> None:
    rates = address_rates(default=1)
    for number in range(ENTRIES_MAX):
        rates.record(f"{number}", 0)
    rates.record("0", 1)
    rates.record("new", 1)
    assert len(rates._rates) == ENTRIES_MAX
    assert "0" in rates._rates
    assert "1" not in rates._rates
    rates.record("later", EXPIRES_MS)
    assert list(rates._rates) == ["0", "new", "later"]


def test_a_connection_that_is_not_let_in_is_taken_back() -> None:
    rates = ConnectionRates(11, 1000)
    for _ in range(50):
        assert rates.record("A", 1, 1, 0) == 0
        rates.unrecord("A", is_counted_by_node=True, now_ms=0)
    assert waits(rates, 10, 1, 1)[-1] == 0
    rates.unrecord("A", is_counted_by_node=False, now_ms=0)
    assert rates.record("A", None, 1, 0) == 0
    assert rates.record("B", 1, 1, 0) == 1000


def test_each_quota_of_an_address_reaches_the_listeners() -> None:
    quotas = {(((IP, "10.0.0.1"),), key): ClientQuotaRecord(value=5.0) for key in IP_QUOTAS}
    assert all(connection_creation_rates({each: quota}) for each, quota in quotas.items())
