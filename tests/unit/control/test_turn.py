"""Jobs that share a loop: none is left out because a step came early, or began its work sooner than the last one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heliograph.control.checkpoints import DueTime


def taken(steps: list[float], *, every_s: float, interval_s: float) -> list[int]:
    """The numbers of the steps that are the job's."""
    turn, numbers = DueTime(), []
    for number, step in enumerate(steps):
        if turn.is_at(step, every_s=every_s):
            turn.take(step, interval_s=interval_s)
            numbers.append(number)
    return numbers


@given(st.lists(st.floats(0, 2), min_size=1, max_size=30))
def test_every_step_is_taken_by_a_job_with_the_loops_own_interval(late_s: list[float]) -> None:
    steps = [1000 + 5 * number + late for number, late in enumerate(late_s)]
    assert taken(steps, every_s=5, interval_s=5) == list(range(len(steps)))


@given(st.lists(st.floats(0, 2), min_size=37, max_size=37))
def test_a_slower_job_takes_the_steps_nearest_to_its_interval(late_s: list[float]) -> None:
    steps = [1000 + 5 * number + late for number, late in enumerate(late_s)]
    assert taken(steps, every_s=5, interval_s=60) == [0, 12, 24, 36]


def test_an_interval_that_is_no_multiple_is_kept_on_average() -> None:
    steps = [1000.0 + 5 * number for number in range(15)]
    assert len(taken(steps, every_s=5, interval_s=7)) == 11


def test_a_job_that_was_held_up_does_not_make_up_for_it() -> None:
    assert taken([1000, 1100, 1101, 1105], every_s=5, interval_s=5) == [0, 1, 3]
