"""Maps source partitions to target partitions and producer ids: the rule. Pure; knows numbers only.

Ordinarily to the one of the same number. With `partition.remap=modulo` a topic may have more partitions than its
target: over m target partitions, source partition p goes to p modulo m. Copies that share a target partition stand in
different rows, and each row has a producer id of its own: so every sequence that a broker keeps, one for an id in a
partition, is still that of one source partition.

    source partition   0 1 2  3 4 5  6      m = 3
    target partition   0 1 2  0 1 2  0
    row                0 0 0  1 1 1  2

The first row stands where it would stand anyway, under the flow's first id: whoever knows nothing of remapping is
right about it.

An id has a last count, since producer epochs are 15 bits wide. The copy goes on under a further id then, in the next
turn, and each turn has rows of its own:

    count              0 ... 32767  32768 ... 65535  65536 ...
    producer epoch     0 ... 32767      0 ... 32767      0 ...
    turn                         0                1          2
"""

from __future__ import annotations

SAME = 0
"""Instead of a modulo: the copy has the number of its source."""
COUNTS_OF_AN_ID = 1 << 15
ROWS_OF_A_TURN = 1 << 31
"""More than partitions can be: rows of different turns never meet, whatever a topic grows to."""


def target_partition(partition: int, modulo: int) -> int:
    return partition % modulo if modulo else partition


def turn_of(count: int) -> int:
    """How many producer ids the copy has used up."""
    return count // COUNTS_OF_AN_ID


def producer_epoch_of(count: int) -> int:
    return count % COUNTS_OF_AN_ID


def row_of(partition: int, modulo: int, turn: int = 0) -> int:
    """Which of the flow's producer ids the copy has."""
    return turn * ROWS_OF_A_TURN + (partition // modulo if modulo else 0)


def count_of(row: int, producer_epoch: int) -> int:
    """The number of the count in which a copy of this row wrote under an epoch of the row's producer id."""
    return row // ROWS_OF_A_TURN * COUNTS_OF_AN_ID + producer_epoch


def plan_modulo(partition: int, *, sources: int, targets: int, in_use: int, remaps: bool) -> int | None:
    """For a copy that begins, the modulo of its topic; None if there is no place for it.

    A topic has one modulo as long as its target lasts, whatever that grows to: with two, copies of different source
    partitions could meet under one producer id. `in_use` is the one that others of the topic have.
    """
    if remaps and in_use:
        return in_use
    if remaps and sources > targets > 0:
        return targets
    return SAME if partition < targets else None
