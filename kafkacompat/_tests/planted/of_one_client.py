"""Bugs to plant in what one client can do to all others: hold up the loop with few bytes."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

BUGS = (
    PlantedBug(
        "a large frame is cleared and copied again each time its buffer has doubled",
        "net/receive_buffer.py",
        "if capacity > DOUBLED_BYTES_MAX else capacity, waiting",
        "if False else capacity, waiting",
        ("net/_tests/test_receive_buffer.py",),
    ),
    PlantedBug(
        "records of one byte are read as long as there is room for them",
        "net/tls_socket.py",
        "if given >= RECEIVED_AT_ONCE_BYTES and (got - before) * DATA_SHARE < given:",
        "if False:",
        ("net/_tests/test_tls.py",),
    ),
    PlantedBug(
        "a client may update the keys of its TLS connection for ever",
        "net/tls_socket.py",
        "if (got - before) * LEAST_DATA_SHARE < given:",
        "if False:",
        ("net/_tests/test_tls.py::test_messages_of_tls_s_own_without_data_end_the_connection",),
    ),
    PlantedBug(
        "packed bytes cost the same with every codec",
        "records/validate.py",
        "    cost = len(packed) * codecs.UNPACKING_COST[codec]\n",
        "    cost = len(packed)\n",
        ("records/_tests/test_bombs.py",),
    ),
    PlantedBug(
        "a small body is packed in the loop, however slow its level",
        "records/validate.py",
        "            cost *= codecs.packing_cost(target, level_of(target, config))\n",
        "            pass\n",
        ("records/_tests/test_bombs.py::test_slow_levels_pack_in_a_thread",),
    ),
    PlantedBug(
        "a body of 256 MiB is copied before it is found to be too large",
        "records/judge.py",
        "    if target == codecs.NONE and HEADER_SIZE + len(body) > config.max_message_bytes:",
        "    if False:",
        (
            "records/_tests/test_bombs.py::test_what_would_be_too_large_unpacked_is_refused_before_it_is_copied",
        ),
    ),
    PlantedBug(
        "a push of a client's metrics is unpacked however long that takes",
        "telemetry/otlp.py",
        "        if len(metrics) * UNPACKING_COST.get(codec, 0) > PACKED_BYTES_MAX:",
        "        if False:",
        ("telemetry/_tests/test_otlp.py",),
    ),
    PlantedBug(
        "a fetch session of half a million partitions goes in one step",
        "partition/fetch.py",
        "        sessions.free = freeing.free\n",
        "",
        ("api/_tests/test_long_fetches.py",),
    ),
    PlantedBug(
        "the collector looks at a million young objects in one pass",
        "server/garbage.py",
        "THRESHOLDS = (30_000, 2, 600)",
        "THRESHOLDS = (50_000, 20, 50)",
        ("server/_tests/test_garbage.py::test_a_pass_looks_at_no_more_than_takes_a_moment",),
    ),
    PlantedBug(
        "the results of half a million quotas are told in one step",
        "controller/client_quotas.py",
        "        if number % TOLD_A_STEP == 0:\n            yield\n",
        "",
        ("controller/_tests/test_long_commands.py",),
    ),
    PlantedBug(
        "the refusals of half a million users are told in one step",
        "controller/scram_credentials.py",
        "        if number % TOLD_A_STEP == 0:\n            yield\n",
        "",
        ("controller/_tests/test_long_commands.py",),
    ),
    PlantedBug(
        "the topics of a question for reassignments are listed in one step",
        "controller/reassignments.py",
        "        wanted = ((topic.name, topic.partition_indexes) for topic in request.topics)",
        "        wanted = [(topic.name, topic.partition_indexes) for topic in request.topics]",
        ("controller/_tests/test_long_commands.py",),
    ),
    PlantedBug(
        "a fetch session is emptied while a fetch uses it",
        "partition/sessions.py",
        "            finalize(session, self.free, session.partitions).atexit = False\n",
        "            self.free(session.partitions)\n",
        (
            "api/_tests/test_long_fetches.py::test_a_session_that_is_dropped_while_a_fetch_uses_it_stays_whole",
        ),
    ),
)
