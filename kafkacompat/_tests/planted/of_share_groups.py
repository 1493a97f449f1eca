"""Bugs to plant in share groups: their members, assignments, and which share-partitions have a state."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

GROUPS = "coordinator/_tests/test_share_groups.py"
OFFSETS = "coordinator/_tests/test_share_group_offsets.py"
LIVES = "coordinator/_tests/test_share_group_properties.py"
ASSIGNOR = "group/_tests/share/test_simple_assignor.py"

BUGS = (
    PlantedBug(
        "a group is deleted while the record of its new member is applied",
        "coordinator/group_sweeps.py",
        "        return shard.in_turn(lambda: self._delete_group(shard, group_id))\n",
        "        return self._delete_group(shard, group_id)\n",
        (OFFSETS,),
    ),
    PlantedBug(
        "a share-partition is assigned before it has a state",
        "group/share/target_assignment.py",
        "                    having = has_state.get(topic.id, ())\n",
        "                    having = range(count)\n",
        (GROUPS, LIVES),
    ),
    PlantedBug(
        "a member of a share group is refused when the answer with its new epoch was lost",
        "group/share/heartbeat.py",
        "    if received in (0, known, previous if previous < known else known):\n",
        "    if received in (0, known):\n",
        (GROUPS,),
    ),
    PlantedBug(
        "partitions that got a state are not assigned",
        "group/share/heartbeat.py",
        "        bump = group.is_assignment_pending()\n",
        "        bump = False\n",
        (GROUPS, LIVES),
    ),
    PlantedBug(
        "states that nobody answered for are never asked for again",
        "group/share/initialization.py",
        "    retries = not 0 <= waited_ms < env.settings.share.initialize_retry_interval_ms\n",
        "    retries = False\n",
        (GROUPS,),
    ),
    PlantedBug(
        "states that nobody answered for wait until a clock that was set back has caught up",
        "group/share/initialization.py",
        "    retries = not 0 <= waited_ms < env",
        "    retries = waited_ms >= env",
        (GROUPS,),
    ),
    PlantedBug(
        "a topic that is deleted while its states are made stays in the group's record",
        "group/share/initialization.py",
        "            if topic_id in by_id\n",
        "            if True\n",
        (GROUPS,),
    ),
    PlantedBug(
        "topics that were deleted while nobody coordinated a share group stay in its record",
        "group/share/initialization.py",
        "if topic_id not in env.topics.by_id]",
        "if topic_id in ()]",
        (GROUPS,),
    ),
    PlantedBug(
        "new start offsets of a share group are altered some at a time, and a group with members has some of them",
        "api/alter_share_group_offsets.py",
        "cut(request.topics, ALTERED_TOGETHER)",
        "cut(request.topics, ALTERED_TOGETHER // 40)",
        (OFFSETS,),
    ),
    PlantedBug(
        "a start offset that is told as altered is forgotten if others are refused",
        "coordinator/share_group_offsets.py",
        "            made = _made(outcomes)\n",
        "            made = _made(outcomes) if not any(each.code for each in outcomes.values()) else {}\n",
        (OFFSETS,),
    ),
    PlantedBug(
        "a start offset is told as altered before the group has noted it",
        "coordinator/share_group_offsets.py",
        "            return noted.and_then(lambda _: self._steps",
        "            return Deferred.of(noted).and_then(lambda _: self._steps",
        (OFFSETS,),
    ),
    PlantedBug(
        "a member has states made again whose start offsets are being altered",
        "group/share/initialization.py",
        "    if group.alterations:\n",
        "    if group.alterations < 0:\n",
        (OFFSETS,),
    ),
    PlantedBug(
        "one piece of a description of share groups waits for another, while a share coordinator is looked for",
        "api/describe_share_group_offsets.py",
        "            of_group.append(answer)\n            yield None\n",
        "            of_group.append(answer)\n            yield answer\n",
        (OFFSETS,),
    ),
    PlantedBug(
        "some groups of a description wait for others, while a share coordinator is looked for",
        "api/describe_share_group_offsets.py",
        "GROUPS_TOGETHER = 100\n",
        "GROUPS_TOGETHER = 10\n",
        (OFFSETS,),
    ),
    PlantedBug(
        "the share coordinator is asked for partitions that no topic has, during half a minute",
        "coordinator/share_group_offsets.py",
        " for index in partitions if index < count]",
        " for index in partitions]",
        (OFFSETS,),
    ),
    PlantedBug(
        "the state of a negative partition is read",
        "coordinator/share_group_offsets.py",
        " and min(topic.partitions) >= 0",
        "",
        (OFFSETS,),
    ),
    PlantedBug(
        "a sharer whose fencing the log refuses is not fenced again",
        "group/fencing.py",
        "            self._env.timers.schedule(self._key, RETRY_MS, self)\n",
        "",
        (GROUPS,),
    ),
    PlantedBug(
        "an empty share group expires",
        "group/retention.py",
        "    if group is None or isinstance(group, (CarriedGroup, ShareGroup)):\n        return ()\n    if place",
        "    if group is None or isinstance(group, CarriedGroup):\n        return ()\n    if place",
        (OFFSETS,),
    ),
    PlantedBug(
        "a share group is deleted although its states are not",
        "coordinator/share_groups.py",
        "            raise Refused(each.code, each.message)\n",
        "            return\n",
        (OFFSETS,),
    ),
    PlantedBug(
        "a topic of which a member has no partition left is counted",
        "group/share/share_group.py",
        "            if not partitions:\n                continue\n            counts = self._assigned[topic_id]\n",
        "            counts = self._assigned[topic_id]\n",
        (LIVES,),
    ),
    PlantedBug(
        "members of a share group keep more partitions than their part",
        "group/share/simple_assignor.py",
        "        excess = len(self._by_member[member]) - self._desired.get(member, 0)\n",
        "        excess = 0\n",
        (ASSIGNOR, LIVES),
    ),
    PlantedBug(
        "all partitions of a share group are sorted in one step",
        "group/share/simple_assignor.py",
        "        for topic_id in sorted(self._known, key=uuid_order):\n"
        "            for partition in sorted(self._known[topic_id]):\n"
        "                yield topic_id, partition\n",
        "        yield from sorted(self._by_partition, key=lambda each: (*uuid_order(each[0]), each[1]))\n",
        (ASSIGNOR,),
    ),
    PlantedBug(
        "a leader that does not answer leaves the lag unknown for ever",
        "coordinator/end_offsets.py",
        "question.attempts < ATTEMPTS",
        "True",
        (OFFSETS,),
    ),
)
