"""Where an artifact can be had: the Python index that pip is set up with, and Debian's source pool.

Only addresses are looked up here; nothing is installed and no code of a package ever runs. Any mirror will do, because
the bytes are checked against the pinned sha256.
"""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urldefrag, urljoin, urlsplit, urlunsplit
from urllib.request import url2pathname

from components.corpus.sources import Source
from components.errors import UserError

if TYPE_CHECKING:
    import requests

# pip's and Debian's own defaults, where the machine's configuration names nothing else.
PYPI = "https://pypi.org/simple"
DEBIAN = "http://deb.debian.org/debian"
SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"


class Unreachable(Exception):
    """A place that may hold an artifact did not answer."""


@dataclass(frozen=True)
class Places:
    """Where to look.

    indexes: simple-index addresses (PEP 503 or 691), http(s) or file, in order.
    links: folders that hold archives as plain files (pip's find-links).
    mirrors: Debian mirrors, in order.
    certificate: path of the CA bundle that pip was told to use; empty for the usual one.
    """

    indexes: tuple[str, ...] = (PYPI,)
    links: tuple[str, ...] = ()
    mirrors: tuple[str, ...] = (DEBIAN,)
    certificate: str = ""


def configured_places() -> Places:
    """What pip's configuration (files and PIP_* variables) and apt's sources say, with the public defaults."""
    options = _pip_options()
    no_index = bool({value.lower() for value in options.get("no-index", [])} & {"1", "true", "yes", "on"})
    indexes = [*(options.get("index-url") or [PYPI])[:1], *options.get("extra-index-url", [])]
    return Places(
        indexes=() if no_index else tuple(dict.fromkeys(indexes)),
        links=tuple(dict.fromkeys(options.get("find-links", []))),
        mirrors=tuple(dict.fromkeys([*_apt_mirrors(Path("/etc/apt")), DEBIAN])),
        certificate=(options.get("cert") or [""])[0],
    )


def candidates(source: Source, places: Places, session: "requests.Session", timeout_s: float) -> list[str]:
    """Addresses (http, https or file) under which the artifact is offered, best first.

    Raises:
        Unreachable: none was found and at least one place did not answer.
        UserError: every place answered, and none has it.
    """
    if source.kind == "debian":
        return [f"{mirror.rstrip('/')}/{_pool_path(source)}" for mirror in places.mirrors]
    found: list[str] = []
    silent: list[str] = []
    for link in places.links:
        folder = _local_path(link) if link.startswith("file:") else Path(link)
        if folder is not None and (folder / source.artifact).is_file():
            found.append((folder / source.artifact).resolve().as_uri())
    if found:
        return found
    for index in places.indexes:
        try:
            page = f"{index.rstrip('/')}/{_normalised(source.package)}/"
            found += [url for name, url in _listing(page, session, timeout_s) if name == source.artifact]
        except Unreachable as error:
            silent.append(str(error))
        if found:
            return found
    if silent:
        raise Unreachable("; ".join(silent))
    raise UserError(
        f"corpus: {source.package} {source.version}: {source.artifact} is not in the Python index "
        "(withdrawn, or the index that pip is set up with lacks it); name other packages in corpus.packages"
    )


def shown(url: str) -> str:
    """The address without user name and password, for messages."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def _listing(page: str, session: "requests.Session", timeout_s: float) -> list[tuple[str, str]]:
    """(file name, address) of every file on a project's page; empty when the index does not know the project."""
    import requests

    if page.startswith("file:"):
        folder = _local_path(page)
        html = folder / "index.html" if folder is not None else None
        if html is None or not html.is_file():
            return []
        return _parse_html(html.read_text(encoding="utf-8", errors="replace"), page)
    try:
        accept = f"{SIMPLE_JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
        answer = session.get(page, headers={"Accept": accept}, timeout=timeout_s)
    except requests.exceptions.RequestException as error:
        raise Unreachable(f"{shown(page)}: {reason(error)}") from None
    if answer.status_code in (403, 404, 410):
        return []
    if answer.status_code != 200:
        raise Unreachable(f"{shown(page)}: HTTP {answer.status_code}")
    if "json" not in answer.headers.get("Content-Type", ""):
        return _parse_html(answer.text, answer.url)
    try:
        files = answer.json()["files"]
        return [(str(file["filename"]), urljoin(answer.url, str(file["url"]))) for file in files]
    except (ValueError, KeyError, TypeError):
        raise Unreachable(f"{shown(page)}: the answer is not a PEP 691 page") from None


class _Anchors(HTMLParser):
    """Collects the href of every <a>."""

    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.hrefs += [value for name, value in attrs if name == "href" and value]


def _parse_html(text: str, page: str) -> list[tuple[str, str]]:
    parser = _Anchors()
    parser.feed(text)
    links = [urldefrag(urljoin(page, href)).url for href in parser.hrefs]
    return [(unquote(urlsplit(link).path.rpartition("/")[2]), link) for link in links]


def reason(error: Exception) -> str:
    """A few words for what went wrong on the way."""
    text = str(error)
    if "NameResolution" in text or "getaddrinfo" in text or "resolve" in text:
        return "the name cannot be resolved (offline?)"
    if "refused" in text:
        return "connection refused"
    if "timed out" in text.lower() or "timeout" in text.lower():
        return "no answer in time"
    if "CERTIFICATE" in text.upper():
        return "the certificate is not trusted"
    return "the connection broke off" if "IncompleteRead" in text or "broken" in text else type(error).__name__


def _local_path(url: str) -> Path | None:
    parts = urlsplit(url)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None


def _normalised(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def _pool_path(source: Source) -> str:
    """Debian's pool puts `libfoo` under libf/ and everything else under its first letter."""
    name = source.package
    prefix = name[:4] if name.startswith("lib") else name[0]
    return f"pool/main/{prefix}/{name}/{source.artifact}"


def _pip_options() -> dict[str, list[str]]:
    """pip's options by name; a variable wins over a file, `download` over `global`."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        listed = ""
    levels: dict[str, dict[str, list[str]]] = {"global": {}, "download": {}, ":env:": {}}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        level, _, name = key.rpartition(".")
        if level in levels:
            levels[level][name] = _words(value)
    for variable, value in os.environ.items():  # also without pip in this environment
        if variable.startswith("PIP_") and value:
            levels[":env:"][variable[4:].lower().replace("_", "-")] = value.split()
    return {**levels["global"], **levels["download"], **levels[":env:"]}


def _words(value: str) -> list[str]:
    """pip prints the repr of a string that may hold several addresses, separated by blanks or new lines."""
    try:
        text = shlex.split(value)
    except ValueError:
        text = [value]
    return [word for part in text for word in part.replace("\\n", " ").split()]


def _apt_mirrors(folder: Path) -> list[str]:
    """Mirrors of Debian itself that apt is set up with."""
    files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    found: list[str] = []
    for file in files:
        if file.suffix in (".list", ".sources") and file.is_file():
            text = re.sub(r"(?m)#.*$", "", file.read_text(encoding="utf-8", errors="replace"))
            found += re.findall(r"https?://\S+", text)
    return [url.rstrip("/") for url in found if url.rstrip("/").endswith("/debian")]
