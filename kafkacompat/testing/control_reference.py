"""Generate docs/reference/testserver.md from the table of the control API: python -m kafkacompat.testing.control_reference"""

from __future__ import annotations

from pathlib import Path

from kafkacompat.testing.control import OPERATIONS, Operation
from kafkacompat.testing.control_arguments import Argument

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "testserver.md"
HEAD = """# The control API of testserver

What tests in any language ask `kafkacompat testserver`. [Test from any language](../how-to/test-from-any-language.md) shows how.
[Testing with kafkacompat](testing.md) says more of most of it. `GET /openapi.json` has all of this and the answers, as OpenAPI 3.1.
This page is written by `python -m kafkacompat.testing.control_reference`; a test compares it with the table of the API.

- A request bears the token, `Authorization: Bearer TOKEN`. Only the OpenAPI document needs none. The Host of a request is the
  server's own, and a request with an Origin is refused, so no web page can ask. A body is JSON of up to 1 MiB.
- Arguments of a GET are in the query, those of a POST in the body, an object. null says as much as no argument.
- `?fork=NUMBER` makes any request one to that fork.
- Keys, values and headers of records are text, null, `{"base64": "..."}` for bytes that are not UTF-8, or any other JSON, which is
  written as such.
- An answer other than 200 has `message`, `error` (Kafka's name of the error, or null) and `argument` (which one is wrong, or null).
  400: an argument is wrong. 404: there is no such thing. 409: Kafka refuses, or what is waited for does not come. 503: too much at
  once.
- A request that waits holds up no other. `timeout_s` is real time, up to 600 seconds.
"""


def page() -> str:
    lines = [HEAD, "| request | what it does, and its arguments |", "| --- | --- |", *map(_row, OPERATIONS)]
    return "\n".join(lines) + "\n"


def _row(operation: Operation) -> str:
    told = "".join(f"<br>{_argument(each)}" for each in operation.arguments)
    return f"| `{operation.method} {operation.path}` | {operation.text}{told} |"


def _argument(argument: Argument) -> str:
    needed = ", required" if argument.is_required else ""
    return f"`{argument.name}`{needed}: {argument.text}"


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
