"""Configuration: MM2's property files to validated, frozen settings."""

from heliograph.config.properties import Entry, Place, RawFile, parse_properties, read_properties
from heliograph.config.settings import (
    ClusterSettings,
    Finding,
    Flow,
    Settings,
    Severity,
    build_settings,
    load_settings,
)

__all__ = [
    "ClusterSettings",
    "Entry",
    "Finding",
    "Flow",
    "Place",
    "RawFile",
    "Settings",
    "Severity",
    "build_settings",
    "load_settings",
    "parse_properties",
    "read_properties",
]
