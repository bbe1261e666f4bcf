from __future__ import annotations

import socket
import threading
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import RegistryError, RegistryUnavailable
from headgate.registry import deadline
from headgate.registry.http import HttpRegistry, HttpRegistrySettings
from headgate.registry.registry import RefusedSchema, SchemaText, SubjectVersion, UnknownSchema

from .fake_registry import UNKNOWN, Response, Responses, fake_registry
from .trickling import trickling_server, write_certificate

SCHEMA_7 = "/schemas/ids/7"
TIMEOUT = 5.0


def no_delay(_: float) -> None:
    """Retry immediately."""


def registry(
    url: str,
    timeout: float = TIMEOUT,
    sleep: Callable[[float], None] = no_delay,
    client: dict[str, Any] | None = None,
) -> HttpRegistry:
    return HttpRegistry(HttpRegistrySettings(url, client or {}, timeout), sleep)


SESAME = {"basic.auth.user.info": "me:sesame"}


def proto(text: str, *references: tuple[str, str]) -> Response:
    refers = [{"name": name, "subject": subject, "version": 1} for name, subject in references]
    return Response(body={"schema": text, "schemaType": "PROTOBUF", "references": refers})


def version(subject: str, text: str, *references: tuple[str, str]) -> Response:
    response = proto(text, *references)
    return Response(body={**response.body, "subject": subject, "version": 1, "id": 1})


def test_schema_is_fetched_by_id() -> None:
    with fake_registry({SCHEMA_7: proto("message A {}")}) as fake:
        assert registry(fake.url).fetch(7) == SchemaText("PROTOBUF", "message A {}")


def test_schema_without_a_type_is_avro() -> None:
    with fake_registry({SCHEMA_7: Response(body={"schema": '"int"'})}) as fake:
        assert registry(fake.url).fetch(7) == SchemaText("AVRO", '"int"')


def test_schema_is_fetched_by_guid() -> None:
    guid = "11111111-2222-3333-4444-555555555555"
    with fake_registry({f"/schemas/guids/{guid}": proto("message A {}")}) as fake:
        assert registry(fake.url).fetch(guid).text == "message A {}"


def test_references_are_fetched_and_the_least_dependent_comes_first() -> None:
    responses: dict[str, Any] = {
        SCHEMA_7: proto("a", ("b.proto", "b"), ("c.proto", "c")),
        "/subjects/b/versions/1": version("b", "text of b", ("c.proto", "c")),
        "/subjects/c/versions/1": version("c", "text of c"),
    }
    with fake_registry(responses) as fake:
        fetched = registry(fake.url).fetch(7)
        assert fetched.references == (("c.proto", "text of c"), ("b.proto", "text of b"))
        assert len(fake.requests) == 3


def test_cyclic_references_are_fetched_once() -> None:
    responses: dict[str, Any] = {
        SCHEMA_7: proto("a", ("b.proto", "b")),
        "/subjects/b/versions/1": version("b", "text of b", ("c.proto", "c")),
        "/subjects/c/versions/1": version("c", "text of c", ("b.proto", "b")),
    }
    with fake_registry(responses) as fake:
        names = [name for name, _ in registry(fake.url).fetch(7).references]
        assert sorted(names) == ["b.proto", "c.proto"]


def test_too_deep_references_are_refused() -> None:
    chain: dict[str, Any] = {
        f"/subjects/s{at}/versions/1": version(f"s{at}", "", (f"{at + 1}.proto", f"s{at + 1}"))
        for at in range(40)
    }
    with (
        fake_registry({SCHEMA_7: proto("a", ("0.proto", "s0")), **chain}) as fake,
        pytest.raises(RefusedSchema, match="deeper than 16"),
    ):
        registry(fake.url).fetch(7)


def test_too_many_references_are_refused() -> None:
    many = [(f"{at}.proto", "s") for at in range(300)]
    responses: dict[str, Any] = {
        SCHEMA_7: proto("a", *many),
        "/subjects/s/versions/1": version("s", ""),
    }
    with (
        fake_registry(responses) as fake,
        pytest.raises(RefusedSchema, match="more than 256 references"),
    ):
        registry(fake.url).fetch(7)


@pytest.mark.parametrize("code", [40401, 40402, 40403])
def test_schema_that_the_registry_does_not_have_is_unknown(code: int) -> None:
    response = Response(404, {"error_code": code, "message": "not found"})
    with fake_registry({SCHEMA_7: response}) as fake:
        with pytest.raises(UnknownSchema, match="schema 7 is not registered"):
            registry(fake.url).fetch(7)
        assert fake.requests == [SCHEMA_7]


def test_reference_that_the_registry_does_not_have_is_unknown() -> None:
    with (
        fake_registry({SCHEMA_7: proto("a", ("b.proto", "b"))}) as fake,
        pytest.raises(UnknownSchema, match="b version 1 is not registered"),
    ):
        registry(fake.url).fetch(7)


INVALID = {
    "server error": Response(500, {"error_code": 50001, "message": "store"}),
    "server error of a proxy": Response(502, b"<html>bad gateway</html>", "text/html"),
    "too many requests": Response(429, {"error_code": 42901, "message": "slow down"}),
    "page not found": Response(404, b"<html>not here</html>", "text/html"),
    "another 404": Response(404, {"error_code": 404, "message": "HTTP 404 Not Found"}),
    "redirect": Response(302, b""),
    "nothing": Response(200, b""),
    "no JSON": Response(200, b"<html>welcome</html>", "text/html"),
    "a list": Response(200, []),
    "an empty object": Response(200, {}),
    "a number for a schema": Response(200, {"schema": 42}),
    "a list for a type": Response(200, {"schema": "x", "schemaType": ["PROTOBUF"]}),
    "words for references": Response(200, {"schema": "x", "references": "abc"}),
}


@pytest.mark.parametrize("response", INVALID.values(), ids=INVALID.keys())
def test_registry_with_invalid_responses_is_unavailable(response: Response) -> None:
    with fake_registry({SCHEMA_7: response}) as fake:
        with pytest.raises(RegistryUnavailable, match="no valid response for schema 7") as caught:
            registry(fake.url).fetch(7)
        assert len(fake.requests) > 2
    assert caught.value.code == "registry-unavailable"
    assert caught.value.where == fake.url


@pytest.mark.parametrize("response", INVALID.values(), ids=INVALID.keys())
def test_requests_are_retried_until_the_registry_recovers(response: Response) -> None:
    with fake_registry({SCHEMA_7: [response, response, proto("message A {}")]}) as fake:
        assert registry(fake.url).fetch(7).text == "message A {}"


def test_delays_grow_and_stay_within_the_timeout() -> None:
    pauses: list[float] = []
    with (
        fake_registry({SCHEMA_7: Response(500)}) as fake,
        pytest.raises(RegistryUnavailable, match="within 5 s"),
    ):
        registry(fake.url, sleep=pauses.append).fetch(7)
    assert pauses == sorted(pauses)
    assert 1 < sum(pauses) < 2 * TIMEOUT


def test_registry_that_is_down_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(RegistryUnavailable):
        registry(f"http://127.0.0.1:{port}").fetch(7)


def test_registry_that_does_not_answer_in_time_is_unavailable() -> None:
    over = threading.Event()

    def slowly() -> Response:
        over.wait(30)
        return proto("message A {}")

    with fake_registry({SCHEMA_7: slowly}) as fake:
        with pytest.raises(RegistryUnavailable, match="Timeout"):
            registry(fake.url, timeout=0.1, client={"timeout": 0.05}).fetch(7)
        over.set()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n"


@pytest.mark.parametrize("encrypted", [False, True], ids=["http", "https"])
@pytest.mark.parametrize(
    ("first", "byte"),
    [(b"", b"H"), (HEAD + b"X-More: ", b"x"), (HEAD + b"\r\n", b" ")],
    ids=["status", "head", "body"],
)
def test_registry_that_trickles_bytes_is_unavailable_in_time(
    first: bytes, byte: bytes, encrypted: bool, tmp_path: Path
) -> None:
    """The server ends only once the client has gone away."""
    certificate = tmp_path / "server.pem"
    write_certificate(certificate)
    with trickling_server(first, byte, certificate if encrypted else None) as (url, gone):
        mine = registry(url, timeout=0.5, client={"ssl.ca.location": str(certificate)})
        with pytest.raises(RegistryUnavailable, match="Timeout"):
            mine.fetch(7)
        assert gone.wait(60)


def test_response_without_an_end_is_not_read_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "MAX_RESPONSE_SIZE", 10_000)
    body = Response(body={"schema": "message A {}" + " " * 20_000})
    with fake_registry({SCHEMA_7: body}) as fake:
        with pytest.raises(RegistryUnavailable, match="larger than"):
            registry(fake.url, timeout=0.5).fetch(7)
        # The limit is that of a request, not that of a connection.
        for _ in range(3):
            assert registry(fake.url).subjects_of(7) == []


@pytest.mark.parametrize("status", [401, 403])
def test_refusal_is_not_retried(status: int) -> None:
    with fake_registry(
        {SCHEMA_7: Response(status, {"error_code": status, "message": "no"})}
    ) as fake:
        with pytest.raises(RegistryError, match="refused schema 7") as caught:
            registry(fake.url).fetch(7)
        assert fake.requests == [SCHEMA_7, "/subjects"]
    assert caught.value.code == "registry-refused"
    assert not isinstance(caught.value, RegistryUnavailable)


@pytest.mark.parametrize("status", [401, 403])
def test_refusal_of_one_schema_does_not_stop_a_stream(status: int) -> None:
    refusal = Response(status, {"error_code": status, "message": "not for you"})
    with (
        fake_registry({SCHEMA_7: refusal, "/subjects": Response(body=[])}) as fake,
        pytest.raises(RefusedSchema, match="not for you"),
    ):
        registry(fake.url).fetch(7)


@pytest.mark.parametrize("body", [b"", b"<html>Not found</html>", {"message": "no such path"}])
def test_schema_is_unknown_whatever_the_body_of_a_404(body: Any) -> None:
    """Registries without GUIDs answer their path with an empty body."""
    guid = "89791762-2336-4186-9674-299b90a802e2"
    missing = {f"/schemas/guids/{guid}": Response(404, body), SCHEMA_7: Response(404, body)}
    with fake_registry({**missing, "/subjects": Response(body=[])}) as fake:
        for key in (7, guid):
            with pytest.raises(UnknownSchema):
                registry(fake.url).fetch(key)


def test_registry_at_another_path_is_unavailable() -> None:
    everything: Responses = {SCHEMA_7: Response(404), "/subjects": Response(404)}
    with fake_registry(everything) as fake, pytest.raises(RegistryUnavailable):
        registry(fake.url).fetch(7)


def test_basic_auth_is_sent() -> None:
    with fake_registry({SCHEMA_7: proto("a")}) as fake:
        registry(fake.url, client=SESAME).fetch(7)
        assert fake.authorizations == {f"Basic {b64encode(b'me:sesame').decode()}"}


@pytest.mark.parametrize("response", [Response(401), Response(500), Response(200, b"x"), UNKNOWN])
def test_errors_do_not_contain_the_password(response: Response) -> None:
    settings = HttpRegistrySettings("", SESAME)
    assert "sesame" not in repr(settings)
    with fake_registry({SCHEMA_7: response}) as fake:
        with pytest.raises(RegistryError) as caught:
            registry(fake.url, client=SESAME).fetch(7)
        assert len(fake.authorizations) == 1
    secret = b64encode(b"me:sesame").decode()
    for text in (str(caught.value), repr(caught.value), repr(caught.value.parts)):
        assert "sesame" not in text
        assert secret not in text


def test_registering_gives_the_id() -> None:
    path = "POST /subjects/chess-value/versions"
    with fake_registry({path: Response(body={"id": 7, "version": 1})}) as fake:
        assert registry(fake.url).register("chess-value", SchemaText("PROTOBUF", "a")) == 7


def test_registering_an_incompatible_schema_is_refused() -> None:
    path = "POST /subjects/chess-value/versions"
    with fake_registry(
        {path: Response(409, {"error_code": 409, "message": "incompatible"})}
    ) as fake:
        with pytest.raises(RegistryError, match="incompatible") as caught:
            registry(fake.url).register("chess-value", SchemaText("PROTOBUF", "a"))
        assert caught.value.code == "registry-refused"


def test_subjects_are_listed() -> None:
    with fake_registry({"/subjects": Response(body=["a", "b"])}) as fake:
        assert registry(fake.url).subjects() == ["a", "b"]


CHESS = "/subjects/chess-value/versions"


def test_latest_version_is_not_cached() -> None:
    first, second = (
        Response(body={"schema": "a", "subject": "chess-value", "version": at, "id": 10 + at})
        for at in (1, 2)
    )
    with fake_registry({f"{CHESS}/latest": [first, second]}) as fake:
        mine = registry(fake.url)
        assert mine.latest("chess-value") == SubjectVersion("chess-value", 1, 11)
        assert mine.latest("chess-value") == SubjectVersion("chess-value", 2, 12)


def test_version_is_fetched_by_number() -> None:
    with fake_registry({f"{CHESS}/1": version("chess-value", "a")}) as fake:
        mine = registry(fake.url)
        assert mine.version("chess-value", 1) == SubjectVersion("chess-value", 1, 1)
        with pytest.raises(UnknownSchema, match="chess-value version 2 is not registered"):
            mine.version("chess-value", 2)


def test_subjects_of_a_schema_are_listed_once() -> None:
    versions = [{"subject": name, "version": at} for at, name in enumerate(["a", "b", "a"], 1)]
    with fake_registry({"/schemas/ids/7/versions": Response(body=versions)}) as fake:
        mine = registry(fake.url)
        assert mine.subjects_of(7) == ["a", "b"]
        assert mine.subjects_of(8) == []


def test_latest_versions_leave_out_a_subject_deleted_meanwhile() -> None:
    responses: dict[str, Any] = {
        "/subjects": Response(body=["gone-value", "chess-value"]),
        f"{CHESS}/latest": version("chess-value", "a"),
    }
    with fake_registry(responses) as fake:
        assert registry(fake.url).latest_versions() == [SubjectVersion("chess-value", 1, 1)]


def test_latest_versions_are_fetched_in_parallel() -> None:
    """Respond to the first eight requests only after all of them arrived."""
    together = threading.Barrier(8, timeout=20)

    def response(subject: str) -> Response:
        together.wait()
        return version(subject, "a")

    subjects = [f"s{at}" for at in range(16)]
    responses: dict[str, Any] = {
        f"/subjects/{one}/versions/latest": partial(response, one) for one in subjects
    }
    with fake_registry({"/subjects": Response(body=subjects), **responses}) as fake:
        assert len(registry(fake.url, timeout=60).latest_versions()) == 16


QUESTIONS: dict[str, tuple[str, Callable[[HttpRegistry], object]]] = {
    "subjects": ("/subjects", lambda one: one.subjects()),
    "newest": (f"{CHESS}/latest", lambda one: one.latest("chess-value")),
    "version": (f"{CHESS}/1", lambda one: one.version("chess-value", 1)),
    "subjects_of": ("/schemas/ids/7/versions", lambda one: one.subjects_of(7)),
}


@pytest.mark.parametrize(("path", "ask"), QUESTIONS.values(), ids=QUESTIONS.keys())
@pytest.mark.parametrize(
    "response",
    [
        Response(500),
        Response(200, b"<html>welcome</html>", "text/html"),
        Response(200, {"a": "b"}),
        Response(200, {"schema": "a", "version": "1", "id": None}),
        Response(200, [1, 2]),
        Response(200, [{"subject": 1}]),
    ],
    ids=["error", "no JSON", "another object", "no numbers", "numbers", "no names"],
)
def test_subject_requests_are_retried(
    path: str, ask: Callable[[HttpRegistry], object], response: Response
) -> None:
    with fake_registry({path: response}) as fake:
        with pytest.raises(RegistryUnavailable):
            ask(registry(fake.url, timeout=1))
        assert len(fake.requests) > 1


@pytest.mark.parametrize(("path", "ask"), QUESTIONS.values(), ids=QUESTIONS.keys())
def test_subject_requests_may_be_refused(path: str, ask: Callable[[HttpRegistry], object]) -> None:
    with fake_registry({path: Response(403, {"error_code": 403, "message": "no"})}) as fake:
        with pytest.raises(RegistryError) as caught:
            ask(registry(fake.url))
        assert (caught.value.code, fake.requests) == ("registry-refused", [path])
