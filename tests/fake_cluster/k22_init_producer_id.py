"""InitProducerId, versions 0 to 4, without transactions: ids from 1000 on."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from tests.fake_cluster.cluster import Call

REQUEST = InitProducerIdRequest
VERSIONS = (0, 4)
_ids = count(1000)


async def answer(call: Call) -> Any:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=next(_ids), producer_epoch=0)
