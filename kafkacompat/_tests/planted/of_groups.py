"""Bugs to plant in groups and what their coordinator keeps of them."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

BUGS = (
    PlantedBug(
        "a full disk fills the log with each commit that it refuses",
        "coordinator/shard_log.py",
        "        if error is not ErrorCode.NONE and error is not self._told:",
        "        if error is not ErrorCode.NONE:",
        ("coordinator/_tests/test_offsets.py",),
    ),
    PlantedBug(
        "a group is dropped when the wait for its first record fails",
        "group/classic/join.py",
        "        if group.state is _S.DEAD:\n            end_group(env, group, error, at_ms)",
        "        if True:\n            env.groups.pop(group.group_id, None)",
        ("coordinator/_tests/test_waits_that_fail.py", "coordinator/_tests/test_runtime.py"),
    ),
    PlantedBug(
        "what a failed wait leaves in doubt is shown",
        "coordinator/shard_log.py",
        "self._doubtful_end = -1 if finished.result() is ErrorCode.NONE else end_offset",
        "self._doubtful_end = -1",
        ("coordinator/_tests/test_waits_that_fail.py",),
    ),
    PlantedBug(
        "what a coordinator says out of its state does not wait for replicas",
        "coordinator/shard.py",
        "        else:\n            pending = self._log.when_all_committed()",
        "        else:\n            pending = None",
        ("coordinator/_tests/test_answers_without_records.py",),
    ),
    PlantedBug(
        "timers of groups are kept by the group's name",
        "group/environment.py",
        'return ("join", group)',
        'return ("join", group.group_id)',
        ("coordinator/_tests/test_waits_that_fail.py",),
    ),
    PlantedBug(
        "offsets that are kept for ever expire later than a record can tell",
        "group/commit.py",
        "min(now_ms + retention_ms, END_OF_TIME_MS)",
        "now_ms + retention_ms",
        ("coordinator/_tests/test_offsets.py",),
    ),
    PlantedBug(
        "a group whose expiry raises keeps the others",
        "group/retention.py",
        '        except Exception as error:\n            report(f"the expiry of',
        '        except ArithmeticError as error:\n            report(f"the expiry of',
        ("coordinator/_tests/test_steps.py::test_one_group_that_cannot_be_judged_does_not_keep_the_others",),
    ),
    PlantedBug(
        "a member that waited for its plan beyond its session never expires",
        "group/classic/rebalance.py",
        "        if env.reply(waiter, response):\n",
        "        if env.reply(waiter, response) and False:\n",
        (
            "coordinator/_tests/test_sync_heartbeat_leave.py::test_a_member_that_waited_for_its_plan_for_longer_than_its_session_has_a_session_from_then_on",
        ),
    ),
    PlantedBug(
        "offsets with a retention of their own expire at once",
        "group/commit.py",
        "now_ms + retention_ms",
        "retention_ms",
        (
            "coordinator/_tests/test_offsets.py::test_a_retention_that_the_commit_states_counts_from_the_commit",
        ),
    ),
    PlantedBug(
        "a producer without a generation commits for any member of a transaction",
        "group/classic/classic_group.py",
        "        if member_epoch < 0 and self.state is ClassicGroupState.EMPTY:\n            return\n",
        "        if member_epoch < 0 and (is_transactional or self.state is ClassicGroupState.EMPTY):\n            return\n",
        ("group/_tests/test_transactional_commit.py",),
    ),
    PlantedBug(
        "a group goes though somebody was given an id to join it",
        "group/retention.py",
        "            or (isinstance(group, ClassicGroup) and group.pending_join)\n",
        "",
        (
            "coordinator/_tests/test_offsets.py::test_a_group_to_which_somebody_was_given_an_id_is_not_forgotten",
        ),
    ),
    PlantedBug(
        "an expired offset takes the one of an open transaction along",
        "group/retention.py",
        "    if machine.offsets.is_pending(place.group_id, place.topic, place.partition):\n        return ()\n",
        "",
        (
            "coordinator/_tests/test_runtime.py::test_an_offset_past_its_retention_stays_while_a_transaction_writes_another",
        ),
    ),
    PlantedBug(
        "a join that finds no coordinator is told its member id",
        "coordinator/classic_calls.py",
        'join_refusal("", refusal.code)',
        "join_refusal(request.member_id, refusal.code)",
        ("coordinator/_tests/test_runtime.py",),
    ),
    PlantedBug(
        "the offset of whichever transaction ends last counts",
        "group/offsets.py",
        "if existing is None or value.record_offset > existing.record_offset:",
        "if True:",
        ("group/_tests/test_offset_store.py",),
    ),
    PlantedBug(
        "an offset that was deleted comes back when a transaction ends",
        "group/offsets.py",
        "                _remove(self._pending[open_id], record.group_id, record.topic, record.partition)\n",
        "                pass\n",
        ("group/_tests/test_offset_store.py",),
    ),
    PlantedBug(
        "a group is in no transaction once one of several has ended",
        "group/offsets.py",
        "            if not ids:\n",
        "            if True:\n",
        ("group/_tests/test_offset_store.py",),
    ),
    PlantedBug(
        "the offset of one partition takes those of its topic along",
        "group/offsets.py",
        "    if not partitions:\n        del topics[topic]\n",
        "    if True:\n        del topics[topic]\n",
        ("group/_tests/test_offset_store.py",),
    ),
    PlantedBug(
        "a group whose offsets are all gone stays for ever",
        "group/offsets.py",
        "        if not topics:\n            del offsets[group_id]\n",
        "",
        ("group/_tests/test_offset_store.py",),
    ),
    PlantedBug(
        "what is only in a transaction is not deleted with its topic",
        "group/offsets.py",
        "is not None or self.is_pending(group_id, topic, partition)",
        "is not None",
        ("group/_tests/test_offset_store.py",),
    ),
    PlantedBug(
        "a marker is taken by a coordinator that is still loading",
        "coordinator/shard.py",
        '        """Write a marker, and have the machine take or drop what the transaction wrote. Raises Refused."""\n'
        "        self.require_active()\n",
        "",
        ("coordinator/_tests/test_shard.py",),
    ),
    PlantedBug(
        "a coordinator that ends while it waits for what it has loaded serves for ever",
        "coordinator/shard.py",
        '        """Loaded records that an earlier leader did not commit may still be lost."""\n'
        "        if self.state is not ShardState.LOADING:\n"
        "            return\n",
        "",
        ("coordinator/_tests/test_shard.py",),
    ),
    PlantedBug(
        "what follows from a write that has ended is not written",
        "coordinator/shard.py",
        "                self._complete(following, now_ms)\n",
        "                pass\n",
        ("coordinator/_tests/test_shard.py",),
    ),
    PlantedBug(
        "what is due after a load is not written",
        "coordinator/shard.py",
        "            self.write(lambda _: result)\n",
        "            pass\n",
        ("coordinator/_tests/test_shard.py",),
    ),
    PlantedBug(
        "what cannot be encoded is not undone",
        "coordinator/shard.py",
        "            self._undo(result, ErrorCode.UNKNOWN_SERVER_ERROR)\n            raise\n",
        "            raise\n",
        ("coordinator/_tests/test_shard.py",),
    ),
)
