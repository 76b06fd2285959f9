"""Configurations that are broken as published: what is said, and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.config.findings import Severity
from heliograph.config.load import inspect_file
from heliograph.errors import ConfigError
from tests.unit.helpers.published import (
    CONFIGS,
    SECRETS,
    inspect,
)
from tests.unit.helpers.samples import patterns_of


def errors_of(name: str) -> list[tuple[int, str]]:
    """Line and text of each error."""
    loaded = inspect(f"broken/{name}")
    assert loaded.settings is None
    with pytest.raises(ConfigError):
        loaded.raise_errors()
    errors = [finding for finding in loaded.findings if finding.severity is Severity.ERROR]
    return [(error.place.line if error.place else 0, error.text) for error in errors]


def line_of(name: str, text: str) -> int:
    found = (CONFIGS / "broken" / name).read_text().splitlines()
    return next(number for number, line in enumerate(found, 1) if line.strip().startswith(text))


def test_lost_indentation_that_is_no_yaml_is_refused_at_its_line() -> None:
    with pytest.raises(ConfigError) as caught:
        inspect("broken/lost-indentation.yaml")
    line = line_of("lost-indentation.yaml", "bootstrapServers")
    assert f"lost-indentation.yaml:{line}:" in caught.value.where
    assert "check the indentation" in caught.value.remedy


@pytest.mark.parametrize(
    ("key", "level"),
    [("name", "metadata"), ("connectCluster", "spec"), ("clusters", "spec"), ("mirrors", "spec")],
)
def test_field_without_its_indentation_is_named_with_its_level(key: str, level: str) -> None:
    text = f'"{key}" is not a field of the document; it belongs to {level}: check the indentation'
    assert (line_of("flush-left.yaml", key), text) in errors_of("flush-left.yaml")


@pytest.mark.parametrize(
    ("key", "parent", "hint"),
    [
        ("trustedCertificates", "spec.clusters[0]", "it belongs to tls: check the indentation"),
        ("authentiation", "spec.clusters[1]", 'did you mean "authentication"?'),
        ("targetCluster", "spec", "it belongs to a mirror: check the indentation"),
        ("sourceConnector", "spec", "it belongs to a mirror: check the indentation"),
        (
            "targetConnector",
            "spec",
            'did you mean "heartbeatConnector" of a mirror? check the indentation',
        ),
    ],
)
def test_list_item_without_its_indentation_is_refused_field_by_field(key: str, parent: str, hint: str) -> None:
    name = "flush-left-within.yaml"
    assert (line_of(name, key), f'"{key}" is not a field of {parent}; {hint}') in errors_of(name)


def test_connector_of_the_target_does_not_exist() -> None:
    ((line, text),) = errors_of("target-connector.yaml")
    assert line == line_of("target-connector.yaml", "targetConnector")
    assert text.startswith('"targetConnector" is not a field of spec.mirrors[0]; did you mean "')
    assert text.endswith('Connector"?')


def test_misspelt_authentication_is_refused_with_its_nearest_name() -> None:
    name = "misspelt-authentication.yaml"
    text = '"authentiation" is not a field of spec.clusters[0]; did you mean "authentication"?'
    assert errors_of(name) == [(line_of(name, "authentiation"), text)]


def test_authentication_spelt_right_loads(tmp_path: Path) -> None:
    repaired = tmp_path / "repaired.yaml"
    broken = (CONFIGS / "broken" / "misspelt-authentication.yaml").read_text()
    repaired.write_text(broken.replace("authentiation", "authentication"))
    source = inspect_file(repaired, secrets=SECRETS).valid_settings().clusters["my-cluster-source"]
    assert (source.security_protocol, source.properties["sasl.mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")


def test_mirror_without_a_connector_is_refused() -> None:
    name = "no-connector.yaml"
    (first, no_connector), (second, enabled) = errors_of(name)
    assert (first, second) == (line_of(name, "- sourceCluster"), line_of(name, "target.enabled"))
    assert "no connector is enabled for the flow es-src->es-tgt, so nothing is mirrored" in no_connector
    assert 'write "sourceConnector: {}"' in no_connector
    assert enabled.startswith(
        '"target.enabled" is not a field of spec.mirrors[0]; a key with a dot belongs to "config"'
    )
    assert "check the indentation" in enabled


def test_mirror_to_another_cluster_than_its_own_is_refused() -> None:
    ((line, text),) = errors_of("two-targets.yaml")
    assert (CONFIGS / "broken" / "two-targets.yaml").read_text().splitlines()[
        line - 1
    ].strip() == "targetCluster: cloud"
    assert '"spec.mirrors[1].targetCluster" is "cloud" and spec.connectCluster is "on-premise"' in text


def test_connect_cluster_that_is_no_alias_is_refused() -> None:
    ((line, text),) = errors_of("unknown-connect-cluster.yaml")
    assert line == line_of("unknown-connect-cluster.yaml", "connectCluster")
    assert '"spec.connectCluster" names the unknown cluster "mirror"; spec.clusters has one, two' in text


def test_mirror_maker_of_version_1_is_answered_with_its_equivalent(tmp_path: Path) -> None:
    ((_, text),) = errors_of("mirror-maker-1.yaml")
    assert "this is a KafkaMirrorMaker, version 1, which is not supported" in text
    equivalent = tmp_path / "equivalent.properties"
    equivalent.write_text(text.partition(":")[2])
    (flow,) = inspect_file(equivalent).valid_settings().flows
    assert patterns_of(flow.topics).include == ("us.*",)
    assert flow.tasks_max == 2
    assert flow.remote_topic("us-my-mm1-topic") == "us-my-mm1-topic"
