"""A network of namespaces on one machine. Each node has its own address, and packets from one node to another can be
lost.

Packets are lost silently, as with a broken cable: the sender's neighbour table gets an Ethernet address that no host
has. So its packets to one other node are lost, while packets in the other direction still arrive. Needs root.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from dataclasses import dataclass

from interop_tests.cluster.clusters import Place
from interop_tests.harness.kafka_jars import MissingTool, require_program
from interop_tests.harness.ports import WORKER, WORKERS, turn

NOBODYS_ADDRESS = "02:00:00:00:de:ad"
COMMAND_TIMEOUT_S = 30.0
# The network numbers of this worker. Two workers could otherwise choose the same free number.
SUBNETS = range(201 + turn(WORKER, WORKERS), 250, WORKERS)


def ip(*words: str) -> str:
    """Run the ip command. RuntimeError with its output if it fails."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@dataclass(frozen=True)
class Host:
    """A namespace with one interface."""

    number: int
    namespace: str
    address: str
    ethernet: str

    @property
    def place(self) -> Place:
        return Place(self.address, ("ip", "netns", "exec", self.namespace))


class Network:
    """A number of hosts and this process on one bridge. `close` removes everything."""

    def __init__(self, hosts: int) -> None:
        require_program("ip")
        if os.geteuid() != 0:
            raise MissingTool("network namespaces need root's rights")
        self._name = "kc" + uuid.uuid4().hex[:6]
        self._bridge = f"{self._name}b"
        self.hosts: dict[int, Host] = {}
        try:
            self._make_bridge()
            for number in range(1, hosts + 1):
                self._make_host(number)
        except RuntimeError as error:
            self.close()
            raise MissingTool(f"network namespaces are not to be had: {error}") from error
        except BaseException:
            self.close()
            raise

    def lose(self, sender: int, *receivers: int) -> None:
        """From now on no packet from the sender reaches the receivers. Packets in the other direction still arrive."""
        for receiver in receivers:
            self._believe(sender, receiver, NOBODYS_ADDRESS)

    def separate(self, one: int, *others: int) -> None:
        """No packets pass between this node and the others, in both directions. Clients can reach all nodes."""
        self.lose(one, *others)
        for other in others:
            self.lose(other, one)

    def heal(self) -> None:
        """All packets arrive again."""
        for sender in self.hosts:
            for receiver, host in self.hosts.items():
                if sender != receiver:
                    self._believe(sender, receiver, host.ethernet)

    def close(self) -> None:
        for host in self.hosts.values():
            subprocess.run(["ip", "netns", "del", host.namespace], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True, check=False)
        self.hosts.clear()

    def _believe(self, sender: int, receiver: int, ethernet: str) -> None:
        namespace, address = self.hosts[sender].namespace, self.hosts[receiver].address
        ip(
            "-n",
            namespace,
            "neigh",
            "replace",
            address,
            "dev",
            "eth0",
            "lladdr",
            ethernet,
            "nud",
            "permanent",
        )

    def _make_bridge(self) -> None:
        routes = ip("route")
        self._subnet = next(f"10.{each}.77" for each in SUBNETS if f"10.{each}.77." not in routes)
        ip("link", "add", self._bridge, "type", "bridge")
        ip("addr", "add", f"{self._subnet}.254/24", "dev", self._bridge)
        ip("link", "set", self._bridge, "up")

    def _make_host(self, number: int) -> None:
        host = Host(
            number, f"{self._name}n{number}", f"{self._subnet}.{number}", f"02:00:00:00:77:{number:02x}"
        )
        outside = f"{self._name}v{number}"
        ip("netns", "add", host.namespace)
        self.hosts[number] = host
        ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
        ip("-n", host.namespace, "link", "set", "eth0", "address", host.ethernet)
        ip("link", "set", outside, "master", self._bridge, "up")
        ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
        ip("-n", host.namespace, "link", "set", "lo", "up")
        ip("-n", host.namespace, "link", "set", "eth0", "up")
