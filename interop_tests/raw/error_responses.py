"""The responses of Kafka's own classes to requests that fail as a whole, for a sample of every served request.

python -m interop_tests.raw.error_responses      writes the file that the unit tests compare with
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from interop_tests.harness.java_tools import java_command
from kafkacompat.api.registry import CONTROLLER_ENTRIES, ENTRIES
from kafkacompat.wire._tests.arbitrary import Sample
from kafkacompat.wire.apis import request_class
from kafkacompat.wire.codec import encode
from kafkacompat.wire.errors import ErrorCode

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parents[1] / "kafkacompat/api/_tests/golden/error_responses.tsv"
CODES = (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT)
TIMEOUT_S = 120.0
HEADER = "# name, api key, version, error code, request, Apache Kafka 4.4.0's response to its failure; both without headers\n"


def samples() -> Iterator[tuple[str, int, int, int, bytes]]:
    """Name, key, version, error code and body of every request that one of the listeners serves."""
    served: dict[tuple[int, int], str] = {}
    for entry in (*ENTRIES, *CONTROLLER_ENTRIES):
        for version in range(entry.min_version, entry.max_version + 1):
            served.setdefault((entry.key, version), entry.name)
    for (key, version), name in sorted(served.items()):
        body = encode(Sample(request_class(key), version).message(), version)
        for code in CODES:
            yield name, key, version, int(code), body


def answered_by_kafka() -> list[str]:
    """A line of the file for each sample."""
    asked = list(samples())
    done = subprocess.run(
        [*java_command(), str(HERE / "ErrorResponses.java")],
        input="".join(f"{key} {version} {code} {body.hex()}\n" for _, key, version, code, body in asked),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    answers = done.stdout.splitlines()
    assert len(answers) == len(asked), done.stderr
    return [
        "\t".join((name, str(key), str(version), str(code), body.hex(), answer))
        for (name, key, version, code, body), answer in zip(asked, answers, strict=True)
    ]


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(HEADER + "".join(f"{line}\n" for line in answered_by_kafka()))
