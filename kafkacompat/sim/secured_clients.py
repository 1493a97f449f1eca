"""Clients that authenticate themselves: by a password in the settings, by a SCRAM user, or by a delegation token. And
the super user that changes access control entries and SCRAM users meanwhile.

Each connects to any broker, shows who it is, sends some requests and leaves. Its knowledge of users and tokens may be
out of date. The oracle of rights checks the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkacompat.deferred import Deferred
from kafkacompat.net.channels import ChannelError
from kafkacompat.security.acl import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from kafkacompat.security.sasl_server import initial_response
from kafkacompat.security.scram import NONCE_BITS, SCRAM_BY_NAME, nonce_text
from kafkacompat.security.scram_exchange import ScramSaslClient
from kafkacompat.sim.clients import TIMEOUT_MS, Client
from kafkacompat.sim.links import SECURED_PORT, Links, SimulatedChannel, host_name
from kafkacompat.sim.rights_oracle import RightsOracle
from kafkacompat.sim.security import (
    ITERATIONS,
    PLAIN,
    SCRAM_USERS,
    STATIC_PASSWORD,
    STATIC_USER,
    Claim,
    ShownToken,
    any_request,
    fetch_request_for,
    salted_password,
)
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafkacompat.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from kafkacompat.wire.messages.create_delegation_token_request import CreateDelegationTokenRequest
from kafkacompat.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from kafkacompat.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from kafkacompat.wire.messages.fetch_request import FetchRequest
from kafkacompat.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from kafkacompat.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkacompat.wire.messages.sasl_handshake_request import SaslHandshakeRequest

ENTRIES_MAX = 5
"""Entries that one request creates."""
CREDENTIALS_KEPT = 6
PASSWORDS = 3
ANY = 1
PRINCIPALS = (f"User:{STATIC_USER}", *(f"User:{name}" for name in SCRAM_USERS), "User:*")
HOSTS = ("*", "*", "127.0.0.1", "192.0.2.7")
KINDS = (ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)
NAMES = {
    ResourceType.TOPIC: ("t0", "t1", "again", "*", "unknown"),
    ResourceType.GROUP: ("g-1", "other", "*"),
    ResourceType.CLUSTER: (CLUSTER_NAME,),
}


class RightsChanges(Client):
    def __init__(self, links: Links, client_id: int, oracle: RightsOracle) -> None:
        super().__init__(links, client_id)
        self._oracle = oracle
        self.credentials: list[Claim] = []
        """What users were last given, and before. Some of it is not valid any more."""

    def start(self) -> None:
        self._plan()
        for name in SCRAM_USERS:
            self._give_password(name)
        self._create()

    def _plan(self) -> None:
        self.later(self._act, 2 * self.env.options.rights_ms)

    def _act(self) -> None:
        if self.env.is_over_for_producers:
            return
        self._plan()
        kind = self.chance.uniform()
        user = SCRAM_USERS[self.chance.randrange(len(SCRAM_USERS))]
        if kind < 0.45:
            self._create()
        elif kind < 0.7:
            self._delete()
        elif kind < 0.9:
            self._give_password(user)
        else:
            self._delete_user(user)

    def _any_of(self, values: tuple[Any, ...]) -> Any:
        return values[self.chance.randrange(len(values))]

    def _create(self) -> None:
        count = 1 + self.chance.randrange(ENTRIES_MAX)
        self._send(CreateAclsRequest(creations=[self._entry() for _ in range(count)]))

    def _entry(self) -> AclCreation:
        kind = self._any_of(KINDS)
        name, pattern = self._any_of(NAMES[kind]), PatternType.LITERAL
        if kind is not ResourceType.CLUSTER and name != "*" and self.chance.happens(0.3):
            name, pattern = name[: self.chance.between(1, len(name))], PatternType.PREFIXED
        is_allowed = self.chance.happens(0.75)
        return AclCreation(
            resource_type=int(kind),
            resource_name=name,
            resource_pattern_type=int(pattern),
            principal=self._any_of(PRINCIPALS),
            host=self._any_of(HOSTS),
            operation=int(self._any_of((AclOperation.ALL, *SUPPORTED_OPERATIONS[kind]))),
            permission_type=int(AclPermissionType.ALLOW if is_allowed else AclPermissionType.DENY),
        )

    def _delete(self) -> None:
        """Delete the entries of one principal, of one type of resource, or those that deny."""
        chosen = self.chance.randrange(3)
        found = DeleteAclsFilter(
            resource_type_filter=int(self._any_of(KINDS)) if chosen == 0 else ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=self._any_of(PRINCIPALS) if chosen == 1 else None,
            host_filter=None,
            operation=ANY,
            permission_type=int(AclPermissionType.DENY) if chosen == 2 else ANY,
        )
        self._send(DeleteAclsRequest(filters=[found]))

    def _give_password(self, user: str) -> None:
        mechanism = SCRAM_BY_NAME[self._any_of(tuple(SCRAM_BY_NAME))]
        password = f"password {self.chance.randrange(PASSWORDS)}"
        # A new salt with every change tells the oracle which change the image has.
        salt = self.chance.uuid()
        self._oracle.passwords[salt] = password
        self.credentials.append(Claim(mechanism.name, user, password))
        del self.credentials[:-CREDENTIALS_KEPT]
        upsertion = ScramCredentialUpsertion(
            name=user,
            mechanism=mechanism.type,
            iterations=ITERATIONS,
            salt=salt,
            salted_password=salted_password(mechanism.name, password, salt),
        )
        self._send(AlterUserScramCredentialsRequest(upsertions=[upsertion]))

    def _delete_user(self, user: str) -> None:
        mechanism = SCRAM_BY_NAME[self._any_of(tuple(SCRAM_BY_NAME))]
        gone = ScramCredentialDeletion(name=user, mechanism=mechanism.type)
        self._send(AlterUserScramCredentialsRequest(deletions=[gone]))

    def _send(self, request: Any) -> None:
        def answered(done: Deferred[Any]) -> None:
            try:
                done.result()
            except ChannelError:
                return
            self.env.counters.rights_changed += 1

        self.ask(self.any_broker(), request, "rights").on_done(answered)


PURPOSE = "secured"
PAUSE_MS, REQUESTS_MAX, LONG_REQUESTS_MAX = 120, 6, 30
"""Maximum pause between two requests, and between two connections."""
SHARE_OF_INTRUDERS = 0.05
"""Of the connections, those that begin with a request instead of an exchange."""
TOKENS_KEPT = 6
SHORTEST_TOKEN_MS, LONGEST_TOKEN_MS = 100, 5_000
GROUPS = ("g-1", "other")
UNKNOWN_TOPIC = "unknown"

Then = Callable[[Any], None]


class SecuredClient(Client):
    def __init__(self, links: Links, client_id: int, oracle: RightsOracle, changes: RightsChanges) -> None:
        super().__init__(links, client_id)
        self._oracle = oracle
        self._changes = changes
        self._tokens: list[ShownToken] = []
        """The tokens that it got, which may have expired since."""
        self._left = 0
        """Requests until it leaves."""
        self._claim = Claim(PLAIN, STATIC_USER, STATIC_PASSWORD)
        self._channel: SimulatedChannel | None = None

    def start(self) -> None:
        self.refresh()
        self.later(self._connect, PAUSE_MS)

    def _connect(self) -> None:
        if self.env.is_over_for_producers:
            return
        self._claim = claim = self._any_claim()
        is_long = self.chance.happens(0.3)
        self._left = 1 + self.chance.randrange(LONG_REQUESTS_MAX if is_long else REQUESTS_MAX)
        node_id = self.any_broker()
        self._channel = self.channels.get(host_name(node_id), SECURED_PORT, PURPOSE)
        self._oracle.claims[self._channel] = claim
        if self.chance.happens(SHARE_OF_INTRUDERS):
            self._ask()
        else:
            self._send(SaslHandshakeRequest(mechanism=claim.mechanism), self._shaken)

    def _any_claim(self) -> Claim:
        chance, users = self.chance, self._changes.credentials
        kind = chance.uniform()
        if kind < 0.4 and self._tokens:
            token = self._tokens[chance.randrange(len(self._tokens))]
            mechanism = list(SCRAM_BY_NAME)[chance.randrange(len(SCRAM_BY_NAME))]
            return Claim(mechanism, token.token_id, _password_of(token), True)
        if kind < 0.8 and users:
            return users[chance.randrange(len(users))]
        is_wrong = chance.happens(0.1)
        return Claim(PLAIN, STATIC_USER, "guessed" if is_wrong else STATIC_PASSWORD)

    def _send(self, message: Any, then: Then) -> None:
        """`then` gets the answer. Without an answer the client leaves."""
        channel = self._channel
        assert channel is not None

        def answered(done: Deferred[Any]) -> None:
            if channel is not self._channel:
                return
            try:
                answer = done.result()
            except ChannelError:
                self._leave()
                return
            then(answer)

        channel.request(message, TIMEOUT_MS).on_done(answered)

    def _leave(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
        self.later(self._connect, PAUSE_MS)

    # Authentication.

    def _shaken(self, answer: Any) -> None:
        claim = self._claim
        if answer.error_code:
            self._leave()
        elif claim.mechanism == PLAIN:
            token = initial_response(claim.user, claim.password)
            self._send(SaslAuthenticateRequest(auth_bytes=token), self._let_in)
        else:
            exchange = ScramSaslClient(
                SCRAM_BY_NAME[claim.mechanism],
                claim.user,
                claim.password,
                nonce_text(self.chance.randrange(1 << NONCE_BITS)),
                claim.is_token,
            )
            first = SaslAuthenticateRequest(auth_bytes=exchange.initial_response())
            self._send(first, lambda answer: self._challenged(exchange, answer))

    def _challenged(self, exchange: ScramSaslClient, answer: Any) -> None:
        if answer.error_code:
            self._leave()
            return
        proof = exchange.evaluate_challenge(bytes(answer.auth_bytes))
        assert proof is not None

        def proven(last: Any) -> None:
            if last.error_code == ErrorCode.NONE:
                exchange.evaluate_challenge(bytes(last.auth_bytes))
            self._let_in(last)

        self._send(SaslAuthenticateRequest(auth_bytes=proof), proven)

    def _let_in(self, answer: Any) -> None:
        if answer.error_code:
            self._leave()
        else:
            self._pause()

    # Requests.

    def _pause(self, call: Callable[[], None] | None = None) -> None:
        channel = self._channel

        def go_on() -> None:
            if channel is self._channel:
                (call or self._ask)()

        self.later(go_on, PAUSE_MS)

    def _ask(self) -> None:
        self._left -= 1
        if self._left < 0 or self.env.is_over_for_producers:
            self._leave()
        elif self.chance.happens(0.25):
            self._ask_about_tokens()
        else:
            topic, topic_id = self._any_topic()
            group = GROUPS[self.chance.randrange(len(GROUPS))]
            probe = any_request(self.chance, topic, topic_id, group)
            if isinstance(probe, FetchRequest):
                self._fetch(topic, topic_id, 0, 0)
            else:
                self._send(probe, lambda answer: self._pause())

    def _any_topic(self) -> tuple[str, bytes]:
        known = {place.topic: place.topic_id for place in self.places.values()}
        if not known or self.chance.happens(0.1):
            return UNKNOWN_TOPIC, bytes(16)
        names = list(known)
        name = names[self.chance.randrange(len(names))]
        return name, known[name]

    def _fetch(self, topic: str, topic_id: bytes, session_id: int, epoch: int) -> None:
        """Begin a fetch session, and go on with it while requests are left."""

        def answered(answer: Any) -> None:
            self._left -= 1
            if self._left < 0 or answer.error_code or not answer.session_id:
                self._pause()
                return
            self._pause(lambda: self._fetch(topic, topic_id, answer.session_id, epoch + 1))

        self._send(fetch_request_for(topic, topic_id, session_id, epoch), answered)

    def _ask_about_tokens(self) -> None:
        if not self._tokens or self.chance.happens(0.5):
            lifetime_ms = self.chance.between(SHORTEST_TOKEN_MS, LONGEST_TOKEN_MS)
            self._send(CreateDelegationTokenRequest(max_lifetime_ms=lifetime_ms), self._got_token)
            return
        token = self._tokens[self.chance.randrange(len(self._tokens))]
        period_ms = self.chance.between(SHORTEST_TOKEN_MS, LONGEST_TOKEN_MS)
        request: Any = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=period_ms)
        if self.chance.happens(0.5):
            at_once = self.chance.happens(0.5)
            request = ExpireDelegationTokenRequest(
                hmac=token.hmac, expiry_time_period_ms=-1 if at_once else period_ms
            )
        self._send(request, lambda answer: self._pause())

    def _got_token(self, answer: Any) -> None:
        if answer.error_code == ErrorCode.NONE:
            self._tokens.append(ShownToken(answer.token_id, bytes(answer.hmac)))
            del self._tokens[:-TOKENS_KEPT]
        self._pause()


def _password_of(token: ShownToken) -> str:
    from base64 import b64encode

    return b64encode(token.hmac).decode()
