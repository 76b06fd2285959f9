"""Small value types of the Kafka world; imports nothing of ours."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

NO_TOPIC_ID = UUID(int=0)


def may_be_same_topic(known: str, found: str) -> bool:
    """Whether two topic ids, in hexadecimal, may be the same topic's; brokers before 2.8 tell none."""
    return known == found or NO_TOPIC_ID.hex in (known, found)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class BrokerAddress(NamedTuple):
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> BrokerAddress:
        """`host:port`, an IPv6 host in brackets; the form that configuration checked before."""
        host, _, port = text.rpartition(":")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
