"""The way from a table of the source to the name of one of its tables in the lake.

    shop_order_lines               what the template says, in small letters
    shop_orders___l7k2nq4xw5a      a readable form, then a digest of the exact source

The first is what people look for, and the rule. Two sources that differ in case or punctuation
alone (`my-shop.orders` and `my_shop.orders`) would share it: the one that came first has it, and
the ledger remembers that; the other one gets the second, which no two sources share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headgate.pipeline.change_template import around, parts
from headgate.route.safe_name import digest, readable_name
from headgate.route.source_name import SourceName, placeholder_values

_DIGEST_FOLLOWS = "___"
_PLAIN = re.compile(r"[a-z0-9][a-z0-9_]{0,120}")
_LONGEST_READABLE = 100


@dataclass(frozen=True)
class ChangeName:
    """A template, and the letter by which its digests differ from those of other templates."""

    template: str
    letter: str

    def name_for(self, source: SourceName, is_taken: Callable[[str], bool]) -> str:
        """What the template says, unless that is no name, or a name of something else."""
        name = self._plain(source)
        return self.name_apart(source) if name is None or is_taken(name) else name

    def name_apart(self, source: SourceName) -> str:
        """A name that no other source has."""
        readable = [form for value in self._values(source) if (form := readable_name(value))]
        start = "_".join(readable)[:_LONGEST_READABLE].rstrip("_") or "table"
        whole = (source.database, source.schema, source.table)
        # With their lengths: not even a value that holds a separator is taken for two.
        exact = "".join("-" if each is None else f"{len(each)}:{each}" for each in whole)
        return self._around(f"{start}{_DIGEST_FOLLOWS}{self.letter}{digest(exact)}")

    def fits(self, name: str) -> bool:
        """Whether the template could give a name as far as what is around it tells."""
        before, after = around(self.template)
        return name.startswith(before) and name.endswith(after)

    @property
    def narrowness(self) -> int:
        """How much of a name the template fixes."""
        return sum(map(len, around(self.template)))

    def _values(self, source: SourceName) -> Sequence[str]:
        values = placeholder_values(source)
        return [values[placeholder] for placeholder in parts(self.template)[1]]

    def _plain(self, source: SourceName) -> str | None:
        values = [re.sub(r"[^a-z0-9]", "_", value.lower()) for value in self._values(source)]
        between = parts(self.template)[0][1:-1]
        inner = values[0] + "".join(
            text + value for text, value in zip(between, values[1:], strict=True)
        )
        named = _PLAIN.fullmatch(inner) and all(value.strip("_") for value in values)
        name = self._around(inner)
        return None if not named or _DIGEST_FOLLOWS in name else name

    def _around(self, inner: str) -> str:
        before, after = around(self.template)
        return f"{before}{inner}{after}"


def letter_of_digest(name: str) -> str | None:
    """Whose digest is in a name; None where there is none."""
    _, follows, digested = name.partition(_DIGEST_FOLLOWS)
    return digested[:1] if follows else None
