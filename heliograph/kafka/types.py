"""Defines small value types of Kafka; imports nothing of ours."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

NO_TOPIC_ID = UUID(int=0)


def may_be_same_topic(known: str, found: str) -> bool:
    """Return whether two topic ids, in hexadecimal, may be of the same topic; brokers before 2.8 have none."""
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
        """Parse `host:port`, an IPv6 host in brackets; the configuration has checked the form before."""
        host, _, port = text.rpartition(":")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
