"""Maps a record's type to its message class.

The classes of metadata records and of the coordinators' keys and values are imported at their first use. A
coordinator's key begins with its type as an int16, a value with its version. A metadata record begins with varints of
frame version, type and version. The caller reads these prefixes first.
"""

from kafkacompat.wire.apis import message_class
from kafkacompat.wire.message import Message
from kafkacompat.wire.tables import GROUP_RECORDS, METADATA_RECORDS, SHARE_RECORDS, TRANSACTION_RECORDS


def metadata_record_class(api_key: int) -> type[Message]:
    """Return the class of a metadata record type. KeyError for an unknown one."""
    return message_class(METADATA_RECORDS[api_key])


def group_record_classes(record_type: int) -> tuple[type[Message], type[Message]]:
    """Return the key and value classes of a record of __consumer_offsets. KeyError for an unknown type."""
    return _pair(GROUP_RECORDS[record_type])


def transaction_record_classes(record_type: int) -> tuple[type[Message], type[Message]]:
    """Return the key and value classes of a record of __transaction_state. KeyError for an unknown type."""
    return _pair(TRANSACTION_RECORDS[record_type])


def share_record_classes(record_type: int) -> tuple[type[Message], type[Message]]:
    """Return the key and value classes of a record of __share_group_state. KeyError for an unknown type."""
    return _pair(SHARE_RECORDS[record_type])


def _pair(names: tuple[str, str]) -> tuple[type[Message], type[Message]]:
    key, value = names
    return message_class(key), message_class(value)
