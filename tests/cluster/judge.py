"""A Java with Kafka's jars, reached through py4j: `start_java`, and ways to ask much in few calls.

A call takes about 0.2 ms, so nothing here asks once for each key or name.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import (
    GatewayParameters,
    JavaGateway,
    launch_gateway,
)

from heliograph.lab.jars import ensure_jars

MIRROR = "org.apache.kafka.connect.mirror."
_BETWEEN = "\x1f"
"""Stands between the parts of a joined text; no test has it in a text of its own."""


class Judge:
    """The Java; `jvm` leads to its classes."""

    def __init__(self, gateway: JavaGateway) -> None:
        self.jvm = gateway.jvm
        self._gateway = gateway
        # Each name on the way to a class is a call, so those used most are kept.
        self._join = gateway.jvm.String.join
        self._properties = gateway.jvm.java.util.Properties
        self._reader = gateway.jvm.java.io.StringReader
        self._mirror: dict[str, Any] = {}
        self._classes: dict[str, Any] = {}

    def mirror(self, name: str) -> Any:
        """A class of MM2's, to make objects of."""
        if name not in self._mirror:
            self._mirror[name] = getattr(self.jvm.org.apache.kafka.connect.mirror, name)
        return self._mirror[name]

    def class_of(self, name: str) -> Any:
        """A `java.lang.Class`."""
        if name not in self._classes:
            self._classes[name] = self.jvm.java.lang.Class.forName(name)
        return self._classes[name]

    def array(self, kind: Any, items: list[Any]) -> Any:
        array = self._gateway.new_array(kind, len(items))
        for index, item in enumerate(items):
            array[index] = item
        return array

    def list_of(self, texts: Iterable[str]) -> Any:
        """An `ArrayList` to be used again, where py4j would convert a Python list for every call."""
        made = self.jvm.java.util.ArrayList()
        for text in texts:
            made.add(text)
        return made

    def properties(self, text: str) -> Any:
        properties = self._properties()
        properties.load(self._reader(text))
        return properties

    def texts(self, collection: Any) -> list[str]:
        joined = str(self._join(_BETWEEN, collection))
        return joined.split(_BETWEEN) if joined or not collection.isEmpty() else []

    def pairs(self, mapping: Any) -> dict[str, str]:
        """A `Map` of texts; keys and values come in the same order."""
        values = mapping.__getattr__("values")()  # py4j has a `values` of its own that asks for each key
        return dict(zip(self.texts(mapping.keySet()), self.texts(values), strict=True))


@contextmanager
def start_java(*further: str) -> Iterator[Judge]:
    """With further options of Java's."""
    jars = ensure_jars("4.3.1")
    options = [f"-Djava.io.tmpdir={tempfile.gettempdir()}", "-Xmx256m", "-XX:TieredStopAtLevel=1"]
    options += [f"-Dlog4j2.configurationFile={jars / 'log4j2.properties'}", *further]
    port, token, process = launch_gateway(
        classpath=f"{jars}/*",
        jarpath=str(_py4j_jar()),
        javaopts=options,
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    yield Judge(gateway)
    gateway.shutdown()
    process.stdin.close()
    process.wait(10)


def _py4j_jar() -> Path:
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    return jar
