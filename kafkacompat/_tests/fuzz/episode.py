"""One episode: a fresh node, some connections, hostile requests one after another, time that passes, and then the judgement.

Ends with a well-behaved client's look, the node's death by kill -9, its start from what it wrote, and that look again.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from kafkacompat.api.registry import CONTROLLER_ENTRIES, ENTRIES

from .author import Author, Request
from .choices import Choices, happens, one_of
from .judge import check_closed, read_answer
from .node import BROKER, CONTROLLER, Finding, FuzzedConnection, FuzzedNode
from .sharing import SHARING_SETTINGS, SharingAuthor
from .watch import Watch
from .witness import Witness

CONNECTIONS = 5
TO_CONTROLLER = 3
"""The number of the connection that is to the controller's listener, in every other episode."""
BUSY_IN_8 = 1
"""Of the cold reads."""
PAUSES_MS = (0, 0, 0, 0, 1, 1, 5, 20, 100, 1_000, 7_000)
QUIET_WITHIN_MS = 200_000
"""What waits by a client's wish is over by then, or waits for another client."""
TOLD = 12
"""Requests before a finding that are told with it."""


@dataclass
class Tally:
    """What episodes did."""

    requests: int = 0
    answers: int = 0
    closed: int = 0
    steps: int = 0
    by_code: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Answers by API and error."""
    slowest: list[tuple[float, str]] = field(default_factory=list)


class Client:
    """A hostile one: one connection, and what it waits for."""

    def __init__(self, connection: FuzzedConnection, number: int, is_controllers: bool) -> None:
        self.connection = connection
        self.number = number
        self.is_controllers = is_controllers
        self.waiting: deque[Request] = deque()


class Episode:
    def __init__(
        self,
        seed: int,
        choices: Choices,
        requests: int,
        tally: Tally,
        watch: Watch | None = None,
        *,
        shares: bool = False,
    ) -> None:
        """`seed` is the node's own chance; all else is chosen. `shares`: by an author who knows share groups."""
        self._choices = choices
        self._requests = requests
        self._tally = tally
        self.node = FuzzedNode(seed, SHARING_SETTINGS) if shares else FuzzedNode(seed)
        self.node.watch = watch
        self._witness = Witness(self.node)
        make_author = SharingAuthor if shares else Author
        self._author = make_author(choices, ENTRIES, CONTROLLER_ENTRIES)
        self._asks_controller = happens(choices, 128)
        self._clients: list[Client] = []
        self._told: deque[str] = deque(maxlen=TOLD)

    def run(self) -> None:
        """Finding for whatever must not be."""
        try:
            with self.node.watched():
                self._run()
        except Finding as finding:
            raise Finding(f"{finding}\nafter\n" + "\n".join(self._told)) from finding
        finally:
            self._tally.steps += self.node.steps
            kept = sorted([*self._tally.slowest, *self.node.slowest.steps], reverse=True)
            self._tally.slowest = kept[:8]

    def _run(self) -> None:
        node, witness, author = self.node, self._witness, self._author
        node.start()
        witness.prepare()
        author.protected_ids |= witness.needed_ids
        author.memory.topics["witnessed"] = witness.topic_id
        witness.look()
        self._check()
        node.reads.is_full_in_8 = BUSY_IN_8
        for _ in range(self._requests):
            if self._choices.is_over:
                break
            self._ask()
        node.reads.is_full_in_8 = 0
        self._settle()
        witness.look()
        self._check()
        node.kill()
        for client in self._clients:
            client.connection.close()
        witness.forget_connection()
        node.start()
        witness.look()
        self._check()

    def _check(self) -> None:
        if self.node.findings:
            raise Finding("\n".join(self.node.findings))

    def _ask(self) -> None:
        choices, node = self._choices, self.node
        client = self._client()
        now_ms = 1_700_000_000_000 + node.scheduler.now_us // 1000
        request = self._author.request(now_ms, to_controller=client.is_controllers)
        self._told.append(str(request))
        node.doing = request.entry.name
        client.waiting.append(request)
        self._tally.requests += 1
        client.connection.send(request.frame)
        node.pass_time(one_of(choices, PAUSES_MS))
        for each in list(self._clients):
            self._take(each)
        if happens(choices, 3):
            client.connection.close()
            if client in self._clients:
                self._clients.remove(client)
        self._check()

    def _client(self) -> Client:
        number = self._choices.below(CONNECTIONS)
        for client in self._clients:
            if client.number == number:
                return client
        is_controllers = self._asks_controller and number == TO_CONTROLLER
        client = Client(self.node.connect(CONTROLLER if is_controllers else BROKER), number, is_controllers)
        self._clients.append(client)
        return client

    def _take(self, client: Client) -> None:
        """The answers that are there."""
        connection = client.connection
        while connection.answers:
            answer = connection.answers.popleft()
            request = client.waiting.popleft()
            while is_silent(request):
                request = client.waiting.popleft()
            self._answered(request, answer)
        if connection.closed_for is not None:
            self._clients.remove(client)
            self._tally.closed += 1
            unanswered = [request for request in client.waiting if not is_silent(request)]
            refused = unanswered[0] if unanswered else client.waiting[0] if client.waiting else None
            # What was sent without a wish for an answer may be what it is closed for.
            if refused is not None and not any(map(is_silent, client.waiting)):
                check_closed(connection.closed_for, refused)

    def _answered(self, request: Request, answer: bytes) -> None:
        self._tally.answers += 1
        response = read_answer(request, answer)
        self._tally.by_code[request.entry.name, first_code(response)] += 1
        self._author.learn(request, response)

    def _settle(self) -> None:
        """Until nobody waits, or for as long as a client may wish to wait; then they all go away."""
        waited = 0
        while waited < QUIET_WITHIN_MS and not all(each.connection.is_quiet for each in self._clients):
            self.node.pass_time(5_000)
            waited += 5_000
            for each in list(self._clients):
                self._take(each)
        for each in list(self._clients):
            each.connection.close()
        self._clients.clear()
        self.node.pass_time(1_000)


def is_silent(request: Request) -> bool:
    """It is not answered when all is well."""
    return request.entry.key == 0 and request.message.acks == 0


def first_code(response: object) -> int:
    """The first error that an answer tells, at whichever level; 0 where it tells none."""
    for name in getattr(response, "__slots__", ()):
        value = getattr(response, name)
        if name in ("error_code", "partition_error_code") and value:
            return int(value)
        if type(value) is list:
            for item in value[:3]:
                code = first_code(item)
                if code:
                    return code
    return 0
