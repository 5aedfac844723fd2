"""The requests of one multipart upload to S3, which obstore does not offer: begin, list, sign, complete, give up."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError

from cogsmith.aws import Connection, botocore_errors
from cogsmith.errors import UserError
from cogsmith.store_errors import Place

FULL, COMPOSITE = "FULL_OBJECT", "COMPOSITE"
_SIGNED_FOR = 3600
# How stores that know no checksums, or no condition, say so.
_NOT_KNOWN = {"InvalidArgument", "InvalidRequest", "MalformedXML", "NotImplemented", "501"}


class UploadGoneError(UserError):
    """The upload was finished or given up by somebody else."""


class ObjectThereError(Exception):
    """There is an object under that key by now."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part that the store has.

    Attributes:
        number: from 1.
        tag: its ETag, with quotes.
        crc: its CRC-32C, where the store gives it.
    """

    number: int
    size: int
    tag: str
    crc: int | None


@dataclass(frozen=True, slots=True)
class Multipart:
    """One upload.

    Attributes:
        key: of the object, with its prefix.
        sums: FULL_OBJECT or COMPOSITE where the store takes the CRC-32C of each part, and refuses a part that has
            another one; what it then gives for the object is one sum over all bytes, or one over the sums of the parts.
    """

    connection: Connection
    bucket: str
    key: str
    id: str
    sums: str | None

    @property
    def place(self) -> Place:
        return self.connection.place

    def parts(self) -> list[Part]:
        """What has arrived so far."""
        found: list[Part] = []
        with botocore_errors(self.place, "listing parts"):
            pages = self.connection.client.get_paginator("list_parts").paginate(**self._names)
            for page in pages:
                for part in page.get("Parts", ()):
                    crc = _number(part.get("ChecksumCRC32C"))
                    found.append(Part(part["PartNumber"], part["Size"], part["ETag"], crc))
        return found

    def signed(self, number: int, crc: int) -> tuple[str, dict[str, str]]:
        """URL and headers to PUT a part with; never show the URL."""
        sums = {"ChecksumCRC32C": encoded(crc)} if self.sums else {}
        with botocore_errors(self.place, "signing"):
            url = self.connection.client.generate_presigned_url(
                "upload_part", Params={**self._names, "PartNumber": number, **sums}, ExpiresIn=_SIGNED_FOR
            )
        return str(url), ({"x-amz-checksum-crc32c": encoded(crc)} if self.sums else {})

    def complete(self, parts: list[tuple[str, int]], whole: int) -> None:
        """Make the object of its parts, unless there is one by now.

        Args:
            parts: ETag and CRC-32C of each.
            whole: CRC-32C of the object.

        Raises:
            ObjectThereError: there is an object under that key; UploadGoneError; UserError.
        """
        listed = [
            {"PartNumber": number, "ETag": tag} | ({"ChecksumCRC32C": encoded(crc)} if self.sums else {})
            for number, (tag, crc) in enumerate(parts, 1)
        ]
        arguments: dict[str, Any] = {"MultipartUpload": {"Parts": listed}}
        if self.sums == FULL:
            arguments |= {"ChecksumCRC32C": encoded(whole), "ChecksumType": FULL}
        with botocore_errors(self.place, "finishing an upload"):
            try:
                self._complete(arguments)
            except ClientError as error:
                code = _code(error)
                if code == "NoSuchUpload":
                    raise self.gone() from None
                if code in ("PreconditionFailed", "412"):
                    raise ObjectThereError from None
                raise

    def _complete(self, arguments: dict[str, Any]) -> None:
        client = self.connection.client
        try:
            client.complete_multipart_upload(**self._names, **arguments, IfNoneMatch="*")
        except ClientError as error:
            if _code(error) not in _NOT_KNOWN:
                raise
            # It knows no condition: asking first is the next best.
            try:
                client.head_object(Bucket=self.bucket, Key=self.key)
            except ClientError:
                client.complete_multipart_upload(**self._names, **arguments)
            else:
                raise ObjectThereError from None

    def give_up(self) -> None:
        """Remove the parts. A store that does not allow it removes them after a time, if it is told to."""
        with botocore_errors(self.place, "giving up an upload"):
            try:
                self.connection.client.abort_multipart_upload(**self._names)
            except ClientError as error:
                if _code(error) not in ("NoSuchUpload", "404"):
                    raise

    def gone(self) -> UploadGoneError:
        return UploadGoneError(f"the upload to {self.place.name} was removed meanwhile", "pack again")

    @property
    def _names(self) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": self.key, "UploadId": self.id}


def begin(connection: Connection, bucket: str, key: str) -> Multipart:
    """Begin an upload: with checksums where the store knows them. Raises UserError."""
    with botocore_errors(connection.place, "writing"):
        names = {"Bucket": bucket, "Key": key}
        client = connection.client
        try:
            answer = client.create_multipart_upload(**names, ChecksumAlgorithm="CRC32C", ChecksumType=FULL)
        except ClientError as error:
            if _code(error) not in _NOT_KNOWN:
                raise
            answer = client.create_multipart_upload(**names)
        return Multipart(connection, bucket, key, answer["UploadId"], _sums(answer))


def unfinished(connection: Connection, bucket: str, prefix: str) -> Iterator[tuple[Multipart, datetime]]:
    """Uploads that were begun below a prefix, and when, oldest first. Raises UserError where they may not be listed."""
    with botocore_errors(connection.place, "listing uploads"):
        pages = connection.client.get_paginator("list_multipart_uploads").paginate(
            Bucket=bucket, Prefix=prefix
        )
        found = [upload for page in pages for upload in page.get("Uploads", ())]
    for upload in sorted(found, key=lambda upload: upload["Initiated"]):
        yield (
            Multipart(connection, bucket, upload["Key"], upload["UploadId"], _sums(upload)),
            upload["Initiated"],
        )


def encoded(crc: int) -> str:
    """A CRC-32C as S3 writes it."""
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


def _sums(answer: dict[str, Any]) -> str | None:
    """A store that ignores what it does not know does not name it either; one that knows no types makes composite sums."""
    known = answer.get("ChecksumAlgorithm") == "CRC32C"
    return str(answer.get("ChecksumType") or COMPOSITE) if known else None


def _number(text: str | None) -> int | None:
    return int.from_bytes(base64.b64decode(text), "big") if text else None


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
