"""The assignor "uniform": members get equally many partitions and keep as many as possible of those that they have.

Balance comes before stickiness.
"""

from __future__ import annotations

from collections.abc import Generator

from kafkacompat.group.consumer.assignor import Assignment, GroupSpec
from kafkacompat.group.consumer.uniform_heterogeneous import assign_heterogeneous
from kafkacompat.group.consumer.uniform_homogeneous import assign_homogeneous

NAME = "uniform"


def assign(spec: GroupSpec) -> Generator[int, None, dict[str, Assignment]]:
    """Return the target assignment by member id. Yields as described in the module `assignor`."""
    return assign_homogeneous(spec) if spec.homogeneous else assign_heterogeneous(spec)
