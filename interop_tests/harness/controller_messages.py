"""Definitions of requests between nodes that no client library contains, each in one version.

They are nested (name, type) pairs, where a list stands for an array of structures. `definition` converts them to the
form of Kafka's own definitions. Every message here is flexible, and the version described is its last one.
"""

from __future__ import annotations

from typing import Any

Shape = tuple[tuple[str, Any], ...]

NODE = (("NodeId", "int32"), ("Host", "string"), ("Port", "uint16"))
LISTENER = (("Name", "string"), ("Host", "string"), ("Port", "uint16"))
VOTE_PARTITION = (
    ("PartitionIndex", "int32"),
    ("ReplicaEpoch", "int32"),
    ("ReplicaId", "int32"),
    ("ReplicaDirectoryId", "uuid"),
    ("VoterDirectoryId", "uuid"),
    ("LastOffsetEpoch", "int32"),
    ("LastOffset", "int64"),
    ("PreVote", "bool"),
)
VOTE_RESULT = (
    ("PartitionIndex", "int32"),
    ("ErrorCode", "int16"),
    ("LeaderId", "int32"),
    ("LeaderEpoch", "int32"),
    ("VoteGranted", "bool"),
)
ISR_CHANGE = (
    ("PartitionIndex", "int32"),
    ("LeaderEpoch", "int32"),
    ("NewIsrWithEpochs", [("BrokerId", "int32"), ("BrokerEpoch", "int64")]),
    ("LeaderRecoveryState", "int8"),
    ("PartitionEpoch", "int32"),
)
ISR_RESULT = (
    ("PartitionIndex", "int32"),
    ("ErrorCode", "int16"),
    ("LeaderId", "int32"),
    ("LeaderEpoch", "int32"),
    ("Isr", "[]int32"),
    ("LeaderRecoveryState", "int8"),
    ("PartitionEpoch", "int32"),
)
DIRECTORY_RESULT = (("PartitionIndex", "int32"), ("ErrorCode", "int16"))
REFUSABLE = (("ThrottleTimeMs", "int32"), ("ErrorCode", "int16"), ("ErrorMessage", "string?"))

# name: (key, version, request, response)
SHAPES: dict[str, tuple[int, int, Shape, Shape]] = {
    "UnregisterController": (94, 0, (("ControllerId", "int32"),), REFUSABLE),
    "Vote": (
        52,
        2,
        (
            ("ClusterId", "string?"),
            ("VoterId", "int32"),
            ("Topics", [("TopicName", "string"), ("Partitions", list(VOTE_PARTITION))]),
        ),
        (
            ("ErrorCode", "int16"),
            ("Topics", [("TopicName", "string"), ("Partitions", list(VOTE_RESULT))]),
            ("NodeEndpoints#0", list(NODE)),
        ),
    ),
    "AlterPartition": (
        56,
        3,
        (
            ("BrokerId", "int32"),
            ("BrokerEpoch", "int64"),
            ("Topics", [("TopicId", "uuid"), ("Partitions", list(ISR_CHANGE))]),
        ),
        (
            ("ThrottleTimeMs", "int32"),
            ("ErrorCode", "int16"),
            ("Topics", [("TopicId", "uuid"), ("Partitions", list(ISR_RESULT))]),
        ),
    ),
    "BrokerRegistration": (
        62,
        4,
        (
            ("BrokerId", "int32"),
            ("ClusterId", "string"),
            ("IncarnationId", "uuid"),
            ("Listeners", [*LISTENER, ("SecurityProtocol", "int16")]),
            (
                "Features",
                [("Name", "string"), ("MinSupportedVersion", "int16"), ("MaxSupportedVersion", "int16")],
            ),
            ("Rack", "string?"),
            ("IsMigratingZkBroker", "bool"),
            ("LogDirs", "[]uuid"),
            ("PreviousBrokerEpoch", "int64"),
        ),
        (("ThrottleTimeMs", "int32"), ("ErrorCode", "int16"), ("BrokerEpoch", "int64")),
    ),
    "BrokerHeartbeat": (
        63,
        1,
        (
            ("BrokerId", "int32"),
            ("BrokerEpoch", "int64"),
            ("CurrentMetadataOffset", "int64"),
            ("WantFence", "bool"),
            ("WantShutDown", "bool"),
            ("OfflineLogDirs#0", "[]uuid"),
        ),
        (
            ("ThrottleTimeMs", "int32"),
            ("ErrorCode", "int16"),
            ("IsCaughtUp", "bool"),
            ("IsFenced", "bool"),
            ("ShouldShutDown", "bool"),
        ),
    ),
    "UnregisterBroker": (64, 0, (("BrokerId", "int32"),), REFUSABLE),
    "AssignReplicasToDirs": (
        73,
        0,
        (
            ("BrokerId", "int32"),
            ("BrokerEpoch", "int64"),
            (
                "Directories",
                [
                    ("Id", "uuid"),
                    ("Topics", [("TopicId", "uuid"), ("Partitions", [("PartitionIndex", "int32")])]),
                ],
            ),
        ),
        (
            ("ThrottleTimeMs", "int32"),
            ("ErrorCode", "int16"),
            (
                "Directories",
                [("Id", "uuid"), ("Topics", [("TopicId", "uuid"), ("Partitions", list(DIRECTORY_RESULT))])],
            ),
        ),
    ),
    "AddRaftVoter": (
        80,
        0,
        (
            ("ClusterId", "string?"),
            ("TimeoutMs", "int32"),
            ("VoterId", "int32"),
            ("VoterDirectoryId", "uuid"),
            ("Listeners", list(LISTENER)),
        ),
        REFUSABLE,
    ),
    "RemoveRaftVoter": (
        81,
        0,
        (("ClusterId", "string?"), ("VoterId", "int32"), ("VoterDirectoryId", "uuid")),
        REFUSABLE,
    ),
}


def definition(name: str) -> dict[str, Any] | None:
    """The definition of a message such as "VoteRequest" in Kafka's form. None for a message that is not defined here."""
    is_request = name.endswith("Request")
    found = SHAPES.get(name.removesuffix("Request" if is_request else "Response"))
    if found is None:
        return None
    key, version, request, response = found
    return {
        "apiKey": key,
        "name": name,
        "validVersions": str(version),
        "flexibleVersions": "0+",
        "fields": [_field(each) for each in (request if is_request else response)],
    }


def _field(pair: tuple[str, Any]) -> dict[str, Any]:
    name, kind = pair
    name, _, tag = name.partition("#")
    field: dict[str, Any] = {"name": name, "versions": "0+"}
    if tag:
        field |= {"taggedVersions": "0+", "tag": int(tag)}
    if isinstance(kind, list):
        return field | {"type": f"[]{name}", "fields": [_field(each) for each in kind]}
    if kind.endswith("?"):
        return field | {"type": kind[:-1], "nullableVersions": "0+", "default": "null"}
    return field | {"type": kind}
