"""Work in a thread: the next item is made while the current one is used."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Item = TypeVar("Item")


def prefetched(items: Iterator[Item]) -> Iterator[Item]:
    """The same items in the same order; while one is used, a thread makes the next one.

    >>> list(prefetched(iter("abc")))
    ['a', 'b', 'c']
    """
    end: Any = object()
    with ThreadPoolExecutor(1) as pool:
        next_item = pool.submit(next, items, end)
        while (item := next_item.result()) is not end:
            next_item = pool.submit(next, items, end)
            yield item
