"""The message classes of the protocol, by API and by type of record. They are imported at their first use.

A coordinator's key begins with its type as an int16, a value with its version. A metadata record begins with varints of
frame version, type and version. The caller reads these prefixes first.
"""

from importlib import import_module

from kafkacompat.ids import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from kafkacompat.wire.definition import snake_case
from kafkacompat.wire.message import Message
from kafkacompat.wire.remember import remembered
from kafkacompat.wire.tables import (
    APIS,
    GROUP_RECORDS,
    METADATA_RECORDS,
    SHARE_RECORDS,
    TRANSACTION_RECORDS,
    Api,
    ApiKey,
)

__all__ = ["APIS", "Api", "ApiKey", "message_class", "request_class", "response_class"]


@remembered
def message_class(name: str) -> type[Message]:
    """Return the message class of a definition, such as "FetchRequest". KeyError if there is none."""
    try:
        module = import_module(f"kafkacompat.wire.messages.{snake_case(name)}")
    except ModuleNotFoundError as error:
        raise KeyError(name) from error
    found: type[Message] = getattr(module, name)
    return found


@remembered
def request_class(api_key: int) -> type[Message]:
    """Return the request class of an API. KeyError for an unknown or removed one."""
    return message_class(f"{APIS[api_key].name}Request")


@remembered
def response_class(api_key: int) -> type[Message]:
    """Return the response class of an API. KeyError for an unknown or removed one."""
    return message_class(f"{APIS[api_key].name}Response")


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


COORDINATOR_CLASSES = {
    OFFSETS_TOPIC: group_record_classes,
    TRANSACTION_TOPIC: transaction_record_classes,
    SHARE_STATE_TOPIC: share_record_classes,
}
"""By topic of a coordinator: a function from a record's type to the message classes of its key and value."""


def _pair(names: tuple[str, str]) -> tuple[type[Message], type[Message]]:
    key, value = names
    return message_class(key), message_class(value)
