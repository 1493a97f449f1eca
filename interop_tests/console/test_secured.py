"""A console of a cluster that requires TLS and a login shows all that another one shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from interop_tests.cli.command import output_of
from interop_tests.console.process import ConsoleProcess
from interop_tests.harness.broker import chosen_kind
from interop_tests.security.secured import secured

GROUP, TOPIC = "queue", "jobs"


def test_share_groups_and_sizes_are_seen_through_tls_and_a_login(
    make_console: Callable[..., ConsoleProcess], tmp_path: Path
) -> None:
    """The client library knows neither: the console asks for them over connections of its own."""
    with secured(tmp_path, chosen_kind()) as node:
        properties = tmp_path / "client.properties"
        options = node.java_options("SCRAM-SHA-256")
        properties.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
        how = ("--command-config", str(properties))
        command = ("--bootstrap", node.address, *how)
        output_of("topics", "create", TOPIC, "--partitions", "1", *command)
        output_of("produce", TOPIC, *command, stdin=b"one\ntwo\n")
        output_of("consume", TOPIC, *command, "--share", GROUP, "--from-beginning", "--until-end")
        console = make_console(node.address, *how)

        def complete(view: dict[str, Any]) -> bool:
            cluster = view["cluster"]
            return (
                cluster is not None
                and [group["group"] for group in cluster["groups"] if group["kind"] == "share"] == [GROUP]
                and all(row["latest"] == 2 for group in cluster["groups"] for row in group["partitions"])
                and all(each["size_bytes"] for each in cluster["nodes"])
            )

        cluster = console.wait_for("/api/cluster", complete, timeout_s=60.0)["cluster"]
        assert (cluster["share_groups_error"], cluster["sizes_error"]) == (None, None)
        (group,) = [each for each in cluster["groups"] if each["kind"] == "share"]
        (row,) = group["partitions"]
        assert (row["topic"], row["latest"], row["lag"]) == (TOPIC, 2, 0)
