"""Scripted talks about offsets, settings and state, as administrators and leaders of partitions ask for them."""

from __future__ import annotations

from typing import Any

from interop_tests.consumer_groups.asking import ANY
from interop_tests.share_groups.asking import ACCEPT, RELEASE, SOON_MS, ShareAsking
from interop_tests.share_groups.scenarios import own_topic, ready
from interop_tests.share_groups.sides import SHARE_KEY_TYPE
from kafkacompat.config.keys import own_names

UPDATES_PER_SNAPSHOT = 500
SETTINGS = (
    (
        "share.auto.offset.reset",
        (
            "latest",
            "earliest",
            "by_duration:PT5S",
            "by_duration:-PT5S",
            "by_duration",
            "none",
            "",
            "EARLIEST",
        ),
    ),
    ("share.isolation.level", ("read_committed", "read_uncommitted", "READ_COMMITTED", "committed", "")),
    ("share.record.lock.duration.ms", ("1000", "15000", "3600000", "999", "3600001", "0", "-1", "x", "")),
    ("share.delivery.count.limit", ("2", "5", "10", "1", "11", "25", "26", "x")),
    ("share.partition.max.record.locks", ("100", "2000", "4000", "99", "4001", "x")),
    ("share.renew.acknowledge.enable", ("true", "false", "TRUE", "maybe", "")),
    ("share.session.timeout.ms", ("45000", "3600000", "60000", "44999", "0", "3600001", "x")),
    ("share.heartbeat.interval.ms", ("5000", "15000", "4999", "15001", "45000", "x")),
    ("share.assignment.interval.ms", ("0", "1000", "15000", "15001", "-1", "x")),
    ("share.nonsense", ("1",)),
)


def offsets_of_nothing(talk: ShareAsking) -> None:
    """Not sent are questions for partitions of a group without a name, which Kafka answers with an unexpected error."""
    nowhere = ShareAsking(talk.pair, "")
    for version in (0, 1):
        for group in (talk, nowhere):
            group.share_offsets(None, ANY, version)
            group.share_offsets({}, ANY, version)
        talk.share_offsets({"t3": [0]}, ANY, version)
        talk.share_offsets({"nothing": [0]}, ANY, version)
    nowhere.alter_share_offsets({"t3": {0: 1}}, ANY)
    nowhere.delete_share_offsets("t3", expect=ANY)
    talk.delete_share_offsets("t3", expect=ANY)
    talk.delete_share_offsets(expect=ANY)
    talk.alter_share_offsets({"nothing": {0: 1}}, ANY)
    talk.alter_share_offsets({}, ANY)
    talk.list()
    talk.delete(ANY)


def altered_offsets(talk: ShareAsking) -> None:
    """Offsets that an administrator sets create the group, and members start there."""
    topic = own_topic(talk, 2)
    for partition in range(2):
        talk.produce(topic, 10, partition)
    talk.alter_share_offsets({topic: {0: 3}})
    talk.share_describe()
    talk.list()
    for version in (0, 1):
        talk.share_offsets(version=version)
        talk.share_offsets({topic: [0]}, version=version)
    talk.alter_share_offsets({topic: {0: 4, 1: 20}, "nothing": {0: 1}, "t1": {0: 0}})
    talk.alter_share_offsets({topic: {9: 4}}, ANY)
    talk.alter_share_offsets({topic: {0: 5, 9: 4}}, ANY)
    talk.alter_share_offsets({topic: {0: -1}}, ANY)
    talk.alter_share_offsets({topic: {0: -2}}, ANY)
    talk.share_offsets()
    talk.alter_share_offsets({topic: {0: 4}})
    m = talk.member("m")
    m.fetch((topic, 0))
    m.acknowledge({(topic, 0): [(4, 5, ACCEPT)]})
    talk.share_offsets()
    talk.alter_share_offsets({topic: {0: 1}})
    m.acknowledge({(topic, 0): [(6, 6, ACCEPT)]})
    talk.share_offsets()
    m.close(releases=0)
    m.hang_up()
    again = talk.member("again")
    again.fetch((topic, 0))
    again.acknowledge({(topic, 0): [(1, 9, ACCEPT)]})
    talk.share_offsets()
    epoch = talk.share_beat("x", 0, names=[topic])["MemberEpoch"]
    talk.share_beat("x", epoch)
    talk.alter_share_offsets({topic: {0: 1}}, ANY)
    talk.delete_share_offsets(topic, expect=ANY)
    talk.share_beat("x", -1)
    talk.alter_share_offsets({topic: {0: 2}})
    talk.share_offsets()


def deleted_offsets(talk: ShareAsking) -> None:
    topic = ready(talk, 2, 5)
    m = talk.member("m")
    m.fetch((topic, 0))
    m.fetch((topic, 1))
    m.acknowledge({(topic, 0): [(0, 2, ACCEPT)], (topic, 1): [(1, 1, ACCEPT)]})
    m.close(releases=2)
    m.hang_up()
    talk.share_offsets()
    talk.delete_share_offsets("t3", expect=ANY)
    talk.delete_share_offsets("nothing", expect=ANY)
    talk.delete_share_offsets(topic, "t3", "nothing", expect=ANY)
    talk.share_offsets()
    talk.share_describe()
    talk.delete_share_offsets(topic, expect=ANY)
    again = talk.member("again")
    again.fetch((topic, 0), wait=1500)
    talk.subscribe(topic)
    talk.share_offsets()
    again.epoch = 0
    again.fetch((topic, 0), wait=1500)
    talk.delete(ANY)


def deleted_group(talk: ShareAsking) -> None:
    """A group is deleted with the state of its partitions, and begins anew."""
    topic = ready(talk, 2, 5)
    m = talk.member("m")
    m.fetch((topic, 0))
    m.acknowledge({(topic, 0): [(0, 2, ACCEPT)]})
    m.acknowledge({(topic, 0): [(3, 4, RELEASE)]})
    m.hang_up()
    talk.delete()
    talk.share_offsets(None, ANY)
    talk.share_describe(ANY)
    talk.delete(ANY)
    talk.subscribe(topic)
    again = talk.member("again")
    again.fetch((topic, 0))
    again.acknowledge({(topic, 0): [(0, 4, ACCEPT)]})
    talk.share_offsets()


def deleted_while_held(talk: ShareAsking) -> None:
    """A group is deleted while a member still holds records."""
    topic = ready(talk, 1, 5)
    m = talk.member("m")
    m.fetch((topic, 0))
    m.acknowledge({(topic, 0): [(0, 0, ACCEPT)]})
    talk.delete()
    m.acknowledge({(topic, 0): [(1, 1, ACCEPT)]})
    m.fetch(wait=SOON_MS, expect=ANY)
    talk.share_offsets(None, ANY)


def settings(talk: ShareAsking) -> None:
    """What each setting of a group takes, and how groups are described."""
    talk.share_beat("m", 0, names=["t1"])
    for name, values in SETTINGS:
        for value in values:
            talk.configure(name, value, ANY)
        described(talk)
        talk.configure(name, None, ANY)
    described(talk)
    talk.share_beat("m", -1)


def described(talk: ShareAsking) -> Any:
    asked = {"ResourceType": 32, "ResourceName": talk.group, "ConfigurationKeys": None}

    def settings_of_share(answer: Any) -> Any:
        return [
            [
                (each["Name"], each["Value"], each["ConfigSource"], len(each["Synonyms"]))
                for each in result["Configs"]
                if each["Name"].startswith("share.") and each["Name"] not in own_names("group")
            ]
            for result in answer["Results"]
        ]

    body = {"Resources": [asked], "IncludeSynonyms": True, "IncludeDocumentation": False}
    return talk.pair.ask("DescribeConfigs", 4, body, loosen=settings_of_share)


def intervals(talk: ShareAsking) -> None:
    """The interval that members are told follows the group's settings."""
    epoch = talk.share_beat("m", 0, names=["t1"])["MemberEpoch"]
    epoch = talk.share_beat("m", epoch)["MemberEpoch"]
    talk.configure("share.heartbeat.interval.ms", "7000")
    talk.share_beat("m", epoch)
    talk.configure("share.heartbeat.interval.ms", None)
    talk.share_beat("m", epoch)
    talk.share_beat("m", -1)


def coordinators(talk: ShareAsking) -> None:
    """FindCoordinator with the key of a share-partition, and with keys that are none."""
    keys = (
        f"{talk.group}:<t1>:0",
        f"{talk.group}:<t3>:2",
        f"{talk.group}:<t3>:77",
        "a:b:<t1>:0",
        ":<t1>:0",
        f"{talk.group}:<t1>:",
        f"{talk.group}:<t1>:x",
        f"{talk.group}:<t1>:-1",
        f"{talk.group}:t1:0",
        f"{talk.group}::0",
        f"{talk.group}:<t1>",
        talk.group,
        "",
    )

    def find(key_type: int, keys: list[str], version: int = 6) -> None:
        body = {"KeyType": key_type, "CoordinatorKeys": keys}
        talk.pair.ask("FindCoordinator", version, body, loosen=without_messages)

    for version in (4, 5, 6):
        find(SHARE_KEY_TYPE, [*keys], version)
    for key in keys:
        find(SHARE_KEY_TYPE, [key])
    find(3, [keys[0]])


def without_messages(answer: Any) -> Any:
    """Kafka says nothing of most errors here."""
    found = [each | {"ErrorMessage": None} for each in answer["Coordinators"]]
    return answer | {"Coordinators": found}


# state


def batch(first: int, last: int, state: int, count: int) -> dict[str, int]:
    return {"FirstOffset": first, "LastOffset": last, "DeliveryState": state, "DeliveryCount": count}


def written(
    start: int, *batches: dict[str, int], state_epoch: int = 0, leader_epoch: int = 0
) -> dict[str, Any]:
    return {
        "StateEpoch": state_epoch,
        "LeaderEpoch": leader_epoch,
        "StartOffset": start,
        "StateBatches": [*batches],
    }


def states_by_hand(talk: ShareAsking) -> None:
    """What a leader may ask of the share coordinator, and what it is refused.

    Not sent are batches that end before they begin: Kafka writes them, and kafkacompat refuses them.
    """
    place, other, unknown, absent = ("t1", 0), ("t3", 1), ("nothing", 0), ("t1", 7)
    for each in (place, unknown, absent):
        talk.state("Read", {each: {"LeaderEpoch": 0}})
        for version in (0, 1):
            talk.state("Summary", {each: {"LeaderEpoch": 0}}, version)
        talk.state("Write", {each: written(0)}, 1)
        talk.state("Delete", {each: {}})
    talk.state("Initialize", {unknown: {"StateEpoch": 0, "StartOffset": 0}})
    talk.state("Initialize", {absent: {"StateEpoch": 0, "StartOffset": 0}})
    talk.state(
        "Initialize",
        {place: {"StateEpoch": 2, "StartOffset": 5}, other: {"StateEpoch": 0, "StartOffset": -1}},
    )
    talk.state("Initialize", {place: {"StateEpoch": 1, "StartOffset": 5}})
    talk.state("Initialize", {place: {"StateEpoch": 2, "StartOffset": 6}})
    talk.state("Read", {place: {"LeaderEpoch": -1}, other: {"LeaderEpoch": 0}})
    talk.state("Read", {place: {"LeaderEpoch": 3}})
    talk.state("Read", {place: {"LeaderEpoch": 3}})
    talk.state("Read", {place: {"LeaderEpoch": 2}})
    talk.state("Read", {place: {"LeaderEpoch": -1}})
    for version in (0, 1):
        for leader_epoch in (-1, 2, 3, 4):
            talk.state("Summary", {place: {"LeaderEpoch": leader_epoch}}, version)
    talk.state("Write", {place: written(6, state_epoch=1, leader_epoch=3)})
    talk.state("Write", {place: written(6, state_epoch=2, leader_epoch=2)})
    talk.state("Write", {place: written(6, state_epoch=2, leader_epoch=-1)})
    talk.state("Write", {place: written(6, batch(6, 9, 0, 1), state_epoch=2, leader_epoch=3)}, 0)
    talk.state(
        "Write",
        {place: written(6, batch(8, 8, 2, 1), state_epoch=2, leader_epoch=3) | {"DeliveryCompleteCount": 1}},
        1,
    )
    talk.state("Read", {place: {"LeaderEpoch": 3}})
    talk.state("Write", {place: written(-1, batch(6, 6, 4, 2), state_epoch=2, leader_epoch=3)}, 1)
    talk.state("Read", {place: {"LeaderEpoch": 3}})
    talk.state("Summary", {place: {"LeaderEpoch": 3}}, 1)
    talk.state("Write", {place: written(7, batch(4, 5, 2, 1), state_epoch=2, leader_epoch=3)}, 1)
    talk.state(
        "Write",
        {place: written(7, batch(12, 14, 1, 1), batch(13, 20, 2, 3), state_epoch=2, leader_epoch=3)},
        1,
    )
    talk.state("Read", {place: {"LeaderEpoch": 3}})
    talk.state("Write", {place: written(7, batch(12, 14, 9, 1), state_epoch=2, leader_epoch=4)}, 1)
    talk.state("Write", {place: written(3, batch(3, 4, 0, 1), state_epoch=2, leader_epoch=4)}, 1)
    talk.state("Write", {place: written(9, state_epoch=5, leader_epoch=4)}, 1)
    talk.state("Read", {place: {"LeaderEpoch": 4}})
    talk.state("Initialize", {place: {"StateEpoch": 6, "StartOffset": 50}})
    talk.state("Read", {place: {"LeaderEpoch": 4}})
    talk.state(
        "Summary", {place: {"LeaderEpoch": 0}, other: {"LeaderEpoch": 0}, unknown: {"LeaderEpoch": 0}}, 1
    )
    talk.state("Delete", {place: {}, other: {}, unknown: {}})
    talk.state("Delete", {place: {}})
    talk.state("Read", {place: {"LeaderEpoch": 4}})
    for what, fields in (
        ("Initialize", {"StateEpoch": 1, "StartOffset": 1}),
        ("Read", {"LeaderEpoch": 0}),
        ("Write", written(1)),
        ("Delete", {}),
        ("Summary", {"LeaderEpoch": 0}),
    ):
        ShareAsking(talk.pair, "").state(what, {place: fields})
        talk.state(what, {("", 0): fields})
        talk.state(what, {("t1", -1): fields})
        talk.state(what, {})


def merged_states(talk: ShareAsking) -> None:
    """Batches of state that overlap, in every way."""
    place = "t1", 0
    talk.state("Initialize", {place: {"StateEpoch": 0, "StartOffset": 0}})
    writes = (
        written(0, batch(100, 110, 0, 1)),
        written(0, batch(100, 110, 0, 1)),
        written(0, batch(105, 115, 0, 1)),
        written(0, batch(90, 104, 0, 2)),
        written(0, batch(108, 109, 2, 1)),
        written(0, batch(95, 120, 0, 1)),
        written(0, batch(95, 95, 4, 3), batch(96, 97, 4, 3), batch(98, 99, 2, 2)),
        written(0, batch(111, 130, 2, 5), batch(0, 10, 0, 1), batch(11, 20, 0, 1)),
        written(97, batch(97, 103, 4, 5)),
        written(97, batch(104, 104, 4, 5), batch(140, 150, 1, 1)),
        written(-1, batch(141, 145, 0, 2), batch(143, 149, 2, 1), batch(144, 144, 4, 9)),
        written(142),
        written(1000),
    )
    for each in writes:
        talk.state("Write", {place: each}, 1)
        talk.state("Read", {place: {"LeaderEpoch": 0}})
    talk.state("Delete", {place: {}})


def snapshots(talk: ShareAsking) -> None:
    """A snapshot follows after so many updates."""
    place = "t1", 0
    talk.state("Initialize", {place: {"StateEpoch": 0, "StartOffset": 0}})
    for number in range(UPDATES_PER_SNAPSHOT + 5):
        talk.state("Write", {place: written(number, batch(number, number + number % 7, 0, 1))}, 1)
    talk.state("Read", {place: {"LeaderEpoch": 1}})
    talk.state("Delete", {place: {}})


ADMINISTRATION = (
    offsets_of_nothing,
    altered_offsets,
    deleted_offsets,
    deleted_group,
    deleted_while_held,
    settings,
    intervals,
    coordinators,
    states_by_hand,
    merged_states,
    snapshots,
)
