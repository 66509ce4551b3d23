"""Load the target's data set into the store of a stack, and fill its caches from the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.deploy import dataset
from autotune.deploy.runtime import LockedHosts
from autotune.deploy.stack import ServiceInstance
from autotune.services.base import Role
from autotune.target.model import Data


class StackData:
    """The data set of a stack. ``progress`` receives the numbers of pairs written to the store."""

    def __init__(
        self, data_set: Data, hosts: LockedHosts, progress: dataset.ProgressCallback
    ) -> None:
        self._data_set, self._hosts, self._progress = data_set, hosts, progress
        self._cached_pairs: Mapping[str, str] = {}

    def load_store(self, started: Sequence[ServiceInstance]) -> None:
        """Load the data set into the stores in ``started`` that autotune sets up."""
        for instance in started:
            # If a store's own configuration files are edited, the store already contains data, so
            # autotune writes no data to it.
            if instance.placement.role is Role.STORE and instance.placement.adopted is None:
                transport = self._hosts[instance.placement.host].transport
                dataset.load_dataset(instance, self._data_set, transport, self._progress)

    def fill_caches(
        self, started: Sequence[ServiceInstance], instances: Sequence[ServiceInstance]
    ) -> bool:
        """Fill the caches in ``started`` from a store in ``instances``. Return true if all of them were
        filled.
        """
        caches = [each for each in instances if each.placement.role is Role.CACHE]
        empty_caches = [cache for cache in caches if cache in started]
        stores = [each for each in instances if each.placement.role is Role.STORE]
        if not empty_caches or not stores:
            return False
        store = stores[0]
        self._cached_pairs = self._cached_pairs or dataset.read_pairs_for_caches(
            store, self._data_set, self._hosts[store.placement.host].transport
        )
        addresses = [cache.placement.listen for cache in caches]
        pairs_by_address = dataset.split_pairs(self._cached_pairs, addresses)
        filled_caches = [
            dataset.prefill_cache(
                cache,
                pairs_by_address[cache.placement.listen],
                self._hosts[cache.placement.host].transport,
            )
            for cache in empty_caches
        ]
        return all(filled_caches)
