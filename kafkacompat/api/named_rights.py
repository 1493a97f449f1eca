"""Rights to the resources that a request's elements name. Denied elements are answered here, the others by the
handler.

There is one split and one merge for every API whose elements are answered one by one. Handlers check what else depends
on names: fetch sessions, transactions, and lists from which denied elements are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from enum import Enum, auto
from itertools import chain
from operator import attrgetter
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import CLUSTER_ACTION, REFUSALS, Access, Right, access_of
from kafkacompat.api.request_context import NotController
from kafkacompat.api.topics import is_legal_topic_name
from kafkacompat.dataclass import dataclass
from kafkacompat.deferred import Deferred
from kafkacompat.ids import METADATA_TOPIC, ZERO_UUID
from kafkacompat.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from kafkacompat.tasks import TURN_COST, Pace, Work, in_turns
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode, error_text

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.handler import ErrorResponse
    from kafkacompat.api.request_context import RequestContext

Ask = tuple[AclOperation, ResourceType, str]
"""The operation, resource type and name to ask the authorizer about."""
Asks = Callable[["AnyNode", Any], "Ask | None"]
"""Return the question for an element. None if no right is needed, because the handler refuses the element anyway."""
JUDGED_A_STEP = 500
"""Elements per step. One takes several microseconds if the names differ."""
SET, DELETE = 0, 1
"""Operations of IncrementalAlterConfigs."""
SORTED_A_STEP = 5_000
REFUSED_A_STEP = 200
DESCRIBED_TYPES = frozenset(ConfigResourceType) - {ConfigResourceType.UNKNOWN}
PARTITIONS_LIKE_AN_ELEMENT = 8
"""The partitions within an element whose refusal takes as long as one more element."""


class Order(Enum):
    """Where the answers to refused elements are, as in Kafka's responses."""

    REFUSED_LAST = auto()
    REFUSED_FIRST = auto()
    AS_ASKED = auto()


@dataclass(frozen=True, slots=True)
class NamedRights:
    """The rights to the resources that the elements of one of the request's arrays name."""

    request_field: str
    response_field: str
    asks: Asks
    instead: Right | None = None
    """A right to the cluster that suffices for all elements. Its denial is not logged."""
    describes: bool = False
    """DESCRIBE on the resource, a topic, is asked for first, on the active controller only. An element by name needs it too.
    With it, the refusal of an element by id tells the name, and that of a name that is unknown says so."""
    text_of: Callable[[ErrorCode], str] | None = None
    """Kafka's text of a refusal, where its answer has one."""
    repeats_by: Callable[[Any], Any] | None = None
    """The identity of an element. Repeated elements all go to the handler, which refuses them as repeated."""
    is_flawed: Callable[[Any, Pace], Work[bool]] | None = None
    """Whether an element is refused with INVALID_REQUEST before any right is checked."""
    unless: Callable[[Any], bool] | None = None
    """Whether the handler refuses the whole request, so that no right is checked."""
    unless_on: Callable[[Any], bool] | None = None
    """Whether the handler refuses all requests on this node, so that no right is checked."""
    order: Order = Order.REFUSED_LAST
    answer_name: str | None = None
    """The field in which an answer names its element, of handlers that answer once what is asked for twice. Of elements that
    are no names it is the same field."""

    def guarded(
        self, function: Callable[..., Any], error_response: ErrorResponse
    ) -> Callable[[Any, RequestContext, Any], Any]:
        """Wrap a handler's function, or its steps, so that it gets only the allowed elements."""

        def of_allowed(node: Any, context: RequestContext, request: Any) -> Any:
            access = access_of(node, context)
            if access is None or self._all_pass(access, node, request):
                return function(node, context, request)
            return self._in_two(function, error_response, access, node, context, request)

        return of_allowed

    def _all_pass(self, access: Access, node: Any, request: Any) -> bool:
        if self.unless is not None and self.unless(request):
            return True
        if self.unless_on is not None and self.unless_on(node):
            return True
        right = self.instead
        return right is not None and access.allows(
            right.operation, right.resource_type, CLUSTER_NAME, logs_denied=False
        )

    async def _in_two(
        self,
        function: Callable[..., Any],
        error_response: ErrorResponse,
        access: Access,
        node: Any,
        context: RequestContext,
        request: Any,
    ) -> Any:
        if self.describes and not node.controller.is_active:
            raise NotController  # others may not know all topics
        pace = Pace(JUDGED_A_STEP)
        elements = getattr(request, self.request_field)
        allowed, refused = await in_turns(self._judged(access, node, elements or (), pace))
        if not refused:
            return await _given(function(node, context, request))
        # The request stays as it was sent: if this controller loses its role, the next one gets it.
        request = copy(request)
        setattr(request, self.request_field, allowed)
        answers = await in_turns(self._refusals(error_response, context, request, refused))
        if len(refused) > 1 and self.order is Order.REFUSED_LAST and not self.describes:
            together = chain.from_iterable(refused.values())
            answers = answers[0], await in_turns(_in_order(elements, together, answers[1]))
        if not allowed:
            response, response_answers = answers
        else:
            response = await _given(function(node, context, request))
            if getattr(response, "error_code", ErrorCode.NONE):
                return response
            parts = [getattr(response, self.response_field), answers[1]]
            if self.order is Order.REFUSED_FIRST:
                parts.reverse()
            response_answers = [*chain.from_iterable(parts)]
        if self.order is Order.AS_ASKED:
            if self.answer_name is not None:
                ordering = _in_order_of_names(elements, self.answer_name, response_answers)
            else:
                answered = [*allowed, *chain.from_iterable(refused.values())]
                ordering = _in_order(elements, answered, response_answers)
            response_answers = await in_turns(ordering)
        setattr(response, self.response_field, response_answers)
        return response

    def _judged(
        self, access: Access, node: Any, elements: Any, pace: Pace
    ) -> Work[tuple[list[Any], dict[ErrorCode, list[Any]]]]:
        repeated = yield from self._repeated(elements, pace)
        asked: list[tuple[Any, Ask | None]] = []
        counts: dict[Ask, int] = {}
        for each in elements:
            ask = None
            if not repeated or self.repeats_by is None or self.repeats_by(each) not in repeated:
                ask = self.asks(node, each)
            asked.append((each, ask))
            if ask is not None:
                counts[ask] = counts.get(ask, 0) + 1
            if pace.is_over():
                yield TURN_COST
        codes: dict[Ask, ErrorCode] = {}
        described: set[Ask] = set()
        for ask, count in counts.items():
            if self.describes and access.allows(AclOperation.DESCRIBE, *ask[1:], count=count):
                described.add(ask)
            if not access.allows(*ask, count=count):
                codes[ask] = REFUSALS[ask[1]]
            if pace.is_over():
                yield TURN_COST
        allowed: list[Any] = []
        refused: dict[ErrorCode, list[Any]] = {}
        for position, (each, ask) in enumerate(asked, 1):
            code, told = None if ask is None else codes.get(ask), each
            if self.describes and ask is not None:
                code, told = _by_description(node, each, ask, code, ask in described)
            if code is None:
                allowed.append(each)
            else:
                if self.is_flawed is not None and (yield from self.is_flawed(each, pace)):
                    code = ErrorCode.INVALID_REQUEST
                refused.setdefault(code, []).append(told)
            if position % SORTED_A_STEP == 0:
                yield TURN_COST
        return allowed, refused

    def _repeated(self, elements: Any, pace: Pace) -> Work[set[Any]]:
        repeated: set[Any] = set()
        if self.repeats_by is not None:
            seen: set[Any] = set()
            for each in elements:
                key = self.repeats_by(each)
                if key in seen:
                    repeated.add(key)
                seen.add(key)
                if pace.is_over():
                    yield TURN_COST
        return repeated

    def _refusals(
        self,
        error_response: ErrorResponse,
        context: RequestContext,
        request: Any,
        refused: dict[ErrorCode, list[Any]],
    ) -> Work[tuple[Any, list[Any]]]:
        """Return an error response and the results of all refused elements."""
        part = copy(request)
        response: Any = None
        answers: list[Any] = []
        for code, elements in refused.items():
            start = 0
            while start < len(elements):
                end, cost = start, 0
                while end < len(elements) and cost < REFUSED_A_STEP:
                    within = getattr(elements[end], "partitions", ())
                    cost += 1 + len(within) // PARTITIONS_LIKE_AN_ELEMENT
                    end += 1
                setattr(part, self.request_field, elements[start:end])
                response = error_response(part, code, context.api_version)
                told = getattr(response, self.response_field)
                if self.text_of is not None and code is not ErrorCode.INVALID_REQUEST:
                    text = self.text_of(code)
                    for each in told:
                        each.error_message = text
                answers += told
                start = end
                yield TURN_COST
        if getattr(response, "error_code", ErrorCode.NONE):
            response.error_code = ErrorCode.NONE
        return response, answers


def _in_order(elements: Any, answered: Iterable[Any], answers: list[Any]) -> Work[list[Any]]:
    """The answers in the order of `elements`, of which `answered` has all or some in another order."""
    pace = Pace(SORTED_A_STEP)
    of: dict[int, Any] = {}
    for each, answer in zip(answered, answers, strict=True):
        of[id(each)] = answer
        if pace.is_over():
            yield TURN_COST
    in_order = []
    for each in elements:
        if id(each) in of:
            in_order.append(of[id(each)])
        if pace.is_over():
            yield TURN_COST
    return in_order


def _in_order_of_names(elements: Any, answer_name: str, answers: list[Any]) -> Work[list[Any]]:
    pace = Pace(SORTED_A_STEP)
    of: dict[str, list[Any]] = {}
    for each in elements:
        of.setdefault(each if isinstance(each, str) else getattr(each, answer_name), [])
        if pace.is_over():
            yield TURN_COST
    for answer in answers:
        of[getattr(answer, answer_name)].append(answer)
        if pace.is_over():
            yield TURN_COST
    in_order: list[Any] = []
    for together in of.values():
        in_order += together
        if pace.is_over():
            yield TURN_COST
    return in_order


async def _given(answer: Any) -> Any:
    if isinstance(answer, GeneratorType):
        answer = await in_turns(answer)
    return (await answer) if isinstance(answer, Deferred | CoroutineType) else answer


# The functions that return the question for an element.


def to_topic(operation: AclOperation, field: str = "name") -> Asks:
    return lambda node, element: (operation, ResourceType.TOPIC, getattr(element, field))


def to_legal_topic(operation: AclOperation) -> Asks:
    def asks(node: AnyNode, element: Any) -> Ask | None:
        legal = is_legal_topic_name(element.name)
        return (operation, ResourceType.TOPIC, element.name) if legal else None

    return asks


def to_itself(operation: AclOperation, kind: ResourceType) -> Asks:
    """For elements that are names."""
    return lambda node, element: (operation, kind, element)


def to_group(operation: AclOperation) -> Asks:
    return lambda node, element: (operation, ResourceType.GROUP, element.group_id)


def _by_description(
    node: AnyNode, element: Any, ask: Ask, code: ErrorCode | None, is_described: bool
) -> tuple[ErrorCode | None, Any]:
    """The code of an element whose sender may describe its resource, or not, and the element as a refusal tells it.

    An unknown name is answered here, and not by the handler: the topic may be created before its turn comes.
    """
    if isinstance(element, str) or element.name is not None:
        if not is_described:
            return REFUSALS[ask[1]], element
        is_unknown = code is not None and ask[2] not in node.image.topics
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_unknown else code, element
    if code is not None and is_described:
        element = copy(element)
        element.name = ask[2]
    return code, element


def to_delete_topic(node: AnyNode, element: Any) -> Ask | None:
    """The right to delete a topic, besides DESCRIBE, whether it exists or not. An unknown id needs no right: nobody knows
    the id of a topic that is just being created."""
    name = element if isinstance(element, str) else element.name
    if name is None:
        known = node.image.topics_by_id.get(element.topic_id)
        return None if known is None else (AclOperation.DELETE, ResourceType.TOPIC, known.name)
    if not isinstance(element, str) and element.topic_id != ZERO_UUID:
        return None  # both a name and an id
    return AclOperation.DELETE, ResourceType.TOPIC, name


def to_create_topic(node: AnyNode, element: Any) -> Ask | None:
    if element.name == METADATA_TOPIC:
        return None
    return AclOperation.CREATE, ResourceType.TOPIC, element.name


def to_configs(operation: AclOperation, of_loggers: AclOperation | None) -> Asks:
    def asks(node: AnyNode, element: Any) -> Ask | None:
        match element.resource_type:
            case ConfigResourceType.TOPIC:
                return operation, ResourceType.TOPIC, element.resource_name
            case ConfigResourceType.GROUP:
                return operation, ResourceType.GROUP, element.resource_name
            case ConfigResourceType.BROKER | ConfigResourceType.CLIENT_METRICS:
                return operation, ResourceType.CLUSTER, CLUSTER_NAME
            case ConfigResourceType.BROKER_LOGGER if of_loggers is not None:
                return of_loggers, ResourceType.CLUSTER, CLUSTER_NAME
        return None

    return asks


def to_configs_here(*kinds: ConfigResourceType) -> Asks:
    """A broker checks the rights to what it validates or changes itself. The controller checks all of them."""

    def asks(node: AnyNode, element: Any) -> Ask | None:
        here = element.resource_type in kinds
        return (AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME) if here else None

    return asks


def config_resource(element: Any) -> tuple[int, str]:
    return element.resource_type, element.resource_name


def has_flawed_configs(resource: Any, pace: Pace) -> Work[bool]:
    """Return whether a setting is named twice, or is set to null."""
    names: set[str] = set()
    has_null = False
    for each in resource.configs:
        names.add(each.name)
        if each.value is None and getattr(each, "config_operation", SET) != DELETE:
            has_null = True
        if pace.is_over():
            yield TURN_COST
    return has_null or len(names) < len(resource.configs)


UNMADE_TYPES = frozenset({ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS})
"""Of resources that need not exist to be described."""
UNMADE_DESCRIBED_MAX = 10_000
"""Of these in one request. Each takes three kilobytes of the answer, and a few bytes of the request."""


def refuses_to_describe(request: Any) -> bool:
    """Whether the whole request for settings is refused: with a type that nobody knows, or too many resources that need not
    exist."""
    # One pass, which ends where it is decided: a request may have half a million of them.
    unmade = 0
    for each in request.resources:
        kind = each.resource_type
        if kind in UNMADE_TYPES:
            unmade += 1
            if unmade > UNMADE_DESCRIBED_MAX:
                return True
        elif kind not in DESCRIBED_TYPES:
            return True
    return False


def deletes_no_topics(node: AnyNode) -> bool:
    return not node.config.get_boolean("delete.topic.enable")


TOPICS = "topics", "topics"
DESCRIBE_TOPICS = NamedRights(*TOPICS, to_topic(AclOperation.DESCRIBE))
READ_PRODUCERS = NamedRights(
    *TOPICS, to_legal_topic(AclOperation.READ), order=Order.AS_ASKED, answer_name="name"
)
DESCRIBE_EPOCHS = NamedRights(*TOPICS, to_topic(AclOperation.DESCRIBE, "topic"), instead=CLUSTER_ACTION)
CREATE_TOPICS = NamedRights(
    *TOPICS,
    to_create_topic,
    instead=Right(AclOperation.CREATE),
    text_of=lambda code: "Authorization failed.",
    repeats_by=attrgetter("name"),
)
ALTER_TOPICS = NamedRights("topics", "results", to_topic(AclOperation.ALTER), repeats_by=attrgetter("name"))
DELETE_TOPICS = NamedRights(
    "topics",
    "responses",
    to_delete_topic,
    instead=Right(AclOperation.DELETE),
    describes=True,
    text_of=error_text,
    repeats_by=attrgetter("name", "topic_id"),
    unless_on=deletes_no_topics,
)
DELETE_TOPICS_BY_NAME = NamedRights(
    "topic_names",
    "responses",
    to_delete_topic,
    instead=Right(AclOperation.DELETE),
    describes=True,
    text_of=error_text,
    repeats_by=str,
    unless_on=deletes_no_topics,
)
DESCRIBE_GROUPS = NamedRights(
    "groups", "groups", to_itself(AclOperation.DESCRIBE, ResourceType.GROUP), order=Order.REFUSED_FIRST
)
DESCRIBE_CONSUMER_GROUPS = NamedRights(
    "group_ids", "groups", to_itself(AclOperation.DESCRIBE, ResourceType.GROUP), order=Order.REFUSED_FIRST
)
DESCRIBE_SHARE_GROUPS = DESCRIBE_CONSUMER_GROUPS
DESCRIBE_STREAMS_GROUPS = DESCRIBE_CONSUMER_GROUPS
DESCRIBE_SHARE_GROUP_OFFSETS = NamedRights(
    "groups", "groups", to_group(AclOperation.DESCRIBE), order=Order.AS_ASKED, answer_name="group_id"
)
DELETE_GROUPS = NamedRights("groups_names", "results", to_itself(AclOperation.DELETE, ResourceType.GROUP))
DESCRIBE_TRANSACTIONS = NamedRights(
    "transactional_ids",
    "transaction_states",
    to_itself(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    order=Order.AS_ASKED,
    answer_name="transactional_id",
)
DESCRIBE_CONFIGS = NamedRights(
    "resources",
    "results",
    to_configs(AclOperation.DESCRIBE_CONFIGS, AclOperation.DESCRIBE_CONFIGS),
    unless=refuses_to_describe,
)
ALTER_CONFIGS = NamedRights(
    "resources",
    "responses",
    to_configs(AclOperation.ALTER_CONFIGS, None),
    text_of=error_text,
    repeats_by=config_resource,
    is_flawed=has_flawed_configs,
    order=Order.AS_ASKED,
)
INCREMENTALLY_ALTER_CONFIGS = NamedRights(
    "resources",
    "responses",
    to_configs(AclOperation.ALTER_CONFIGS, AclOperation.CLUSTER_ACTION),
    text_of=error_text,
    repeats_by=config_resource,
    is_flawed=has_flawed_configs,
    order=Order.AS_ASKED,
)
ALTER_CONFIGS_HERE = NamedRights(
    "resources",
    "responses",
    to_configs_here(ConfigResourceType.BROKER),
    repeats_by=config_resource,
    is_flawed=has_flawed_configs,
    order=Order.AS_ASKED,
)
INCREMENTALLY_ALTER_CONFIGS_HERE = NamedRights(
    "resources",
    "responses",
    to_configs_here(ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER),
    repeats_by=config_resource,
    is_flawed=has_flawed_configs,
    order=Order.AS_ASKED,
)
