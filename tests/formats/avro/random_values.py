"""Avro schemas with every type, and random values for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

from tests.formats.avro.writing import record


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def fixed(name: str, size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapped(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


ITEM = record("other.Item", sku="string", price=["null", "double"], tags=array("string"))
COLOR = {"type": "enum", "name": "shop.Color", "symbols": ["RED", "GREEN", "BLUE"]}
CODE = fixed("shop.Code", 3)
EMPTY = record("shop.Empty")
EVERYTHING = record(
    "shop.Everything",
    nothing="null",
    truth="boolean",
    small="int",
    large="long",
    single="float",
    double="double",
    raw="bytes",
    text="string",
    item=ITEM,
    color=COLOR,
    code=CODE,
    empty=EMPTY,
    items=array("other.Item"),
    matrix=array(array("int")),
    prices=mapped(["null", "double"]),
    colors=mapped(array("shop.Color")),
    maybe=["null", "string"],
    perhaps=["long", "null"],
    only=["string"],
    maybe_item=["null", "other.Item"],
    maybe_items=["null", array("other.Item")],
    several_empty=["shop.Empty", "long", "string"],
    several=[
        "null",
        "boolean",
        "long",
        "double",
        "string",
        "bytes",
        "other.Item",
        "shop.Color",
        "shop.Code",
        array("int"),
        mapped("string"),
    ],
    many=array(["null", "long", "string", "other.Item"]),
    day=logical("int", "date"),
    time_millis=logical("int", "time-millis"),
    time_micros=logical("long", "time-micros"),
    millis=logical("long", "timestamp-millis"),
    micros=logical("long", "timestamp-micros"),
    nanos=logical("long", "timestamp-nanos"),
    local_millis=logical("long", "local-timestamp-millis"),
    local_micros=logical("long", "local-timestamp-micros"),
    local_nanos=logical("long", "local-timestamp-nanos"),
    maybe_micros=["null", logical("long", "timestamp-micros")],
    uuid=logical("string", "uuid"),
    uuid_bytes=fixed("Uuid", 16, logicalType="uuid"),
    duration=fixed("Duration", 12, logicalType="duration"),
    amount=logical("bytes", "decimal", precision=20, scale=4),
    widest=logical("bytes", "decimal", precision=38, scale=38),
    exact=fixed("Exact", 5, logicalType="decimal", precision=9, scale=2),
    padded=fixed("Padded", 20, logicalType="decimal", precision=30, scale=0),
    huge=logical("bytes", "decimal", precision=60, scale=5),
    ignored=logical("string", "of-my-own"),
)
TREE = record(
    "Tree",
    id="long",
    weight="double",
    label=["null", "string"],
    children=array("Tree"),
    named=mapped("Tree"),
    other=["null", "long", "Tree"],
    at=logical("long", "timestamp-micros"),
)

NAMED = {one["name"]: one for one in (ITEM, COLOR, CODE, EMPTY, TREE)}


class RandomValues:
    """Random values in the form that fastavro's writer accepts."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def value(self, kind: Any, depth: int = 0) -> Any:
        if isinstance(kind, str) and kind in NAMED:
            return self.value(NAMED[kind], depth)
        if isinstance(kind, list):
            branch = self.random.choice(kind if depth < 4 else kind[:1])
            named = branch if isinstance(branch, str) else branch.get("name")
            value = self.value(branch, depth + 1)
            return (named, value) if named in NAMED and len(kind) > 2 else value
        if isinstance(kind, str):
            return self.primitive(kind)
        match kind["type"]:
            case "record":
                return {one["name"]: self.value(one["type"], depth + 1) for one in kind["fields"]}
            case "array":
                return [self.value(kind["items"], depth + 1) for _ in self.length(depth)]
            case "map":
                values = [self.value(kind["values"], depth + 1) for _ in self.length(depth)]
                return {self.primitive("string"): one for one in values}
            case "enum":
                return self.random.choice(kind["symbols"])
            case _:
                return self.logical(kind)

    def length(self, depth: int) -> range:
        return range(self.random.choice((0, 1, 3)) if depth < 4 else 0)

    def primitive(self, kind: str) -> Any:
        random = self.random
        match kind:
            case "boolean":
                return random.random() < 0.5
            case "int":
                return random.choice((0, -1, 63, 64, -65, random.getrandbits(31), -(2**31)))
            case "long":
                return random.choice((0, -1, random.getrandbits(40), 2**63 - 1, -(2**63)))
            case "float":
                return random.choice((0.5, -0.0, float("inf"), 2.0**-149))
            case "double":
                return random.choice((random.random(), float("-inf"), 5e-324))
            case "bytes":
                return random.randbytes(random.choice((0, 1, 5)))
            case "string":
                return random.choice(("", "a", "é\0€", "😀" * 20, str(random.random())))
            case _:
                return None

    def logical(self, kind: dict[str, Any]) -> Any:
        random, name = self.random, kind.get("logicalType", "")
        if name == "decimal":
            digits = random.randrange(10 ** random.randint(1, kind["precision"]))
            return Decimal(f"{random.choice(('', '-'))}{digits}E-{kind['scale']}")
        if kind["type"] == "fixed":
            return random.randbytes(kind["size"])
        if name == "uuid":
            return UUID(bytes=random.randbytes(16))
        if not name.endswith(("date", "-millis", "-micros")):
            return self.primitive(kind["type"])
        seconds, small = random.randint(-(10**10), 10**10), random.randrange(1_000)
        micros = small * 1_000 if name.endswith("millis") else small
        moment = datetime(1970, 1, 1) + timedelta(seconds=seconds, microseconds=micros)
        if name == "date":
            return moment.date()
        if name.startswith("time-"):
            return moment.time()
        return moment if name.startswith("local") else moment.replace(tzinfo=UTC)
