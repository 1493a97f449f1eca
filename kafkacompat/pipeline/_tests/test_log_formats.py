"""Formats as patterns: the lines they accept and refuse, with the reason, and the cost of a hostile line. Without Spark.

LINES is written from the documents of nginx, Apache httpd, ingress-nginx and AWS about their logs.
"""

from __future__ import annotations

import argparse
import re
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from kafkacompat.pipeline import run_command
from kafkacompat.pipeline.formats.patterns import (
    EVENT_PARTS,
    FIELDS_MAX,
    MALFORMED_LINE,
    SHOWN_CHARACTERS_MAX,
    Escapes,
    FormatProblem,
    LineFormat,
    Time,
)
from kafkacompat.pipeline.formats.registry import LOG_FORMATS, log_format
from kafkacompat.pipeline.formats.server_formats import AUTO

COMMON = '192.0.2.7 - ann [21/Sep/2026:14:13:20 +0000] "GET /a HTTP/1.1" 200 512'
COMBINED = COMMON + r' "https://example.org/\"x\"" "Mozilla/5.0 (X11)"'
MAIN = COMBINED + ' "198.51.100.9"'
VHOST = "www.example.org:443 " + COMBINED

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "log-formats.md"


def test_the_reference_has_each_part_with_a_column() -> None:
    told = REFERENCE.read_text("utf-8").partition("The parts with a column are ")[2].partition(". ")[0]
    assert sorted(re.findall("`(.*?)`", told)) == sorted(EVENT_PARTS)


def line_format(text: str) -> LineFormat:
    """Return the format of a text, which must be one of patterns."""
    made = log_format(text)
    assert isinstance(made, LineFormat)
    return made


def parts(form: str, line: str) -> dict[str, str] | None:
    """Return the parts of a line that are present. Python's regular expressions support everything that these patterns use."""
    made = line_format(form)
    found = re.match(made.pattern, line, re.ASCII)
    if found is None:
        return None
    return {name: text for name, text in zip(made.parts, found.groups(), strict=True) if text}


def refusal(form: str, line: str) -> str:
    """Return the reason for which a line is refused."""
    made = line_format(form)
    found = re.match(made.reached, line, re.ASCII)
    assert found is not None
    groups = found.groups()
    assert len(groups) == len(made.refusals) - 1
    return made.refusals[max((number for number, group in enumerate(groups, 1) if group), default=0)]


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
    assert made.time is Time.ISO
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
    found = {
        "client": "192.0.2.7",
        "time": "21/Sep/2026:14:13:20 +0000",
        "request": "GET / HTTP/1.1",
        "status": "200",
        "user_agent": "Mozilla (X11)",
    }
    assert parts(piped, line) == found, "the client sent a cookie without a value"
    assert parts(piped, line + "-") == found | {"http_cookie": "-"}
    assert parts(piped, line.removesuffix("|")) is None
    tabbed = "%h\t%t\t%>s\t%U\t%{User-Agent}i"
    found = parts(tabbed, "::1\t[21/Sep/2026:14:13:20 +0000]\t404\t/a b\tcurl")
    assert found is not None
    assert found["path"] == "/a b"


def test_what_is_told_twice_is_kept_under_its_servers_name() -> None:
    made = line_format("$remote_addr [$time_local] $status $body_bytes_sent $bytes_sent")
    assert made.extra == ("bytes_sent",)
    assert set(made.parts) - set(made.extra) <= set(EVENT_PARTS)


class Case(NamedTuple):
    """A line in a format, and the parts that it has besides those of every line (WHEN, `status` 200)."""

    form: str
    line: str
    found: dict[str, str]


WHEN = "21/Sep/2026:14:13:20 +0000"
GET = "GET / HTTP/1.1"
INGRESS = f'10.0.0.1 - - [{WHEN}] "{GET}" 200 612 "-" "curl/8.5" 80 0.003 [default-web-80] [] {{}} 9f1c2d3e4b'
INGRESS_PARTS = {
    "client": "10.0.0.1",
    "user": "-",
    "request": GET,
    "bytes": "612",
    "referrer": "-",
    "user_agent": "curl/8.5",
    "request_length": "80",
    "request_time": "0.003",
    "proxy_upstream_name": "default-web-80",
    "req_id": "9f1c2d3e4b",
}
UPSTREAMS = "upstream_addr", "upstream_response_length", "upstream_response_time", "upstream_status"
ALB = (
    "$type $time_iso8601 $elb $remote_addr:$remote_port $target $request_processing_time $target_processing_time "
    '$response_processing_time $status $target_status $request_length $bytes_sent "$request" "$http_user_agent" '
    "$ssl_cipher $ssl_protocol"
)
ENVOY = (
    '[$time_iso8601] "$request_method $request_uri $server_protocol" $status $flags $bytes_sent $request_time'
)
JSON = (
    'escape=json {"time":"$time_iso8601","status":$status,"took":$upstream_response_time,"request":"$request",'
    '"agent":"$http_user_agent"}'
)

LINES = {
    "ingress-nginx, without an alternative upstream": Case(
        "upstreaminfo",
        INGRESS.format("10.0.0.5:80 612 0.003 200"),
        INGRESS_PARTS | dict(zip(UPSTREAMS, ("10.0.0.5:80", "612", "0.003", "200"), strict=True)),
    ),
    "ingress-nginx, after a retry": Case(
        "upstreaminfo",
        INGRESS.format("10.0.0.5:80, [fd00::6]:80 0, 612 0.001, 0.002 502, 200"),
        INGRESS_PARTS
        | dict(
            zip(UPSTREAMS, ("10.0.0.5:80, [fd00::6]:80", "0, 612", "0.001, 0.002", "502, 200"), strict=True)
        ),
    ),
    "ingress-nginx, groups of upstreams": Case(
        "upstreaminfo",
        INGRESS.format("10.0.0.5:80, 10.0.0.6:80 : unix:/run/app 0, 0 : 612 0.001, - : 0.002 502, 502 : 200"),
        INGRESS_PARTS
        | dict(
            zip(
                UPSTREAMS,
                (
                    "10.0.0.5:80, 10.0.0.6:80 : unix:/run/app",
                    "0, 0 : 612",
                    "0.001, - : 0.002",
                    "502, 502 : 200",
                ),
                strict=True,
            )
        ),
    ),
    "ingress-nginx, without an upstream": Case(
        "upstreaminfo",
        INGRESS.format("- - - -").replace("default-web-80", ""),
        {name: text for name, text in INGRESS_PARTS.items() if name != "proxy_upstream_name"}
        | dict.fromkeys(UPSTREAMS, "-"),
    ),
    "combined with several upstreams": Case(
        '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" '
        '"$http_user_agent" $upstream_addr $upstream_response_time',
        f'192.0.2.7 - - [{WHEN}] "{GET}" 200 5 "-" "Mozilla/5.0 (X11)" 10.0.0.5:80, 10.0.0.6:80 0.1, 0.2',
        {
            "client": "192.0.2.7",
            "user": "-",
            "request": GET,
            "bytes": "5",
            "referrer": "-",
            "user_agent": "Mozilla/5.0 (X11)",
            "upstream_addr": "10.0.0.5:80, 10.0.0.6:80",
            "upstream_response_time": "0.1, 0.2",
        },
    ),
    "addresses of proxies in the middle": Case(
        "%{X-Forwarded-For}i %h %t %>s",
        f"203.0.113.9, 198.51.100.2 192.0.2.7 [{WHEN}] 200",
        {"x-forwarded-for": "203.0.113.9, 198.51.100.2", "client": "192.0.2.7"},
    ),
    "addresses of proxies before a list": Case(
        "[$time_local] $status $http_x_forwarded_for $upstream_status $upstream_addr",
        f"[{WHEN}] 200 203.0.113.9, 198.51.100.2 502, 200 a:1, b:2",
        {
            "http_x_forwarded_for": "203.0.113.9, 198.51.100.2",
            "upstream_status": "502, 200",
            "upstream_addr": "a:1, b:2",
        },
    ),
    "addresses of proxies in quotes": Case(
        r"%t %>s \"%{X-Forwarded-For}i\"",
        f'[{WHEN}] 200 "203.0.113.9, 198.51.100.2"',
        {"x-forwarded-for": "203.0.113.9, 198.51.100.2"},
    ),
    "addresses of proxies at the end": Case(
        "%t %>s %{X-Forwarded-For}i",
        f"[{WHEN}] 200 203.0.113.9, 198.51.100.2 ",
        {"x-forwarded-for": "203.0.113.9, 198.51.100.2"},
    ),
    "tabs as in a configuration file": Case(
        r"$remote_addr\t$time_local\t$status\t$http_user_agent",
        f"192.0.2.7\t{WHEN}\t200\tMozilla/5.0 (X11)",
        {"client": "192.0.2.7", "user_agent": "Mozilla/5.0 (X11)"},
    ),
    "labels and tabs": Case(
        r"time:%t\tstatus:%>s\tua:%{User-Agent}i\tapptime:%D",
        f"time:[{WHEN}]\tstatus:200\tua:Mozilla/5.0 (X11)\tapptime:417",
        {"user_agent": "Mozilla/5.0 (X11)", "D": "417"},
    ),
    "an agent without quotes at the end": Case(
        "$remote_addr [$time_local] $status $http_user_agent",
        f"::1 [{WHEN}] 200 Mozilla/5.0 (X11; Linux)\r",
        {"client": "::1", "user_agent": "Mozilla/5.0 (X11; Linux)"},
    ),
    "an agent without quotes before words": Case(
        "$remote_addr [$time_local] $status $http_user_agent $request_time $scheme",
        f"::1 [{WHEN}] 200 Mozilla/5.0 (X11; Linux) 0.002 https",
        {
            "client": "::1",
            "user_agent": "Mozilla/5.0 (X11; Linux)",
            "request_time": "0.002",
            "scheme": "https",
        },
    ),
    "an agent without quotes before a quoted field": Case(
        '[$time_local] $status $http_user_agent $request_time "$request"',
        f'[{WHEN}] 200 Mozilla/5.0 (X11; Linux) 0.002 "{GET}"',
        {"user_agent": "Mozilla/5.0 (X11; Linux)", "request_time": "0.002", "request": GET},
    ),
    "a user with a blank, Apache": Case(
        "common",
        f'192.0.2.7 - Ann Lee [{WHEN}] "{GET}" 200 5',
        {"client": "192.0.2.7", "l": "-", "user": "Ann Lee", "request": GET, "bytes": "5"},
    ),
    "a user with a bracket, nginx": Case(
        "main",
        f'192.0.2.7 - a [b] [x] [{WHEN}] "{GET}" 200 5 "-" "-" "-"',
        {
            "client": "192.0.2.7",
            "user": "a [b] [x]",
            "request": GET,
            "bytes": "5",
            "referrer": "-",
            "user_agent": "-",
            "http_x_forwarded_for": "-",
        },
    ),
    "an empty user, nginx": Case(
        "$remote_addr - $remote_user [$time_local] $status", f"::1 -  [{WHEN}] 200", {"client": "::1"}
    ),
    "an empty user, Apache": Case(
        "%h %l %u %t %>s", f'::1 - "" [{WHEN}] 200', {"client": "::1", "l": "-", "user": '""'}
    ),
    "a host with brackets": Case(
        "vhost_combined",
        f'[2001:db8::1]:443 ::1 - - [{WHEN}] "{GET}" 200 5 "-" "-"',
        {
            "virtual_host": "[2001:db8::1]",
            "p": "443",
            "client": "::1",
            "l": "-",
            "user": "-",
            "request": GET,
            "bytes": "5",
            "referrer": "-",
            "user_agent": "-",
        },
    ),
    "times of Apache": Case(
        r"%h %t \"%r\" %>s %b %D %T %{ms}T %X",
        f'::1 [{WHEN}] "{GET}" 200 - 1532 0 1 +',
        {"client": "::1", "request": GET, "bytes": "-", "D": "1532", "T": "0", "ms": "1", "X": "+"},
    ),
    "a load balancer of AWS": Case(
        ALB,
        "https 2026-09-21T14:13:20.186641Z app/web/50dc6c495c0c9188 [2001:db8::7]:2817 10.0.0.1:80 0.086 0.048 0.037 200 "
        '200 0 57 "GET https://www.example.com:443/a HTTP/1.1" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2',
        {
            "type": "https",
            "time": "2026-09-21T14:13:20.186641Z",
            "elb": "app/web/50dc6c495c0c9188",
            "client": "[2001:db8::7]",
            "remote_port": "2817",
            "target": "10.0.0.1:80",
            "request_processing_time": "0.086",
            "target_processing_time": "0.048",
            "response_processing_time": "0.037",
            "target_status": "200",
            "request_length": "0",
            "bytes": "57",
            "request": "GET https://www.example.com:443/a HTTP/1.1",
            "user_agent": "curl/7.46.0",
            "ssl_cipher": "ECDHE-RSA-AES128-GCM-SHA256",
            "ssl_protocol": "TLSv1.2",
        },
    ),
    "a path with blanks in Envoy": Case(
        ENVOY,
        '[2026-09-21T14:13:20.250Z] "GET /a file.txt HTTP/1.1" 200 - 154 12',
        {
            "time": "2026-09-21T14:13:20.250Z",
            "method": "GET",
            "path": "/a file.txt",
            "protocol": "HTTP/1.1",
            "flags": "-",
            "bytes": "154",
            "request_time": "12",
        },
    ),
    "JSON, with nothing for what is absent": Case(
        JSON,
        r'{"time":"2026-09-21T14:13:20+00:00","status":200,"took":,"request":"GET /\"x\" HTTP/1.1","agent":""}',
        {"time": "2026-09-21T14:13:20+00:00", "request": r"GET /\"x\" HTTP/1.1"},
    ),
    "JSON, with a list": Case(
        JSON,
        '{"time":"2026-09-21T14:13:20+00:00","status":200,"took":0.1, 0.2,"request":"-","agent":"a,\\"b"}',
        {
            "time": "2026-09-21T14:13:20+00:00",
            "upstream_response_time": "0.1, 0.2",
            "request": "-",
            "user_agent": 'a,\\"b',
        },
    ),
    "without escapes": Case(
        'escape=none [$time_local] "$http_user_agent" "$request" $status $request_id',
        f'[{WHEN}] "a "quoted\\" agent" "GET /" HTTP/1.1" 200 ',
        {"user_agent": 'a "quoted\\" agent', "request": 'GET /" HTTP/1.1'},
    ),
    "a path and its query": Case(
        "%h %t %m %U%q %H %>s",
        f"::1 [{WHEN}] GET /a b?x=1 HTTP/1.1 200",
        {"client": "::1", "method": "GET", "path": "/a b?x=1", "protocol": "HTTP/1.1"},
    ),
    "a path and its query, nginx": Case(
        '$remote_addr [$time_local] "$uri$is_args$args" $status',
        f'::1 [{WHEN}] "/a?" 200',
        {"client": "::1", "path": "/a?"},
    ),
    "an address in parts": Case(
        "[$time_local] $status $scheme://$host$request_uri $request_time",
        f"[{WHEN}] 200 https://a.example/b c 0.1",
        {"scheme": "https", "host$request_uri": "a.example/b c", "request_time": "0.1"},
    ),
    "a path that was filtered": Case(
        '[$time_local] "$request_method $my_filtered_request_uri $server_protocol" $status "$my_user_agent"',
        f'[{WHEN}] "GET /a b HTTP/2.0" 200 "x y"',
        {"method": "GET", "my_filtered_request_uri": "/a b", "protocol": "HTTP/2.0", "my_user_agent": "x y"},
    ),
    "after a hole in the file": Case(
        "$remote_addr [$time_local] $status", f"\0\0\0\x00192.0.2.7 [{WHEN}] 200", {"client": "192.0.2.7"}
    ),
    "with a null byte inside": Case(
        '$remote_addr [$time_local] "$request" $status',
        f'::1 [{WHEN}] "GET /\0a" 200',
        {"client": "::1", "request": "GET /\0a"},
    ),
    "a time in seconds": Case(
        "$msec $status $uri", "1790000000.250 200 /a b", {"time": "1790000000.250", "uri": "/a b"}
    ),
    "a time in microseconds": Case("%{usec}t %s", "1790000000250000 200", {"time": "1790000000250000"}),
    "a time in a format of one's own": Case(
        "[%{%d/%b/%Y:%T %z}t] %s %{%FT%T%z}t",
        f"[{WHEN}] 200 2026-09-21T14:13:20+0000",
        {"{%FT%T%z}t": "2026-09-21T14:13:20+0000"},
    ),
    "a fraction in a time with brackets": Case(
        "%t %s", "[21/Sep/2026:14:13:20.123456 +0000] 200", {"time": "21/Sep/2026:14:13:20.123456 +0000"}
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_real_lines_are_read_as_their_servers_write_them(name: str) -> None:
    form, line, found = LINES[name]
    assert parts(form, line) == {"time": WHEN, "status": "200"} | found


DIRECTIVES = [
    """log_format upstreaminfo '$remote_addr - $remote_user [$time_local] "$request" '
                               '$status\\t$body_bytes_sent';""",
    """log_format  a  escape=default "$remote_addr - $remote_user [$time_local] \\"$request\\" " $status\\t$body_bytes_sent;""",
    """'$remote_addr - $remote_user [$time_local] "$request" ' '$status\\t$body_bytes_sent'""",
    r"$remote_addr - $remote_user [$time_local] \"$request\" $status\t$body_bytes_sent" + "\n",
    r'LogFormat "%h - %u %t \"%r\" %>s\t%b" short',
    r'CustomLog "logs/access log" "%h - %u %t \"%r\" %>s\t%b"',
    r"LogFormat '%h - %u %t \"%r\" %>s\t%b'",
]


@pytest.mark.parametrize("directive", DIRECTIVES)
def test_a_directive_is_read_as_its_server_reads_it(directive: str) -> None:
    assert parts(directive, f'::1 - ann [{WHEN}] "{GET}" 200\t5') == {
        "client": "::1",
        "user": "ann",
        "time": WHEN,
        "request": GET,
        "status": "200",
        "bytes": "5",
    }


def test_the_escapes_are_those_of_the_format() -> None:
    for form, escapes in (
        ("escape=none [$time_local] $status", Escapes.NONE),
        ("log_format x escape=none '[$time_local] $status';", Escapes.NONE),
        ("escape=json [$time_local] $status", Escapes.BACKSLASH),
        ("[$time_local] $status", Escapes.BACKSLASH),
        (AUTO, Escapes.BACKSLASH),
    ):
        assert line_format(form).escapes is escapes


AROUND = list(
    product(
        ["192.0.2.7", "2001:db8::7", "host.example", "192.0.2.7:5678"],
        ["-", "ann", "Ann Lee", '""', "a [b", "", "a b c d"],
        [GET, "-", "", r"GET /\"x\" HTTP/1.1", r"\x16\x03", "GET /a b HTTP/1.1"],
        ["200 512", "304 -", "500 123456789012"],
    )
)


def test_a_named_format_takes_what_the_automatic_one_takes() -> None:
    agents = ' "https://example.org/" "Mozilla (X11)"'
    for client, user, request, end in AROUND:
        line = f'{client} - {user} [{WHEN}] "{request}" {end}'
        for name, whole in (
            ("common", line),
            ("common", line + " \r"),
            ("combined", line + agents),
            ("vhost_combined", f"www.example.org:443 {line}{agents}"),
            ("vhost_combined", f"[::1]:80 {line}{agents}"),
            ("main", f'{line}{agents} "198.51.100.9"'),
        ):
            if name == "vhost_combined" and not user:
                # Apache httpd writes an empty name as two quotes.
                continue
            own, automatic = parts(name, whole), parts(AUTO, whole)
            assert automatic is not None, whole
            assert own is not None, whole
            assert {key: text for key, text in own.items() if key in EVENT_PARTS} == {
                key: text for key, text in automatic.items() if key in EVENT_PARTS
            }


REFUSED = [
    ("main", "", "field 1 ($remote_addr): expected a word"),
    ("main", COMBINED, 'field 9 ($http_x_forwarded_for): expected `" "` and then text'),
    ("common", COMBINED, "it does not end after field 7 (%b)"),
    (
        "common",
        COMMON.replace("21/Sep", "yesterday"),
        f"field 4 (%t): expected ` [` and then a time such as {WHEN}",
    ),
    (
        "common",
        f'::1 - - [2026-09-21 14:13:20] "{GET}" 200 5',
        f"field 4 (%t): expected ` [` and then a time such as {WHEN}",
    ),
    ("combined", f'::1 - - [{WHEN}] {GET} 200 5 "-" "-"', 'field 5 (%r): expected `] "` and then text'),
    ("combined", f'::1 - - [{WHEN}]\0 "{GET}" 200 5 "-" "-"', 'field 5 (%r): expected `] "` and then text'),
    (
        "common",
        f'::1 - - x [{WHEN}] "{GET}" 200 5',
        f"field 4 (%t): expected ` [` and then a time such as {WHEN}",
    ),
    ("main", f"::1 - Ann Lee [{WHEN}] {GET} 200 5", 'field 4 ($request): expected `] "` and then text'),
    ("common", COMMON.replace("200", "OK"), 'field 6 (%>s): expected `" ` and then a number of 3 digits'),
    ("common", COMMON.replace("200", "2xx"), 'field 6 (%>s): expected `" ` and then a number of 3 digits'),
    ("common", COMMON + "0" * 10, "field 7 (%b): expected a number of at most 12 digits, or -"),
    ("common", COMMON.replace(" 200 512", ""), 'field 6 (%>s): expected `" ` and then a number of 3 digits'),
    (
        "[$time_iso8601] $status",
        f"[{WHEN}] 200",
        "field 1 ($time_iso8601): expected `[` and then a time such as 2026-09-21T14:13:20.250+00:00",
    ),
    (
        "[$time_iso8601] $status",
        "[2026-09-21T14:13:20] 200",
        "field 1 ($time_iso8601): expected `[` and then a time such as 2026-09-21T14:13:20.250+00:00",
    ),
    ("$msec $status", "soon 200", "field 1 ($msec): expected a time in seconds since 1970"),
    (
        "%v:%p %t %s",
        f"a.example:http [{WHEN}] 200",
        "field 2 (%p): expected `:` and then a number of at most 5 digits",
    ),
    (AUTO, "no line", "field 3 (user): expected text"),
    (
        AUTO,
        f'{COMMON} "trailing',
        "after field 7 (bytes): expected the end, a referrer and a user agent in quotes, or other whole fields",
    ),
    (
        AUTO,
        COMMON.replace("[", "[yesterday "),
        f"field 4 (time): expected ` [` and then a time such as {WHEN}",
    ),
    (
        AUTO,
        "a.example:80 " + COMMON.replace('HTTP/1.1"', "HTTP/1.1"),
        'field 6 (status): expected `" ` and then a number of 3 digits',
    ),
    (
        "[$time_local]" + "x" * 99 + "$status",
        f"[{WHEN}] 200",
        f"field 2 ($status): expected `]{'x' * (SHOWN_CHARACTERS_MAX - 1)}...` and then a number of 3 digits",
    ),
]


@pytest.mark.parametrize(("form", "line", "why"), REFUSED)
def test_a_refused_line_is_told_by_the_field(form: str, line: str, why: str) -> None:
    assert parts(form, line) is None
    assert refusal(form, line) == f"{MALFORMED_LINE}: {why}"


def test_every_name_is_accepted_and_said() -> None:
    parser = argparse.ArgumentParser()
    run_command.add_arguments(parser)
    names = ", ".join(LOG_FORMATS)
    assert names in " ".join(parser.format_help().split())
    with pytest.raises(FormatProblem, match=f"one of {names} nor"):
        line_format("no format")
    assert [log_format(name) for name in LOG_FORMATS] == list(LOG_FORMATS.values())


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ("", "is neither one of auto, common"),
        ("combnied", "is neither one of auto, common"),
        ("$status", "it has no time"),
        ("[$time_local]", "it has no status"),
        ("$remote_addr$status [$time_local]", "there is no separator between $remote_addr and $status"),
        ("%{%Y}t %s", "%{%Y}t: this format of time cannot be read"),
        (
            "escape=xml $status [$time_local]",
            "escape=xml is none of escape=default, escape=json and escape=none",
        ),
        ("[$time_local]\n$status", "it has more than one line"),
        ("log_format main;", "is neither one of auto, common"),
        ("CustomLog logs/access_log combined", "is neither one of auto, common"),
        ("[$time_local] $status $a $a", "$a appears in it twice"),
        ("[$time_local] $status" + "".join(f" $f{n}" for n in range(FIELDS_MAX)), "42 fields, more than 40"),
        ("x" * 2001, "2001 characters, more than 2000"),
    ],
)
def test_what_is_no_format_is_refused_with_the_reason(form: str, why: str) -> None:
    with pytest.raises(FormatProblem, match=re.escape(why)):
        line_format(form)


WORDS_AFTER_TEXT = "[$time_local] $status $http_user_agent" + "".join(
    f" $request_id{n}" for n in range(30)
).replace("request_id", "session_time")
BARE = "escape=none [$time_local] $status \"$http_user_agent\" '$http_cookie' $upstream_addr $upstream_status"
PATTERNS = [name for name, form in LOG_FORMATS.items() if isinstance(form, LineFormat)]
HOSTILE = [
    '[21/Sep/2026:14:13:20 +0000] 200 "' + '" ' * 100_000,
    "[21/Sep/2026:14:13:20 +0000] 200 \"a\" 'b' " + "a, " * 100_000,
    "[21/Sep/2026:14:13:20 +0000] 200 " + "a " * 100_000 + '"',
    "[21/Sep/2026:14:13:20 +0000] 200 " + ("a" * 3_000 + " ") * 100 + '" "',
    "::1 - " + "[" * 200_000,
    "::1 - " + " [21/Sep/2026:14:13:20" * 10_000,
    "\0" * 300_000,
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


@pytest.mark.parametrize("form", [*PATTERNS, "$a|[$time_local]|$status|$b", WORDS_AFTER_TEXT, BARE])
def test_a_hostile_line_is_passed_over_once(form: str) -> None:
    """With backtracking the test would run for minutes, so it only has to end."""
    for line in HOSTILE:
        assert parts(form, line) is None or form in (AUTO, WORDS_AFTER_TEXT, BARE)
        assert refusal(form, line).startswith(MALFORMED_LINE)
