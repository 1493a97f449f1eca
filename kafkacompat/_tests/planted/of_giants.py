"""Bugs to plant in requests of very many elements: what is gone through between two turns of the loop."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

BUGS = (
    PlantedBug(
        "half a million partitions are asked for their epochs in one step",
        "api/offset_for_leader_epoch.py",
        "            if pace.is_over(lookup_cost(node)):\n                yield None\n        if",
        "            pace.is_over(lookup_cost(node))\n        if",
        ("api/_tests/test_giant_requests.py::test_what_a_request_holds_is_gone_through_in_steps",),
    ),
    PlantedBug(
        "the producers of half a million partitions are described in one step",
        "api/describe_producers.py",
        "    if pace.is_over():\n        yield None\n    if not is_legal",
        "    pace.is_over()\n    if not is_legal",
        ("api/_tests/test_giant_requests.py::test_what_a_request_holds_is_gone_through_in_steps",),
    ),
    PlantedBug(
        "a partition's producers are described in one step, however many there are",
        "api/describe_producers.py",
        "        if pace.is_over():\n            yield None\n    return PartitionResponse(",
        "    return PartitionResponse(",
        (
            "api/_tests/test_giant_requests.py::test_the_producers_of_a_partition_are_described_in_steps_as_far_as_they_are_still_known",
        ),
    ),
    PlantedBug(
        "a producer that expires while they are described ends the description",
        "log/producer_state.py",
        "            producer = self.producers.get(producer_id)\n"
        "            if producer is None:\n                continue\n            yield",
        "            producer = self.producers[producer_id]\n            yield",
        (
            "api/_tests/test_giant_requests.py::test_the_producers_of_a_partition_are_described_in_steps_as_far_as_they_are_still_known",
        ),
    ),
    PlantedBug(
        "half a million members leave a group in one step",
        "api/leave_group.py",
        "        if len(request.members) > PIECE:",
        "        if len(request.members) < 0:",
        ("api/_tests/test_giant_requests.py::test_many_members_leave_a_group_in_pieces",),
    ),
    PlantedBug(
        "half a million keys are located in one step",
        "api/find_coordinator.py",
        "            if pace.is_over(1 + len(key) // CHARACTERS_LIKE_A_KEY):",
        "            if pace.is_over(0):",
        ("api/_tests/test_giant_requests.py::test_what_a_request_holds_is_gone_through_in_steps",),
    ),
    PlantedBug(
        "long keys cost no more than short ones",
        "api/find_coordinator.py",
        "            if pace.is_over(1 + len(key) // CHARACTERS_LIKE_A_KEY):",
        "            if pace.is_over():",
        ("api/_tests/test_giant_requests.py::test_what_a_request_holds_is_gone_through_in_steps",),
    ),
    PlantedBug(
        "a slice of names is as long as it likes",
        "api/long_requests.py",
        " or characters + length > CHARACTERS_A_STEP",
        "",
        ("api/_tests/test_giant_requests.py::test_groups_of_long_names_are_described_a_few_a_step",),
    ),
    PlantedBug(
        "topics without partitions are fetched in one step",
        "api/fetch.py",
        "    if len(request.topics) + len(request.forgotten_topics_data) > NAMED_AT_ONCE:\n"
        "        return _in_steps(node, context, request)\n",
        "",
        ("api/_tests/test_giant_requests.py::test_what_a_request_holds_is_gone_through_in_steps",),
    ),
    PlantedBug(
        "a fetch of half a million partitions is refused in one step",
        "api/fetch.py",
        "            if pace.is_over():\n"
        "                yield None\n        if pace.is_over():\n            yield None\n    return response",
        "            pace.is_over()\n    return response",
        ("api/_tests/test_giant_requests.py::test_what_a_request_holds_is_gone_through_in_steps",),
    ),
    PlantedBug(
        "names of topics are looked at in one step",
        "api/metadata.py",
        "        for start in range(0, len(asked), NAMED_A_STEP):\n"
        "            if start:\n                yield None\n            some =",
        "        for start in range(0, len(asked), NAMED_A_STEP):\n            some =",
        ("api/_tests/test_giant_requests.py::test_what_a_request_holds_is_gone_through_in_steps",),
    ),
    PlantedBug(
        "of half a million missing topics each is looked at",
        "node/auto_topics.py",
        "        wanted = list(dict.fromkeys(islice(new, room)))",
        "        wanted = list(dict.fromkeys(new))[:room]",
        ("api/_tests/test_giant_requests.py::test_only_so_many_missing_topics_are_looked_at_as_may_be_made",),
    ),
    PlantedBug(
        "markers without partitions are walked in one step",
        "api/write_txn_markers.py",
        "        len(markers) > COMMITTED_PIECE\n"
        "        or sum([len(marker.topics) for marker in markers]) > COMMITTED_PIECE\n        or sum(",
        "        sum(",
        ("api/_tests/test_giant_requests.py::test_what_a_request_holds_is_gone_through_in_steps",),
    ),
    PlantedBug(
        "replicas are moved to other directories in one step",
        "api/alter_replica_log_dirs.py",
        "                if asked.is_over():\n                    yield None\n",
        "",
        ("api/_tests/test_giant_requests.py::test_what_a_request_holds_is_gone_through_in_steps",),
    ),
    PlantedBug(
        "partitions whose logs are described are put into a set in one step",
        "api/describe_log_dirs.py",
        "            if pace.is_over(len(some)):\n                yield None\n",
        "",
        ("api/_tests/test_giant_requests.py::test_what_a_request_holds_is_gone_through_in_steps",),
    ),
    PlantedBug(
        "an answer in steps is freed in one",
        "api/long_requests.py",
        "    later.held.append(answer)\n    return (yield",
        "    if later.held:\n        later.held.append(answer)\n    return (yield",
        ("api/_tests/test_giant_requests.py::test_an_answer_that_comes_in_steps_is_let_go_of_in_steps",),
    ),
    PlantedBug(
        "a member names as many protocols as a request may hold",
        "coordinator/classic_calls.py",
        "    if len(request.protocols) > PROTOCOLS_MAX:",
        "    if len(request.protocols) < 0:",
        ("coordinator/_tests/test_join.py",),
    ),
    PlantedBug(
        "a protocol is selected among those of all members",
        "group/classic/classic_group.py",
        "        candidates = {name for name, _ in first.protocols if self._supported[name] == len(self.members)}",
        "        candidates = {name for name, count in self._supported.items() if count == len(self.members)}",
        (
            "group/_tests/classic/test_classic_group.py::test_a_protocol_is_selected_without_a_look_at_what_one_member_alone_speaks",
        ),
    ),
    PlantedBug(
        "a filter of half a million states is read in one step",
        "group/describe.py",
        "        yield LOWERED_A_STEP // 4\n",
        "        yield 0\n",
        ("coordinator/_tests/test_steps.py::test_a_filter_of_many_names_is_read_in_steps",),
    ),
    PlantedBug(
        "all settings of a resource are changed in one step",
        "controller/config_changes.py",
        "        if pace.is_over(cost_of(change.value)):\n            yield\n",
        "",
        ("controller/_tests/test_giant_requests.py::test_the_settings_of_one_resource_are_changed_in_steps",),
    ),
    PlantedBug(
        "a setting of 32,000 characters costs no more than one of one",
        "controller/config_changes.py",
        "    return 1 if value is None else 1 + len(value) // CHARACTERS_A_UNIT",
        "    return 1",
        ("controller/_tests/test_giant_requests.py::test_long_values_count_by_their_characters",),
    ),
    PlantedBug(
        "elections of topics without partitions are one step",
        "controller/elections.py",
        "        if pace.is_over():  # many may name no partition\n            yield\n    if len(",
        "    if len(",
        ("controller/_tests/test_giant_requests.py::test_elections_that_come_to_nothing_take_steps",),
    ),
    PlantedBug(
        "reassignments are listed in one step",
        "controller/reassignments.py",
        "            elif pace.is_over():\n                yield\n",
        "",
        ("controller/_tests/test_giant_requests.py::test_reassignments_are_listed_in_steps",),
    ),
    PlantedBug(
        "topics that are to go are counted in one step",
        "controller/topic_deletion.py",
        "    for position, name in enumerate(request.topic_names, 1):\n"
        "        if position % NAMED_A_STEP == 0:\n            yield\n",
        "    for name in request.topic_names:\n",
        ("controller/_tests/test_giant_requests.py::test_topics_that_are_to_go_are_counted_in_steps",),
    ),
    PlantedBug(
        "a description of other quorums is refused in one step",
        "raft/describe.py",
        "            if pace.is_over():\n                yield\n        if pace",
        "            pace.is_over()\n        if pace",
        (
            "controller/_tests/test_giant_requests.py::test_a_description_of_other_quorums_is_refused_in_steps",
        ),
    ),
    PlantedBug(
        "a costly pattern is held against ids in the loop",
        "txn/describe.py",
        "        answers = yield partial(_matches_of, matches, ids)",
        "        answers = _matches_of(matches, ids)",
        ("txn/_tests/test_describe.py::test_a_long_id_is_matched_alone",),
    ),
    PlantedBug(
        "all transactions are listed in one step",
        "txn/describe.py",
        "        if start:\n            yield None\n        some = [",
        "        some = [",
        (
            "txn/_tests/test_describe.py::test_many_ids_are_listed_in_steps_and_matched_in_a_thread_few_at_a_time",
        ),
    ),
    PlantedBug(
        "one job matches ids of any length",
        "txn/describe.py",
        " and (not count or characters < MATCHED_AT_ONCE_CHARACTERS)",
        "",
        ("txn/_tests/test_describe.py::test_a_long_id_is_matched_alone",),
    ),
)
