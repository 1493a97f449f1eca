"""All bugs to plant, area by area."""

from __future__ import annotations

from kafkacompat._tests.planted import (
    of_answers,
    of_controller,
    of_giants,
    of_groups,
    of_kerberos,
    of_leaders,
    of_limits,
    of_log,
    of_metrics,
    of_nodes,
    of_one_client,
    of_partitions,
    of_pipeline,
    of_raft,
    of_rights,
    of_security,
    of_share_coordinator,
    of_share_fetches,
    of_share_groups,
    of_share_partitions,
    of_tokens,
    of_transactions,
)

AREAS = (
    of_limits,
    of_one_client,
    of_giants,
    of_pipeline,
    of_leaders,
    of_log,
    of_metrics,
    of_nodes,
    of_raft,
    of_rights,
    of_kerberos,
    of_groups,
    of_transactions,
    of_partitions,
    of_controller,
    of_answers,
    of_security,
    of_share_coordinator,
    of_share_groups,
    of_share_partitions,
    of_share_fetches,
    of_tokens,
)
BUGS = tuple(bug for area in AREAS for bug in area.BUGS)
