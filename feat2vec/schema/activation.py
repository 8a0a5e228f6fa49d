"""Which keys have a vector (DiFacto; Li et al., 2016): those of enough rows, whose linear term is not zero.

Every key has a linear term. The keys of a vocabulary stand in the order of their counts, so that those with enough rows
are the first ones, and the tables of vectors simply end after them.
"""

from __future__ import annotations

from feat2vec.schema.extractor_options import Count
from feat2vec.schema.validation import Spec


class Activation(Spec):
    """What a key needs to have a vector. Other keys have a vector of zeros, and only their linear term counts.

    `count` makes tables smaller: in training, with the optimizer's slots, and in the run. `linear` saves no memory: the
    vectors of keys whose linear term is exactly zero, as `ftrl` with `l1` makes them, are neither read nor learnt, and
    are zeros in the run. Of a running average (`training.averaging`) the averaged term decides: it is zero if the term
    was zero at the end of every epoch.
    """

    count: Count = 10  # in so many rows a key must be
    linear: bool = False  # whether its linear term must not be zero
