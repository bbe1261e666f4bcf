"""What an error of an object store means, and what to do about it."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from headgate.config.location import is_remote
from headgate.errors import StorageError


def storage_error(url: str, error: BaseException) -> StorageError:
    """Return what to do about the error of an object store."""
    text = str(error)
    host = root_of(url)
    if _REFUSED.search(text):
        return StorageError(
            "storage-refused",
            f"the object storage refuses access to {host}",
            hint="check the keys and the region under `storage`, what the keys may do, and the "
            "clock of this machine",
            where=url,
        )
    if is_of_missing_bucket(text):
        return StorageError(
            "bucket-missing",
            f"there is no bucket {host}",
            hint="create it; Headgate creates no buckets",
            where=url,
        )
    return StorageError(
        "storage-unreachable",
        f"the object storage of {host} does not answer: {_shortened(text)}",
        hint="check `storage.endpoint` and the network, then run again: nothing is lost",
        where=url,
    )


def root_of(url: str) -> str:
    """Return the URL of the bucket or container of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def is_of_missing_bucket(text: str) -> bool:
    """Whether a message says that the bucket does not exist."""
    return bool(_NO_BUCKET.search(text))


def is_storage_error(text: str) -> bool:
    """Whether a message is that of an object store, to delta-rs or to Spark."""
    return bool(_OF_STORE.search(text))


def is_transient(url: str, error: Exception) -> bool:
    """Whether an object store did not answer, so that another attempt may succeed."""
    if not is_remote(url) or not (isinstance(error, StorageError) or is_storage_error(str(error))):
        return False
    code = error.code if isinstance(error, StorageError) else storage_error(url, error).code
    return code == "storage-unreachable"


# The time that a request took, such as 403.7ms, is not a status.
_REFUSED = re.compile(
    r"(?<!\.)\b(?:401|403)\b(?!\.\d)|Unauthorized|Forbidden|Access ?Denied|InvalidAccessKeyId"
    r"|Signature|RequestTimeTooSkewed|AuthorizationFailure|permission",
    re.IGNORECASE,
)
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist", re.IGNORECASE)
_OF_STORE = re.compile(
    r"Generic (?:S3|MicrosoftAzure|GCS) error|error sending request|Error performing [A-Z]+ http"
    r"|fs\.s3a|\bs3a://|software\.amazon\.awssdk"
)
_MAX_TEXT = 200


def _shortened(text: str) -> str:
    """Return the cause in the first line, without addresses of requests, which may be signed."""
    line = re.sub(r"\(?https?://\S+", "", next(iter(text.splitlines()), ""))
    return line.rpartition(" - ")[2][:_MAX_TEXT]
