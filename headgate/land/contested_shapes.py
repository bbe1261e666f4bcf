"""Tables that several tasks made at once, each with the columns of another schema."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.land.staged_file import StagedFile
from headgate.schema.fit import fit

if TYPE_CHECKING:
    from headgate.land.batch_plan import BatchPlan


def contested_shapes(files: Iterable[StagedFile], plan: BatchPlan) -> dict[str, pa.Schema]:
    """For each new table that does not follow every schema: the columns of its oldest one.

    Each task takes the oldest schema that it meets; told the columns, all take the same.
    """
    new: dict[str, dict[int, pa.Schema]] = defaultdict(dict)
    for file in files:
        if file.table not in plan.shapes and plan.contract.for_table(file.table).strict:
            new[file.table].update(file.met)
    chosen = {}
    for table, schemas in new.items():
        oldest = schemas[min(schemas)] if schemas else None
        rules = plan.contract.for_table(table)
        if oldest and any(fit(one, oldest, rules).withheld for one in schemas.values()):
            chosen[table] = oldest
    return chosen
