"""Access control entries and filters, with Kafka's codes (org.apache.kafka.common.acl and .resource)."""

from __future__ import annotations

from enum import IntEnum
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkacompat.wire.messages.access_control_entry_record import AccessControlEntryRecord
    from kafkacompat.wire.messages.delete_acls_request import DeleteAclsFilter
    from kafkacompat.wire.messages.describe_acls_request import DescribeAclsRequest

WILDCARD = "*"
"""Any host, or any resource if it is the name of a LITERAL pattern."""
CLUSTER_NAME = "kafka-cluster"
"""The only resource name of the type CLUSTER."""


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @classmethod
    def of(cls, code: int) -> ResourceType:
        """UNKNOWN for a code that Kafka 4.3 does not have. The same for the other code types here."""
        return cls(code) if code in cls._value2member_map_ else cls.UNKNOWN


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4

    @classmethod
    def of(cls, code: int) -> PatternType:
        return cls(code) if code in cls._value2member_map_ else cls.UNKNOWN


class AclOperation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    @classmethod
    def of(cls, code: int) -> AclOperation:
        return cls(code) if code in cls._value2member_map_ else cls.UNKNOWN


class AclPermissionType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3

    @classmethod
    def of(cls, code: int) -> AclPermissionType:
        return cls(code) if code in cls._value2member_map_ else cls.UNKNOWN


SUPPORTED_OPERATIONS: dict[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (
        AclOperation.DESCRIBE,
        AclOperation.WRITE,
        AclOperation.TWO_PHASE_COMMIT,
    ),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""The operations for each resource type. Describe responses report them (KIP-430)."""


class Acl(NamedTuple):
    """One entry: a permission for a resource pattern. Codes are plain integers, as in records and messages."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    """Type and name, 'User:alice'."""
    host: str
    """An address or a block of addresses as text, or '*'."""
    operation: int
    permission_type: int

    @classmethod
    def of_record(cls, record: AccessControlEntryRecord) -> Acl:
        return cls._make(_fields_of(record))

    def __str__(self) -> str:
        return (
            f"StandardAcl[resourceType={ResourceType.of(self.resource_type).name}, resourceName={self.resource_name}, "
            f"patternType={PatternType.of(self.pattern_type).name}, principal={self.principal}, host={self.host}, "
            f"operation={AclOperation.of(self.operation).name}, "
            f"permissionType={AclPermissionType.of(self.permission_type).name}]"
        )


_fields_of = attrgetter(*Acl._fields)  # records and messages name them alike


class AclFilter(NamedTuple):
    """The filter of DescribeAcls and DeleteAcls. None, and the code ANY, match everything."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    """MATCH finds every pattern that applies to a resource of this name, including wildcards and prefixes."""
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    @classmethod
    def of(cls, asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
        return cls(
            asked.resource_type_filter,
            asked.resource_name_filter,
            asked.pattern_type_filter,
            asked.principal_filter,
            asked.host_filter,
            asked.operation,
            asked.permission_type,
        )

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission_type in (AclPermissionType.ANY, acl.permission_type)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        name = self.resource_name
        if name is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return name == acl.resource_name
        if acl.pattern_type == PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name in (name, WILDCARD)


class FilterFlaw(Exception):
    """An invalid filter."""


def check_filter(wanted: AclFilter) -> None:
    """Raise FilterFlaw for codes that Kafka 4.3 does not have."""
    if not (ResourceType.of(wanted.resource_type) and PatternType.of(wanted.pattern_type)):
        raise FilterFlaw("Unknown patternFilter.")
    if not (AclOperation.of(wanted.operation) and AclPermissionType.of(wanted.permission_type)):
        raise FilterFlaw("Unknown entryFilter.")
