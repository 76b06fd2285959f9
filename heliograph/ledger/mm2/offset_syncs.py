"""MirrorMaker 2's offset syncs of one partition: when one is written, which are kept, what they prove. Pure.

A sync (upstream, downstream) says that the record at the first offset of the source stands at
the second one on the target. Records themselves and the topic are no concern of this module.
"""

from __future__ import annotations

from collections.abc import Sequence

from heliograph.ledger.records.page import Run

Sync = tuple[int, int]
"""(upstream, downstream)"""

NEVER = -1
LAST_SYNCS = 10
"""Of a run's syncs, besides its first one: MM2 too has so many in flight, and one waiting for each partition."""
SLOTS = 64
_REACH = tuple(1 << max(slot - 1, 0) for slot in range(SLOTS))
_SPACE = tuple(1 << max(slot - 2, 0) for slot in range(SLOTS))


class SyncRule:
    """Which records of one partition are followed by a sync.

    `lag_max` counts target offsets since the last sync, not how far the copy is behind.
    """

    def __init__(self, lag_max: int) -> None:
        self.lag_max = lag_max
        self._upstream = self._downstream = self._synced = NEVER
        self._delayed: Sync | None = None

    def note(self, upstream: int, downstream: int) -> bool:
        """Take one copied record; whether its sync is to be written at once."""
        is_due = (
            self._synced == NEVER
            or downstream - (self._synced + 1) >= self.lag_max
            or upstream - self._upstream != 1
            or downstream < self._downstream
        )
        self._upstream, self._downstream = upstream, downstream
        if is_due:
            self._synced = downstream
        self._delayed = None if is_due else (upstream, downstream)
        return is_due

    def advance(self, source_start: int, target_start: int, length: int) -> list[Sync]:
        """Take a run of consecutive records; the syncs to be written at once, of many the first and the last ones.

        The work does not grow with the run: within it a sync is due by distance alone.
        """
        if length <= 0:
            return []
        shift = source_start - target_start
        syncs = [(source_start, target_start)] if self.note(source_start, target_start) else []
        end = target_start + length
        due = range(self._synced + 1 + self.lag_max, end, self.lag_max + 1)
        kept = due
        if len(syncs) + len(due) > 1 + LAST_SYNCS:
            syncs = syncs or [(due[0] + shift, due[0])]
            kept = due[-LAST_SYNCS:]
        syncs += [(downstream + shift, downstream) for downstream in kept]
        self._upstream, self._downstream = end - 1 + shift, end - 1
        if due:
            self._synced = due[-1]
        self._delayed = None if self._synced == end - 1 else (end - 1 + shift, end - 1)
        return syncs

    def tail(self) -> Sync | None:
        """The sync of the last record, if it was not written; given once. To be written at every flush."""
        delayed, self._delayed = self._delayed, None
        return delayed


class SyncStore:
    """The syncs of one partition that MM2 keeps for translating, ever fewer the further back.

    Slot 0 is the newest, the last one the oldest. For slots i < j with different syncs:
      near:   slot[i].upstream <= slot[j].upstream + 2^j - 2^i
      apart:  slot[i].upstream >= slot[j].upstream + 2^max(i-2, 0)
    """

    def __init__(self) -> None:
        self._slots: list[Sync] = []

    @property
    def syncs(self) -> list[Sync]:
        """Those kept, the newest first."""
        return list(dict.fromkeys(self._slots))

    @property
    def slots(self) -> tuple[Sync, ...]:
        return tuple(self._slots)

    def insert(self, upstream: int, downstream: int, *, alone: bool = False) -> None:
        """Take a sync; one that goes back upstream, or is to stand `alone`, replaces all."""
        sync = (upstream, downstream)
        slots = self._slots
        if alone or not slots or upstream < slots[0][0]:
            self._slots = [sync] * SLOTS
            return
        displaced = [slots[0]]
        slots[0] = chosen = sync
        at = 0
        for here in range(1, SLOTS):
            newer, held = slots[here - 1], slots[here]
            if _is_near(newer, held, here):
                return  # nor does any later slot need another sync
            displaced.append(held)
            # The newest displaced sync that fits goes here: the more different ones are kept, the better.
            while at < here:
                old = displaced[at]
                is_apart = _is_apart(newer, old, here - 1)
                is_last = here + 1 == SLOTS
                fits = is_apart and _is_near(newer, old, here) and (is_last or _is_apart(old, slots[here + 1], here))
                if fits:
                    chosen = old
                is_spent = not is_apart or old == displaced[at + 1]
                if fits or is_spent:
                    at += 1
                if not is_spent:
                    break
            slots[here] = chosen

    def translate(self, offset: int) -> int | None:
        """Return where a group at this source offset goes on; None if no sync is as old.

        Never too far: from the nearest sync before the offset all that follows it is read again.
        """
        for upstream, downstream in self._slots:
            if upstream <= offset:
                return downstream + (upstream < offset)
        return None


def _is_near(newer: Sync, older: Sync, slot: int) -> bool:
    """Whether `older` may stand in a slot behind `newer`; asked of neighbours, which proves it for all."""
    return newer[0] <= older[0] + _REACH[slot]


def _is_apart(newer: Sync, older: Sync, slot: int) -> bool:
    """Whether `older` may stand behind `newer`, which is in that slot."""
    return newer[0] >= older[0] + _SPACE[slot] or newer == older


def rebuild_runs(syncs: Sequence[Sync], foreign: Sequence[tuple[int, int]]) -> list[Run]:
    """The mapping that syncs prove, for a ledger that is lost.

    `syncs` in the order in which they were written: one that goes back on either side makes
    all before it void. `foreign` are the spans of target offsets that hold none of our
    records, transaction markers among them. Between two syncs that are equally far apart
    on both sides, with nothing foreign between, every record stands where it must.
    """
    runs: list[Run] = []
    spans = sorted(foreign)
    at = 0
    for upstream, downstream in _since_rewind(syncs):
        if runs and upstream - downstream == runs[-1].source - runs[-1].target:
            first = runs[-1]
            while at < len(spans) and spans[at][1] <= first.target + first.length:
                at += 1
            if at == len(spans) or spans[at][0] >= downstream:
                runs[-1] = first._replace(length=upstream - first.source + 1)
                continue
        runs.append(Run(upstream, downstream, 1))
    return runs


def _since_rewind(syncs: Sequence[Sync]) -> list[Sync]:
    """Ascending on both sides; a sync that is written again counts once."""
    kept: list[Sync] = []
    for sync in syncs:
        if kept and sync == kept[-1]:
            continue
        if kept and (sync[0] <= kept[-1][0] or sync[1] <= kept[-1][1]):
            kept.clear()
        kept.append(sync)
    return kept
