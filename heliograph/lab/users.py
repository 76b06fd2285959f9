"""Creates the users of a secured cluster and their rights, over its plain listener.

`mirror` may do everything; `app` reads and writes every topic and uses every group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from heliograph.errors import LabError
from heliograph.kafka.admin.acls import CLUSTER_NAME, WILDCARD, Acl, Operation, ResourceType, create_acls, describe_acls
from heliograph.kafka.admin.scram_users import set_passwords
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.types import BrokerAddress

_PAUSE_S = 0.1


def _acl(user: str, operation: Operation, resource_type: ResourceType) -> Acl:
    name = CLUSTER_NAME if resource_type is ResourceType.CLUSTER else WILDCARD
    return Acl(principal=f"User:{user}", operation=operation, resource_type=resource_type, name=name)


RULES = (
    *(
        _acl("mirror", Operation.ALL, resource_type)
        for resource_type in (
            ResourceType.TOPIC,
            ResourceType.GROUP,
            ResourceType.CLUSTER,
            ResourceType.TRANSACTIONAL_ID,
        )
    ),
    _acl("app", Operation.READ, ResourceType.TOPIC),
    _acl("app", Operation.WRITE, ResourceType.TOPIC),
    _acl("app", Operation.READ, ResourceType.GROUP),
)


def make_users(alias: str, ports: Sequence[int], passwords: Mapping[str, str], *, timeout_s: float) -> None:
    """Creates the users and blocks until every broker knows them; `ports` are those of the plain listeners."""
    asyncio.run(_make_users(alias, ports, passwords, timeout_s))


async def _make_users(alias: str, ports: Sequence[int], passwords: Mapping[str, str], timeout_s: float) -> None:
    cluster = Cluster(alias, [BrokerAddress("127.0.0.1", port) for port in ports], client_id="lab")
    try:
        async with asyncio.timeout(timeout_s):
            await cluster.refresh([])
            await set_passwords(cluster, passwords)
            for error in (await create_acls(cluster, RULES)).values():
                if error is not None:
                    raise error
            await _wait_for_acls(cluster)
    except TimeoutError as error:
        raise LabError(f'the users of "{alias}" are not known to all brokers after {timeout_s:.0f} s') from error
    finally:
        cluster.close()


async def _wait_for_acls(cluster: Cluster) -> None:
    """Waits for the ACLs: they reach the brokers by the same log as the passwords, and after them."""
    for node_id in cluster.catalogue.brokers:
        while not set(RULES) <= set(await describe_acls(cluster, node_id=node_id)):
            await asyncio.sleep(_PAUSE_S)
