"""Rates, lag, the broker's connection and the view of the cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.console._tests.making import partition, snapshot, topic
from kafkacompat.console.core.cluster_view import cluster_view
from kafkacompat.console.core.connection import BrokerConnection
from kafkacompat.console.core.lag import group_lag
from kafkacompat.console.core.prometheus import metrics_text
from kafkacompat.console.core.rates import HISTORY_POINTS, MAX_SAMPLES, Rates
from kafkacompat.console.core.results import Results
from kafkacompat.console.core.snapshot import NO_LEADER, GroupSeen, ReplicaSize, Snapshot
from kafkacompat.console.core.views import reading_view


def test_a_rate_is_what_was_written_over_the_last_ten_seconds() -> None:
    rates = Rates()
    assert rates.per_second("a") is None
    for second in range(0, 31, 2):
        rates.add(second * 1000, {"a": 100 * second if second <= 20 else 2000})
    assert rates.per_second("a") == 0.0
    rates.add(32_000, {"a": 2120})
    assert rates.per_second("a") == 12.0


def test_a_topic_made_anew_has_a_rate_of_its_own() -> None:
    rates = Rates()
    rates.add(1_000, {"old": 5_000})
    rates.add(3_000, {"new": 10})
    assert rates.per_second("new") is None
    rates.add(5_000, {"new": 30})
    assert rates.per_second("new") == 10.0


def test_a_log_that_was_cut_back_never_gives_a_negative_rate() -> None:
    rates = Rates()
    for at_ms, end in ((0, 100), (2_000, 40), (4_000, 60)):
        rates.add(at_ms, {"a": end})
    assert rates.per_second("a") == 5.0


def test_a_clock_that_was_set_back_starts_the_samples_anew() -> None:
    rates = Rates()
    rates.add(10_000, {"a": 1})
    rates.add(4_000, {"a": 2})
    assert rates.per_second("a") is None
    rates.add(5_000, {"a": 4})
    assert rates.per_second("a") == 2.0


@given(st.lists(st.tuples(st.integers(1, 3_000), st.integers(0, 1_000)), max_size=400))
def test_rates_are_bounded_in_memory_and_never_negative(steps: list[tuple[int, int]]) -> None:
    rates = Rates()
    now_ms = end = 0
    for passed_ms, written in steps:
        now_ms, end = now_ms + passed_ms, end + written
        rates.add(now_ms, {"a": end})
    assert len(rates._samples) <= MAX_SAMPLES
    assert len(rates.history()) <= HISTORY_POINTS
    assert all(rate >= 0 for _, rate in rates.history())


def test_lag_counts_from_the_commit_or_from_the_first_kept_record() -> None:
    partitions = {
        ("t", 0): partition(0, earliest=0, latest=10),
        ("t", 1): partition(1, earliest=40, latest=50),
        ("t", 2): partition(2),
    }
    committed = {("t", 0): 7, ("t", 1): 5, ("t", 2): 12, ("t", 9): 3, ("gone", 0): 1}
    lag = group_lag(GroupSeen("g", "classic", "stable", 1, 1, committed), partitions)
    assert [(row.topic, row.partition, row.lag) for row in lag.partitions] == [
        ("gone", 0, None),
        ("t", 0, 3),
        ("t", 1, 10),
        ("t", 2, 0),
        ("t", 9, None),
    ]
    assert lag.lag == 13


def test_a_group_that_committed_nothing_has_no_lag() -> None:
    assert group_lag(GroupSeen("g", "classic", "empty", 0, None), {}).lag is None


def test_the_connection_says_since_when_the_broker_is_away() -> None:
    connection = BrokerConnection("h:1", 100)
    connection.failed(200, "refused")
    assert (connection.state, connection.since_ms) == ("unreachable", 200)
    connection.answered(300)
    connection.answered(500)
    assert (connection.state, connection.since_ms, connection.reason) == ("reachable", 300, "")
    connection.failed(900, "timed out")
    connection.failed(950, "refused")
    assert connection.since_ms == 500, "since its last answer, not since we noticed"
    assert connection.reason == "refused"


def health(seen: Snapshot) -> dict[str, str]:
    connection = BrokerConnection("h:1", 0)
    connection.answered(1)
    found: dict[str, str] = cluster_view(connection, seen, Rates())["health"]
    return found


def test_health_names_the_worst_there_is() -> None:
    good = topic("good", partition(0, replicas=(1, 2)))
    behind = topic(
        "behind", partition(0, replicas=(1, 2), in_sync=(1,)), partition(1, replicas=(1, 2), in_sync=(2,))
    )
    offline = topic("offline", partition(0, leader=NO_LEADER, replicas=(2,), in_sync=()))
    assert health(snapshot(good, nodes=(1, 2))) == {"level": "good", "text": "healthy"}
    assert health(snapshot(good, nodes=(1,))) == {"level": "warning", "text": "1 node away"}
    assert health(snapshot(good, behind, nodes=(1, 2)))["text"] == "2 partitions under-replicated"
    assert health(snapshot(behind, offline, nodes=(1,))) == {
        "level": "bad",
        "text": "1 partition without a leader",
    }


def test_without_a_broker_the_view_says_where_it_should_be() -> None:
    connection = BrokerConnection("h:1", 0)
    assert cluster_view(connection, None, Rates())["health"]["text"] == "connecting to h:1"
    connection.failed(5, "refused")
    view = cluster_view(connection, None, Rates())
    assert view["health"] == {"level": "bad", "text": "broker at h:1 is not reachable"}
    assert view["cluster"] is None
    assert view["broker"]["reason"] == "refused"


def full_view() -> dict[str, object]:
    seen = snapshot(
        topic(
            "a", partition(0, replicas=(1, 2), in_sync=(1,), earliest=5, latest=25), partition(1, latest=None)
        ),
        topic("b", partition(0)),
        nodes=(1,),
        groups=(GroupSeen('g"1', "classic", "stable", 2, 1, {("b", 0): 4}),),
    )
    sizes = (ReplicaSize(1, "a", 0, 100), ReplicaSize(1, "a", 1, 20), ReplicaSize(1, "b", 0, 3))
    connection = BrokerConnection("h:1", 0)
    connection.answered(1)
    rates = Rates()
    rates.add(0, {"id-b": 0})
    rates.add(2_000, {"id-b": 10})
    return cluster_view(connection, Snapshot(1, "c", 1, seen.nodes, seen.topics, seen.groups, sizes), rates)


def test_the_view_of_the_cluster_holds_sizes_rates_lag_and_missing_nodes() -> None:
    view = json.loads(json.dumps(full_view(), allow_nan=False))
    alive, away = view["cluster"]["nodes"]
    assert (alive["size_bytes"], alive["leads"], alive["controller"]) == (123, 3, True)
    assert (away["node"], away["alive"], away["address"], away["behind"]) == (2, False, None, 1)
    first, second = view["cluster"]["topics"]
    assert (first["size_bytes"], first["records"], first["under_replicated"]) == (120, None, 1)
    assert (second["size_bytes"], second["records"], second["records_per_s"]) == (3, 10, 5.0)
    assert view["cluster"]["groups"][0]["lag"] == 6
    assert [row["topic"] for row in view["cluster"]["troubled"]] == ["a"]


def test_a_broker_that_is_away_has_no_series_but_that_it_is() -> None:
    """A lag that stays at its last value would hide that it is unknown."""
    view = full_view()
    view["broker"]["state"] = "unreachable"
    text = metrics_text(view, reading_view(Results())).decode()
    assert "kafkacompat_console_broker_up 0.0\n" in text
    assert "\nkafka_" not in text


class Counted(tuple[ReplicaSize, ...]):
    """Counts how often it is iterated over."""

    passes = 0

    def __iter__(self) -> Iterator[ReplicaSize]:
        self.passes += 1
        return super().__iter__()


def test_sizes_are_gone_through_once_for_all_topics_and_once_for_all_nodes() -> None:
    topics = [topic(f"t{number}", partition(0)) for number in range(50)]
    sizes = Counted(ReplicaSize(1, f"t{number}", 0, number) for number in range(50))
    connection = BrokerConnection("h:1", 0)
    connection.answered(1)
    seen = replace(snapshot(*topics, nodes=(1, 2, 3)), sizes=sizes)
    view = cluster_view(connection, seen, Rates())
    assert [each["size_bytes"] for each in view["cluster"]["topics"]] == list(range(50))
    assert sizes.passes == 2


def test_prometheus_text_escapes_labels_and_leaves_out_what_is_not_known() -> None:
    text = metrics_text(full_view(), reading_view(Results())).decode()
    assert 'kafka_group_lag_records{group="g\\"1"} 6.0\n' in text
    assert 'kafka_topic_records{topic="b"} 10.0\n' in text
    assert 'kafka_topic_records{topic="a"}' not in text
    assert 'kafka_node_up{node="2"} 0.0\n' in text
    assert "kafkacompat_console_broker_up 1.0\n" in text
    for line in text.splitlines():
        assert line.startswith("# ") or float(line.rpartition(" ")[2]) >= 0


@given(
    st.lists(st.text(max_size=10), max_size=4, unique=True),
    st.dictionaries(
        st.tuples(st.text(max_size=6), st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), max_size=4
    ),
)
def test_no_group_is_one_that_cannot_be_told(names: list[str], committed: dict[tuple[str, int], int]) -> None:
    groups = tuple(GroupSeen(name, name, name, 2, None, committed) for name in names)
    connection = BrokerConnection("h:1", 0)
    connection.answered(1)
    view = cluster_view(connection, snapshot(topic("t", partition(0)), groups=groups), Rates())
    assert json.loads(json.dumps(view, ensure_ascii=False, allow_nan=False).encode()) == view
    text = metrics_text(view, reading_view(Results())).decode()
    assert text.encode().count(b"\nkafka_group_members{") == len(names)
    for line in text.split("\n")[:-1]:
        assert line.startswith("# ") or float(line.rpartition(" ")[2]) >= 0


def test_prometheus_text_without_a_broker_says_down() -> None:
    text = metrics_text(
        cluster_view(BrokerConnection("h:1", 0), None, Rates()), reading_view(Results())
    ).decode()
    assert "kafkacompat_console_broker_up 0.0\n" in text
