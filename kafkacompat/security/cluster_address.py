"""The address of a cluster and how to connect to it: credentials and encryption, by Kafka's client properties.

It provides the settings for our own client, for librdkafka and for Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from kafkacompat.config import ConfigError, load_properties, resolved
from kafkacompat.dataclass import dataclass
from kafkacompat.security.sasl_client import NO_SECURITY, ClientSecurity

DEFAULT_SERVERS = "127.0.0.1:9092"


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    servers: str = DEFAULT_SERVERS
    """'host:port[,host:port...]': the bootstrap brokers."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Properties of a Kafka client. They may contain passwords."""

    def __str__(self) -> str:
        return self.servers

    @classmethod
    def of_file(cls, servers: str, path: str | None, option: str = "--command-config") -> ClusterAddress:
        """With the properties of a file, which are checked. `option` has named it. Raises ConfigError with the setting, but
        without secrets."""
        if path is None:
            return cls(servers)
        try:
            address = cls(servers, resolved(load_properties(path)))
            address.security()
        except OSError as error:
            text = f"cannot read the file {path} of {option}: {error.strerror}"
            raise ConfigError(option, path, text, whole=True) from None
        except ConfigError as error:
            raise ConfigError(error.setting, None, f"{path}: {error}", whole=True) from None
        return address

    def security(self) -> ClientSecurity:
        """Raises ConfigError."""
        if not self.properties:
            return NO_SECURITY
        from kafkacompat.security.client_settings import security_of_client

        return security_of_client(self.properties)

    def librdkafka(self) -> dict[str, str]:
        """The settings of a librdkafka client besides its own. They contain secrets. Raises ConfigError."""
        settings = {"bootstrap.servers": self.servers}
        if self.properties:
            from kafkacompat.security.librdkafka import librdkafka_settings

            settings |= librdkafka_settings(self.properties)
        return settings

    def spark(self) -> dict[str, str]:
        """Options of Spark's source and sink. Their client is Kafka's own, which reads the properties unchanged."""
        options = {f"kafka.{name}": value for name, value in self.properties.items()}
        return options | {"kafka.bootstrap.servers": self.servers}
