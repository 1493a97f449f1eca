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
    OPEN,
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
from interop_tests.share_groups.in_flight import FIRST_FETCH_MS, RESET
from interop_tests.share_groups.random_records import RandomTopic
from interop_tests.share_groups.random_settings import CHANGES, has_snapshots
from interop_tests.share_groups.scenarios import EARLIEST, LOCK
from interop_tests.share_groups.sides import LONG_LOCK_MS, SHORT_LOCK_MS

MEMBERS, GUESTS = "abc", "pqrs"
EPISODE = 250
"""Requests, after which a new group reads a new topic."""


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
        self.has_snapshots = has_snapshots(seed)
        self.chance = random.Random(f"{seed}/{episode}/share groups")
        self.name = f"seed{seed}-{episode}{suffix}"
        pair.place = f"seed {seed}, episode {episode}"
        self.group = ShareAsking(pair, self.name)
        self.topic = RandomTopic(self.group, self.name, self.chance)
        self.places = self.topic.places
        self.holders: list[Holder] = []
        self.guests: list[ShareMember] = []
        self.beats: dict[str, int] = {}
        self.made = 0

    def walk(self, requests: int) -> None:
        chance = self.chance
        self.topic.create()
        self.group.configure(*EARLIEST)
        self.group.subscribe(self.name)
        self.topic.fill()
        self.begin()
        kinds: list[Callable[[], object]] = (
            [self.fetch] * 16
            + [self.acknowledge] * 14
            + [self.topic.produce] * 6
            + [self.topic.transaction] * 2
            + [self.badly] * 5
            + [self.renew] * 2
            + [self.leave_session] * 3
            + [self.heartbeat] * 3
            + [self.describe] * 3
            + [self.change_setting] * 2
            + [self.visit] * 2
            + [self.topic.delete_records, self.locks_end, self.administer, self.remake_topic]
        )
        until = self.pair.asked + requests
        place = self.pair.place
        step = 0
        while self.pair.asked < until:
            step += 1
            self.pair.place = f"{place}, step {step}"
            chance.choice(kinds)()
        self.pair.place = f"{place}, the end"
        self.topic.end_transactions()
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
        self.guests = [self.group.member(f"{slot}{self.made}") for slot in GUESTS]

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
            if place in self.topic.cut:
                # Kafka's start offset may move back while a change is written (docs/reference/compatibility.md).
                member.acknowledge(acks)
                acks, added = None, [place]
        holder.place = wanted_place
        # Guests may have taken all sessions.
        member.fetch(
            *added,
            expect=0 if holder.is_open else ANY,
            acks=acks,
            forget=forgotten,
            wait=SOON_MS,
            batch=chance.choice([1, 3, 500]),
            version=chance.choice([1, 2, 2]),
            mode=chance.choice([BATCHES, RECORDS]),
            records=chance.choice([1, 2, 5, 500]),
            max_bytes=chance.choice([1, 200, 1 << 20, 1 << 20]),
            min_bytes=chance.choice([0, 1, 1, 1, 150, 100_000]),
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
        """With either request, and perhaps together with acknowledgements of other kinds."""
        chance = self.chance
        holders = [each for each in self.holders if each.is_open and each.held()]
        if not holders:
            return
        holder = chance.choice(holders)
        if chance.random() < 0.4:
            place, batches = self.some_batches(holder, (ACCEPT, RENEW, RENEW, RELEASE, REJECT))
            # Which of them are still held is no longer known.
            holder.member.held.pop(place, None)
        else:
            place, first, last = chance.choice(holder.held())
            batches = [(first, last, RENEW)]
        if chance.random() < 0.5:
            holder.member.acknowledge({place: batches}, renew=True)
        else:
            nothing = {"records": 0, "max_bytes": 0, "min_bytes": 0, "wait": 0}
            # Acknowledgements add their partition to the session.
            forgotten = [holder.place] if holder.place not in (None, place) else []
            holder.member.fetch(acks={place: batches}, forget=forgotten, renew=True, **nothing)
            holder.place = place

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
        first = chance.randint(0, self.topic.ends[place] + 2)
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
        # Some of what it held may have been deleted from the log.
        if self.chance.random() < 0.5:
            holder.member.close(None)
        else:
            holder.member.hang_up(None)

    def locks_end(self) -> None:
        """A member fetches with short locks, which end."""
        holder = self.chance.choice(self.holders)
        place = self.chance.choice(self.places)
        member = holder.member
        self.group.configure(LOCK, str(SHORT_LOCK_MS))
        kept, member.held = member.held, {}
        forgotten = [holder.place] if holder.is_open and holder.place not in (None, place) else []
        most, mode = (1, RECORDS) if self.has_snapshots else (500, BATCHES)
        member.fetch(place, wait=SOON_MS, records=most, mode=mode, forget=forgotten, expect=ANY)
        holder.place = place if holder.is_open else None
        offsets = {offset for first, last in member.held.get(place, []) for offset in range(first, last + 1)}
        member.held = kept
        self.pair.wait_until_released(self.name, place, offsets)
        self.group.configure(LOCK, str(LONG_LOCK_MS))

    def visit(self) -> None:
        """A guest comes, for whom there may be no session, or goes."""
        guest = self.chance.choice(self.guests)
        if guest.epoch == OPEN:
            guest.fetch(wait=self.chance.choice([0, SOON_MS]), expect=ANY)
        elif self.chance.random() < 0.5:
            guest.acknowledge({}, epoch=FINAL)
        else:
            guest.hang_up(None)

    # administrators

    def heartbeat(self) -> None:
        chance = self.chance
        name = chance.choice(["x", "y"])
        epoch = self.beats.get(name, 0)
        # If two members share a topic, its id decides who gets which partition.
        topics = None if epoch and chance.random() < 0.7 else [self.name if name == "x" else "t1"]
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
                chance.choice([None, {self.name: [0]}, {self.name: [0, 1], "nothing": [0]}]),
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

    # all of the group at once

    def leave(self) -> None:
        """Everybody hangs up."""
        for member in [*(each.member for each in self.holders), *self.guests]:
            if member.epoch > 0:
                member.hang_up(None)
        self.anchor.hang_up(None)
        self.pair.wait_until_forgotten(self.name, self.places)

    def administer(self) -> None:
        """Offsets are changed or the group is deleted, perhaps under open sessions, and the group begins again."""
        chance = self.chance
        is_under_sessions = chance.random() < 0.3
        if not is_under_sessions:
            self.leave()
        if chance.random() < 0.6:
            for name in list(self.beats):
                if self.beats.pop(name):
                    self.group.share_beat(name, FINAL, ANY)
        lost = self.change_offsets()
        if is_under_sessions:
            self.learn_that_they_are_lost(lost)
            self.leave()
        self.group.share_offsets(None, ANY)
        if chance.random() < 0.4:
            # All records are younger than this. Kafka may miss those behind deleted ones (docs/reference/compatibility.md).
            values = ["earliest", "latest", *(["by_duration:P1500D"] if not self.topic.cut else [])]
            self.group.configure(RESET, chance.choice(values))
        self.join_and_begin()

    def change_offsets(self) -> set[Place]:
        """The partitions that have another state now."""
        chance = self.chance
        roll = chance.randrange(4)
        if roll < 2:
            offsets = {
                place[1]: chance.randrange(self.topic.ends[place] + 2)
                for place in self.places
                if chance.random() < 0.7
            }
            answer = self.group.alter_share_offsets({self.name: offsets}, ANY)
            altered = [each for topic in answer["Responses"] for each in topic["Partitions"]]
            return {(self.name, each["PartitionIndex"]) for each in altered if each["ErrorCode"] == 0}
        if roll == 2:
            answer = self.group.delete_share_offsets(self.name, expect=ANY)
            is_done = answer["ErrorCode"] == 0 and all(each["ErrorCode"] == 0 for each in answer["Responses"])
        else:
            is_done = self.group.delete(ANY)["Results"][0]["ErrorCode"] == 0
        return {*self.places} if is_done else set()

    def learn_that_they_are_lost(self, lost: set[Place]) -> None:
        """Members acknowledge what they held of partitions whose state is another one now."""
        for holder in self.holders:
            for place, first, last in holder.held():
                if place in lost:
                    holder.member.acknowledge({place: [(first, last, self.chance.choice([ACCEPT, RELEASE]))]})
            for place in lost:
                holder.member.held.pop(place, None)

    def remake_topic(self) -> None:
        """The topic is deleted and created again, perhaps under open sessions."""
        is_under_sessions = self.chance.random() < 0.5
        if not is_under_sessions:
            self.leave()
        self.topic.delete()
        if is_under_sessions:
            for holder in self.holders:
                if holder.is_open:
                    old = [(self.topic.last_name, number) for _, number in self.places]
                    holder.member.acknowledge({self.chance.choice(old): [(0, 3, ACCEPT)]}, expect=ANY)
                    # Kafka answers nothing to a fetch of a topic that does not exist any more.
                    holder.member.fetch(forget=old, wait=SOON_MS, expect=ANY)
                    holder.member.held = {}
        self.group.share_offsets(None, ANY)
        self.topic.create()
        if is_under_sessions:
            self.leave()
        self.topic.fill()
        self.join_and_begin()

    def join_and_begin(self) -> None:
        # If two members share a topic, its id decides who gets which partition.
        if self.beats.pop("x", 0):
            self.group.share_beat("x", FINAL, ANY)
        self.group.share_beat("z", 0, names=[self.name])
        self.group.share_beat("z", FINAL)
        self.begin()
