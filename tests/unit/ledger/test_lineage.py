"""Leader epochs: a log that lost what was copied is noticed however long it is, and any other log never."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heliograph.kafka.codec.k01_fetch import EpochEnd
from heliograph.ledger.lineage import LONGEST, UNKNOWN, Lineage, Stretch


def lineage(*stretches: tuple[int, int]) -> Lineage:
    return Lineage(tuple(Stretch(*stretch) for stretch in stretches))


def test_a_lineage_packs_and_comes_back() -> None:
    assert lineage((0, 0), (3, 120)).pack() == "0:0 3:120"
    assert Lineage.parse("0:0 3:120") == lineage((0, 0), (3, 120))
    assert Lineage.parse("") == lineage()


def test_the_epoch_before_a_position() -> None:
    known = lineage((1, 10), (4, 20))
    assert [known.before(position) for position in (10, 11, 20, 21)] == [UNKNOWN, 1, 1, 4]


def test_batches_of_an_older_epoch_void_what_was_known_of_later_ones() -> None:
    assert lineage((1, 0), (4, 20)).grown([Stretch(2, 30)]) == lineage((1, 0), (2, 30))


def test_batches_without_an_epoch_leave_nothing_known() -> None:
    assert lineage((1, 0)).grown([Stretch(UNKNOWN, 30)]) == lineage()


def test_only_the_last_epochs_are_kept() -> None:
    assert lineage().grown(Stretch(n, n) for n in range(20)).stretches[0] == (20 - LONGEST, 20 - LONGEST)


# -- a partition with its leaders ------------------------------------------------------------

Log = list[int]
"""The epoch of each offset's record; equal epochs at an offset mean equal records, since an epoch has one writer."""


def answer(log: Log, leader_epoch: int, epoch: int, position: int) -> EpochEnd | None:
    """What a leader says to a fetch from a position after a record of an epoch; None: its log has that."""
    epochs = sorted({*log, leader_epoch})
    starts = {known: log.index(known) if known in log else len(log) for known in epochs}
    later = [known for known in epochs if known > epoch]
    own = max((known for known in epochs if known <= epoch), default=epoch)
    end = starts[later[0]] if later else len(log)
    return None if own == epoch and end >= position else EpochEnd(own, end)


@given(
    st.lists(st.tuples(st.sampled_from(["write", "clean", "unclean", "read"]), st.integers(0, 9)), max_size=40),
    st.integers(0, 9),
)
def test_whatever_leaders_do_the_copy_finds_the_offset_where_its_log_was_cut(
    steps: list[tuple[str, int]], last: int
) -> None:
    """Any history of elections, with as much written in each as may be: compared with all that was read."""
    log: Log = []
    read: Log = []
    known = Lineage()
    epoch = 0
    for step, number in [*steps, ("write", last), ("read", 0)]:
        if step == "write":
            log += [epoch] * number
        elif step == "clean":
            epoch += 1
        elif step == "unclean":
            epoch += 1
            del log[max(0, len(log) - number) :]
        else:
            same = next((i for i, (one, other) in enumerate(zip(read, log, strict=False)) if one != other), None)
            same = min(len(read), len(log)) if same is None else same
            position = len(read)
            while position and (theirs := answer(log, epoch, known.before(position), position)) is not None:
                found = known.parting(position, theirs)
                assert same <= found < position or len(known.stretches) == LONGEST
                position, known = found, known.until(found)
                if not known.stretches:
                    break
            assert position == same or len(set(read)) >= LONGEST
            if position != same:
                return  # it was cut before the oldest epoch kept
            known = known.grown(Stretch(log[offset], offset) for offset in range(position, len(log)))
            read = list(log)
            assert known.before(len(read)) == (read[-1] if read else UNKNOWN)
