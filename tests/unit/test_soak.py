"""The judge of a soak can tell growth from noise."""

from __future__ import annotations

from tests.cluster.soak import Sample, grown, growth_of, sizes_in


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


def test_what_a_driver_keeps_is_read_from_its_log_and_growth_of_it_is_seen() -> None:
    lines = [f"12:00:00 DEBUG kept: rates {100 + number}, tasks {9 + number % 2}" for number in range(60)]
    sizes = sizes_in(["12:00:00 INFO a->b: leading", *lines])
    assert sizes[0] == {"rates": 100, "tasks": 9}
    assert grown(sizes, leeway=8) == {"rates": (129, 159)}
