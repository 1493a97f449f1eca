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
        "stepping/jobs.py",
        "        self._done += more\n",
        "        self._done = more\n",
        ("api/_tests/test_long_requests.py",),
    ),
    PlantedBug(
        "offsets of topics without partitions are listed in one step",
        "api/list_offsets.py",
        "        if pace.is_over():\n            yield from pause(None)\n",
        "",
        ("api/_tests/test_long_requests.py",),
    ),
    PlantedBug(
        "a produce tells of topics without partitions, in one step",
        "api/produce.py",
        "        if topic.partition_data:\n",
        "        if True:\n",
        ("api/_tests/test_produce.py",),
    ),
    PlantedBug(
        "what a long request is made of is freed in one step",
        "api/long_requests.py",
        "            cost = min(len(items), FREED_A_STEP)\n",
        "            cost = len(items)\n",
        ("api/_tests/test_many_names.py",),
    ),
    PlantedBug(
        "any number of large requests are carried out at a time once they are decoded",
        "api/dispatch.py",
        "                yield handled.resting()\n",
        "                yield None\n",
        ("api/_tests/test_many_names.py",),
    ),
    PlantedBug(
        "a large fetch that waits keeps others from being decoded",
        "api/long_requests.py",
        "        if answer is not None and not answer.done and self.waits_at_will:\n            self.rest()\n",
        "",
        ("api/_tests/test_many_names.py",),
    ),
    PlantedBug(
        "a large request whose client goes away keeps its place",
        "api/long_requests.py",
        "            answer.abandon()\n            self.rest()\n",
        "            answer.abandon()\n",
        ("api/_tests/test_many_names.py",),
    ),
    PlantedBug(
        "a large request that goes on without its client gives its place to others",
        "api/long_requests.py",
        "        self.is_abandoned = True\n        if self._waits_for",
        "        self.is_abandoned = True\n        self.rest()\n        if self._waits_for",
        ("api/_tests/test_many_names.py",),
    ),
    PlantedBug(
        "any number of groups is deleted in one step, and one that is named twice is answered twice",
        "api/delete_groups.py",
        '    slices=Slices("groups_names", "results", DELETED_A_STEP, str),\n',
        "",
        ("api/_tests/test_many_names.py",),
    ),
    PlantedBug(
        "many topics without partitions are passed over in one step",
        "api/produce.py",
        "        elif pace.is_over():\n            yield None\n    found = []",
        "    found = []",
        ("api/_tests/test_many_names.py",),
    ),
    PlantedBug(
        "the answer to a produce of many partitions is encoded in one step",
        "api/serve.py",
        "    is_large = is_large or (",
        "    is_large = (is_large and route.key != PRODUCE) or (",
        ("api/_tests/test_many_names.py",),
    ),
    PlantedBug(
        "a connection is read on while its produce is carried out in steps",
        "api/long_requests.py",
        "class LongAnswer(HoldingDeferred[Any]):",
        "class LongAnswer(Deferred[Any]):",
        ("api/_tests/test_many_names.py",),
    ),
    PlantedBug(
        "groups that are named are put together in one step",
        "api/offset_fetch.py",
        "        found[group.group_id] = group\n        if pace.is_over():\n            yield None\n",
        "        found[group.group_id] = group\n",
        ("api/_tests/test_many_names.py",),
    ),
    PlantedBug(
        "committed offsets of topics that name no partition are told in one step",
        "group/commit.py",
        "        if pace.is_over():\n            yield TOLD_A_STEP * TOLD_COST\n",
        "",
        ("coordinator/_tests/test_offsets.py",),
    ),
    PlantedBug(
        "all topics of a request are refused in one step",
        "controller/topics.py",
        "POLICY_VIOLATION, text))\n        if pace.is_over():\n            yield\n",
        "POLICY_VIOLATION, text))\n",
        ("controller/_tests/test_steps.py",),
    ),
    PlantedBug(
        "a refusal tells more names than an answer has room for",
        "controller/refusals.py",
        "return text if text is None or len(text) <= TEXT_MAX else text[:TEXT_MAX]",
        "return text",
        ("controller/_tests/test_steps.py",),
    ),
    PlantedBug(
        "a piece of a request has any number of topics without partitions",
        "api/pieces.py",
        "left -= named_in([rest])",
        "left -= len(rest.partitions)",
        ("api/_tests/test_pieces.py",),
    ),
    PlantedBug(
        "an answer without a read lists aborted transactions",
        "partition/fetch_reads.py",
        "                answer.diverging_epoch = EpochEndOffset(epoch=found.epoch, end_offset=found.offset)\n"
        "                answer.aborted_transactions = None\n",
        "                answer.diverging_epoch = EpochEndOffset(epoch=found.epoch, end_offset=found.offset)\n",
        ("partition/_tests/test_fetch.py::test_divergence_is_told_with_watermarks_and_without_records",),
    ),
    PlantedBug(
        "advice to read elsewhere lists aborted transactions",
        "partition/fetch_reads.py",
        "                answer.preferred_read_replica = nearest\n                answer.aborted_transactions = None\n",
        "                answer.preferred_read_replica = nearest\n",
        ("partition/_tests/test_read_replicas.py",),
    ),
    PlantedBug(
        "an unknown partition has null for its aborted transactions",
        "partition/fetch_answers.py",
        "            aborted_transactions=[] if error in HIDDEN else None,",
        "            aborted_transactions=None,",
        (
            "partition/_tests/test_fetch.py::test_a_refused_partition_has_no_aborted_transactions_and_an_unknown_one_has_an_empty_list",
        ),
    ),
    PlantedBug(
        "a topic whose offsets are deleted in part is answered twice",
        "api/offset_delete.py",
        "            if answered is not topic:\n"
        "                answered.partitions += topic.partitions\n"
        "        response.topics = list(topics.values())\n"
        "    return response\n"
        "\n"
        "\n"
        "HANDLER",
        "            if answered is not topic:\n"
        '                topics[f"{topic.name} again"] = topic\n'
        "        response.topics = list(topics.values())\n"
        "    return response\n"
        "\n"
        "\n"
        "HANDLER",
        (
            "coordinator/_tests/test_offsets.py::test_offset_delete_answers_each_topic_once_with_all_its_partitions",
        ),
    ),
    PlantedBug(
        "states that nobody knows let all transactions through",
        "coordinator/transaction_service.py",
        "            if names\n            else None,",
        "            if names.keys() & STATES_BY_NAME.keys()\n            else None,",
        (
            "coordinator/_tests/test_transactions.py::test_transactions_are_listed_by_state_and_unknown_states_are_told",
        ),
    ),
    PlantedBug(
        "a producer is not told that node 0 leads",
        "api/produce_answers.py",
        "    if result.leader_id < 0 or",
        "    if result.leader_id <= 0 or",
        ("api/_tests/test_produce.py",),
    ),
    PlantedBug(
        "a producer is not told where node 0 is",
        "api/produce.py",
        "        if leader >= 0:\n",
        "        if leader > 0:\n",
        ("api/_tests/test_produce.py",),
    ),
    PlantedBug(
        "a producer to several partitions is not told where node 0 is",
        "api/produce_portions.py",
        "            if leader >= 0:\n",
        "            if leader > 0:\n",
        ("api/_tests/test_produce.py",),
    ),
)
