"""The configuration package turns MM2 property files and Strimzi resources into validated, frozen settings."""

from heliograph.config.findings import ConfigEntry, FilePlace, Finding, Severity
from heliograph.config.load import Loaded, inspect_content, inspect_file, load_settings, parse_settings
from heliograph.config.settings import ClusterSettings, Flow, Settings

__all__ = [
    "ClusterSettings",
    "ConfigEntry",
    "FilePlace",
    "Finding",
    "Flow",
    "Loaded",
    "Settings",
    "Severity",
    "inspect_content",
    "inspect_file",
    "load_settings",
    "parse_settings",
]
