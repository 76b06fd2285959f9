"""A configuration that is edited while the mirror runs: what can change does, the rest is named, nothing breaks."""

from __future__ import annotations

import signal
from pathlib import Path

from heliograph.lab import LabCluster
from tests.cluster.mirror import MirrorProcess, View, create_topic, produce, topics, unique


def edit(file: Path, *lines: str) -> None:
    """Append lines, of which the later of two equal keys counts; the file is replaced as a whole."""
    other = file.with_suffix(".new")
    other.write_text(file.read_text() + "".join(f"{line}\n" for line in lines))
    other.replace(file)


def test_an_edited_file_is_taken_up_as_far_as_it_can_be(
    primary: LabCluster, backup: LabCluster, tmp_path: Path
) -> None:
    prefix = unique("change")
    one, two = create_topic(primary, f"{prefix}-one", 2), create_topic(primary, f"{prefix}-two", 2)
    views = {topic: (View(primary, topic), View(backup, f"primary.{topic}")) for topic in (one, two)}
    for topic in (one, two):
        produce(primary, topic, [b"%d" % number for number in range(100)])
    keys = {"primary->backup.topics": one, "refresh.topics.interval.seconds": "600"}
    with MirrorProcess(tmp_path, {"primary": primary, "backup": backup}, keys) as mirror:
        mirror.wait_mirrored(*views[one])

        edit(mirror.config, f"primary->backup.topics = {one}, {two}", "tasks.max = 2")
        mirror.wait_for("primary->backup: topics: takes effect now")
        mirror.wait_for("primary->backup: tasks max: takes effect now")
        mirror.wait_mirrored(*views[two])

        edit(mirror.config, "primary->backup.state = paused")
        mirror.wait_for("primary->backup: paused")
        edit(mirror.config, "primary->backup.topcs = x")
        mirror.wait_for('"primary->backup.topcs" is not a known key; did you mean "topics"?')
        assert "the configuration file has changed but has errors, the running one is kept" in mirror.output

        for topic in (one, two):
            produce(primary, topic, [b"%d" % number for number in range(100)])
        text = mirror.config.read_text().replace("primary->backup.topcs = x\n", "")
        mirror.config.write_text(f"{text}primary->backup.state = running\nbackup.group.id = another\n")
        mirror.send_signal(signal.SIGHUP)
        mirror.wait_for("primary->backup: running")
        mirror.wait_for("primary->backup: group id: needs a restart")
        for topic in (one, two):
            mirror.wait_mirrored(*views[topic])
    assert "Traceback" not in mirror.output
    assert f"primary.{two}" in topics(backup)
