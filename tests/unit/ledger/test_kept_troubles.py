"""What keeps topics and partitions from being copied, as the ledger keeps it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import HeliographError, NotAuthorized
from heliograph.kafka.batch import NewRecord
from heliograph.ledger.kept_troubles import plan_troubles
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.records.table import parse_ledger
from heliograph.ledger.records.trouble import WHOLE_TOPIC, Trouble
from tests.fake_cluster import CREATE_TOPICS
from tests.unit.flow.test_discovery import a_world
from tests.unit.helpers.logs import row_of

WAITING = Trouble(topic="t", partition=0, code="UNREACHABLE", text="no connection", final=False)
PLACES = st.tuples(st.sampled_from("tuv"), st.integers(WHOLE_TOPIC, 2))
TEXTS = st.sampled_from(["one", "two"])


def trouble(topic: str, partition: int, text: str) -> Trouble:
    return Trouble(topic=topic, partition=partition, code=NotAuthorized.code if text else "", text=text, final=False)


@given(st.dictionaries(PLACES, TEXTS), st.dictionaries(st.sampled_from("tuv"), TEXTS), st.sets(PLACES))
def test_what_is_written_leaves_the_refusals_and_what_is_not_over(
    kept: dict[tuple[str, int], str], refused: dict[str, str], over: set[tuple[str, int]]
) -> None:
    ledger = Ledger(group_id="g")
    errors: dict[str, HeliographError] = {topic: NotAuthorized(text) for topic, text in refused.items()}
    ledger.take_troubles(trouble(*where, str(NotAuthorized(text))) for where, text in kept.items())
    ledger.take_troubles(plan_troubles(ledger.troubles, refused=errors, over=over))
    waiting = {where: text for where, text in kept.items() if where[1] != WHOLE_TOPIC and where not in over}
    expected = waiting | {(topic, WHOLE_TOPIC): text for topic, text in refused.items()}
    assert {where: word.text for where, word in ledger.troubles.items()} == {
        where: str(NotAuthorized(text)) for where, text in expected.items()
    }
    assert not plan_troubles(ledger.troubles, refused=errors, over=())


def test_the_ledger_keeps_a_trouble_until_it_is_over_given_back_or_replaced_by_news() -> None:
    ledger = Ledger(group_id="g")
    ends = (replace(WAITING, text="", code=""), replace(WAITING, final=True), replace(WAITING, details={"records": 2}))
    for end in ends:
        for word in (WAITING, end):
            assert ledger.troubles == ({} if word is WAITING else {("t", 0): WAITING})
            ledger.take(*word.encode("g"))
    assert not ledger.troubles


def test_a_leader_takes_back_what_lanes_of_the_past_said_and_what_rows_say_is_over() -> None:
    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                flow.ledger.take_troubles([WAITING, replace(WAITING, partition=1)])
                await flow.epochs.take_rows([row_of(entry=flow.entries["t", 0], state="copying")])
                assert flow.ledger.troubles.keys() == {("t", 1)}
                ledger = world.target.partition(flow.ledger_topic, 0)
                last = list(ledger.records())[-1]
                assert parse_ledger(flow.flow.group_id, last.key, last.value) == trouble("t", 0, "")
                key, value = WAITING.encode(flow.flow.group_id)
                world.target.append(flow.ledger_topic, 0, [NewRecord(0, key, value)])
            async with world.leader() as flow:
                assert not flow.ledger.troubles

    asyncio.run(test())


def test_a_refused_topic_is_kept_with_its_reason_until_it_is_made() -> None:
    async def test() -> None:
        async with a_world() as world:
            world.target.refuse(CREATE_TOPICS, "a.u", 0, 44)
            async with world.leader() as flow:
                assert flow.ledger.troubles.keys() == {("u", WHOLE_TOPIC)}
                kept = flow.ledger.troubles["u", WHOLE_TOPIC]
                assert kept.code == "BROKER_REFUSED"
                assert "POLICY_VIOLATION" in kept.text
                written = world.target.partition(flow.ledger_topic, 0).end
                flow.epochs.note_trouble(kept)
                await flow.topics.discover()
                assert not flow.ledger.troubles
                assert world.target.partition(flow.ledger_topic, 0).end > written

    asyncio.run(test())


def test_a_topic_that_can_have_no_name_is_kept_with_its_reason() -> None:
    async def test() -> None:
        async with a_world() as world:
            world.source.create(too_long := "t".ljust(249, "x"))
            async with world.leader() as flow:
                assert flow.ledger.troubles.keys() == {(too_long, WHOLE_TOPIC)}
                assert flow.ledger.troubles[too_long, WHOLE_TOPIC].code == "NAME_REFUSED"

    asyncio.run(test())
