"""The HTTP answers without a broker or a socket: views, tags, bounds, hosts and headers; and the request for sizes."""

from __future__ import annotations

import json
import re
import struct
import threading
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.console import server
from kafkacompat.console._tests.making import ask, partition, record, snapshot, summary, topic
from kafkacompat.console.browse import Page
from kafkacompat.console.core.parameters import RecordsQuery
from kafkacompat.console.core.snapshot import NodeSeen
from kafkacompat.console.failure import BrokerAway, NotRead, NotThere
from kafkacompat.console.reader import Batch, starts
from kafkacompat.console.server import application, static_files
from kafkacompat.console.sizes import sizes_of
from kafkacompat.console.state import MIN_VIEW_INTERVAL_MS, ConsoleState, ViewCache, encoded
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.security.sasl_client import NO_SECURITY

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "page.md"


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def state(clock: Clock) -> ConsoleState:
    return ConsoleState(ClusterAddress("broker:9092"), clock(), "run")


def test_each_page_leads_to_the_same_views() -> None:
    found = {}
    for name in filter(re.compile(r".*\.html").fullmatch, static_files()):
        (nav,) = re.findall(r"<nav .*?</nav>", bytes(static_files()[name].body).decode(), re.DOTALL)
        links = re.findall(r'<a href="([^"]*)"[^>]*>([^<]*)</a>', nav)
        found[name] = [("/" + place.lstrip("/"), title) for place, title in links]
        assert len(links) == nav.count("<a ") > 0, name
    assert {server.PAGE, server.WATCH_PAGE} <= found.keys()
    assert found == dict.fromkeys(found, found[server.PAGE])


def test_each_route_is_in_the_list_and_in_the_reference(state: ConsoleState, clock: Clock) -> None:
    pages = {"/", "/static/{name}", "/watch", "/api"}
    served = {route.path for route in server.routes_of(server.Pages(state, clock))}
    rows = re.findall(r"^\| `(/[^`]*)` \|", REFERENCE.read_text("utf-8"), re.MULTILINE)
    assert served - pages == server.API.keys() == set(rows)


async def test_the_page_and_its_files_are_served_and_nothing_else(state: ConsoleState, clock: Clock) -> None:
    app = application(state, clock, ())
    page = await ask(app, "/")
    assert page.status == 200
    assert b"<main" in page.body
    for name in ("app.js", "charts.js", "style.css", "icon.svg"):
        found = await ask(app, f"/static/{name}")
        assert (found.status, len(found.body) > 100) == (200, True), name
    for name in ("../server.py", "__init__.py", "nothing", "..%2fserver.py"):
        assert (await ask(app, f"/static/{name}")).status == 404, name


async def test_the_page_loads_nothing_from_elsewhere(state: ConsoleState, clock: Clock) -> None:
    app = application(state, clock, ())
    files = [f"/static/{name}" for name in static_files()]
    assert "/static/app.js" in files
    for path in ("/", *files):
        text = (await ask(app, path)).body.decode()
        # A name, and an argument that a message names.
        for harmless in ("http://www.w3.org/2000/svg", "http://HOST:PORT"):
            text = text.replace(harmless, "")
        assert "://" not in text, path
        for risky in ("innerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert risky not in text, (path, risky)


async def test_every_answer_bears_the_security_headers(state: ConsoleState, clock: Clock) -> None:
    app = application(state, clock, ())
    for path in ("/", "/api/results", "/health", "/metrics", "/nowhere"):
        headers = (await ask(app, path)).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'"), path
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("path", ["/", "/api/records", "/health", "/static/app.js"])
async def test_a_host_of_another_site_is_refused_everywhere(
    path: str, state: ConsoleState, clock: Clock
) -> None:
    app = application(state, clock, ("Allowed.Example",))
    assert (await ask(app, path, headers={"host": "evil.example"})).status == 421
    assert (await ask(app, "/api", headers={"host": "allowed.example:1"})).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_nothing_can_be_written(method: str, state: ConsoleState, clock: Clock) -> None:
    app = application(state, clock, ())
    for path in ("/", "/api/records", "/api/cluster"):
        assert (await ask(app, path, method=method)).status == 405


async def test_a_view_is_sent_again_only_when_it_has_changed(state: ConsoleState, clock: Clock) -> None:
    app = application(state, clock, ())
    first = await ask(app, "/api/results")
    known = {"if-none-match": first.headers["etag"]}
    again = await ask(app, "/api/results", headers=known)
    assert (again.status, again.body) == (304, b"")
    state.took(Batch(records=[record("logs.summary", "1", 1, summary(1))]))
    assert (await ask(app, "/api/results", headers=known)).status == 304, "made anew at a bounded pace"
    clock.now_ms += MIN_VIEW_INTERVAL_MS
    changed = await ask(app, "/api/results", headers=known)
    assert changed.status == 200
    assert changed.json["reading"]["records"] == 1


async def test_half_a_surrogate_pair_in_a_row_is_sent_on_as_an_unknown_letter(
    state: ConsoleState, clock: Clock
) -> None:
    said = {"event_id": "a", "reason": "half \ud800", "line": "\udfff", "received_ms": 1}
    state.took(Batch(records=[record("logs.rejected", "1", 1, said)]))
    answer = await ask(application(state, clock, ()), "/api/results")
    assert (answer.status, answer.json["logs"]["rejected"]["latest"][0]["reason"]) == (200, "half \ufffd")


TEXTS = st.text(st.characters(codec="utf-8"), max_size=4)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(TEXTS, inside, max_size=3),
    max_leaves=30,
)


@given(st.dictionaries(TEXTS, JSON_VALUES, max_size=4))
def test_a_view_is_encoded_in_pieces_as_it_would_be_whole(view: dict[str, Any]) -> None:
    whole = json.dumps(view, separators=(",", ":"), ensure_ascii=False)
    assert encoded(view).decode() == whole


async def test_the_view_of_a_large_cluster_holds_up_nobody_else(
    state: ConsoleState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view is not made in the loop's thread, and at most one topic is encoded in one piece."""
    threads, longest = set(), 0
    dumped = json.dumps

    def dumps(value: object, **options: Any) -> str:
        nonlocal longest
        text = dumped(value, **options)
        threads.add(threading.get_ident())
        longest = max(longest, len(text))
        return text

    monkeypatch.setattr("kafkacompat.console.state.json.dumps", dumps)
    state.looked(
        snapshot(*(topic(f"t{number}", *(partition(at) for at in range(6))) for number in range(100)))
    )
    view = await state.cluster_json(1_000)
    assert len(json.loads(view.body)["cluster"]["topics"]) == 100
    assert threading.get_ident() not in threads
    assert longest < len(view.body) / 50


@pytest.mark.parametrize("path", ["/api/records", "/api/search"])
async def test_a_page_of_large_records_holds_up_nobody_else(
    path: str, state: ConsoleState, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not encoded in the loop's thread, and at most one part of a record in one piece."""
    threads, longest = set(), 0
    dumped = json.dumps

    def dumps(value: object, **options: Any) -> str:
        nonlocal longest
        text = dumped(value, **options)
        threads.add(threading.get_ident())
        longest = max(longest, len(text))
        return text

    page = {"topic": "t", "records": [{"offset": at, "value": {"text": "x" * 1_000}} for at in range(200)]}
    monkeypatch.setattr(server, "records_page", lambda *parts: page)
    monkeypatch.setattr(server, "search_page", lambda *parts: page)
    monkeypatch.setattr("kafkacompat.console.state.json.dumps", dumps)
    answer = await ask(application(state, clock, ()), path, "topic=t" + "&key=k" * (path == "/api/search"))
    assert (answer.json, answer.headers["content-type"]) == (page, "application/json")
    assert threads
    assert threading.get_ident() not in threads
    assert longest < 2_000


@pytest.mark.parametrize("broken", ["\ud800", float("nan"), b"bytes"])
def test_a_view_that_cannot_be_encoded_is_not_taken_for_made(broken: object) -> None:
    """Otherwise every later request would get nothing, or the bytes of another view under a new tag."""
    cache = ViewCache("run")
    cache.keep("old", 0, encoded({"right": 1}))
    body, tag = cache.body, cache.tag
    with pytest.raises((ValueError, TypeError)):
        cache.keep("new", 5_000, encoded({"broken": broken}))
    assert (cache.body, cache.tag) == (body, tag)
    assert not cache.fresh("new", 5_000)


async def test_health_follows_the_broker(state: ConsoleState, clock: Clock) -> None:
    app = application(state, clock, ())
    assert (await ask(app, "/health")).status == 503
    state.looked(snapshot(topic("t", partition(0))))
    assert (await ask(app, "/health")).status == 200
    state.away(2_000, "refused")
    away = await ask(app, "/health")
    assert away.status == 503
    assert away.json["broker"]["reason"] == "refused"
    clock.now_ms += MIN_VIEW_INTERVAL_MS
    assert (await ask(app, "/api/cluster")).json["cluster"]["topics"][0]["topic"] == "t", (
        "what was known is kept"
    )


async def test_how_far_results_are_read_is_told(state: ConsoleState) -> None:
    assert state.behind() is None
    state.looked(
        snapshot(
            topic("logs.summary", partition(0, latest=10), partition(1, latest=4)),
            topic("other", partition(0)),
        )
    )
    assert state.behind() == 14
    state.took(Batch(positions={("logs.summary", 0): 10, ("logs.summary", 1): 1}))
    assert state.behind() == 3
    state.took(Batch(forgotten=["logs.summary"]))
    assert state.behind() == 14


async def test_a_bad_parameter_is_answered_with_400_and_a_line(state: ConsoleState, clock: Clock) -> None:
    app = application(state, clock, ())
    answer = await ask(app, "/api/records", "topic=t&limit=many")
    assert answer.status == 400
    assert answer.json == {"error": "limit must be a whole number from 1 to 200"}
    answer = await ask(app, "/api/search", "topic=t")
    assert answer.status == 400
    assert answer.json["error"].startswith("nothing to look for")


async def test_the_history_of_a_group_of_any_name_is_told(state: ConsoleState, clock: Clock) -> None:
    app = application(state, clock, ())
    name = "<b> & ?/\u00e9"
    state.lags.add(1_000, {name: 7, "": 1})
    answer = await ask(app, "/api/lag", urlencode({"group": name}))
    assert answer.json == {"points": [{"at_ms": 1_000, "lag": 7}]}
    assert (await ask(app, "/api/lag", "group=")).json["points"] == [{"at_ms": 1_000, "lag": 1}]
    assert (await ask(app, "/api/lag", "group=unknown")).json["points"] == []
    for query in ("", "group=a&group=b", "group=" + "x" * 9_000):
        assert (await ask(app, "/api/lag", query)).status == 400


async def test_settings_of_a_topic_that_no_node_tells_are_unknown(state: ConsoleState, clock: Clock) -> None:
    app = application(state, clock, ())
    assert (await ask(app, "/api/topic", "topic=..%2F")).status == 400
    answer = await ask(app, "/api/topic", "topic=t")
    assert (answer.status, answer.json) == (503, {"error": "no node is known"})


@pytest.mark.parametrize(
    ("error", "status"),
    [(NotThere("no topic t"), 404), (BrokerAway("refused"), 503), (NotRead("no record of t-0"), 503)],
)
async def test_what_cannot_be_read_is_said(
    error: Exception, status: int, state: ConsoleState, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(bootstrap: str, query: RecordsQuery, decoder: object) -> Page:
        raise error

    monkeypatch.setattr(server, "records_page", fail)
    monkeypatch.setattr(server, "search_page", fail)
    for path, query in (("/api/records", "topic=t"), ("/api/search", "topic=t&key=k")):
        answer = await ask(application(state, clock, ()), path, query)
        assert answer.status == status
        assert str(error) in answer.json["error"]
        assert ("is not reachable" in answer.json["error"]) == isinstance(error, BrokerAway)


async def test_requests_for_records_are_bounded(
    state: ConsoleState, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = trio.Event()

    def wait(bootstrap: str, query: RecordsQuery, decoder: object) -> Page:
        trio.from_thread.run(go_on.wait)
        return {"records": []}

    monkeypatch.setattr(server, "records_page", wait)
    app = application(state, clock, ())
    statuses: list[int] = []

    async def read() -> None:
        statuses.append((await ask(app, "/api/records", "topic=t")).status)

    async with trio.open_nursery() as nursery:
        for _ in range(server.MAX_BROWSERS + server.MAX_WAITING_BROWSERS + 3):
            nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        assert statuses == [503] * 3
        go_on.set()
    assert statuses.count(200) == server.MAX_BROWSERS + server.MAX_WAITING_BROWSERS


def test_tails_are_read_from_near_their_end_and_the_rest_from_the_beginning() -> None:
    many = partition(0, earliest=100, latest=9_000)
    assert starts(topic("metrics.alerts", many, partition(1, latest=None))) == {("metrics.alerts", 0): 7_000}
    assert starts(topic("metrics.alerts", partition(0, earliest=100, latest=300))) == {
        ("metrics.alerts", 0): 100
    }
    assert starts(topic("logs.summary", many)) == {("logs.summary", 0): -2}


async def test_sizes_are_asked_of_every_node_and_one_that_is_silent_is_named() -> None:
    async def answer(stream: trio.SocketStream, payloads: list[bytes]) -> None:
        for payload in payloads:
            await stream.receive_some(1024)
            await stream.send_all(payload)

    served = struct.pack(">ihihhh", 1, 0, 1, 35, 1, 1)
    told = struct.pack(">iiih", 2, 0, 1, 0) + b"\x00\x01d" + struct.pack(">i", 1)
    told += b"\x00\x01t" + struct.pack(">iiqqb", 1, 0, 77, 0, 0)
    answers = [struct.pack(">i", len(each)) + each for each in (served, told)]
    async with trio.open_nursery() as nursery:
        good, bad = [
            (
                await nursery.start(
                    partial(trio.serve_tcp, partial(answer, payloads=payloads), 0, host="127.0.0.1")
                )
            )[0]
            for payloads in (answers, [b"HTTP/1.1 400\r\n\r\n"])
        ]
        nodes = [NodeSeen(number, *each.socket.getsockname()) for number, each in enumerate((good, bad), 1)]
        sizes, errors = await sizes_of(nodes, NO_SECURITY)
        assert sizes is not None
        assert [(size.node_id, size.topic, size.size_bytes) for size in sizes] == [(1, "t", 77)]
        assert errors.startswith("node 2: the answer of 127.0.0.1:")
        assert " to API_VERSIONS claims 1213486160 bytes" in errors
        assert await sizes_of(nodes[1:], NO_SECURITY) == (None, errors)
        nursery.cancel_scope.cancel()
