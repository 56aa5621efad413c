"""A cluster of three NATS servers whose network can be split, while clients reach all of them."""

from itertools import permutations
from pathlib import Path

from sereno.carriers.local_server import LocalNats
from tests.faults.proxy import Proxy

NODES = 3
CLUSTER = 'cluster { name: "sereno",'
# Servers do not announce the addresses of each other: these would lead past the proxies, and a client of one server
# would learn of all.
NO_GOSSIP = ' no_advertise: true, advertise: "127.0.0.1:1",'


class SplitCluster(LocalNats):
    """The servers reach each other through proxies, one for each direction of each pair."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, nodes=NODES)
        pairs = permutations(range(NODES), 2)
        self._proxies = {(node, other): Proxy(self._routes[other]) for node, other in pairs}

    def _config(self, node: int, home: Path) -> str:
        config = super()._config(node, home).replace(CLUSTER, CLUSTER + NO_GOSSIP)
        for other in range(NODES):
            if other != node:
                config = config.replace(f":{self._routes[other]}", f":{self._proxies[node, other].port}")
        return config

    def isolate(self, node: int) -> None:
        """Cut one server off from the two others."""
        for pair, proxy in self._proxies.items():
            if node in pair:
                proxy.block()

    def heal(self) -> None:
        for proxy in self._proxies.values():
            proxy.unblock()

    def stop(self) -> None:
        super().stop()
        for proxy in self._proxies.values():
            proxy.close()
