"""A directory in which every kind of group has worked goes from Apache Kafka to kafkacompat and back: classic, consumer,
share and streams groups, transactions, compaction and dead letters. Each program continues where the other one stopped.

A streams application runs all the time: it meets both programs as one broker that restarts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interop_tests.compaction.files import check_files
from interop_tests.compaction.keyed import (
    EAGER_CLEANER,
    EAGER_OFFSETS,
    Updates,
    assert_last_values,
    create_compacted,
    wait_until_clean,
)
from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.harness.chance import seeded_chance
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.raw_kafka import create_topic
from interop_tests.harness.switching import SwitchingBroker
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.share_groups.letters import TAKES_LETTERS, RejectedJobs
from interop_tests.share_groups.sides import has_share_coordinator
from interop_tests.storage.contents import WAIT_S, append_big, read_some, transactional_producer
from interop_tests.streams.application import (
    Lines,
    Outputs,
    WordCount,
    assert_exact,
    assert_internal_topics,
    wait_for_counts,
)
from interop_tests.streams.instances import BROKER_SETTINGS
from interop_tests.streams_groups.held_groups import told_of_group

pytestmark = pytest.mark.needs_control

CLASSIC, MODERN, SHARED, APPLICATION = "classic", "modern", "shared", "count"
READ, KEPT, JOBS, LETTERS, MARKED = "read", "kept", "jobs", "dlq.jobs", "marked"
SETTINGS = {
    **EAGER_CLEANER,
    **EAGER_OFFSETS,
    **BROKER_SETTINGS,
    # The instance stays a member while the program changes.
    "group.streams.session.timeout.ms": "60000",
    "group.streams.max.session.timeout.ms": "120000",
    "group.share.assignment.interval.ms": "0",
    "log.retention.check.interval.ms": "5000",
}


class Life:
    """What happens to a directory, and what is seen of it."""

    def __init__(self, broker: SwitchingBroker, folder: Path) -> None:
        self.broker = broker
        address = broker.bootstrap
        for topic in (READ, JOBS, MARKED):
            create_topic(address, topic)
        create_topic(address, LETTERS, configs=TAKES_LETTERS)
        create_compacted(address, KEPT)
        with Connection(address) as connection:
            wait_until(lambda: has_share_coordinator(connection), "there is a share coordinator")
        self.jobs = RejectedJobs(self._coordinator, lambda: address, JOBS, SHARED, LETTERS)
        self.application = WordCount(folder, address, APPLICATION, 1, "streams")
        self.lines = Lines(self.application, seeded_chance())
        self.counts = Outputs(address, self.application.counts)
        self.updates = Updates(address, KEPT)
        self.marked: list[bytes] = []
        self.turns = 0

    def _coordinator(self) -> str | None:
        asked = {"KeyType": 0, "CoordinatorKeys": [SHARED]}
        with Connection(self.broker.bootstrap) as connection:
            (found,) = connection.call("FindCoordinator", 4, asked)["Coordinators"]
        return None if found["ErrorCode"] else self.broker.bootstrap

    def begin(self) -> None:
        self.jobs.begin()
        self.application.start()

    def turn(self) -> None:
        """Each group goes on, and the cleaner has something to do."""
        address = self.broker.bootstrap
        append_big(address, READ, self.turns * 20, self.turns * 20 + 20)
        read_some(address, CLASSIC, READ, 15)
        read_some(address, MODERN, READ, 10, **{"group.protocol": "consumer"})
        self.jobs.reject(5)
        producer = transactional_producer(address, "marking")
        for commits in (True, False):
            producer.begin_transaction()
            value = b"%d %r" % (self.turns, commits)
            producer.produce(MARKED, value)
            if commits:
                producer.commit_transaction(WAIT_S)
                self.marked.append(value)
            else:
                assert producer.flush(WAIT_S) == 0
                producer.abort_transaction(WAIT_S)
        self.lines.write(100)
        self.lines.flush()
        wait_for_counts(self.application, self.counts, self.lines.counts.total())
        self.updates.write(5000, 50)
        wait_until_clean(self.broker.data_dir, KEPT)
        self.turns += 1

    def seen(self) -> dict[str, Any]:
        """What a program tells of the groups, before anything changes."""
        address = self.broker.bootstrap
        with Connection(address) as connection:

            def described() -> dict[str, Any] | None:
                asked = {"GroupIds": [APPLICATION], "IncludeAuthorizedOperations": False}
                (found,) = connection.call("StreamsGroupDescribe", 1, asked)["Groups"]
                return found if found["GroupState"] == "Stable" else None

            group = wait_until(described, "the application has its tasks")
            kinds = connection.call("ListGroups", 5, {"StatesFilter": [], "TypesFilter": []})["Groups"]
            asked = [{"GroupId": each, "Topics": None} for each in (CLASSIC, MODERN)]
            fetched = connection.call("OffsetFetch", 9, {"Groups": asked, "RequireStable": True})["Groups"]
        return {
            "groups": sorted((each["GroupId"], each["GroupType"]) for each in kinds),
            "streams": told_of_group(group),
            "letters": self.jobs.letters(lambda: address),
            "left": self.jobs.left(),
            "offsets": {
                (group["GroupId"], topic["Name"], each["PartitionIndex"]): each["CommittedOffset"]
                for group in fetched
                for topic in group["Topics"]
                for each in topic["Partitions"]
            },
        }

    def check(self) -> None:
        """Nothing is lost, and nothing came twice."""
        address = self.broker.bootstrap
        assert_exact(self.application, self.lines)
        assert_internal_topics(self.application)
        assert_last_values(address, self.updates)
        numbers = [int(letter.value or b"") for letter in self.jobs.letters(lambda: address)]
        assert numbers == list(range(self.jobs.count))

    def close(self) -> None:
        self.counts.close()
        self.application.close()


def test_every_kind_of_group_goes_there_and_back(tools: KafkaTools, tmp_path: Path) -> None:
    broker = SwitchingBroker(APACHE, tmp_path / "node", True, SETTINGS)
    life = None
    try:
        broker.start()
        life = Life(broker, tmp_path)
        life.begin()
        life.turn()
        for kind in (KAFKACOMPAT, APACHE):
            before = life.seen()
            assert {each for _, each in before["groups"]} == {"classic", "consumer", "share", "streams"}
            broker.become(kind)
            assert life.seen() == before
            life.turn()
            life.check()
        assert life.application.stop() == 0
        broker.stop()
        assert check_files(tools, broker.data_dir) > 30
        broker.become(KAFKACOMPAT)
        life.application.start()
        life.turn()
        life.check()
    finally:
        if life is not None:
            life.close()
        broker.kill()
