"""The settings of N brokers that run on one machine as one: derived from one file of settings.

The first broker is the node of the file. Each further one has the next node id and the next ports, is a broker only, and
has directories of its own. Pure: the machine's facts and the folder are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kafkacompat.addresses import host_and_port
from kafkacompat.cli.cluster_files import BROKER, HIGHEST_PORT, NODES_MAX, replication_settings
from kafkacompat.cli.settings import BROKERS_SETTING
from kafkacompat.config import ConfigError, EndPoint, ServerConfig, defaults_without_file, parse_voters
from kafkacompat.config.server import AUTO_JOIN, CONTROLLER_BOOTSTRAP_SERVERS

AUTO: Final = "auto"
BROKER_BYTES: Final = 256 * 1024 * 1024
"""Memory for one broker under load. An idle one needs about a fifth of it."""
CONTROLLER_PORT: Final = 10092
"""Of a start without a file: above the ports of the brokers."""
METRICS_PORT, METRICS_HOST = "metrics.listener.port", "metrics.listener.host"
_OF_OTHER_TOPICS: Final = ("default.replication.factor", "min.insync.replicas")
_OF_THE_MACHINE: Final = (BROKERS_SETTING, "log.dir", "broker.id")


def number_of(text: str, processors: int, memory_bytes: int | None) -> int:
    """Return the number of brokers that the setting asks for. `auto` is one for each processor, as far as the memory
    goes. Raises ConfigError."""
    room = NODES_MAX if memory_bytes is None else max(1, memory_bytes // BROKER_BYTES)
    if text.strip() == AUTO:
        return min(processors, room, NODES_MAX)
    if not text.strip().isdecimal() or not 1 <= int(text) <= NODES_MAX:
        raise ConfigError(BROKERS_SETTING, text, f"expected 1 to {NODES_MAX}, or {AUTO}")
    return int(text)


def memory_note(number: int, memory_bytes: int | None) -> str | None:
    """Return what to tell where the memory may be too small, or None."""
    if memory_bytes is None or number * BROKER_BYTES <= memory_bytes:
        return None
    return (
        f"{number} brokers may need {number * BROKER_BYTES >> 20} MiB under load, "
        f"and this process may use {memory_bytes >> 20} MiB"
    )


def defaults() -> dict[str, str]:
    """Return the settings of a start without a file. The number of brokers decides about replicas."""
    made = defaults_without_file(controller_port=CONTROLLER_PORT)
    return {name: value for name, value in made.items() if name not in replication_settings(1)}


def is_whole_cluster(config: ServerConfig) -> bool:
    """Whether the settings know no controller on another machine."""
    controllers = parse_voters(config) or config.get_list(CONTROLLER_BOOTSTRAP_SERVERS)
    return "controller" in config.roles and len(controllers) <= 1


def check(config: ServerConfig) -> None:
    """Raise ConfigError for settings with which a machine cannot have several brokers."""
    if BROKER not in config.roles:
        raise ConfigError(
            BROKERS_SETTING, None, f"{BROKERS_SETTING} needs the role {BROKER} in process.roles", whole=True
        )


def ports_of(config: ServerConfig, number: int) -> list[dict[str, int]]:
    """Return the port of each listener for clients, by name, of each broker. Each takes the next port that no other
    listener has. More brokers do not change the ports of the others. Raises ConfigError."""
    taken = {each.port for each in config.listeners()} | {config.get_int(METRICS_PORT)}
    ports = {each.listener_name: each.port for each in config.broker_listeners()}
    rows = [dict(ports)]
    for place in range(1, number):
        for name, port in ports.items():
            if port == 0:
                continue
            while port in taken:
                port += 1
            if port > HIGHEST_PORT:
                raise ConfigError(
                    "listeners",
                    None,
                    f"listeners leaves no port for broker {config.node_id + place}",
                    whole=True,
                )
            taken.add(port)
            ports[name] = port
        rows.append(dict(ports))
    return rows


def settings_of(
    properties: Mapping[str, str],
    config: ServerConfig,
    place: int,
    number: int,
    *,
    machine: str,
    directories: Callable[[str], str],
) -> dict[str, str]:
    """Return the settings of the broker in this place, 0 for the node of the file.

    `properties` are as in the file, so that secrets stay where a provider of settings finds them. `config` has their
    values. `directories` maps the file's directories to those of this broker.
    """
    found = {name: value for name, value in properties.items() if name not in _OF_THE_MACHINE}
    found |= {"node.id": str(config.node_id + place), "log.dirs": ",".join(map(directories, config.log_dirs))}
    if "metadata.log.dir" in config.originals:
        found["metadata.log.dir"] = directories(config.metadata_log_dir)
    if cordoned := config.get_list("cordoned.log.dirs"):
        found["cordoned.log.dirs"] = ",".join(each if each == "*" else directories(each) for each in cordoned)
    found.setdefault("broker.rack", machine)
    if is_whole_cluster(config):
        for name, value in replication_settings(number).items():
            if name not in _OF_OTHER_TOPICS:
                found.setdefault(name, value)
    if config.get_int(METRICS_PORT) >= 0:
        # One listener of the machine shows the metrics of all brokers.
        found |= {METRICS_PORT: "0", METRICS_HOST: "127.0.0.1"}
    if place > 0:
        found["process.roles"] = BROKER
        found.pop(AUTO_JOIN, None)  # refused without the controller role
        found |= _listeners_of(properties, config, ports_of(config, number)[place])
    return found


def _listeners_of(
    properties: Mapping[str, str], config: ServerConfig, ports: Mapping[str, int]
) -> dict[str, str]:
    own = {each.listener_name: each.port for each in config.broker_listeners()}
    found = {"listeners": _text(config.broker_listeners(), ports)}
    if "advertised.listeners" in properties:
        shifted = {
            each.listener_name: each.port + ports[each.listener_name] - own[each.listener_name]
            for each in config.advertised_broker_listeners()
        }
        found["advertised.listeners"] = _text(config.advertised_broker_listeners(), shifted)
    return found


def _text(endpoints: Sequence[EndPoint], ports: Mapping[str, int]) -> str:
    return ",".join(
        f"{each.listener_name}://{host_and_port(each.host, ports[each.listener_name])}" for each in endpoints
    )
