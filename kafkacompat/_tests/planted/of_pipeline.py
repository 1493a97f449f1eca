"""Bugs to plant in the pipeline: what a run may go on with."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

BUGS = (
    PlantedBug(
        "a checkpoint goes on with other windows than it was begun with",
        "pipeline/manifest.py",
        "        if kept.settings.get(word) != value:",
        "        if word not in kept.settings:",
        ("pipeline/_tests/test_manifest.py::test_another_window_is_refused_by_both_values",),
    ),
    PlantedBug(
        "a checkpoint goes on with the offsets of another cluster",
        "pipeline/manifest.py",
        "    if kept.cluster_id != now.cluster_id:",
        "    if False:",
        ("pipeline/_tests/test_manifest.py::test_another_cluster_job_or_version_is_refused",),
    ),
    PlantedBug(
        "a checkpoint goes on with the offsets of topics made anew",
        "pipeline/manifest.py",
        "        and kept.topic_ids[name] != topic_id",
        "        and False",
        ("pipeline/_tests/test_manifest.py::test_a_topic_made_anew_is_named_unless_a_broker_gives_no_ids",),
    ),
    PlantedBug(
        "the pipeline's topics have one replica",
        "pipeline/topics.py",
        "BROKERS_REPLICATION: Final = -1",
        "BROKERS_REPLICATION: Final = 1",
        ("pipeline/_tests/test_run_command.py::test_all_topics_are_planned_and_read_or_written_by_a_job",),
    ),
    PlantedBug(
        "two runs use one checkpoint at once",
        "pipeline/places.py",
        "            return file.getChannel().tryLock() is not None",
        "            return True",
        ("pipeline/_tests/test_same_run.py",),
    ),
)
