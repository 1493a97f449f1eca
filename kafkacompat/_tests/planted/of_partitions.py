"""Bugs to plant in partitions: leadership, the ISR, followers, fetches."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

BUGS = (
    PlantedBug(
        "records wait for a replica whose broker has been fenced",
        "partition/hosted_partitions.py",
        "        if old.brokers is not new.brokers:\n            self._waiting.begin(self.advance_if_waiting)\n",
        "",
        ("partition/_tests/test_replica_manager.py",),
    ),
    PlantedBug(
        "a leader that begins while lagging replicas are looked for is watched by nobody",
        "partition/replication.py",
        "    def _check_later(self) -> None:\n        self._leads = True\n",
        "    def _check_later(self) -> None:\n",
        ("partition/_tests/test_replication.py::test_a_leader_that_begins_during_a_look_is_looked_at_later",),
    ),
    PlantedBug(
        "all led partitions are looked at in one step",
        "partition/round.py",
        "                yield\n",
        "                yield from ()\n",
        (
            "partition/_tests/test_replication.py::test_lagging_replicas_are_looked_for_a_few_partitions_at_a_time",
        ),
    ),
    PlantedBug(
        "the end of a look at led partitions that failed is not noticed",
        "partition/round.py",
        "            self._fail(problem)\n",
        "            pass\n",
        ("partition/_tests/test_replication.py::test_a_look_that_fails_halts_the_node",),
    ),
    PlantedBug(
        "ISR changes behind withdrawn ones wait for the next proposal",
        "partition/alter_partition_manager.py",
        "        while self._unsent and not sent:\n",
        "        if self._unsent:\n",
        ("partition/_tests/test_alter_partition_manager.py",),
    ),
    PlantedBug(
        "a leader that was alone does not watch the replicas that it gets",
        "partition/hosted_partitions.py",
        "        if changed or (was_alone and not core.alone):\n",
        "        if changed:\n",
        ("partition/_tests/test_replication.py",),
    ),
    PlantedBug(
        "records wait for a replica whose joining has been refused",
        "partition/replication.py",
        "outcome is Altered.COMMITTED or outcome is Altered.REJECTED",
        "outcome is Altered.COMMITTED",
        ("partition/_tests/test_replication.py",),
    ),
    PlantedBug(
        "a repeated batch waits for a replica that stands still",
        "partition/replica_manager.py",
        "        elif core.maybe_increment_leader_high_watermark(self._clock.monotonic_ms()):\n",
        "        elif False:\n",
        ("partition/_tests/test_replica_manager.py",),
    ),
    PlantedBug(
        "a topic made on a full disk is never opened",
        "partition/hosted_partitions.py",
        "                self._arrivals.add_short(name, topic_id, image)\n",
        "                pass\n",
        ("partition/_tests/test_refusals.py",),
    ),
    PlantedBug(
        "of the topics made on a full disk one comes back at a look",
        "partition/arrivals.py",
        "        if name == self._tried and name not in self._short:\n",
        "        if False:\n",
        ("partition/_tests/test_refusals.py",),
    ),
    PlantedBug(
        "a log that was there at the start keeps the node's settings",
        "partition/hosted_partitions.py",
        "                if log.config is not config:\n",
        "                if False:\n",
        ("partition/_tests/test_replica_manager.py",),
    ),
    PlantedBug(
        "whoever is left alone in the ISR commits before a raised min.insync.replicas is known",
        "partition/hosted_partitions.py",
        "        reconfigured = [] if old.configs is new.configs else self._reconfigure(old, new)\n"
        "        if old.topics_by_id is not new.topics_by_id:\n"
        "            self._opened = 0\n"
        "            self.changes.begin()\n"
        "            self._follow(old, new)\n",
        "        if old.topics_by_id is not new.topics_by_id:\n"
        "            self._opened = 0\n"
        "            self.changes.begin()\n"
        "            self._follow(old, new)\n"
        "        reconfigured = [] if old.configs is new.configs else self._reconfigure(old, new)\n",
        ("partition/_tests/test_replica_manager.py",),
    ),
    PlantedBug(
        "a partition that waits for its settings takes a role before them",
        "partition/hosted_partitions.py",
        "                self.reconfiguring.first(core)\n",
        "                pass\n",
        ("partition/_tests/test_reconfiguring.py",),
    ),
    PlantedBug(
        "a partition that waits for its settings commits by an ISR that the controller accepted by them",
        "partition/replication.py",
        "        self._hosted.reconfiguring.first(core)\n",
        "",
        ("partition/_tests/test_reconfiguring.py",),
    ),
    PlantedBug(
        "a deposed leader commits by a min.insync.replicas lowered under its successor",
        "partition/hosted_partitions.py",
        "        return self.reconfiguring.begin(cores)\n",
        "        for core in self.reconfiguring.begin(cores):\n"
        "            core.maybe_increment_leader_high_watermark(0)\n"
        "        return ()\n",
        ("partition/_tests/test_replica_manager.py",),
    ),
    PlantedBug(
        "a produce that is not replicated is not told that its time is up",
        "partition/produce_purgatory.py",
        "    def expire(self) -> None:\n        self.answer.resolve(",
        "    def expire(self) -> None:\n        if len(self.errors) == len(self.ends):\n          self.answer.resolve(",
        ("partition/_tests/test_replica_manager.py",),
    ),
    PlantedBug(
        "a log that a kill left reads as empty until it is durable",
        "partition/fetch_reads.py",
        "if error is NONE and core.cannot_be_read_yet():",
        "if False:",
        ("partition/_tests/test_anchoring.py",),
    ),
    PlantedBug(
        "a log that a kill left tells of its offsets before it is durable",
        "partition/replica_manager.py",
        "and replica_id < 0 and core.cannot_be_read_yet():",
        "and False:",
        ("partition/_tests/test_anchoring.py",),
    ),
    PlantedBug(
        "a log that a kill left reads as empty between another sync and its anchoring",
        "partition/core.py",
        "return self.is_being_anchored and",
        "return not self.log.is_anchored and",
        ("partition/_tests/test_anchoring.py",),
    ),
    PlantedBug(
        "an AlterPartition that may have been applied is taken for refused",
        "partition/core.py",
        "if error in REJECTIONS:",
        "if error in REJECTIONS or error in AWAITED:",
        ("partition/_tests/test_isr.py",),
    ),
    PlantedBug(
        "a laggard stays in the ISR",
        "partition/core.py",
        "and follower.is_caught_up(end, now_ms, lag_ms)\n            )",
        "and follower is not None\n            )",
        ("partition/_tests/test_isr.py",),
    ),
    PlantedBug(
        "the high watermark does not wait for a follower about to join",
        "partition/core.py",
        "follower.is_caught_up(leader_end, now_ms, standing.lag_time_max_ms)\n                    and",
        "False\n                    and",
        ("partition/_tests/test_isr.py",),
    ),
    PlantedBug(
        "a follower goes on before the checkpoints know what it has cut off",
        "partition/fetchers.py",
        "        self._host.when_true(followed.core).on_done(resume)",
        "        resume(self._host.when_true(followed.core))",
        (
            "partition/_tests/test_replication.py::test_whoever_was_cut_back_fetches_once_its_checkpoints_know",
        ),
    ),
    PlantedBug(
        "a follower that was cut back follows the next leader before the checkpoints know",
        "partition/hosted_partitions.py",
        "return core.log.is_anchored and not core.is_held_back",
        "return core.log.is_anchored",
        ("partition/_tests/test_replication.py",),
    ),
    PlantedBug(
        "a follower that was cut back follows its leader to another address before the checkpoints know",
        "partition/replication.py",
        "                    self._hosted.follow_anew(core)\n",
        "                    self.role_taken(core)\n",
        ("partition/_tests/test_replication.py",),
    ),
    PlantedBug(
        "a follower that was cut back goes on in another directory before the checkpoints know",
        "partition/hosted_partitions.py",
        "        self.follow_anew(core)\n        if core.maybe",
        "        if self._replication is not None and not core.is_leader and self._may_follow(core):\n"
        "            self._replication.role_taken(core)\n        if core.maybe",
        ("partition/_tests/test_replication.py",),
    ),
    PlantedBug(
        "the last known leader begins empty where its log cannot be opened",
        "partition/placement.py",
        "            image.leader != NO_LEADER\n",
        "            True\n",
        ("partition/_tests/test_moves.py",),
    ),
    PlantedBug(
        "the last known leader leads what a move has left behind",
        "partition/placement.py",
        "is_filled = self._is_filled(partition)",
        "is_filled = self._hosted.node_id not in partition.isr",
        ("partition/_tests/test_moves.py",),
    ),
    PlantedBug(
        "a copy is led while the log that it was made from is away",
        "partition/placement.py",
        "                    and (self._is_filled(partition) or not self._logs.may_have(name))\n",
        "",
        ("partition/_tests/test_moves.py",),
    ),
    PlantedBug(
        "an eligible leader begins empty where its log cannot be opened",
        "partition/placement.py",
        "            and node_id not in image.eligible_leader_replicas\n",
        "",
        ("partition/_tests/test_moves.py",),
    ),
    PlantedBug(
        "a leader that was cut back commits before the checkpoints know",
        "partition/core.py",
        "if not self.is_leader or self.is_held_back or not self.has_min_isr():",
        "if not self.is_leader or not self.has_min_isr():",
        ("partition/_tests/test_replication.py",),
    ),
    PlantedBug(
        "a lone leader that was cut back commits before the checkpoints know",
        "partition/core.py",
        "if end <= log.high_watermark or self.is_held_back:",
        "if end <= log.high_watermark:",
        ("partition/_tests/test_replication.py",),
    ),
    PlantedBug(
        "a truncation whose end the disk refused counts as none",
        "partition/followers.py",
        "            if core.log.log_end_offset < asked[0]:",
        "            if False:",
        ("partition/_tests/test_replication.py",),
    ),
    PlantedBug(
        "a log that begins anew and whose end the disk refused counts as it was",
        "partition/fetchers.py",
        "            if core.log.log_end_offset != end:\n                return True",
        "            if False:\n                return True",
        ("partition/_tests/test_replication.py",),
    ),
    PlantedBug(
        "a copy that was cut back goes on before the checkpoints know",
        "partition/moves.py",
        "        if not told.done:\n            move.busy = True",
        "        if note is not None and not told.done:\n            move.busy = True",
        ("partition/_tests/test_moves.py",),
    ),
    PlantedBug(
        "a log in a new directory is not told its high watermark again",
        "partition/followers.py",
        "if not is_full and not followed.is_fresh and now == followed.asked:",
        "if not is_full and now == followed.asked:",
        ("partition/_tests/test_followers.py",),
    ),
    PlantedBug(
        "a parked request that raises keeps the others from their answers",
        "partition/delayed_operations.py",
        "                try:\n                    act(waiter, moved)\n                except Exception as error:",
        "                try:\n                    act(waiter, moved)\n                except ArithmeticError as error:",
        (
            "partition/_tests/test_delayed_operations.py::test_one_that_cannot_be_answered_when_its_partition_moves",
        ),
    ),
    PlantedBug(
        "a parked request that raises at its timeout keeps the others",
        "partition/delayed_operations.py",
        "                try:\n                    waiter.expire()\n                except Exception as error:",
        "                try:\n                    waiter.expire()\n                except ArithmeticError as error:",
        (
            "partition/_tests/test_delayed_operations.py::test_one_that_cannot_be_answered_when_its_time_is_up",
        ),
    ),
    PlantedBug(
        "a fetcher that has met a bug stays busy for ever",
        "partition/fetchers.py",
        "            self._busy = False\n            if not self._closed:\n                self._wake_at(now_ms",
        "            if not self._closed:\n                self._wake_at(now_ms",
        ("partition/_tests/test_replication.py::test_a_follower_that_met_a_bug_asks_its_leader_again",),
    ),
    PlantedBug(
        "an answer of another epoch changes the ISR",
        "partition/core.py",
        "            if leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:",
        "            if False:",
        (
            "partition/_tests/test_isr.py::test_an_answer_of_another_epoch_changes_nothing_until_the_image_tells",
        ),
    ),
    PlantedBug(
        "room for searches is given to as many as waited before",
        "partition/searches.py",
        "            while count and self._rooms:",
        "            while count:",
        ("partition/_tests/test_searches.py::test_whoever_has_room_may_let_others_go_and_come_again",),
    ),
    PlantedBug(
        "thousands who wait for one partition are answered in one step",
        "partition/delayed_operations.py",
        "        if len(waiting) <= self._acted_at_once:",
        "        if True:",
        (
            "partition/_tests/test_delayed_operations.py::test_very_many_are_answered_a_few_a_turn_in_the_order_in_which_they_came",
        ),
    ),
    PlantedBug(
        "what moves again while thousands are looked at is forgotten",
        "partition/delayed_operations.py",
        "            self._walks[key, moved] = True\n",
        "            pass\n",
        (
            "partition/_tests/test_delayed_operations.py::test_what_moves_again_while_very_many_are_looked_at_is_looked_at_once_more_for_all",
        ),
    ),
    PlantedBug(
        "thousands whose time is up are answered in one step",
        "partition/delayed_operations.py",
        "                left -= 1\n",
        "",
        (
            "partition/_tests/test_delayed_operations.py::test_very_many_whose_time_is_up_are_answered_a_few_a_turn",
        ),
    ),
    PlantedBug(
        "an answer that is still being taken brings back a partition that is followed no more",
        "partition/followers.py",
        "                if self.partitions.get(key) is not followed:\n"
        "                    return  # taken out meanwhile, or begun afresh\n",
        "",
        ("partition/_tests/test_followers.py",),
    ),
    PlantedBug(
        "node 0 is a consumer when it fetches",
        "partition/fetch.py",
        "is_follower = parameters.replica_id >= 0",
        "is_follower = parameters.replica_id > 0",
        ("partition/_tests/test_fetch.py",),
    ),
    PlantedBug(
        "node 0's fetches wait among the consumers'",
        "partition/fetch_purgatory.py",
        "return self.followers if parameters.replica_id >= 0 else self.consumers",
        "return self.followers if parameters.replica_id > 0 else self.consumers",
        ("partition/_tests/test_fetch.py",),
    ),
    PlantedBug(
        "node 0 is told the high watermark when it asks where a log ends",
        "partition/lookup.py",
        "    if question.replica_id >= 0:\n        return log.log_end_offset\n",
        "    if question.replica_id > 0:\n        return log.log_end_offset\n",
        ("partition/_tests/test_searches.py",),
    ),
)
