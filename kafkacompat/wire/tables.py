"""API keys and record types of Kafka 4.4.

Written by `python -m kafkacompat.wire.generate` from apis.tsv and definitions/."""

import enum
from typing import NamedTuple


class ApiKey(enum.IntEnum):
    """The APIs of the protocol by key, those that Kafka 4 removed included."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94


class Api(NamedTuple):
    """One API: its stable version range (empty for a removed one) and first flexible versions (32767 if none)."""

    key: ApiKey
    name: str
    oldest: int
    latest: int
    request_flexible_min: int
    response_flexible_min: int
    on_broker: bool
    on_controller: bool
    cluster_action: bool
    forwardable: bool
    changes: bool
    """Whether a request changes something, so that an error can be told although the work was done. All others only read."""


APIS: dict[int, Api] = {
    0: Api(ApiKey(0), "Produce", 3, 13, 9, 9, True, False, False, False, True),
    1: Api(ApiKey(1), "Fetch", 4, 18, 12, 12, True, True, False, False, False),
    2: Api(ApiKey(2), "ListOffsets", 1, 11, 6, 6, True, False, False, False, False),
    3: Api(ApiKey(3), "Metadata", 0, 13, 9, 9, True, False, False, False, False),
    4: Api(ApiKey(4), "LeaderAndIsr", 0, -1, 32767, 32767, False, False, True, False, False),
    5: Api(ApiKey(5), "StopReplica", 0, -1, 32767, 32767, False, False, True, False, False),
    6: Api(ApiKey(6), "UpdateMetadata", 0, -1, 32767, 32767, False, False, True, False, False),
    7: Api(ApiKey(7), "ControlledShutdown", 0, -1, 32767, 32767, False, False, True, False, False),
    8: Api(ApiKey(8), "OffsetCommit", 2, 10, 8, 8, True, False, False, False, True),
    9: Api(ApiKey(9), "OffsetFetch", 1, 10, 6, 6, True, False, False, False, False),
    10: Api(ApiKey(10), "FindCoordinator", 0, 6, 3, 3, True, False, False, False, False),
    11: Api(ApiKey(11), "JoinGroup", 0, 9, 6, 6, True, False, False, False, True),
    12: Api(ApiKey(12), "Heartbeat", 0, 4, 4, 4, True, False, False, False, True),
    13: Api(ApiKey(13), "LeaveGroup", 0, 5, 4, 4, True, False, False, False, True),
    14: Api(ApiKey(14), "SyncGroup", 0, 5, 4, 4, True, False, False, False, True),
    15: Api(ApiKey(15), "DescribeGroups", 0, 6, 5, 5, True, False, False, False, False),
    16: Api(ApiKey(16), "ListGroups", 0, 5, 3, 3, True, False, False, False, False),
    17: Api(ApiKey(17), "SaslHandshake", 0, 1, 32767, 32767, True, True, False, False, False),
    18: Api(ApiKey(18), "ApiVersions", 0, 5, 3, 32767, True, True, False, False, False),
    19: Api(ApiKey(19), "CreateTopics", 2, 7, 5, 5, True, True, False, True, True),
    20: Api(ApiKey(20), "DeleteTopics", 1, 6, 4, 4, True, True, False, True, True),
    21: Api(ApiKey(21), "DeleteRecords", 0, 2, 2, 2, True, False, False, False, True),
    22: Api(ApiKey(22), "InitProducerId", 0, 5, 2, 2, True, False, False, False, True),
    23: Api(ApiKey(23), "OffsetForLeaderEpoch", 2, 4, 4, 4, True, False, False, False, False),
    24: Api(ApiKey(24), "AddPartitionsToTxn", 0, 5, 3, 3, True, False, False, False, True),
    25: Api(ApiKey(25), "AddOffsetsToTxn", 0, 4, 3, 3, True, False, False, False, True),
    26: Api(ApiKey(26), "EndTxn", 0, 5, 3, 3, True, False, False, False, True),
    27: Api(ApiKey(27), "WriteTxnMarkers", 1, 2, 1, 1, True, False, True, False, True),
    28: Api(ApiKey(28), "TxnOffsetCommit", 0, 6, 3, 3, True, False, False, False, True),
    29: Api(ApiKey(29), "DescribeAcls", 1, 3, 2, 2, True, True, False, False, False),
    30: Api(ApiKey(30), "CreateAcls", 1, 3, 2, 2, True, True, False, True, True),
    31: Api(ApiKey(31), "DeleteAcls", 1, 3, 2, 2, True, True, False, True, True),
    32: Api(ApiKey(32), "DescribeConfigs", 1, 4, 4, 4, True, True, False, False, False),
    33: Api(ApiKey(33), "AlterConfigs", 0, 2, 2, 2, True, True, False, True, True),
    34: Api(ApiKey(34), "AlterReplicaLogDirs", 1, 2, 2, 2, True, False, False, False, True),
    35: Api(ApiKey(35), "DescribeLogDirs", 1, 5, 2, 2, True, False, False, False, False),
    36: Api(ApiKey(36), "SaslAuthenticate", 0, 2, 2, 2, True, True, False, False, False),
    37: Api(ApiKey(37), "CreatePartitions", 0, 3, 2, 2, True, True, False, True, True),
    38: Api(ApiKey(38), "CreateDelegationToken", 1, 3, 2, 2, True, True, False, True, True),
    39: Api(ApiKey(39), "RenewDelegationToken", 1, 2, 2, 2, True, True, False, True, True),
    40: Api(ApiKey(40), "ExpireDelegationToken", 1, 2, 2, 2, True, True, False, True, True),
    41: Api(ApiKey(41), "DescribeDelegationToken", 1, 3, 2, 2, True, True, False, False, False),
    42: Api(ApiKey(42), "DeleteGroups", 0, 3, 2, 2, True, False, False, False, True),
    43: Api(ApiKey(43), "ElectLeaders", 0, 2, 2, 2, True, True, False, True, True),
    44: Api(ApiKey(44), "IncrementalAlterConfigs", 0, 1, 1, 1, True, True, False, True, True),
    45: Api(ApiKey(45), "AlterPartitionReassignments", 0, 1, 0, 0, True, True, False, True, True),
    46: Api(ApiKey(46), "ListPartitionReassignments", 0, 0, 0, 0, True, True, False, True, False),
    47: Api(ApiKey(47), "OffsetDelete", 0, 0, 32767, 32767, True, False, False, False, True),
    48: Api(ApiKey(48), "DescribeClientQuotas", 0, 1, 1, 1, True, False, False, False, False),
    49: Api(ApiKey(49), "AlterClientQuotas", 0, 1, 1, 1, True, True, False, True, True),
    50: Api(ApiKey(50), "DescribeUserScramCredentials", 0, 0, 0, 0, True, True, False, False, False),
    51: Api(ApiKey(51), "AlterUserScramCredentials", 0, 0, 0, 0, True, True, False, True, True),
    52: Api(ApiKey(52), "Vote", 0, 2, 0, 0, False, True, True, False, True),
    53: Api(ApiKey(53), "BeginQuorumEpoch", 0, 1, 1, 1, False, True, True, False, True),
    54: Api(ApiKey(54), "EndQuorumEpoch", 0, 1, 1, 1, False, True, True, False, True),
    55: Api(ApiKey(55), "DescribeQuorum", 0, 2, 0, 0, True, True, True, True, False),
    56: Api(ApiKey(56), "AlterPartition", 2, 3, 0, 0, False, True, True, False, True),
    57: Api(ApiKey(57), "UpdateFeatures", 0, 2, 0, 0, True, True, True, True, True),
    58: Api(ApiKey(58), "Envelope", 0, 0, 0, 0, False, True, True, False, True),
    59: Api(ApiKey(59), "FetchSnapshot", 0, 1, 0, 0, False, True, False, False, False),
    60: Api(ApiKey(60), "DescribeCluster", 0, 2, 0, 0, True, True, False, False, False),
    61: Api(ApiKey(61), "DescribeProducers", 0, 0, 0, 0, True, False, False, False, False),
    62: Api(ApiKey(62), "BrokerRegistration", 0, 4, 0, 0, False, True, True, False, True),
    63: Api(ApiKey(63), "BrokerHeartbeat", 0, 2, 0, 0, False, True, True, False, True),
    64: Api(ApiKey(64), "UnregisterBroker", 0, 0, 0, 0, True, True, False, True, True),
    65: Api(ApiKey(65), "DescribeTransactions", 0, 0, 0, 0, True, False, False, False, False),
    66: Api(ApiKey(66), "ListTransactions", 0, 2, 0, 0, True, False, False, False, False),
    67: Api(ApiKey(67), "AllocateProducerIds", 0, 0, 0, 0, False, True, True, True, True),
    68: Api(ApiKey(68), "ConsumerGroupHeartbeat", 0, 1, 0, 0, True, False, False, False, True),
    69: Api(ApiKey(69), "ConsumerGroupDescribe", 0, 1, 0, 0, True, False, False, False, False),
    70: Api(ApiKey(70), "ControllerRegistration", 0, 0, 0, 0, False, True, False, False, True),
    71: Api(ApiKey(71), "GetTelemetrySubscriptions", 0, 0, 0, 0, True, False, False, False, False),
    72: Api(ApiKey(72), "PushTelemetry", 0, 0, 0, 0, True, False, False, False, True),
    73: Api(ApiKey(73), "AssignReplicasToDirs", 0, 0, 0, 0, False, True, False, False, True),
    74: Api(ApiKey(74), "ListConfigResources", 0, 1, 0, 0, True, False, False, False, False),
    75: Api(ApiKey(75), "DescribeTopicPartitions", 0, 0, 0, 0, True, False, False, False, False),
    76: Api(ApiKey(76), "ShareGroupHeartbeat", 1, 1, 0, 0, True, False, False, False, True),
    77: Api(ApiKey(77), "ShareGroupDescribe", 1, 1, 0, 0, True, False, False, False, False),
    78: Api(ApiKey(78), "ShareFetch", 1, 2, 0, 0, True, False, False, False, False),
    79: Api(ApiKey(79), "ShareAcknowledge", 1, 2, 0, 0, True, False, False, False, True),
    80: Api(ApiKey(80), "AddRaftVoter", 0, 1, 0, 0, True, True, False, True, True),
    81: Api(ApiKey(81), "RemoveRaftVoter", 0, 0, 0, 0, True, True, False, True, True),
    82: Api(ApiKey(82), "UpdateRaftVoter", 0, 0, 0, 0, False, True, False, False, True),
    83: Api(ApiKey(83), "InitializeShareGroupState", 0, 0, 0, 0, True, False, True, False, True),
    84: Api(ApiKey(84), "ReadShareGroupState", 0, 0, 0, 0, True, False, True, False, False),
    85: Api(ApiKey(85), "WriteShareGroupState", 0, 1, 0, 0, True, False, True, False, True),
    86: Api(ApiKey(86), "DeleteShareGroupState", 0, 0, 0, 0, True, False, True, False, True),
    87: Api(ApiKey(87), "ReadShareGroupStateSummary", 0, 1, 0, 0, True, False, True, False, False),
    88: Api(ApiKey(88), "StreamsGroupHeartbeat", 0, 1, 0, 0, True, False, False, False, True),
    89: Api(ApiKey(89), "StreamsGroupDescribe", 0, 1, 0, 0, True, False, False, False, False),
    90: Api(ApiKey(90), "DescribeShareGroupOffsets", 0, 1, 0, 0, True, False, False, False, False),
    91: Api(ApiKey(91), "AlterShareGroupOffsets", 0, 0, 0, 0, True, False, False, False, True),
    92: Api(ApiKey(92), "DeleteShareGroupOffsets", 0, 0, 0, 0, True, False, False, False, True),
    93: Api(ApiKey(93), "StreamsGroupTopologyDescriptionUpdate", 0, 0, 0, 0, True, False, False, False, True),
    94: Api(ApiKey(94), "UnregisterController", 0, 0, 0, 0, True, True, False, True, True),
}

METADATA_RECORDS: dict[int, str] = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    2: "TopicRecord",
    3: "PartitionRecord",
    4: "ConfigRecord",
    5: "PartitionChangeRecord",
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    9: "RemoveTopicRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    25: "AbortTransactionRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
    29: "UnregisterControllerRecord",
}
"""Records of the metadata log: message names by type."""

GROUP_RECORDS: dict[int, tuple[str, str]] = {
    0: ("LegacyOffsetCommitKey", "LegacyOffsetCommitValue"),
    1: ("OffsetCommitKey", "OffsetCommitValue"),
    2: ("GroupMetadataKey", "GroupMetadataValue"),
    3: ("ConsumerGroupMetadataKey", "ConsumerGroupMetadataValue"),
    4: ("ConsumerGroupPartitionMetadataKey", "ConsumerGroupPartitionMetadataValue"),
    5: ("ConsumerGroupMemberMetadataKey", "ConsumerGroupMemberMetadataValue"),
    6: ("ConsumerGroupTargetAssignmentMetadataKey", "ConsumerGroupTargetAssignmentMetadataValue"),
    7: ("ConsumerGroupTargetAssignmentMemberKey", "ConsumerGroupTargetAssignmentMemberValue"),
    8: ("ConsumerGroupCurrentMemberAssignmentKey", "ConsumerGroupCurrentMemberAssignmentValue"),
    10: ("ShareGroupMemberMetadataKey", "ShareGroupMemberMetadataValue"),
    11: ("ShareGroupMetadataKey", "ShareGroupMetadataValue"),
    12: ("ShareGroupTargetAssignmentMetadataKey", "ShareGroupTargetAssignmentMetadataValue"),
    13: ("ShareGroupTargetAssignmentMemberKey", "ShareGroupTargetAssignmentMemberValue"),
    14: ("ShareGroupCurrentMemberAssignmentKey", "ShareGroupCurrentMemberAssignmentValue"),
    15: ("ShareGroupStatePartitionMetadataKey", "ShareGroupStatePartitionMetadataValue"),
    16: ("ConsumerGroupRegularExpressionKey", "ConsumerGroupRegularExpressionValue"),
    17: ("StreamsGroupMetadataKey", "StreamsGroupMetadataValue"),
    19: ("StreamsGroupMemberMetadataKey", "StreamsGroupMemberMetadataValue"),
    20: ("StreamsGroupTargetAssignmentMetadataKey", "StreamsGroupTargetAssignmentMetadataValue"),
    21: ("StreamsGroupTargetAssignmentMemberKey", "StreamsGroupTargetAssignmentMemberValue"),
    22: ("StreamsGroupCurrentMemberAssignmentKey", "StreamsGroupCurrentMemberAssignmentValue"),
    23: ("StreamsGroupTopologyKey", "StreamsGroupTopologyValue"),
}
"""Keys and values of __consumer_offsets: message names by type."""

TRANSACTION_RECORDS: dict[int, tuple[str, str]] = {
    0: ("TransactionLogKey", "TransactionLogValue"),
}
"""Keys and values of __transaction_state: message names by type."""

SHARE_RECORDS: dict[int, tuple[str, str]] = {
    0: ("ShareSnapshotKey", "ShareSnapshotValue"),
    1: ("ShareUpdateKey", "ShareUpdateValue"),
}
"""Keys and values of __share_group_state: message names by type."""
