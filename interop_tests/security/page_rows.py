"""Every page of the console, and what it shows to two clients: one that has authenticated and has no rights (`known`), and a
super user (`privileged`)."""

from __future__ import annotations

from dataclasses import dataclass

from interop_tests.security.api_rows import GROUP, TOPIC

OK, NOT_FOUND, UNAVAILABLE = 200, 404, 503


@dataclass(frozen=True)
class PageRow:
    """`shows`: a name that only the privileged client's console shows. `known` and `privileged`: the status of each client's."""

    path: str
    shows: str = ""
    known: int = OK
    privileged: int = OK


PAGES = {
    "/": PageRow("/"),
    "/static/{name}": PageRow("/static/app.js"),
    "/api": PageRow("/api"),
    "/api/results": PageRow("/api/results"),
    "/api/cluster": PageRow("/api/cluster", shows=GROUP),
    "/api/records": PageRow(f"/api/records?topic={TOPIC}", known=NOT_FOUND),
    "/api/search": PageRow(f"/api/search?topic={TOPIC}&key=nobody", known=NOT_FOUND),
    "/api/lag": PageRow(f"/api/lag?group={GROUP}"),
    "/api/topic": PageRow(f"/api/topic?topic={TOPIC}", shows=TOPIC, known=NOT_FOUND),
    "/watch": PageRow("/watch"),
    # It is on only with --watch-token-file.
    "/api/watch": PageRow("/api/watch", known=UNAVAILABLE, privileged=UNAVAILABLE),
    "/health": PageRow("/health"),
    "/metrics": PageRow("/metrics", shows=TOPIC),
}
"""By the path of the route."""
