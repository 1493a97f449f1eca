"""How long a sweep of faults takes: python -m benchmarks.sweeps [--records N...] [--nodes N] [--processes N]

The program consumes, transforms and produces with one transaction a record. It has about 5 exchanges a record, and 30 beside
them. CPU seconds are those of all processes. On a busy machine they say more than the seconds that have passed.
"""

from __future__ import annotations

import argparse
import resource
import time

from interop_tests.testing.test_sweep import exactly_once
from kafkacompat.testing.copies import processors
from kafkacompat.testing.kafka import Kafka
from kafkacompat.testing.sweep import every_fault


def cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", nargs="+", type=int, default=[3, 35], metavar="N")
    parser.add_argument("--nodes", type=int, default=1, metavar="N")
    parser.add_argument("--processes", type=int, default=processors(), metavar="N")
    arguments = parser.parse_args()
    print("| records | exchanges | that change something | runs | seconds | CPU seconds |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for records in arguments.records:
        with Kafka(nodes=arguments.nodes) as kafka:
            kafka.create_topic("in")
            kafka.create_topic("out")
            kafka.produce("in", map(str, range(records)))
            with kafka.fork() as other:
                other.record_requests()
                exactly_once(other)
                exchanges = sum(each.listener in other.client_listeners for each in other.requests())
            began_s, began_cpu_s = time.monotonic(), cpu_s()
            swept = every_fault(exactly_once, kafka, processes=arguments.processes)
            took_s, took_cpu_s = time.monotonic() - began_s, cpu_s() - began_cpu_s
        counts = f"| {records} | {exchanges} | {len(swept.points)} | {swept.runs}"
        print(f"{counts} | {took_s:.1f} | {took_cpu_s:.1f} |", flush=True)


if __name__ == "__main__":
    main()
