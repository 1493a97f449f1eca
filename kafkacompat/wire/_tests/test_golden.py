"""Golden bytes: frames that real clients and Apache Kafka 4.3.0 exchanged, and records that Kafka wrote.

A recording proxy in front of a real broker captured golden/frames.tsv. golden/messages.tsv has one of our messages for
each definition and version. Kafka's own classes read these messages and wrote the same bytes again.
"""

from collections.abc import Iterator
from pathlib import Path
from struct import unpack_from
from typing import Any

import pytest

from kafkacompat.wire._tests.arbitrary import every_version
from kafkacompat.wire.apis import group_record_classes, message_class, request_class, response_class
from kafkacompat.wire.codec import decoder, encode, encode_parts
from kafkacompat.wire.constructs import reference_decode, reference_encode
from kafkacompat.wire.headers import (
    parse_request_header,
    parse_response_header,
    request_header_bytes,
    response_header_bytes,
)

GOLDEN = Path(__file__).parent / "golden"


def rows(name: str) -> Iterator[list[str]]:
    for line in (GOLDEN / name).read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            yield line.split("\t")


FRAMES = list(rows("frames.tsv"))


@pytest.mark.parametrize("row", FRAMES, ids=lambda row: f"{row[0]}-{row[1]}-v{row[2]}")
def test_frames_of_real_clients(row: list[str]) -> None:
    """Headers and bodies are read to the last byte and written again byte for byte."""
    _, key_text, version_text, request_hex, response_hex = row
    key, version = int(key_text), int(version_text)
    request = bytes.fromhex(request_hex)
    header = parse_request_header(request)
    assert (header.api_key, header.api_version) == (key, version)
    message, end = decoder(request_class(key), version)(request, header.body_offset)
    assert end == len(request)
    again = request_header_bytes(key, version, header.correlation_id, header.client_id)
    assert again + encode(message, version) == request
    assert reference_decode(request_class(key), version, request, header.body_offset) == (message, end)

    response = bytes.fromhex(response_hex)
    correlation_id, offset = parse_response_header(response, key, version)
    assert correlation_id == header.correlation_id
    reply, end = decoder(response_class(key), version)(response, offset)
    assert end == len(response)
    prefix = response_header_bytes(key, version, correlation_id)
    assert b"".join(encode_parts(reply, version, prefix)) == response
    assert reference_encode(reply, version) == response[offset:]


def test_the_recorded_frames_cover_what_clients_always_send() -> None:
    seen = {(int(row[1]), int(row[2])) for row in FRAMES}
    assert {
        (18, 0),
        (18, 3),
        (18, 4),
        (3, 13),
        (0, 7),
        (0, 9),
        (0, 10),
        (0, 13),
        (1, 11),
        (1, 12),
        (1, 18),
    } <= seen
    assert {key for key, _ in seen} >= {
        0,
        1,
        2,
        3,
        8,
        9,
        10,
        11,
        12,
        13,
        14,
        15,
        16,
        18,
        19,
        22,
        24,
        26,
        32,
        42,
    }


def test_messages_that_kafka_read_and_wrote_again() -> None:
    seen = []
    for name, version_text, text in rows("messages.tsv"):
        data = b"" if text == "-" else bytes.fromhex(text)
        version = int(version_text)
        message, end = decoder(message_class(name), version)(data, 0)
        assert end == len(data)
        assert encode(message, version) == data
        assert reference_encode(message, version) == data
        seen.append((name, version))
    assert sorted(seen) == sorted((cls.__name__, version) for cls, version in every_version())


def annotated(*parts: str) -> bytes:
    """Return bytes from hex. The text after a `;` in a part is a remark."""
    return bytes.fromhex("".join(part.partition(";")[0] for part in parts))


def decoded(name: str, version: int, data: bytes) -> Any:
    message, end = decoder(message_class(name), version)(data, 0)
    assert end == len(data)
    assert encode(message, version) == data
    return message


def test_api_versions_v3_of_librdkafka() -> None:
    frame = annotated(
        "0012 0003 00000001; ApiVersions, version 3, correlation id 1",
        "0006 676f6c64656e 00; client id with a 16-bit length in a flexible header, no tags",
        "17 636f6e666c75656e742d6b61666b612d707974686f6e; compact string of 22 bytes",
        "16 322e31362e312d72646b61666b612d322e31362e30 00",
    )
    header = parse_request_header(frame)
    assert (header.client_id, header.correlation_id, header.body_offset) == ("golden", 1, 17)
    body = decoded("ApiVersionsRequest", 3, frame[header.body_offset :])
    assert body.client_software_name == "confluent-kafka-python"
    assert body.client_software_version == "2.16.1-rdkafka-2.16.0"


def test_metadata_v13_of_librdkafka() -> None:
    request = decoded(
        "MetadataRequest",
        13,
        annotated(
            "02 00000000000000000000000000000000 07 676f6c64656e 00; one topic: no id, its name, no tags",
            "01 00 00; auto-creation, no authorized operations, no tags",
        ),
    )
    assert [(t.topic_id, t.name) for t in request.topics] == [(bytes(16), "golden")]
    assert request.allow_auto_topic_creation
    assert not request.include_topic_authorized_operations


def test_metadata_v13_reply_of_apache_kafka() -> None:
    topic_id = "917e1477d2fe41cf95e01cb643e8ded2"
    reply = decoded(
        "MetadataResponse",
        13,
        annotated(
            "00000000; throttle time",
            "02 00000001 0a 3132372e302e302e31 0000e019 00 00; one broker: id, host, port, null rack, tags",
            "17 456a5257654a43727a6538534e465a346b4b764e3777; cluster id",
            "00000001; controller",
            f"02 0000 07 676f6c64656e {topic_id} 00; one topic: no error, name, id, not internal",
            "03; two partitions",
            "0000 00000000 00000001 00000000 02 00000001 02 00000001 01 00",
            "0000 00000001 00000001 00000000 02 00000001 02 00000001 01 00",
            "80000000 00; authorized operations not asked for, tags",
            "0000 00; error code, tags",
        ),
    )
    assert [(b.node_id, b.host, b.port, b.rack) for b in reply.brokers] == [(1, "127.0.0.1", 57369, None)]
    assert reply.cluster_id == "EjRWeJCrze8SNFZ4kKvN7w"
    assert reply.topics[0].topic_id.hex() == topic_id
    found = [
        (p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in reply.topics[0].partitions
    ]
    assert found == [(0, 1, [1], [1]), (1, 1, [1], [1])]
    assert reply.topics[0].topic_authorized_operations == -(1 << 31)


def test_produce_v9_of_kafka_python() -> None:
    records = annotated(
        "0000000000000000 00000043 00000000 02 db25593e; base offset, length, leader epoch, magic, crc",
        "0000 00000000 000001a1fc7106bd 000001a1fc7106bd 0000000000000002 0000 00000000 00000001",
        "22 00 00 00 01 16 66726f6d20707974686f6e 00",
    )
    body = annotated("00 ffff 00007530; no transaction, acks all, 30 s", "02 07 676f6c64656e 02 00000001 50")
    request = decoded(
        "ProduceRequest", 9, body + records + annotated("00 00 00; tags of partition, topic, request")
    )
    assert (request.transactional_id, request.acks, request.timeout_ms) == (None, -1, 30000)
    assert request.topic_data[0].name == "golden"
    partition = request.topic_data[0].partition_data[0]
    assert partition.index == 1
    assert isinstance(partition.records, memoryview)
    assert partition.records == records
    assert unpack_from(">q", partition.records)[0] == 0


def test_fetch_v12_of_kafka_python() -> None:
    partition = "{} ffffffff 0000000000000000 ffffffff ffffffffffffffff 00100000 00"
    request = decoded(
        "FetchRequest",
        12,
        annotated(
            "ffffffff 000001f4 00000001 03200000 00; a consumer, 500 ms, 1 byte, 50 MiB, uncommitted",
            "00000000 00000000; no session yet, epoch 0",
            "02 07 676f6c64656e 03",
            partition.format("00000001"),
            partition.format("00000000"),
            "00 01 01 00; tags of the topic, nothing forgotten, empty rack, tags",
        ),
    )
    assert (request.replica_id, request.max_wait_ms, request.max_bytes) == (-1, 500, 50 << 20)
    partitions = request.topics[0].partitions
    assert [p.partition for p in partitions] == [1, 0]
    assert partitions[0].last_fetched_epoch == -1
    assert request.replica_state is None


def test_join_group_v9_of_apache_kafka() -> None:
    row = next(row for row in FRAMES if (row[0], row[1], row[2]) == ("Apache Kafka 4.3.0", "11", "9"))
    request = bytes.fromhex(row[3])
    message = decoder(request_class(11), 9)(request, parse_request_header(request).body_offset)[0]
    assert message.protocol_type == "consumer"
    assert message.group_instance_id is None
    assert [p.name for p in message.protocols] == ["range", "cooperative-sticky"]
    assert message.rebalance_timeout_ms == 300000
    subscription = message.protocols[0].metadata
    version = unpack_from(">h", subscription)[0]
    subscribed = decoder(message_class("ConsumerProtocolSubscription"), version)(subscription, 2)[0]
    assert subscribed.topics == ["golden"]
    assert message.reason.startswith("need to re-join")


def test_group_records_of_apache_kafka() -> None:
    key_class, value_class = group_record_classes(1)
    key = annotated("000d 66616374732d636c6173736963 0008 66616374732d7431 00000001")
    assert decoded(key_class.__name__, 0, key).group == "facts-classic"
    topic_id = "380ff20b2d68423fb29990a362e23f6e"
    value = annotated(
        "0000000000000003 00000000 01 000001a1fbea1785; offset, leader epoch, no metadata, time",
        f"01 00 10 {topic_id}; one tag: the topic's id",
    )
    commit = decoded(value_class.__name__, 4, value)
    assert (commit.offset, commit.leader_epoch, commit.metadata) == (3, 0, "")
    assert commit.topic_id.hex() == topic_id
    without = decoded("OffsetCommitValue", 4, annotated("0000000000000001 ffffffff 01 000001a1fbea15cc 00"))
    assert without.topic_id == bytes(16)
    group = decoded("GroupMetadataValue", 3, annotated("0000 00000000 ffff ffff 000001a1fbea171e 00000000"))
    assert (group.protocol_type, group.generation, group.protocol, group.leader) == ("", 0, None, None)
    emptied = annotated("0008 636f6e73756d6572 00000002 ffff ffff 000001a1fbea171e 00000000")
    assert decoded("GroupMetadataValue", 3, emptied).protocol_type == "consumer"
    epoch = decoded("ConsumerGroupMetadataValue", 0, annotated("00000002 01 00 08 cc7cbcd77a05a311"))
    assert (epoch.epoch, epoch.metadata_hash) == (2, 0xCC7CBCD77A05A311 - (1 << 64))
    assignment = decoded(
        "ConsumerGroupCurrentMemberAssignmentValue",
        0,
        annotated(
            "00000002 00000000 00; epoch 2, before that 0, stable",
            f"02 {topic_id} 04 00000000 00000001 00000002 01 00 0d 04 00000002 00000002 00000002",
            "01 00; nothing pending, tags",
        ),
    )
    assert assignment.assigned_partitions[0].partitions == [0, 1, 2]
    assert assignment.assigned_partitions[0].assignment_epochs == [2, 2, 2]
