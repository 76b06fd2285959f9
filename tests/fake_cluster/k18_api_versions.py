"""ApiVersions, version 3: what `cluster.versions` says. Version 4 and its features are not modelled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from tests.fake_cluster.cluster import Call

REQUEST = ApiVersionsRequest
VERSIONS = (0, 3)


async def answer(call: Call) -> Any:
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in call.cluster.versions.items()
        ],
        throttle_time_ms=0,
    )
