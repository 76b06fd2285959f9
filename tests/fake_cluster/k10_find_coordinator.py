"""FindCoordinator, versions 3 and 4, of groups: where the group is, or broker 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from tests.fake_cluster.group import FakeGroup

if TYPE_CHECKING:
    from tests.fake_cluster.cluster import Call

REQUEST = FindCoordinatorRequest
VERSIONS = (0, 4)


async def answer(call: Call) -> Any:
    if call.version < 4:
        return FindCoordinatorResponse(throttle_time_ms=0, **_found(call, call.request.key))
    coordinators = [
        FindCoordinatorResponse.Coordinator(key=key, **_found(call, key)) for key in call.request.coordinator_keys
    ]
    return FindCoordinatorResponse(throttle_time_ms=0, coordinators=coordinators)


def _found(call: Call, group_id: str) -> dict[str, Any]:
    node_id = call.cluster.groups.get(group_id, FakeGroup()).coordinator
    address = call.cluster.brokers[node_id].address
    return {"node_id": node_id, "host": address.host, "port": address.port, "error_code": 0, "error_message": None}
