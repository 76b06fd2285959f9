"""Configuration: MM2's property files and Strimzi's resources to validated, frozen settings."""

from heliograph.config.findings import Entry, Finding, Place, Severity
from heliograph.config.load import Loaded, inspect_content, inspect_file, load_settings, parse_settings
from heliograph.config.settings import ClusterSettings, Flow, Settings

__all__ = [
    "ClusterSettings",
    "Entry",
    "Finding",
    "Flow",
    "Loaded",
    "Place",
    "Settings",
    "Severity",
    "inspect_content",
    "inspect_file",
    "load_settings",
    "parse_settings",
]
