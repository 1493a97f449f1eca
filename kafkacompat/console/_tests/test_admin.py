"""A look through a client library with unusual groups and answers: it leaves them out and always ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.console import admin
from kafkacompat.console.admin import ClusterClient
from kafkacompat.console.core.snapshot import Snapshot
from kafkacompat.console.failure import BrokerAway
from kafkacompat.security.cluster_address import ClusterAddress

NODE = SimpleNamespace(id=1, host="127.0.0.1", port=9092, rack=None)
ODD_ERRORS = [
    RuntimeError("Group a not found in future-map"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    SystemError("returned a result with an exception set"),
    KafkaException(KafkaError(KafkaError._BAD_MSG)),
]


def future(result: object) -> Future[Any]:
    made: Future[Any] = Future()
    if isinstance(result, BaseException):
        made.set_exception(result)
    else:
        made.set_result(result)
    return made


class ScriptedAdmin:
    """The library's client for a cluster with one node, one topic and the given groups, with the library's checks.

    odd: the error with which the answers to a method fail. For groups, only the answer for the first group fails.
    """

    def __init__(
        self, groups: Iterable[str], odd: dict[str, Exception] | None = None, topics: Iterable[str] = ("t",)
    ) -> None:
        self.groups = list(groups)
        self.odd = odd or {}
        self.topics = list(topics)
        self.topic_id = "id"
        self.members: list[Any] = []

    def _say(self, method: str, result: object) -> Future[Any]:
        return future(self.odd.get(method, result))

    def describe_cluster(self, **options: Any) -> Future[Any]:
        said = SimpleNamespace(nodes=[NODE], cluster_id="c", controller=NODE)
        return self._say("describe_cluster", said)

    def list_topics(self, **options: Any) -> Any:
        return SimpleNamespace(topics=dict.fromkeys(self.topics))

    def describe_topics(self, wanted: Any, **options: Any) -> dict[str, Future[Any]]:
        partition = SimpleNamespace(id=0, leader=NODE, replicas=[NODE], isr=[NODE])
        said = {
            name: SimpleNamespace(
                name=name, topic_id=self.topic_id, is_internal=False, partitions=[partition]
            )
            for name in wanted.topic_names
        }
        return {name: self._say("describe_topics", each) for name, each in said.items()}

    def list_offsets(self, wanted: dict[Any, Any], **options: Any) -> dict[Any, Future[Any]]:
        AdminClient._check_list_offsets_request(wanted, {})
        return {place: self._say("list_offsets", SimpleNamespace(offset=5)) for place in wanted}

    def list_consumer_groups(self, **options: Any) -> Future[Any]:
        valid = [SimpleNamespace(group_id=group) for group in self.groups]
        return self._say("list_consumer_groups", SimpleNamespace(valid=valid, errors=[]))

    def describe_consumer_groups(self, names: list[str], **options: Any) -> dict[str, Future[Any]]:
        if not names:
            raise ValueError("Expected at least one group to be described")
        said = SimpleNamespace(
            type="CLASSIC", state="STABLE", members=self.members, coordinator=None, partition_assignor="range"
        )
        return {
            name: self._say("describe_consumer_groups" if name == names[0] else "", said) for name in names
        }

    def list_consumer_group_offsets(self, wanted: list[Any], **options: Any) -> dict[str, Future[Any]]:
        AdminClient._check_list_consumer_group_offsets_request(wanted)
        (name,) = (each.group_id for each in wanted)
        method = "list_consumer_group_offsets" if name == min(self.groups) else ""
        return {name: self._say(method, SimpleNamespace(topic_partitions=[]))}


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Snapshot]:
    def looked(groups: Iterable[str], odd: dict[str, Exception] | None = None) -> Snapshot:
        monkeypatch.setattr(admin, "AdminClient", lambda *settings, **more: ScriptedAdmin(groups, odd))
        return ClusterClient(ClusterAddress("h:1")).look(7)

    return looked


def names(seen: Snapshot) -> list[str]:
    return [group.group_id for group in seen.groups]


def test_a_group_without_a_name_is_counted_and_not_asked_about(look: Callable[..., Snapshot]) -> None:
    """Kafka accepts commits of the group named "" (KIP-289). The library refuses to ask for its committed offsets."""
    seen = look(["b", "", "a"])
    assert (names(seen), seen.groups_hidden) == (["a", "b"], 1)
    assert look([""]).groups_hidden == 1


@given(st.lists(st.text(max_size=12), max_size=6))
def test_no_name_of_a_group_ends_the_look(groups: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admin, "AdminClient", lambda *settings, **more: ScriptedAdmin(groups))
        seen = ClusterClient(ClusterAddress("h:1")).look(7)
    assert names(seen) == sorted({*groups} - {""})


@pytest.mark.parametrize("error", ODD_ERRORS, ids=repr)
@pytest.mark.parametrize("method", ["describe_consumer_groups", "list_consumer_group_offsets"])
def test_an_answer_about_a_group_that_the_library_cannot_read_leaves_that_group_out(
    method: str, error: Exception, look: Callable[..., Snapshot]
) -> None:
    seen = look(["a", "b"], {method: error})
    assert (names(seen), seen.groups_hidden) == (["b"], 1)


@pytest.mark.parametrize("error", ODD_ERRORS, ids=repr)
def test_lists_and_offsets_that_the_library_cannot_read_are_unknown(
    error: Exception, look: Callable[..., Snapshot]
) -> None:
    assert names(look(["a"], {"list_consumer_groups": error})) == []
    (topic,) = look([], {"list_offsets": error}).topics
    assert topic.end_offsets is None


@pytest.mark.parametrize("error", ODD_ERRORS, ids=repr)
@pytest.mark.parametrize("method", ["describe_cluster", "describe_topics"])
def test_a_cluster_that_the_library_cannot_read_is_away_with_the_reason(
    method: str, error: Exception, look: Callable[..., Snapshot]
) -> None:
    with pytest.raises(BrokerAway) as raised:
        look([], {method: error})
    assert str(raised.value)


def test_a_topic_that_cannot_be_described_is_hidden_and_the_others_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OneRefused(ScriptedAdmin):
        def describe_topics(self, wanted: Any, **options: Any) -> dict[str, Future[Any]]:
            refused = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
            return super().describe_topics(wanted) | {"b": future(refused)}

    made = OneRefused([], topics=["a", "b", "c"])
    monkeypatch.setattr(admin, "AdminClient", lambda *settings, **more: made)
    seen = ClusterClient(ClusterAddress("h:1")).look(7)
    assert ([topic.name for topic in seen.topics], seen.topics_hidden) == (["a", "c"], 1)


def test_all_groups_are_asked_about_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "GROUPS_A_LOOK", 3)
    made = ScriptedAdmin([f"g{number}" for number in range(8)])
    monkeypatch.setattr(admin, "AdminClient", lambda *settings, **more: made)
    client = ClusterClient(ClusterAddress("h:1"))
    seen = [client.look(7) for _ in range(3)]
    assert [len(names(each)) for each in seen] == [3, 6, 8]
    assert [each.groups_hidden for each in seen] == [5, 2, 0]
    made.groups.remove("g4")
    assert names(client.look(7)) == [f"g{number}" for number in range(8) if number != 4]


def test_the_result_topics_are_seen_however_many_others_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """In alphabetical order, their names would come after a thousand others."""
    others = [f"a-{number:04}" for number in range(admin.MAX_TOPICS)]
    made = ScriptedAdmin([], topics=[*others, "logs.summary", "metrics.latest"])
    monkeypatch.setattr(admin, "AdminClient", lambda *settings, **more: made)
    seen = ClusterClient(ClusterAddress("h:1")).look(7)
    found = {topic.name for topic in seen.topics}
    assert {"logs.summary", "metrics.latest"} <= found
    assert (len(found), seen.topics_hidden) == (admin.MAX_TOPICS, 2)


def test_offsets_of_a_topic_are_not_told_of_another_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late answer is replaced by that of the previous look, but not by one from before the topic was deleted and
    created again."""
    made = ScriptedAdmin([])
    monkeypatch.setattr(admin, "AdminClient", lambda *settings, **more: made)
    client = ClusterClient(ClusterAddress("h:1"))

    def ends() -> list[int | None]:
        return [topic.end_offsets for topic in client.look(7).topics]

    assert ends() == [5]
    made.odd = {"list_offsets": ODD_ERRORS[3]}
    assert ends() == [5]
    made.topic_id = "another"
    assert ends() == [None]
    made.odd = {}
    assert ends() == [5]
