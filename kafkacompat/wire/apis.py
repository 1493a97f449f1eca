"""The APIs of the protocol: keys, versions and message classes.

Message classes are imported at their first use.
"""

from importlib import import_module

from kafkacompat.wire.definition import snake_case
from kafkacompat.wire.message import Message
from kafkacompat.wire.remember import remembered
from kafkacompat.wire.tables import APIS, Api, ApiKey

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
