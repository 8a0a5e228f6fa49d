"""The base of objectives that tell rows from noise."""

from __future__ import annotations

from feat2vec.schema.objectives.base import ObjectiveSpec


class NoiseObjective(ObjectiveSpec):
    """An objective without a target: a row is told from copies of it in which a group is drawn anew.

    Its `noise_loss` has to be defined.
    """

    @property
    def needs_noise(self) -> bool:
        return True
