"""What an object store's refusals mean, in one sentence each. Nothing a library says is passed on: it may hold a signature."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cogsmith.errors import UserError

_CREDENTIALS = {
    "AuthFailure",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "Unauthorized",
}
_REGION = {
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "PermanentRedirect",
    "TemporaryRedirect",
}
_UNREACHABLE = re.compile(r"error sending request|dns error|connection|tim(ed|e) ?out", re.I)


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket, as errors name it.

    Attributes:
        name: scheme://bucket.
        endpoint: who is asked.
        credentials: what to check where they are refused.
        address: what to check where nobody answers.
    """

    name: str
    endpoint: str
    credentials: str
    address: str


def refused(place: Place, code: str, status: int, doing: str) -> UserError:
    """The error for an answer of the store.

    Args:
        code: the store's own, as in <Code>NoSuchBucket</Code>; empty where it gave none.
        doing: what was asked for, as in "writing".
    """
    said = code if code and not code.isdecimal() else str(status)
    if code in _CREDENTIALS or status == 401:
        return UserError(f"{place.name} refuses the credentials ({said})", place.credentials)
    if code == "NoSuchBucket":
        return UserError(f"there is no bucket {place.name}", "make it, or correct weights.bucket")
    if code in _REGION or status in (301, 307):
        message = f"{place.name} is in another region than the one that is asked ({said})"
        return UserError(message, "set AWS_REGION to the bucket's region")
    if code == "RequestTimeTooSkewed":
        return UserError(f"{place.name} says that this machine's clock is wrong", "set the clock")
    if status == 403:
        hint = f"allow {doing} to these credentials, or use others"
        return UserError(f"{place.name} does not allow {doing} ({said})", hint)
    if status == 404:
        return UserError(f"{place.name} answers {said} to {doing}", "check that the bucket is still there")
    if status >= 500 or status == 429 or code == "SlowDown":
        return UserError(f"{place.name} answers {said} again and again to {doing}", "try again later")
    return UserError(f"{place.name} answers {said} to {doing}", "check weights.bucket and the endpoint")


def unreachable(place: Place) -> UserError:
    """Nobody answers."""
    return UserError(f"{place.name} cannot be reached at {place.endpoint}", place.address)


def no_credentials(place: Place) -> UserError:
    """There is nothing to sign a request with."""
    return UserError(f"there are no credentials for {place.name}", place.credentials)


def code_in(body: str) -> str:
    """The code in the body of an answer, or nothing."""
    match = re.search(r"<Code>([A-Za-z0-9.]{1,64})</Code>", body)
    return match[1] if match else ""


def of_obstore(place: Place, error: Exception, doing: str) -> UserError:
    """The error for what obstore raised."""
    text = str(error)
    if "token request" in text:  # to this machine's own metadata, where nothing else gives credentials
        return no_credentials(place)
    status = re.search(r"status code: (\d{3})", text)
    if status is not None:
        return refused(place, code_in(text), int(status[1]), doing)
    if _UNREACHABLE.search(text):
        return unreachable(place)
    if re.search(r"credential", text, re.I):
        return no_credentials(place)
    return UserError(f"{doing} failed at {place.name}", place.address)


def of_botocore(place: Place, error: Exception, doing: str) -> UserError:
    """The error for what botocore raised."""
    from botocore import exceptions

    if isinstance(error, exceptions.ClientError):
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        return refused(place, code, status, doing)
    if isinstance(error, exceptions.NoCredentialsError):
        return no_credentials(place)
    if isinstance(error, exceptions.ProfileNotFound):
        return UserError("AWS_PROFILE names a profile that is not configured", place.credentials)
    if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError):
        return unreachable(place)
    # The kinds are many (SSO, assumed roles, a broken configuration file); their names tell them apart.
    return UserError(
        f"the credentials for {place.name} cannot be had ({type(error).__name__})", place.credentials
    )
