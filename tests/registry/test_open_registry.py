from __future__ import annotations

import traceback
from base64 import b64encode
from pathlib import Path

import pytest

from headgate.config import Registry
from headgate.errors import PipelineFileError
from headgate.registry.folder import FolderRegistry
from headgate.registry.open import open_registry

from .fake_registry import Response, fake_registry

SCHEMA = {"/schemas/ids/7": Response(body={"schema": '"int"'})}


def test_folder_is_opened(tmp_path: Path) -> None:
    opened = open_registry(Registry(folder=str(tmp_path)))
    assert isinstance(opened, FolderRegistry)
    assert opened.folder == tmp_path


def test_credentials_are_resolved_on_opening(tmp_path: Path) -> None:
    (tmp_path / "user").write_text("me")
    (tmp_path / "password").write_text("sesame\n")
    with fake_registry({**SCHEMA}) as fake:
        declared = Registry(
            url=fake.url, username=f"file:{tmp_path}/user", password=f"file:{tmp_path}/password"
        )
        assert open_registry(declared).fetch(7).text == '"int"'
        assert fake.authorizations == {f"Basic {b64encode(b'me:sesame').decode()}"}
    assert "sesame" not in repr(declared)


def test_token_is_sent(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc")
    with fake_registry({**SCHEMA}) as fake:
        declared = Registry(url=fake.url, token=f"file:{tmp_path}/token")
        assert open_registry(declared).fetch(7).text == '"int"'
        assert fake.authorizations == {"Bearer abc"}


@pytest.mark.parametrize("token", ["two\nsesame", "sesame ", "sesameé", "token sesame"])
def test_token_that_fits_in_no_header_is_not_shown(tmp_path: Path, token: str) -> None:
    (tmp_path / "token").write_text(token)
    with fake_registry({**SCHEMA}) as fake:
        declared = Registry(url=fake.url, token=f"file:{tmp_path}/token")
        with pytest.raises(PipelineFileError, match="token` has a space") as raised:
            open_registry(declared)
        assert "sesame" not in "".join(traceback.format_exception(raised.value))
