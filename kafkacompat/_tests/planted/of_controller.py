"""Bugs to plant in the controller: sessions, elections, what it proposes."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

BUGS = (
    PlantedBug(
        "the last of an ISR without a leader is forgotten by an unclean restart",
        "controller/partition_change_builder.py",
        "elif record.isr == [] and len(partition.isr) == 1:",
        "elif False:",
        ("controller/_tests/test_broker_requests.py",),
    ),
    PlantedBug(
        "sessions of brokers never end",
        "controller/broker_heartbeat_manager.py",
        "return contact_ms + self._timeout_ms < now_ms",
        "return False",
        ("controller/_tests/test_broker_requests.py", "controller/_tests/test_broker_heartbeat_manager.py"),
    ),
    PlantedBug(
        "a broker that is gone goes on to lead",
        "controller/broker_heartbeat_manager.py",
        "replace(brokers[broker_id], fenced=True)",
        "brokers[broker_id]",
        ("controller/_tests/test_service.py",),
    ),
    PlantedBug(
        "a controlled shutdown moves no leader",
        "controller/brokers.py",
        "    left = yield from _leave(image, settings, broker_id)\n    return ControllerResult((*records, *left), None)",
        "    yield from ()\n    return ControllerResult(tuple(records), None)",
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
        "controller/periodic_task_control_manager.py",
        "AT_ONCE_MS if more else interval_ms",
        "interval_ms",
        ("controller/_tests/test_controller_faults.py",),
    ),
    PlantedBug(
        "eligible leader replicas outlive the feature",
        "controller/feature_updates.py",
        "is not (current > 0):",
        "is not (current > 0) and level > 1:",
        ("controller/_tests/test_eligible.py",),
    ),
    PlantedBug(
        "who was eligible before the feature was switched off is elected",
        "controller/partition_change_builder.py",
        "return () if partition.isr else self._staying(partition.eligible_leader_replicas)",
        "return partition.eligible_leader_replicas",
        ("controller/_tests/test_eligible.py",),
    ),
    PlantedBug(
        "another min.insync.replicas forgets who may lead a partition without an ISR",
        "controller/eligible.py",
        "if not partition.isr and (eligible or last_known):",
        "if False:",
        ("controller/_tests/test_eligible.py",),
    ),
    PlantedBug(
        "a last known leader leads a partition that was moved away from it",
        "controller/partition_change_builder.py",
        "            and last_known[0] in replicas\n",
        "",
        ("controller/_tests/test_balance.py",),
    ),
    PlantedBug(
        "an active controller whose disk is full stays the leader",
        "controller/metadata_machine.py",
        "            if quorum.resign_for_room(packed.size_bytes, error):",
        "            if False:",
        (
            "controller/_tests/test_controller_faults.py::test_with_other_voters_a_controller_that_cannot_write_hands_over",
        ),
    ),
    PlantedBug(
        "a broker that is gone is fenced before its session is over",
        "controller/liveness.py",
        "        self._leave(broker_id)\n\n    def _leave",
        "        self._own_decisions.take(lambda: self._fence(broker_id))\n\n    def _leave",
        (
            "controller/_tests/test_service.py::test_a_broker_whose_process_is_gone_when_the_controller_comes_to_power_leads_no_more",
        ),
    ),
    PlantedBug(
        "a subscriber of images that raises keeps those behind it from the image",
        "controller/metadata_machine.py",
        "            subscriber(old, image)\n",
        "            try:\n                subscriber(old, image)\n            except Exception:\n                break\n",
        ("controller/_tests/test_controller_faults.py::test_a_subscriber_that_raises_halts_the_node",),
    ),
    PlantedBug(
        "features are raised though kraft.version is refused beside them",
        "controller/kraft_version_upgrade.py",
        "    if refusal != ErrorCode.NONE:\n        # Before",
        "    if False:\n        # Before",
        ("controller/_tests/test_controller_faults.py::test_features_are_raised_all_or_none",),
    ),
    PlantedBug(
        "an eligible leader is elected while somebody is in sync",
        "controller/partition_change_builder.py",
        "or (not self.target_isr and replica in self._target_elr)",
        "or replica in self._target_elr",
        ("controller/_tests/test_partition_change_builder.py",),
    ),
    PlantedBug(
        "the last known leader leads though somebody is eligible",
        "controller/partition_change_builder.py",
        "            not self._target_elr\n            and not self.target_isr\n",
        "            not self.target_isr\n",
        ("controller/_tests/test_partition_change_builder.py",),
    ),
    PlantedBug(
        "the last known leader leads though somebody is in sync",
        "controller/partition_change_builder.py",
        "            not self._target_elr\n            and not self.target_isr\n",
        "            not self._target_elr\n",
        ("controller/_tests/test_partition_change_builder.py",),
    ),
    PlantedBug(
        "an ISR that grows raises the leader epoch of an older release",
        "controller/partition_change_builder.py",
        "            and record.isr is not None\n            and not set(partition.isr) <= set(record.isr)\n",
        "            and record.isr is not None\n",
        ("controller/_tests/test_partition_change_builder.py",),
    ),
    PlantedBug(
        "directories are told to releases that do not know of them",
        "controller/partition_change_builder.py",
        "            if directories_supported(self.metadata_version) and tuple(directories)",
        "            if tuple(directories)",
        ("controller/_tests/test_partition_change_builder.py",),
    ),
    PlantedBug(
        "the last known leader is another one though it has not led",
        "controller/partition_change_builder.py",
        "        elif self.elr_enabled and not partition.last_known_elr:\n",
        "        elif self.elr_enabled:\n",
        ("controller/_tests/test_partition_change_builder.py",),
    ),
    PlantedBug(
        "node 0 is elected and the last known leader remembered",
        "controller/partition_change_builder.py",
        "        if record.leader >= 0:\n",
        "        if record.leader > 0:\n",
        ("controller/_tests/test_partition_change_builder.py",),
    ),
)
