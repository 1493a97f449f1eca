"""Bugs to plant in the metadata quorum: its core, its driver, its files."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

BUGS = (
    PlantedBug(
        "a candidate of the last epoch there is is believed, and nobody can be elected any more",
        "raft/elections.py",
        "if request.candidate.id < 0 or request.epoch > state.epoch + EPOCHS_MISSED_MAX:",
        "if request.candidate.id < 0:",
        ("raft/_tests/test_votes.py",),
    ),
    PlantedBug(
        "a leader of the last epoch there is is believed, and nobody can be elected any more",
        "raft/elections.py",
        "if is_leap or request.leader_id < 0",
        "if request.leader_id < 0",
        ("raft/_tests/test_quorum.py",),
    ),
    PlantedBug(
        "a fetch of the metadata that is too old to be told its leader is not answered",
        "raft/wire_server.py",
        "if api_version < FETCH_LEADER_SINCE:",
        "if False:",
        ("raft/_tests/test_wire_mapping.py",),
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
        "a full disk stops a truncation half way",
        "log/segment.py",
        "            self.rolling_timestamp_ms = None\n        # The index files",
        "            self.rolling_timestamp_ms = None\n        self.write_indexes()\n        # The index files",
        ("raft/_tests/test_files.py",),
    ),
    PlantedBug(
        "a failed sync of the quorum's log counts as a full disk",
        "raft/room.py",
        "if isinstance(error, SyncFailed) or error.errno not in NO_ROOM:",
        "if error.errno not in NO_ROOM:",
        ("raft/_tests/test_quorum_driver.py::test_quorum_state_that_could_not_be_synced_halts",),
    ),
    PlantedBug(
        "a leader without room is elected again before there is any",
        "raft/room.py",
        "        except OSError:\n            self._timers.call_after(LOOK_AGAIN_MS, self._look)\n            return",
        "        except OSError:\n            pass",
        ("raft/_tests/test_room.py::test_there_is_room_again_once_as_much_can_be_written_as_was_refused",),
    ),
    PlantedBug(
        "an error in a step of the quorum is passed over",
        "raft/event_pump.py",
        "            self._carry_out(effects)\n        except Exception as problem:\n            self.halt(problem)",
        "            self._carry_out(effects)\n        except Exception:\n            pass",
        ("raft/_tests/test_faults.py::test_whatever_is_raised_halts_the_node_and_a_restart_breaks_no_rule",),
    ),
    PlantedBug(
        "a call that comes after a step and raises is passed over",
        "raft/event_pump.py",
        "                self._outbox.popleft()()\n        except Exception as problem:\n            self.halt(problem)",
        "                self._outbox.popleft()()\n        except Exception:\n            pass",
        ("raft/_tests/test_faults.py",),
    ),
    PlantedBug(
        "a batch that cannot be replayed is skipped",
        "raft/applier.py",
        "            except StopIteration:",
        "            except Exception:",
        ("raft/_tests/test_faults.py",),
    ),
    PlantedBug(
        "a log goes on above the newest snapshot that is there",
        "raft/quorum_loading.py",
        "        if each != BOOTSTRAP_SNAPSHOT and each.offset < log.log_start_offset:",
        "        if False:",
        (
            "raft/_tests/test_quorum_start.py::test_a_log_that_begins_above_its_newest_snapshot_does_not_start",
        ),
    ),
    PlantedBug(
        "an empty metadata log is begun beside the one that was",
        "raft/storage.py",
        "    _check_metadata_log(disk, directories, metadata_directory)\n",
        "",
        ("raft/_tests/test_files.py",),
    ),
    PlantedBug(
        "the place of a disk that is not mounted is formatted",
        "raft/storage.py",
        "        elif not format_missing:\n",
        "        elif False:\n",
        ("raft/_tests/test_files.py",),
    ),
    PlantedBug(
        "one read-only log directory keeps a node from its start",
        "server/data_directories.py",
        "DirectoryLocks(disk, every, _dispensable(disk, log_dirs, metadata_dir))",
        "DirectoryLocks(disk, every)",
        ("server/_tests/test_directories.py",),
    ),
    PlantedBug(
        "whoever takes a snapshot from a leader is not heard",
        "raft/leading.py",
        "            response.size_bytes = size\n"
        "            state.leader.update_check_quorum_for_following_voter(\n"
        "                request.replica, state.voters.latest, state.check_quorum_ms, state.now_ms\n"
        "            )\n",
        "            response.size_bytes = size\n",
        ("raft/_tests/test_quorum.py",),
    ),
    PlantedBug(
        "a voter that was removed still makes a majority",
        "raft/leader_state.py",
        "            if voter is None or not voters.contains(ReplicaKey(node_id, replica.directory_id)):\n",
        "            if False:\n",
        ("raft/_tests/test_leader_state.py",),
    ),
    PlantedBug(
        "a voter with another disk has what the one of before had",
        "raft/leader_state.py",
        "            if voter is None or not voters.contains(ReplicaKey(node_id, replica.directory_id)):\n",
        "            if voter is None:\n",
        ("raft/_tests/test_leader_state.py",),
    ),
    PlantedBug(
        "an observer makes a majority listen",
        "raft/leader_state.py",
        "        if key.id == self.node_id or not voters.contains(key):\n            return\n",
        "        if key.id == self.node_id:\n            return\n",
        ("raft/_tests/test_leader_state.py",),
    ),
    PlantedBug(
        "who was heard as a voter counts after it is removed",
        "raft/leader_state.py",
        "                self.fetched.discard(node_id)\n",
        "",
        ("raft/_tests/test_leader_state.py",),
    ),
    PlantedBug(
        "observers that have gone are never forgotten",
        "raft/leader_state.py",
        "            self._clear_inactive_observers(now_ms)\n",
        "",
        ("raft/_tests/test_leader_state.py",),
    ),
    PlantedBug(
        "whoever leads a quorum of another cluster is believed",
        "raft/elections.py",
        "    if not has_valid_cluster_id(state, request.cluster_id):\n"
        "        _answer_epoch(state, request_id, ErrorCode.NONE, ErrorCode.INCONSISTENT_CLUSTER_ID)\n"
        "        return False\n",
        "",
        ("raft/_tests/test_peers.py",),
    ),
    PlantedBug(
        "a follower of another cluster is served",
        "raft/leading.py",
        "    if not has_valid_cluster_id(state, request.cluster_id):\n"
        "        response = _build_fetch_response(state, ErrorCode.NONE)\n",
        "    if False:\n        response = _build_fetch_response(state, ErrorCode.NONE)\n",
        ("raft/_tests/test_peers.py",),
    ),
    PlantedBug(
        "a leader whose epoch is over is not told so",
        "raft/elections.py",
        "    if request.epoch < state.epoch:\n"
        "        _answer_epoch(state, request_id, ErrorCode.FENCED_LEADER_EPOCH)\n"
        "        return False\n",
        "",
        ("raft/_tests/test_peers.py",),
    ),
    PlantedBug(
        "node 0 cannot lead",
        "raft/elections.py",
        "    if is_leap or request.leader_id < 0 or",
        "    if is_leap or request.leader_id <= 0 or",
        ("raft/_tests/test_peers.py",),
    ),
    PlantedBug(
        "node 0 is voted for by nobody",
        "raft/elections.py",
        "    if request.candidate.id < 0 or",
        "    if request.candidate.id <= 0 or",
        ("raft/_tests/test_peers.py",),
    ),
    PlantedBug(
        "whoever has an empty log is voted for by nobody",
        "raft/elections.py",
        "request.last_offset < 0 or request.last_epoch < 0 or",
        "request.last_offset < 0 or request.last_epoch <= 0 or",
        ("raft/_tests/test_peers.py",),
    ),
    PlantedBug(
        "a leader takes a diverging follower for one that needs a snapshot",
        "raft/leading.py",
        "        if validity is Validity.DIVERGING:\n",
        "        if False:\n",
        ("raft/_tests/test_peers.py",),
    ),
    PlantedBug(
        "a preferred candidate whose disk was lost stands for election first",
        "raft/elections.py",
        "        if key.id == me.id and key.directory_id in (ZERO_UUID, me.directory_id):\n            if place",
        "        if key.id == me.id:\n            if place",
        ("raft/_tests/test_peers.py",),
    ),
    PlantedBug(
        "a resigned leader repeats itself to whoever has heard it",
        "raft/elections.py",
        "        state.resigned.unacknowledged.remove(node_id)\n",
        "        pass\n",
        ("raft/_tests/test_peers.py",),
    ),
    PlantedBug(
        "a voter that has fallen silent is not told again who leads",
        "raft/leading.py",
        "(last_fetch_ms < 0 or last_fetch_ms <= quiet_since_ms) and",
        "last_fetch_ms < 0 and",
        ("raft/_tests/test_peers.py",),
    ),
    PlantedBug(
        "a fetch that was answered with its records is parked as well",
        "raft/leading.py",
        "                request.max_bytes,\n            )\n        )\n        return True\n",
        "                request.max_bytes,\n            )\n        )\n        return False\n",
        ("raft/_tests/test_peers.py",),
    ),
    PlantedBug(
        "an answer to a fetch after another epoch's records is taken",
        "raft/following.py",
        "request.fetch_offset != state.log.end or request.last_fetched_epoch != state.log.last_epoch:",
        "request.fetch_offset != state.log.end:",
        ("raft/_tests/test_peers.py",),
    ),
)
