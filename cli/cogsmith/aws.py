"""Credentials, region and endpoint of an S3 bucket, found as every tool of AWS finds them: botocore does it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from cogsmith.store_errors import Place, no_credentials, of_botocore

_AWS = (".amazonaws.com", ".amazonaws.com.cn")


@dataclass(frozen=True)
class Connection:
    """How a bucket is asked.

    Attributes:
        client: botocore's, for S3.
        credentials: botocore's; renewed by it where they run out.
        endpoint: base URL.
        certificates: file with the certificates to trust, where one is set.
    """

    client: Any
    credentials: Any
    region: str
    endpoint: str
    place: Place
    certificates: str | None


def connect(bucket: str) -> Connection:
    """Find out how to ask a bucket. Raises UserError, also where there are no credentials."""
    place = _place(bucket, "")
    with botocore_errors(place, "signing"):
        session = botocore.session.Session()
        region = os.environ.get("AWS_REGION") or session.get_config_variable("region") or "us-east-1"
        client = _client(session, region)
        endpoint = client.meta.endpoint_url
        place = _place(bucket, endpoint)
        credentials = session.get_credentials()
        if credentials is None:
            raise no_credentials(place)
        actual = _region_of(client, bucket, region)
        if actual != region:
            client = _client(session, actual)
            endpoint = client.meta.endpoint_url
        certificates = session.get_config_variable("ca_bundle")
    return Connection(client, credentials, actual, endpoint, place, certificates)


@contextlib.contextmanager
def botocore_errors(place: Place, doing: str) -> Iterator[None]:
    """What botocore raises, as a UserError."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise of_botocore(place, error, doing) from None


def _place(bucket: str, endpoint: str) -> Place:
    url = urlsplit(endpoint)
    return Place(
        f"s3://{bucket}",
        f"{url.scheme}://{url.netloc.rpartition('@')[2]}",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
        "check the network and AWS_ENDPOINT_URL",
    )


def _client(session: Any, region: str) -> Any:
    config = Config(
        # The default signs URLs in a way of 2006 that no newer region takes.
        signature_version="s3v4",
        connect_timeout=10,
        read_timeout=60,
        retries={"mode": "standard", "total_max_attempts": 4},
        # Checksums are given where they are known before; other stores refuse the default ones.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    client = session.create_client("s3", region_name=region, config=config)
    if _is_aws(client):
        return client
    # A store of one's own seldom has a host name for each bucket.
    config = config.merge(Config(s3={"addressing_style": "path"}))
    return session.create_client("s3", region_name=region, config=config)


def _is_aws(client: Any) -> bool:
    return (urlsplit(client.meta.endpoint_url).hostname or "").endswith(_AWS)


def _region_of(client: Any, bucket: str, region: str) -> str:
    """AWS tells a bucket's region with every answer, also with a refusal: a URL must be signed for it."""
    if not _is_aws(client):
        return region
    try:
        answer = client.head_bucket(Bucket=bucket)
    except ClientError as error:
        answer = error.response
    except BotoCoreError:  # told by the request that matters
        return region
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return str(headers.get("x-amz-bucket-region", region))
