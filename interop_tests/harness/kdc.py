"""A real key distribution center of MIT Kerberos on loopback, with its own realm, database and keytabs in one folder.

`libraries` says what is missing: the programs of Debian's krb5-kdc, krb5-admin-server and krb5-user, and Python's gssapi.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from interop_tests.harness.kafka_jars import MissingTool
from interop_tests.harness.ports import free_port
from interop_tests.harness.waiting import wait_until

REALM = "REALM.TEST"
HOST = "localhost"
SYSTEM_PROGRAMS = "/usr/sbin:/sbin"
"""Where Debian puts the server's programs; they are not on everybody's PATH."""
COMMAND_S = 60.0


def program(name: str) -> str:
    """Raises MissingTool."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PROGRAMS}")
    if path is None:
        raise MissingTool(f"{name} is missing: make kerberos (apt-get install krb5-kdc krb5-admin-server)")
    return path


def require_library() -> None:
    """Raises MissingTool without the extra kafkacompat[gssapi]."""
    if importlib.util.find_spec("gssapi") is None:
        raise MissingTool("Python's gssapi is missing: make kerberos (pip install kafkacompat[gssapi])")


def require_cyrus_module() -> None:
    """Raises MissingTool if Cyrus SASL, which Debian's librdkafka uses, has no GSSAPI."""
    if not any(Path("/usr/lib").glob("*/sasl2/libgssapiv2.so")):
        raise MissingTool(
            "Cyrus SASL has no GSSAPI: make kerberos (apt-get install libsasl2-modules-gssapi-mit)"
        )


class Kdc:
    """`start` it, and `kill` it at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.config = folder / "krb5.conf"
        self.config.write_text(
            "[libdefaults]\n"
            f"  default_realm = {REALM}\n"
            "  dns_lookup_kdc = false\n  dns_lookup_realm = false\n"
            "  dns_canonicalize_hostname = false\n  rdns = false\n"
            "  udp_preference_limit = 1\n"
            f"[realms]\n  {REALM} = {{\n    kdc = 127.0.0.1:{self.port}\n  }}\n"
            f"[domain_realm]\n  {HOST} = {REALM}\n"
        )
        self.environment = {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5RCACHEDIR": str(folder),
            "KRB5CCNAME": f"FILE:{folder / 'tickets'}",
        }
        """For processes that use the realm. Java takes `java_option` instead."""
        self.java_option = f"-Djava.security.krb5.conf={self.config}"
        (folder / "kdc.conf").write_text(
            "[kdcdefaults]\n"
            f"  kdc_listen = 127.0.0.1:{self.port}\n  kdc_tcp_listen = 127.0.0.1:{self.port}\n"
            f"[realms]\n  {REALM} = {{\n"
            f"    database_name = {folder / 'principals'}\n"
            f"    key_stash_file = {folder / 'stash'}\n"
            f"    acl_file = {folder / 'acl'}\n"
            "    supported_enctypes = aes256-cts-hmac-sha1-96:normal\n"
            "  }\n"
            f"[logging]\n  kdc = FILE:{folder / 'kdc.log'}\n"
        )

    def start(self, principals: Sequence[str]) -> Kdc:
        """Create the realm with these principals, and serve it."""
        self._run([program("kdb5_util"), "create", "-s", "-r", REALM, "-P", "master key of a test"])
        commands = [f"addprinc -randkey {each}" for each in principals]
        commands += [f"ktadd -norandkey -k {self.keytab(each)} {each}" for each in principals]
        told = self._run([program("kadmin.local"), "-r", REALM], "\n".join(commands) + "\n")
        missing = [each for each in principals if not self.keytab(each).exists()]
        assert not missing, f"no keytab for {missing}:\n{told}"
        self.serve()
        return self

    def serve(self) -> None:
        with open(self.folder / "kdc.out", "ab") as out:
            command = [program("krb5kdc"), "-n", "-r", REALM]
            self.process = subprocess.Popen(
                command, env=os.environ | self.environment, stdout=out, stderr=out
            )
        try:
            wait_until(self._answers, "the key distribution center listens")
        except BaseException:
            self.kill()
            raise

    def keytab(self, principal: str) -> Path:
        return self.folder / f"{principal.replace('/', '-')}.keytab"

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(COMMAND_S)
            self.process = None

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "kdc.out").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _run(self, command: list[str], given: str = "") -> str:
        done = subprocess.run(
            command,
            input=given,
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr
