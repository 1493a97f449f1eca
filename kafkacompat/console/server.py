"""The HTTP answers: the page's files, the JSON API, /health and /metrics. Only GET: nothing here changes anything.

GET /api/results and /api/cluster return the views with an ETag. GET /api/records returns a page of records, and GET
/api/search those that match. Errors are
JSON {"error": text} with status 400 (a parameter), 404 (no such topic or partition) or 503 (broker away or busy, or no
record came).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from importlib import resources

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from kafkacompat.console.browse import Page, records_page
from kafkacompat.console.core.connection import UNREACHABLE
from kafkacompat.console.core.parameters import (
    BadParameter,
    group_name,
    records_query,
    search_query,
    topic_name,
)
from kafkacompat.console.core.prometheus import CONTENT_TYPE, metrics_text
from kafkacompat.console.core.tokens import Access
from kafkacompat.console.core.views import reading_view
from kafkacompat.console.decoder import Decoder
from kafkacompat.console.failure import BrokerAway, Busy, NotRead, NotThere
from kafkacompat.console.guard import Guard
from kafkacompat.console.searching import search_page
from kafkacompat.console.state import ConsoleState, ViewCache, encoded
from kafkacompat.console.token_gate import TokenGate
from kafkacompat.console.topic_settings import settings_of
from kafkacompat.console.watching import EventStream, Nodes, NotWatched, WatchingBrowsers
from kafkacompat.security.sasl_client import NO_SECURITY, ClientSecurity

Pairs = Iterable[tuple[str, str]]

MAX_BROWSERS = 4
MAX_SEARCHES = 2
"""A search takes longer than a page, and no page waits for it."""
MAX_WAITING_BROWSERS = 16
BAD_REQUEST, NOT_FOUND, METHOD_NOT_ALLOWED, UNAVAILABLE, NOT_MODIFIED = 400, 404, 405, 503, 304
NO_CACHE = {"cache-control": "no-cache"}
CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
PAGE, WATCH_PAGE = "index.html", "watch.html"
API = {
    "/api/results": "the three jobs' results: logs, activity, metrics, and how far they are read",
    "/api/cluster": "broker, health, nodes, topics with partitions, rates and sizes, groups with lag",
    "/api/records": (
        "records of one partition: topic, partition (0), limit (25), value_bytes (4096), uncommitted (false), and one "
        "of offset, before (an offset), time_ms; the latest without one of these"
    ),
    "/api/search": (
        "records that match, the newest first: topic, partition (all), key (whole), value (text in it), from_ms, to_ms, "
        "limit (25), value_bytes (4096), uncommitted (false), and ends from `older` of the answer before, to go on"
    ),
    "/api/lag": "the lag of a group over the last two hours: group",
    "/api/topic": "the settings of a topic, those that are set first: topic",
    "/api/watch": (
        "requests of clients and what becomes of them, live, as server-sent events: api (several), client_id, topic, principal, "
        "errors (false), values (false)"
    ),
    "/health": "200 if the broker answers, else 503",
    "/metrics": "Prometheus' text format",
}


def static_files() -> dict[str, Response]:
    """Return the page's files by name, read once. No other file is served."""
    found = {}
    for file in resources.files("kafkacompat.console").joinpath("static").iterdir():
        content_type = CONTENT_TYPES.get(file.name.rpartition(".")[2])
        if content_type is not None:
            found[file.name] = Response(file.read_bytes(), headers=NO_CACHE, media_type=content_type)
    return found


class Pages:
    """The handlers of all routes. They share one state."""

    __slots__ = (
        "_askers",
        "_browsers",
        "_clock",
        "_decoder",
        "_files",
        "_searches",
        "_security",
        "_state",
        "_watching",
    )

    def __init__(
        self,
        state: ConsoleState,
        clock: Callable[[], int],
        decoder: Decoder | None = None,
        security: ClientSecurity = NO_SECURITY,
        watched: Nodes | None = None,
    ) -> None:
        self._watching = WatchingBrowsers(watched)
        self._state = state
        self._clock = clock
        self._decoder = decoder
        self._security = security
        self._files = static_files()
        self._browsers = trio.CapacityLimiter(MAX_BROWSERS)
        self._askers = trio.CapacityLimiter(MAX_BROWSERS)
        self._searches = trio.CapacityLimiter(MAX_SEARCHES)

    async def page(self, request: Request) -> Response:
        """The one HTML page."""
        return self._files[PAGE]

    async def file(self, request: Request) -> Response:
        """A file that the page loads."""
        return self._files.get(request.path_params["name"]) or PlainTextResponse("no such file\n", NOT_FOUND)

    async def api(self, request: Request) -> Response:
        """The list of routes."""
        return JSONResponse({"GET": API})

    async def results(self, request: Request) -> Response:
        """The results of the three jobs."""
        return _tagged(request, self._state.results_json(self._clock()))

    async def cluster(self, request: Request) -> Response:
        """The cluster's state."""
        return _tagged(request, await self._state.cluster_json(self._clock()))

    async def records(self, request: Request) -> Response:
        """A page of records."""

        def read(pairs: Pairs) -> Callable[[], Page]:
            return partial(records_page, self._state.address, records_query(pairs), self._decoder)

        return await self._read(request, read, self._browsers)

    async def search(self, request: Request) -> Response:
        """The newest records that match."""

        def read(pairs: Pairs) -> Callable[[], Page]:
            return partial(search_page, self._state.address, search_query(pairs), self._decoder)

        return await self._read(request, read, self._searches)

    async def _read(
        self, request: Request, reading: Callable[[Pairs], Callable[[], Page]], limiter: trio.CapacityLimiter
    ) -> Response:
        """The result of the function that `reading` makes of the parameters. It is called in a thread."""
        try:
            read = reading(request.query_params.multi_items())
            if limiter.statistics().tasks_waiting >= MAX_WAITING_BROWSERS:
                raise Busy("too many requests for records at once; try again")
            if self._state.connection.state == UNREACHABLE:
                raise BrokerAway(self._state.connection.reason)
            # A page may have megabytes, so it is also encoded in the thread, and in pieces.
            page = await trio.to_thread.run_sync(
                lambda: encoded(read()), abandon_on_cancel=True, limiter=limiter
            )
        except BadParameter as error:
            return _error(BAD_REQUEST, str(error))
        except NotThere as error:
            return _error(NOT_FOUND, str(error))
        except BrokerAway as error:
            return _error(
                UNAVAILABLE, f"the broker at {self._state.connection.bootstrap} is not reachable: {error}"
            )
        except (Busy, NotRead) as error:
            return _error(UNAVAILABLE, str(error))
        return Response(page, headers={"cache-control": "no-store"}, media_type="application/json")

    async def topic(self, request: Request) -> Response:
        """The settings of a topic."""
        try:
            topic = topic_name(request.query_params.multi_items())
            if self._askers.statistics().tasks_waiting >= MAX_WAITING_BROWSERS:
                raise Busy("too many requests for settings at once; try again")
            snapshot = self._state.snapshot
            nodes = snapshot.nodes if snapshot is not None else ()
            async with self._askers:
                settings = await settings_of(topic, nodes, self._security)
        except BadParameter as error:
            return _error(BAD_REQUEST, str(error))
        except NotThere as error:
            return _error(NOT_FOUND, str(error))
        except (Busy, BrokerAway) as error:
            return _error(UNAVAILABLE, str(error))
        return JSONResponse({"topic": topic, "settings": settings}, headers={"cache-control": "no-store"})

    async def lag(self, request: Request) -> Response:
        """The history of a group's lag."""
        try:
            group = group_name(request.query_params.multi_items())
        except BadParameter as error:
            return _error(BAD_REQUEST, str(error))
        points = [{"at_ms": at_ms, "lag": lag} for at_ms, lag in self._state.lags.of(group)]
        return JSONResponse({"points": points}, headers={"cache-control": "no-store"})

    async def watch_page(self, request: Request) -> Response:
        """The page of requests, which is one of its own: it follows nodes, and not the cluster."""
        return self._files[WATCH_PAGE]

    async def watch(self, request: Request) -> Response | EventStream:
        """The requests of clients, live."""
        if request.method != "GET":
            return _error(METHOD_NOT_ALLOWED, "GET is served")
        try:
            return self._watching.stream(request)
        except NotWatched as error:
            return _error(UNAVAILABLE, str(error))

    async def health(self, request: Request) -> Response:
        """Whether the broker answers."""
        status = 200 if self._state.connection.reachable else UNAVAILABLE
        return JSONResponse(self._state.broker(self._clock()), status, headers={"cache-control": "no-store"})

    async def metrics(self, request: Request) -> Response:
        """Prometheus' text format."""
        now_ms = self._clock()
        make, reading = self._state.cluster(now_ms), reading_view(self._state.results)
        queries = self._state.queries(now_ms)
        text = await trio.to_thread.run_sync(lambda: metrics_text(make(), reading, queries))
        return Response(text, media_type=CONTENT_TYPE)


def routes_of(pages: Pages) -> list[Route]:
    """Everything that is served."""
    return [
        Route("/", pages.page),
        Route("/static/{name}", pages.file),
        Route("/api", pages.api),
        Route("/api/results", pages.results),
        Route("/api/cluster", pages.cluster),
        Route("/api/records", pages.records),
        Route("/api/search", pages.search),
        Route("/api/lag", pages.lag),
        Route("/api/topic", pages.topic),
        Route("/watch", pages.watch_page),
        Route("/api/watch", pages.watch),
        Route("/health", pages.health),
        Route("/metrics", pages.metrics),
    ]


def application(
    state: ConsoleState,
    clock: Callable[[], int],
    allowed_hosts: Collection[str],
    token: str | None = None,
    decoder: Decoder | None = None,
    security: ClientSecurity = NO_SECURITY,
    watched: Nodes | None = None,
) -> ASGIApp:
    """The ASGI application. token: what every request must bear; None lets everybody read. decoder: of a schema registry.
    security: of connections to the nodes. watched: the nodes whose requests are shown, only with a token."""
    served: ASGIApp = Starlette(routes=routes_of(Pages(state, clock, decoder, security, watched)))
    if token is not None:
        served = TokenGate(served, Access(token))
    return Guard(served, allowed_hosts)


def _tagged(request: Request, view: ViewCache) -> Response:
    headers = {"etag": view.tag} | NO_CACHE
    if request.headers.get("if-none-match") == view.tag:
        return Response(status_code=NOT_MODIFIED, headers=headers)
    return Response(view.body, headers=headers, media_type="application/json")


def _error(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status, headers={"cache-control": "no-store"})
