"""UpdateFeatures with both kinds of levels: those in metadata records, and kraft.version, which the quorum writes to
its own records.

The quorum is asked first, so that all levels change or none. The answer waits for both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.controller.feature_updates import refused_update, update_features, wanted_kraft_version
from kafkacompat.controller.result import ControllerResult
from kafkacompat.deferred import Deferred
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.controller.metadata_machine import MetadataMachine
    from kafkacompat.controller.settings import ControllerSettings
    from kafkacompat.raft.quorum_driver import QuorumDriver
    from kafkacompat.wire.messages.update_features_request import UpdateFeaturesRequest
    from kafkacompat.wire.messages.update_features_response import UpdateFeaturesResponse


def update_features_and_kraft_version(
    image: MetadataImage,
    settings: ControllerSettings,
    machine: MetadataMachine,
    driver: QuorumDriver,
    request: UpdateFeaturesRequest,
    *,
    with_results: bool,
) -> Deferred[UpdateFeaturesResponse]:
    """Run on the active controller with its newest image."""
    result = update_features(image, settings, list(driver.voters.ids), request, with_results=with_results)
    level = wanted_kraft_version(image, request)
    if result.response.error_code != ErrorCode.NONE or level is None:
        return machine.submit(result)
    refusal = driver.kraft_version_refusal
    if refusal != ErrorCode.NONE:
        # Before anything is written, so that all levels change or none.
        reason = f"kraft.version cannot be raised to {level} now: not all of the voters are ready for it"
        return machine.submit(ControllerResult((), refused_update(refusal, reason)))
    if request.validate_only:
        return machine.submit(result)
    answer: Deferred[UpdateFeaturesResponse] = Deferred()

    def raised(code: int) -> None:
        if code == ErrorCode.NONE:
            machine.take_kraft_version(level)
        else:
            result.response.error_code = code
        answer.resolve(result.response)

    if result.records:
        machine.append(result.records)
    driver.upgrade_kraft_version(raised)
    return answer
