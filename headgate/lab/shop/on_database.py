"""The shop at work on a real database, and the files that tell what its log says of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pymysql

from headgate.errors import SourceError, UsageError
from headgate.lab import DEFAULT_FOLDER, Database, find_database
from headgate.lab.shop.binary_log import SHOP, connect
from headgate.lab.shop.database import ShopDatabase
from headgate.lab.shop.datastream import write_changes
from headgate.lab.shop.simulate import ShopPlan, SimulatedShop
from headgate.lab.shop.statement import AlterTable, Change, CreateTable
from headgate.lab.shop.workload import OPENING, statements


def run_on_database(
    plan: ShopPlan,
    folder: Path = DEFAULT_FOLDER,
    say: Callable[[str], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
    name: str = SHOP,
) -> Iterator[SimulatedShop]:
    """Write portion by portion; each step of the iterator tells how far it is.

    A shop of an earlier run makes room: row by row if there are files already that may tell of its
    rows, at once if there are none.
    """
    database = find_database(folder)
    if database is None:
        raise UsageError(
            "bad-argument",
            f"no database runs in {folder}",
            hint="headgate up --database starts one",
        )
    with _answering(database), connect(database) as connection:
        shop = ShopDatabase(database, connection, name)
        yield from _run(plan, shop, say, sleep)


def _run(
    plan: ShopPlan, shop: ShopDatabase, say: Callable[[str], None], sleep: Callable[[float], None]
) -> Iterator[SimulatedShop]:
    happening = statements(plan.seed)
    written = SimulatedShop()
    began = time.perf_counter()

    def write(changes: list[Change]) -> None:
        written.add(changes, write_changes(changes, plan.landing, plan.file_options))
        written.seconds = time.perf_counter() - began

    try:
        is_first = not any(plan.landing.glob(f"{shop.name}_*"))
        if is_first:
            shop.begin_anew()
        else:
            say("Closing the shop of the last time")
            shop.empty()
            # Its rows' end is none of the changes that were asked for.
            closing = write_changes(shop.new_changes(), plan.landing, plan.file_options)
            written.files += len(closing)
        say("Opening the shop")
        for statement in islice(happening, OPENING):
            shop.run(statement)
        if plan.backfill and is_first:
            shop.skip_changes()
            write(shop.backfill(datetime.now(UTC)))
        while plan.changes is None or written.changes < plan.changes:
            left = plan.portion
            if plan.changes is not None:
                left = min(left, plan.changes - written.changes)
            while left > 0:
                statement = next(happening)
                left -= shop.run(statement)
                written.schema_changes += isinstance(statement, AlterTable | CreateTable)
            write(shop.new_changes())
            if plan.rate is not None:
                ahead = written.changes / plan.rate - (time.perf_counter() - began)
                if ahead > 0:
                    sleep(ahead)
            yield written
    finally:
        # What an interrupted portion has done to the rows is told too.
        write(shop.new_changes())
    yield written


@contextmanager
def _answering(database: Database) -> Iterator[None]:
    try:
        yield
    except pymysql.MySQLError as error:
        raise SourceError(
            "source-missing",
            f"the database at {database.address} gives no answer ({error})",
            hint="its log is " + str(database.folder / "database.log"),
        ) from error
