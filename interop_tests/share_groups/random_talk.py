"""Random talks of members and administrators of one share group, made from a seed while Kafka's answers come."""

from __future__ import annotations

import random
from collections.abc import Callable

from interop_tests.consumer_groups.asking import ANY
from interop_tests.share_groups.asking import (
    ACCEPT,
    BATCHES,
    FINAL,
    GAP,
    RECORDS,
    REJECT,
    RELEASE,
    RENEW,
    SOON_MS,
    Batch,
    Place,
    ShareAsking,
    ShareMember,
    SharePair,
)
from interop_tests.share_groups.in_flight import FIRST_FETCH_MS, ISOLATION, LIMIT, LOCKS
from interop_tests.share_groups.scenarios import EARLIEST, LOCK
from interop_tests.share_groups.sides import LONG_LOCK_MS, SHORT_LOCK_MS

PARTITIONS = 2
MEMBERS = "abc"
EPISODE = 250
"""Requests, after which a new group reads a new topic."""
CHANGES = (
    (LIMIT, ("2", "3", "5", "10", None)),
    (LOCKS, ("100", "200", None)),
    (ISOLATION, ("read_committed", "read_uncommitted", None)),
    ("share.renew.acknowledge.enable", ("false", "true", None)),
)


class Holder:
    """A member, the partition of its session, and the records that it holds as far as Kafka's answers say."""

    def __init__(self, member: ShareMember) -> None:
        self.member = member
        self.place: Place | None = None

    @property
    def is_open(self) -> bool:
        return self.member.epoch > 0

    def held(self) -> list[tuple[Place, int, int]]:
        return [(place, first, last) for place, ranges in self.member.held.items() for first, last in ranges]


class RandomTalk:
    """One group and one topic."""

    def __init__(self, pair: SharePair, seed: int, episode: int, suffix: str = "") -> None:
        self.pair = pair
        self.chance = random.Random(f"{seed}/{episode}/share groups")
        self.name = f"seed{seed}-{episode}{suffix}"
        pair.place = f"seed {seed}, episode {episode}"
        self.group = ShareAsking(pair, self.name)
        self.topic = self.name
        self.places = [(self.topic, number) for number in range(PARTITIONS)]
        self.ends = dict.fromkeys(self.places, 0)
        self.borders: dict[Place, list[int]] = {place: [0] for place in self.places}
        """Where batches begin or end."""
        self.open_transactions: dict[Place, int] = {}
        self.holders: list[Holder] = []
        self.beats: dict[str, int] = {}
        self.made = 0

    def walk(self, requests: int) -> None:
        chance = self.chance
        self.pair.change("create", lambda side: side.create_topic(self.topic, PARTITIONS))
        self.group.configure(*EARLIEST)
        self.group.subscribe(self.topic)
        for place in self.places:
            self.produce_to(place, 5)
        self.begin()
        kinds: list[Callable[[], object]] = (
            [self.fetch] * 16
            + [self.acknowledge] * 14
            + [self.produce] * 6
            + [self.transaction] * 2
            + [self.badly] * 5
            + [self.renew] * 2
            + [self.leave_session] * 3
            + [self.heartbeat] * 3
            + [self.describe] * 3
            + [self.change_setting] * 2
            + [self.delete_records, self.locks_end, self.administer]
        )
        until = self.pair.asked + requests
        place = self.pair.place
        step = 0
        while self.pair.asked < until:
            step += 1
            self.pair.place = f"{place}, step {step}"
            chance.choice(kinds)()
        self.pair.place = f"{place}, the end"
        for topic_place in list(self.open_transactions):
            self.end_transaction(topic_place)
        self.group.share_offsets(None, ANY)
        self.group.share_describe(ANY)
        self.pair.end_talk()

    def begin(self) -> None:
        """New members, and partitions that have read their state. The anchor keeps the group from being dropped."""
        self.made += 1
        self.anchor = self.group.member(f"anchor{self.made}")
        for place in self.places:
            self.anchor.epoch = 0
            self.anchor.fetch(place, records=1, wait=FIRST_FETCH_MS)
            # The log may have lost the offset where the group begins.
            self.anchor.fetch(records=1, wait=SOON_MS)
            held = self.anchor.held.pop(place, [])
            if held:
                batches: list[Batch] = [(first, last, RELEASE) for first, last in held]
                self.anchor.acknowledge({place: batches})
        self.anchor.fetch(forget=[self.places[-1]], wait=0)
        self.holders = [Holder(self.group.member(f"{slot}{self.made}")) for slot in MEMBERS]

    # records

    def produce_to(self, place: Place, count: int) -> None:
        self.group.produce(self.topic, count, place[1])
        self.go_to(place, count)

    def go_to(self, place: Place, count: int) -> None:
        """A batch of so many offsets is at the end of the partition now."""
        self.ends[place] += count
        self.borders[place].append(self.ends[place])

    def produce(self) -> None:
        self.produce_to(self.chance.choice(self.places), self.chance.choice([1, 1, 2, 3, 7]))

    def transaction(self) -> None:
        place = self.chance.choice(self.places)
        if place in self.open_transactions:
            self.end_transaction(place)
            return
        count = self.chance.choice([1, 2, 3])
        outcome = self.chance.choice([True, False, None])
        self.group.transaction(self.topic, count, outcome, place[1])
        self.go_to(place, count)
        if outcome is None:
            self.open_transactions[place] = count
        else:
            self.go_to(place, 1)

    def end_transaction(self, place: Place) -> None:
        del self.open_transactions[place]
        end, outcome = self.ends[place], self.chance.random() < 0.5
        self.pair.change(
            f"end the transaction of {place}: {outcome}",
            lambda side: side.end_transaction(self.topic, place[1], outcome, end),
        )
        self.go_to(place, 1)

    def delete_records(self) -> None:
        place = self.chance.choice(self.places)
        # Of a batch that is cut, Kafka acquires deleted records too.
        self.group.delete_records(self.topic, self.chance.choice(self.borders[place]), place[1])

    # members

    def fetch(self) -> None:
        chance = self.chance
        holder = chance.choice(self.holders)
        member = holder.member
        if not holder.is_open:
            holder.place = None
        # Of several partitions, an answer has those whose locks were free at that moment, and under a limit the ids of
        # topics decide which come first.
        wanted_place = holder.place if holder.place and chance.random() < 0.7 else chance.choice(self.places)
        forgotten = [holder.place] if holder.place and holder.place != wanted_place else []
        added = [wanted_place] if wanted_place != holder.place or chance.random() < 0.3 else []
        acks = None
        if holder.is_open and holder.held() and chance.random() < 0.3:
            place, batches = self.some_batches(holder, (ACCEPT, REJECT, GAP))
            acks = {place: batches}
            # Acknowledgements add their partition to the session.
            added, forgotten = [], [holder.place] if holder.place not in (None, place) else []
            wanted_place = place
        holder.place = wanted_place
        member.fetch(
            *added,
            acks=acks,
            forget=forgotten,
            wait=SOON_MS,
            batch=chance.choice([1, 3, 500]),
            version=chance.choice([1, 2, 2]),
            mode=chance.choice([BATCHES, RECORDS]),
            records=chance.choice([1, 2, 5, 500]),
            max_bytes=chance.choice([1, 200, 1 << 20, 1 << 20]),
        )

    def some_batches(self, holder: Holder, types: tuple[int, ...]) -> tuple[Place, list[Batch]]:
        """Acknowledgements of records that a member holds, which it forgets."""
        chance = self.chance
        place, first, last = chance.choice(holder.held())
        holder.member.held[place].remove((first, last))
        if chance.random() < 0.5:
            return place, [(first, last, chance.choice(types))]
        cut = chance.randint(first, last)
        if cut < last:
            holder.member.held[place].append((cut + 1, last))
        return place, [(first, cut, [chance.choice(types) for _ in range(cut - first + 1)])]

    def acknowledge(self) -> None:
        holders = [each for each in self.holders if each.is_open and each.held()]
        if not holders:
            self.fetch()
            return
        holder = self.chance.choice(holders)
        place, batches = self.some_batches(holder, (ACCEPT, ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT, GAP))
        holder.member.acknowledge({place: batches}, version=self.chance.choice([1, 2]))

    def renew(self) -> None:
        holders = [each for each in self.holders if each.is_open and each.held()]
        if holders:
            holder = self.chance.choice(holders)
            place, first, last = self.chance.choice(holder.held())
            holder.member.acknowledge({place: [(first, last, RENEW)]}, renew=True)

    def badly(self) -> None:
        """Acknowledgements of anything, and epochs that are wrong."""
        chance = self.chance
        holder = chance.choice(self.holders)
        if chance.random() < 0.2:
            epoch = chance.choice([holder.member.epoch + 1, holder.member.epoch + 7, -2])
            before = holder.member.epoch
            holder.member.fetch(chance.choice(self.places), epoch=epoch, wait=0, expect=ANY)
            holder.member.acknowledge({}, epoch=epoch, expect=ANY)
            holder.member.epoch = before
            return
        if not holder.is_open:
            return
        place = chance.choice(self.places)
        first = chance.randint(0, self.ends[place] + 2)
        last = first + chance.choice([-1, 0, 0, 1, 4])
        types = chance.choice([[ACCEPT], [RELEASE], [REJECT], [RENEW], [GAP], [9], [], [ACCEPT, RELEASE]])
        batches: list[Batch] = [(first, last, types)]
        if chance.random() < 0.3:
            batches.append((first + chance.choice([0, 1, 5]), last + 5, [ACCEPT]))
        holder.member.acknowledge({place: batches}, renew=chance.random() < 0.1)
        # Some of it may have been acknowledged. What is held is no longer known.
        holder.member.held.pop(place, None)

    def leave_session(self) -> None:
        holder = self.chance.choice(self.holders)
        if not holder.is_open:
            return
        released = int(any(holder.member.held.values()))
        if self.chance.random() < 0.5:
            holder.member.close(released)
        else:
            holder.member.hang_up(released)

    def locks_end(self) -> None:
        """A member fetches with short locks, which end."""
        holder = self.chance.choice(self.holders)
        place = self.chance.choice(self.places)
        member = holder.member
        self.group.configure(LOCK, str(SHORT_LOCK_MS))
        kept, member.held = member.held, {}
        forgotten = [holder.place] if holder.is_open and holder.place not in (None, place) else []
        member.fetch(place, wait=SOON_MS, records=500, forget=forgotten)
        holder.place = place
        offsets = {offset for first, last in member.held.get(place, []) for offset in range(first, last + 1)}
        member.held = kept
        self.pair.wait_until_released(self.name, place, offsets)
        self.group.configure(LOCK, str(LONG_LOCK_MS))

    # administrators

    def heartbeat(self) -> None:
        chance = self.chance
        name = chance.choice(["x", "y"])
        epoch = self.beats.get(name, 0)
        # If two members share a topic, its id decides who gets which partition.
        topics = None if epoch and chance.random() < 0.7 else [self.topic if name == "x" else "t1"]
        if epoch and chance.random() < 0.3:
            self.group.share_beat(name, FINAL, ANY)
            self.beats.pop(name)
            return
        answer = self.group.share_beat(name, epoch, ANY, topics)
        self.beats[name] = answer["MemberEpoch"] if answer["ErrorCode"] == 0 else 0

    def describe(self) -> None:
        chance = self.chance
        roll = chance.randrange(5)
        if roll < 3:
            self.group.share_offsets(
                chance.choice([None, {self.topic: [0]}, {self.topic: [0, 1], "nothing": [0]}]),
                ANY,
                chance.choice([0, 1]),
            )
        elif roll == 3:
            self.group.share_describe(ANY)
        else:
            self.group.list()

    def change_setting(self) -> None:
        name, values = self.chance.choice(CHANGES)
        self.group.configure(name, self.chance.choice(values), ANY)

    def administer(self) -> None:
        """Everybody hangs up, offsets are changed or the group is deleted, and the group begins again."""
        chance = self.chance
        for holder in self.holders:
            if holder.is_open:
                holder.member.hang_up(int(any(holder.member.held.values())))
        self.anchor.hang_up()
        self.pair.wait_until_forgotten(self.name, self.places)
        if chance.random() < 0.6:
            for name in list(self.beats):
                if self.beats.pop(name):
                    self.group.share_beat(name, FINAL, ANY)
        roll = chance.randrange(4)
        if roll < 2:
            offsets = {
                place[1]: chance.randrange(self.ends[place] + 2)
                for place in self.places
                if chance.random() < 0.7
            }
            self.group.alter_share_offsets({self.topic: offsets}, ANY)
        elif roll == 2:
            self.group.delete_share_offsets(self.topic, expect=ANY)
        else:
            self.group.delete(ANY)
        self.group.share_offsets(None, ANY)
        self.group.share_beat("z", 0, names=[self.topic])
        self.group.share_beat("z", FINAL)
        self.begin()
