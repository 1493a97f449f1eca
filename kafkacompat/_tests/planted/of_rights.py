"""Bugs in who may do what."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

BUGS = (
    PlantedBug(
        "who may describe a topic deletes it while it is being created",
        "api/named_rights.py",
        "    return AclOperation.DELETE, ResourceType.TOPIC, name\n",
        "    operation = AclOperation.DELETE if name in node.image.topics else AclOperation.DESCRIBE\n"
        "    return operation, ResourceType.TOPIC, name\n",
        ("api/_tests/test_rights.py::test_a_topic_that_is_not_there_is_told_to_those_who_may_see_it",),
    ),
    PlantedBug(
        "what is refused reaches the handler all the same",
        "api/named_rights.py",
        "        setattr(request, self.request_field, allowed)\n",
        "",
        ("api/_tests/test_rights.py",),
    ),
    PlantedBug(
        "a fetch session keeps the rights that its first fetch had",
        "partition/fetch_reads.py",
        "        if parameters.may_read is not None and not parameters.may_read(asked.topic):\n            return None\n",
        "",
        ("api/_tests/test_rights.py",),
    ),
    PlantedBug(
        "whoever asks for all topics sees all",
        "api/metadata.py",
        "        if access is not None:\n            all_topics = ",
        "        if access is None:\n            all_topics = ",
        ("api/_tests/test_rights.py",),
    ),
    PlantedBug(
        "one asker is told of another's rights",
        "api/metadata.py",
        "        is_shared = access is None or not operations\n",
        "        is_shared = True\n",
        ("api/_tests/test_rights.py",),
    ),
    PlantedBug(
        "a transaction is judged after its topics",
        "api/produce.py",
        "    if first is FirstBatch.TRANSACTIONAL and not _may_write_transaction(",
        "    if False and not _may_write_transaction(",
        ("api/_tests/test_rights.py",),
    ),
    PlantedBug(
        "a refused part of a produce without a reply goes unnoticed",
        "api/produce_portions.py",
        "        self._failed = bool(hidden)\n",
        "        self._failed = False\n",
        ("api/_tests/test_rights.py",),
    ),
    PlantedBug(
        "rights to a request as a whole are not asked for",
        "api/serve.py",
        "    if route.needs and (access",
        "    if not route.needs and (access",
        ("api/_tests/test_access.py",),
    ),
    PlantedBug(
        "what would be appended is taken for the whole list",
        "api/broker_config_changes.py",
        "current.keys() | values.keys(), wanted)",
        "current.keys() | values.keys(), {each.name: each.value for each in resource.changes if each.value})",
        ("api/_tests/test_configs.py",),
    ),
    PlantedBug(
        "stores are tried only where no store is named",
        "api/listener_stores.py",
        "    if node.check_listeners is None or not any(",
        "    if node.check_listeners is None or any(",
        ("api/_tests/test_configs.py",),
    ),
    PlantedBug(
        "a disabled protocol is served",
        "api/serve.py",
        "if route.is_served is not None and not route.is_served(node):",
        "if False:",
        ("api/_tests/test_access.py",),
    ),
    PlantedBug(
        "a sender without rights learns nothing of disabled share groups",
        "api/share_acknowledge.py",
        "    is_served=serves_share_fetches,\n",
        "",
        ("api/_tests/test_access.py", "api/_tests/test_share_requests.py"),
    ),
    PlantedBug(
        "topics that an expression matches and may not be seen are logged",
        "api/access.py",
        "    rights = RightToTopics(access, AclOperation.DESCRIBE, logs_denied=False)\n",
        "    rights = RightToTopics(access, AclOperation.DESCRIBE)\n",
        ("api/_tests/test_subscribed_names.py",),
    ),
    PlantedBug(
        "the right to write is enough for a transaction without a timeout",
        "api/access.py",
        "COMMIT_IN_TWO_PHASES) if request.enable_2pc else",
        "COMMIT_IN_TWO_PHASES) if False else",
        ("api/_tests/test_access.py",),
    ),
    PlantedBug(
        "the right to two-phase commit is enough for a transaction",
        "api/access.py",
        "both = (WRITE_TRANSACTION, COMMIT_IN_TWO_PHASES)",
        "both = (COMMIT_IN_TWO_PHASES,)",
        ("api/_tests/test_access.py",),
    ),
    PlantedBug(
        "a transaction whose end is decided elsewhere is aborted after its timeout",
        "txn/transaction_metadata.py",
        "            and self.timeout_ms != NO_TIMEOUT_MS\n",
        "",
        ("txn/_tests/test_initialise.py",),
    ),
    PlantedBug(
        "two-phase commit that is not enabled is taken",
        "txn/initialise.py",
        "    if has_two_phase_commit and not settings.has_two_phase_commit:",
        "    if False:",
        ("txn/_tests/test_initialise.py", "coordinator/_tests/test_transactions.py"),
    ),
    PlantedBug(
        "the coordinator keeps the timeout that a producer with two-phase commit sent",
        "coordinator/transaction_service.py",
        "_machine(shard), transactional_id, timeout_ms, expected, now_ms",
        "_machine(shard), transactional_id, request.transaction_timeout_ms, expected, now_ms",
        ("coordinator/_tests/test_transactions.py",),
    ),
    PlantedBug(
        "the audit names another entry than Apache Kafka's",
        "security/authorizer.py",
        "elif allows is None or _place(acl) > _place(allows):",
        "elif allows is None or _place(acl) < _place(allows):",
        ("security/_tests/test_authorizer.py",),
    ),
)
