"""The tables of a pipeline: which route goes where."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from headgate.pipeline import Pipeline
from headgate.route.safe_name import safe_name


@dataclass(frozen=True)
class TableNames:
    """Names of all the tables of one pipeline; everything else about names is derived."""

    silver: str
    quarantine: str
    ledger: str
    bronze: str | None = None

    @classmethod
    def of(cls, pipeline: Pipeline) -> TableNames:
        return cls(pipeline.silver, pipeline.quarantine, pipeline.ledger, pipeline.bronze)

    @cached_property
    def _reserved(self) -> frozenset[str]:
        """Routes that would give a silver table the name of one of the pipeline's own."""
        before, after = self.silver.split("{route}")
        own = {self.quarantine, self.ledger, self.bronze}
        return frozenset(
            name.removeprefix(before).removesuffix(after)
            for name in own
            if name and name.startswith(before) and name.endswith(after)
        )

    def silver_for(self, route: str) -> str:
        return self.silver.replace("{route}", safe_name(route, self._reserved))

    def silver_in(self, lake: str) -> list[str]:
        """The silver tables that the lake has, whatever the ledger says."""
        own = {self.bronze, self.quarantine, self.ledger}
        logs = Path(lake).glob(f"{self.silver.replace('{route}', '*')}/_delta_log")
        return sorted(log.parent.name for log in logs if log.parent.name not in own)
