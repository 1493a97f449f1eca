"""The token of a console that other machines can reach: every route, both ways to send the token, and refused requests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.console._tests.making import ask
from kafkacompat.console.core.tokens import COOKIE, FORM_BYTES_MAX, Access, checked_token, is_beyond_loopback
from kafkacompat.console.failure import ConsoleError
from kafkacompat.console.run import token_of_file
from kafkacompat.console.server import Pages, application, routes_of
from kafkacompat.console.state import ConsoleState
from kafkacompat.security.cluster_address import ClusterAddress

TOKEN = "a-token-of-the-tests-1"
UNKNOWN = {
    "nothing": {},
    "another token": {"authorization": "Bearer a-token-of-the-tests-2"},
    "a beginning of the token": {"authorization": f"Bearer {TOKEN[:-1]}"},
    "another scheme": {"authorization": f"Basic {TOKEN}"},
    "the token as a cookie": {"cookie": f"{COOKIE}={TOKEN}"},
    "an empty cookie": {"cookie": f"{COOKIE}="},
    "bytes beyond ASCII": {"authorization": "Bearer \xe4\xf6", "cookie": f"{COOKIE}=\xe4"},
}


@pytest.fixture
def state() -> ConsoleState:
    return ConsoleState(ClusterAddress("broker:9092"), 1_000, "run")


def every_path(state: ConsoleState) -> list[str]:
    """A path of every route."""
    return [route.path.replace("{name}", "app.js") for route in routes_of(Pages(state, lambda: 1_000))]


@pytest.mark.parametrize("how", UNKNOWN)
async def test_no_page_and_no_api_answers_an_unknown_client(state: ConsoleState, how: str) -> None:
    app = application(state, lambda: 1_000, (), TOKEN)
    paths = every_path(state)
    assert {"/", "/metrics", "/health", "/api/cluster", "/static/app.js"} <= set(paths)
    for path in (*paths, "/nowhere", "/static/none", "/login"):
        for method in ("GET", "HEAD", "PUT"):
            answer = await ask(app, path, method=method, headers=UNKNOWN[how])
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer"), path
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert b"broker" not in answer.body
            assert TOKEN.encode() not in answer.body


async def test_every_route_answers_a_client_with_the_token(state: ConsoleState) -> None:
    app, free = application(state, lambda: 1_000, (), TOKEN), application(state, lambda: 1_000, ())
    cookie = Access(TOKEN).cookie_for(f"token={TOKEN}".encode())
    assert cookie is not None
    assert TOKEN not in cookie
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
    for path in every_path(state):
        expected = await ask(free, path)
        for headers in (
            {"authorization": f"Bearer {TOKEN}"},
            {"authorization": f"bearer  {TOKEN} "},
            {"cookie": f"other=1; {cookie.partition(';')[0]}"},
        ):
            answer = await ask(app, path, headers=headers)
            assert (answer.status, answer.body) == (expected.status, expected.body), path


async def test_a_form_with_the_token_sets_the_cookie(state: ConsoleState) -> None:
    app = application(state, lambda: 1_000, (), TOKEN)
    form = await ask(app, "/")
    assert b'action="/login"' in form.body
    assert "form-action 'self'" in form.headers["content-security-policy"]
    done = await ask(app, "/login", method="POST", body=f"token={TOKEN}".encode())
    assert (done.status, done.headers["location"]) == (303, "/")
    assert (
        await ask(app, "/", headers={"cookie": done.headers["set-cookie"].partition(";")[0]})
    ).status == 200
    for body in (b"", b"token=", b"token=other", b"\xff\xfe", b"token=" + b"%" * 100, b"a=1&b=2&c=3&d=4&e=5"):
        refused = await ask(app, "/login", method="POST", body=body)
        assert (refused.status, "set-cookie" in refused.headers) == (401, False), body
    long = await ask(app, "/login", method="POST", body=b"t" * (FORM_BYTES_MAX + 1))
    assert long.status == 413


async def test_another_host_name_is_refused_before_the_token_is_looked_at(state: ConsoleState) -> None:
    app = application(state, lambda: 1_000, (), TOKEN)
    headers = {"host": "evil.example", "authorization": f"Bearer {TOKEN}"}
    assert (await ask(app, "/", headers=headers)).status == 421
    answer = await ask(
        app, "/login", method="POST", headers={"host": "evil.example"}, body=f"token={TOKEN}".encode()
    )
    assert answer.status == 421


async def test_a_web_socket_is_closed(state: ConsoleState) -> None:
    sent: list[str] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(str(message["type"]))

    app = application(state, lambda: 1_000, (), TOKEN)
    await app({"type": "websocket", "path": "/", "headers": []}, None, send)  # type: ignore[arg-type]
    assert sent == ["websocket.close"]


@given(
    st.lists(st.text(st.characters(codec="latin-1"), max_size=40), max_size=3), st.lists(st.text(max_size=40))
)
def test_no_other_headers_get_in(authorizations: list[str], cookies: list[str]) -> None:
    latin = [each.encode("latin-1", "replace").decode("latin-1") for each in cookies]
    assert not Access(TOKEN).admits(authorizations, latin)


def test_two_authorizations_are_none() -> None:
    """Two readers of the headers could choose different ones."""
    assert Access(TOKEN).admits([f"Bearer {TOKEN}"], [])
    assert not Access(TOKEN).admits([f"Bearer {TOKEN}", "Bearer other"], [])


@pytest.mark.parametrize(
    ("address", "beyond"),
    [
        ("127.0.0.1", False),
        ("127.9.9.9", False),
        ("::1", False),
        ("0.0.0.0", True),
        ("::", True),
        ("10.0.0.1", True),
    ],
)
def test_other_machines_reach_what_is_not_on_loopback(address: str, beyond: bool) -> None:
    assert is_beyond_loopback(address) == beyond


def test_a_token_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"  {TOKEN}\n")
    assert token_of_file(str(file)) == TOKEN
    for wrong in ("", "sh0rt-s3cret", "two words s3cret s3cret", "s3cret" * 200, "s3cret-s3cret-s3cret-ä"):
        file.write_text(wrong)
        with pytest.raises(ConsoleError, match="of --token-file") as failure:
            token_of_file(str(file))
        assert "s3cret" not in str(failure.value)
    with pytest.raises(ConsoleError, match="No such file"):
        token_of_file(str(tmp_path / "none"))
    assert TOKEN not in repr(Access(checked_token(TOKEN)))
