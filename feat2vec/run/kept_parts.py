"""`KeptParts`: what a run answers with, made when it is first needed and kept for the next call.

The parts do not refer to the run, so that a run in a temporary folder is removed as soon as nobody holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from feat2vec.training.run_folder import TrainedRun

if TYPE_CHECKING:
    from feat2vec.space.completer import Completer
    from feat2vec.space.embed import Embedder, NewVectors
    from feat2vec.space.noise_fold_in import KnownCandidates
    from feat2vec.space.predict import Predictor

MOST_COMPLETERS = 16  # that are kept, each with the vectors of its group


@dataclass(frozen=True)
class KeptParts:
    """Embedders, predictors and completers by their arguments, and by group what folded-in values compete with."""

    known_candidates: dict[str, KnownCandidates] = field(default_factory=dict)
    embedders: dict[tuple[tuple[str, ...] | None, int | None], Embedder] = field(default_factory=dict)
    predictors: dict[int | None, Predictor] = field(default_factory=dict)
    completers: dict[tuple[str, tuple[str, ...] | None], Completer] = field(default_factory=dict)

    def embedder(
        self, run: TrainedRun, groups: Sequence[str] | None, level: int | None, new_vectors: Sequence[NewVectors]
    ) -> Embedder:
        """The run's embedder of these groups at this level; one with vectors of new values is not kept."""
        from feat2vec.space.embed import Embedder

        if new_vectors:
            return Embedder(run.fitted, run.model_for_rows(groups), groups, level, new_vectors)
        key = (None if groups is None else tuple(groups), level)
        if key not in self.embedders:
            self.embedders[key] = Embedder(run.fitted, run.model_for_rows(groups), groups, level)
        return self.embedders[key]

    def predictor(self, run: TrainedRun, level: int | None) -> Predictor:
        """The run's predictor at this level."""
        from feat2vec.space.mixture import predictor_of

        if level not in self.predictors:
            self.predictors[level] = predictor_of(run, level)
        return self.predictors[level]

    def completer(self, run: TrainedRun, group: str, given: Sequence[str] | None) -> Completer:
        """The run's completer of a group by the given ones; the oldest one makes room for a new one."""
        from feat2vec.space.run_completion import completer_of_run

        key = (group, None if given is None else tuple(given))
        if key not in self.completers:
            if len(self.completers) >= MOST_COMPLETERS:
                self.completers.pop(next(iter(self.completers)))
            self.completers[key] = completer_of_run(run, group, given)
        return self.completers[key]
