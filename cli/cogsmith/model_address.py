"""What `model:` may name besides a path: a repository of the Hugging Face Hub, a tar behind https, a folder of a bucket."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]*")
_KNOWN = "hf://owner/repo, https://host/model.tar, s3://bucket/prefix, gs://bucket/prefix"

Problem = tuple[str, str]


@dataclass(frozen=True)
class HubAddress:
    """hf://repo@revision. The revision is a branch, a tag or a commit; None where the address names none."""

    repo: str
    revision: str | None

    @property
    def url(self) -> str:
        """The address without a revision: what an index calls its source."""
        return f"hf://{self.repo}"

    @property
    def branch(self) -> str:
        """The revision to resolve."""
        return self.revision or "main"

    @property
    def is_commit(self) -> bool:
        """Whether it names a commit, which never moves."""
        return is_commit(self.branch)


def is_commit(revision: str) -> bool:
    """Whether it is a commit's whole name: 40 hex digits."""
    return _COMMIT.fullmatch(revision) is not None


def scheme(model: str) -> str | None:
    """`hf` of hf://…, in lower case; None of a path."""
    found = _SCHEME.match(model)
    return found[1].lower() if found else None


def hub_address(model: str) -> HubAddress:
    """The parts of an hf:// address that `address_problem` takes for good."""
    repo, at, revision = model.partition("://")[2].partition("@")
    return HubAddress(repo, revision if at else None)


def address_problem(model: str) -> Problem | None:
    """What is wrong with an address, and a hint; None where nothing is, or where it is a path. Shows no query and no password."""
    name = scheme(model)
    if name is None:
        return None
    checks = {"hf": _hub_problem, "https": _https_problem, "s3": _bucket_problem, "gs": _bucket_problem}
    if name in checks:
        return checks[name](model)
    if name == "http":
        return "is a http:// address: whoever is between could change the weights", "use https://"
    if name == "file":
        return "is a file:// address", "write the path alone"
    return f"is a {name}:// address, which is not read", f"known: {_KNOWN}"


def _hub_problem(model: str) -> Problem | None:
    repo, at, revision = model.partition("://")[2].partition("@")
    if not _REPO.fullmatch(repo) or ".." in repo or "--" in repo:
        return (
            "is no name of a model on the Hugging Face Hub",
            "write hf://owner/repo or hf://owner/repo@revision",
        )
    if at and (not _REVISION.fullmatch(revision) or ".." in revision):
        return "names no revision after @", "write a branch, a tag or a commit, or leave out @ for main"
    return None


def _https_problem(model: str) -> Problem | None:
    try:
        url = urlsplit(model)
        host, _ = url.hostname, url.port
    except ValueError:
        host = None
    if not host or re.search(r"\s", model):
        return "is no valid address", "write https://host/model.tar"
    if url.username is not None or url.password is not None or url.query or url.fragment:
        hint = "give an address that can be read without a secret, or download it and name its folder"
        return "holds a password or a query string, which would be readable in the lock", hint
    if host in ("huggingface.co", "hf.co"):
        return "is a page of the Hugging Face Hub", "write hf://owner/repo"
    if not url.path.lower().endswith(".tar"):
        return (
            "is an address of something else than a .tar",
            "pack the folder with plain `tar`, or download it",
        )
    return None


def _bucket_problem(model: str) -> Problem | None:
    name, _, rest = model.partition("://")
    bucket, _, prefix = rest.partition("/")
    wanted = f"write {name.lower()}://bucket/prefix"
    if not _BUCKET.fullmatch(bucket):
        return "names no bucket", wanted
    if not prefix.strip("/") or not prefix.isprintable() or "//" in prefix or ".." in prefix.split("/"):
        return "names no folder of the bucket", wanted
    if "?" in prefix or "#" in prefix:
        return "holds a query string", wanted
    return None
