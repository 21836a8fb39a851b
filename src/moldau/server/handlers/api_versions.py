"""ApiVersions v0–4. Lists the APIs that are served; a client sends it first.

An unknown version is answered in the format of v0 with UNSUPPORTED_VERSION and our range (KIP-511).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from moldau.base.errors import ErrorCode
from moldau.metadata.controller.features import SUPPORTED
from moldau.metadata.current import CurrentImage
from moldau.server.client_software import ClientSoftware
from moldau.server.handler import Caller, Handler
from moldau.wire.apis import ApiKey
from moldau.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_CLIENT_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

KRAFT_VERSION = "kraft.version"
KRAFT_VERSIONS = (0, 1)
"""The quorum's own feature: stored in its log, not in the image. From 1 on voters can be added and removed
(KIP-853)."""
FEATURE_LEVEL_0_MIN_VERSION = 4
"""Responses of older versions cannot list a feature whose lowest level is 0, that is, one that may be off."""


def _has_valid_client_software(request: ApiVersionsRequest) -> bool:
    """Whether the name and version of the client's software have only the characters that KIP-511 allows."""
    return all(
        _CLIENT_SOFTWARE.fullmatch(word) for word in (request.client_software_name, request.client_software_version)
    )


class ApiVersions(Handler):
    api = ApiKey.API_VERSIONS
    versions = (0, 4)
    needs = ()
    answers_unknown_versions = True
    is_on_controllers = True

    def __init__(
        self,
        current: CurrentImage,
        listed: Callable[[], dict[int, tuple[int, int]]],
        kraft_version: Callable[[], int],
        software: ClientSoftware | None = None,
    ) -> None:
        """`software` remembers what clients tell of themselves."""
        self._current = current
        self._listed = listed
        self._kraft_version = kraft_version
        self._software = software
        self._made_for: dict[int, tuple[int, int]] = {}
        self._keys: list[ApiVersion] = []
        """Made once for what is listed: every client asks, and hostile ones again and again."""

    def answer(self, request: ApiVersionsRequest, caller: Caller) -> ApiVersionsResponse:
        listed = self._listed()
        if not self.versions[0] <= caller.version <= self.versions[1]:
            return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, [ApiVersion(self.api, *self.versions)])
        if caller.version >= 3 and not _has_valid_client_software(request):
            return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
        if caller.version >= 3 and self._software is not None:
            self._software.note(caller.address, request.client_software_name, request.client_software_version)
        if listed is not self._made_for:
            self._made_for = listed
            self._keys = [ApiVersion(key, low, high) for key, (low, high) in listed.items()]
        image = self._current.image
        supported = {**SUPPORTED, KRAFT_VERSION: KRAFT_VERSIONS}
        levels = {**image.features, KRAFT_VERSION: self._kraft_version()}
        return ApiVersionsResponse(
            api_keys=self._keys,
            supported_features=[
                SupportedFeatureKey(name, low, high)
                for name, (low, high) in supported.items()
                if low or caller.version >= FEATURE_LEVEL_0_MIN_VERSION
            ],
            finalized_features_epoch=image.offset,
            finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in levels.items() if level],
        )
