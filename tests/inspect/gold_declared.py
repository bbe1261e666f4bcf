"""Gold tables, declared over the lakes that tests look at."""

from __future__ import annotations

import re
from pathlib import Path

_DECLARED = re.compile("^gold:\\n(?: .*\\n|\\n)*", re.MULTILINE)

GAMES = """
gold:
  gold_{route}_player_agg: |
    SELECT user_name, count(*) AS session_count,
           min(event_timestamp) AS first_seen, max(event_timestamp) AS last_seen
    FROM silver
    GROUP BY user_name
  unified_gold:
    from: gold_*_player_agg
    select: route, user_name, session_count, first_seen, last_seen
    mode: upsert
  routes: |
    SELECT route, count(*) AS events, count(col_chess_game_2) AS newest FROM silver GROUP BY route
"""

SHOP = """
gold:
  gold_{route}_names: SELECT name, count(*) AS many, sum(amount) AS amount FROM merged GROUP BY name
  all_names:
    from: merged
    select: route, name
"""


def declare_gold(file: Path, gold: str) -> None:
    """In a pipeline file, instead of what it declares."""
    file.write_text(f"{_DECLARED.sub('', file.read_text('utf-8'))}{gold}", "utf-8")
