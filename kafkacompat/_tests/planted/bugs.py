"""Bugs to plant: each is a piece of the product, what a careless hand would make of it, and the unit tests that must notice.

A defect that was found by anything is added here as it was, so that no test forgets it. The text to change must occur exactly once
in its module; a test sees to that, and whoever changes the code changes the entry with it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlantedBug:
    name: str
    module: str
    """Below kafkacompat/."""
    right: str
    wrong: str
    tests: tuple[str, ...]
    """What is run, below kafkacompat/, a file or FILE::TEST; one of them must fail."""


BUGS = (
    # Transactions
    PlantedBug(
        "a produce's verification is not handed to the log",
        "api/transactional_produce.py",
        "TransactionTerms(verification)",
        "TransactionTerms()",
        ("api/_tests/test_produce.py",),
    ),
    PlantedBug(
        "a verification of offsets is not handed to the log",
        "coordinator/shard.py",
        "TransactionTerms(owner.verification)",
        "TransactionTerms()",
        ("coordinator/_tests/test_transactional_offsets.py",),
    ),
    PlantedBug(
        "a group's marker is written without its version",
        "coordinator/shard.py",
        "TransactionTerms(marker_version=version)",
        "TransactionTerms()",
        ("coordinator/_tests/test_transactional_offsets.py",),
    ),
    PlantedBug(
        "a data marker is written without its version",
        "coordinator/marker_writer.py",
        "TransactionTerms(marker_version=marker.transaction_version)",
        "TransactionTerms()",
        ("coordinator/_tests/test_markers.py",),
    ),
    PlantedBug(
        "a data marker is written with coordinator epoch 0",
        "coordinator/marker_writer.py",
        "            coordinator_epoch=marker.coordinator_epoch,\n            producer_id",
        "            coordinator_epoch=0,\n            producer_id",
        ("coordinator/_tests/test_markers.py",),
    ),
    PlantedBug(
        "markers are sent with coordinator epoch 0",
        "coordinator/marker_sender.py",
        "coordinator_epoch=self.coordinator_epoch",
        "coordinator_epoch=0",
        ("coordinator/_tests/test_transactions.py",),
    ),
    PlantedBug(
        "markers are answered without waiting for the replicas",
        "coordinator/marker_writer.py",
        "if replicated is not None:",
        "if False:",
        ("coordinator/_tests/test_markers.py",),
    ),
    PlantedBug(
        "markers in a group's partition are not waited for",
        "coordinator/marker_writer.py",
        "        if ended.done:\n            done(ended)",
        "        if True:\n            answer.error_code = ErrorCode.NONE",
        ("coordinator/_tests/test_markers.py",),
    ),
    PlantedBug(
        "one transaction that cannot be aborted keeps the others",
        "coordinator/transaction_sweeps.py",
        '        except Exception as error:\n            report(f"aborting',
        '        except ArithmeticError as error:\n            report(f"aborting',
        ("coordinator/_tests/test_transaction_sweeps.py",),
    ),
    # Answers
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
    # The ISR, brokers, controllers
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
        "sessions of brokers never end",
        "controller/sessions.py",
        "return contact_ms + self._timeout_ms < now_ms",
        "return False",
        ("controller/_tests/test_broker_requests.py", "controller/_tests/test_sessions.py"),
    ),
    PlantedBug(
        "a broker that is gone goes on to lead",
        "controller/sessions.py",
        "replace(brokers[broker_id], fenced=True)",
        "brokers[broker_id]",
        ("controller/_tests/test_service.py",),
    ),
    PlantedBug(
        "a controlled shutdown moves no leader",
        "controller/brokers.py",
        "    left = yield from _leave(image, settings, broker_id)\n    return Result((*records, *left), None)",
        "    yield from ()\n    return Result(tuple(records), None)",
        ("controller/_tests/test_heartbeats.py",),
    ),
    PlantedBug(
        "a broker is forgotten though its fencing could not be written",
        "controller/liveness.py",
        "            if not is_written:",
        "            if False:",
        ("controller/_tests/test_controller_faults.py",),
    ),
    PlantedBug(
        "a broker is taken for gone at an address that the controller never reached",
        "controller/reach.py",
        "return address if address in self._reached else None",
        "return address",
        (
            "controller/_tests/test_service.py::test_an_address_that_the_controller_never_reached_fences_nobody",
        ),
    ),
    PlantedBug(
        "preferred elections that are not done go on after the whole interval",
        "controller/liveness.py",
        "AT_ONCE_MS if more else interval_ms",
        "interval_ms",
        ("controller/_tests/test_controller_faults.py",),
    ),
    PlantedBug(
        "an unexpected error in a half-done step of the quorum is passed over",
        "raft/event_pump.py",
        "            call()\n        except Exception as problem:\n            self.halt(problem)",
        "            call()\n        except Exception:\n            pass",
        ("raft/_tests/test_faults.py::test_what_a_call_from_outside_of_a_step_raises_halts_the_node",),
    ),
    PlantedBug(
        "a failed sync counts as want of room where the quorum's log gets shorter",
        "raft/metadata_log.py",
        "if error.errno not in NO_ROOM or isinstance(error, (SyncFailed, HalfDone)):",
        "if error.errno not in NO_ROOM:",
        ("raft/_tests/test_files.py",),
    ),
    PlantedBug(
        "one transactional id that cannot be forgotten keeps all behind it",
        "coordinator/transaction_sweeps.py",
        'report("looking for unused transactional ids", error)',
        "raise",
        ("coordinator/_tests/test_transaction_sweeps.py",),
    ),
    PlantedBug(
        "a failed sync of the quorum's log counts as a full disk",
        "raft/room.py",
        "if isinstance(error, SyncFailed) or error.errno not in NO_ROOM:",
        "if error.errno not in NO_ROOM:",
        ("raft/_tests/test_quorum_driver.py::test_quorum_state_that_could_not_be_synced_halts",),
    ),
    # Logs
    PlantedBug(
        "a name is given again while checkpoints speak of its last log",
        "log/checkpointing.py",
        "if said > 0 and (log is None or said > offset_of(log)):",
        "if said > 0 and log is not None and said > offset_of(log):",
        ("log/_tests/test_identity.py",),
    ),
    PlantedBug(
        "a sync that follows a failed one succeeds",
        "log/flush.py",
        "            if self.failure is not None:\n                raise",
        "            if False:\n                raise",
        ("log/_tests/test_syncs.py",),
    ),
    PlantedBug(
        "a new log's directory entry is not synced before it is used",
        "log/flush.py",
        "parents[parent] = _failure_of(flush.sync_parent)",
        "parents[parent] = None",
        ("log/_tests/test_identity.py",),
    ),
    PlantedBug(
        "the mark of a clean stop comes back after a power loss",
        "log/directory.py",
        "        self._disk.sync_directory(self.path)\n        return epoch",
        "        return epoch",
        ("log/_tests/test_identity.py",),
    ),
    PlantedBug(
        "a checkpoint that is being written counts as not written",
        "log/directory.py",
        "            most = max(most, offsets.get(topic_partition, -1))",
        "            pass",
        ("log/_tests/test_identity.py",),
    ),
    PlantedBug(
        "records are committed in a log that a power loss may take from its topic",
        "log/log.py",
        "if offset > self.high_watermark and self.is_anchored:",
        "if offset > self.high_watermark:",
        ("log/_tests/test_identity.py",),
    ),
    PlantedBug(
        "a log that a kill left new is taken for durable",
        "log/opening.py",
        "not is_new and not has_lost and (clean or recovery_point > 0)",
        "not is_new and not has_lost",
        ("log/_tests/test_identity.py",),
    ),
    PlantedBug(
        "an id whose sync has failed is believed",
        "log/opening.py",
        "if has_lost or (is_new and",
        "if (is_new and",
        ("log/_tests/test_identity.py",),
    ),
    PlantedBug(
        "epochs are not completed from the batches",
        "log/recovery.py",
        "        _complete_epochs(segments, epochs, log_start_offset, log_end_offset)",
        "        pass",
        ("log/_tests/test_identity.py",),
    ),
    PlantedBug(
        "a start believes the page cache after a failed sync",
        "log/recovery.py",
        "        _forget_cached(disk, directory, names, recovery_point)",
        "        pass",
        ("log/_tests/test_syncs.py",),
    ),
    PlantedBug(
        "a recovery point above the log's end vouches for what is there",
        "log/recovery.py",
        "            recovery_point = 0\n            _recover(disk, segments, snapshots, epochs, 0, first_base, note)",
        "            recovery_point = 0",
        ("log/_tests/test_recovery.py",),
    ),
    PlantedBug(
        "the end of a log is not looked at after a clean stop",
        "log/recovery.py",
        "    if clean and segments and unsound is None:",
        "    if False:",
        ("log/_tests/test_damage.py::test_any_byte_of_the_last_batchs_header",),
    ),
    PlantedBug(
        "a sync that fails for want of room is passed over",
        "log/manager.py",
        "if isinstance(error, (SyncFailed, HalfDone)) or not self._says_nothing(error):",
        "if not self._says_nothing(error):",
        ("log/_tests/test_syncs.py",),
    ),
    PlantedBug(
        "a log is made while checkpoints speak of the last one of its name",
        "log/manager.py",
        "return topic_partition not in self._refused and not self.checkpoints.are_stale(topic_partition)",
        "return topic_partition not in self._refused",
        ("log/_tests/test_identity.py",),
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
        "a log that fails keeps the others' producers from expiring",
        "log/upkeep.py",
        '            except Exception as error:\n                report(f"the expiry of producer ids',
        '            except ArithmeticError as error:\n                report(f"the expiry of producer ids',
        ("log/_tests/test_upkeep.py",),
    ),
    # Groups
    PlantedBug(
        "a group is dropped when the wait for its first record fails",
        "group/join.py",
        "        if group.state is _S.DEAD:\n            end_group(env, group, error, at_ms)",
        "        if True:\n            env.groups.pop(group.group_id, None)",
        ("coordinator/_tests/test_waits_that_fail.py", "coordinator/_tests/test_runtime.py"),
    ),
    PlantedBug(
        "what a failed wait leaves in doubt is shown",
        "coordinator/shard.py",
        "self._doubtful_end = -1 if finished.result() is ErrorCode.NONE else end_offset",
        "self._doubtful_end = -1",
        ("coordinator/_tests/test_waits_that_fail.py",),
    ),
    PlantedBug(
        "timers of groups are kept by the group's name",
        "group/environment.py",
        'return ("join", group)',
        'return ("join", group.group_id)',
        ("coordinator/_tests/test_waits_that_fail.py",),
    ),
    PlantedBug(
        "the first requests are answered before the node is unfenced",
        "node/opening.py",
        "        if self.is_open or len(self._held) >= REQUESTS_HELD_MAX:",
        "        if True:",
        ("node/_tests/test_opening.py",),
    ),
)
