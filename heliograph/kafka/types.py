"""Small value types of the Kafka world; imports nothing of ours."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

NO_TOPIC_ID = UUID(int=0)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class BrokerAddress(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
