"""What the tests of hierarchies and sparse trees share: plans, and the release of a table in memory
as the files of a folder."""

from fractions import Fraction
from typing import Any

import pyarrow as pa

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, PrivacyUnit
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_counts
from dptrees.dpcore.sparse.domain import CodeDomain, SparseDomain
from dptrees.dpcore.sparse.labels import LabelDomain, PathDomain
from dptrees.dpcore.sparse.plan import plan_sparse
from dptrees.dpcore.sparse.question import SparseQuestion
from tests.dpcore.hierarchy_questions import leaf_counts
from tests.transforms.conftest import NONCE, table_files

DELTA = Fraction(1, 10**4)


def release_in_memory(plan: ReleasePlan, rows: pa.Table, key: ReleaseKey) -> dict[str, bytes]:
    """The tables of the release of a table in memory, by the paths that they have in a folder."""
    columns = {name: rows[name] for name in rows.column_names}
    counts: dict[str, Any] = {
        q.name: q.domain.leaf_counts(columns)
        if isinstance(q, SparseQuestion)
        else leaf_counts(q, rows)  # type: ignore[arg-type]
        for q in plan.questions
    }
    return table_files(release_counts(plan, counts, key, nonce=NONCE))


def sparse_question(
    form: str = "labels",
    *,
    name: str = "sparse",
    unit: PrivacyUnit = ADD_REMOVE_ROW,
    epsilon: Fraction = Fraction(2),
    delta: Fraction = DELTA,
    prune: int = 0,
    shards: int = 3,
    **fields: Any,
) -> SparseQuestion:
    """A question about the heavy nodes of labels, paths or codes."""
    domains: dict[str, SparseDomain] = {
        "labels": LabelDomain(label_columns=("origin", "dest")),
        "paths": PathDomain(column="path", depth=3),
        "codes": CodeDomain(column="number", widths=(3, 5), notation="hex"),
    }
    domain = domains[form]
    return SparseQuestion(
        name=name,
        domain=domain,
        plan=plan_sparse(domain.names, epsilon, delta, unit),
        prune_below=prune,
        shards=shards,
        **fields,
    )
