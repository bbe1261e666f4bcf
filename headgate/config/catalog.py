"""The catalog that a pipeline's tables are registered in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from headgate.config.location import reject_credentials
from headgate.config.model import ConfigModel, invalid_at
from headgate.errors import InvalidPipeline, shown

HIVE = "thrift://"
SESSION_CATALOG = "spark_catalog"
"""The catalog that every Spark session has, often a Hive metastore too."""

_HIVE_DATABASE = re.compile(r"[a-z0-9_]{1,128}")
_IDENTIFIER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,254}", re.ASCII)
_METASTORE = re.compile(r"thrift://[^\s/@?#:]+:\d{1,5}/?")


def _check_name(name: str) -> str:
    if not all(_IDENTIFIER.fullmatch(part) for part in name.split(".")):
        raise InvalidPipeline(
            "bad-value",
            f"cannot be {shown(name)}",
            "use letters, digits, `_` and `-`, with a dot between nested schemas",
        )
    return name


def _check_place(place: str) -> str:
    if "://" not in place:
        if not _IDENTIFIER.fullmatch(place):
            hint = "name a catalog of Spark, or a Hive metastore: `thrift://localhost:9083`"
            raise InvalidPipeline("bad-value", f"cannot be {shown(place)}", hint)
        return place
    addresses = [reject_credentials(one.strip()) for one in place.split(",")]
    for address in addresses:
        if not _METASTORE.fullmatch(address) or not _port(address):
            hint = "write host and port: `thrift://localhost:9083`"
            raise InvalidPipeline("bad-value", f"is not a Hive metastore: {shown(address)}", hint)
    return ",".join(address.rstrip("/") for address in addresses)


def _port(address: str) -> int | None:
    try:
        return urlsplit(address).port
    except ValueError:
        return None


class Catalog(ConfigModel):
    """The catalog that a pipeline's tables are registered in as they appear."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    name: Annotated[str, AfterValidator(_check_name)] = Field(examples=["games"])
    """Schema (database) of the tables. It is created if it does not exist."""

    in_: Annotated[str, AfterValidator(_check_place)] = Field(
        alias="in", examples=["thrift://localhost:9083", "main"]
    )
    """Hive metastore, `thrift://host:9083` (several with commas in between), or the name of a
    catalog that `spark` configures, such as one of Unity Catalog."""

    @model_validator(mode="after")
    def _name_fits_the_catalog(self) -> Self:
        first, _, rest = self.name.partition(".")
        if rest and first == self.in_:
            error = InvalidPipeline(
                "bad-value",
                f"begins with the name of the catalog: {shown(self.name)}",
                f"the catalog is in `in`: `catalog: {{name: {rest}, in: {self.in_}}}`",
            )
            raise invalid_at({"name": error})
        as_in_hive = self.is_hive or self.in_ == SESSION_CATALOG
        if as_in_hive and not _HIVE_DATABASE.fullmatch(self.name):
            error = InvalidPipeline(
                "bad-value",
                f"cannot be {shown(self.name)}",
                "databases of Hive have lowercase letters, digits and `_`, up to 128",
            )
            raise invalid_at({"name": error})
        return self

    @property
    def is_hive(self) -> bool:
        """Whether it is a Hive metastore of its own, rather than a catalog of Spark."""
        return self.in_.startswith(HIVE)

    @property
    def identity(self) -> str:
        """What distinguishes it from other catalogs: `thrift://host:9083/games`, `main.games`."""
        return f"{self.in_}/{self.name}" if self.is_hive else f"{self.in_}.{self.name}"

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Hosts and ports of a Hive metastore."""
        urls = map(urlsplit, self.in_.split(",") if self.is_hive else ())
        return [(url.hostname or "", url.port or 0) for url in urls]

    def name_of(self, table: str) -> str:
        """Return the name of a table in SQL, without quotes, as for people."""
        schema = self.name if self.is_hive or self.in_ == SESSION_CATALOG else self.identity
        return f"{schema}.{table}"

    def for_spark(self) -> Mapping[str, str]:
        """Return the settings with which a Spark session has the tables."""
        if not self.is_hive:
            return {}
        return {
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.hive.metastore.uris": self.in_,
        }
