"""What `status` says of a flow's leader."""

from __future__ import annotations

from heliograph.mirror.lease import Lease, Process, Tenancy
from heliograph.views.status import FlowStatus, Leader

LEASE = Lease(
    holder=Process(owner="x", host="h1", pid=77),
    term=1,
    tenancy=Tenancy.HELD,
    since_ms=1_700_000_000_000,
    time_ms=1_700_000_060_000,
    lease_ms=6000,
)


def test_a_leader_is_shown_with_the_time_it_has() -> None:
    leader = Leader.of(LEASE, now_ms=LEASE.time_ms + 5999)
    row = FlowStatus(flow="a->b", state="running", leader=leader, standbys=1, restarts=3).row()
    assert row["leader"] == "h1 (pid 77)"
    assert row["leads since"] == "2023-11-14T22:13:20+00:00"
    assert row["leads until"] == "2023-11-14T22:14:26+00:00"
    assert (row["standbys"], row["restarts"]) == (1, 3)


def test_a_leader_whose_time_is_up_leads_no_more() -> None:
    assert str(Leader.of(LEASE, now_ms=LEASE.time_ms + 18_000)) == "nobody (h1 until 12 s ago)"


def test_a_lease_given_back_ended_then() -> None:
    given_back = LEASE.moved(Tenancy.RELEASED, LEASE.time_ms)
    assert str(Leader.of(given_back, now_ms=LEASE.time_ms + 3000)) == "nobody (h1 until 3 s ago)"
