"""Checks who gets in and who is served, in a simulated cluster with an authorizer.

The rights are those of the image of the node that decides, at a moment between the request's arrival and its answer.
For most requests that is one image. The judgement goes through all entries, and shares no code with the product's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import Uuid
from kafkacompat.security.acl import Acl, AclOperation, AclPermissionType, PatternType
from kafkacompat.security.scram import SCRAM_BY_NAME
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.processes import Environment
from kafkacompat.sim.security import (
    KINDS,
    NEITHER,
    PLAIN,
    REFUSALS,
    STATIC_PASSWORD,
    STATIC_USER,
    Claim,
    Kind,
    Need,
)
from kafkacompat.sim.views import MachineView
from kafkacompat.wire.apis import request_class, response_class
from kafkacompat.wire.codec import decode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.headers import parse_request_header, parse_response_header
from kafkacompat.wire.messages.create_delegation_token_request import CreateDelegationTokenRequest
from kafkacompat.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkacompat.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from kafkacompat.wire.principal import decode_principal

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.sim.links import Connection, SimulatedChannel
    from kafkacompat.sim.views import NodeView

ADDRESS = "127.0.0.1"
Acls = Mapping[Uuid, Acl]
TO_DESCRIBE = {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
TO_DESCRIBE_CONFIGS = {AclOperation.ALTER_CONFIGS}
IMPLIED = {AclOperation.DESCRIBE: TO_DESCRIBE, AclOperation.DESCRIBE_CONFIGS: TO_DESCRIBE_CONFIGS}


def judged(acls: Acls, principal: str, needs: tuple[Need, ...]) -> bool:
    """Whether these entries allow a principal at ADDRESS one of the needs."""
    return any(_allows(acls, principal, need) for need in needs)


def _named(need: Need, image: MetadataImage) -> Need:
    """The same with the topic's name, if the image has the topic."""
    topic = image.topics_by_id.get(need.name) if isinstance(need.name, bytes) else None
    return need if topic is None else need._replace(name=topic.name)


def _allows(acls: Acls, principal: str, need: Need) -> bool:
    name = str(need.name)
    about = [
        acl
        for acl in acls.values()
        if acl.resource_type == need.kind
        and acl.principal in (principal, "User:*")
        and acl.host in (ADDRESS, "*")
        and (
            name.startswith(acl.resource_name)
            if acl.pattern_type == PatternType.PREFIXED
            else acl.resource_name in (name, "*")
        )
    ]
    named = {need.operation, AclOperation.ALL}
    if any(acl.permission_type == AclPermissionType.DENY and acl.operation in named for acl in about):
        return False
    named = named | IMPLIED.get(need.operation, set())
    return any(acl.permission_type == AclPermissionType.ALLOW and acl.operation in named for acl in about)


@dataclass(slots=True)
class Session:
    """What the oracle knows about the client of one connection."""

    claim: Claim | None
    mechanism: str | None = None
    """Set by a handshake."""
    messages: int = 0
    known_as: str | None = None
    """The principal that the image knew the client as when its first message arrived. None if it may not get in."""
    expires_wall_ms: int | None = None
    """The end of its token."""
    principal: str | None = None
    """Once it is authenticated."""
    ends_ms: int | None = None
    """When its session ends, by the node's monotonic clock."""


@dataclass(slots=True)
class Asked:
    """A request that is not answered yet."""

    life: NodeView
    message: Any
    session: Session | None
    principal: str | None
    kind: Kind | None
    """None for a request that is not judged."""
    may_be_served: bool
    """False: nobody may be served on the connection at all."""
    is_anywhere: bool = False
    """Any controller may decide, instead of `life`."""
    version: int = 0
    needs: tuple[Need, ...] = ()
    possible: list[Acls] = field(default_factory=list)
    """The entries that the request may be judged by."""


class RightsOracle:
    def __init__(self, env: Environment, machines: Mapping[int, MachineView]) -> None:
        self._env = env
        self._machines = machines
        self.claims: dict[SimulatedChannel, Claim] = {}
        """What each client shows. It is set before the channel's first message."""
        self._sessions: dict[int, Session] = {}
        """By connection id."""
        self._asked: dict[int, Asked] = {}
        self.passwords: dict[bytes, str] = {}
        """By the salt of a SCRAM credential that somebody asked to store."""

    # Images.

    def published(self, life: NodeView, old: MetadataImage, new: MetadataImage) -> None:
        if old.acls is new.acls:
            return
        for asked in self._asked.values():
            if asked.life is life or (asked.is_anywhere and life.machine.is_controller):
                asked.possible.append(new.acls)

    # A client's connection.

    def arrives(self, life: NodeView, connection: Connection, message: Any) -> Asked:
        """A message of a client reaches the node."""
        session = self._sessions.get(connection.id)
        if session is None:
            session = self._sessions[connection.id] = Session(self.claims.get(connection.channel))
        if isinstance(message, SaslHandshakeRequest):
            session.mechanism = message.mechanism
        elif isinstance(message, SaslAuthenticateRequest):
            session.messages += 1
            if session.messages == 1 and session.mechanism is not None:
                self._look_up(session, life)
        kind = KINDS.get(type(message))
        asked = Asked(life, message, session, session.principal, kind, _is_open(session, life))
        asked.is_anywhere = kind is not None and kind.is_forwarded
        return self._begin(asked)

    def _begin(self, asked: Asked) -> Asked:
        image = asked.life.metadata.image
        if asked.kind is not None:
            asked.needs = tuple(_named(need, image) for need in asked.kind.needs(asked.message))
        asked.possible.append(image.acls)
        if asked.is_anywhere:
            lives = (machine.life for machine in self._machines.values() if machine.is_controller)
            asked.possible += [life.metadata.image.acls for life in lives if life is not None]
        self._asked[id(asked)] = asked
        return asked

    def _look_up(self, session: Session, life: NodeView) -> None:
        """Whom the node's image knows by the client's claim."""
        claim, image = session.claim, life.metadata.image
        assert claim is not None
        if claim.mechanism == PLAIN:
            if (claim.user, claim.password) == (STATIC_USER, STATIC_PASSWORD):
                session.known_as = f"User:{claim.user}"
        elif claim.is_token:
            token = image.delegation_tokens.get(claim.user)
            if token is not None:
                session.known_as = token.owner
                session.expires_wall_ms = token.expiration_timestamp
        else:
            credential = image.scram_credentials.get((claim.user, SCRAM_BY_NAME[claim.mechanism].type))
            if credential is not None and self.passwords[credential.salt] == claim.password:
                session.known_as = f"User:{claim.user}"

    def answered(self, asked: Asked, response: Any) -> None:
        del self._asked[id(asked)]
        session, life, message = asked.session, asked.life, asked.message
        if isinstance(message, SaslHandshakeRequest):
            return
        assert session is not None
        if isinstance(message, SaslAuthenticateRequest):
            self._authenticates(session, life, response.error_code)
            return
        name = type(message).__name__.removesuffix("Request")
        if not asked.may_be_served:
            raise Breach(
                "only who is authenticated is served", f"node {life.id} answers a {name} of {session}"
            )
        if isinstance(message, CreateDelegationTokenRequest):
            claim = session.claim
            if claim is not None and claim.is_token and response.error_code == ErrorCode.NONE:
                raise Breach("a token gets no token", f"node {life.id} gives one to {session}")
        elif asked.kind is not None:
            self._judge(asked, asked.kind.code(response))

    def _authenticates(self, session: Session, life: NodeView, error_code: int) -> None:
        counters = self._env.counters
        if error_code != ErrorCode.NONE:
            self._turned_away(session, life)
            return
        claim = session.claim
        assert claim is not None
        if claim.mechanism != PLAIN and session.messages == 1:
            return  # the server's challenge, which an unknown user does not get
        if session.known_as is None:
            raise Breach("only who is known gets in", f"node {life.id} lets {claim} in")
        session.principal = session.known_as
        counters.logins += 1
        if session.expires_wall_ms is not None:
            counters.logins_with_tokens += 1
            session.ends_ms = life.monotonic_ms() + max(0, session.expires_wall_ms - life.now_ms())

    def _turned_away(self, session: Session, life: NodeView) -> None:
        self._env.counters.logins_refused += 1
        claim = session.claim
        if claim is not None and claim.is_token and claim.user not in life.metadata.image.delegation_tokens:
            return  # it has expired while a worker derived its key
        if session.known_as is not None:
            raise Breach("who is known gets in", f"node {life.id} refuses {session}")

    def refused(self, asked: Asked, is_judged: bool = True) -> None:
        """The node closes the connection instead of an answer. `is_judged`: False if the node could not find out who asks,
        for want of a worker or because of a bug, which is reported."""
        del self._asked[id(asked)]
        session = asked.session
        if session is None:
            return
        if isinstance(asked.message, SaslAuthenticateRequest):
            if is_judged:
                self._turned_away(session, asked.life)
        elif session.principal is not None and not asked.may_be_served:
            self._env.counters.sessions_ended += 1

    # An envelope at a controller.

    def forwarded(self, life: NodeView, envelope: Any) -> Asked:
        """A broker forwards a client's request. The controller judges by its own image."""
        principal = decode_principal(envelope.request_principal)
        header = parse_request_header(memoryview(envelope.request_data))
        kind = KINDS.get(request_class(header.api_key))
        message = None
        if kind is not None:
            inner = request_class(header.api_key)
            message = decode(inner, header.api_version, bytes(envelope.request_data[header.body_offset :]))
        who = f"{principal.type}:{principal.name}"
        is_super = who == "User:ANONYMOUS"
        asked = Asked(life, message, None, who, None if is_super else kind, True, version=header.api_version)
        return self._begin(asked)

    def unwrapped(self, asked: Asked, envelope: Any) -> None:
        del self._asked[id(asked)]
        if asked.kind is None or envelope.error_code != ErrorCode.NONE:
            return
        data, key = envelope.response_data, asked.message.API_KEY
        _, start = parse_response_header(data, key, asked.version)
        self._judge(asked, asked.kind.code(decode(response_class(key), asked.version, data[start:])))

    # Rights.

    def _judge(self, asked: Asked, code: int) -> None:
        if code in NEITHER:
            return
        assert asked.principal is not None
        if any(isinstance(need.name, bytes) for need in asked.needs):
            return  # the node did not know the topic when it was asked
        verdicts = {judged(acls, asked.principal, asked.needs) for acls in asked.possible}
        counters = self._env.counters
        is_refused = code in REFUSALS
        counters.requests_refused += is_refused
        counters.requests_allowed += not is_refused
        name = type(asked.message).__name__.removesuffix("Request")
        told = f"node {asked.life.id} answers a {name} of {asked.principal} with {ErrorCode(code).name}: {asked.needs}"
        if is_refused and False not in verdicts:
            raise Breach("what is allowed is not refused", told)
        if not is_refused and True not in verdicts:
            raise Breach("what is denied is not served", told)


def _is_open(session: Session, life: NodeView) -> bool:
    """Whether the client is authenticated, and its session has not ended."""
    if session.principal is None:
        return False
    return session.ends_ms is None or life.monotonic_ms() <= session.ends_ms
