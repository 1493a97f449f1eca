"""Bugs to plant in the metrics: what is counted, what a scrape shows, and what it costs others."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

BUGS = (
    PlantedBug(
        "a family of many series is rendered in one piece",
        "metrics/rendering.py",
        "        if len(piece) >= SAMPLES_A_PIECE:\n",
        "        if False:\n",
        ("metrics/_tests/test_rendering.py",),
    ),
    PlantedBug(
        "every piece of a family has its header",
        "metrics/rendering.py",
        "            piece, is_first = [], False\n",
        "            piece = []\n",
        ("metrics/_tests/test_rendering.py",),
    ),
    PlantedBug(
        "a client that sends no request keeps its connection",
        "metrics/endpoint.py",
        "        with trio.move_on_after(HEAD_S):\n",
        "        with trio.CancelScope():\n",
        ("metrics/_tests/test_endpoint.py::test_a_client_that_sends_nothing_is_let_go",),
    ),
    PlantedBug(
        "a request's head may have any size",
        "metrics/endpoint.py",
        "        if len(head) > HEAD_BYTES_MAX:\n",
        "        if False:\n",
        ("metrics/_tests/test_endpoint.py::test_other_paths_and_requests_are_refused",),
    ),
    PlantedBug(
        "a node that stops is ready",
        "server/node_metrics.py",
        "        if self.is_stopping:\n",
        "        if False:\n",
        ("server/_tests/test_node_metrics.py::test_ready_follows_the_broker_s_state",),
    ),
    PlantedBug(
        "a deleted topic takes its counts out of the sums",
        "partition/traffic.py",
        "            self._ended.add(traffic)\n",
        "            pass\n",
        ("server/_tests/test_node_metrics.py::test_the_sums_keep_what_a_deleted_topic_had",),
    ),
    PlantedBug(
        "a fetch of a consumer that left out its replica state is not answered",
        "api/meters.py",
        "(state is not None and state.replica_id >= 0)",
        "state.replica_id >= 0",
        ("api/_tests/test_meters.py::test_a_fetch_is_counted_by_who_fetches",),
    ),
    PlantedBug(
        "the errors of answers that are encoded in steps are not counted",
        "api/long_requests.py",
        "    if route.meter is not None:\n        yield from route.meter.count_in_steps(answer)\n",
        "",
        ("server/_tests/test_node_metrics.py::test_requests_are_counted_by_api_and_version",),
    ),
    PlantedBug(
        "the time of a busy API is taken for every request",
        "api/meters.py",
        "            self.mask = ONE_IN - 1\n",
        "            pass\n",
        ("api/_tests/test_meters.py::test_all_of_the_first_are_timed_and_then_one_in_eight",),
    ),
    PlantedBug(
        "a reply that was waited for is never said to be sent",
        "net/replies.py",
        "            if timings is not None:\n                timings.sent(len(self.waiting))\n        except",
        "        except",
        ("net/_tests/test_timings.py::test_a_reply_that_comes_later",),
    ),
    PlantedBug(
        "a client that comes again after its connection has closed is still throttled",
        "telemetry/client_metrics_manager.py",
        "        if instance is None or instance.has_left or instance.version < self._version:",
        "        if instance is None or instance.version < self._version:",
        ("telemetry/_tests/test_client_metrics_manager.py",),
    ),
    PlantedBug(
        "the last metrics of a client go with its connection",
        "telemetry/client_metrics_manager.py",
        "            instance.has_left = True",
        "            self._forget(instance.id)",
        ("telemetry/_tests/test_client_metrics_manager.py",),
    ),
    PlantedBug(
        "the id of a subscription depends on the order of the metrics in its setting",
        "telemetry/client_metrics_manager.py",
        "tuple(in_hash_order(wanted))",
        "tuple(wanted)",
        ("telemetry/_tests/test_hash_order.py",),
    ),
    PlantedBug(
        "the software of a client that has not told it is empty",
        "api/telemetry.py",
        "software or UNKNOWN",
        "software",
        ("api/_tests/test_telemetry.py",),
    ),
    PlantedBug(
        "a total whose client does not say that it only grows is shown under another name",
        "telemetry/otlp.py",
        "metric.sum.is_monotonic or told.endswith(COUNTER_SUFFIX)",
        "metric.sum.is_monotonic",
        ("telemetry/_tests/test_otlp.py",),
    ),
    PlantedBug(
        "what waited as long as it may is not counted",
        "partition/delayed_operations.py",
        "self.expirations += waiter.awaited",
        "self.expirations += 0",
        ("partition/_tests/test_delayed_operations.py", "server/_tests/test_node_metrics.py"),
    ),
    PlantedBug(
        "all that a client pushes is read",
        "telemetry/otlp.py",
        "        self._left -= 1\n        return self._left <= 0\n",
        "        return False\n",
        ("telemetry/_tests/test_otlp.py",),
    ),
)
