"""What a thread makes ahead."""

from __future__ import annotations

from typing import Any

import pytest

from feat2vec.errors import UserError
from feat2vec.space.prefetch import prefetched


def test_what_is_made_ahead_comes_in_order_with_its_errors() -> None:
    assert list(prefetched(iter(range(9)))) == list(range(9))

    def failing() -> Any:
        yield 1
        raise UserError("no more")

    with pytest.raises(UserError, match="no more"):
        list(prefetched(failing()))
