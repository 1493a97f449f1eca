"""Bugs in who may do what."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

BUGS = (
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
)
