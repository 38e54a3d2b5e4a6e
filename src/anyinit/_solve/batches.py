"""Input that comes in batches: told from a single batch, and gone through again and again in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from itertools import islice
from typing import Any, TypeVar, cast

from anyinit.errors import ConfigError, TraceError

Opened = TypeVar("Opened")

HELD = 1 << 28  # bytes of batches that are kept so that every pass sees the same ones
MOST = 64  # batches that are looked at


@dataclass
class Batches:
    """Batches of one source; an iterator, which cannot be started again, is kept as far as ``HELD`` allows."""

    source: Iterable[Any]
    held: list[Any] = field(default_factory=list[Any])
    whole: bool = False  # whether ``held`` is all there is to see
    bare: bool = False  # whether batches are pairs of which the model takes the first alone

    @staticmethod
    def of(spec: Any) -> Batches | None:
        """The batches that a specification holds; ``None`` for a single batch, a shape or a function."""
        return Batches(cast("Iterable[Any]", spec)) if _many(spec) else None

    def first(self) -> Any:
        """The first batch.

        Raises:
            ConfigError: there is none.
        """
        for batch in self:
            return batch
        raise ConfigError("The source of batches is empty", value=type(self.source).__name__, remedy="Pass one batch.")

    def opened(self, opening: Callable[[Any], Opened]) -> Opened:
        """A model opened on the first batch; where it does not run on ``(inputs, labels)``, on the inputs."""
        batch = self.first()
        try:
            return opening(batch)
        except TraceError as error:
            if not isinstance(batch, (tuple, list)) or len(cast("list[Any]", batch)) != 2:
                raise
            self.bare = True
            try:
                return opening(self.first())
            except TraceError:
                raise error from error.__cause__

    def __iter__(self) -> Iterator[Any]:
        """All batches, ``MOST`` at most: those kept, and new ones from the source."""
        for batch in self._all():
            yield batch[0] if self.bare else batch

    def _all(self) -> Iterator[Any]:
        yield from self.held
        if self.whole:
            return
        once = isinstance(self.source, Iterator)
        rest = iter(self.source) if once else islice(iter(self.source), len(self.held), None)
        seen, size = len(self.held), sum(map(_bytes, self.held))
        for batch in rest:
            size += _bytes(batch)
            keep = once or (size <= HELD and seen == len(self.held))
            if seen and once and size > HELD:
                break
            if keep:
                self.held.append(batch)
            seen += 1
            yield batch
            if seen >= MOST:
                break
        self.whole = once or seen == len(self.held)


def _many(spec: Any) -> bool:
    if spec is None or callable(spec) or hasattr(spec, "shape") or isinstance(spec, (str, bytes, tuple, Mapping)):
        return False
    if is_dataclass(spec) or not hasattr(spec, "__iter__"):
        return False
    if not isinstance(spec, list):
        return True
    items = cast("list[Any]", spec)
    if items and all(isinstance(x, (tuple, list, Mapping)) for x in items):
        return not all(isinstance(n, int) for x in items if not isinstance(x, Mapping) for n in x)
    return len(items) > 1 and all(hasattr(x, "shape") for x in items) and len({tuple(x.shape[1:]) for x in items}) == 1


def _bytes(batch: Any) -> int:
    """Memory of the arrays of a batch."""
    if isinstance(batch, Mapping):
        return sum(_bytes(x) for x in cast("Mapping[Any, Any]", batch).values())
    if isinstance(batch, (tuple, list)):
        return sum(_bytes(x) for x in cast("list[Any]", batch))
    size = getattr(batch, "nbytes", 0)
    return int(size) if isinstance(size, int) else 0
