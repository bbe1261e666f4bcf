"""Airflow's REST API, as far as workflows need it."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from headgate.config import Secret
from headgate.config.workflow import Airflow
from headgate.errors import WorkflowError

_TIMEOUT = 30.0
_PATIENCE = 60.0
"""Seconds to repeat a request that reads while Airflow does not answer it."""
_PAUSE = 1.0
_PAGE = 100
_LOCAL = {"localhost", "127.0.0.1", "::1"}
_LONGEST = 300
_DENIED = (401, 403)

Query = Sequence[tuple[str, object]]
"""Parameters of a request; a name may be given more than once."""


class AirflowApi:
    """A client of version 2 of the API, with a token that is renewed once it has expired."""

    def __init__(self, settings: Airflow, patience: float = _PATIENCE) -> None:
        self.url = settings.url.rstrip("/")
        self._settings = settings
        self._patience = patience
        self._token: str | None = None
        # Proxy settings of the environment are for other machines.
        is_local = urlsplit(self.url).hostname in _LOCAL
        self._opener = urllib.request.build_opener(
            *([urllib.request.ProxyHandler({})] if is_local else [])
        )

    def get(self, *path: str, query: Query = ()) -> Any:
        """Return an answer, or None if there is nothing at the path.

        A server that has answered before may be down for a while.
        """
        deadline = time.monotonic() + (self._patience if self._token else 0.0)
        while True:
            try:
                return self._request("GET", path, query)
            except WorkflowError as error:
                if error.code != "scheduler-unavailable" or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)

    def all(self, kind: str, *path: str) -> list[Any]:
        """Return all entries of a list that comes in pages."""
        found: list[Any] = []
        while True:
            page = self.get(*path, query=[("limit", _PAGE), ("offset", len(found))])
            if page is None or not page[kind]:
                return found
            found += page[kind]
            if len(found) >= page["total_entries"]:
                return found

    def post(self, *path: str, body: Mapping[str, object]) -> Any:
        return self._request("POST", path, body=body)

    def put(self, *path: str) -> Any:
        return self._request("PUT", path)

    def patch(self, *path: str, body: Mapping[str, object]) -> Any:
        return self._request("PATCH", path, body=body)

    def delete(self, *path: str) -> Any:
        """Delete what is at the path; return None if there is nothing."""
        return self._request("DELETE", path)

    def page(self, *path: str) -> str:
        """Return the URL of a page for people."""
        return "/".join([self.url, *(quote(part, safe="") for part in path)])

    def _request(
        self,
        method: str,
        path: tuple[str, ...],
        query: Query = (),
        body: Mapping[str, object] | None = None,
    ) -> Any:
        url = self.page("api", "v2", *path) + (f"?{urlencode(query)}" if query else "")
        while True:
            is_new = self._token is None
            request = _json_request(method, url, body)
            # Not sent to another server that the first one redirects to.
            request.add_unredirected_header("Authorization", f"Bearer {self._valid_token()}")
            try:
                return self._answer(request)
            except urllib.error.HTTPError as error:
                with error:
                    if error.code == 404:
                        return None
                    if is_new or error.code not in _DENIED:
                        raise self._refusal(error, _detail(error)) from None
                # The token may have expired: repeat it with another.
                self._token = None

    def _valid_token(self) -> str:
        if self._token is None:
            self._token = self._new_token()
        return self._token

    def _new_token(self) -> str:
        url, settings = f"{self.url}/auth/token", self._settings
        request = _json_request("GET", url)
        if settings.username is not None or settings.password is not None:
            body = {"username": _value(settings.username), "password": _value(settings.password)}
            request = _json_request("POST", url, body)
        try:
            answer = self._answer(request)
        except urllib.error.HTTPError as error:
            with error:
                # Not what it says: that may repeat the password.
                raise self._refusal(error, "") from None
        token = answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(token, str):
            raise self._unavailable("it gives no token: is it Airflow 3?")
        return token

    def _answer(self, request: urllib.request.Request) -> Any:
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as response:
                content = response.read()
            return json.loads(content) if content else {}
        except urllib.error.HTTPError:
            raise
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise self._unavailable(str(reason)[:_LONGEST]) from None

    def _refusal(self, error: urllib.error.HTTPError, detail: str) -> WorkflowError:
        what = f"HTTP {error.code}{': ' if detail else ''}{detail}"
        if error.code >= 500 or error.code == 429:
            return self._unavailable(what)
        hint = None
        if error.code in _DENIED:
            hint = "check `workflow.airflow.username` and `workflow.airflow.password`"
        return WorkflowError(
            "scheduler-refused", f"Airflow refuses a request: {what}", hint, where=self.url
        )

    def _unavailable(self, why: str) -> WorkflowError:
        return WorkflowError(
            "scheduler-unavailable",
            f"Airflow does not answer: {why}",
            "check `workflow.airflow.url`, and that Airflow's API server runs",
            where=self.url,
        )


def _json_request(
    method: str, url: str, body: Mapping[str, object] | None = None
) -> urllib.request.Request:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    return urllib.request.Request(url, data, headers, method=method)


def _value(given: str | Secret | None) -> str:
    return given.resolve() if isinstance(given, Secret) else given or ""


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        detail = json.load(error)["detail"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return str(detail)[:_LONGEST]
