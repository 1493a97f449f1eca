"""Bugs to plant in what a leader makes of its followers, of images and of the controller's answers."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

TESTS = ("partition/_tests/test_isr.py",)
BUGS = (
    PlantedBug(
        "what followers had in a former lead counts in the next",
        "partition/core.py",
        "            self.followers.clear()\n            if self.is_leader:",
        "            if self.is_leader:",
        TESTS,
    ),
    PlantedBug(
        "an image older than the controller's answer takes it back",
        "partition/core.py",
        "if image.leader_epoch < self.leader_epoch or image.partition_epoch < self.partition_epoch:",
        "if image.leader_epoch < self.leader_epoch:",
        TESTS,
    ),
    PlantedBug(
        "a replica that has gone is waited for",
        "partition/core.py",
        "            del self.followers[replica]\n",
        "            pass\n",
        TESTS,
    ),
    PlantedBug(
        "a partition that is let go keeps its proposal",
        "partition/core.py",
        "        self.is_leader = self.alone = False\n        self.pending = None\n",
        "        self.is_leader = self.alone = False\n",
        TESTS,
    ),
    PlantedBug(
        "the next change of an ISR builds on the epoch before the last",
        "partition/core.py",
        "            self.isr = isr\n            self.partition_epoch = partition_epoch\n            return Altered.COMMITTED",
        "            self.isr = isr\n            return Altered.COMMITTED",
        TESTS,
    ),
    PlantedBug(
        "who has nothing to fetch falls behind",
        "partition/core.py",
        "follower.last_fetch_ms = follower.last_caught_up_ms = now_ms",
        "follower.last_fetch_ms = now_ms",
        TESTS,
    ),
    PlantedBug(
        "a fetch of nothing new may be of an earlier life",
        "partition/core.py",
        "            or follower.broker_epoch != broker_epoch\n",
        "",
        TESTS,
    ),
    PlantedBug(
        "whoever is out of sync and has nothing to fetch never joins",
        "partition/core.py",
        "            or replica_id not in self.isr\n        ):\n            return False\n        follower.last",
        "        ):\n            return False\n        follower.last",
        TESTS,
    ),
    PlantedBug(
        "a change of an ISR is asked for while another is on its way",
        "partition/core.py",
        "if self.alone or not self.is_leader or self.pending is not None:",
        "if self.alone or not self.is_leader:",
        TESTS,
    ),
    PlantedBug(
        "where a lead begins is not known before something is appended in it",
        "partition/core.py",
        "                self.log.assign_epoch_start(image.leader_epoch, self.epoch_start_offset)\n",
        "",
        ("partition/_tests/test_isr.py",),
    ),
    PlantedBug(
        "the controller is told followers' ids for their epochs",
        "partition/core.py",
        "                self.followers[replica].broker_epoch if replica in self.followers else UNKNOWN_BROKER_EPOCH,\n",
        "                replica if replica in self.followers else UNKNOWN_BROKER_EPOCH,\n",
        ("partition/_tests/test_alter_partition_manager.py",),
    ),
    PlantedBug(
        "the controller is asked to change a partition in its leader's epoch",
        "partition/alter_partition_manager.py",
        "partition_epoch=proposal.partition_epoch,",
        "partition_epoch=proposal.leader_epoch,",
        ("partition/_tests/test_alter_partition_manager.py",),
    ),
)
