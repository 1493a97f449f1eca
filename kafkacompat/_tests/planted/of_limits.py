"""Bugs to plant in limits: what one step of the loop, one request or one cache may take."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

BUGS = (
    PlantedBug(
        "markers of very many partitions are written in one step",
        "api/write_txn_markers.py",
        "    if _is_long(request.markers):\n",
        "    if False:\n",
        ("api/_tests/test_pieces.py::test_markers_in_pieces_are_answered_as_in_one",),
    ),
    PlantedBug(
        "a batch of millions of records is opened before anybody counts them",
        "records/validate.py",
        "    if header.record_count > limits.records:",
        "    if False:",
        ("records/_tests/test_bombs.py::test_more_records_than_are_set_are_refused_by_the_header_alone",),
    ),
    PlantedBug(
        "a batch is opened in one step whatever it unfolds to",
        "records/validate.py",
        "    bound = min(limits.unpacked_bytes, allowance.unpacked_bytes)",
        "    bound = limits.unpacked_bytes",
        (
            "records/_tests/test_bombs.py::test_a_record_of_ten_million_headers_is_refused_without_a_look_at_them",
        ),
    ),
    PlantedBug(
        "ten million empty headers are checked in one step",
        "records/validate.py",
        "facts = check_records(body, header.record_count, limits, allowance.units)",
        "facts = check_records(body, header.record_count, limits, 1 << 60)",
        ("records/_tests/test_bombs.py::test_many_headers_in_many_records_take_steps",),
    ),
    PlantedBug(
        "concatenated frames are opened without a bound",
        "records/compression.py",
        "        if self.frames > self.frames_max:",
        "        if False:",
        ("records/_tests/test_bombs.py::test_many_frames_are_refused",),
    ),
    PlantedBug(
        "a compressed body unfolds without a bound",
        "records/compression.py",
        "        if len(self.body) + len(part) > self.bound:",
        "        if False:",
        ("records/_tests/test_compression.py::test_a_body_beyond_the_bound_is_refused_before_it_unfolds",),
    ),
    PlantedBug(
        "requests without records may be as long as those with",
        "net/settings.py",
        '"socket.request.without.records.max.bytes"',
        '"socket.request.max.bytes"',
        ("net/_tests/test_server.py::test_settings_come_from_the_nodes_configuration",),
    ),
    PlantedBug(
        "very many elements are looked at in one step",
        "api/long_requests.py",
        "    if len(elements) > NAMED_A_STEP:\n        return True",
        "    if False:\n        return True",
        ("api/_tests/test_long_requests.py::test_which_of_very_many_are_named_once_is_seen_in_steps",),
    ),
    PlantedBug(
        "more jobs of a duty run than it has threads",
        "net/job_queue.py",
        "if self.running < self.terms.threads_max:",
        "if True:",
        ("net/_tests/test_workers.py::test_every_job_that_is_taken_begins_once_and_in_order",),
    ),
    PlantedBug(
        "jobs wait for a pool without end",
        "net/job_queue.py",
        "if self.terms.waiting_max is not None and len(self._waiting) >= self.terms.waiting_max:",
        "if False:",
        ("net/_tests/test_workers.py::test_reads_are_refused_when_too_many_wait",),
    ),
    PlantedBug(
        "index pages are kept for ever",
        "log/index_cache.py",
        "while len(pages) > self._most:",
        "while False:",
        ("log/_tests/test_index.py::test_it_answers_as_a_list_does",),
    ),
    PlantedBug(
        "a pass of retention looks at all logs in one step",
        "log/retaining.py",
        "range(min(len(self._left), LOGS_AT_ONCE))",
        "range(len(self._left))",
        ("log/_tests/test_upkeep.py::test_a_step_of_retention_looks_at_a_bounded_number_of_logs",),
    ),
    PlantedBug(
        "offsets expire in one piece",
        "coordinator/group_sweeps.py",
        "while stretch := list(islice(items, STRETCH)):",
        "while stretch := list(items):",
        ("coordinator/_tests/test_steps.py::test_expired_offsets_go_in_steps",),
    ),
    PlantedBug(
        "what the controller writes is replayed in one step",
        "controller/metadata_machine.py",
        "            if number:\n                yield\n",
        "            if number:\n",
        ("controller/_tests/test_steps.py::test_a_large_topic_is_made_in_steps_and_as_one_batch",),
    ),
    PlantedBug(
        "a metadata snapshot is made in one step",
        "controller/metadata_machine.py",
        "    while piece := list(islice(records, RECORDS_A_STEP)):\n        yield\n",
        "    while piece := list(islice(records, RECORDS_A_STEP)):\n",
        ("controller/_tests/test_steps.py::test_a_snapshot_is_made_in_steps_while_the_image_goes_on",),
    ),
    PlantedBug(
        "a committed batch is applied in one step",
        "raft/applier.py",
        "                values = []\n                yield\n                count = 0",
        "                values = []\n                count = 0",
        ("raft/_tests/test_faults.py::test_whatever_is_raised_halts_the_node_and_a_restart_breaks_no_rule",),
    ),
    PlantedBug(
        "a work of a coordinator keeps the loop until it is done",
        "stepping/works.py",
        "                if left <= 0:\n                    return True",
        "                if False:\n                    return True",
        ("coordinator/_tests/test_steps.py::test_works_take_turns_and_a_turn_ends_when_it_has_cost_enough",),
    ),
    PlantedBug(
        "a work of a coordinator that raises ends all of them",
        "stepping/works.py",
        "        except Exception as error:\n            report(what, error)",
        "        except ArithmeticError as error:\n            report(what, error)",
        ("coordinator/_tests/test_steps.py::test_a_work_that_raises_is_reported_and_the_others_go_on",),
    ),
    PlantedBug(
        "all connections that are ready have their turns between two looks at the clock",
        "net/poller.py",
        "                if at < len(fds) and monotonic() >= until_s:",
        "                if False:",
        (
            "net/_tests/test_poller.py::test_of_many_that_are_ready_the_loop_does_not_wait_for_all_and_nobody_has_two_turns_before_the_last_has_one",
        ),
    ),
    PlantedBug(
        "the resolver is asked in the loop's thread",
        "net/resolving.py",
        "return await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)",
        "return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)",
        ("net/_tests/test_resolving.py::test_changed_overrides_are_resolved_while_clients_are_served",),
    ),
    PlantedBug(
        "the own name is asked for in the loop's thread",
        "net/resolving.py",
        "return await trio.to_thread.run_sync(socket.getfqdn, abandon_on_cancel=True)",
        "return socket.getfqdn()",
        (
            "net/_tests/test_resolving.py::test_the_own_name_is_asked_for_in_a_thread_and_only_where_one_is_needed",
        ),
    ),
    PlantedBug(
        "damaged indexes are built anew in a step of the loop",
        "log/segment.py",
        "        if self.mend_later is None:",
        "        if True:",
        (
            "log/_tests/test_large_logs.py::test_damaged_indexes_are_built_anew_aside_and_reads_are_refused_until_then",
        ),
    ),
    PlantedBug(
        "retention reads how old segments are in the loop's thread",
        "log/retaining.py",
        "                self._looks.append((log, look))",
        "                look.run()\n                self._looks.append((log, look))",
        (
            "log/_tests/test_large_logs.py::test_retention_reads_the_end_of_one_time_index_a_log_and_nothing_on_the_loop",
        ),
    ),
    PlantedBug(
        "offsets are searched by time in the loop's thread",
        "partition/searches.py",
        "self._workers.submit(lambda begun=begun: _run(begun)).on_done(",
        "self._workers.submit(lambda begun=begun, ran=_run(begun): ran).on_done(",
        ("partition/_tests/test_searches.py",),
    ),
    PlantedBug(
        "the files of a truncation are unlinked in the loop's thread",
        "log/segment_list.py",
        "        if self._delete_later is not None:\n            self._delete_later(paths, delay_ms)\n            return\n",
        "",
        (
            "log/_tests/test_large_logs.py::test_a_truncation_of_many_segments_takes_several_steps_each_of_which_leaves_a_whole_log",
        ),
    ),
    PlantedBug(
        "a cleaning replaces any number of segments in one step",
        "log/cleaner/job.py",
        "            and len(groups[-1]) < GROUPED_AT_ONCE\n",
        "",
        ("log/cleaner/_tests/test_cleaner.py::test_many_small_segments_change_places_in_several_steps",),
    ),
    PlantedBug(
        "a truncation drops any number of segments in one step",
        "log/segment_list.py",
        "        if keep < least and self._delete_later is not None:",
        "        if False:",
        (
            "log/_tests/test_large_logs.py::test_a_truncation_of_many_segments_takes_several_steps_each_of_which_leaves_a_whole_log",
        ),
    ),
    PlantedBug(
        "the quorum's sync waits for whoever makes files",
        "net/workers.py",
        '    pools["log_sync"] = PlacedPools(nursery, TERMS["log_sync"])',
        '    pools["log_sync"] = PlacedPools(nursery, TERMS["log_sync"])\n    pools["quorum_sync"] = pools["files"]',
        ("net/_tests/test_workers.py::test_stuck_jobs_of_a_duty_hold_up_nobody_else",),
    ),
    PlantedBug(
        "others lead the partitions of a broker that is gone in one step",
        "controller/own_decisions.py",
        "            result = yield from command",
        "            from kafkacompat.stepping.jobs import all_steps\n\n            result = all_steps(command)",
        (
            "controller/_tests/test_steps.py::test_others_lead_many_partitions_of_a_broker_that_is_gone_in_steps",
        ),
    ),
)
