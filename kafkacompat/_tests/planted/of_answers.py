"""Bugs to plant in answers: what clients are told, and whether they are told anything."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

BUGS = (
    PlantedBug(
        "a refused OffsetCommit names no error",
        "api/offset_commit.py",
        "for each in topic.partitions], code) for topic in request.topics",
        "for each in topic.partitions], ErrorCode.NONE) for topic in request.topics",
        ("api/_tests/test_error_responses.py",),
    ),
    PlantedBug(
        "a refused OffsetCommit names no topic",
        "api/offset_commit.py",
        "_shaped(OffsetCommitResponse(topics=topics), version",
        "_shaped(OffsetCommitResponse(), version",
        ("api/_tests/test_error_responses.py",),
    ),
    PlantedBug(
        "a refused JoinGroup names no error",
        "api/join_group.py",
        "JoinGroupResponse(error_code=code,",
        "JoinGroupResponse(error_code=0,",
        ("api/_tests/test_error_responses.py",),
    ),
    PlantedBug(
        "a failure is swallowed between two deferred values",
        "deferred.py",
        "                other.fail(error)",
        "                other.done = False",
        ("_tests/test_deferred.py",),
    ),
    PlantedBug(
        "a callback that raises keeps the next from its answer",
        "deferred.py",
        'report("using a value that was waited for", error)',
        "raise",
        ("_tests/test_deferred.py",),
    ),
    PlantedBug(
        "the first requests are answered before the node is unfenced",
        "node/opening.py",
        "        if self.is_open or len(self._held) >= REQUESTS_HELD_MAX:",
        "        if True:",
        ("node/_tests/test_opening.py",),
    ),
    PlantedBug(
        "what is held is answered when the node is registered, not when it is unfenced",
        "node/opening.py",
        " and not own.fenced:",
        ":",
        ("node/_tests/test_opening.py::test_metadata_waits_until_the_image_shows_the_broker_unfenced",),
    ),
    PlantedBug(
        "what is held waits for ever for a node that is not unfenced",
        "node/opening.py",
        "                overdue()\n                self.open()",
        "                overdue()",
        ("node/_tests/test_opening.py::test_nobody_waits_longer_than_a_session",),
    ),
    PlantedBug(
        "a second signal of the same moment is not told",
        "server/signals.py",
        "while self._tell is not None and self._told < self.count:",
        "if self._tell is not None and self._told < self.count:",
        ("server/_tests/test_signals.py::test_signals_that_came_before_anybody_listened_are_told",),
    ),
    PlantedBug(
        "a broker that registers anew vanishes from the metadata",
        "api/endpoints.py",
        "and (not broker.fenced or node.returning.includes(broker, now_ms))",
        "and not broker.fenced",
        ("api/_tests/test_returning.py::test_one_that_comes_back_before_is_named_throughout",),
    ),
    PlantedBug(
        "a coordinator is named on a broker that is fenced",
        "api/find_coordinator.py",
        "if broker is None or broker.fenced else",
        "if broker is None else",
        ("coordinator/_tests/test_runtime.py::test_a_coordinator_on_a_broker_that_is_fenced_is_not_named",),
    ),
    PlantedBug(
        "transactions that name a little each are looked at in one step",
        "api/add_partitions_to_txn.py",
        "        self._done += partitions\n",
        "        self._done = partitions\n",
        ("api/_tests/test_long_requests.py",),
    ),
    PlantedBug(
        "offsets of topics without partitions are listed in one step",
        "api/list_offsets.py",
        "        if told >= COUNTED_A_STEP:",
        "        if told >= 2**31:",
        ("api/_tests/test_long_requests.py",),
    ),
    PlantedBug(
        "a produce tells of topics without partitions, in one step",
        "api/produce.py",
        "[topic for topic in topics if topic.partition_data]",
        "topics",
        ("api/_tests/test_produce.py",),
    ),
    PlantedBug(
        "a piece of a request has any number of topics without partitions",
        "api/pieces.py",
        "left -= named_in([rest])",
        "left -= len(rest.partitions)",
        ("api/_tests/test_pieces.py",),
    ),
)
