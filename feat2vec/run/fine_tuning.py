"""`FineTuning`: a column that is learnt from the vectors of a run, written as a new run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from feat2vec.encode.workspace import MEMORY, check_memory
from feat2vec.run.chosen_measures import chosen_functions
from feat2vec.training.run_folder import TrainedRun

if TYPE_CHECKING:
    from feat2vec.cluster.addresses import Addresses
    from feat2vec.training.fine_tuning_options import HeadType, ObjectiveType


@dataclass(frozen=True)
class FineTuning:
    """What `feat2vec.finetune` is asked for; its arguments are described there."""

    run: TrainedRun
    data: object
    target: str
    validation: object = None
    _: KW_ONLY
    head: HeadType = "mlp"
    freeze: bool = False
    objective: ObjectiveType | None = None
    groups: Sequence[str] | None = None
    scratch: bool = True
    settings: Sequence[str] = ()
    resume: bool = False
    force: bool = False
    quiet: bool = False
    memory: str = MEMORY
    cluster: Addresses | None = None
    sync: bool = False

    def write(self, folder: Path) -> None:
        """Learn the column, and from scratch too where that is asked for, and write the new run into a folder."""
        from feat2vec.space.mixture import HELD_OUT_SCORES, held_out_scores, known_target, scratch_alone, weigh
        from feat2vec.table.table import open_table
        from feat2vec.training.chosen_model import Additions
        from feat2vec.training.fine_tuning import schema_of, scratch_schema
        from feat2vec.training.learning import FromScratch
        from feat2vec.training.train import TrainingRequest, train_into
        from feat2vec.training.trained_rows import has_learnt_column
        from feat2vec.training.warm_start import WarmStart

        check_memory(self.memory)
        table = open_table(self.data)
        schema = schema_of(
            self.run.schema,
            table,
            self.target,
            head=self.head,
            objective=self.objective,
            groups=self.groups,
            settings=self.settings,
            has_validation_rows=self.validation is not None,
        )
        request = TrainingRequest(
            schema,
            self.validation,
            resume=self.resume,
            force=self.force,
            quiet=self.quiet,
            memory=self.memory,
            on_chosen=chosen_functions(),
        )
        wants_scratch = self.scratch and not self.freeze and schema.head.type == "mlp"
        fresh_schema = scratch_schema(schema, table, self.target, self.settings) if wants_scratch else None
        knows_target = has_learnt_column(self.run, table, self.target)
        if knows_target and fresh_schema is None:
            line = f"{known_target(self.target)}: losses on held-out rows are too low"
            request = replace(request, on_chosen=(*request.on_chosen, lambda _: Additions(lines=[line])))
        if fresh_schema is not None:
            from_scratch = replace(request, schema=fresh_schema, force=False, on_chosen=(held_out_scores,))
            decide = partial(scratch_alone, self.target) if knows_target else partial(weigh, schema.objective)
            weighed = FromScratch(from_scratch, decide, HELD_OUT_SCORES)
            request = replace(request, on_chosen=(*request.on_chosen, held_out_scores), from_scratch=weighed)
        request = replace(request, start=WarmStart(self.run, self.freeze))
        if self.cluster is None:
            train_into(folder, request, table)
            return
        from feat2vec.cluster.training import train_on_cluster

        train_on_cluster(folder, request, table, self.cluster.jobs, sync=self.sync)
