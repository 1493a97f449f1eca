"""Each bug to plant still applies to the code. After a rename this test fails at once, not only a run of seeds."""

from __future__ import annotations

import pytest

from kafkacompat.sim._tests import cluster_mutants, mutants
from kafkacompat.sim._tests.cluster_mutants import Plant
from kafkacompat.sim._tests.consumer_group_mutants import CONSUMER_GROUP_MUTANTS
from kafkacompat.sim._tests.disk_mutants import DISK_MUTANTS
from kafkacompat.sim._tests.fault_mutants import FAULT_MUTANTS
from kafkacompat.sim._tests.group_mutants import GROUP_MUTANTS
from kafkacompat.sim._tests.keeping_mutants import KEEPING_MUTANTS
from kafkacompat.sim._tests.life_mutants import LIFE_MUTANTS
from kafkacompat.sim._tests.mirror_mutants import MIRROR_MUTANTS
from kafkacompat.sim._tests.share_group_mutants import SHARE_GROUP_MUTANTS
from kafkacompat.sim._tests.streams_group_mutants import (
    RARE_STREAMS_GROUP_MUTANTS,
    STREAMS_GROUP_MUTANTS,
)
from kafkacompat.sim._tests.tier_mutants import TIER_MUTANTS
from kafkacompat.sim._tests.transaction_mutants import TRANSACTION_MUTANTS

EVERY_MUTANT = (
    *mutants.MUTANTS,
    *cluster_mutants.MUTANTS,
    *DISK_MUTANTS,
    *FAULT_MUTANTS,
    *GROUP_MUTANTS,
    *CONSUMER_GROUP_MUTANTS,
    *KEEPING_MUTANTS,
    *LIFE_MUTANTS,
    *MIRROR_MUTANTS,
    *SHARE_GROUP_MUTANTS,
    *STREAMS_GROUP_MUTANTS,
    *RARE_STREAMS_GROUP_MUTANTS,
    *TIER_MUTANTS,
    *TRANSACTION_MUTANTS,
)


@pytest.mark.parametrize("plant", EVERY_MUTANT, ids=lambda plant: plant.__name__)
def test_a_bug_can_be_planted(plant: Plant) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
