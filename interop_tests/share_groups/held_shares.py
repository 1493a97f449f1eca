"""Share groups that are held in every state while the leader of their records or their share coordinator changes.

The members are written by hand, so that none of them leaves the state by itself. Afterwards what the share coordinator
keeps agrees with every answer that came, and the leader delivers exactly what is left, with the counts that are kept.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress

from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, Silence
from interop_tests.share_groups.hand import (
    ACCEPT,
    REJECT,
    RELEASE,
    Asked,
    Hand,
    Leader,
    Ranges,
    heartbeat,
    initialize,
    read_from_start,
)
from interop_tests.share_groups.scene import (
    BROKEN,
    GROUP_ID_NOT_FOUND,
    HELD,
    OFFSETS_TOPIC,
    PASSING,
    RECORDS,
    STUCK_S,
    Scene,
    State,
)

UNKNOWN_TOPIC_OR_PARTITION, REQUEST_TIMED_OUT = 3, 7
ANSWER_S = 60.0
"""Longer than any request may take that has an answer."""
LEFT_BEFORE = 6
"""The first records of a group whose state is deleted are accepted before."""
LOAD_MS = 8_000
"""How long a share fetch waits for a state."""
MANY = 100
Counts = dict[int, int]
"""Delivery count by offset."""


class Held:
    """One group and its member."""

    def __init__(self, scene: Scene, group: str) -> None:
        self.group = group
        self.hand = scene_hand(scene, group, "holder")
        self.given: Counts = {}
        """The last delivery count of each record that the member got."""
        self.ended: set[int] = set()
        """Records of which an answer said that they are accepted or rejected."""
        self.free: set[int] = set()
        """Records of which an answer said that they are released, and which nobody has got since."""
        self.unknown: set[int] = set()
        """Records whose acknowledgement has failed or has no answer. It may be written all the same."""

    def take(self, ranges: Ranges) -> None:
        for first, last, count in ranges:
            for offset in range(first, last + 1):
                self.given[offset] = count
                self.free.discard(offset)

    def take_all(self) -> None:
        def has_all() -> bool:
            self.take(self.hand.fetch(RECORDS))
            return len(self.given) == RECORDS

        wait_until(has_all, f"the member of {self.group} has all records")

    def note(self, answers: Iterable[Asked]) -> None:
        for each in answers:
            offsets = {*range(each.first, each.last + 1)}
            if each.code != 0:
                self.unknown |= offsets
            elif each.kind == RELEASE:
                self.free |= offsets
            else:
                self.ended |= offsets

    def expect_anything(self) -> None:
        """Another member has done something with the records."""
        self.unknown, self.free = {*range(RECORDS)}, set()
        self.given = dict.fromkeys(range(RECORDS), MANY)

    def tell(self, *acknowledgements: tuple[int, int, int]) -> None:
        """Acknowledge, and wait for the answers."""
        for each in acknowledgements:
            self.hand.acknowledge_later(*each)
        answers = self.hand.answers()
        assert {each.code for each in answers} == {0}, (self.group, answers)
        self.note(answers)


def scene_hand(scene: Scene, group: str, name: str) -> Hand:
    return Hand(scene.find(HELD), group, name, scene.ids[HELD], timeout_s=ANSWER_S)


class Errand:
    """A request to the group coordinator whose answer is read later."""

    def __init__(self, scene: Scene, api: str, version: int, body: dict[str, object]) -> None:
        self._scene = scene
        self._what = api, version, body
        self._connection: Connection | None = None
        self._number = 0

    def send(self) -> None:
        address = self._scene.address(OFFSETS_TOPIC)()
        with suppress(*BROKEN):
            if address is not None:
                self._connection = Connection(address, timeout_s=ANSWER_S)
                self._number = self._connection.send(*self._what)

    def answer(self) -> dict[str, object] | None:
        """None if it is not known what became of it."""
        connection, self._connection = self._connection, None
        if connection is None:
            return None
        try:
            with connection:
                return connection.receive(*self._what[:2], self._number)
        except Silence:
            raise AssertionError(f"{self._what} has no answer") from None
        except BROKEN:
            return None

    def again(self) -> dict[str, object] | None:
        self.send()
        return self.answer()


class HeldShares:
    """One group in each state:

    acquired: records are accepted, rejected, released once, released and taken again, and held.
    flying: acknowledgements are sent just before the blow, and their answers are not awaited.
    writing: acknowledgements are sent while the share coordinator does not answer.
    loading: the leader reads the state for a first share fetch while the share coordinator does not answer.
    initializing: a member has joined, and the state is made while the share coordinator does not answer.
    forgetting, deleting: the offsets of the group, or the group, are deleted while the share coordinator does not answer.
    """

    def __init__(self, scene: Scene, name: str) -> None:
        """`name` begins the names of the groups."""
        self._scene = scene
        self.acquired, self.flying, self.writing, self.loading = self._members = [
            Held(scene, f"{name}-{state}") for state in ("acquired", "flying", "writing", "loading")
        ]
        self._deleted = [Held(scene, f"{name}-{state}") for state in ("forgetting", "deleting")]
        forgetting, deleting = (each.group for each in self._deleted)
        offsets = {"GroupId": forgetting, "Topics": [{"TopicName": HELD}]}
        self._deletions = [
            Errand(scene, "DeleteShareGroupOffsets", 0, offsets),
            Errand(scene, "DeleteGroups", 2, {"GroupsNames": [deleting]}),
        ]
        self._initializing = f"{name}-initializing"
        self._joins = Errand(scene, "ShareGroupHeartbeat", 1, heartbeat(self._initializing, 0, HELD))
        self._before: Leader | None = None

    # the states

    def begin(self) -> None:
        """Bring each group into its state, as far as that goes without the last requests."""
        groups = [each.group for each in (*self._members, *self._deleted)]
        address = self._scene.address(OFFSETS_TOPIC)()
        assert address is not None
        with Connection(address) as connection:
            for group in (*groups, self._initializing):
                read_from_start(connection, group)
        initialize(self._scene.address(OFFSETS_TOPIC), groups, HELD)
        for each in (self.acquired, self.flying, self.writing, *self._deleted):
            each.take_all()
        self.acquired.tell((0, 2, ACCEPT), (3, 3, REJECT), (4, 5, RELEASE))
        self.acquired.take(wait_until(self.acquired.hand.fetch, "a released record comes again"))
        assert self.acquired.given[4] == 2, self.acquired.given
        for each in self._deleted:
            each.tell((0, LEFT_BEFORE - 1, ACCEPT))
            each.hand.hang_up()
        # What the leader still writes when the group is deleted could come into the state that is made afterwards.
        wait_until(self._are_released, "what the members of the groups to delete held is released")
        self._before = self._scene.leader(HELD)

    def _are_released(self) -> bool:
        leader = self._leader()
        return all(self._scene.persisted(each.group, leader).count(LEFT_BEFORE) for each in self._deleted)

    def fly(self) -> None:
        """The requests that are on their way when the blow comes."""
        for offset in range(9):
            self.flying.hand.acknowledge_later(offset, offset, ACCEPT if offset < 6 else RELEASE)

    def ask(self) -> None:
        """The requests for which the share coordinator is needed."""
        for offset in range(8):
            kind = ACCEPT if offset < 4 else RELEASE if offset < 7 else REJECT
            self.writing.hand.acknowledge_later(offset, offset, kind)
        self.loading.hand.fetch_later(RECORDS, LOAD_MS)
        for each in (self._joins, *self._deletions):
            each.send()

    def close(self) -> None:
        for each in (*self._members, *self._deleted):
            each.hand.hang_up()

    def told(self) -> dict[str, tuple[State, dict[str, tuple[int, int]]]]:
        """What the share coordinator keeps of each group, and what DescribeShareGroupOffsets says of it."""
        leader = self._leader()
        groups = [each.group for each in (*self._members, *self._deleted)]
        return {each: (self._scene.persisted(each, leader), self._scene.described(each)) for each in groups}

    # what became of them

    def judge(self) -> None:
        """Each request is answered or its connection is closed, and the groups go on."""
        answers = {each.group: each.hand.answers() for each in self._members}
        self.loading.take(self.loading.hand.fetched())
        silent = [each.group for each in self._members if each.hand.was_silent]
        assert not silent, f"no answer came for {silent}"
        for each in self._members:
            each.note(answers[each.group])
        for each in self._members:
            self._judge_member(each)
        for held, deletion in zip(self._deleted, self._deletions, strict=True):
            self._judge_deletion(held.group, deletion)
        self._joins.answer()
        fresh = [self._initializing, *(each.group for each in self._deleted)]
        initialize(self._scene.address(OFFSETS_TOPIC), fresh, HELD)
        for group in fresh:
            heir = scene_hand(self._scene, group, "heir")
            self._judge_rest(heir, {}, dict.fromkeys(range(RECORDS), 1))
        self.close()

    def _leader(self) -> Leader:
        return wait_until(self._scene.find(HELD), f"{HELD} has a leader")

    def _judge_member(self, held: Held) -> None:
        while True:
            leader = self._leader()
            state = self._scene.persisted(held.group, leader)
            what = f"{held.group} at {leader}, before {self._before}: {held.__dict__} {state}"
            for offset in held.ended:
                assert state.is_ended(offset), f"{offset} was accepted or rejected. {what}"
            for offset in held.free:
                assert not state.is_ended(offset), f"{offset} was released. {what}"
                assert state.count(offset) == held.given[offset], f"{offset} was released. {what}"
            for offset in range(RECORDS):
                if state.is_ended(offset):
                    assert offset in held.ended | held.unknown, f"{offset} is lost. {what}"
                else:
                    assert state.count(offset) <= held.given.get(offset, 0), f"the count of {offset}. {what}"
            described = self._scene.described(held.group)
            assert described == {HELD: (state.start, state.lag)}, f"{described} {what}"
            heir = scene_hand(self._scene, held.group, "heir")
            has: Counts = {}
            try:
                if leader == held.hand.leader == self._before:
                    self._take_what_is_free(held, heir, has)
                    left = {*range(RECORDS)} - held.ended
                    self._judge_rest(heir, has, {each: held.given.get(each, 0) + 1 for each in left})
                else:
                    self._judge_rest(heir, has, state.left())
            except AssertionError as error:
                if self._leader() == leader:
                    error.add_note(what)
                    raise
                # On a busy machine a session may expire, and the leader changes once more.
                heir.hang_up()
                held.expect_anything()
                continue
            return

    def _take_what_is_free(self, held: Held, heir: Hand, has: Counts) -> None:
        """The leader and the member's session are those of before: what the member holds is given to nobody else until it
        leaves."""
        # If an acknowledgement has failed, the record is held as before.
        taken = held.given.keys() - held.free - held.ended
        free = {*range(RECORDS)} - held.ended - taken

        def is_found() -> bool:
            has.update(counted(heir.fetch(RECORDS)))
            return heir.leader is not None and has.keys() >= free

        self._wait(heir, is_found, f"another member of {held.group} gets what is free")
        has.update(counted(heir.fetch(RECORDS, 50)))
        assert has.keys() == free, f"{has} come to {held.group}, free are {free}"
        # Apache Kafka may forget counts when a group has no session left.
        held.hand.hang_up()

    def _wait(self, heir: Hand, probe: Callable[[], bool], what: str) -> None:
        begun = [time.monotonic()]

        def is_so() -> bool:
            if probe():
                return True
            if time.monotonic() > begun[0] + STUCK_S and self._scene.may_be_stuck(HELD):
                begun[0] = time.monotonic()
                heir.hang_up()
            return False

        wait_until(is_so, what)

    def _judge_rest(self, heir: Hand, has: Counts, expected: Counts) -> None:
        """Another member gets exactly these records, besides those that it has, and accepts all."""
        # The first count of each: if the connection breaks they come again.
        group, found = heir.group, has

        def fetch(wait_ms: int = 200) -> None:
            for offset, count in counted(heir.fetch(RECORDS, wait_ms)).items():
                found.setdefault(offset, count)

        def is_found() -> bool:
            fetch()
            return found.keys() >= expected.keys()

        def is_done() -> bool:
            for offset in list(found):
                heir.acknowledge(offset, offset)
            if self._scene.is_done(group, HELD):
                return True
            fetch(50)
            return False

        try:
            self._wait(heir, is_found, f"{expected} come to {group}")
        except AssertionError as error:
            error.add_note(f"{found} have come, errors {Counter(heir.codes)}")
            raise
        fetch(50)
        assert found == expected, f"{found} come to {group}, not {expected}"
        wait_until(is_done, f"{group} has ended all records")
        heir.hang_up()

    def _judge_deletion(self, group: str, deletion: Errand) -> None:
        """It has an answer, or is repeated until it is done. Then nothing is left of the state."""
        last = [deletion.answer()]

        def is_done() -> bool:
            codes = codes_of(last[0])
            if codes is not None:
                assert codes <= {0, GROUP_ID_NOT_FOUND, REQUEST_TIMED_OUT, *PASSING}, (group, last)
                if codes <= {0, GROUP_ID_NOT_FOUND}:
                    return True
                if codes == {0, UNKNOWN_TOPIC_OR_PARTITION} and not self._scene.has_state(group):
                    return True  # an earlier request whose answer did not come
            last[0] = deletion.again()
            return False

        wait_until(is_done, f"the state of {group} is deleted", interval_s=0.2)
        assert not self._scene.has_state(group), group
        assert HELD not in self._scene.described(group), group


def codes_of(answer: object) -> set[int] | None:
    """The error codes of a deletion. None if it has no answer."""
    if not isinstance(answer, dict):
        return None
    rows = answer.get("Responses", answer.get("Results", []))
    return {answer.get("ErrorCode", 0), *(each["ErrorCode"] for each in rows)}


def counted(ranges: Ranges) -> Counts:
    return {offset: count for first, last, count in ranges for offset in range(first, last + 1)}
