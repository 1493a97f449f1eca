"""The answer to ConsumerGroupDescribe (KIP-848): epochs and subscriptions, which the client library does not tell. No sockets."""

from __future__ import annotations

from kafkacompat.console.core.snapshot import MAX_MEMBERS_SHOWN, GroupEpochs, MemberEpoch
from kafkacompat.wire.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse

MEMBER_KINDS = {0: "classic", 1: "consumer"}
"""Version 0 of ConsumerGroupDescribe does not tell the type of a member (-1)."""


def epochs_in(answer: ConsumerGroupDescribeResponse) -> dict[str, GroupEpochs]:
    """Return the groups of a coordinator's answer. Groups with an error are left out."""
    return {
        group.group_id: GroupEpochs(
            group.group_epoch,
            group.assignment_epoch,
            {
                member.member_id: MemberEpoch(
                    member.member_epoch,
                    MEMBER_KINDS.get(member.member_type, ""),
                    tuple(sorted(member.subscribed_topic_names or ())),
                    member.subscribed_topic_regex or "",
                )
                for member in sorted(group.members, key=lambda each: each.member_id)[:MAX_MEMBERS_SHOWN]
            },
        )
        for group in answer.groups
        if group.error_code == 0
    }
