"""A principal as one node sends it to another, in the form of Kafka's serializer: an int16 version, then the data.

WireError for malformed bytes.
"""

from struct import Struct as Layout
from struct import error as LayoutError

from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.messages.default_principal_data import DefaultPrincipalData
from kafkacompat.wire.primitives import ByteSequence

VERSION = Layout(">h")


def encode_principal(data: DefaultPrincipalData) -> bytes:
    version = DefaultPrincipalData.MAX_VERSION
    return VERSION.pack(version) + encode(data, version)


def decode_principal(raw: ByteSequence) -> DefaultPrincipalData:
    """Return the principal. Also raises WireError for an unknown version."""
    try:
        version: int = VERSION.unpack_from(raw)[0]
    except LayoutError:
        raise WireError("a principal without its version") from None
    if not DefaultPrincipalData.MIN_VERSION <= version <= DefaultPrincipalData.MAX_VERSION:
        raise WireError(f"a principal in version {version}")
    return decode(DefaultPrincipalData, version, raw, VERSION.size)
