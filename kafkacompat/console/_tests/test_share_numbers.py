"""Records in flight with share groups, from the metrics of the nodes that the operator has named."""

from __future__ import annotations

import contextlib
import json
from typing import Any, ClassVar

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat._tests.http_server import serving
from kafkacompat.console import looking, share_numbers
from kafkacompat.console._tests.making import partition, snapshot, topic
from kafkacompat.console._tests.test_share_groups import SEEN
from kafkacompat.console.core.share_metrics import PREFIX, BadMetrics, parse_numbers
from kafkacompat.console.core.snapshot import ShareNumbers
from kafkacompat.console.failure import ConsoleError
from kafkacompat.console.looking import keep_counting
from kafkacompat.console.share_groups import CoordinatedGroups
from kafkacompat.console.share_numbers import NumbersTold, metrics_addresses, share_numbers_of
from kafkacompat.console.state import ConsoleState
from kafkacompat.metrics.endpoint import rendered
from kafkacompat.metrics.shares import share_families
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.security.http_fetch import Bounds
from kafkacompat.share._tests.kit import REJECT, ShareLeader
from kafkacompat.share.dead_letter_queue import GroupLetterMeter

ODD = 'a "queue"\\ of\nlines'


class DeadLetters:
    given_up = 0
    meters: ClassVar[dict[str, GroupLetterMeter]] = {}


def told_by_a_node(group: str) -> bytes:
    """The metrics of a leader: five records were delivered and one of them rejected, 2.5 s ago."""
    world = ShareLeader()
    world.configure(group, share_auto_offset_reset="earliest")
    world.produce("t", 0, *[b"v"] * 5)
    world.fetched(epoch=0, partitions=[0], group=group)
    world.fetched(epoch=1, partitions={0: [(0, 0, REJECT)]}, group=group, max_wait_ms=0)
    world.time.advance(2_500)
    families: Any = share_families(world.shares, DeadLetters(), world.time.monotonic_ms())  # type: ignore[arg-type]
    return b"".join(rendered(families))


@pytest.mark.parametrize("group", ["g", ODD])
def test_what_a_node_tells_is_read(group: str) -> None:
    assert parse_numbers(told_by_a_node(group)) == {(group, "t", 0): ShareNumbers(4, 2_500, 5, 1)}


def test_other_series_are_not_looked_at() -> None:
    assert parse_numbers(b"\xff\xfe{ \nkafka_server_x 1\nup 1\n") == {}


@pytest.mark.parametrize(
    "line",
    ['held_records{group="g"} 1', "held_records 1", 'held_records{group="g",topic="t",partition="0"} +Inf'],
)
def test_what_a_node_would_not_say_is_refused(line: str) -> None:
    with pytest.raises(BadMetrics):
        parse_numbers(f"{PREFIX}{line}\n".encode())


PARTS = [
    "held_records",
    "delivered_records_total",
    "{",
    "}",
    'group="g"',
    ",",
    '"',
    "\\",
    " 1",
    "#",
    "NaN",
    "\n",
]


@given(st.lists(st.sampled_from(PARTS)))
def test_any_answer_is_read_or_refused(parts: list[str]) -> None:
    with contextlib.suppress(BadMetrics):
        parse_numbers((PREFIX + "".join(parts)).encode())


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("http://h:1", [("http://h:1", "/metrics")]),
        (
            "http://h:1/, https://[::1]:2/own?x=1",
            [("http://h:1", "/metrics"), ("https://[::1]:2", "/own?x=1")],
        ),
    ],
)
def test_urls_of_listeners(text: str, places: list[tuple[str, str]]) -> None:
    assert [(each.place, each.target) for each in metrics_addresses(text)] == places


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "give 1 to 100"),
        ("h:1", "begins with http"),
        ("file:///etc/passwd", "begins with http"),
        ("http://user:secret@h:1", "a URL with a user"),
        ("http://", "no URL"),
        (",".join(["http://h:1"] * 101), "give 1 to 100"),
    ],
)
def test_a_url_that_is_none_is_refused_without_its_secrets(text: str, says: str) -> None:
    with pytest.raises(ConsoleError, match=says) as refused:
        metrics_addresses(text)
    assert "--metrics" in str(refused.value)
    assert "secret" not in str(refused.value)


async def test_all_listeners_are_asked_and_those_that_fail_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is no node, one says too much, and one sends elsewhere."""
    monkeypatch.setattr(share_numbers, "BOUNDS", Bounds(30.0, 30.0, 10_000))
    body = told_by_a_node("g")
    with serving() as good, serving() as odd, serving() as large, serving() as moved:
        good.answer = lambda asked: (200, body)
        odd.answer = lambda asked: (200, f"{PREFIX}held_records 1\n".encode())
        large.answer = lambda asked: (200, b"#" * 10_001)
        moved.answer = lambda asked: (302, b"")
        moved.headers = {"Location": good.base + "/metrics"}
        servers = (good, odd, large, moved)
        told = await share_numbers_of(metrics_addresses(",".join(each.base for each in servers)))
        assert [asked.target for asked in good.asked] == ["/metrics"]
        assert told.numbers == {("g", "t", 0): ShareNumbers(4, 2_500, 5, 1)}
        errors = told.error.split("; ")
        assert len(errors) == 3
        for server, reason in (
            (odd, "these are no metrics"),
            (large, "larger than 10000 bytes"),
            (moved, "status 302"),
        ):
            assert [reason in each for each in errors if server.base in each] == [True], reason


async def test_a_listener_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_numbers, "BOUNDS", Bounds(0.2, 0.2, 10_000))
    with serving() as mute:
        mute.answer = lambda asked: (200, str(mute.never.wait()).encode())
        told = await share_numbers_of(metrics_addresses(mute.base))
        assert told.error.startswith(f"no answer of {mute.base}")


def shown(state: ConsoleState) -> dict[str, Any]:
    return dict(json.loads(json.dumps(state.cluster(0)(), allow_nan=False))["cluster"])


async def test_numbers_are_those_of_the_newest_answer_and_stay_through_looks(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    answers = [
        NumbersTold({("g", "t", 0): ShareNumbers(4, 2_500, 5, 1)}),
        NumbersTold(error="http://h:1 is away"),
    ]

    async def scripted(addresses: object) -> NumbersTold:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    monkeypatch.setattr(looking, "share_numbers_of", scripted)
    state = ConsoleState(ClusterAddress("h:1"), 0, "run")
    seen = snapshot(topic("t", partition(0), partition(1)))
    state.looked(seen)
    state.shared({1: CoordinatedGroups((SEEN,))})
    assert shown(state)["share_numbers"] == {"asked": False, "error": None}
    fields = ("held", "oldest_lock_ms", "delivered", "archived")

    def rows() -> list[list[int | None]]:
        (group,) = shown(state)["groups"]
        return [[row[name] for name in fields] for row in group["partitions"]]

    unknown = [None] * 4
    assert rows() == [unknown, unknown]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_counting, state, metrics_addresses("http://h:1"))
        await trio.testing.wait_all_tasks_blocked()
        assert rows() == [[4, 2_500, 5, 1], unknown]
        state.looked(seen)
        state.shared({1: CoordinatedGroups((SEEN,))})
        assert rows() == [[4, 2_500, 5, 1], unknown]
        await trio.sleep(looking.NUMBERS_INTERVAL_S + 0.1)
        assert rows() == [unknown, unknown]
        assert shown(state)["share_numbers"] == {"asked": True, "error": "http://h:1 is away"}
        nursery.cancel_scope.cancel()
