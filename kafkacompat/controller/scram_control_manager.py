"""AlterUserScramCredentials (KIP-554): image and request -> records and response (ScramControlManager).

Pure. The caller has checked the rights. A client sends a salted password. The stored keys cannot be used to
authenticate.
"""

from __future__ import annotations

from collections.abc import Container

from kafkacompat.controller.controller_result import RECORDS_A_STEP, ControllerResult
from kafkacompat.controller.features import metadata_version, scram_supported
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.records import MAX_RECORDS_PER_OPERATION, MetadataRecord
from kafkacompat.security.scram import SCRAM_BY_TYPE
from kafkacompat.tasks import TURN_COST, Work, pieces
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafkacompat.wire.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kafkacompat.wire.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from kafkacompat.wire.messages.user_scram_credential_record import UserScramCredentialRecord

Alteration = ScramCredentialDeletion | ScramCredentialUpsertion

TOLD_A_STEP = 5_000
"""Users whose refusal is made in one step, at about a microsecond."""
TWICE_TEXT = "A user credential cannot be altered twice in the same request"
TOO_OLD_TEXT = "The current metadata.version does not support SCRAM"


class CredentialRefused(Exception):
    """One alteration is refused, with Kafka's error code and a text."""

    def __init__(self, code: ErrorCode, text: str | None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def alter_user_scram_credentials(
    image: MetadataImage, request: AlterUserScramCredentialsRequest
) -> Work[ControllerResult[MetadataRecord, AlterUserScramCredentialsResponse]]:
    """Each user is answered once. A user named twice is not changed, for any mechanisms."""
    records: dict[str, MetadataRecord] = {}
    refused: dict[str, CredentialRefused] = {}
    kept = image.scram_credentials
    is_supported = scram_supported(metadata_version(image.features))
    alterations: list[Alteration] = [*request.deletions, *request.upsertions]
    for piece in pieces(alterations, RECORDS_A_STEP):
        for each in piece:
            if each.name in refused:
                continue
            if records.pop(each.name, None) is not None:
                refused[each.name] = CredentialRefused(ErrorCode.DUPLICATE_RESOURCE, TWICE_TEXT)
                continue
            if not is_supported:
                refused[each.name] = CredentialRefused(ErrorCode.UNSUPPORTED_VERSION, TOO_OLD_TEXT)
                continue
            try:
                records[each.name] = (
                    _deletion(each, kept) if isinstance(each, ScramCredentialDeletion) else _upsertion(each)
                )
            except CredentialRefused as refusal:
                refused[each.name] = refusal
        yield TURN_COST
    if len(records) > MAX_RECORDS_PER_OPERATION:
        too_large = CredentialRefused(ErrorCode.UNKNOWN_SERVER_ERROR, None)
        refused = dict.fromkeys((*records, *refused), too_large)
        records.clear()
    results = [AlterUserScramCredentialsResult(user=user, error_message=None) for user in records]
    for number, (user, reason) in enumerate(refused.items(), 1):
        results.append(
            AlterUserScramCredentialsResult(user=user, error_code=reason.code, error_message=reason.text)
        )
        if number % TOLD_A_STEP == 0:
            yield TURN_COST
    return ControllerResult(tuple(records.values()), AlterUserScramCredentialsResponse(results=results))


def _check(each: Alteration) -> None:
    if not each.name:
        raise CredentialRefused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if each.mechanism not in SCRAM_BY_TYPE:
        raise CredentialRefused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


def _deletion(deletion: ScramCredentialDeletion, kept: Container[tuple[str, int]]) -> MetadataRecord:
    _check(deletion)
    if (deletion.name, deletion.mechanism) not in kept:
        raise CredentialRefused(
            ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        )
    return MetadataRecord(
        RemoveUserScramCredentialRecord(name=deletion.name, mechanism=deletion.mechanism), 0
    )


def _upsertion(upsertion: ScramCredentialUpsertion) -> MetadataRecord:
    _check(upsertion)
    mechanism = SCRAM_BY_TYPE[upsertion.mechanism]
    if upsertion.iterations < mechanism.min_iterations:
        raise CredentialRefused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if upsertion.iterations > mechanism.max_iterations:
        raise CredentialRefused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not upsertion.salted_password:
        # Java's HMAC allows no empty key, and Kafka answers that like an internal error.
        raise CredentialRefused(ErrorCode.UNKNOWN_SERVER_ERROR, None)
    salt = bytes(upsertion.salt)
    credential = mechanism.credential(salt, bytes(upsertion.salted_password), upsertion.iterations)
    record = UserScramCredentialRecord(
        name=upsertion.name,
        mechanism=upsertion.mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )
    return MetadataRecord(record, 0)
