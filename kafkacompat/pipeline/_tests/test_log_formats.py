"""Formats as patterns: the lines they accept and refuse, and the cost of a hostile line. Without Spark."""

from __future__ import annotations

import re

import pytest

from kafkacompat.pipeline.jobs.log_formats import (
    AUTO,
    EVENT_PARTS,
    FIELDS_MAX,
    NAMED,
    FormatProblem,
    line_format,
)

COMMON = '192.0.2.7 - ann [21/Sep/2026:14:13:20 +0000] "GET /a HTTP/1.1" 200 512'
COMBINED = COMMON + r' "https://example.org/\"x\"" "Mozilla/5.0 (X11)"'
MAIN = COMBINED + ' "198.51.100.9"'
VHOST = "www.example.org:443 " + COMBINED


def parts(form: str, line: str) -> dict[str, str] | None:
    """Return the parts of a line that are present. Python's regular expressions support everything that these patterns use."""
    made = line_format(form)
    found = re.match(made.pattern, line)
    if found is None:
        return None
    return {name: text for name, text in zip(made.parts, found.groups(), strict=True) if text}


def test_the_automatic_format_takes_what_servers_are_packaged_with() -> None:
    common = parts(AUTO, COMMON)
    assert common == {
        "client": "192.0.2.7",
        "user": "ann",
        "time": "21/Sep/2026:14:13:20 +0000",
        "request": "GET /a HTTP/1.1",
        "status": "200",
        "bytes": "512",
    }
    combined = common | {"referrer": r"https://example.org/\"x\"", "user_agent": "Mozilla/5.0 (X11)"}
    assert parts(AUTO, COMBINED) == combined
    assert parts(AUTO, MAIN) == combined | {"rest": ' "198.51.100.9"'}
    assert parts(AUTO, VHOST) == combined | {"virtual_host": "www.example.org"}
    assert parts(AUTO, COMBINED + " 0.003 [x] 7/-") == combined | {"rest": " 0.003 [x] 7/-"}
    assert parts(AUTO, COMMON + ' 0.003 "x"') == common | {"rest": ' 0.003 "x"'}
    assert parts(AUTO, COMBINED + " \r") == combined


@pytest.mark.parametrize("client", ["::1", "2001:db8::7", "2001:db8:0:0:0:0:0:1", "host.example"])
def test_an_address_is_no_virtual_host(client: str) -> None:
    found = parts(AUTO, COMMON.replace("192.0.2.7", client))
    assert found is not None
    assert found["client"] == client
    assert "virtual_host" not in found


def test_a_line_that_was_cut_passes_for_no_shorter_format() -> None:
    """A line may end only where the common format ends, or after whole fields behind it."""
    ends = {len(COMMON), len(COMBINED), len(MAIN)}
    # A truncated number of bytes is still a number.
    ends |= {len(COMMON) - 1, len(COMMON) - 2}
    taken = {length for length in range(len(MAIN) + 1) if parts(AUTO, MAIN[:length]) is not None}
    assert {length for length in taken if not MAIN[:length].endswith(" ")} == ends


@pytest.mark.parametrize(
    ("name", "line"), [("common", COMMON), ("combined", COMBINED), ("main", MAIN), ("vhost_combined", VHOST)]
)
def test_a_named_format_takes_its_own_lines_only(name: str, line: str) -> None:
    assert parts(name, line) is not None
    others = {COMMON, COMBINED, MAIN, VHOST} - {line}
    assert [each for each in others if parts(name, each)] == []


def test_formats_of_nginx_are_read_as_they_stand_in_its_configuration() -> None:
    form = (
        '$http_host $remote_addr [$time_iso8601] "$request_method $request_uri $server_protocol" $status '
        '$body_bytes_sent $request_time "$upstream_addr"'
    )
    made = line_format(form)
    assert made.time_format == "yyyy-MM-dd'T'HH:mm:ssXXX"
    assert made.extra == ("request_time", "upstream_addr")
    line = (
        'a.example 192.0.2.7 [2026-09-21T14:13:20+00:00] "GET /a?b HTTP/2.0" 200 512 0.003 '
        '"192.0.2.9:80, 192.0.2.8:80"'
    )
    assert parts(form, line) == {
        "virtual_host": "a.example",
        "client": "192.0.2.7",
        "time": "2026-09-21T14:13:20+00:00",
        "method": "GET",
        "path": "/a?b",
        "protocol": "HTTP/2.0",
        "status": "200",
        "bytes": "512",
        "request_time": "0.003",
        "upstream_addr": "192.0.2.9:80, 192.0.2.8:80",
    }


def test_formats_of_apache_are_read_as_they_stand_in_its_configuration() -> None:
    form = r"%h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%{User-Agent}i\" %D %{X-Forwarded-For}i %{SSL_PROTOCOL}x %%"
    found = parts(form, COMBINED + " 1234 198.51.100.9 TLSv1.3 %")
    assert found is not None
    assert {name: found[name] for name in line_format(form).extra if name in found} == {
        "l": "-",
        "D": "1234",
        "x-forwarded-for": "198.51.100.9",
        "ssl_protocol": "TLSv1.3",
    }


def test_fields_may_stand_between_other_marks() -> None:
    piped = "$remote_addr|$time_local|$request|$status|$http_user_agent|$http_cookie"
    line = "192.0.2.7|21/Sep/2026:14:13:20 +0000|GET / HTTP/1.1|200|Mozilla (X11)|"
    assert parts(piped, line) is None, "the last one must not be empty"
    assert parts(piped, line + "-") == {
        "client": "192.0.2.7",
        "time": "21/Sep/2026:14:13:20 +0000",
        "request": "GET / HTTP/1.1",
        "status": "200",
        "user_agent": "Mozilla (X11)",
        "http_cookie": "-",
    }
    tabbed = "%h\t%t\t%>s\t%U\t%{User-Agent}i"
    found = parts(tabbed, "::1\t[21/Sep/2026:14:13:20 +0000]\t404\t/a b\tcurl")
    assert found is not None
    assert found["path"] == "/a b"


def test_what_is_told_twice_is_kept_under_its_servers_name() -> None:
    made = line_format("$remote_addr [$time_local] $status $body_bytes_sent $bytes_sent")
    assert made.extra == ("bytes_sent",)
    assert set(made.parts) - set(made.extra) <= set(EVENT_PARTS)


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ("", "is neither one of auto, common"),
        ("combnied", "is neither one of auto, common"),
        ("$status", "it has no time"),
        ("[$time_local]", "it has no status"),
        ("$remote_addr$status [$time_local]", "there is no separator between remote_addr and status"),
        ("%{%Y}t %s", "custom time formats"),
        ("[$time_local] $status $a $a", "a appears in it twice"),
        ("[$time_local] $status" + "".join(f" $f{n}" for n in range(FIELDS_MAX)), "42 fields, more than 40"),
        ("x" * 2001, "2001 characters, more than 2000"),
    ],
)
def test_what_is_no_format_is_refused_with_the_reason(form: str, why: str) -> None:
    with pytest.raises(FormatProblem, match=re.escape(why)):
        line_format(form)


HOSTILE = [
    '::1 - - [21/Sep/2026:14:13:20 +0000] "' + r"\"" * 30_000,
    '::1 - - [21/Sep/2026:14:13:20 +0000] "' + 'a" ' * 20_000,
    COMBINED + ' "' * 30_000,
    COMBINED + " x" * 30_000 + ' "',
    "a" * 60_000,
    " " * 60_000,
    "a:1 " * 15_000,
    "[" * 60_000,
    "|" * 60_000,
    COMMON + " " * 60_000 + '"',
]


@pytest.mark.parametrize("form", [AUTO, *NAMED, "$a|[$time_local]|$status|$b"])
def test_a_hostile_line_is_passed_over_once(form: str) -> None:
    """With backtracking the test would run for minutes, so it only has to end."""
    for line in HOSTILE:
        assert parts(form, line) is None or form == AUTO
