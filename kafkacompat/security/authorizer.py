"""StandardAuthorizer: whether a principal may do something, by the access control entries in the cluster's metadata
(KIP-801).

A matching deny decides first, then a matching allow. If no entry matches the resource at all, the default applies.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Set
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.addresses import as_peer_host, is_peer_host
from kafkacompat.config import ConfigError
from kafkacompat.config.server import AUTHORIZER_CLASS_NAME
from kafkacompat.ids import Uuid
from kafkacompat.security.acl import WILDCARD, Acl, AclOperation, AclPermissionType, PatternType, ResourceType
from kafkacompat.security.cidr import SLASH, CidrBlock, CidrFlaw, address_of, common_bits, parse_cidr
from kafkacompat.tasks import TURN_COST, Pace, Work, at_once

if TYPE_CHECKING:
    from kafkacompat.config import ServerConfig

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"


def authorizer_of(config: ServerConfig) -> StandardAuthorizer | None:
    """None if the settings have no authorizer. Raises ConfigError for any other class than Kafka's own, and for a user
    without a type."""
    class_name = config.get_string(AUTHORIZER_CLASS_NAME)
    if not class_name:
        return None
    if class_name != STANDARD_AUTHORIZER:
        raise ConfigError(AUTHORIZER_CLASS_NAME, class_name, f"only {STANDARD_AUTHORIZER} is served")
    originals = config.originals
    users = frozenset(
        _checked(user) for each in originals.get(SUPER_USERS, "").split(";") if (user := each.strip())
    )
    return StandardAuthorizer(users, originals.get(ALLOW_EVERYONE, "").strip().lower() == "true")


def _checked(user: str) -> str:
    kind, colon, name = user.partition(":")
    if not (kind and colon and name):
        raise ConfigError(SUPER_USERS, user, "a principal is written as its type and name, User:alice")
    return user


WILDCARD_PRINCIPAL = "User:*"
AUDIT = logging.getLogger("kafka.authorizer.logger")
"""Apache Kafka's logger of decisions: denials at INFO, grants at DEBUG."""
IMPLY_DESCRIBE = frozenset(
    (
        AclOperation.DESCRIBE,
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    )
)
IMPLY_DESCRIBE_CONFIGS = frozenset((AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS))
LITERAL, PREFIXED = int(PatternType.LITERAL), int(PatternType.PREFIXED)
ALL, ALLOW, DENY = int(AclOperation.ALL), int(AclPermissionType.ALLOW), int(AclPermissionType.DENY)
NO_ADDRESS = CidrBlock(4, 32, 0)
"""The block whose only address is 0.0.0.0, which no block has."""
DESCRIBE, DESCRIBE_CONFIGS = int(AclOperation.DESCRIBE), int(AclOperation.DESCRIBE_CONFIGS)
HOSTS_TOLD_MAX = 20
"""Hosts that match nobody, of which one update tells in a line each. Further ones are only counted."""
ANY_NAME = "hardcode"
"""The resource name that Apache Kafka uses to ask about a whole resource type: an operation allowed for it is allowed
for most names."""
TAKEN_A_STEP = 1_000
"""Entries of an update per step. One takes two or three microseconds."""
PEERS_KNOWN_MAX = 1_000
"""Clients' addresses of which the blocks that contain them are remembered."""
LOOKED_UP_A_STEP = 5_000
"""Lookups of a name or of one of its prefixes per step. One takes a quarter of a microsecond."""

_log = logging.getLogger(__name__)


class AuthorizerNotReady(Exception):
    """The entries are not loaded yet (error AUTHORIZER_NOT_READY)."""


class Asker(NamedTuple):
    """The principal of a request, and its address."""

    principal: str
    """Type and name, 'User:alice'."""
    host: str
    """The address as text."""
    api_name: str
    """The request's API, for the audit log."""


_ByPrincipal = dict[str, dict[str, list[Acl]]]
"""The entries of one pattern by principal, then by host. So a question never looks at the entries of others."""
Hosts = tuple[str, ...]
"""The hosts of entries that concern one address."""
_Grant = tuple[int, int, int, str, str]
"""What an entry says without its name: pattern type, permission, operation, principal, host."""


class _Names:
    """The entries of one resource type, found by resource name, and the names found by what is said of them."""

    __slots__ = ("_counts", "_named", "lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _ByPrincipal] = {}
        self.prefixed: dict[str, _ByPrincipal] = {}
        self.lengths: list[int] = []
        """The distinct lengths of the prefixes, longest first. A change replaces the list."""
        self._counts: dict[int, int] = {}
        """How many prefixes have each of these lengths."""
        self._named: dict[_Grant, dict[str, int]] = {}
        """The names of the entries that say the same, each with the number of these entries."""

    def patterns(self, acl: Acl) -> dict[str, _ByPrincipal]:
        return self.prefixed if acl.pattern_type == PREFIXED else self.literal

    def add(self, acl: Acl) -> None:
        patterns = self.patterns(acl)
        name = acl.resource_name
        by_principal = patterns.get(name)
        if by_principal is None:
            by_principal = patterns[name] = {}
            if patterns is self.prefixed:
                self._count(len(name), 1)
        by_principal.setdefault(acl.principal, {}).setdefault(acl.host, []).append(acl)
        named = self._named.setdefault(_grant(acl), {})
        named[name] = named.get(name, 0) + 1

    def remove(self, acl: Acl) -> None:
        patterns = self.patterns(acl)
        name = acl.resource_name
        by_principal = patterns[name]
        by_host = by_principal[acl.principal]
        by_host[acl.host].remove(acl)
        if not by_host[acl.host]:
            del by_host[acl.host]
            if not by_host:
                del by_principal[acl.principal]
                if not by_principal:
                    del patterns[name]
                    if patterns is self.prefixed:
                        self._count(len(name), -1)
        grant = _grant(acl)
        named = self._named[grant]
        named[name] -= 1
        if not named[name]:
            del named[name]
            if not named:
                del self._named[grant]

    def named_for(
        self, principal: str, hosts: Hosts, operation: int, pattern_type: int, permission: int
    ) -> list[dict[str, int]]:
        """The names of which the asker is told this, for any of the reasons that it may have."""
        return [
            named
            for who in (principal, WILDCARD_PRINCIPAL)
            for host in hosts
            for said in (operation, ALL)
            if (named := self._named.get((pattern_type, permission, said, who, host))) is not None
        ]

    def denied_for(
        self, principal: str, hosts: Hosts, operation: int
    ) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
        """The names and the prefixes that are denied to the asker."""
        return (
            self.named_for(principal, hosts, operation, LITERAL, DENY),
            self.named_for(principal, hosts, operation, PREFIXED, DENY),
        )

    def _count(self, length: int, more: int) -> None:
        counts = self._counts
        known = length in counts
        counts[length] = counts.get(length, 0) + more
        if not counts[length]:
            del counts[length]
        if known != (length in counts):
            self.lengths = sorted(counts, reverse=True)

    def that_hold_of(self, name: str) -> list[_ByPrincipal]:
        """The entries of each pattern that fits the name: the longest first, the wildcard last."""
        found = []
        if (by_principal := self.literal.get(name)) is not None:
            found.append(by_principal)
        length = len(name)
        for each in self.lengths:
            if each <= length and (by_principal := self.prefixed.get(name[:each])) is not None:
                found.append(by_principal)
        if name != WILDCARD and (by_principal := self.literal.get(WILDCARD)) is not None:
            found.append(by_principal)
        return found


class _Blocks:
    """The blocks of addresses among the hosts of all entries, found by an address in them (KIP-1276)."""

    __slots__ = ("_counts", "_known", "_texts")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        """How many entries have this text as their host."""
        self._texts: dict[tuple[int, int], dict[int, dict[str, None]]] = {}
        """The texts of each block: by version and prefix, then by network."""
        self._known: dict[str, Hosts] = {}
        """Results of `hosts_for`. A change of the blocks forgets them."""

    def hosts_for(self, host: str) -> Hosts:
        """The hosts of entries that concern a client at this address."""
        found = self._known.get(host)
        if found is None:
            if len(self._known) >= PEERS_KNOWN_MAX:
                self._known.clear()
            found = self._known[host] = (WILDCARD, host, *self._blocks_of(host))
        return found

    def _blocks_of(self, host: str) -> list[str]:
        address = address_of(host) if self._texts else None
        if address is None:
            return []
        return [
            text
            for (version, prefix), networks in self._texts.items()
            if version == address.version
            for text in networks.get(common_bits(address, prefix), ())
        ]

    def add(self, host: str) -> None:
        count = self._counts.get(host, 0)
        self._counts[host] = count + 1
        if count == 0 and (block := _block_of(host)) is not None:
            networks = self._texts.setdefault((block.version, block.prefix), {})
            networks.setdefault(block.network, {})[host] = None
            self._known.clear()

    def remove(self, host: str) -> None:
        self._counts[host] -= 1
        if self._counts[host]:
            return
        del self._counts[host]
        block = _block_of(host)
        if block is None:
            return
        key = (block.version, block.prefix)
        del self._texts[key][block.network][host]
        if not self._texts[key][block.network]:
            del self._texts[key][block.network]
            if not self._texts[key]:
                del self._texts[key]
        self._known.clear()


def _block_of(host: str) -> CidrBlock | None:
    """Nothing has checked the text: entries of a level below 4.4-IV1 may have any host."""
    try:
        return parse_cidr(host)
    except CidrFlaw:
        return None


class StandardAuthorizer:
    """Call `update` with each image's entries. Decisions use the latest ones."""

    def __init__(
        self, super_users: Set[str] = frozenset(), allow_everyone_if_no_acl_found: bool = False
    ) -> None:
        """`super_users`: principals of super.users, each with type and name. The other is
        allow.everyone.if.no.acl.found."""
        self.super_users = super_users
        self.allow_everyone_if_no_acl_found = allow_everyone_if_no_acl_found
        self.is_loaded = False
        """Whether the metadata log was read to the end that this node found."""
        self._acls: Mapping[Uuid, Acl] = {}
        self._names: dict[int, _Names] = {}
        self._blocks = _Blocks()
        self._change = 0
        """Counts the entries that were added and removed."""

    def update(self, acls: Mapping[Uuid, Acl], changed: Collection[Uuid] | None = None) -> None:
        """`acls` has all present entries by id, as in an image. It must not change afterwards. `changed` has at least the
        ids of those that differ from the entries of the last call. None: any may differ."""
        at_once(self.updating(acls, changed))

    def updating(self, acls: Mapping[Uuid, Acl], changed: Collection[Uuid] | None = None) -> Work[None]:
        """`update` in steps. One at a time. Whatever is asked meanwhile is decided as before the update or as after it: an
        entry that denies is added before all others, and removed after them. That is not enough with
        allow.everyone.if.no.acl.found: whoever is allowed without entries, and also with all of them, may be denied with some.
        So those are then taken in one step."""
        before = self._acls
        if acls is before:
            return
        added: dict[bool, list[Acl]] = {True: [], False: []}
        removed: dict[bool, list[Acl]] = {True: [], False: []}
        """By whether they deny."""
        looked = Pace(LOOKED_UP_A_STEP)
        keys_before, keys_after = (before, acls) if changed is None else (changed, changed)
        for key in keys_before:
            if looked.is_over():
                yield TURN_COST
            gone = before.get(key)
            if gone is not None and gone is not acls.get(key):
                removed[gone.permission_type == DENY].append(gone)
        for key in keys_after:
            if looked.is_over():
                yield TURN_COST
            new = acls.get(key)
            if new is not None and new is not before.get(key):
                added[new.permission_type == DENY].append(new)
        silent: dict[str, list[Acl]] = {}
        all_count = sum(map(len, (*added.values(), *removed.values())))
        is_divided = not (self.is_loaded and self.allow_everyone_if_no_acl_found)
        pace = Pace(TAKEN_A_STEP if is_divided else all_count + 1)
        for acl in chain(added[True], added[False]):
            if pace.is_over():
                yield TURN_COST
            self._add(acl)
            if _is_silent(acl.host):
                silent.setdefault(acl.host, []).append(acl)
        for acl in chain(removed[False], removed[True]):
            if pace.is_over():
                yield TURN_COST
            self._remove(acl)
        self._acls = acls
        if silent:
            _tell_silent(silent)

    def _add(self, acl: Acl) -> None:
        self._names.setdefault(acl.resource_type, _Names()).add(acl)
        if SLASH in acl.host:
            self._blocks.add(acl.host)
        self._change += 1

    def _remove(self, acl: Acl) -> None:
        self._names[acl.resource_type].remove(acl)
        if SLASH in acl.host:
            self._blocks.remove(acl.host)
        self._change += 1

    def allows(
        self,
        asker: Asker,
        operation: int,
        resource_type: int,
        name: str,
        *,
        count: int = 1,
        logs_allowed: bool = True,
        logs_denied: bool = True,
    ) -> bool:
        """`count` is how often the request names the resource. Raises AuthorizerNotReady."""
        allowed, rule = self._decide(asker, operation, resource_type, name)
        level = _audit_level(allowed, logs_allowed if allowed else logs_denied)
        if AUDIT.isEnabledFor(level):
            AUDIT.log(
                level,
                "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s for request = %s "
                "with resourceRefCount = %d based on rule %s",
                asker.principal,
                "Allowed" if allowed else "Denied",
                AclOperation.of(operation).name,
                asker.host,
                ResourceType.of(resource_type).name.title().replace("_", ""),
                name,
                asker.api_name,
                count,
                f"MatchingAcl(acl={rule})" if isinstance(rule, Acl) else rule,
            )
        return allowed

    def _decide(self, asker: Asker, operation: int, resource_type: int, name: str) -> tuple[bool, Acl | str]:
        principal = asker.principal
        if principal in self.super_users:
            return True, "SuperUser"
        if not self.is_loaded:
            raise AuthorizerNotReady
        names = self._names.get(resource_type)
        found = [] if names is None else names.that_hold_of(name)
        if not found:
            allowed = self.allow_everyone_if_no_acl_found
            return allowed, "DefaultAllow" if allowed else "DefaultDeny"
        hosts, allowing = self._blocks.hosts_for(asker.host), None
        for by_principal in found:
            allows: Acl | None = None
            denies: Acl | None = None
            for who in (principal, WILDCARD_PRINCIPAL):
                by_host = by_principal.get(who)
                if by_host is None:
                    continue
                for host in hosts:
                    for acl in by_host.get(host, ()):
                        if not _concerns(acl, operation):
                            continue
                        if acl.permission_type == DENY:
                            if denies is None or _place(acl) < _place(denies):
                                denies = acl
                        elif allows is None or _place(acl) > _place(allows):
                            allows = acl
            if denies is not None:
                return False, denies
            allowing = allows or allowing
        return (False, "DefaultDeny") if allowing is None else (True, allowing)

    def allows_any_of_type(self, asker: Asker, operation: int, resource_type: int) -> Work[bool]:
        """Whether the operation is allowed for any resource of the type, existing or not (KIP-679). With pauses: each name that
        is allowed may be one that is also denied."""
        if self.allows(asker, operation, resource_type, ANY_NAME, count=0, logs_denied=False):
            return True
        names = self._names.get(resource_type)
        if names is None:
            return False
        change = self._change
        principal, hosts = asker.principal, self._blocks.hosts_for(asker.host)
        denied, denied_prefixes = names.denied_for(principal, hosts, operation)
        allowed = names.named_for(principal, hosts, operation, LITERAL, ALLOW)
        if any(WILDCARD in named for named in denied):
            return False
        if any(WILDCARD in named for named in allowed):
            return True
        lengths = names.lengths if denied_prefixes else []
        looked_up = 0
        for each, is_literal in (
            *((each, True) for each in allowed),
            *((each, False) for each in names.named_for(principal, hosts, operation, PREFIXED, ALLOW)),
        ):
            banned = denied if is_literal else []
            for name in list(each):  # the entries may change between two steps
                if (
                    name in each
                    and not any(name in named for named in banned)
                    and not any(
                        name[:length] in named
                        for length in lengths
                        if length <= len(name)
                        for named in denied_prefixes
                    )
                ):
                    return True
                looked_up += 1 + len(lengths)
                if looked_up >= LOOKED_UP_A_STEP:
                    looked_up = 0
                    yield TURN_COST
                    if self._change != change:
                        # What was allowed and denied counts as it is now: a deny that follows an allow must not be missed.
                        change = self._change
                        hosts = self._blocks.hosts_for(asker.host)
                        denied, denied_prefixes = names.denied_for(principal, hosts, operation)
                        lengths = names.lengths if denied_prefixes else []
                        banned = denied if is_literal else []
                        if any(WILDCARD in named for named in denied):
                            return False
        return False


def _grant(acl: Acl) -> _Grant:
    return acl.pattern_type, acl.permission_type, acl.operation, acl.principal, acl.host


def _is_silent(host: str) -> bool:
    """Whether no client can have an address that this host concerns."""
    if SLASH not in host:
        return host != WILDCARD and not is_peer_host(host)
    block = _block_of(host)
    return block is None or block == NO_ADDRESS


def _tell_silent(by_host: Mapping[str, list[Acl]]) -> None:
    """Warn of entries that apply to nobody: hosts are compared as text with the client's address as Java writes it."""
    for host, acls in sorted(by_host.items())[:HOSTS_TOLD_MAX]:
        _log.warning(
            "%d access control entries of the host '%s' apply to no client, because an entry's host is '*', a block of "
            "addresses, or an address in the form in which the brokers write it: %s. The first of them: %s",
            len(acls),
            host,
            _form_that_matches(host),
            acls[0],
        )
    if len(by_host) > HOSTS_TOLD_MAX:
        _log.warning(
            "access control entries of %d further hosts apply to no client for the same reason",
            len(by_host) - HOSTS_TOLD_MAX,
        )


def _form_that_matches(host: str) -> str:
    if SLASH not in host:
        matching = as_peer_host(host)
        return "this is no address" if matching is None else f"'{matching}'"
    try:
        parse_cidr(host)
    except CidrFlaw as flaw:
        return f"this is no block ({flaw})"
    return "no client has an address of this block"


def _place(acl: Acl) -> tuple[int, str, str]:
    """The order of entries with the same pattern. Apache Kafka names the first one that denies and the last one that
    allows."""
    return acl.operation, acl.principal, acl.host


def _audit_level(allowed: bool, is_told: bool) -> int:
    if not is_told:
        return logging.DEBUG - 5
    return logging.DEBUG if allowed else logging.INFO


def _concerns(acl: Acl, operation: int) -> bool:
    """Whether the entry covers the operation. A right to change a resource implies the right to describe it. A deny of
    a change does not deny describing it."""
    said = acl.operation
    if said in (operation, ALL):
        return True
    if acl.permission_type != ALLOW:
        return False
    if operation == DESCRIBE:
        return said in IMPLY_DESCRIBE
    return operation == DESCRIBE_CONFIGS and said in IMPLY_DESCRIBE_CONFIGS
