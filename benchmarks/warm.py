"""Loads on both brokers while these are warm: CPU a record, rate, memory, and the time until the acknowledgement.

A JVM compiles its code for minutes. So both brokers stay up for all loads of this module, take turns, and each load is
repeated unmeasured until two rounds in a row need nearly the same CPU. One base load is varied in one dimension at a
time. The clients are Kafka's own programs, librdkafka, and requests that are encoded once.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka.admin import AdminClient

from benchmarks import group_requests
from benchmarks.client import warm_memory
from benchmarks.cluster import running_cluster
from benchmarks.measure import KINDS, TOPIC_TIMEOUT_S, cpu_of, create_topic, run_client, running
from benchmarks.raw import LZ4
from benchmarks.report import BASE, WARM
from benchmarks.tls import Secured, secured
from benchmarks.user_share import user_share
from interop_tests.harness.kafka_jvm import kafka_java

Figures = dict[str, float]

TOOL_JVM = ("-Xms256m", "-Xmx512m")
TOOL_TIMEOUT_S = 200.0
SETTLED = 0.05
"""Two rounds whose CPU differs by less than this fraction are those of a warm broker."""
UNMEASURED_AT_LEAST_S = 12.0
FIRST_UNMEASURED_AT_LEAST_S = 60.0
"""Of load on each broker before the first load is measured. A JVM compiles for that long, and two rounds in a row may be
alike before."""
UNMEASURED_AT_MOST_S = 120.0
SATURATED = -1
TOPIC_SETTINGS = {"file.delete.delay.ms": "1000"}
DELETED_WITHIN_S = 3.0
FIXED_RATE_S = 10
FETCH_BYTES = 1 << 20
FETCHED_BATCH_BYTES, FETCHED_BATCHES = 64_000, 1_000
LINE = b"%s 10.1.%d.%d GET /articles/%d 200 %d ms user=%d agent=Mozilla/5.0 (X11; Linux x86_64) ref=https://example.org/%d ; "


class Side(NamedTuple):
    """The node or nodes of one kind."""

    kind: str
    bootstrap: str
    root: Path
    pids: tuple[int, ...]
    store: Path | None = None
    """The folder of its tier."""
    secured: Secured | None = None
    """The listener with TLS that the clients of the loads use."""

    @property
    def java_words(self) -> list[str]:
        """Where and how Kafka's programs connect."""
        if self.secured is None:
            return ["--bootstrap-server", self.bootstrap]
        file = self.root / "client.properties"
        settings = {"security.protocol": "SSL"} | self.secured.stores.settings(None)
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        return ["--bootstrap-server", self.secured.job["bootstrap"], "--command-config", str(file)]


@contextmanager
def up_single(kind: str) -> Iterator[Side]:
    with running(kind, group_requests.SETTINGS) as broker:
        yield Side(kind, broker.bootstrap, broker.root, (broker.pid,))


@contextmanager
def up_secured(kind: str) -> Iterator[Side]:
    with secured(kind, use_rsa=False) as found:
        broker = found.broker
        yield Side(kind, broker.bootstrap, broker.root, (broker.pid,), secured=found)


@contextmanager
def up_cluster(kind: str) -> Iterator[Side]:
    with running_cluster(kind) as cluster:
        pids = tuple(node.process.pid for node in cluster.nodes.values() if node.process is not None)
        yield Side(kind, cluster.bootstrap, cluster.root, pids)


@dataclass(frozen=True, slots=True)
class WarmLoad:
    """What a round does. `records` a round, `rate` in records/s."""

    title: str
    run: Callable[[Side, WarmLoad, str], Figures]
    records: int = 300_000
    size: int = 1000
    partitions: int = 12
    acks: str = "all"
    compression: str = "none"
    rate: int = SATURATED
    producer: tuple[str, ...] = ()
    """Further settings of Kafka's producer, as name=value."""
    is_compressible: bool = False
    clients: int = 1
    nodes: int = 1
    up: Callable[[str], AbstractContextManager[Side]] = up_single
    """Starts the brokers of one kind. Loads with the same `up` share them, and follow one another."""
    fill: Callable[[Side, WarmLoad, str], object] | None = None
    """Makes what a load needs to be there: what it reads, or the members of its groups."""
    before: Callable[[Side, WarmLoad, str], object] | None = None
    """The beginning of each round that is not measured."""
    family: str = WARM
    unit: str = "record"
    """What the figures of CPU are told of."""

    @property
    def name(self) -> str:
        return f"{self.family}: {self.title}"


def produced_by_java(side: Side, load: WarmLoad, topic: str) -> Figures:
    """ProducerPerformance."""
    words = ["--topic", topic, "--num-records", str(load.records), "--throughput", str(load.rate)]
    if load.is_compressible:
        words += ["--payload-file", str(lines_of(load.size, side.root))]
    else:
        words += ["--record-size", str(load.size)]
    words += [*side.java_words, "--command-property", f"acks={load.acks}"]
    words += [f"compression.type={load.compression}", *load.producer]
    said = tool("ProducerPerformance", words)
    last = re.search(
        rf"{load.records} records sent, .* \(([\d.]+) MB/sec\).* ([\d.]+) ms 50th, .* ([\d.]+) ms 99th, ([\d.]+) ms 99.9th",
        said,
    )
    assert last, f"ProducerPerformance did not send {load.records} records: {said[-1000:]}"
    rate, *quantiles = map(float, last.groups())
    return {"MB/s": rate * (1 << 20) / 1e6} | dict(
        zip(("p50 ms", "p99 ms", "p99.9 ms"), quantiles, strict=True)
    )


def consumed_by_java(side: Side, load: WarmLoad, topic: str) -> Figures:
    """ConsumerPerformance reads what is in the topic."""
    words = [*side.java_words, "--topic", topic, "--num-records", str(load.records)]
    words += ["--group", f"bench-{time.monotonic_ns()}", "--timeout", "30000"]
    heading, row = (re.split(r",\s*", line) for line in tool("ConsumerPerformance", words).splitlines()[-2:])
    told = dict(zip((word.strip() for word in heading), row, strict=True))
    seen = int(told["data.consumed.in.nMsg"])
    assert seen >= load.records, f"{seen} of {load.records} records came"
    return {"MB/s": float(told["fetch.MB.sec"]) * (1 << 20) / 1e6}


def both_by_java(side: Side, load: WarmLoad, topic: str) -> Figures:
    """ConsumerPerformance reads while ProducerPerformance writes."""
    words = [*side.java_words, "--topic", topic, "--num-records", str(load.records)]
    words += ["--timeout", "30000"]
    with subprocess.Popen(
        tool_command("ConsumerPerformance", words),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as reading:
        figures = produced_by_java(side, load, topic)
        said, _ = reading.communicate(timeout=TOOL_TIMEOUT_S)
    assert reading.returncode == 0, f"ConsumerPerformance failed: {said[-1000:]}"
    return figures


def produced_by_librdkafka(side: Side, load: WarmLoad, topic: str) -> Figures:
    """Producers of librdkafka with its defaults, in one process."""
    job = {"topic": topic, "clients": load.clients, "count": load.records, "size": load.size}
    made = run_client(side, work="many_producers", compression=load.compression, acks=load.acks, **job)
    return {"MB/s": made["mb_per_s"]} | {
        f"{quantile} ms": made[key]
        for quantile, key in (("p50", "p50_ms"), ("p99", "p99_ms"), ("p99.9", "p999_ms"))
    }


def consumed_by_librdkafka(side: Side, load: WarmLoad, topic: str) -> Figures:
    """A consumer of librdkafka reads what is in the topic."""
    job = {"topic": topic, "count": load.records, "partitions": load.partitions}
    return {"MB/s": run_client(side, work="consume", **job)["mb_per_s"]}


def encoded_once(side: Side, load: WarmLoad, topic: str, *, batch_bytes: int, in_flight: int) -> Figures:
    """Requests that are encoded once, with a batch for each partition."""
    each = max(1, batch_bytes // load.size) * load.partitions
    job = {"topic": topic, "size": load.size, "acks": load.acks, "partitions": load.partitions}
    codec = LZ4 if load.compression == "lz4" else 0
    if side.secured is not None:
        job |= {"bootstrap": side.secured.job["bootstrap"], "authority": str(side.secured.stores.ca_pem)}
    made = run_client(
        side,
        work="raw_produce",
        batch_bytes=batch_bytes,
        in_flight=in_flight,
        codec=codec,
        requests=load.records // each,
        **job,
    )
    return {"MB/s": made["mb_per_s"], "requests/s": made["requests_per_s"]}


def fetched_once(side: Side, load: WarmLoad, topic: str) -> Figures:
    """Fetches that are encoded once, of a partition with equal batches. The time of parsing is left out."""
    job = {"topic": topic, "size": load.size, "batch_bytes": FETCHED_BATCH_BYTES}
    per_fetch = FETCH_BYTES // FETCHED_BATCH_BYTES * (FETCHED_BATCH_BYTES // load.size)
    read = run_client(
        side,
        work="raw_fetch",
        max_bytes=FETCH_BYTES,
        records=FETCHED_BATCHES * (FETCHED_BATCH_BYTES // load.size),
        requests=load.records // per_fetch,
        **job,
    )
    return {"MB/s": read["mb_per_s"], "requests/s": read["requests_per_s"]}


def filled(side: Side, load: WarmLoad, topic: str) -> None:
    """The equal batches that `fetched_once` reads."""
    job = {"topic": topic, "size": load.size, "acks": "all", "in_flight": 5}
    run_client(side, work="raw_produce", batch_bytes=FETCHED_BATCH_BYTES, requests=FETCHED_BATCHES, **job)


def repeated(side: Side, load: WarmLoad, topic: str, *, in_flight: int) -> Figures:
    """The requests that were kept when the load began."""
    told = run_client(
        side,
        work="raw_exchanges",
        exchanges=str(group_requests.exchanges_file(side, topic)),
        requests=load.records,
        in_flight=in_flight,
    )
    return {"requests/s": told["requests_per_s"]}


def kept(make: Callable[[Side, str], None]) -> Callable[[Side, WarmLoad, str], None]:
    """What `repeated` repeats."""
    return lambda side, _load, topic: make(side, topic)


def there_and_back(side: Side, load: WarmLoad, topic: str) -> Figures:
    """Single records by librdkafka, from the producer's call until a waiting consumer has them."""
    job = {"topic": topic, "count": load.records, "rate": load.rate, "size": load.size}
    told = run_client(side, work="latency", **job)
    return {"p50 ms": told["p50_ms"], "p99 ms": told["p99_ms"], "p99.9 ms": told["p999_ms"]}


def tool_command(name: str, words: list[str]) -> list[str]:
    return [*kafka_java(*TOOL_JVM, jvm=()), f"org.apache.kafka.tools.{name}", *words]


def tool(name: str, words: list[str]) -> str:
    """The output of one of Kafka's programs, in a JVM that compiles as usual."""
    done = subprocess.run(tool_command(name, words), capture_output=True, text=True, timeout=TOOL_TIMEOUT_S)
    assert done.returncode == 0, f"{name} failed: {done.stdout[-1000:]} {done.stderr[-1000:]}"
    return done.stdout.strip()


def lines_of(size: int, folder: Path) -> Path:
    """A file with a thousand lines of a web server's log, each of so many bytes, for --payload-file."""
    path = folder / f"lines-{size}"
    if not path.exists():
        with open(path, "wb") as file:
            for number in range(1000):
                line = b"".join(
                    LINE % (b"28/Nov/2026", number % 200, part, number * 7919 % 9973, part * 31, number, part)
                    for part in range(size // 90 + 2)
                )
                file.write(line[:size] + b"\n")
    return path


PLAIN = WarmLoad(BASE, produced_by_java)
PACED = {"records": 5_000 * FIXED_RATE_S, "rate": 5_000}


def _loads() -> Iterator[WarmLoad]:
    yield PLAIN
    for codec in ("lz4", "zstd"):
        yield replace(PLAIN, title=f"{BASE}, {codec}", compression=codec)
    yield replace(PLAIN, title=f"{BASE}, compressible", is_compressible=True)
    for codec in ("lz4", "zstd"):
        yield replace(PLAIN, title=f"{BASE}, compressible, {codec}", compression=codec, is_compressible=True)
    yield replace(PLAIN, title=f"{BASE}, of 100 B", size=100, records=2_000_000)
    yield replace(PLAIN, title=f"{BASE}, 5,000 records/s", **PACED)
    yield replace(PLAIN, title=f"{BASE}, 20,000 records/s", records=20_000 * FIXED_RATE_S, rate=20_000)
    yield replace(PLAIN, title=f"{BASE}, 5,000 records/s, linger 0", producer=("linger.ms=0",), **PACED)
    yield replace(
        PLAIN,
        title="Java producer, 100 B, 6 partitions, all defaults",
        size=100,
        partitions=6,
        records=2_000_000,
    )
    yield replace(
        PLAIN,
        title="Java producer, 1 kB, 1 partition, batches of 64 kB, acks=1",
        partitions=1,
        acks="1",
        producer=("batch.size=65536",),
    )
    for clients in (1, 10, 200):
        yield replace(
            PLAIN,
            title=f"librdkafka, {clients} producer{'s' if clients > 1 else ''}",
            run=produced_by_librdkafka,
            clients=clients,
        )
    reading = replace(PLAIN, run=consumed_by_java, fill=produced_by_java)
    yield replace(reading, title="Java consumer, 1 kB")
    yield replace(reading, title="Java consumer, 100 B", size=100, records=2_000_000)
    for codec in ("lz4", "zstd"):
        yield replace(
            reading,
            title=f"Java consumer, 1 kB, compressible, {codec}",
            compression=codec,
            is_compressible=True,
        )
    by_librdkafka = replace(reading, run=consumed_by_librdkafka)
    yield replace(by_librdkafka, title="librdkafka consumer, 1 kB")
    yield replace(by_librdkafka, title="librdkafka consumer, 100 B", size=100, records=2_000_000)
    yield replace(PLAIN, title="Java producer and consumer at once, 1 kB", run=both_by_java, records=200_000)
    talk = replace(PLAIN, run=there_and_back, size=200, partitions=1)
    yield replace(
        talk, title="end to end, 200 B, 1,000 records/s, 1 node", rate=1_000, records=1_000 * FIXED_RATE_S
    )
    once = {"run": partial(encoded_once, batch_bytes=16_000, in_flight=5)}
    yield replace(PLAIN, title="encoded once, 12 batches of 16 kB", records=1_536_000, **once)
    yield replace(
        PLAIN, title="encoded once, 12 batches of 16 kB, lz4", records=1_536_000, compression="lz4", **once
    )
    yield replace(
        PLAIN,
        title="encoded once, fetches of 1 MiB",
        run=fetched_once,
        fill=filled,
        partitions=1,
        records=3_000_000,
    )
    for in_flight in (1, 5):
        one = partial(encoded_once, batch_bytes=0, in_flight=in_flight)
        yield replace(
            PLAIN,
            title=f"encoded once, one record of 100 B, {in_flight} in flight",
            run=one,
            size=100,
            partitions=1,
            records=30_000,
        )
    yield from _group_loads()
    yield from _secured_loads()
    yield from _cluster_loads()


def _group_loads() -> Iterator[WarmLoad]:
    asking = replace(PLAIN, unit="request", size=0)
    members = f"{group_requests.MEMBERS * group_requests.GROUPS} members"
    for protocol, joined, in_flight in (
        ("classic", group_requests.classic_heartbeats, 5),
        ("consumer", group_requests.consumer_heartbeats, 1),
        ("consumer", group_requests.consumer_heartbeats, 5),
    ):
        yield replace(
            asking,
            title=f"heartbeats of {protocol} groups, {members}, {in_flight} in flight",
            run=partial(repeated, in_flight=in_flight),
            fill=kept(joined),
            partitions=group_requests.PARTITIONS,
            records=60_000,
        )
    for partitions, in_flight in ((1, 1), (1, 5), (10, 5)):
        yield replace(
            asking,
            title=f"commits of {partitions} partition{'s' if partitions > 1 else ''}, {in_flight} in flight",
            run=partial(repeated, in_flight=in_flight),
            fill=kept(partial(group_requests.commits, partitions=partitions)),
            partitions=partitions,
            records=20_000,
        )


def _secured_loads() -> Iterator[WarmLoad]:
    plain = replace(PLAIN, up=up_secured)
    yield replace(plain, title=f"{BASE}, TLS")
    yield replace(plain, title="Java consumer, 1 kB, TLS", run=consumed_by_java, fill=produced_by_java)
    yield replace(
        plain,
        title="encoded once, one record of 100 B, 1 in flight, TLS",
        run=partial(encoded_once, batch_bytes=0, in_flight=1),
        size=100,
        partitions=1,
        records=30_000,
    )


def _cluster_loads() -> Iterator[WarmLoad]:
    plain = replace(PLAIN, nodes=3, up=up_cluster)
    yield replace(plain, title=f"{BASE}, 3 nodes", records=100_000)
    yield replace(plain, title=f"{BASE}, 3 nodes, 5,000 records/s", **PACED)
    yield replace(plain, title="Java consumer, 1 kB, 3 nodes", run=consumed_by_java, fill=produced_by_java)
    yield replace(
        plain,
        title="end to end, 200 B, 500 records/s, 3 nodes",
        run=there_and_back,
        size=200,
        partitions=1,
        rate=500,
        records=500 * FIXED_RATE_S,
    )


LOADS = tuple(_loads())


class WarmBrokers:
    """Both brokers, up for all loads that share them, and only these. They start with the first load that needs them."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._up: object = None
        self._sides: dict[str, Side] = {}

    def of(self, load: WarmLoad) -> tuple[dict[str, Side], float]:
        """By kind, and the seconds of load before the next one is measured."""
        if load.up is self._up:
            return self._sides, UNMEASURED_AT_LEAST_S
        self.close()
        try:
            self._sides = {kind: self._stack.enter_context(load.up(kind)) for kind in KINDS}
        except BaseException:
            self.close()
            raise
        self._up = load.up
        return self._sides, FIRST_UNMEASURED_AT_LEAST_S

    def close(self) -> None:
        self._up = None
        self._stack.close()


def measured(
    load: WarmLoad, sides: dict[str, Side], at_least_s: float, rounds: int, say: Callable[[str], None]
) -> dict[str, dict[str, list[float]]]:
    """The figures of so many rounds after `at_least_s` unmeasured seconds on each broker, by name and kind."""
    topic = f"bench-{time.monotonic_ns()}"
    for side in sides.values():
        create_topic(side, topic, load.partitions, load.nodes, TOPIC_SETTINGS)
        if load.fill is not None:
            load.fill(side, load, topic)
    found: dict[str, dict[str, list[float]]] = {}
    try:
        for side in sides.values():
            warmed_up(load, side, topic, at_least_s, say)
        for number in range(rounds):
            for kind in KINDS if number % 2 == 0 else KINDS[::-1]:
                say(f"round {number + 1}/{rounds}, {kind}")
                for figure, value in one_round(load, sides[kind], topic).items():
                    found.setdefault(figure, {}).setdefault(kind, []).append(value)
    finally:
        for side in sides.values():
            delete(side, topic)
        # The files are gone before the next load begins.
        time.sleep(DELETED_WITHIN_S)
    return found


def warmed_up(load: WarmLoad, side: Side, topic: str, at_least_s: float, say: Callable[[str], None]) -> None:
    """Repeat the load until two rounds in a row need nearly the same CPU."""
    last = 0.0
    began_s = time.monotonic()
    while (spent_s := time.monotonic() - began_s) < UNMEASURED_AT_MOST_S:
        say(f"unmeasured, {side.kind}, after {spent_s:.0f} s")
        used, _ = carried_out(load, side, topic)
        if spent_s >= at_least_s and abs(used - last) <= SETTLED * last:
            return
        last = used
    say(f"{side.kind} is not settled after {UNMEASURED_AT_MOST_S:.0f} s")


def carried_out(load: WarmLoad, side: Side, topic: str) -> tuple[float, Figures]:
    """CPU us a unit, and what the client tells."""
    if load.before is not None:
        load.before(side, load, topic)
    if load.fill is None:
        warm_memory(str(side.root), load.records * load.size * load.nodes)
    before_s = cpu_of(side.pids)
    figures = load.run(side, load, topic)
    return (cpu_of(side.pids) - before_s) / load.records * 1e6, figures


def one_round(load: WarmLoad, side: Side, topic: str) -> Figures:
    with user_share(side.pids) as user:
        used_us, figures = carried_out(load, side, topic)
    if load.rate != SATURATED:
        figures = {name: value for name, value in figures.items() if name != "MB/s"}
    else:
        # At saturation this is the time in the producer's own queue.
        figures = {name: value for name, value in figures.items() if not name.endswith(" ms")}
    return {
        f"CPU us/{load.unit}": used_us,
        f"user CPU us/{load.unit}": used_us * user(),
        f"system CPU us/{load.unit}": used_us * (1 - user()),
        **figures,
        "resident memory MB": sum(psutil.Process(pid).memory_info().rss for pid in side.pids) / 1e6,
    }


def delete(side: Side, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    admin.delete_topics([topic], operation_timeout=TOPIC_TIMEOUT_S)[topic].result(TOPIC_TIMEOUT_S)
