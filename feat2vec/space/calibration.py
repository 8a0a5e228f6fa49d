"""What turns a run's scores into probabilities: numbers for each group, stored in the run as `completion.json`.

The score of a candidate v of a group, for a row whose other groups have the vectors c_g, is

    logit(v) = sum over groups g of w_g <c_g, v> / T + l_v / T + b log(count_v + 1)

with T the objective's temperature, l_v the candidate's linear term, and v of length 1 if the objective has `unit`. The
probability p(v | row) is the softmax over all candidates of the group; of keys it is then multiplied by powers of what
the nearest training rows say (`neighbours`). For a list it is the share of v among the items
that such a row's list has; v is in the list with the probability 1 - exp(-exp(a) p^s).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from feat2vec.encode.codecs import ItemsCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.errors import RESTORE, UserError, in_a_line
from feat2vec.schema.extractor_options import ItemsSpec
from feat2vec.writing.digests import check_parts
from feat2vec.writing.files import JsonObject, read_json

COMPLETION_FILE = "completion.json"
FORMAT = 1


@dataclass(frozen=True)
class Reliability:
    """How often what is said to be probable is true, in rows that neither training nor the fit has seen.

    Args:
        said: The mean probability of the answers of each class of answers, in ascending order.
        true: The share of these answers that are true.
        counts: How many answers each class has.
        error: The expected calibration error: the mean of |said - true| over all answers.

    """

    said: tuple[float, ...]
    true: tuple[float, ...]
    counts: tuple[int, ...]
    error: float


@dataclass(frozen=True)
class GroupCalibration:
    """The numbers of a group that is completed.

    Args:
        popularity: The power b of a candidate's count.
        weights: The weight w_g of each group that it is found by; 1 for one that is not named.
        list_size: a, for lists.
        list_slope: s, for lists.
        values: How many held-out values they are fitted to; 0 if they are the defaults.
        log_loss: The mean of -log p of these values, fitted to other ones; None without them.
        popularity_log_loss: The same, if p is a candidate's share of the training rows.
        reliability: How far probabilities can be trusted; None without held-out values.
        neighbours: The powers of p(v | row) and of what the nearest rows say (see `neighbours`); empty if they are not
            asked.
        later: The numbers for rows of a time that training has not seen (`training.time`); None if they have no others.

    """

    popularity: float = 0.0
    weights: Mapping[str, float] = field(default_factory=dict)
    list_size: float = 0.0
    list_slope: float = 1.0
    values: int = 0
    log_loss: float | None = None
    popularity_log_loss: float | None = None
    reliability: Reliability | None = None
    neighbours: tuple[float, ...] = ()
    later: GroupCalibration | None = None

    def weight(self, group: str) -> float:
        """What the vectors of a group are multiplied by."""
        return self.weights.get(group, 1.0)


Completion = Mapping[str, GroupCalibration]  # by group


def default_calibration(encoder: Encoder, group: str) -> GroupCalibration:
    """The numbers of a group before anything is fitted: what the objective says, and the mean length of lists."""
    objective, noise = encoder.schema.objective, encoder.schema.noise
    return GroupCalibration(
        objective.missing_popularity(noise.alpha_values), list_size=math.log(mean_items(encoder, group))
    )


def mean_items(encoder: Encoder, group: str) -> float:
    """The mean number of known keys in the training rows that have the group; 1 for what is no list."""
    codec = encoder.codecs[group]
    if not is_list(encoder, group) or not isinstance(codec, ItemsCodec):
        return 1.0
    return max(float(np.sum(encoder.key_counts(group))) / max(int(np.sum(encoder.values[group].counts)), 1), 1e-3)


def is_list(encoder: Encoder, group: str) -> bool:
    """Whether a row may hold several of the group's candidates."""
    spec = encoder.schema.groups[group].extractor
    return isinstance(spec, ItemsSpec) and spec.bag


def completion_text(completion: Completion) -> str:
    """What `completion.json` holds."""
    groups = {name: asdict(calibration) for name, calibration in completion.items()}
    return json.dumps({"format": FORMAT, "groups": groups}, indent=1) + "\n"


def read_completion(folder: Path, manifest: JsonObject) -> dict[str, GroupCalibration]:
    """The numbers that a run has stored; none if it has no file.

    Args:
        folder: The run's folder.
        manifest: Its manifest, which has the file's digest.

    Returns:
        The calibration of each group that has one.

    Raises:
        UserError: The file is not as training wrote it.

    """
    path = folder / COMPLETION_FILE
    if not path.exists():
        return {}
    check_parts(folder, manifest, [COMPLETION_FILE])
    try:
        facts = read_json(path)
        if facts["format"] != FORMAT:
            raise ValueError(f"format {facts['format']!r:.20}")
        return {str(name): _calibration(numbers) for name, numbers in facts["groups"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: cannot be read ({in_a_line(error)}); {RESTORE}") from None


def _calibration(facts: JsonObject) -> GroupCalibration:
    reliability = facts["reliability"]
    if reliability is not None:
        lists = {name: tuple(reliability[name]) for name in ("said", "true", "counts")}
        _refuse_not_finite([*lists["said"], *lists["true"], *lists["counts"], reliability["error"]])
        reliability = Reliability(**{**reliability, **lists})
    numbers = [facts[name] for name in ("popularity", "list_size", "list_slope", "values")]
    _refuse_not_finite([*numbers, *facts["weights"].values()])
    neighbours = tuple(facts.get("neighbours", ()))  # runs of before have none
    _refuse_not_finite(list(neighbours))
    if any(power < 0 for power in neighbours):
        raise ValueError(f"{min(neighbours)!r:.20} is no power")
    later = facts.get("later")
    if later is not None:
        later = _calibration(later)
    return GroupCalibration(**{**facts, "reliability": reliability, "neighbours": neighbours, "later": later})


def _refuse_not_finite(numbers: list[object]) -> None:
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, float | int) or not math.isfinite(number):
            raise ValueError(f"{number!r:.20} is no number")
