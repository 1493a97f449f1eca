"""Acknowledgement batches of one offset each are read together, and yet as the declarations say."""

import random
from typing import Any

import pytest

from kafkacompat.wire._tests.test_codecs_agree import check_both_ways, in_steps, outcome
from kafkacompat.wire.codec import decode, decoder, encode
from kafkacompat.wire.constructs import reference_decode
from kafkacompat.wire.messages import share_acknowledge_request, share_fetch_request
from kafkacompat.wire.one_by_one import LEAST, MOST, SIZE, OneByOne, Run

FORMS: list[Any] = [
    (
        share_fetch_request.ShareFetchRequest,
        share_fetch_request.FetchTopic,
        share_fetch_request.FetchPartition,
    ),
    (
        share_acknowledge_request.ShareAcknowledgeRequest,
        share_acknowledge_request.AcknowledgeTopic,
        share_acknowledge_request.AcknowledgePartition,
    ),
]
Batch = tuple[int, int, list[int]]


def request(form: Any, *partitions: list[Batch]) -> Any:
    message, topic, partition = form
    make = share_fetch_request.AcknowledgementBatch
    if message is share_acknowledge_request.ShareAcknowledgeRequest:
        make = share_acknowledge_request.AcknowledgementBatch  # type: ignore[assignment]
    parts = [
        partition(
            partition_index=index,
            acknowledgement_batches=[
                make(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in batches
            ],
        )
        for index, batches in enumerate(partitions)
    ]
    return message(group_id="g", member_id="m", topics=[topic(topic_id=b"t" * 16, partitions=parts)])


def ones(first: int, *types: int) -> list[Batch]:
    return [(offset, offset, [kind]) for offset, kind in enumerate(types, first)]


def read_back(form: Any, batches: list[Batch]) -> Any:
    data = check_both_ways(request(form, batches), 2)
    return decode(form[0], 2, data).topics[0].partitions[0].acknowledgement_batches


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form[0].__name__)
class TestWhatIsReadTogether:
    def test_neighbours(self, form: Any) -> None:
        found = read_back(form, ones(7, 1, 1, 2, 4, 0))
        assert isinstance(found, OneByOne)
        assert found.runs == [Run(7, bytes([1, 1, 2, 4, 0]))]
        assert found.runs[0].last_offset == 11
        assert (len(found), found[1].first_offset, found[-1].acknowledge_types) == (5, 8, [0])

    def test_several_runs(self, form: Any) -> None:
        """In any order, and with offsets that come twice. Others judge them."""
        found = read_back(form, ones(10, 1, 1) + ones(13, 3) + ones(13, 2, 2) + ones(0, 1))
        assert found.runs == [Run(10, b"\1\1"), Run(13, b"\3"), Run(13, b"\2\2"), Run(0, b"\1")]

    def test_any_numbers(self, form: Any) -> None:
        found = read_back(form, [*ones(-2, -1, -128, 127, 5), *ones((1 << 63) - 1, 1), *ones(-(1 << 63), 1)])
        assert isinstance(found, OneByOne)
        assert found[0].acknowledge_types == [-1]

    def test_as_many_as_one_step_takes(self, form: Any) -> None:
        assert isinstance(read_back(form, ones(5, *[1] * MOST)), OneByOne)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form[0].__name__)
class TestWhatIsNot:
    @pytest.mark.parametrize(
        "batches",
        [
            ones(7, *[1] * (LEAST - 1)),
            ones(7, *[1] * (MOST + 1)),
            [*ones(7, 1, 1, 1, 1), (11, 12, [1])],
            [(7, 6, [1]), *ones(7, 1, 1, 1, 1)],
            [*ones(7, 1, 1, 1, 1), (11, 11, [])],
            [(6, 6, [1, 2]), *ones(7, 1, 1, 1, 1)],
        ],
        ids=["few", "many", "a range", "one that ends before it begins", "no type", "two types"],
    )
    def test_other_batches(self, form: Any, batches: list[Batch]) -> None:
        assert isinstance(read_back(form, batches), list)

    def test_batches_with_tags(self, form: Any) -> None:
        data = encode(request(form, ones(7, 1, 1, 1, 1, 1)), 2)
        at = data.index((8).to_bytes(8, "big"))
        data = data[: at + SIZE - 1] + b"\1\5\2ab" + data[at + SIZE :]
        expected, end = reference_decode(form[0], 2, data)
        assert (decoder(form[0], 2)(data, 0), in_steps(form[0], 2, data)[0]) == ((expected, end),) * 2
        assert isinstance(decode(form[0], 2, data).topics[0].partitions[0].acknowledgement_batches, list)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form[0].__name__)
def test_both_readers_agree_on_any_batches_and_any_damage(form: Any) -> None:
    rng = random.Random(form[0].__name__)
    cls, together, refused = form[0], 0, 0
    for _ in range(300):
        data = bytearray(encode(request(form, *[some(rng) for _ in range(rng.randint(1, 3))]), 2))
        for _ in range(rng.choice([0, 1, 1, 2])):
            place = rng.randrange(len(data))
            match rng.randrange(3):
                case 0:
                    del data[place:]
                case 1:
                    data[place] = rng.choice([0, 1, 2, 3, 0x80, 0xFF])
                case _:
                    data[place:place] = b"\0"
            if not data:
                break
        whole = bytes(data)
        expected = outcome(lambda: reference_decode(cls, 2, whole))  # noqa: B023 - called at once
        assert outcome(lambda: decoder(cls, 2)(whole, 0)) == expected  # noqa: B023 - called at once
        assert outcome(lambda: in_steps(cls, 2, whole)[0]) == expected  # noqa: B023 - called at once
        refused += expected == "WireError"
        if expected != "WireError":
            made = decode(cls, 2, whole)
            together += any(
                isinstance(one.acknowledgement_batches, OneByOne)
                for topic in made.topics
                for one in topic.partitions
            )
    assert together > 50
    assert refused > 20


def some(rng: random.Random) -> list[Batch]:
    batches: list[Batch] = []
    offset = rng.randrange(1000)
    for _ in range(rng.choice([0, 1, 3, 5, 8, 20, 200])):
        size = 1 if rng.random() < 0.97 else rng.randrange(4)
        kinds = rng.choice([1, 1, size])
        batches.append((offset, offset + size - 1, [rng.randrange(-1, 5) for _ in range(kinds)]))
        offset += rng.choice([1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 0, -1])
    return batches


def test_elements_are_limited_as_if_each_were_read() -> None:
    """A batch and its type are two elements."""
    data = encode(request(FORMS[0], ones(0, *[1] * 10)), 2)
    in_steps(FORMS[0][0], 2, data, most=22)  # a topic and a partition as well
    assert outcome(lambda: in_steps(FORMS[0][0], 2, data, most=21)) == "WireError"
