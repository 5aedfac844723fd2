"""A bucket of S3, or of a store that speaks its protocol (R2, MinIO): obstore for single requests, multipart.py for uploads."""

from __future__ import annotations

import contextlib
import functools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError
from crc32c import crc32c
from obstore.store import S3Store

from cogsmith import multipart
from cogsmith.aws import Connection, botocore_errors, connect
from cogsmith.bucket import Unfinished
from cogsmith.errors import UserError
from cogsmith.multipart import COMPOSITE, FULL, Multipart, ObjectThereError, UploadGoneError, encoded
from cogsmith.object_store import RETRIES, ObjectStore, client_options
from cogsmith.upload import upload
from cogsmith.verify import check_ends

if TYPE_CHECKING:
    from obstore.store import S3Credential

    from cogsmith.layout import Layout
    from cogsmith.progress import Progress
    from cogsmith.read_files import Summed
    from cogsmith.store_errors import Place

_SMALLEST_PART = 16 << 20
_MOST_PARTS = 10_000
# How long credentials are used before botocore is asked again, which renews those that run out.
_ASK_AGAIN = timedelta(minutes=10)
_ACCESS_CHECK = ".access-check"


class S3Bucket(ObjectStore):
    """s3://bucket/prefix."""

    scheme = "s3"

    @functools.cached_property
    def _connection(self) -> Connection:
        return connect(self._bucket)

    @property
    def place(self) -> Place:
        return self._connection.place

    @functools.cached_property
    def _store(self) -> S3Store:
        connection = self._connection
        options = client_options(connection.endpoint)
        if connection.certificates and connection.endpoint.startswith("https://"):
            options["root_certificate"] = Path(connection.certificates).read_bytes()
        return S3Store(
            self._bucket,
            config={
                "endpoint": connection.endpoint,
                "region": connection.region,
                "virtual_hosted_style_request": False,
            },
            client_options=options,
            retry_config=RETRIES,
            credential_provider=self._credential,
        )

    def _credential(self) -> S3Credential:
        found = self._connection.credentials.get_frozen_credentials()
        return {
            "access_key_id": found.access_key,
            "secret_access_key": found.secret_key,
            "token": found.token,
            "expires_at": datetime.now(UTC) + _ASK_AGAIN,
        }

    def check_access(self) -> None:
        """Begin an upload and give it up: no other request proves that writing is allowed and leaves nothing behind."""
        begun = multipart.begin(self._connection, self._bucket, self._key(_ACCESS_CHECK))
        # Giving up is a permission of its own; without it an upload without parts stays, which costs nothing.
        with contextlib.suppress(UserError):
            begun.give_up()

    def part_size(self, size: int) -> int:
        mebibyte = 1 << 20
        return max(_SMALLEST_PART, -(-size // _MOST_PARTS // mebibyte) * mebibyte)

    def send(self, key: str, plan: Layout, summed: Summed, progress: Progress | None = None) -> None:
        """In parts, going on from an upload of this object that was interrupted."""
        going = self._interrupted(key) or multipart.begin(self._connection, self._bucket, self._key(key))
        try:
            upload(going, plan, summed, progress)
        except ObjectThereError:
            going.give_up()
        except UploadGoneError:
            # Another process may have gone on with the same upload, and finished it.
            if not self.holds(key, plan.size):
                raise
        self._check_arrived(key, summed)

    def _interrupted(self, key: str) -> Multipart | None:
        """The newest one, where uploads may be listed."""
        with contextlib.suppress(UserError):
            found = multipart.unfinished(self._connection, self._bucket, self._key(key))
            same = [begun for begun, _ in found if begun.key == self._key(key)]
            return same[-1] if same else None
        return None

    def _check_arrived(self, key: str, summed: Summed) -> None:
        """By the store's own sum over the object where it has one, else by reading its first, middle and last bytes."""
        with botocore_errors(self.place, "reading"):
            client = self._connection.client
            try:
                answer = client.head_object(Bucket=self._bucket, Key=self._key(key), ChecksumMode="ENABLED")
            except ClientError:  # a store without checksums
                answer = client.head_object(Bucket=self._bucket, Key=self._key(key))
        if answer["ContentLength"] != summed.index.size:
            raise self.damaged(key)
        given, kind = answer.get("ChecksumCRC32C"), answer.get("ChecksumType")
        if given and kind == FULL:
            right = given == encoded(summed.whole)
        elif given and kind == COMPOSITE and given.endswith(f"-{len(summed.parts)}"):
            sums = b"".join(crc.to_bytes(4, "big") for crc in summed.parts)
            right = given == f"{encoded(crc32c(sums))}-{len(summed.parts)}"
        else:
            check_ends(self, key, summed.index)
            return
        if not right:
            raise self.damaged(key)

    def unfinished(self) -> tuple[Unfinished, ...]:
        found = multipart.unfinished(self._connection, self._bucket, self._prefix)
        keys = [(begun.key.removeprefix(self._prefix), begun.id, started) for begun, started in found]
        return tuple(Unfinished(key, id_, started) for key, id_, started in keys if "/" not in key)

    def give_up(self, upload: Unfinished) -> None:
        Multipart(self._connection, self._bucket, self._key(upload.key), upload.id, None).give_up()
