"""ControllerRegistration v0: a controller tells where it is reached and what it can do."""

from __future__ import annotations

from moldau.metadata.controller.decision import Decision
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ControllerEndpoint, ControllerFeature, RegisterControllerRecord
from moldau.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)


def decide_controller_registration(
    image: MetadataImage, ask: ControllerRegistrationRequest
) -> Decision[ControllerRegistrationResponse]:
    """Each process registers once; a second time with nothing new is no record."""
    record = RegisterControllerRecord(
        controller_id=ask.controller_id,
        incarnation_id=ask.incarnation_id,
        end_points=[
            ControllerEndpoint(each.name, each.host, each.port, each.security_protocol) for each in ask.listeners
        ],
        features=[
            ControllerFeature(each.name, each.min_supported_version, each.max_supported_version)
            for each in ask.features
        ],
    )
    known = image.controllers.get(ask.controller_id)
    is_known = known is not None and known.incarnation_id == ask.incarnation_id
    return Decision(ControllerRegistrationResponse(error_message=None), () if is_known else (record,))
