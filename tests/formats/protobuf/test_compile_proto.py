from __future__ import annotations

import pytest

from headgate.formats.protobuf.descriptors import compile_proto
from headgate.registry.registry import RefusedSchema

HEAD = 'syntax = "proto3";\n'


def refusal(text: str) -> str:
    with pytest.raises(RefusedSchema) as caught:
        compile_proto({"a.proto": text}, "a.proto")
    return str(caught.value)


def test_imports_come_before_the_root() -> None:
    files = {
        "a.proto": HEAD + 'import "b.proto";\nimport "google/protobuf/timestamp.proto";\n'
        "message A { B b = 1; google.protobuf.Timestamp at = 2; }",
        "b.proto": HEAD + "message B {}",
    }
    compiled = compile_proto(files, "a.proto")
    names = [file.name for file in compiled.file]
    assert sorted(names) == ["a.proto", "b.proto", "google/protobuf/timestamp.proto"]
    assert names[-1] == "a.proto"


def test_refusal_has_the_compilers_words_and_where() -> None:
    assert refusal(HEAD + "message A { strin s = 1; }") == 'a.proto:2:13: "strin" is not defined.'
    assert "a.proto:2:1: Expected top-level statement" in refusal(HEAD + "nonsense")
    assert "missing.proto: File not found" in refusal(HEAD + 'import "missing.proto";')


@pytest.mark.parametrize("text", [HEAD + "message {", "message {", "nonsense"])
def test_refusal_is_the_same_every_time(text: str) -> None:
    assert refusal(text) == refusal(text)
    assert all(line.startswith("a.proto:") for line in refusal(text).splitlines())


def test_compiler_says_nothing_on_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    refusal("nonsense")
    assert capfd.readouterr() == ("", "")


def test_messages_nested_too_deep_for_the_compiler_are_refused() -> None:
    nested = "".join(f"message M{level} {{" for level in range(40)) + "}" * 40
    assert "maximum recursion limit" in refusal(HEAD + nested)


@pytest.mark.parametrize("brackets", ["{}", "<>"])
@pytest.mark.parametrize("noise", ["", "/* }}>> */", '"}>" ', "'}>\\'' ", "// }>\n"])
def test_text_that_would_overflow_the_compilers_stack_is_refused(brackets: str, noise: str) -> None:
    opening, closing = brackets[0], brackets[1]
    deep = f"m {opening} {noise}" * 30_000 + closing * 30_000
    text = (
        f'{HEAD}import "google/protobuf/descriptor.proto";\n'
        "extend google.protobuf.FileOptions { M m = 50000; }\n"
        f"message M {{ M m = 1; }}\noption (m) = {{ {deep} }};"
    )
    assert refusal(text) == "a.proto nests deeper than 64"


def test_brackets_in_comments_and_strings_do_not_nest() -> None:
    text = HEAD + f'// {"{" * 100}\n/* {"<" * 100} */ option java_package = "{"{" * 100}";'
    assert compile_proto({"a.proto": text}, "a.proto").file[0].name == "a.proto"


@pytest.mark.parametrize("name", ["", ".", "a.proto/b.proto", "x" * 300, "\ud800.proto"])
def test_name_that_can_be_no_file_is_refused(name: str) -> None:
    with pytest.raises(RefusedSchema):
        compile_proto({"a.proto": HEAD, name: HEAD}, "a.proto")


def test_text_that_is_no_unicode_is_refused() -> None:
    assert "surrogates not allowed" in refusal(HEAD + "// \ud800")
