"""Bugs to plant in the pipeline: what a run may go on with."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

BUGS = (
    PlantedBug(
        "an alert is resolved by a window that still fills",
        "pipeline/alerts.py",
        "    over = one.windows[:-1]\n",
        "    over = one.windows\n",
        ("pipeline/_tests/test_alerts.py",),
    ),
    PlantedBug(
        "a rule fires again for late events of a window that was resolved",
        "pipeline/alerts.py",
        "        if before is None and now.start_ms <= one.settled_ms:\n",
        "        if False:\n",
        ("pipeline/_tests/test_alerts.py::test_late_events_of_windows_before_a_change_make_no_other",),
    ),
    PlantedBug(
        "a gap between windows does not begin a rule's duration anew",
        "pipeline/alerts.py",
        "if row and row[-1].end_ms == each.start_ms else",
        "if row else",
        ("pipeline/_tests/test_alerts.py::test_a_good_window_or_a_missing_one_begins_the_duration_anew",),
    ),
    PlantedBug(
        "a batch that is run again goes on from the alerts after it",
        "pipeline/alerting.py",
        "if number < batch)",
        "if number <= batch)",
        ("pipeline/_tests/test_alerting.py::test_a_batch_that_is_run_again_writes_the_same_changes",),
    ),
    PlantedBug(
        "the page shows an alert that was resolved as firing",
        "console/core/views.py",
        "for row in reversed(alerts)}",
        "for row in alerts}",
        ("console/_tests/test_views.py::test_an_alert_fires_until_its_rule_is_resolved",),
    ),
    PlantedBug(
        "the demo's broker takes a port that others may take first",
        "pipeline/demo/plan.py",
        '"PLAINTEXT://127.0.0.1:0,',
        '"PLAINTEXT://127.0.0.1:9092,',
        ("pipeline/_tests/test_demo.py::test_the_broker_finds_its_ports_itself",),
    ),
    PlantedBug(
        "the console tells of a lag that nobody knows any more",
        "console/core/prometheus.py",
        "        if seen is not None and up:\n",
        "        if seen is not None:\n",
        ("console/_tests/test_cluster.py::test_a_broker_that_is_away_has_no_series_but_that_it_is",),
    ),
    PlantedBug(
        "the view of a large cluster is encoded in one piece",
        "console/state.py",
        "DIVIDED_LEVELS = 3",
        "DIVIDED_LEVELS = 0",
        ("console/_tests/test_server.py::test_the_view_of_a_large_cluster_holds_up_nobody_else",),
    ),
    PlantedBug(
        "one topic that cannot be described shows the broker as gone",
        "console/admin.py",
        "                    refused = error\n",
        "                    raise\n",
        (
            "console/_tests/test_admin.py::test_a_topic_that_cannot_be_described_is_hidden_and_the_others_are_seen",
        ),
    ),
    PlantedBug(
        "the console knows the lag of the first groups by name",
        "console/admin.py",
        "        shown = [*known[start:], *known[:start]][:GROUPS_A_LOOK]\n",
        "        shown = known[:GROUPS_A_LOOK]\n",
        ("console/_tests/test_admin.py::test_all_groups_are_asked_about_in_turn",),
    ),
    PlantedBug(
        "a stale handle of a network file system ends the collector",
        "pipeline/collector/disk.py",
        "            handle = self._living(key)\n",
        "            handle = self._handles.get(key)\n",
        ("pipeline/_tests/test_collector_disk.py::test_a_file_whose_handle_went_stale_is_opened_anew",),
    ),
    PlantedBug(
        "a line that was cut passes for the common format",
        "pipeline/jobs/log_formats.py",
        '|(?= [^"]|\\s*+$))((',
        "|)((",
        ("pipeline/_tests/test_log_formats.py::test_a_line_that_was_cut_passes_for_no_shorter_format",),
    ),
    PlantedBug(
        "the clock of one host that is ahead moves everybody's watermark",
        "pipeline/jobs/judging.py",
        '    return records.withColumn("timestamp", F.least("timestamp", F.current_timestamp()))\n',
        "    return records\n",
        ("pipeline/_tests/test_jobs.py::test_a_record_from_the_future_arrived_now",),
    ),
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
