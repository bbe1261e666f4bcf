from __future__ import annotations

import socket
import threading
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from headgate.errors import RegistryError, RegistryUnavailable
from headgate.registry.http import HttpRegistry, HttpRegistrySettings
from headgate.registry.registry import RefusedSchema, SchemaText, SubjectVersion, UnknownSchema

from .playing_registry import UNKNOWN, Answer, playing_registry

SCHEMA_7 = "/schemas/ids/7"
PATIENCE = 5.0


def no_pause(_: float) -> None:
    """Ask again at once."""


def registry(
    url: str,
    patience: float = PATIENCE,
    sleep: Callable[[float], None] = no_pause,
    client: dict[str, Any] | None = None,
) -> HttpRegistry:
    return HttpRegistry(HttpRegistrySettings(url, client or {}, patience), sleep)


SESAME = {"basic.auth.user.info": "me:sesame"}


def proto(text: str, *references: tuple[str, str]) -> Answer:
    refers = [{"name": name, "subject": subject, "version": 1} for name, subject in references]
    return Answer(body={"schema": text, "schemaType": "PROTOBUF", "references": refers})


def version(subject: str, text: str, *references: tuple[str, str]) -> Answer:
    answer = proto(text, *references)
    return Answer(body={**answer.body, "subject": subject, "version": 1, "id": 1})


def test_schema_is_fetched_by_id() -> None:
    with playing_registry({SCHEMA_7: proto("message A {}")}) as playing:
        assert registry(playing.url).fetch(7) == SchemaText("PROTOBUF", "message A {}")


def test_schema_without_a_type_is_avro() -> None:
    with playing_registry({SCHEMA_7: Answer(body={"schema": '"int"'})}) as playing:
        assert registry(playing.url).fetch(7) == SchemaText("AVRO", '"int"')


def test_schema_is_fetched_by_guid() -> None:
    guid = "11111111-2222-3333-4444-555555555555"
    with playing_registry({f"/schemas/guids/{guid}": proto("message A {}")}) as playing:
        assert registry(playing.url).fetch(guid).text == "message A {}"


def test_references_are_fetched_and_the_least_dependent_comes_first() -> None:
    answers: dict[str, Any] = {
        SCHEMA_7: proto("a", ("b.proto", "b"), ("c.proto", "c")),
        "/subjects/b/versions/1": version("b", "text of b", ("c.proto", "c")),
        "/subjects/c/versions/1": version("c", "text of c"),
    }
    with playing_registry(answers) as playing:
        fetched = registry(playing.url).fetch(7)
        assert fetched.references == (("c.proto", "text of c"), ("b.proto", "text of b"))
        assert len(playing.asked) == 3


def test_references_in_a_circle_are_fetched_once() -> None:
    answers: dict[str, Any] = {
        SCHEMA_7: proto("a", ("b.proto", "b")),
        "/subjects/b/versions/1": version("b", "text of b", ("c.proto", "c")),
        "/subjects/c/versions/1": version("c", "text of c", ("b.proto", "b")),
    }
    with playing_registry(answers) as playing:
        names = [name for name, _ in registry(playing.url).fetch(7).references]
        assert sorted(names) == ["b.proto", "c.proto"]


def test_references_without_end_are_refused() -> None:
    chain: dict[str, Any] = {
        f"/subjects/s{at}/versions/1": version(f"s{at}", "", (f"{at + 1}.proto", f"s{at + 1}"))
        for at in range(40)
    }
    with (
        playing_registry({SCHEMA_7: proto("a", ("0.proto", "s0")), **chain}) as playing,
        pytest.raises(RefusedSchema, match="deeper than 16"),
    ):
        registry(playing.url).fetch(7)


def test_too_many_references_are_refused() -> None:
    many = [(f"{at}.proto", "s") for at in range(300)]
    answers: dict[str, Any] = {
        SCHEMA_7: proto("a", *many),
        "/subjects/s/versions/1": version("s", ""),
    }
    with (
        playing_registry(answers) as playing,
        pytest.raises(RefusedSchema, match="more than 256 references"),
    ):
        registry(playing.url).fetch(7)


@pytest.mark.parametrize("code", [40401, 40402, 40403])
def test_schema_that_the_registry_does_not_have_is_unknown(code: int) -> None:
    answer = Answer(404, {"error_code": code, "message": "not found"})
    with playing_registry({SCHEMA_7: answer}) as playing:
        with pytest.raises(UnknownSchema, match="schema 7 is not registered"):
            registry(playing.url).fetch(7)
        assert playing.asked == [SCHEMA_7]


def test_reference_that_the_registry_does_not_have_is_unknown() -> None:
    with (
        playing_registry({SCHEMA_7: proto("a", ("b.proto", "b"))}) as playing,
        pytest.raises(UnknownSchema, match="b version 1 is not registered"),
    ):
        registry(playing.url).fetch(7)


NONSENSE = {
    "server error": Answer(500, {"error_code": 50001, "message": "store"}),
    "server error of a proxy": Answer(502, b"<html>bad gateway</html>", "text/html"),
    "too many requests": Answer(429, {"error_code": 42901, "message": "slow down"}),
    "page not found": Answer(404, b"<html>not here</html>", "text/html"),
    "another 404": Answer(404, {"error_code": 404, "message": "HTTP 404 Not Found"}),
    "redirect": Answer(302, b""),
    "nothing": Answer(200, b""),
    "no JSON": Answer(200, b"<html>welcome</html>", "text/html"),
    "a list": Answer(200, []),
    "an empty object": Answer(200, {}),
    "a number for a schema": Answer(200, {"schema": 42}),
    "a list for a type": Answer(200, {"schema": "x", "schemaType": ["PROTOBUF"]}),
    "words for references": Answer(200, {"schema": "x", "references": "abc"}),
}


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE.keys())
def test_registry_that_answers_nonsense_is_unavailable(answer: Answer) -> None:
    with playing_registry({SCHEMA_7: answer}) as playing:
        with pytest.raises(
            RegistryUnavailable, match="no usable response from the registry for schema 7"
        ) as caught:
            registry(playing.url).fetch(7)
        assert len(playing.asked) > 2
    assert caught.value.code == "registry-unavailable"
    assert caught.value.where == playing.url


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE.keys())
def test_registry_that_recovers_is_asked_until_it_does(answer: Answer) -> None:
    with playing_registry({SCHEMA_7: [answer, answer, proto("message A {}")]}) as playing:
        assert registry(playing.url).fetch(7).text == "message A {}"


def test_pauses_grow_and_stay_within_the_patience() -> None:
    pauses: list[float] = []
    with (
        playing_registry({SCHEMA_7: Answer(500)}) as playing,
        pytest.raises(RegistryUnavailable, match="within 5 s"),
    ):
        registry(playing.url, sleep=pauses.append).fetch(7)
    assert pauses == sorted(pauses)
    assert 1 < sum(pauses) < 2 * PATIENCE


def test_registry_that_is_down_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(RegistryUnavailable):
        registry(f"http://127.0.0.1:{port}").fetch(7)


def test_registry_that_does_not_answer_in_time_is_unavailable() -> None:
    over = threading.Event()

    def slowly() -> Answer:
        over.wait(30)
        return proto("message A {}")

    with playing_registry({SCHEMA_7: slowly}) as playing:
        with pytest.raises(RegistryUnavailable, match="Timeout"):
            registry(playing.url, patience=0.1, client={"timeout": 0.05}).fetch(7)
        over.set()


@pytest.mark.parametrize("status", [401, 403])
def test_refusal_is_not_waited_for(status: int) -> None:
    with playing_registry(
        {SCHEMA_7: Answer(status, {"error_code": status, "message": "no"})}
    ) as playing:
        with pytest.raises(RegistryError, match="refused schema 7") as caught:
            registry(playing.url).fetch(7)
        assert playing.asked == [SCHEMA_7]
    assert caught.value.code == "registry-refused"
    assert not isinstance(caught.value, RegistryUnavailable)


def test_basic_auth_is_sent() -> None:
    with playing_registry({SCHEMA_7: proto("a")}) as playing:
        registry(playing.url, client=SESAME).fetch(7)
        assert playing.authorizations == {f"Basic {b64encode(b'me:sesame').decode()}"}


@pytest.mark.parametrize("answer", [Answer(401), Answer(500), Answer(200, b"x"), UNKNOWN])
def test_password_is_in_no_error(answer: Answer) -> None:
    settings = HttpRegistrySettings("", SESAME)
    assert "sesame" not in repr(settings)
    with playing_registry({SCHEMA_7: answer}) as playing:
        with pytest.raises(RegistryError) as caught:
            registry(playing.url, client=SESAME).fetch(7)
        assert len(playing.authorizations) == 1
    secret = b64encode(b"me:sesame").decode()
    for text in (str(caught.value), repr(caught.value), repr(caught.value.parts)):
        assert "sesame" not in text
        assert secret not in text


def test_registering_gives_the_id() -> None:
    path = "POST /subjects/chess-value/versions"
    with playing_registry({path: Answer(body={"id": 7, "version": 1})}) as playing:
        assert registry(playing.url).register("chess-value", SchemaText("PROTOBUF", "a")) == 7


def test_registering_what_breaks_the_rules_is_refused() -> None:
    path = "POST /subjects/chess-value/versions"
    with playing_registry(
        {path: Answer(409, {"error_code": 409, "message": "incompatible"})}
    ) as playing:
        with pytest.raises(RegistryError, match="incompatible") as caught:
            registry(playing.url).register("chess-value", SchemaText("PROTOBUF", "a"))
        assert caught.value.code == "registry-refused"


def test_subjects_are_listed() -> None:
    with playing_registry({"/subjects": Answer(body=["a", "b"])}) as playing:
        assert registry(playing.url).subjects() == ["a", "b"]


CHESS = "/subjects/chess-value/versions"


def test_newest_version_is_asked_for_each_time() -> None:
    first, second = (
        Answer(body={"schema": "a", "subject": "chess-value", "version": at, "id": 10 + at})
        for at in (1, 2)
    )
    with playing_registry({f"{CHESS}/latest": [first, second]}) as playing:
        mine = registry(playing.url)
        assert mine.newest("chess-value") == SubjectVersion("chess-value", 1, 11)
        assert mine.newest("chess-value") == SubjectVersion("chess-value", 2, 12)


def test_version_is_asked_by_its_number() -> None:
    with playing_registry({f"{CHESS}/1": version("chess-value", "a")}) as playing:
        mine = registry(playing.url)
        assert mine.version("chess-value", 1) == SubjectVersion("chess-value", 1, 1)
        with pytest.raises(UnknownSchema, match="chess-value version 2 is not registered"):
            mine.version("chess-value", 2)


def test_subjects_of_a_schema_are_listed_once() -> None:
    versions = [{"subject": name, "version": at} for at, name in enumerate(["a", "b", "a"], 1)]
    with playing_registry({"/schemas/ids/7/versions": Answer(body=versions)}) as playing:
        mine = registry(playing.url)
        assert mine.subjects_of(7) == ["a", "b"]
        assert mine.subjects_of(8) == []


def test_newest_of_all_leaves_out_a_subject_that_is_gone_meanwhile() -> None:
    answers: dict[str, Any] = {
        "/subjects": Answer(body=["gone-value", "chess-value"]),
        f"{CHESS}/latest": version("chess-value", "a"),
    }
    with playing_registry(answers) as playing:
        assert registry(playing.url).all_newest() == [SubjectVersion("chess-value", 1, 1)]


def test_newest_of_many_are_asked_side_by_side() -> None:
    """None of eight is answered before all are asked; the others come after."""
    together = threading.Barrier(8, timeout=20)

    def answer(subject: str) -> Answer:
        together.wait()
        return version(subject, "a")

    subjects = [f"s{at}" for at in range(16)]
    answers: dict[str, Any] = {
        f"/subjects/{one}/versions/latest": partial(answer, one) for one in subjects
    }
    with playing_registry({"/subjects": Answer(body=subjects), **answers}) as playing:
        assert len(registry(playing.url, patience=60).all_newest()) == 16


QUESTIONS: dict[str, tuple[str, Callable[[HttpRegistry], object]]] = {
    "subjects": ("/subjects", lambda one: one.subjects()),
    "newest": (f"{CHESS}/latest", lambda one: one.newest("chess-value")),
    "version": (f"{CHESS}/1", lambda one: one.version("chess-value", 1)),
    "subjects_of": ("/schemas/ids/7/versions", lambda one: one.subjects_of(7)),
}


@pytest.mark.parametrize(("path", "ask"), QUESTIONS.values(), ids=QUESTIONS.keys())
@pytest.mark.parametrize(
    "answer",
    [
        Answer(500),
        Answer(200, b"<html>welcome</html>", "text/html"),
        Answer(200, {"a": "b"}),
        Answer(200, {"schema": "a", "version": "1", "id": None}),
        Answer(200, [1, 2]),
        Answer(200, [{"subject": 1}]),
    ],
    ids=["error", "no JSON", "another object", "no numbers", "numbers", "no names"],
)
def test_questions_about_subjects_are_asked_with_patience(
    path: str, ask: Callable[[HttpRegistry], object], answer: Answer
) -> None:
    with playing_registry({path: answer}) as playing:
        with pytest.raises(RegistryUnavailable):
            ask(registry(playing.url, patience=1))
        assert len(playing.asked) > 1


@pytest.mark.parametrize(("path", "ask"), QUESTIONS.values(), ids=QUESTIONS.keys())
def test_questions_about_subjects_may_be_refused(
    path: str, ask: Callable[[HttpRegistry], object]
) -> None:
    with playing_registry({path: Answer(403, {"error_code": 403, "message": "no"})}) as playing:
        with pytest.raises(RegistryError) as caught:
            ask(registry(playing.url))
        assert (caught.value.code, playing.asked) == ("registry-refused", [path])
