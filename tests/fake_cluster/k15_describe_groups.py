"""DescribeGroups, version 5: classic groups; others, and those that are not there, are dead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DescribeGroupsRequest, DescribeGroupsResponse

from tests.fake_cluster.group import NOT_COORDINATOR, FakeGroup

if TYPE_CHECKING:
    from tests.fake_cluster.cluster import Call

REQUEST = DescribeGroupsRequest
VERSIONS = (0, 5)
_UNKNOWN = FakeGroup(protocol_type="")


async def answer(call: Call) -> Any:
    return DescribeGroupsResponse(
        throttle_time_ms=0, groups=[_describe(call, group_id) for group_id in call.request.groups]
    )


def _describe(call: Call, group_id: str) -> Any:
    group = call.cluster.groups.get(group_id, _UNKNOWN)
    group_class = DescribeGroupsResponse.DescribedGroup
    is_there = group is not _UNKNOWN and group.group_type == "Classic"
    return group_class(
        error_code=0 if group.coordinator == call.node_id else NOT_COORDINATOR,
        group_id=group_id,
        group_state=group.state if is_there else "Dead",
        protocol_type=group.protocol_type,
        protocol_data="",
        members=[
            group_class.DescribedGroupMember(
                member_id=f"member-{index}",
                group_instance_id=None,
                client_id="app",
                client_host="/127.0.0.1",
                member_metadata=b"",
                member_assignment=b"",
            )
            for index in range(group.members if is_there else 0)
        ],
        authorized_operations=[31],
    )
