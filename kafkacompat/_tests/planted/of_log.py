"""Bugs to plant in logs: their files, starts, checkpoints and syncs."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

BUGS = (
    PlantedBug(
        "a log is cleaned while a copy of it is made, which keeps what the tombstones and markers had ended",
        "log/cleaner/cleaner.py",
        " and name not in manager.futures.logs\n",
        "\n",
        ("log/cleaner/_tests/test_cleaner.py",),
    ),
    PlantedBug(
        "a log whose topic is not to be compacted any more is cleaned to the end, and keeps no record without a key",
        "log/cleaner/cleaner.py",
        "is_served and log.config.compact and",
        "is_served and",
        ("log/cleaner/_tests/test_candidates.py", "log/cleaner/_tests/test_cleaner.py"),
    ),
    PlantedBug(
        "what could not be written whole stays beside the file that it was to replace",
        "log/disk.py",
        "                os.remove(temporary)\n",
        "                pass\n",
        ("log/_tests/test_disk.py",),
    ),
    PlantedBug(
        "a moved log counts for nothing while the disk that it was moved from is full",
        "log/checkpointing.py",
        "            and self._homes.log_in(directory, name) is log\n",
        "",
        ("log/_tests/test_identity.py",),
    ),
    PlantedBug(
        "each try to make a log on a full disk leaves a stray",
        "log/manager.py",
        "                self._disk.rename(path, target)\n                self.doomed",
        "                self.doomed",
        ("partition/_tests/test_refusals.py",),
    ),
    PlantedBug(
        "a full disk is told of without the file",
        "log/disk.py",
        "            error.filename = self.path\n",
        "            pass\n",
        ("log/_tests/test_disk.py",),
    ),
    PlantedBug(
        "what was closed before a kill is synced a minute after the start",
        "log/homes.py",
        "        if log.recovery_point < log.segments[-1].base_offset:",
        "        if False:",
        ("node/_tests/test_periodic.py",),
    ),
    PlantedBug(
        "what a roll has closed is synced a minute later where its snapshot has no room",
        "log/appending.py",
        "            finally:\n                # What is closed",
        "            except ZeroDivisionError:\n                pass\n            else:\n                # What is closed",
        (
            "log/_tests/test_refusals.py::test_what_a_roll_has_closed_is_synced_also_where_its_snapshot_has_no_room",
        ),
    ),
    PlantedBug(
        "what a roll has closed is synced a minute later",
        "log/appending.py",
        "                self._rolled()\n",
        "",
        ("node/_tests/test_periodic.py",),
    ),
    PlantedBug(
        "of two logs of a topic made anew the last one found counts beside one of the former topic",
        "log/start.py",
        "            if name in self.logs and self.logs[name].topic_id != log.topic_id:",
        "            if name in self.logs:",
        ("log/_tests/test_identity.py",),
    ),
    PlantedBug(
        "a copy of a log of a former topic counts for one of the topic made anew",
        "log/start.py",
        "        if log.topic_id != other.topic_id:\n            self._rival_futures",
        "        if False:\n            self._rival_futures",
        ("log/_tests/test_identity.py",),
    ),
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
        "log/appending.py",
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
        "            self._disk.write_atomic(metadata, format_partition_metadata(topic_id))\n",
        "",
        ("log/_tests/test_identity.py",),
    ),
    PlantedBug(
        "epochs are not completed from the batches",
        "log/recovery.py",
        "            _complete_epochs(segments, epochs, self._log_start_offset, self._log_end_offset)",
        "            pass",
        ("log/_tests/test_identity.py",),
    ),
    PlantedBug(
        "a log is made beside the copy of one that is gone with its directory",
        "log/manager.py",
        "            if self._has_copy(directory, topic_partition, topic_id):\n",
        "            if False:\n",
        ("log/_tests/test_future.py::test_where_the_copy_of_a_lost_log_lies_no_other_is_made",),
    ),
    PlantedBug(
        "a prepared log is placed beside the copy of one that is gone with its directory",
        "log/manager.py",
        "                or self.futures.home(name) is directory\n",
        "",
        ("log/_tests/test_future.py::test_where_the_copy_of_a_lost_log_lies_no_other_is_made",),
    ),
    PlantedBug(
        "a truncation cuts a segment before it is durable that those behind it are gone",
        "log/segment_list.py",
        "            self._disk.sync_directory(self.directory)\n",
        "            pass\n",
        (
            "log/_tests/test_recovery.py::test_a_truncation_over_several_segments_leaves_no_hole_when_the_power_goes",
        ),
    ),
    PlantedBug(
        "a start cuts a damaged segment before it takes away what follows",
        "log/segment_recovery.py",
        "    if cut:\n        before_cut()\n    segment.cut(valid)\n",
        "    segment.cut(valid)\n    if cut:\n        before_cut()\n",
        ("log/_tests/test_recovery.py::test_a_start_that_ends_while_it_sets_segments_aside_leaves_no_hole",),
    ),
    PlantedBug(
        "a start believes the epochs in the page cache after a failed sync",
        "log/recovery.py",
        "            self._disk.write_atomic(path, format_epochs(self._epochs.entries))\n",
        "            pass\n",
        ("log/_tests/test_syncs.py::test_the_next_start_writes_anew_the_epochs_that_a_failed_sync_covered",),
    ),
    PlantedBug(
        "the mark of a failed sync goes before the id is durable",
        "log/opening.py",
        "            self._disk.write_atomic(metadata, format_partition_metadata(topic_id))\n",
        "            trust_syncs_again(self._disk, path)\n"
        "            self._disk.write_atomic(metadata, format_partition_metadata(topic_id))\n",
        ("log/_tests/test_syncs.py::test_a_start_after_a_failed_sync_may_be_killed_wherever_it_is",),
    ),
    PlantedBug(
        "a start believes the page cache after a failed sync",
        "log/recovery.py",
        "            _forget_cached(self._disk, self._directory, self._names, self._recovery_point)",
        "            pass",
        ("log/_tests/test_syncs.py",),
    ),
    PlantedBug(
        "a recovery point above the log's end vouches for what is there",
        "log/recovery.py",
        "            self._recovery_point = 0\n            self._recover(0, first_base)",
        "            self._recovery_point = 0",
        ("log/_tests/test_recovery.py",),
    ),
    PlantedBug(
        "the end of a log is not looked at after a clean stop",
        "log/recovery.py",
        "        if clean and segments and unsound is None:",
        "        if False:",
        ("log/_tests/test_damage.py::test_any_byte_of_the_last_batchs_header",),
    ),
    PlantedBug(
        "a sync that fails for want of room is passed over",
        "log/homes.py",
        "if not isinstance(error, OSError) or isinstance(error, (SyncFailed, HalfDone)):",
        "if not isinstance(error, OSError):",
        ("log/_tests/test_syncs.py",),
    ),
    PlantedBug(
        "a log is made while checkpoints speak of the last one of its name",
        "log/homes.py",
        "return topic_partition not in self._refused and not self.checkpoints.are_stale(topic_partition)",
        "return topic_partition not in self._refused",
        ("log/_tests/test_identity.py",),
    ),
    PlantedBug(
        "a log that fails keeps the others' producers from expiring",
        "log/upkeep.py",
        '            except Exception as error:\n                report(f"the expiry of producer ids',
        '            except ArithmeticError as error:\n                report(f"the expiry of producer ids',
        ("log/_tests/test_upkeep.py",),
    ),
    PlantedBug(
        "a load keeps what the checkpoints say of logs that are not there",
        "log/checkpointing.py",
        "return self.plan(*sorted(stale)) if stale else None",
        "return None",
        ("log/_tests/test_identity.py::test_what_a_crash_left_in_the_checkpoints_goes_at_the_start",),
    ),
    PlantedBug(
        "nobody waits for the checkpoints of a log that was cut back",
        "log/checkpointing.py",
        "        if self._is_overstated(log):\n"
        "            self._waiting.append((log, done))\n"
        "            self._homes.on_stale()\n"
        "        else:",
        "        if True:",
        (
            "log/_tests/test_identity.py::test_what_a_truncation_makes_untrue_is_written_before_anybody_goes_on",
        ),
    ),
    PlantedBug(
        "a start offset is kept of the topic that had the name before",
        "log/checkpointing.py",
        "        for file, offset_of in OFFSETS.items():\n            said =",
        "        for file, offset_of in list(OFFSETS.items())[:1]:\n            said =",
        ("log/_tests/test_identity.py::test_no_log_is_made_while_the_disk_does_not_take_the_checkpoints",),
    ),
    PlantedBug(
        "a log without a topic's id is opened as the next topic's of that name",
        "log/start.py",
        "                self._set_unknown_aside(task, task.result)",
        "                pass",
        ("log/_tests/test_identity.py::test_a_log_without_a_topic_id_is_no_topics",),
    ),
    PlantedBug(
        "a log without a topic's id leaves the broker's clean stop in force",
        "log/start.py",
        "            self.previous_broker_epoch = NO_EPOCH\n\n    def settle_rivals",
        "            pass\n\n    def settle_rivals",
        ("log/_tests/test_identity.py::test_a_log_without_a_topic_id_is_no_topics",),
    ),
    PlantedBug(
        "a full disk's error of a sync is forgiven where no other directory is",
        "log/homes.py",
        "return error.errno in SHORTAGES or (error.errno in FULL_ERRORS and self.spares_full())",
        "return error.errno in SHORTAGES or error.errno in FULL_ERRORS",
        ("log/_tests/test_syncs.py::test_a_full_disk_is_read_on_where_nobody_else_has_what_is_in_it",),
    ),
    PlantedBug(
        "a failed sync of the cleaner's files is taken for a stopped cleaning",
        "log/cleaner/cleaner.py",
        "        if isinstance(error, SyncFailed):\n            # Of a disk",
        "        if False:\n            # Of a disk",
        ("log/cleaner/_tests/test_cleaner.py::test_a_cleaning_whose_sync_fails_is_the_directorys_affair",),
    ),
    PlantedBug(
        "a log whose retention raises keeps the others",
        "log/retaining.py",
        "        except Exception as error:\n            report",
        "        except ArithmeticError as error:\n            report",
        ("log/_tests/test_upkeep.py::test_retention_goes_on_past_a_log_that_fails",),
    ),
    PlantedBug(
        "a log that cost the cleaner its process is cleaned again at once",
        "log/cleaner/rests.py",
        "        self._until_ms[log] = now_ms + rest_ms\n",
        "",
        (
            "log/cleaner/_tests/test_process.py::test_a_large_log_whose_process_is_killed_is_never_cleaned_in_the_broker",
        ),
    ),
    PlantedBug(
        "a log that cost the cleaner its process comes back with the same buffers",
        "log/cleaner/rests.py",
        "        losses = self._losses.get(log, 0)\n        return",
        "        losses = 0\n        return",
        ("log/cleaner/_tests/test_rests.py",),
    ),
    PlantedBug(
        "a partition that cannot be opened takes its directory along",
        "log/start.py",
        "if is_of_the_directory(task.result) and not self.is_short(task.result):",
        "if True:",
        ("log/_tests/test_damage.py::test_a_directory_where_a_file_belongs_or_a_file_where_a_directory",),
    ),
    PlantedBug(
        "a directory that refuses a rename halts the node",
        "log/homes.py",
        "        except OSError as error:\n"
        "            self.directory_failed(directory, error)\n"
        "            return None\n"
        "        return target",
        "        except ArithmeticError as error:\n            return None\n        return target",
        ("log/_tests/test_refusals.py::test_one_directory_refuses",),
    ),
    PlantedBug(
        "a log whose process is lost is cleaned in the broker's",
        "log/cleaner/cleaner.py",
        "        if self._needs_process(log, job.segments, job.segments[-1].end_offset):",
        "        if not self._rests.has_lost(log) and self._needs_process(log, job.segments, job.segments[-1].end_offset):",
        (
            "log/cleaner/_tests/test_process.py::test_a_large_log_whose_process_is_killed_is_never_cleaned_in_the_broker",
        ),
    ),
    PlantedBug(
        "after a lost process the next is begun at once for another log",
        "log/cleaner/cleaner.py",
        "        return rests.may_begin_process(now_ms) or not self._needs_process(",
        "        return True or not self._needs_process(",
        ("log/cleaner/_tests/test_process.py::test_small_logs_are_cleaned_while_no_process_is_begun",),
    ),
    PlantedBug(
        "each marker looks for the first unstable offset among all open transactions",
        "log/producer_state.py",
        "        begun = self._begun\n"
        "        while begun and begun[0] not in self._ongoing and begun[0] not in self._unreplicated:\n"
        "            begun.popleft()\n",
        "        begun = sorted({*self._ongoing, *self._unreplicated})\n",
        (
            "log/_tests/test_producer_state.py::test_the_first_unstable_offset_is_found_without_a_look_at_all_open_transactions",
        ),
    ),
    PlantedBug(
        "the stable offset after an abort is looked for among all open transactions",
        "log/producer_state.py",
        "        while self._open and self._open[0] not in self._ongoing:\n"
        "            self._open.popleft()\n"
        "        return self._open[0] if self._open else completed.last_offset + 1",
        "        return min(self._ongoing, default=completed.last_offset + 1)",
        (
            "log/_tests/test_producer_state.py::test_the_first_unstable_offset_is_found_without_a_look_at_all_open_transactions",
        ),
    ),
    PlantedBug(
        "open transactions of a snapshot are not in order",
        "log/producer_state.py",
        "        self._begun.extend(sorted(self._ongoing))",
        "        self._begun.extend(self._ongoing)",
        (
            "log/_tests/test_producer_state.py::test_transactions_of_a_snapshot_are_unstable_in_the_order_of_their_offsets",
        ),
    ),
    PlantedBug(
        "a sync under the name of before makes a moved log durable",
        "log/log.py",
        "        if flush.directory == self.directory:\n            self.is_anchored = True\n",
        "        self.is_anchored = True\n",
        ("log/_tests/test_identity.py",),
    ),
    PlantedBug(
        "a page of an index that was cached before it was whole is believed",
        "log/index.py",
        "if page is None or len(page) < length:",
        "if page is None:",
        ("log/_tests/test_index.py",),
    ),
)
