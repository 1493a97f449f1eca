"""Bugs to plant in transactions: their terms, their markers, their coordinator's sweeps."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

BUGS = (
    PlantedBug(
        "a topic that is added to a transaction twice is answered twice",
        "api/add_partitions_to_txn.py",
        "    return (yield from _results(topics, found, version, pace))\n",
        "    return (yield from _all_alike(topics, next(iter(found.values())), version, pace))\n",
        ("api/_tests/test_many_names.py",),
    ),
    PlantedBug(
        "a corrupt first batch does not refuse the whole request",
        "api/produce.py",
        "    if first is FirstBatch.CORRUPT:\n        return (yield",
        "    if first is None:\n        return (yield",
        ("api/_tests/test_produce.py",),
    ),
    PlantedBug(
        "a fetch says that it has no leader epoch by -1 only",
        "api/fetch.py",
        "                max(one.current_leader_epoch, NO_EPOCH),\n",
        "                one.current_leader_epoch,\n",
        ("api/_tests/test_offsets.py",),
    ),
    PlantedBug(
        "a successor keeps the epoch of its predecessor",
        "txn/initialise.py",
        "        return replace(values, epoch=values.epoch + 1, last_producer_epoch=NO_EPOCH)",
        "        return values if values.epoch >= 0 else replace(values, epoch=0, last_producer_epoch=NO_EPOCH)",
        ("txn/_tests/test_initialise.py",),
    ),
    PlantedBug(
        "a produce's verification is not handed to the log",
        "api/transactional_produce.py",
        "TransactionTerms(verification_guard)",
        "TransactionTerms()",
        ("api/_tests/test_produce.py",),
    ),
    PlantedBug(
        "a verification of offsets is not handed to the log",
        "coordinator/shard_log.py",
        "TransactionTerms(owner.verification_guard)",
        "TransactionTerms()",
        ("coordinator/_tests/test_transactional_offsets.py",),
    ),
    PlantedBug(
        "a group's marker is written without its version",
        "coordinator/shard_log.py",
        "TransactionTerms(transaction_version=transaction_version)",
        "TransactionTerms()",
        ("coordinator/_tests/test_transactional_offsets.py",),
    ),
    PlantedBug(
        "a data marker is written without its version",
        "coordinator/marker_writer.py",
        "TransactionTerms(transaction_version=marker.transaction_version)",
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
    PlantedBug(
        "one transactional id that cannot be forgotten keeps all behind it",
        "coordinator/transaction_sweeps.py",
        'report("looking for unused transactional ids", error)',
        "raise",
        ("coordinator/_tests/test_transaction_sweeps.py",),
    ),
    PlantedBug(
        "a transactional batch that lies about its length fails the whole request",
        "api/transactional_produce.py",
        "except BatchCorrupt:",
        "except ZeroDivisionError:",
        ("api/_tests/test_produce.py",),
    ),
    PlantedBug(
        "a fence that is refused stays a step that nobody ends",
        "txn/end.py",
        "    except Refused:\n        transaction.drop_transition()\n        raise",
        "    except Refused:\n        raise",
        (
            "txn/_tests/test_end.py::test_a_fence_for_which_no_id_is_to_be_had_leaves_the_transaction_to_the_next_round",
        ),
    ),
    PlantedBug(
        "a sweep forgets a transactional id that was written since it began",
        "txn/expiry.py",
        "        if machine.transactions.get(transaction.transactional_id) is not transaction:\n            continue",
        "        if False:\n            continue",
        ("txn/_tests/test_end.py::test_an_id_that_was_written_since_a_sweep_began_is_not_forgotten",),
    ),
    PlantedBug(
        "an end of the old protocol takes another epoch",
        "txn/end.py",
        "    else:\n        following = values\n",
        "    else:\n        following = replace(values, epoch=values.epoch + 1)\n",
        (
            "txn/_tests/test_end.py::test_an_end_of_the_old_protocol_changes_no_epoch_and_may_be_asked_for_again",
        ),
    ),
    PlantedBug(
        "a partition that the coordinator's answer leaves out may be written",
        "coordinator/verifier.py",
        "codes.get(each, ErrorCode.UNKNOWN_SERVER_ERROR) for each",
        "codes.get(each, ErrorCode.NONE) for each",
        ("coordinator/_tests/test_transactions.py",),
    ),
    PlantedBug(
        "markers are sent on by whoever is no coordinator any more",
        "coordinator/marker_sender.py",
        "        for sending in self._sendings.pop(shard_partition, {}):\n            sending.cancelled = True\n",
        "        self._sendings.pop(shard_partition, None)\n",
        ("coordinator/_tests/test_marker_sender.py",),
    ),
    PlantedBug(
        "whoever was overtaken in one partition goes on in the others",
        "coordinator/marker_sender.py",
        "                sending.cancelled = True\n"
        "                self._sendings.get(sending.shard_partition, {}).pop(sending, None)\n"
        "                return\n",
        "",
        ("coordinator/_tests/test_marker_sender.py",),
    ),
    PlantedBug(
        "a marker for a partition without a leader is sent to nobody",
        "coordinator/marker_sender.py",
        "        if node_id == NO_LEADER:\n            self._later(sending, part, RETRY_MS)\n        elif",
        "        if",
        ("coordinator/_tests/test_marker_sender.py",),
    ),
    PlantedBug(
        "a marker that could not be sent because of a bug is not sent again",
        "coordinator/marker_sender.py",
        "                self._later(sending, part, WRONG_RETRY_MS)\n\n",
        "\n",
        ("coordinator/_tests/test_marker_sender.py",),
    ),
    PlantedBug(
        "an answer that nobody expects is asked for again at once",
        "coordinator/marker_sender.py",
        "self._later(sending, wrong, WRONG_RETRY_MS)",
        "self._later(sending, wrong, RETRY_MS)",
        ("coordinator/_tests/test_marker_sender.py",),
    ),
)
