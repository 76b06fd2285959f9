"""heliograph mirrors Apache Kafka clusters and carries consumers over when one is lost."""

__version__ = "0.1.0"
