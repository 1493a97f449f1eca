"""Rules of sasl.kerberos.principal.to.local.rules, and what principals they name, for tests of ours and of Kafka's class."""

from __future__ import annotations

REALM = "REALM.TEST"
"""The default realm."""
_HADOOP = [
    r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g",
    "RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g",
    "DEFAULT",
]
NAMED: list[tuple[list[str], str, str]] = [
    (["DEFAULT"], f"alice@{REALM}", "alice"),
    (["DEFAULT"], f"kafka/host.example@{REALM}", "kafka"),
    (["DEFAULT"], "alice", "alice"),
    (["DEFAULT"], "a/b", "a/b"),
    (["DEFAULT"], f"@{REALM}", ""),
    (_HADOOP, f"App.service-name/example.com@{REALM}", "service-name"),
    (_HADOOP, f"App.service-name@{REALM}", "service-name"),
    (_HADOOP, f"user/example.com@{REALM}", "user"),
    (["RULE:[1:$1]"], "alice@OTHER.TEST", "alice"),
    (["RULE:[1:$1@$0](.*@OTHER.TEST)s/@.*//"], "alice@OTHER.TEST", "alice"),
    (["RULE:[2:$1-$2]"], "kafka/host@OTHER.TEST", "kafka-host"),
    (["RULE:[2:$2](h.*)", "RULE:[2:$1]"], "kafka/host@OTHER.TEST", "host"),
    (["RULE:[2:$2](x.*)", "RULE:[2:$1]"], "kafka/host@OTHER.TEST", "kafka"),
    (["RULE:[1:$1]/L"], "Alice@OTHER.TEST", "alice"),
    (["RULE:[1:$1]L"], "Alice@OTHER.TEST", "alice"),
    (["RULE:[1:$1](Al.*)/U"], "Alice@OTHER.TEST", "ALICE"),
    (["RULE:[1:$1]s/A/B/U"], "Alice@OTHER.TEST", "BLICE"),
    (["RULE:[1:$1]s/a/-/"], "banana@OTHER.TEST", "b-nana"),
    (["RULE:[1:$1]s/a/-/g"], "banana@OTHER.TEST", "b-n-n-"),
    (["RULE:[1:$1]s/a/-/g/L"], "bANaNa@OTHER.TEST", "ban-n-"),
    (["RULE:[1:$1](.*)s/(b)(a)/$2$1/"], "banana@OTHER.TEST", "abnana"),
    (["RULE:[1:$1](.*)s/x*/-/g"], "ab@OTHER.TEST", "-a-b-"),
    (["RULE:[1:user]"], "alice@OTHER.TEST", "user"),
    (["RULE:[1:$1$1]"], "al@OTHER.TEST", "alal"),
    (["RULE:[1:]"], "alice@OTHER.TEST", ""),
    (["RULE:[1:$1](.*)s///"], "alice@OTHER.TEST", "alice"),
    (["RULE:[1:$01]"], "alice@OTHER.TEST", "alice"),
    (["RULE:[01:$1]"], "alice@OTHER.TEST", "alice"),
    (["RULE:[1:$1](.*)s/a/\\$/"], "alice@OTHER.TEST", "$lice"),
]
NAMELESS: list[tuple[list[str], str]] = [
    (["DEFAULT"], "alice@OTHER.TEST"),
    (["RULE:[2:$1]"], f"alice@{REALM}"),
    (["RULE:[1:$1]"], f"kafka/host@{REALM}"),
    (["RULE:[1:$1@$0]"], f"alice@{REALM}"),
    (["RULE:[1:$1@$0]", "DEFAULT"], f"alice@{REALM}"),
    (["RULE:[2:$1/$2]"], f"kafka/host@{REALM}"),
    (["RULE:[1:$2]"], f"alice@{REALM}"),
    (["RULE:[1:$]"], f"alice@{REALM}"),
    (["RULE:[1:$1](bob)"], f"alice@{REALM}"),
    (["DEFAULT"], f"a/b/c@{REALM}"),
    (["DEFAULT"], f"a@b@{REALM}"),
    (["RULE:[0:x]"], f"alice@{REALM}"),
    (["RULE:[3:x]"], f"kafka/host@{REALM}"),
]
INVALID = (
    "default",
    "",
    "RULE",
    "RULE:[1:$1",
    "RULE:[:$1]",
    "RULE:[99999999999:$1]",
    "RULE:[1:$1](.*",
    "RULE:[1:$1](*)",
    "RULE:[1:$1](.*)s/a/b",
    "RULE:[1:$1](.*)s/(/b/",
    "RULE:[1:$1]/X",
    "RULE:[1:$1]//L",
    "RULE:[1:$1]LU",
    "DEFAULTS",
    " DEFAULT",
)
