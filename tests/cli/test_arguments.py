"""Values of options that cannot be read."""

from __future__ import annotations

import pytest

from feat2vec.cli.arguments import json_row
from feat2vec.errors import UserError


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "--row: is nested too deeply"),
        ('{"a": ' + "[" * 200 + "]" * 200 + "}", "--row: is nested too deeply"),
        ('{"a": "\\ud800"}', "--row: holds half of a surrogate pair, which is no text"),
        ('{"a": 1' + "0" * 5000 + "}", "--row: is no JSON .Exceeds the limit"),
    ],
    ids=["deep", "200 lists", "surrogate", "digits"],
)
def test_rows_of_json_that_no_table_holds(row: str, match: str) -> None:
    with pytest.raises(UserError, match=match) as caught:
        json_row("--row", row)
    assert len(str(caught.value)) <= 200
