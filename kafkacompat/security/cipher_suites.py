"""Names of cipher suites: the standard names, used by Java and Kafka's settings, and OpenSSL's names.

Pure. For TLS 1.3 both are equal. Whether OpenSSL supports a name is found out by asking OpenSSL.
"""

from __future__ import annotations

NO_SUITE = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
"""Java lists this among the suites. It is a signal to the peer, which OpenSSL always sends."""
_WITH = "_WITH_"
_PREFIXES = ("TLS_", "SSL_")


def is_tls13(name: str) -> bool:
    return name.startswith("TLS_") and _WITH not in name and name != NO_SUITE


def openssl_name(name: str) -> str | None:
    """The OpenSSL name of a suite up to TLS 1.2: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256.
    None for other forms."""
    exchange, found, cipher = name.partition(_WITH)
    if not found or exchange[:4] not in _PREFIXES:
        return None
    words = cipher.split("_")
    if words[0] == "AES" and len(words) > 1:
        words[:2] = ["AES" + words[1]]
    # OpenSSL's names omit the mode only if it is CBC, and the digest of ChaCha20.
    words = [word for word in words if word != "CBC"]
    if words[0] == "CHACHA20":
        words = words[:2]
    keys = [] if exchange[4:] == "RSA" else exchange[4:].split("_")
    return "-".join(keys + words)
