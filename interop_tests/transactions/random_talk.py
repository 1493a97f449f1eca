"""The area of transactions: random requests of transactional producers, valid and invalid, have the same codes and leave the
same logs.

A step starts only when no transaction is being ended. So the earlier requests determine every response, and not the
speed of a broker.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.groups import coordinator
from interop_tests.harness.raw_kafka import create_topic, fetch, list_offset
from interop_tests.harness.records import BatchPlan, decode_batches
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.side_by_side.area import Area
from interop_tests.side_by_side.brokers import BOTH, started
from interop_tests.side_by_side.comparison import Comparison
from interop_tests.transactions.by_hand import CONTROL, NEW, TRANSACTIONAL, Producer, find_coordinator
from interop_tests.transactions.test_by_hand import commit_offsets, fetched_offset

NAMES = ("a", "b", "c")
PLAIN, COMPACTED, PARTITIONS = "plain", "compacted", 2
GROUP = "group"
PLACES = [(topic, number) for topic in (PLAIN, COMPACTED) for number in range(PARTITIONS)]
BEING_ENDED = ("PrepareCommit", "PrepareAbort")
LOADING = (14, 15, 16)
Step = dict[str, Any]


def any_epoch(chance: random.Random) -> int:
    """The number that is added to the producer's epoch."""
    return chance.choice([0] * 12 + [-1, 1])


def random_step(chance: random.Random) -> Step:
    """All random choices, made once for both brokers."""
    kind = chance.choice(
        ["init"] + ["add"] * 2 + ["produce"] * 6 + ["end"] * 3 + ["add offsets", "offsets", "offsets", "mark"]
    )
    step: Step = {
        "kind": kind,
        "name": chance.choice(NAMES),
        "epoch": any_epoch(chance),
        "stranger": chance.random() < 0.04,
    }
    if kind == "init":
        step["version"] = chance.choice([1, 3, 4, 5])
        step["believes"] = chance.choice([False, True])
        step["timeout_ms"] = chance.choice([60_000] * 6 + [0, -1, 900_001])
    elif kind == "add":
        step["version"] = chance.choice([1, 3])
        step["places"] = sorted(chance.sample([*PLACES, (PLAIN, 9)], chance.choice([1, 1, 2])))
    elif kind == "produce":
        step["version"] = chance.choice([9, 11, 12, 12, 12])
        step["named"] = chance.random() < 0.97
        step["batches"] = [
            {
                "place": place,
                "attributes": chance.choice([TRANSACTIONAL] * 12 + [0, TRANSACTIONAL | CONTROL]),
                "sequence": chance.choice([0] * 10 + [-1, -2, 1, 5, None]),
                "keys": chance.choice([True] * 6 + [False]),
                "count": chance.choice([1, 1, 2]),
            }
            for place in sorted(chance.sample(PLACES, chance.choice([1, 1, 1, 2, 3])))
        ]
    elif kind == "end":
        step["version"] = chance.choice([1, 4, 5, 5])
        step["commit"] = chance.random() < 0.6
    elif kind == "add offsets":
        step["version"] = chance.choice([1, 3])
    elif kind == "offsets":
        step["version"] = chance.choice([3, 4, 5, 5])
        step["offset"] = chance.randrange(1000)
        step["place"] = chance.choice([*PLACES, (PLAIN, 9)])
        step["member"] = chance.choice([{}, {}, {}, {"GenerationId": 4, "MemberId": "m"}])
    else:
        step["place"] = chance.choice(PLACES)
        step["commit"] = chance.random() < 0.5
    if kind == "mark" or any(batch["attributes"] == 0 for batch in step.get("batches", ())):
        # These are not verified. After one with an epoch above the coordinator's, either broker gives up the end of
        # the transaction.
        step["epoch"] = min(step["epoch"], 0)
    return step


class Side:
    """One broker, and the state of its clients. Producer ids are replaced by the order in which they first appeared."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.kind, bootstrap = broker.kind, broker.bootstrap
        self.connection = Connection(bootstrap)
        for topic, policy in ((PLAIN, "delete"), (COMPACTED, "compact")):
            create_topic(bootstrap, topic, PARTITIONS, {"cleanup.policy": policy})
        coordinator(self.connection, GROUP)
        self.ids: dict[int, int] = {-1: -1}
        self.producers = {name: Producer(self.connection, name, NEW) for name in NAMES}
        find_coordinator(self.connection, NAMES[0])
        for producer in self.producers.values():
            wait_until(lambda producer=producer: self._init(producer), "the coordinator serves")

    def close(self) -> None:
        self.connection.close()

    def _init(self, producer: Producer) -> bool:
        producer.init()
        self._known(producer.id)
        return True

    def _known(self, producer_id: int) -> int:
        return self.ids.setdefault(producer_id, len(self.ids))

    def carry_out(self, step: Step) -> Any:
        """The response."""
        believed = self.producers[step["name"]]
        asking = Producer(self.connection, step["name"], NEW)
        asking.id = believed.id + (1_000_000 if step["stranger"] else 0)
        asking.epoch = max(0, believed.epoch + step["epoch"])
        asking.sequences = believed.sequences
        return getattr(self, "_" + step["kind"].replace(" ", "_") + "_")(step, asking, believed)

    def _init_(self, step: Step, asking: Producer, believed: Producer) -> Any:
        body: Step = {"TransactionalId": step["name"], "TransactionTimeoutMs": step["timeout_ms"]}
        if step["version"] >= 3:
            says = step["believes"]
            body |= {
                "ProducerId": asking.id if says else -1,
                "ProducerEpoch": asking.epoch if says else -1,
            }
        reply = self.connection.call("InitProducerId", step["version"], body)
        if reply["ErrorCode"] == 0:
            believed.id, believed.epoch = reply["ProducerId"], reply["ProducerEpoch"]
            believed.sequences.clear()
        return reply["ErrorCode"], self._known(reply["ProducerId"]), reply["ProducerEpoch"]

    def _add_(self, step: Step, asking: Producer, believed: Producer) -> Any:
        topics: dict[str, list[int]] = {}
        for topic, number in step["places"]:
            topics.setdefault(topic, []).append(number)
        body = {
            "V3AndBelowTransactionalId": asking.transactional_id,
            "V3AndBelowProducerId": asking.id,
            "V3AndBelowProducerEpoch": asking.epoch,
            "V3AndBelowTopics": [{"Name": topic, "Partitions": numbers} for topic, numbers in topics.items()],
        }
        reply = self.connection.call("AddPartitionsToTxn", step["version"], body)
        return sorted(
            (topic["Name"], each["PartitionIndex"], each["PartitionErrorCode"])
            for topic in reply["ResultsByTopicV3AndBelow"]
            for each in topic["ResultsByPartition"]
        )

    def _produce_(self, step: Step, asking: Producer, believed: Producer) -> Any:
        topics: dict[str, list[Step]] = {}
        counts = {}
        for batch in step["batches"]:
            topic, number = batch["place"]
            following = believed.sequences.get((topic, number), 0)
            sequence = 0 if batch["sequence"] is None else max(0, following + batch["sequence"])
            counts[topic, number] = sequence + batch["count"]
            plan = BatchPlan(
                values=[b"%d" % sequence] * batch["count"],
                keys=[b"k"] * batch["count"] if batch["keys"] else None,
                attributes=batch["attributes"],
                base_timestamp_ms=time.time_ns() // 1_000_000,
                producer_id=asking.id,
                producer_epoch=asking.epoch,
                base_sequence=sequence,
            )
            topics.setdefault(topic, []).append({"Index": number, "Records": plan.encode()})
        body = {
            "TransactionalId": asking.transactional_id if step["named"] else None,
            "Acks": -1,
            "TimeoutMs": 10_000,
            "TopicData": [{"Name": topic, "PartitionData": data} for topic, data in topics.items()],
        }
        reply = self.connection.call("Produce", step["version"], body)
        found = sorted(
            (topic["Name"], each["Index"], each["ErrorCode"], each["BaseOffset"])
            for topic in reply["Responses"]
            for each in topic["PartitionResponses"]
        )
        for topic, number, code, _ in found:
            if code == 0:
                believed.sequences[topic, number] = counts[topic, number]
        return found

    def _end_(self, step: Step, asking: Producer, believed: Producer) -> Any:
        reply = asking.end(step["commit"], step["version"])
        number, epoch = reply.get("ProducerId", -1), reply.get("ProducerEpoch", -1)
        if reply["ErrorCode"] == 0 and number >= 0:
            if (number, epoch) != (believed.id, believed.epoch):
                believed.sequences.clear()
            believed.id, believed.epoch = number, epoch
        return reply["ErrorCode"], self._known(number), epoch

    def _add_offsets_(self, step: Step, asking: Producer, believed: Producer) -> Any:
        body = {
            "TransactionalId": asking.transactional_id,
            "ProducerId": asking.id,
            "ProducerEpoch": asking.epoch,
            "GroupId": GROUP,
        }
        return self.connection.call("AddOffsetsToTxn", step["version"], body)["ErrorCode"]

    def _offsets_(self, step: Step, asking: Producer, believed: Producer) -> Any:
        asking.protocol = NEW._replace(offsets=step["version"])
        topic, number = step["place"]
        return commit_offsets(asking, GROUP, topic, step["offset"], partition=number, **step["member"])

    def _mark_(self, step: Step, asking: Producer, believed: Producer) -> Any:
        topic, number = step["place"]
        marker = {
            "ProducerId": asking.id,
            "ProducerEpoch": asking.epoch,
            "TransactionResult": step["commit"],
            "Topics": [{"Name": topic, "PartitionIndexes": [number]}],
            "CoordinatorEpoch": 0,
        }
        (answer,) = self.connection.call("WriteTxnMarkers", 1, {"Markers": [marker]})["Markers"]
        return answer["Topics"][0]["Partitions"][0]["ErrorCode"]

    # observations

    def settle(self) -> None:
        """Wait until no transaction is being ended."""
        for producer in self.producers.values():
            what = f"{self.kind} has ended the transaction of {producer.transactional_id}"
            wait_until(lambda producer=producer: producer.state() not in BEING_ENDED, what, 20, 0.002)

    def seen(self) -> Any:
        """Everything that a broker reports about its transactions."""
        described = []
        for producer in self.producers.values():
            found = producer.describe()
            found["ProducerId"] = self._known(found["ProducerId"])
            found["TransactionStartTimeMs"] = found["TransactionStartTimeMs"] > 0
            found["Topics"] = sorted(
                (each["Topic"], sorted(each["Partitions"]))
                for each in found["Topics"]
                if not each["Topic"].startswith("__")
            )
            described.append(found)
        ends = [
            list_offset(self.connection, topic, number, -1, isolation=isolation)[:2]
            for topic, number in PLACES
            for isolation in (0, 1)
        ]
        offsets = [
            fetched_offset(self.connection, GROUP, topic, stable)
            for topic in (PLAIN, COMPACTED)
            for stable in (True, False)
        ]
        return described, ends, offsets, self._active()

    def _active(self) -> Any:
        body = {"Topics": [{"Name": topic, "PartitionIndexes": [0, 1]} for topic in (PLAIN, COMPACTED)]}
        reply = self.connection.call("DescribeProducers", 0, body)
        return sorted(
            (
                topic["Name"],
                partition["PartitionIndex"],
                sorted(
                    (
                        self._known(each["ProducerId"]),
                        each["ProducerEpoch"],
                        each["LastSequence"],
                        each["CurrentTxnStartOffset"],
                    )
                    for each in partition["ActiveProducers"]
                ),
            )
            for topic in reply["Topics"]
            for partition in topic["Partitions"]
        )

    def logs(self) -> Any:
        """Every batch, and the aborted transactions that a reader is told."""
        found = []
        for topic, number in PLACES:
            end, batches = list_offset(self.connection, topic, number, -1, isolation=1)[1], []
            aborted: set[tuple[int, int]] = set()
            at = 0
            while at < end:
                result = fetch(self.connection, topic, at, number, IsolationLevel=1)
                aborted |= {
                    (self._known(each["ProducerId"]), each["FirstOffset"])
                    for each in result["AbortedTransactions"]
                    # A broker may report aborted transactions after the end, which no consumer can read yet.
                    if each["FirstOffset"] < end
                }
                read = decode_batches(result["Records"], True)
                batches += [
                    (
                        each.base_offset,
                        each.last_offset,
                        each.attributes,
                        self._known(each.producer_id),
                        each.producer_epoch,
                        each.base_sequence,
                        [(record.key, record.value) for record in each.records],
                    )
                    for each in read
                ]
                at = read[-1].last_offset + 1
            found.append((topic, number, batches, sorted(aborted)))
        return found


def start(
    folder: Path, kinds: Sequence[str] = BOTH, *, seed: int | None = None, only: Sequence[str] = ()
) -> AbstractContextManager[list[Side]]:
    return started(Side, folder, kinds)


def random_talk(comparison: Comparison, seed: int, requests: int) -> None:
    """After each step everything is compared that the brokers report, and the logs at the end."""
    chance = random.Random(seed)
    sides: Sequence[Side] = comparison.sides
    for number in range(requests):
        step = random_step(chance)
        what = f"step {number} {step}"
        comparison.answered(what, [side.carry_out(step) for side in sides])
        for side in sides:
            side.settle()
        before = len(comparison.told)
        comparison.compare(what, [side.seen() for side in sides], "state")
        comparison.maybe_stop(before)
    comparison.compare("the end", [side.logs() for side in sides], "logs")


AREA = Area("transactions", start, random_talk, is_bound_to_seed=True)
