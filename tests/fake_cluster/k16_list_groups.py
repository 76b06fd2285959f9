"""ListGroups, versions 3 to 5: the groups that the broker coordinates; filters are not modelled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from tests.fake_cluster.cluster import Call

REQUEST = ListGroupsRequest
VERSIONS = (0, 5)


async def answer(call: Call) -> Any:
    return ListGroupsResponse(
        throttle_time_ms=0,
        error_code=0,
        groups=[
            ListGroupsResponse.ListedGroup(
                group_id=group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for group_id, group in call.cluster.groups.items()
            if group.coordinator == call.node_id
        ],
    )
