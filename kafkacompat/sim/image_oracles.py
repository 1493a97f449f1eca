"""Checks the cluster's metadata: all nodes have the same image at an offset, and each partition's data are consistent.

The image that a node has built from a snapshot and the rest of the log is compared with that of the first node at that
offset, usually the active controller. This module knows nothing of a node except its published images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkacompat.controller.features import elr_enabled
from kafkacompat.controller.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    changed_topics,
    has_online_dir,
)
from kafkacompat.ids import NO_LEADER
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.cluster_options import UNCLEAN
from kafkacompat.sim.committed_metadata import Key, partitions_of
from kafkacompat.sim.partition_oracles import PartitionOracles
from kafkacompat.sim.processes import Environment
from kafkacompat.sim.views import MachineView

if TYPE_CHECKING:
    from kafkacompat.sim.views import NodeView


class ImageOracles:
    def __init__(
        self, env: Environment, machines: Mapping[int, MachineView], partitions: PartitionOracles
    ) -> None:
        self._env = env
        self._metadata = env.metadata
        self._machines = machines
        self._partitions = partitions
        self._images: dict[int, MetadataImage] = {}
        self._applied: dict[NodeView, int] = {}
        self._gone: set[tuple[int, int]] = set()
        """Pairs of broker id and epoch. A controller knows that they are dead before they are fenced, so it must not
        elect them."""

    def applied(self, life: NodeView) -> None:
        """A node has applied a batch of the metadata log, or of a snapshot. It becomes part of the node's next image."""
        self._applied[life] = self._applied.get(life, 0) + 1

    def published(self, life: NodeView, old: MetadataImage, image: MetadataImage) -> None:
        batches = self._applied.pop(life, 0)
        self._check_changes(life, old, image)
        known = self._images.get(image.offset)
        if known is not None:
            self._env.counters.images_compared += 1
            if known != image:
                raise Breach(
                    "one image an offset",
                    f"node {life.id} at {image.offset} has {image}, another had {known}",
                )
            return
        self._images[image.offset] = image
        if image.offset > self._metadata.newest.offset:
            before, self._metadata.newest = self._metadata.newest, image
            # The active controller publishes each batch when it is committed, and applies none.
            is_step = batches <= 1 and old.offset == before.offset
            self._check(before, image, is_step=is_step)
            self._count(before, image)
            if self._env.tell is not None:
                self._tell(self._env.tell, before, image)

    def _check_changes(self, life: NodeView, old: MetadataImage, image: MetadataImage) -> None:
        """The records name all topics that differ."""
        former, present = old.topics_by_id, image.topics_by_id
        found = {each for each in former.keys() | present.keys() if former.get(each) is not present.get(each)}
        told = {topic.id for pair in changed_topics(old, image) for topic in pair if topic is not None}
        if found != told:
            raise Breach(
                "the records name the changed topics",
                f"node {life.id} at {image.offset} takes {told} for changed, and {found} are",
            )

    def taken_for_gone(self, broker: BrokerRegistration) -> None:
        """A controller reports a dead broker before its session expires."""
        self._env.counters.brokers_gone += 1
        self._gone.add((broker.id, broker.epoch))
        life = self._machines[broker.id].life
        if life is None or (life.is_stopping and not life.is_serving):
            return  # a broker that shuts down has closed its listeners
        if life.lifecycle is not None and life.lifecycle.broker_epoch == broker.epoch:
            raise Breach(
                "living brokers are not taken for gone", f"broker {broker.id} of epoch {broker.epoch}"
            )

    def _check(self, before: MetadataImage, image: MetadataImage, *, is_step: bool) -> None:
        """`is_step`: exactly one batch of the log is between the two images. Otherwise it is unknown who was fenced at
        which change."""
        if not self._metadata.deleted.isdisjoint(image.topics_by_id):
            raise Breach("an id is given once", f"a topic of {image.offset} was deleted before")
        older = dict(partitions_of(before))
        is_switched = before.features != image.features
        for key, now in partitions_of(image):
            then = older.get(key)
            self._metadata.leaders.setdefault(key, {})[now.leader_epoch] = now.leader
            if then == now and not is_switched:
                if now.leader != NO_LEADER:
                    self._check_leader(key, now, image)
                continue
            name = f"{image.topics_by_id[key[0]].name}-{key[1]} at {image.offset}: {now}"
            if len(set(now.isr)) != len(now.isr) or not set(now.isr) <= set(now.replicas):
                raise Breach("the ISR is of the replicas", f"{name}")
            if now.leader != NO_LEADER and now.leader not in now.isr:
                raise Breach("the leader is in sync", f"{name}")
            if now.isr and now.eligible_leader_replicas and not elr_enabled(image.features):
                raise Breach("who is eligible is kept up", f"{name}")
            if set(now.eligible_leader_replicas) & set(now.isr):
                raise Breach("eligible replicas are not in the ISR", f"{name}")
            if now.leader != NO_LEADER:
                self._check_leader(key, now, image)
            if then is None or then == now:
                continue
            if now.leader_epoch < then.leader_epoch or now.partition_epoch <= then.partition_epoch:
                raise Breach("epochs grow with every change", f"{name} was {then}")
            joined = [each for each in now.isr if each not in then.isr and is_step]
            if any(each not in image.brokers or image.brokers[each].fenced for each in joined):
                raise Breach("fenced brokers join no ISR", f"{name} was {then}")
            self._check_election(key, then, now, before, image, is_step=is_step)
            if now.leader != then.leader and now.leader_epoch == then.leader_epoch:
                raise Breach("another leader is another epoch", f"{name} was {then}")

    def _check_election(
        self,
        key: Key,
        then: PartitionRegistration,
        now: PartitionRegistration,
        before: MetadataImage,
        image: MetadataImage,
        *,
        is_step: bool,
    ) -> None:
        """Check that a replica that may lack records becomes leader only if that is allowed."""
        if now.leader in (NO_LEADER, then.leader) and now.partition_epoch == then.partition_epoch + 1:
            return
        # With one record a replica may join the ISR, end a reassignment and become leader. An unclean leader is alone
        # in the ISR.
        has_joined = now.leader in then.adding_replicas
        is_in_sync = now.leader in {*then.isr, *then.eligible_leader_replicas} or (
            has_joined and len(now.isr) > 1
        )
        is_next = now.partition_epoch == then.partition_epoch + 1
        topic = image.topics_by_id[key[0]].name
        if topic == UNCLEAN:
            # After several changes in one image it is unknown who was in sync at the election.
            if not is_in_sync or (not is_next and now.leader_epoch != then.leader_epoch):
                self._partitions.elected_unclean(key, now.leader_epoch)
            passed_over = [
                each
                for each in {*then.isr, *then.eligible_leader_replicas} & {*now.replicas}
                if is_step
                and not is_in_sync
                and not has_joined
                and self._could_lead(each, now, before)
                and self._could_lead(each, now, image)
            ]
            if passed_over:
                raise Breach("elections are clean", f"{passed_over} are passed over in {now}, was {then}")
        elif is_next and not is_in_sync and not has_joined and now.leader not in then.last_known_elr:
            raise Breach("elections are clean", f"{topic}-{key[1]} at {image.offset}: {now} was {then}")

    def _could_lead(self, broker_id: int, partition: PartitionRegistration, image: MetadataImage) -> bool:
        """Whether the controller knows the broker and its replica's directory to be online."""
        broker = image.brokers.get(broker_id)
        return (
            broker is not None
            and not broker.fenced
            and not broker.in_controlled_shutdown
            and (broker_id, broker.epoch) not in self._gone
            and has_online_dir(broker, partition.directory(broker_id))
        )

    def _check_leader(self, key: Key, now: PartitionRegistration, image: MetadataImage) -> None:
        broker = image.brokers.get(now.leader)
        if broker is None or broker.fenced or broker.in_controlled_shutdown:
            raise Breach(
                "leaders are live", f"{image.topics_by_id[key[0]].name}-{key[1]} at {image.offset}: {now}"
            )

    def _count(self, before: MetadataImage, image: MetadataImage) -> None:
        counters = self._env.counters
        if before.topics_by_id is not image.topics_by_id:
            gone = before.topics_by_id.keys() - image.topics_by_id.keys()
            self._metadata.names.update(
                (topic_id, topic.name) for topic_id, topic in image.topics_by_id.items()
            )
            self._metadata.deleted |= gone
            counters.topics_deleted += len(gone)
        for broker in image.brokers.values():
            earlier = before.brokers.get(broker.id)
            if broker.fenced and earlier is not None and not earlier.fenced:
                counters.fenced_brokers += 1
        counters.features_switched += bool(before.features) and before.features != image.features
        older = dict(partitions_of(before))
        for key, now in partitions_of(image):
            then = older.get(key)
            counters.partitions_added += then is None and key[0] in before.topics_by_id
            if then is None or then is now:
                continue
            counters.isr_shrinks += len(now.isr) < len(then.isr)
            counters.isr_expansions += len(now.isr) > len(then.isr)
            counters.elections += now.leader not in (then.leader, NO_LEADER)
            counters.partitions_without_leader += now.leader == NO_LEADER != then.leader
            counters.eligible_replicas += (
                bool(now.eligible_leader_replicas) and not then.eligible_leader_replicas
            )
            was_moving = bool(then.adding_replicas or then.removing_replicas)
            if was_moving and not (now.adding_replicas or now.removing_replicas):
                counters.reassignments += 1

    def _tell(self, tell: Callable[[str], None], before: MetadataImage, image: MetadataImage) -> None:
        for broker in image.brokers.values():
            if before.brokers.get(broker.id) != broker:
                state = "fenced" if broker.fenced else "unfenced"
                state += ", leaving" if broker.in_controlled_shutdown else ""
                tell(f"metadata {image.offset}: broker {broker.id} of epoch {broker.epoch} is {state}")
        older = dict(partitions_of(before))
        for key, now in partitions_of(image):
            if older.get(key) != now:
                tell(
                    f"metadata {image.offset}: {image.topics_by_id[key[0]].name}-{key[1]} leader {now.leader} "
                    f"epoch {now.leader_epoch}/{now.partition_epoch} replicas {now.replicas} ISR {now.isr} "
                    f"eligible {now.eligible_leader_replicas} last known {now.last_known_elr} "
                    f"adding {now.adding_replicas} removing {now.removing_replicas}"
                )
