from __future__ import annotations

from pathlib import Path

import pytest

from headgate.registry.folder import FolderRegistry
from headgate.registry.registry import RefusedSchema, SchemaText, SubjectVersion, UnknownSchema

EVENT = SchemaText("PROTOBUF", 'syntax = "proto3"; message Event {}')
ORDER = SchemaText("AVRO", '{"type": "record", "name": "Order", "fields": []}')


def test_registered_schema_is_fetched_by_its_id(tmp_path: Path) -> None:
    registry = FolderRegistry(tmp_path / "schemas")
    event, order = registry.register("event-value", EVENT), registry.register("order-value", ORDER)
    assert (event, order) == (1, 2)
    assert FolderRegistry(tmp_path / "schemas").fetch(event) == EVENT
    assert FolderRegistry(tmp_path / "schemas").fetch(order) == ORDER


def test_schema_registered_again_has_the_same_id(tmp_path: Path) -> None:
    registry = FolderRegistry(tmp_path)
    first = registry.register("event-value", EVENT)
    assert registry.register("event-value", EVENT) == first
    assert FolderRegistry(tmp_path).register("event-value", EVENT) == first
    assert registry.register("event-value", SchemaText("PROTOBUF", "other")) != first
    assert len(list(tmp_path.iterdir())) == 2


def test_files_added_by_hand_are_schemas(tmp_path: Path) -> None:
    (tmp_path / "7.proto").write_text(EVENT.text)
    (tmp_path / "12.orders.v1.avsc").write_text(ORDER.text)
    (tmp_path / "readme.md").write_text("13")
    registry = FolderRegistry(tmp_path)
    assert registry.fetch(7) == EVENT
    assert registry.fetch(12) == ORDER
    assert registry.register("more", EVENT) == 13


def test_schema_added_later_is_found(tmp_path: Path) -> None:
    registry = FolderRegistry(tmp_path)
    with pytest.raises(UnknownSchema):
        registry.fetch(1)
    (tmp_path / "1.proto").write_text(EVENT.text)
    assert registry.fetch(1) == EVENT


@pytest.mark.parametrize("key", [1, 0, -1, 2**31, "0b0e7d4e-0000-0000-0000-000000000000", "../1"])
def test_unknown_id_raises_unknown_schema(tmp_path: Path, key: int | str) -> None:
    with pytest.raises(UnknownSchema, match=f"no schema {key}") as caught:
        FolderRegistry(tmp_path).fetch(key)
    assert caught.value.code == "schema-unknown"


def test_missing_folder_has_no_schemas(tmp_path: Path) -> None:
    with pytest.raises(UnknownSchema):
        FolderRegistry(tmp_path / "nowhere").fetch(1)


def test_imports_are_read_from_the_folder_and_the_least_dependent_comes_first(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "1.proto").write_text('import "a.proto";\n  import public "shop/b.proto";')
    (tmp_path / "a.proto").write_text('import "shop/b.proto";\nimport "google/protobuf/any.proto";')
    (tmp_path / "shop/b.proto").write_text("message B {}")
    fetched = FolderRegistry(tmp_path).fetch(1)
    assert [name for name, _ in fetched.references] == ["shop/b.proto", "a.proto"]
    assert dict(fetched.references)["shop/b.proto"] == "message B {}"


def test_imports_may_share_a_line(tmp_path: Path) -> None:
    text = 'syntax = "proto3"; import "a.proto"; import "b.proto"; // import "c.proto";'
    (tmp_path / "1.proto").write_text(text)
    for name in ("a", "b"):
        (tmp_path / f"{name}.proto").write_text("")
    assert [name for name, _ in FolderRegistry(tmp_path).fetch(1).references] == [
        "a.proto",
        "b.proto",
    ]


def test_cyclic_imports_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "1.proto").write_text('import "a.proto";')
    (tmp_path / "a.proto").write_text('import "b.proto";')
    (tmp_path / "b.proto").write_text('import "a.proto";')
    names = [name for name, _ in FolderRegistry(tmp_path).fetch(1).references]
    assert sorted(names) == ["a.proto", "b.proto"]


@pytest.mark.parametrize("name", ["../secret.proto", "/etc/passwd", "a/../../secret.proto", "link"])
def test_import_from_outside_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.proto").write_text("message Secret {}")
    folder = tmp_path / "schemas"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "secret.proto")
    (folder / "1.proto").write_text(f'import "{name}";')
    with pytest.raises(RefusedSchema, match="not in the schema folder"):
        FolderRegistry(folder).fetch(1)


def test_missing_import_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1.proto").write_text('import "missing.proto";')
    with pytest.raises(RefusedSchema, match="not in the schema folder"):
        FolderRegistry(tmp_path).fetch(1)


def test_too_many_imports_are_refused(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"i{number}.proto").write_text("")
    imports = "\n".join(f'import "i{number}.proto";' for number in range(300))
    (tmp_path / "1.proto").write_text(imports)
    with pytest.raises(RefusedSchema, match="more than 256 imports"):
        FolderRegistry(tmp_path).fetch(1)


def test_subjects_are_in_the_names_of_files(tmp_path: Path) -> None:
    registry = FolderRegistry(tmp_path)
    assert (registry.subjects(), registry.latest_versions()) == ([], [])
    for name in ("3.proto", "7.orders.v1.avsc", "12.orders.v1.avsc", "9.event-value.proto"):
        (tmp_path / name).write_text("")
    assert registry.subjects() == ["event-value", "orders.v1"]
    assert registry.latest("orders.v1") == SubjectVersion("orders.v1", 2, 12)
    assert registry.version("orders.v1", 1) == SubjectVersion("orders.v1", 1, 7)
    assert [str(one) for one in registry.latest_versions()] == ["event-value@1", "orders.v1@2"]
    assert [registry.subjects_of(key) for key in (3, 7, 12, 99)] == [
        [],
        ["orders.v1"],
        ["orders.v1"],
        [],
    ]


def test_subject_is_found_by_its_original_name(tmp_path: Path) -> None:
    registry = FolderRegistry(tmp_path)
    number = registry.register("shop.v1/Order", ORDER)
    assert registry.latest("shop.v1/Order") == SubjectVersion("shop.v1/Order", 1, number)


def test_later_version_becomes_the_latest(tmp_path: Path) -> None:
    registry = FolderRegistry(tmp_path)
    registry.register("event-value", EVENT)
    assert registry.latest("event-value").version == 1
    FolderRegistry(tmp_path).register("event-value", SchemaText("PROTOBUF", "other"))
    assert registry.latest("event-value") == SubjectVersion("event-value", 2, 2)


def test_missing_subject_and_version_are_unknown(tmp_path: Path) -> None:
    registry = FolderRegistry(tmp_path)
    registry.register("event-value", EVENT)
    with pytest.raises(UnknownSchema, match="no subject order-value"):
        registry.latest("order-value")
    for number in (0, 2, -1):
        with pytest.raises(UnknownSchema, match=f"no version {number}"):
            registry.version("event-value", number)


def test_subject_never_leaves_the_folder(tmp_path: Path) -> None:
    number = FolderRegistry(tmp_path / "schemas").register("../../etc/passwd", EVENT)
    assert [path.parent.name for path in tmp_path.rglob("*.proto")] == ["schemas"]
    assert FolderRegistry(tmp_path / "schemas").fetch(number) == EVENT
