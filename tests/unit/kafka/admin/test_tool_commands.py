"""Commands of Kafka's own tools that administrators are told to run."""

from __future__ import annotations

import shlex

from heliograph.kafka.admin.tool_commands import alter_topic_command, grow_topic_command
from heliograph.kafka.admin.topics import NewTopic


def test_a_topic_is_made_with_all_that_we_would_make_it_with() -> None:
    topic = NewTopic(
        name="a.orders",
        partitions=3,
        replication_factor=2,
        configs={"cleanup.policy": "compact,delete", "retention.ms": "5"},
    )
    assert topic.command() == (
        "kafka-topics.sh --bootstrap-server <address> --create --topic a.orders --partitions 3 --replication-factor 2 "
        "--config cleanup.policy=compact,delete --config retention.ms=5"
    )


def test_numbers_that_are_the_brokers_affair_are_left_out() -> None:
    command = NewTopic(name="t", partitions=-1, replication_factor=-1).command()
    assert command == "kafka-topics.sh --bootstrap-server <address> --create --topic t"


def test_a_topic_grows_to_a_number() -> None:
    assert grow_topic_command("t", 4) == (
        "kafka-topics.sh --bootstrap-server <address> --alter --topic t --partitions 4"
    )


def test_a_value_with_commas_is_one_value_in_brackets() -> None:
    command = alter_topic_command("t", {"cleanup.policy": "compact,delete", "retention.ms": "5", "segment.ms": None})
    assert shlex.split(command.replace("<address>", "address")) == [
        *("kafka-configs.sh", "--bootstrap-server", "address", "--alter", "--entity-type", "topics"),
        *("--entity-name", "t", "--add-config", "cleanup.policy=[compact,delete],retention.ms=5"),
        *("--delete-config", "segment.ms"),
    ]


def test_a_shell_takes_strange_names_and_values_as_they_are() -> None:
    command = alter_topic_command("t", {"follower.replication.throttled.replicas": "*"})
    assert "'follower.replication.throttled.replicas=*'" in command
