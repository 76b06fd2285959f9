"""Every error a user can meet, in one hierarchy.

An error says what happened, where, why, and what to do about it. The four are
kept as fields and the text is made from them, so that logs, tables and ledger
rows can show as much as they have room for. Every error pickles: a lane's error
travels from a Spark task to the driver. Of ours this module imports the printing of foreign text alone.
"""

from __future__ import annotations

import traceback
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, Self

from heliograph.text import printable, printable_lines

_PACKAGE = Path(__file__).parent
_PLACES = 3
"""So many places of our code lead to one of our mistakes in its text."""


class HeliographError(Exception):
    """Base of all errors; never raised itself.

    `code` is stable: logs, ledger rows, exit codes and runbook headings use it.
    `retriable` tells whether the same attempt may succeed later by itself.
    """

    code: ClassVar[str] = "ERROR"
    retriable: ClassVar[bool] = False
    has_lines: ClassVar[bool] = False
    """Its text may have lines of its own; nothing in it comes from Kafka."""

    def __init__(self, what: str, *, where: str = "", why: str = "", remedy: str = "", **details: Any) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.remedy = remedy
        self.details = details

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        text = f"{self.code}: " + "; ".join(part for part in (head, self.why, self.remedy) if part)
        return printable_lines(text) if self.has_lines else printable(text)

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {"where": self.where, "why": self.why, "remedy": self.remedy, **self.details}
        return _rebuild, (type(self), self.what, fields)

    def bare(self) -> Self:
        """The same error without traceback and causes, for whoever keeps it: their frames hold all that they saw,
        receive buffers too."""
        return copy(self)


def _rebuild(cls: type[HeliographError], what: str, fields: dict[str, Any]) -> HeliographError:
    return cls(what, **fields)


class ConfigError(HeliographError):
    """The configuration or the command line cannot be used as it is."""

    code = "CONFIG"
    has_lines = True


class ClusterError(HeliographError):
    """A cluster could not be used."""

    code = "CLUSTER"


class Unreachable(ClusterError):
    """No connection, a connection that broke, or no answer in time."""

    code = "UNREACHABLE"
    retriable = True


class ProtocolError(ClusterError):
    """The peer's bytes are not what the Kafka protocol says: malformed, truncated, oversized."""

    code = "PROTOCOL"
    retriable = True


class UnsupportedVersion(ClusterError):
    """The broker lacks a request version that is needed."""

    code = "UNSUPPORTED_VERSION"


class AuthenticationFailed(ClusterError):
    code = "AUTHENTICATION_FAILED"


class TlsFailed(ClusterError):
    """No agreement on TLS: a certificate, a name, a version, or a port that does not speak it."""

    code = "TLS_FAILED"
    retriable = True


class StoreUnusable(ClusterError):
    """A trust or key store is missing, damaged, or closed to our password."""

    code = "STORE_UNUSABLE"


class NotAuthorized(ClusterError):
    code = "NOT_AUTHORIZED"


class BrokerRefused(ClusterError):
    """The broker answered with an error code; `details["error_code"]` has the number."""

    code = "BROKER_REFUSED"


class TooManyOpenFiles(ClusterError):
    """This process, or its machine, may have no more files and sockets open."""

    code = "TOO_MANY_OPEN_FILES"
    retriable = True


class TargetUnsettled(ClusterError):
    """What was sent to the target without an answer may still come to stand in its log: it is looked at again."""

    code = "TARGET_UNSETTLED"
    retriable = True


class EndUnseen(ClusterError):
    """A leader does not show its log as far as it was seen to go."""

    code = "END_UNSEEN"
    retriable = True


class GroupAlive(ClusterError):
    """A consumer group has members, and only they may commit for it."""

    code = "GROUP_ALIVE"
    retriable = True


class GroupRefused(ClusterError):
    """What a consumer group committed cannot be written down as it is: it alone is left out."""

    code = "GROUP_REFUSED"


class DataError(HeliographError):
    """Something happened to records: lost, doubled, refused or changed by others."""

    code = "DATA"


class CorruptBatch(DataError):
    """A record batch whose checksum or structure is wrong."""

    code = "CORRUPT_BATCH"


class DataLost(DataError):
    """The source deleted records before they were copied."""

    code = "DATA_LOST"


class TopicRecreated(DataError):
    code = "TOPIC_RECREATED"


class LogTruncated(DataError):
    """The source's log lost records that were copied; it may have grown past the position again."""

    code = "LOG_TRUNCATED"


class TargetTruncated(DataError):
    """The target has fewer records than the ledger says."""

    code = "TARGET_TRUNCATED"


class TargetTopicLost(DataError):
    code = "TARGET_TOPIC_LOST"


class ForeignWrites(DataError):
    """Records of other producers stand in a target topic."""

    code = "FOREIGN_WRITES"


class SecondWriter(DataError):
    """Our own producer id wrote what this lane did not."""

    code = "SECOND_WRITER"


class PositionUnproven(DataError):
    """The target's tail could not be matched with the source; some records may repeat."""

    code = "POSITION_UNPROVEN"


class RulesChanged(DataError):
    """The count goes by another rule than the flow now has: what is copied next belongs to a new one."""

    code = "RULES_CHANGED"


class RecordRefused(DataError):
    """The target refuses a record for good: its time, its null key or its size."""

    code = "RECORD_REFUSED"


class ClusterChanged(ConfigError):
    """A cluster is not the one that the ledger was written for."""

    code = "CLUSTER_CHANGED"
    has_lines = False


class NotCompacted(ConfigError):
    """A topic that holds a flow's state has another cleanup.policy than compact: retention would delete that state."""

    code = "NOT_COMPACTED"


class NameRefused(ConfigError):
    """A topic or a group cannot have the name that it would have on the target: it alone is left out."""

    code = "NAME_REFUSED"
    has_lines = False


class LeaseLost(HeliographError):
    """Another process leads the flow, or nobody knows who does: this one writes nothing."""

    code = "LEASE_LOST"
    retriable = True


class SparkFailed(HeliographError):
    """Spark could not start, or lost a whole job."""

    code = "SPARK"
    retriable = True


class LabError(HeliographError):
    """A lab cluster could not be started, stopped or found."""

    code = "LAB"
    has_lines = True


class InternalError(HeliographError):
    """Our own mistake; please report it."""

    code = "INTERNAL"


def named(error: Exception, *, where: str = "") -> HeliographError:
    """The error itself if it is one of ours; what nobody foresaw is our mistake, and its text says where it is."""
    if isinstance(error, HeliographError):
        return error
    return InternalError(
        f"{type(error).__name__}: {error}",
        where=where,
        why=f"our mistake, in {_places_of(error) or 'a library'}",
        remedy="please report it with this line",
    )


def _places_of(error: Exception) -> str:
    """Where in our code it was raised, innermost first."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _PACKAGE in Path(frame.filename).parents]
    places = [f"{Path(frame.filename).relative_to(_PACKAGE)}:{frame.lineno} ({frame.name})" for frame in frames]
    return ", called by ".join(places[::-1][:_PLACES])
