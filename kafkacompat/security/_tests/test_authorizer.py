"""The authorizer compared with single rules, and with a model that examines every entry."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkacompat.ids import Uuid
from kafkacompat.security.acl import (
    SUPPORTED_OPERATIONS,
    Acl,
    AclFilter,
    AclOperation,
    AclPermissionType,
    FilterFlaw,
    PatternType,
    ResourceType,
    check_filter,
)
from kafkacompat.security.authorizer import (
    HOSTS_TOLD_MAX,
    LOOKED_UP_A_STEP,
    PEERS_KNOWN_MAX,
    Asker,
    AuthorizerNotReady,
    StandardAuthorizer,
)
from kafkacompat.tasks import at_once

ALICE = Asker("User:alice", "10.0.0.1", "Fetch")
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def acl(
    name: str = "t",
    operation: int = AclOperation.READ,
    permission: int = ALLOW,
    *,
    pattern: int = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    kind: int = ResourceType.TOPIC,
) -> Acl:
    return Acl(kind, name, pattern, principal, host, operation, permission)


def by_id(*acls: Acl, first: int = 1) -> dict[Uuid, Acl]:
    return {number.to_bytes(16, "big"): each for number, each in enumerate(acls, first)}


def authorizer(
    *acls: Acl, super_users: frozenset[str] = frozenset(), default: bool = False
) -> StandardAuthorizer:
    made = StandardAuthorizer(super_users, default)
    made.update(by_id(*acls))
    made.is_loaded = True
    return made


def reads_something(of: StandardAuthorizer, kind: int = ResourceType.TOPIC) -> bool:
    return at_once(of.allows_any_of_type(ALICE, AclOperation.READ, kind))


def longest_step(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """The value, and the lines of Python that the longest step runs."""
    lines: list[int] = []
    while True:
        done, count = lines_of(lambda: next(steps, steps))
        lines.append(count)
        if done is steps:
            return None, max(lines)


def lines_of(function: Callable[[], Any]) -> tuple[Any, int]:
    """The value, and how many lines of Python are run. It tells the length of a step without a clock."""
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return function(), count
    finally:
        sys.settrace(before)


def reads(of: StandardAuthorizer, name: str = "t", asker: Asker = ALICE) -> bool:
    return of.allows(asker, AclOperation.READ, ResourceType.TOPIC, name)


@pytest.mark.parametrize("default", [False, True])
def test_the_default_holds_where_no_entry_names_the_resource(default: bool) -> None:
    of = authorizer(acl("other"), default=default)
    assert reads(of) is default
    assert not reads(authorizer(acl(principal="User:bob"), default=True))


def test_an_entry_of_anybody_closes_the_resource_to_others() -> None:
    assert not reads(authorizer(acl("*", principal="User:bob"), default=True))
    assert not reads(authorizer(acl("t", principal="User:bob", pattern=PREFIXED), default=True), "topic")


def test_a_deny_decides_whatever_is_allowed() -> None:
    assert reads(authorizer(acl()))
    assert not reads(authorizer(acl(), acl("*", permission=DENY)))
    assert not reads(
        authorizer(
            acl(), acl("", permission=DENY, principal="User:*", pattern=PREFIXED), acl("t", permission=DENY)
        )
    )
    assert not reads(authorizer(acl(), acl("t", AclOperation.ALL, DENY, principal="User:*")))


def test_names_are_whole_or_prefixes() -> None:
    of = authorizer(acl("foo", pattern=PREFIXED), acl("bar"), acl("f", permission=DENY, principal="User:bob"))
    assert [reads(of, name) for name in ("foo", "foobar", "fo", "bar", "bars", "f")] == [
        True,
        True,
        False,
        True,
        False,
        False,
    ]


def test_hosts_are_addresses_or_any() -> None:
    of = authorizer(acl(host="10.0.0.1"), acl(host="10.0.0.2", permission=DENY))
    assert reads(of)
    assert not reads(of, asker=ALICE._replace(host="10.0.0.2"))
    assert not reads(of, asker=ALICE._replace(host="10.0.0.3"))


def test_hosts_are_blocks_of_addresses() -> None:
    of = authorizer(
        acl(host="10.0.0.0/8"), acl(host="10.9.0.0/16", permission=DENY), acl(host="2001:db8::/32")
    )
    asking = {
        host: reads(of, asker=ALICE._replace(host=host))
        for host in ("10.0.0.1", "10.9.1.2", "11.0.0.1", "2001:db8:0:0:0:0:0:1", "2001:db9:0:0:0:0:0:1", "?")
    }
    assert [host for host, may in asking.items() if may] == ["10.0.0.1", "2001:db8:0:0:0:0:0:1"]


def test_a_block_that_goes_or_comes_holds_at_once_for_addresses_that_have_asked() -> None:
    of = authorizer(acl(host="10.0.0.0/8"), acl("u", host="10.0.0.0/8"))
    assert reads(of)
    of.update(by_id(acl("u", host="10.0.0.0/8"), first=2))
    assert not reads(of)
    assert reads(of, "u")
    of.update({})
    assert not reads(of, "u")
    of.update(by_id(acl(host="10.0.0.0/31", permission=DENY), acl(host="10.0.0.1/8"), first=3))
    assert not reads(of)


def test_of_any_number_of_addresses_few_are_remembered() -> None:
    of = authorizer(acl(host="10.0.0.0/8"))
    for number in range(PEERS_KNOWN_MAX + 10):
        assert reads(of, asker=ALICE._replace(host=f"10.1.{number >> 8}.{number & 255}"))
    assert len(of._blocks._known) <= PEERS_KNOWN_MAX


def test_a_decision_does_not_look_at_the_blocks_of_other_addresses() -> None:
    blocks = [f"11.{number >> 8}.{number & 255}.0/24" for number in range(5_000)]
    of = authorizer(*[acl("*", host=block) for block in blocks], acl(host="10.0.0.0/8"))
    allowed, lines = lines_of(lambda: reads(of))
    assert allowed
    assert lines < 300


@pytest.mark.parametrize("said", AclOperation)
def test_rights_that_imply_to_describe(said: AclOperation) -> None:
    def allows(asked: AclOperation, permission: AclPermissionType) -> bool:
        return authorizer(acl("t", said, permission), default=False).allows(
            ALICE, asked, ResourceType.TOPIC, "t"
        )

    implied = said.name in ("ALL", "READ", "WRITE", "DELETE", "ALTER", "DESCRIBE")
    assert allows(AclOperation.DESCRIBE, ALLOW) is implied
    assert allows(AclOperation.DESCRIBE_CONFIGS, ALLOW) is (
        said.name in ("ALL", "ALTER_CONFIGS", "DESCRIBE_CONFIGS")
    )


def test_a_ban_on_reading_does_not_hide() -> None:
    of = authorizer(acl(permission=DENY), acl("t", AclOperation.WRITE))
    assert of.allows(ALICE, AclOperation.DESCRIBE, ResourceType.TOPIC, "t")
    assert not reads(of)


def test_super_users_may_everything_even_before_the_entries_are_loaded() -> None:
    of = authorizer(acl(permission=DENY), super_users=frozenset({"User:alice"}))
    of.is_loaded = False
    assert reads(of)
    with pytest.raises(AuthorizerNotReady):
        reads(of, asker=ALICE._replace(principal="User:bob"))


def test_entries_that_go_hold_no_more() -> None:
    of = authorizer(acl(), acl(permission=DENY), acl("t", pattern=PREFIXED, permission=DENY))
    assert not reads(of)
    of.update(by_id(acl()))
    assert reads(of)
    of.update({})
    assert not reads(of)
    of.allow_everyone_if_no_acl_found = True
    assert reads(of)


def test_the_audit_tells_of_refusals_and_keeps_filters_quiet(caplog: pytest.LogCaptureFixture) -> None:
    of = authorizer(acl(permission=DENY))
    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
        reads(of)
        of.allows(ALICE, AclOperation.READ, ResourceType.TOPIC, "t", logs_denied=False)
    assert [each.getMessage() for each in caplog.records] == [
        "Principal = User:alice is Denied operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:t "
        "for request = Fetch with resourceRefCount = 1 based on rule MatchingAcl(acl=StandardAcl[resourceType=TOPIC, "
        "resourceName=t, patternType=LITERAL, principal=User:alice, host=*, operation=READ, permissionType=DENY])"
    ]


@pytest.mark.parametrize(
    ("entries", "named"),
    [
        # Of those that allow the last one, in the order of patterns and then of operations.
        ([acl(), acl(name="*")], acl(name="*")),
        ([acl(name="*"), acl(name="t", pattern=PREFIXED)], acl(name="*")),
        ([acl(name="t", pattern=PREFIXED), acl()], acl(name="t", pattern=PREFIXED)),
        (
            [acl(operation=AclOperation.READ), acl(operation=AclOperation.ALL)],
            acl(operation=AclOperation.READ),
        ),
        ([acl(principal="User:*"), acl()], acl()),
        ([acl(host="10.0.0.1"), acl()], acl(host="10.0.0.1")),
        # Of those that deny the first one.
        ([acl(permission=DENY), acl(name="*", permission=DENY)], acl(permission=DENY)),
        (
            [
                acl(operation=AclOperation.READ, permission=DENY),
                acl(operation=AclOperation.ALL, permission=DENY),
            ],
            acl(operation=AclOperation.ALL, permission=DENY),
        ),
        ([acl(), acl(principal="User:*", permission=DENY)], acl(principal="User:*", permission=DENY)),
    ],
)
def test_the_audit_names_the_entry_that_apache_kafka_names(
    entries: list[Acl], named: Acl, caplog: pytest.LogCaptureFixture
) -> None:
    for order in (entries, entries[::-1]):
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "kafka.authorizer.logger"):
            reads(authorizer(*order))
        (told,) = caplog.records
        assert told.getMessage().endswith(f"based on rule MatchingAcl(acl={named})")


NAMES = st.sampled_from(["*", "a", "ab", "abc", "b", "ba"])
ACLS = st.lists(
    st.builds(
        Acl,
        st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
        NAMES,
        st.sampled_from([LITERAL, PREFIXED]),
        st.sampled_from(["User:alice", "User:bob", "User:*"]),
        st.sampled_from(
            ["*", "10.0.0.1", "10.0.0.2", "10.0.0.0/30", "10.0.0.3/30", "10.0.0.4/30", "0.0.0.0/0"]
        ),
        st.sampled_from([AclOperation.ALL, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE]),
        st.sampled_from([ALLOW, DENY]),
    ),
    max_size=6,
)


def _concerns(host: str, address: str) -> bool:
    if "/" in host:
        return ip_address(address) in ip_network(host, strict=False)
    return host in ("*", address)


def model(acls: list[Acl], asker: Asker, operation: int, kind: int, name: str) -> bool:
    named = [
        each for each in acls if AclFilter(kind, name, PatternType.MATCH, None, None, 1, 1).matches(each)
    ]
    mine = [
        each
        for each in named
        if each.principal in (asker.principal, "User:*") and _concerns(each.host, asker.host)
    ]
    if any(each.permission_type == DENY and each.operation in (operation, AclOperation.ALL) for each in mine):
        return False
    enough = {operation, AclOperation.ALL}
    if operation == AclOperation.DESCRIBE:
        enough |= {AclOperation.READ, AclOperation.WRITE}
    return any(each.permission_type == ALLOW and each.operation in enough for each in mine)


@given(ACLS, ACLS, st.sampled_from([AclOperation.READ, AclOperation.DESCRIBE]), NAMES)
def test_decisions_equal_those_of_a_model_that_looks_at_every_entry(
    before: list[Acl], acls: list[Acl], operation: AclOperation, name: str
) -> None:
    of = authorizer(*before)
    of.update(by_id(*acls, first=100))
    assert of.allows(ALICE, operation, ResourceType.TOPIC, name) is model(
        acls, ALICE, operation, ResourceType.TOPIC, name
    )


@given(ACLS, ACLS, ACLS, st.sampled_from([AclOperation.READ, AclOperation.DESCRIBE]), NAMES)
def test_an_update_that_names_what_has_changed_looks_at_nothing_else(
    stays: list[Acl], goes: list[Acl], comes: list[Acl], operation: AclOperation, name: str
) -> None:
    """Also if it names entries that are the same."""
    gone, come, kept = by_id(*goes, first=100), by_id(*comes, first=200), by_id(*stays)
    of = authorizer()
    of.update({**kept, **gone})
    unseen = by_id(acl(pattern=PREFIXED, name="a", permission=DENY), first=300)
    of.update({**kept, **come, **unseen}, [*gone, *come, *list(kept)[:1]])
    assert of.allows(ALICE, operation, ResourceType.TOPIC, name) is model(
        [*stays, *comes], ALICE, operation, ResourceType.TOPIC, name
    )
    for kind, names in of._names.items():
        lengths = {
            len(each.resource_name)
            for each in [*stays, *comes]
            if each.pattern_type == PREFIXED and each.resource_type == kind
        }
        assert names.lengths == sorted(lengths, reverse=True)


@given(ACLS)
def test_something_of_a_type_is_allowed_where_some_name_is(acls: list[Acl]) -> None:
    """All names of up to three letters from the alphabet of the patterns, plus one more letter."""
    letters = ["a", "b", "c", "x"]
    names = [
        *letters,
        *[a + b for a in letters for b in letters],
        "abc",
        "abx",
        "abcx",
        "*",
        "*x",
        "hardcode",
    ]
    plain = [each for each in acls if each.operation != AclOperation.DESCRIBE]
    allowed = any(model(plain, ALICE, AclOperation.READ, ResourceType.TOPIC, name) for name in names)
    said = reads_something(authorizer(*plain))
    if said != allowed:
        # Apache Kafka accepts a wildcard's permission, whatever single names are denied.
        assert said
        assert any(each.resource_name == "*" and each.permission_type == ALLOW for each in plain)


@pytest.mark.parametrize(
    ("deny", "allow", "said"),
    [
        (acl("*", permission=DENY), acl("t"), False),
        (acl("t", permission=DENY), acl("t"), False),
        (acl("t", permission=DENY), acl("tt"), True),
        (acl("t", permission=DENY, pattern=PREFIXED), acl("tt"), False),
        (acl("t", permission=DENY, pattern=PREFIXED), acl("tt", pattern=PREFIXED), False),
        (acl("tt", permission=DENY, pattern=PREFIXED), acl("t", pattern=PREFIXED), True),
        (acl("t", permission=DENY), acl("t", pattern=PREFIXED), True),
        (acl("t", permission=DENY, host="10.0.0.9"), acl("t"), True),
    ],
)
def test_a_ban_takes_away_what_it_covers_of_a_type(deny: Acl, allow: Acl, said: bool) -> None:
    of = authorizer(deny, allow)
    assert reads_something(of) is said
    assert not reads_something(of, ResourceType.GROUP)


def many(**others: Any) -> list[Acl]:
    return [acl(f"t{number:05}", **others) for number in range(20_000)]


@pytest.mark.parametrize(
    "others",
    [
        many(pattern=PREFIXED, principal="User:bob"),
        many(principal="User:bob", permission=DENY),
        many(pattern=PREFIXED, operation=AclOperation.DESCRIBE),
        many(host="10.0.0.2"),
        many(kind=ResourceType.GROUP),
    ],
    ids=["prefixes of others", "denials of others", "other operations", "other hosts", "other types"],
)
def test_whether_something_is_allowed_is_decided_without_a_look_at_what_concerns_others(
    others: list[Acl],
) -> None:
    of = authorizer(*others)
    decided = of.allows_any_of_type(ALICE, AclOperation.READ, ResourceType.TOPIC)
    assert longest_step(decided)[1] < 500
    assert not reads_something(of)
    assert reads_something(authorizer(*others, acl("zzz")))


@pytest.mark.parametrize("pattern", [LITERAL, PREFIXED])
def test_entries_that_allow_and_deny_are_walked_over_in_steps(pattern: int) -> None:
    of = authorizer(*many(pattern=pattern), acl("t", pattern=PREFIXED, permission=DENY))
    decided = of.allows_any_of_type(ALICE, AclOperation.READ, ResourceType.TOPIC)
    assert longest_step(decided)[1] < 10 * LOOKED_UP_A_STEP
    assert not reads_something(of)
    assert reads_something(authorizer(*many(pattern=pattern), acl("t0", pattern=PREFIXED, permission=DENY)))


def test_names_denied_one_by_one_are_walked_over_in_steps() -> None:
    of = authorizer(*many(), *many(permission=DENY))
    decided = of.allows_any_of_type(ALICE, AclOperation.READ, ResourceType.TOPIC)
    assert longest_step(decided)[1] < 10 * LOOKED_UP_A_STEP
    assert not reads_something(of)


def test_entries_may_change_while_they_are_walked_over() -> None:
    entries = [*many(), acl("t", pattern=PREFIXED, permission=DENY)]
    of = authorizer(*entries)
    decided = of.allows_any_of_type(ALICE, AclOperation.READ, ResourceType.TOPIC)
    next(decided)
    of.update(by_id(*entries[10:]))
    assert not at_once(decided)


@pytest.mark.parametrize(
    "later",
    [
        [*many(), acl("t", pattern=PREFIXED, permission=DENY)],
        [*many(), acl("*", permission=DENY)],
        [],
    ],
    ids=["a prefix instead", "everything instead", "nothing is allowed any more"],
)
def test_a_denied_operation_stays_denied_by_a_change_that_denies_it_in_another_way(later: list[Acl]) -> None:
    of = authorizer(*many(), *many(permission=DENY))
    decided = of.allows_any_of_type(ALICE, AclOperation.READ, ResourceType.TOPIC)
    next(decided)
    of.update(by_id(*later, first=100_000))
    assert not at_once(decided)


@pytest.mark.parametrize("who", ["User:alice", "User:*"])
def test_a_decision_does_not_look_at_the_entries_of_other_hosts(who: str) -> None:
    hosts = [f"10.{number >> 8}.{number & 255}.1" for number in range(1, 5_000)]
    of = authorizer(*[acl("*", principal=who, host=host) for host in hosts], acl(host="10.0.0.1"))
    allowed, lines = lines_of(lambda: reads(of))
    assert allowed
    assert lines < 200
    assert reads(of, asker=ALICE._replace(host=hosts[-1]))


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (PatternType.ANY, None, {"*", "a", "ab", "a+"}),
        (PatternType.MATCH, "ab", {"*", "ab", "a+"}),
        (PatternType.MATCH, "a", {"*", "a", "a+"}),
        (PatternType.LITERAL, "a", {"a"}),
        (PatternType.PREFIXED, "a", {"a+"}),
        (PatternType.ANY, "a", {"a", "a+"}),
        (PatternType.LITERAL, None, {"*", "a", "ab"}),
        (PatternType.MATCH, None, {"*", "a", "ab", "a+"}),
    ],
)
def test_filters_find_patterns(pattern: int, name: str | None, found: set[str]) -> None:
    acls = {"*": acl("*"), "a": acl("a"), "ab": acl("ab"), "a+": acl("a", pattern=PREFIXED)}
    wanted = AclFilter(ResourceType.TOPIC, name, pattern, None, None, AclOperation.ANY, AclPermissionType.ANY)
    assert {key for key, each in acls.items() if wanted.matches(each)} == found


def test_filters_of_codes_that_are_not_known_are_refused() -> None:
    fine = AclFilter(1, None, 1, None, None, 1, 1)
    check_filter(fine)
    for field in ("resource_type", "pattern_type", "operation", "permission_type"):
        for code in (0, 99):
            with pytest.raises(FilterFlaw):
                check_filter(fine._replace(**{field: code}))


def test_every_concrete_type_has_operations() -> None:
    assert set(SUPPORTED_OPERATIONS) == set(ResourceType) - {ResourceType.UNKNOWN, ResourceType.ANY}


@pytest.mark.parametrize(
    ("host", "form"),
    [
        ("::1", "'0:0:0:0:0:0:0:1'"),
        ("2001:DB8:0:0:0:0:0:1", "'2001:db8:0:0:0:0:0:1'"),
        ("::ffff:10.0.0.1", "'10.0.0.1'"),
        ("one.example", "this is no address"),
        ("10.0.0.0/33", "this is no block (Value [33] not in range [0,32])"),
        ("one.example/8", "this is no block (Could not parse [one.example/8])"),
        ("0.0.0.0/32", "no client has an address of this block"),
    ],
)
def test_an_entry_whose_host_matches_no_client_is_told_of_with_the_form_that_matches(
    host: str, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = authorizer(
        acl(host="*"),
        acl(host="10.0.0.1"),
        acl(host="0:0:0:0:0:0:0:1"),
        acl(host="fe80:0:0:0:0:0:0:1%4"),
        acl(host="10.0.0.0/8"),
        acl(host="::/0"),
    )
    assert not caplog.records
    entries = {**made._acls, **by_id(acl("a", host=host), acl("b", host=host), first=9)}
    made.update(entries, None)
    made.update({**entries, **by_id(acl("c"), first=20)}, None)
    (told,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert told.getMessage().startswith(f"2 access control entries of the host '{host}' apply to no client")
    assert form in told.getMessage()
    assert "resourceName=a" in told.getMessage()


def test_of_very_many_such_hosts_the_first_are_told_and_the_others_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    authorizer(*(acl(host=f"::{number:x}") for number in range(1, 101)))
    assert len(caplog.records) == HOSTS_TOLD_MAX + 1
    assert f"of {100 - HOSTS_TOLD_MAX} further hosts" in caplog.records[-1].getMessage()


ENTRIES = st.lists(
    st.builds(
        acl,
        st.sampled_from(["t", "tt", "*"]),
        st.just(AclOperation.READ),
        st.sampled_from([ALLOW, DENY]),
        pattern=st.sampled_from([LITERAL, PREFIXED]),
        principal=st.sampled_from(["User:alice", "User:*", "User:bob"]),
        host=st.sampled_from(["*", "10.0.0.1", "10.0.0.0/8"]),
    ),
    max_size=8,
)


OF_TWO = [acl("t", permission=DENY, principal="User:bob"), acl("t", principal="User:alice")]


@given(before=ENTRIES, after=ENTRIES, default=st.booleans(), shared=st.integers(0, 4))
@example(before=[], after=OF_TWO, default=True, shared=0)
@example(before=OF_TWO, after=[], default=True, shared=0)
def test_a_decision_in_the_middle_of_an_update_is_one_of_before_or_after_it(
    before: list[Acl], after: list[Acl], default: bool, shared: int
) -> None:
    old = by_id(*before)
    new = dict(list(old.items())[:shared]) | by_id(*after, first=100)

    def decisions(asked: StandardAuthorizer) -> list[bool]:
        read = AclOperation.READ
        told = [
            asked.allows(who, read, ResourceType.TOPIC, name)
            for who in (ALICE, Asker("User:bob", "10.0.0.2", "Fetch"))
            for name in ("t", "tt", "u")
        ]
        return [*told, at_once(asked.allows_any_of_type(ALICE, read, ResourceType.TOPIC))]

    def loaded(acls: dict[Uuid, Acl]) -> StandardAuthorizer:
        made = StandardAuthorizer(frozenset(), default)
        made.is_loaded = True
        made.update(acls)
        return made

    changing = loaded(old)
    possible = list(zip(decisions(changing), decisions(loaded(new)), strict=True))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("kafkacompat.security.authorizer.TAKEN_A_STEP", 1)
        for _ in changing.updating(new):
            for decided, either in zip(decisions(changing)[:-1], possible[:-1], strict=True):
                assert decided in either
    assert decisions(changing) == [each for _, each in possible]
