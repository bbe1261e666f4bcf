"""All that a pipeline's ledger says, read once; every view of it starts here."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from headgate.errors import LandingError
from headgate.inspect.query_table import query_table
from headgate.land.ledger import LEDGER, Kind
from headgate.pipeline import Pipeline


def read_ledger(pipeline: Pipeline) -> pa.Table:
    """The pipeline's rows of the ledger; none where it was never run."""
    path = Path(pipeline.lake, pipeline.ledger)
    try:
        return query_table(DeltaTable(str(path)), LEDGER, {"pipeline": pipeline.name})
    except TableNotFoundError:
        return LEDGER.empty_table()
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise LandingError(
            "lake-unreadable",
            f"the ledger cannot be read: {str(error).splitlines()[0]}",
            hint="check `lake`, and that you may read the folder",
            where=str(path),
        ) from error


def of_kind(ledger: pa.Table, kind: Kind) -> pa.Table:
    return ledger.filter(pc.equal(ledger.column("kind"), kind.value))


def of_table(ledger: pa.Table, table: str) -> pa.Table:
    return ledger.filter(pc.equal(ledger.column("table"), table))
