"""Changes access control entries and SCRAM users while clients use them. The client is a super user.

Each request is sent once, and its result does not matter.
"""

from __future__ import annotations

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
from kafkacompat.security.scram import SCRAM_BY_NAME
from kafkacompat.sim.clients import Client
from kafkacompat.sim.links import Links
from kafkacompat.sim.rights_oracle import RightsOracle
from kafkacompat.sim.secured import ITERATIONS, SCRAM_USERS, STATIC_USER, Claim, salted_password
from kafkacompat.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafkacompat.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from kafkacompat.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest

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
