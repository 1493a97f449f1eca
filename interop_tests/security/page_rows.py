"""Every page of the console, and what it shows to two clients: one that has authenticated and has no rights (`known`), and a
super user (`privileged`)."""

from __future__ import annotations

from dataclasses import dataclass

from interop_tests.security.api_rows import GROUP, TOPIC

OK, NOT_FOUND = 200, 404


@dataclass(frozen=True)
class PageRow:
    """`shows`: a name that only the privileged client's console shows. `known`: the status of the known client's."""

    path: str
    shows: str = ""
    known: int = OK


PAGES = {
    "/": PageRow("/"),
    "/static/{name}": PageRow("/static/app.js"),
    "/api": PageRow("/api"),
    "/api/results": PageRow("/api/results"),
    "/api/cluster": PageRow("/api/cluster", shows=GROUP),
    "/api/records": PageRow(f"/api/records?topic={TOPIC}", known=NOT_FOUND),
    "/health": PageRow("/health"),
    "/metrics": PageRow("/metrics", shows=TOPIC),
}
"""By the path of the route."""
