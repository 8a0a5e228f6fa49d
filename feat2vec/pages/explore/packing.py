"""Answers to the page as JSON, in which arrays are the text of their bytes."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import numpy.typing as npt

from feat2vec.pages.explore import colours

Answer = dict[str, Any]  # as JSON holds it


def colour_answer(point_colours: colours.Scale | colours.Classes) -> Answer:
    """Colours of points, as the page reads them."""
    facts = dict(colours.as_dict(point_colours))
    for name, kind in (("values", "<f4"), ("codes", "<i1")):
        if name in facts:
            facts[name] = pack(facts[name], kind)
    return facts


def pack(array: npt.NDArray[Any], kind: str) -> str:
    """The bytes of an array, as text."""
    return base64.b64encode(np.ascontiguousarray(array.astype(kind)).tobytes()).decode()


__all__ = ["Answer", "colour_answer", "pack"]
