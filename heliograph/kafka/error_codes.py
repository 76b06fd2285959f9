"""Lists Kafka's error codes up to 4.3: number, name, whether a retry may help, and a hint.

The only such table. It says what a code means in general; what a lane or a control
loop does about one is decided there. Imports nothing of ours.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class Code(IntEnum):
    """Holds an error code; `retriable` is Kafka's own opinion, `hint` ours and maybe empty."""

    retriable: bool
    hint: str

    def __new__(cls, value: int, retriable: bool, hint: str) -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.retriable = retriable
        member.hint = hint
        return member

    UNKNOWN_SERVER_ERROR = (-1, False, "the broker failed inside; its log says why")
    NONE = (0, False, "")
    OFFSET_OUT_OF_RANGE = (
        1,
        False,
        "the offset is below the log start or above the log end; ask both ends and decide by policy",
    )
    CORRUPT_MESSAGE = (
        2,
        True,
        "the broker found a wrong checksum, size or magic; the batch was damaged or made wrongly",
    )
    UNKNOWN_TOPIC_OR_PARTITION = (
        3,
        True,
        "the topic or partition does not exist there, is being deleted, or the user may not see it",
    )
    INVALID_FETCH_SIZE = (4, False, "")
    LEADER_NOT_AVAILABLE = (
        5,
        True,
        "an election is going on; refresh the metadata and try again",
    )
    NOT_LEADER_OR_FOLLOWER = (
        6,
        True,
        "the leader moved; take the hint in the answer or refresh the metadata",
    )
    REQUEST_TIMED_OUT = (
        7,
        True,
        "the broker gave up waiting for replicas; what was sent may be in the log",
    )
    BROKER_NOT_AVAILABLE = (8, False, "")
    REPLICA_NOT_AVAILABLE = (
        9,
        True,
        "this replica is not ready; fetch from the leader",
    )
    MESSAGE_TOO_LARGE = (
        10,
        False,
        "raise max.message.bytes of the target topic, or let the batch be split",
    )
    STALE_CONTROLLER_EPOCH = (11, False, "")
    OFFSET_METADATA_TOO_LARGE = (12, False, "")
    NETWORK_EXCEPTION = (
        13,
        True,
        "the connection broke; what was sent may be in the log",
    )
    COORDINATOR_LOAD_IN_PROGRESS = (
        14,
        True,
        "the coordinator is loading its state; try again",
    )
    COORDINATOR_NOT_AVAILABLE = (15, True, "the coordinator is not up; try again")
    NOT_COORDINATOR = (16, True, "the coordinator moved; look it up again")
    INVALID_TOPIC_EXCEPTION = (
        17,
        False,
        "the topic's name is not legal, or the topic is internal to the broker",
    )
    RECORD_LIST_TOO_LARGE = (
        18,
        False,
        "the batch is larger than a log segment; raise segment.bytes of the target topic",
    )
    NOT_ENOUGH_REPLICAS = (
        19,
        True,
        "fewer replicas in sync than min.insync.replicas; bring brokers back",
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        True,
        "written, but too few replicas have it; what was sent is in the log",
    )
    INVALID_REQUIRED_ACKS = (21, False, "acks must be -1, 0 or 1")
    ILLEGAL_GENERATION = (22, False, "the group has rebalanced; join again")
    INCONSISTENT_GROUP_PROTOCOL = (23, False, "")
    INVALID_GROUP_ID = (24, False, "group ids must not be empty")
    UNKNOWN_MEMBER_ID = (25, False, "the group no longer knows this member; join again")
    INVALID_SESSION_TIMEOUT = (26, False, "")
    REBALANCE_IN_PROGRESS = (27, False, "the group is rebalancing; wait for it")
    INVALID_COMMIT_OFFSET_SIZE = (28, False, "")
    TOPIC_AUTHORIZATION_FAILED = (
        29,
        False,
        "grant Read on the source topic or Write on the target topic",
    )
    GROUP_AUTHORIZATION_FAILED = (30, False, "grant Read or Describe on the group")
    CLUSTER_AUTHORIZATION_FAILED = (31, False, "grant the operation on the cluster")
    INVALID_TIMESTAMP = (
        32,
        False,
        "the record's time is too far from the broker's clock; see message.timestamp.*.max.ms of the target topic",
    )
    UNSUPPORTED_SASL_MECHANISM = (
        33,
        False,
        "choose a mechanism that the listener offers",
    )
    ILLEGAL_SASL_STATE = (
        34,
        False,
        "SASL was started twice or out of order; check security.protocol",
    )
    UNSUPPORTED_VERSION = (
        35,
        False,
        "the broker is too old or too new for this request version",
    )
    TOPIC_ALREADY_EXISTS = (36, False, "nothing to do: the topic is there")
    INVALID_PARTITIONS = (37, False, "partition counts can grow and never shrink")
    INVALID_REPLICATION_FACTOR = (
        38,
        False,
        "the cluster has fewer brokers than the replication factor asks for",
    )
    INVALID_REPLICA_ASSIGNMENT = (
        39,
        False,
        "the replica assignment names unknown brokers or repeats one",
    )
    INVALID_CONFIG = (
        40,
        False,
        "the broker does not take this topic or broker setting",
    )
    NOT_CONTROLLER = (41, True, "the controller moved; refresh the metadata")
    INVALID_REQUEST = (
        42,
        False,
        "the request is not well formed for the broker; its log says why",
    )
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (
        43,
        False,
        "the topic's message format is too old for this request",
    )
    POLICY_VIOLATION = (44, False, "a policy of the cluster's operator forbids it")
    OUT_OF_ORDER_SEQUENCE_NUMBER = (
        45,
        False,
        "the sequence does not follow the last one; stop, and settle from the target's log",
    )
    DUPLICATE_SEQUENCE_NUMBER = (46, False, "the batch is in the log already")
    INVALID_PRODUCER_EPOCH = (
        47,
        False,
        "a newer count or producer has taken over; stop, and settle from the target's log",
    )
    INVALID_TXN_STATE = (48, False, "the transaction is in a state that forbids this")
    INVALID_PRODUCER_ID_MAPPING = (
        49,
        False,
        "the producer id does not belong to the transactional id",
    )
    INVALID_TRANSACTION_TIMEOUT = (
        50,
        False,
        "the transaction timeout is above the broker's limit",
    )
    CONCURRENT_TRANSACTIONS = (
        51,
        True,
        "an earlier transaction of this id is still being ended; try again",
    )
    TRANSACTION_COORDINATOR_FENCED = (52, False, "")
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (
        53,
        False,
        "grant Write on the transactional id",
    )
    SECURITY_DISABLED = (
        54,
        False,
        "the cluster has no authorizer, so there are no ACLs",
    )
    OPERATION_NOT_ATTEMPTED = (55, False, "")
    KAFKA_STORAGE_ERROR = (
        56,
        True,
        "the broker's disk failed; another replica takes over",
    )
    LOG_DIR_NOT_FOUND = (57, False, "")
    SASL_AUTHENTICATION_FAILED = (58, False, "check user, password or certificate")
    UNKNOWN_PRODUCER_ID = (
        59,
        False,
        "the broker has forgotten this producer id; settle from the target's log",
    )
    REASSIGNMENT_IN_PROGRESS = (
        60,
        False,
        "a reassignment of this partition is going on; wait for it",
    )
    DELEGATION_TOKEN_AUTH_DISABLED = (61, False, "")
    DELEGATION_TOKEN_NOT_FOUND = (62, False, "")
    DELEGATION_TOKEN_OWNER_MISMATCH = (63, False, "")
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (64, False, "")
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = (65, False, "")
    DELEGATION_TOKEN_EXPIRED = (66, False, "")
    INVALID_PRINCIPAL_TYPE = (67, False, "")
    NON_EMPTY_GROUP = (68, False, "the group has live members; stop them first")
    GROUP_ID_NOT_FOUND = (69, False, "the group does not exist")
    FETCH_SESSION_ID_NOT_FOUND = (
        70,
        True,
        "the fetch session is gone; start without one",
    )
    INVALID_FETCH_SESSION_EPOCH = (
        71,
        True,
        "the fetch session is out of step; start without one",
    )
    LISTENER_NOT_FOUND = (
        72,
        True,
        "the leader has no listener of this name; check advertised.listeners",
    )
    TOPIC_DELETION_DISABLED = (73, False, "delete.topic.enable is false")
    FENCED_LEADER_EPOCH = (
        74,
        True,
        "our leader epoch is older than the broker's; refresh the metadata",
    )
    UNKNOWN_LEADER_EPOCH = (
        75,
        True,
        "our leader epoch is newer than the broker's; wait for the broker to learn it",
    )
    UNSUPPORTED_COMPRESSION_TYPE = (
        76,
        False,
        "the client's request version is too old for this codec",
    )
    STALE_BROKER_EPOCH = (77, False, "")
    OFFSET_NOT_AVAILABLE = (
        78,
        True,
        "the new leader does not yet know the high watermark; try again",
    )
    MEMBER_ID_REQUIRED = (79, False, "join again with the member id of the answer")
    PREFERRED_LEADER_NOT_AVAILABLE = (80, True, "")
    GROUP_MAX_SIZE_REACHED = (81, False, "")
    FENCED_INSTANCE_ID = (82, False, "another member has taken this group instance id")
    ELIGIBLE_LEADERS_NOT_AVAILABLE = (83, True, "")
    ELECTION_NOT_NEEDED = (84, True, "")
    NO_REASSIGNMENT_IN_PROGRESS = (85, False, "")
    GROUP_SUBSCRIBED_TO_TOPIC = (86, False, "the group still uses the topic")
    INVALID_RECORD = (
        87,
        False,
        "a record breaks the topic's rules: a null key on a compacted topic, a wrong count, more than one batch",
    )
    UNSTABLE_OFFSET_COMMIT = (88, True, "a transaction has offsets pending; try again")
    THROTTLING_QUOTA_EXCEEDED = (
        89,
        True,
        "a quota is used up; wait as long as the answer says",
    )
    PRODUCER_FENCED = (
        90,
        False,
        "a newer producer with the same transactional id has taken over",
    )
    RESOURCE_NOT_FOUND = (91, False, "the named resource does not exist")
    DUPLICATE_RESOURCE = (92, False, "")
    UNACCEPTABLE_CREDENTIAL = (93, False, "")
    INCONSISTENT_VOTER_SET = (94, False, "")
    INVALID_UPDATE_VERSION = (95, False, "")
    FEATURE_UPDATE_FAILED = (96, False, "")
    PRINCIPAL_DESERIALIZATION_FAILURE = (97, False, "")
    SNAPSHOT_NOT_FOUND = (98, False, "")
    POSITION_OUT_OF_RANGE = (99, False, "")
    UNKNOWN_TOPIC_ID = (
        100,
        True,
        "the topic was deleted or recreated, or the broker has not heard of it yet; refresh the metadata",
    )
    DUPLICATE_BROKER_REGISTRATION = (101, False, "")
    BROKER_ID_NOT_REGISTERED = (102, False, "")
    INCONSISTENT_TOPIC_ID = (103, True, "the topic was recreated; refresh the metadata")
    INCONSISTENT_CLUSTER_ID = (104, False, "the request was meant for another cluster")
    TRANSACTIONAL_ID_NOT_FOUND = (105, False, "")
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106,
        True,
        "topic ids and names are mixed in one fetch session; start without one",
    )
    INELIGIBLE_REPLICA = (107, False, "")
    NEW_LEADER_ELECTED = (
        108,
        False,
        "a new leader was elected meanwhile; refresh the metadata",
    )
    OFFSET_MOVED_TO_TIERED_STORAGE = (
        109,
        False,
        "these offsets are in tiered storage only; fetch them as a consumer",
    )
    FENCED_MEMBER_EPOCH = (
        110,
        False,
        "the group coordinator has fenced this member; join again",
    )
    UNRELEASED_INSTANCE_ID = (111, False, "")
    UNSUPPORTED_ASSIGNOR = (112, False, "")
    STALE_MEMBER_EPOCH = (
        113,
        False,
        "the member's epoch is behind; ask for the assignment again",
    )
    MISMATCHED_ENDPOINT_TYPE = (114, False, "")
    UNSUPPORTED_ENDPOINT_TYPE = (115, False, "")
    UNKNOWN_CONTROLLER_ID = (116, False, "")
    UNKNOWN_SUBSCRIPTION_ID = (117, False, "")
    TELEMETRY_TOO_LARGE = (118, False, "")
    INVALID_REGISTRATION = (119, False, "")
    TRANSACTION_ABORTABLE = (120, False, "the transaction can only be aborted")
    INVALID_RECORD_STATE = (121, False, "")
    SHARE_SESSION_NOT_FOUND = (122, True, "")
    INVALID_SHARE_SESSION_EPOCH = (123, True, "")
    FENCED_STATE_EPOCH = (124, False, "")
    INVALID_VOTER_KEY = (125, False, "")
    DUPLICATE_VOTER = (126, False, "")
    VOTER_NOT_FOUND = (127, False, "")
    INVALID_REGULAR_EXPRESSION = (128, False, "")
    REBOOTSTRAP_REQUIRED = (
        129,
        False,
        "the broker asks the client to start over from its bootstrap servers",
    )
    STREAMS_INVALID_TOPOLOGY = (130, False, "")
    STREAMS_INVALID_TOPOLOGY_EPOCH = (131, False, "")
    STREAMS_TOPOLOGY_FENCED = (132, False, "")
    SHARE_SESSION_LIMIT_REACHED = (133, True, "")


_BY_NUMBER = {int(code): code for code in Code}


def code_of(number: int) -> Code | None:
    """Return the code with this number; None for one of a newer broker."""
    return _BY_NUMBER.get(number)


def error_name(number: int) -> str:
    """Return the code for messages: `NOT_LEADER_OR_FOLLOWER (6)`, or `code 999`."""
    code = _BY_NUMBER.get(number)
    return f"code {number}" if code is None else f"{code.name} ({number})"


def is_retriable(number: int) -> bool:
    """Return whether a retry may help; never for an unknown code."""
    code = _BY_NUMBER.get(number)
    return code is not None and code.retriable


def hint_of(number: int) -> str:
    code = _BY_NUMBER.get(number)
    return "" if code is None else code.hint
