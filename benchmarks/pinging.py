"""Another client: `python -m benchmarks.pinging HOST:PORT TOPIC` produces one record every few milliseconds until its
input ends.

It is a separate process, so that no other work of the measurement delays it. It prints `ready` when it is warm. At the
end it prints its waits as JSON: the longest and the 99th percentile in ms, and their number. Its time is limited.
"""

from __future__ import annotations

import json
import select
import sys
import time

from benchmarks.raw import Stream, error_of_produce, produce_frame, record_batch

PERIOD_S = 0.002
WARM_REQUESTS = 1500
"""Seconds before it starts to count, while a JVM compiles its code."""
LIMIT_S = 170.0


def main(bootstrap: str, topic: str) -> None:
    stream = Stream(bootstrap)
    request = produce_frame(topic, [0], 1, record_batch(b"ping", 1))

    def ask() -> float:
        started = time.perf_counter()
        stream.send(request)
        error = error_of_produce(stream.reply(), topic)
        if error:
            raise RuntimeError(f"a produce failed with error {error}")
        return time.perf_counter() - started

    for _ in range(WARM_REQUESTS):
        ask()
    print("ready", flush=True)
    waits = []
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        waits.append(ask() * 1e3)
        if select.select([sys.stdin], [], [], PERIOD_S)[0]:
            break
    waits.sort()
    told = {"longest": waits[-1], "p99": waits[len(waits) * 99 // 100], "count": len(waits)}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
