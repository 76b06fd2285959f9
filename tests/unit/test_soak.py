"""The judge of a soak can tell growth from noise."""

from __future__ import annotations

from tests.cluster.soak import Sample, growth_of


def test_what_grows_in_the_first_third_only_does_not_count() -> None:
    samples = [Sample(min(100.0, 50.0 + index * 5), 20) for index in range(60)]
    growth = growth_of(samples)
    assert (growth.rss_percent, growth.files) == (0.0, (20, 20))


def test_steady_growth_and_open_files_are_seen() -> None:
    samples = [Sample(100.0 + index, 20 + index // 10) for index in range(60)]
    growth = growth_of(samples)
    assert growth.rss_mb == (124.5, 154.5)
    assert growth.rss_percent == 24.1
    assert growth.files == (22, 25)
