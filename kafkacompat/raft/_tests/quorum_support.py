"""A core in a given role, and short helpers to use it."""

from __future__ import annotations

from typing import Any

from kafkacompat.raft import effects as effect
from kafkacompat.raft import events
from kafkacompat.raft.election_state import ElectionState
from kafkacompat.raft.log_shape import LogShape
from kafkacompat.raft.messages import (
    FetchRequest,
    FetchResponse,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from kafkacompat.raft.quorum import QuorumCore
from kafkacompat.raft.quorum_state import Member, QuorumSettings
from kafkacompat.raft.roles import Role
from kafkacompat.raft.voter_node import VoterNode
from kafkacompat.raft.voter_set import Endpoints, ReplicaKey, VoterSet, VoterSetHistory
from kafkacompat.wire.errors import ErrorCode

NOW_MS = 10_000
NONE = ErrorCode.NONE


def directory(node_id: int) -> bytes:
    return bytes([7, *bytes(14), node_id])


def address(node_id: int) -> Endpoints:
    return (("CONTROLLER", "127.0.0.1", 9000 + node_id),)


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, directory(node_id))


def voter(node_id: int) -> VoterNode:
    return VoterNode(node_id, directory(node_id), address(node_id))


class HalfRandom:
    """Always the middle: an election timeout of 1000 becomes 1500."""

    def randrange(self, stop: int) -> int:
        return stop // 2

    def uuid(self) -> bytes:
        return bytes([9]) * 16


class Node:
    """A core with the effects of its last step, and of all steps. It has only the shape of a log."""

    def __init__(
        self,
        *,
        node_id: int = 1,
        voters: tuple[int, ...] = (1, 2, 3),
        log: LogShape | None = None,
        stored: ElectionState | None = None,
        kraft_version: int = 1,
        high_watermark: int = -1,
        bootstrap: bool = False,
        synced: int | None = None,
    ) -> None:
        """`synced`: the end of the durable part of the log. None: all of it."""
        servers = tuple((-2 - index, address(each)) for index, each in enumerate(voters)) if bootstrap else ()
        member = Member(node_id, directory(node_id), address(node_id), True, "cluster", servers)
        shape = log if log is not None else LogShape()
        shape.durable_end = shape.end if synced is None else synced
        history = VoterSetHistory(VoterSet(voter(each) for each in voters), kraft_version)
        self.core = QuorumCore(member, QuorumSettings(), HalfRandom(), shape, history)
        self.now_ms = NOW_MS
        self.last: list[effect.Effect] = self.core.boot(stored, high_watermark, self.now_ms)
        self._request_id = 0

    def step(self, event: events.Event, after_ms: int = 0) -> list[effect.Effect]:
        self.now_ms += after_ms
        self.last = self.core.step(event, self.now_ms)
        return self.last

    def wait(self) -> list[effect.Effect]:
        """Tick at the time the core asked for."""
        self.now_ms = max(self.now_ms, self.core.wake_ms)
        return self.step(events.Tick())

    def wait_for(self, role: Role) -> None:
        for _ in range(50):
            if self.core.role is role:
                return
            self.wait()
        raise AssertionError(f"still {self.core.role}")

    def ask(self, request: Request) -> Any:
        """The answer, or None while the request is parked."""
        self._request_id += 1
        self.step(events.RequestReceived(self._request_id, request))
        return self.answer_to(self._request_id)

    def answer_to(self, request_id: int) -> Any:
        for each in self.last:
            if isinstance(each, effect.Reply | effect.ReplyWithRecords | effect.ReplyWithSnapshot) and (
                each.request_id == request_id
            ):
                return each.response
        return None

    @property
    def last_request_id(self) -> int:
        return self._request_id

    def sent(self, kind: type | None = None) -> list[effect.Send]:
        return [
            each
            for each in self.last
            if isinstance(each, effect.Send) and (kind is None or isinstance(each.request, kind))
        ]

    def answer(self, sent: effect.Send, response: Response) -> list[effect.Effect]:
        return self.step(events.ResponseReceived(sent.correlation_id, response))

    def effects(self, kind: type) -> list[Any]:
        return [each for each in self.last if isinstance(each, kind)]

    # Ways into a role.

    def become_prospective(self) -> list[effect.Send]:
        self.wait_for(Role.PROSPECTIVE)
        return self.sent(VoteRequest)

    def become_candidate(self) -> list[effect.Send]:
        first, *_ = self.become_prospective()
        self.answer(first, VoteResponse(NONE, self.core.epoch, -1, True))
        assert self.core.role is Role.CANDIDATE
        return self.sent(VoteRequest)

    def become_leader(self) -> None:
        first, *_ = self.become_candidate()
        self.answer(first, VoteResponse(NONE, self.core.epoch, -1, True))
        assert self.core.role is Role.LEADER

    def fetch(self, node_id: int, offset: int, epoch: int | None = None, **changes: Any) -> Any:
        values: dict[str, Any] = {
            "replica": key(node_id),
            "epoch": self.core.epoch,
            "fetch_offset": offset,
            "last_fetched_epoch": self.core.log.epoch_before(offset) if epoch is None else epoch,
            "max_wait_ms": 500,
            "max_bytes": 1000,
            "cluster_id": "cluster",
        }
        return self.ask(FetchRequest(**{**values, **changes}))

    def commit_epoch(self) -> None:
        """The leader's first batch is synced here and on node 2."""
        self.step(events.Synced())
        self.fetch(2, self.core.log.end)
        assert self.core.high_watermark == self.core.log.end

    def empty_answer(self, high_watermark: int = -1, **changes: Any) -> FetchResponse:
        leader_id = self.core.election.leader_id
        response = FetchResponse(NONE, self.core.epoch, leader_id, address(leader_id), high_watermark)
        for name, value in changes.items():
            setattr(response, name, value)
        return response
