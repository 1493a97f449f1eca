"""DumpLogSegments, Kafka's reader of log files, on a data folder that the broker wrote and closed on SIGTERM."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from interop_tests.harness.broker import BrokerProcess, chosen_kind
from interop_tests.harness.java_tools import KafkaTools, ToolOutput, dump_faults
from interop_tests.harness.raw_kafka import create_topic

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PER_CODEC = 40
SEGMENT_TOPIC = "segments"
# Random bytes do not compress: three segments of 1 MiB.
BIG_RECORDS = 180
BIG_RECORD_BYTES = 16_000

pytestmark = pytest.mark.needs_control


@pytest.fixture(scope="module")
def data_dir(tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a stopped broker: a topic for each codec, one with several segments, and a group with offsets."""
    process = BrokerProcess(
        chosen_kind(), tmp_path_factory.mktemp("dump"), {"offsets.topic.num.partitions": "1"}
    )
    process.start()
    try:
        create_topic(process.bootstrap, SEGMENT_TOPIC, 1, {"segment.bytes": str(1 << 20)})
        for codec in CODECS:
            create_topic(process.bootstrap, codec, 1)
            producer = Producer(
                {"bootstrap.servers": process.bootstrap, "compression.type": codec, "linger.ms": 20}
            )
            for n in range(PER_CODEC):
                producer.produce(
                    codec, f"{codec} {n} ".encode() * 20, f"key-{n}".encode(), headers=[("n", b"%d" % n)]
                )
            assert producer.flush(30) == 0
        producer = Producer({"bootstrap.servers": process.bootstrap, "enable.idempotence": True})
        filler = bytes(range(256)) * (BIG_RECORD_BYTES // 256)
        for n in range(BIG_RECORDS):
            producer.produce(SEGMENT_TOPIC, filler, b"%d" % n)
            producer.flush(10)
        tools.run(
            "consumer.ConsoleConsumer",
            *("--bootstrap-server", process.bootstrap, "--topic", "zstd", "--group", "readers"),
            *("--from-beginning", "--max-messages", str(PER_CODEC), "--timeout-ms", "30000"),
        )
        assert process.stop() in (0, 143)
        yield process.data_dir
    finally:
        process.kill()


@pytest.fixture
def dump(tools: KafkaTools) -> Callable[..., ToolOutput]:
    """dump(files, options...) runs DumpLogSegments. The test fails if the tool reports a fault."""

    def run(files: list[Path], *options: str) -> ToolOutput:
        assert files
        output = tools.run("DumpLogSegments", "--files", ",".join(map(str, files)), *options)
        assert dump_faults(output) == [], output.err
        return output

    return run


def files(data_dir: Path, partition: str, *suffixes: str) -> list[Path]:
    found = [path for suffix in suffixes for path in sorted((data_dir / partition).glob(f"*{suffix}"))]
    assert found, (
        f"{partition} has no {suffixes}: {sorted(path.name for path in (data_dir / partition).iterdir())}"
    )
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec_are_read(data_dir: Path, dump: Callable[..., ToolOutput], codec: str) -> None:
    output = dump(files(data_dir, f"{codec}-0", ".log"), "--deep-iteration", "--print-data-log")
    batches = [line for line in output.lines if line.startswith("baseOffset:")]
    assert batches
    assert all(f"compresscodec: {codec} " in line and "isvalid: true" in line for line in batches)
    records = re.findall(r"\| offset: (\d+) .* headerKeys: \[n\] key: (\S+) payload: (.*)", output.out)
    assert [(int(offset), key) for offset, key, _ in records] == [(n, f"key-{n}") for n in range(PER_CODEC)]
    assert all(payload == f"{codec} {n} " * 20 for n, (_, _, payload) in enumerate(records))


def test_segments_and_their_indexes_are_sane(data_dir: Path, dump: Callable[..., ToolOutput]) -> None:
    """--index-sanity-check, and the full check of every entry against its log, for each segment."""
    partition = f"{SEGMENT_TOPIC}-0"
    logs = files(data_dir, partition, ".log")
    assert len(logs) == 3
    output = dump(logs, "--deep-iteration")
    last_offsets = [int(offset) for offset in re.findall(r"lastOffset: (\d+)", output.out)]
    assert last_offsets == sorted(last_offsets)
    assert last_offsets[-1] == BIG_RECORDS - 1
    starts = [int(offset) for offset in re.findall(r"Log starting offset: (\d+)", output.out)]
    assert starts == [int(path.stem) for path in logs]

    checked = dump(files(data_dir, partition, ".index", ".timeindex"), "--index-sanity-check")
    assert checked.out.count("passed sanity check.") == 2 * len(logs), str(checked)
    entries = dump(files(data_dir, partition, ".index"), "--verify-index-only")
    assert len(files(data_dir, partition, ".index")) == len(logs)
    assert "offset:" not in entries.out.replace("baseOffset", ""), "only wrong entries are printed"
    times = dump(files(data_dir, partition, ".index", ".timeindex"))
    positions = [int(position) for position in re.findall(r"position: (\d+)", times.out)]
    assert len(positions) > 2 * len(logs), "16 kB records get an entry each"
    assert len(re.findall(r"timestamp: \d{13} offset: \d+", times.out)) >= len(logs)


def test_producer_snapshots_are_read(data_dir: Path, dump: Callable[..., ToolOutput]) -> None:
    output = dump(files(data_dir, f"{SEGMENT_TOPIC}-0", ".snapshot"))
    found = re.findall(
        r"producerId: (\d+) producerEpoch: (\d+) .*lastSequence: (\d+) lastOffset: (\d+)", output.out
    )
    assert found, str(output)
    _, epoch, sequence, offset = found[-1]
    assert (epoch, sequence, offset) == ("0", str(BIG_RECORDS - 1), str(BIG_RECORDS - 1)), str(output)


def test_group_records_are_decoded(data_dir: Path, dump: Callable[..., ToolOutput]) -> None:
    output = dump(files(data_dir, "__consumer_offsets-0", ".log"), "--offsets-decoder", "--deep-iteration")
    commits = [line for line in output.lines if '"type":"1"' in line or '"type":"0"' in line]
    assert any('"group":"readers"' in line and f'"offset":{PER_CODEC}' in line for line in commits), str(
        output
    )
    members = [line for line in output.lines if '"type":"2"' in line and '"group":"readers"' in line]
    assert any('"protocolType":"consumer"' in line for line in members), str(output)


def test_metadata_records_are_decoded(data_dir: Path, dump: Callable[..., ToolOutput]) -> None:
    logs = files(data_dir, "__cluster_metadata-0", ".log")
    output = dump(logs, "--cluster-metadata-decoder", "--deep-iteration")
    topics = set(re.findall(r'"type":"TOPIC_RECORD","version":\d+,"data":\{"name":"([\w.-]+)"', output.out))
    assert topics >= {*CODECS, SEGMENT_TOPIC, "__consumer_offsets"}
    for kind in ("REGISTER_BROKER_RECORD", "PARTITION_RECORD", "FEATURE_LEVEL_RECORD", "CONFIG_RECORD"):
        assert f'"type":"{kind}"' in output.out, kind
    assert "LeaderChange" in output.out
    indexes = dump(files(data_dir, "__cluster_metadata-0", ".index", ".timeindex"), "--index-sanity-check")
    assert indexes.out.count("passed sanity check.") + indexes.out.count(" is empty.") == 2 * len(logs)
