from __future__ import annotations

import pytest

from headgate.jars.jars import LockedJar, lock_digest, locked_jars, parse_lock

SUM = "0" * 64


def test_line_without_classifier_is_a_jar() -> None:
    (jar,) = parse_lock(f"# a comment\n\nkafka org.example:thing_2.13:1.0-2 {SUM} 12\n")
    assert jar == LockedJar("kafka", "org.example", "thing_2.13", "1.0-2", None, "jar", SUM, 12)
    assert jar.file_name == "thing_2.13-1.0-2.jar"


def test_line_with_classifier_and_extension() -> None:
    (jar,) = parse_lock(f"registry org.example:app:3:all@tar.gz {SUM} 12\n")
    assert (jar.classifier, jar.extension) == ("all", "tar.gz")
    assert jar.file_name == "app-3-all.tar.gz"


@pytest.mark.parametrize(
    "line",
    [
        f"kafka org.example:thing {SUM} 12",
        "kafka org.example:thing:1 abc 12",
        f"kafka org.example:thing:1 {SUM}",
        f"kafka org.example:../thing:1 {SUM} 12",
    ],
)
def test_line_that_cannot_be_read_is_named(line: str) -> None:
    with pytest.raises(ValueError, match=r"jars\.lock line 2"):
        parse_lock(f"# a comment\n{line}\n")


@pytest.mark.parametrize(("conf", "count"), [("spark", 9), ("kafka", 46), ("registry", 1)])
def test_recorded_jars_have_names_of_their_own(conf: str, count: int) -> None:
    assert len({jar.file_name for jar in locked_jars(conf)}) == len(locked_jars(conf)) == count


def test_unknown_conf_is_refused() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        locked_jars("nonsense")


def test_digest_changes_with_a_sum() -> None:
    one = parse_lock(f"kafka org.example:thing:1 {SUM} 12")
    other = parse_lock(f"kafka org.example:thing:1 {'1' * 64} 12")
    assert lock_digest(one) != lock_digest(other)
