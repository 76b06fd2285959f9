"""DescribeAcls, versions 1 to 3: there are no access rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from tests.fake_cluster.cluster import Call

REQUEST = DescribeAclsRequest
VERSIONS = (1, 3)
SECURITY_DISABLED = 54


async def answer(_: Call) -> Any:
    return DescribeAclsResponse(
        throttle_time_ms=0, error_code=SECURITY_DISABLED, error_message="No Authorizer is configured", resources=[]
    )
