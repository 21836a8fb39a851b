"""ApiVersions: the first request on a connection."""

from __future__ import annotations

from moldau import __version__
from moldau.wire.messages.api_versions import ApiVersionsRequest


def api_versions_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="moldau", client_software_version=__version__)
