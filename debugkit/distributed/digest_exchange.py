"""The digests of each step that the ranks publish and compare. No rank waits for another in the loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from debugkit.distributed.message_store import MessageStore

_FINAL_WAIT_S = 3.0
"""At the end of the loop, for ranks that have published digests before."""


class DigestExchange:
    """This rank's digests by step, and those of the other ranks that are here already: they may be some steps behind.

    Raises NotExamined without a process group.
    """

    def __init__(self, topic: str) -> None:
        self._store = MessageStore(topic)
        self.rank, self.world_size = self._store.rank, self._store.world_size
        self._held: dict[int, dict[int, list[int]]] = {}  # step → rank → digests, until all ranks have published
        self._has_heard = False

    def publish(self, step: int, digests: Sequence[int]) -> None:
        """Write the digests of a step for all ranks."""
        self._store.put(f"step/{step}", list(digests))
        self._held[step] = {self.rank: list(digests)}

    def forget_before(self, step: int) -> None:
        """Compare no step before this one any more: a rank is far behind."""
        for old in [old for old in self._held if old < step]:
            del self._held[old]

    def compared(self) -> Iterator[tuple[int, dict[int, list[int]]]]:
        """Each step of which digests of other ranks are here, oldest first, with rank → digests.

        Digests of another length are left out, as of another model. A step is given again until all ranks are known.
        """
        for step, held in sorted(self._held.items()):
            for rank in [rank for rank in self._store.others if rank not in held]:
                theirs = self._store.get(f"step/{step}", rank)
                if theirs is not None and len(theirs) == len(held[self.rank]):
                    held[rank] = theirs
                    self._has_heard = True
            if len(held) > 1:
                if len(held) == self.world_size:
                    del self._held[step]
                yield step, held

    def wait_for_the_rest(self, compare: Callable[[], object], is_done: Callable[[], bool]) -> None:
        """After the loop: `compare` until every step is, or `is_done`, for at most three seconds."""
        deadline = time.monotonic() + _FINAL_WAIT_S
        compare()
        while self._has_heard and self._held and not is_done() and time.monotonic() < deadline:
            time.sleep(0.05)
            compare()
