"""Defines every error a user can meet, in one hierarchy.

An error says what happened, where, why, and what to do about it. The four are kept as fields and the text is made
from them, so that logs, tables and ledger rows can show as much as they have room for. Every error pickles: a lane's
error travels from a Spark task to the driver. The only import of ours escapes foreign text.
"""

from __future__ import annotations

import traceback
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, Self

from heliograph.text import printable, printable_lines

_PACKAGE = Path(__file__).parent
_MAX_LOCATIONS = 3
"""Maximum number of code locations named for a bug of ours."""


class HeliographError(Exception):
    """Base of all errors; never raised itself.

    `code` is stable: logs, ledger rows, exit codes and runbook headings use it. `retriable` tells whether the same
    attempt may succeed later by itself.
    """

    code: ClassVar[str] = "ERROR"
    retriable: ClassVar[bool] = False
    has_lines: ClassVar[bool] = False
    """Whether the text may have several lines; nothing in it comes from Kafka."""

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
        """Returns the same error without traceback and causes, for storing it: their frames hold receive buffers."""
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
    """A connection failed or broke, or there was no answer in time."""

    code = "UNREACHABLE"
    retriable = True


class ProtocolError(ClusterError):
    """The peer's bytes break the Kafka protocol: malformed, truncated, oversized."""

    code = "PROTOCOL"
    retriable = True


class UnsupportedVersion(ClusterError):
    """The broker lacks a request version that is needed."""

    code = "UNSUPPORTED_VERSION"


class AuthenticationFailed(ClusterError):
    code = "AUTHENTICATION_FAILED"


class TlsFailed(ClusterError):
    """The TLS handshake failed: a certificate, a name, a version, or a port without TLS."""

    code = "TLS_FAILED"
    retriable = True


class StoreUnusable(ClusterError):
    """A trust or key store is missing, damaged, or does not open with our password."""

    code = "STORE_UNUSABLE"


class NotAuthorized(ClusterError):
    code = "NOT_AUTHORIZED"


class BrokerRefused(ClusterError):
    """The broker answered with an error code; `details["error_code"]` has the number."""

    code = "BROKER_REFUSED"


class TooManyOpenFiles(ClusterError):
    """This process, or its machine, may open no more files and sockets."""

    code = "TOO_MANY_OPEN_FILES"
    retriable = True


class TargetUnsettled(ClusterError):
    """A request to the target got no answer and may still be written: the target's log is read again."""

    code = "TARGET_UNSETTLED"
    retriable = True


class EndUnseen(ClusterError):
    """A leader returns less of its log than was seen before."""

    code = "END_UNSEEN"
    retriable = True


class GroupAlive(ClusterError):
    """A consumer group has members, and only they may commit for it."""

    code = "GROUP_ALIVE"
    retriable = True


class GroupRefused(ClusterError):
    """A consumer group's commit cannot be written as it is: only this group is left out."""

    code = "GROUP_REFUSED"


class DataError(HeliographError):
    """Something happened to records: lost, duplicated, refused or changed by others."""

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
    """A target topic has records of other producers."""

    code = "FOREIGN_WRITES"


class SecondWriter(DataError):
    """Our own producer id wrote what this lane did not."""

    code = "SECOND_WRITER"


class PositionUnproven(DataError):
    """The target's tail could not be matched with the source; some records may repeat."""

    code = "POSITION_UNPROVEN"


class RulesChanged(DataError):
    """The count was made under other rules than the flow has now: new copies belong to a new count."""

    code = "RULES_CHANGED"


class RecordRefused(DataError):
    """The target refuses a record for good because of its time, its null key or its size."""

    code = "RECORD_REFUSED"


class ClusterChanged(ConfigError):
    """A cluster is not the one that the ledger was written for."""

    code = "CLUSTER_CHANGED"
    has_lines = False


class NotCompacted(ConfigError):
    """A topic that holds a flow's state has another cleanup.policy than compact: retention would delete that state."""

    code = "NOT_COMPACTED"


class NameRefused(ConfigError):
    """A topic or a group cannot have its name on the target: only this one is left out."""

    code = "NAME_REFUSED"
    has_lines = False


class LeaseLost(HeliographError):
    """Another process may lead the flow: this one writes nothing."""

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
    """A bug of heliograph; please report it."""

    code = "INTERNAL"


def named(error: Exception, *, where: str = "") -> HeliographError:
    """Returns the error itself if it is one of ours; any other is a bug, and its text says where."""
    if isinstance(error, HeliographError):
        return error
    return InternalError(
        f"{type(error).__name__}: {error}",
        where=where,
        why=f"a bug in heliograph, in {_code_locations(error) or 'a library'}",
        remedy="please report it with this line",
    )


def _code_locations(error: Exception) -> str:
    """Lists where in our code it was raised, innermost first."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _PACKAGE in Path(frame.filename).parents]
    places = [f"{Path(frame.filename).relative_to(_PACKAGE)}:{frame.lineno} ({frame.name})" for frame in frames]
    return ", called by ".join(places[::-1][:_MAX_LOCATIONS])
