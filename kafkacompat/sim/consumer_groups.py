"""A simulated group of both protocols: members of the consumer protocol (KIP-848), and members of the classic one with the
subscription of a consumer in it. As the former come and go, the coordinator converts the group to and fro.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.sim.clients import Client
from kafkacompat.sim.consumer_members import ConsumerMember
from kafkacompat.sim.counters import ConsumerGroupCounters
from kafkacompat.sim.embedded_members import EmbeddedMember
from kafkacompat.sim.group_commits import GROUP_SESSION_MS
from kafkacompat.sim.group_oracles import GroupLedger, Owners
from kafkacompat.sim.links import Links
from kafkacompat.sim.subscriptions import matches, partitions_of

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage

SURE_SHARE = 0.9
"""The share of a session after which it has not expired by any node's clock."""


class ConsumerGroups:
    """The members of one group. The first of each protocol are static. A twin has the instance id of another member."""

    def __init__(self, links: Links, first_id: int) -> None:
        options = links.env.options
        self.counters = ConsumerGroupCounters()
        ledger = GroupLedger("consumers")
        owners = Owners(ledger.group_id, int(GROUP_SESSION_MS * 1000 * SURE_SHARE))
        instances = [f"consumer-{each}" for each in range(options.static_members)]
        embedded_instances = [f"embedded-{each}" for each in range(options.static_embedded_members)]
        ids = iter(range(first_id, first_id + 100))
        members: list[ConsumerMember] = []
        embedded: list[EmbeddedMember] = []

        def add(is_embedded: bool, instance_id: str | None, *, is_twin: bool = False) -> None:
            to: list[ConsumerMember] | list[EmbeddedMember] = embedded if is_embedded else members
            kind: type[ConsumerMember | EmbeddedMember] = EmbeddedMember if is_embedded else ConsumerMember
            member = kind(links, next(ids), ledger, owners, self.counters, instance_id, is_twin=is_twin)
            to.append(member)  # type: ignore[arg-type]  # both lists are of their own kind

        for number in range(options.consumer_members):
            add(False, instances[number] if number < len(instances) else None)
        for number in range(options.embedded_members):
            add(True, embedded_instances[number] if number < len(embedded_instances) else None)
        for is_embedded in options.twins:
            add(is_embedded, (instances or embedded_instances)[0], is_twin=True)
        self._members, self._embedded = members, embedded
        for each in members:
            if each.instance_id is not None:
                twins = [other for other in self._everyone if other.instance_id == each.instance_id]
                each.is_alone = len(twins) == 1
                each.has_classic_twin = any(isinstance(other, EmbeddedMember) for other in twins)

    @property
    def _everyone(self) -> list[ConsumerMember | EmbeddedMember]:
        return [*self._members, *self._embedded]

    @property
    def clients(self) -> list[Client]:
        return [*self._everyone]

    def missing(self, image: MetadataImage) -> str | None:
        """Return what a healed cluster has not done for them yet. None if everything is done."""
        if not self._members:
            return None
        if not all(each.is_retired for each in self._everyone if each.is_twin):
            return "not all twins have gone"
        members = [each for each in self._members if not each.is_twin]
        embedded = [each for each in self._embedded if not each.is_twin]
        everyone: list[ConsumerMember | EmbeddedMember] = [*members, *embedded]
        owned = {each.id: sorted(each.owned or ()) for each in everyone}
        if not all(each.is_settled for each in members) or any(each.owned is None for each in embedded):
            return f"not all members are settled, {owned} are owned"
        topics = {
            topic
            for topic in image.topics
            if any(matches(topic, each.subscribed, each.expression) for each in members)
            or any(topic in each.subscribed for each in embedded)
        }
        partitions = partitions_of(image, topics)
        if sorted(key for each in owned.values() for key in each) != partitions:
            return f"of {partitions} the members own {owned}"
        if not all(each.has_read_at_last or not each.owned for each in everyone):
            return "members have not read what was committed"
        return None
