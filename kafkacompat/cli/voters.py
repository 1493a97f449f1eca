"""Add and remove voters of the metadata quorum, unregister brokers and controllers.
KIP-853, KIP-631.

This module knows the protocol. It does not know that a node is a process.
"""

from __future__ import annotations

import time

from kafkacompat.cli.view import Quorum, QuorumRefused, brokers_of, quorum_of
from kafkacompat.client.blocking import Cluster
from kafkacompat.client.brokers import check
from kafkacompat.failure import CommandFailed
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from kafkacompat.wire.messages.add_raft_voter_response import AddRaftVoterResponse
from kafkacompat.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from kafkacompat.wire.messages.remove_raft_voter_response import RemoveRaftVoterResponse
from kafkacompat.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from kafkacompat.wire.messages.unregister_broker_response import UnregisterBrokerResponse
from kafkacompat.wire.messages.unregister_controller_request import UnregisterControllerRequest
from kafkacompat.wire.messages.unregister_controller_response import UnregisterControllerResponse

ANSWER_TIMEOUT_S = 35.0
LOOK_TIMEOUT_S = 5.0
CHANGE_TIMEOUT_S = 60.0
CHANGE_TIMEOUT_MS = 30_000
RETRY_PAUSE_S = 0.3
RETRIABLE = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def quorum_now(bootstrap: ClusterAddress) -> Quorum:
    """Return the quorum. Waits while a controller is being elected, then raises CommandFailed. Raises QuorumRefused at once."""
    deadline = time.monotonic() + CHANGE_TIMEOUT_S
    while True:
        try:
            with Cluster(bootstrap, LOOK_TIMEOUT_S) as cluster:
                found = quorum_told(cluster)
        except QuorumRefused:
            raise
        except CommandFailed:
            if time.monotonic() > deadline:
                raise
        else:
            if found is not None:
                return found
        if time.monotonic() > deadline:
            raise CommandFailed("there is no active controller")
        time.sleep(RETRY_PAUSE_S)


def quorum_told(cluster: Cluster) -> Quorum | None:
    """The quorum, from the first broker that tells it. None while none does. A broker that does not find the active
    controller does not answer, for example after its node gave up its vote. Raises QuorumRefused."""
    for node_id in cluster.node_ids():
        try:
            found = quorum_of(cluster.node(node_id))
        except QuorumRefused:
            raise
        except CommandFailed:
            continue
        if found is not None:
            return found
    return None


def add_voter(bootstrap: ClusterAddress, node_id: int, host: str, port: int) -> bytes:
    """Make an observing controller a voter and return its directory id. Raises CommandFailed if that is not possible."""
    deadline = time.monotonic() + CHANGE_TIMEOUT_S
    while True:
        quorum = quorum_now(bootstrap)
        if node_id in quorum.voters:
            return quorum.voters[node_id]
        if node_id in quorum.observers:
            directory_id = quorum.observers[node_id]
            with Cluster(bootstrap, ANSWER_TIMEOUT_S) as cluster:
                request = AddRaftVoterRequest(
                    cluster_id=brokers_of(cluster.any())[0],
                    timeout_ms=CHANGE_TIMEOUT_MS,
                    voter_id=node_id,
                    voter_directory_id=directory_id,
                    listeners=[Listener(name=quorum.listener, host=host, port=port)],
                )
                answer = cluster.any().call(request, AddRaftVoterResponse, timeout_s=ANSWER_TIMEOUT_S)
            if answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER):
                return directory_id
            if answer.error_code not in RETRIABLE or time.monotonic() > deadline:
                check(answer.error_code, f"node {node_id} as a voter", answer.error_message)
        if time.monotonic() > deadline:
            raise CommandFailed(f"controller {node_id} does not follow the quorum")
        time.sleep(RETRY_PAUSE_S)


def remove_voter(bootstrap: ClusterAddress, node_id: int) -> bool:
    """Return whether it was a voter. Raises CommandFailed if it is the last voter, or if there is no majority."""
    deadline = time.monotonic() + CHANGE_TIMEOUT_S
    was_voter = False
    while True:
        quorum = quorum_now(bootstrap)
        if node_id not in quorum.voters:
            return was_voter
        if len(quorum.voters) == 1:
            raise CommandFailed(f"node {node_id} is the only voter of the quorum; add a controller first")
        was_voter = True
        code: int = ErrorCode.REQUEST_TIMED_OUT
        message: str | None = None
        try:
            with Cluster(bootstrap, ANSWER_TIMEOUT_S) as cluster:
                request = RemoveRaftVoterRequest(
                    cluster_id=brokers_of(cluster.any())[0],
                    voter_id=node_id,
                    voter_directory_id=quorum.voters[node_id],
                )
                answer = cluster.any().call(request, RemoveRaftVoterResponse, timeout_s=ANSWER_TIMEOUT_S)
                code, message = answer.error_code, answer.error_message
        except CommandFailed as failure:
            # A leader that removes itself may stop before it answers. The next look at the quorum shows the result.
            message = str(failure)
        if code not in (ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND):
            if code not in RETRIABLE or time.monotonic() > deadline:
                check(code, f"node {node_id} as a voter", message)
            time.sleep(RETRY_PAUSE_S)
        elif time.monotonic() > deadline:
            raise CommandFailed(f"node {node_id} is still a voter")


def unregister_controller(cluster: Cluster, node_id: int) -> bool:
    """Return whether the controller was registered. Raises CommandFailed if the active controller refuses."""
    answer = cluster.any().call(
        UnregisterControllerRequest(controller_id=node_id), UnregisterControllerResponse
    )
    if answer.error_code == ErrorCode.CONTROLLER_ID_NOT_REGISTERED:
        return False
    check(answer.error_code, f"unregistration of controller {node_id}", answer.error_message)
    return True


def unregister_broker(cluster: Cluster, node_id: int) -> bool:
    """Return whether the broker was registered. Raises CommandFailed if the controller refuses."""
    answer = cluster.any().call(UnregisterBrokerRequest(broker_id=node_id), UnregisterBrokerResponse)
    if answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED:
        return False
    check(answer.error_code, f"unregistration of broker {node_id}", answer.error_message)
    return True
