"""Pinned archives into .cache/downloads: resumed, retried, and never accepted with another sha256."""

import shutil
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from components.corpus.index import Places, Unreachable, candidates, reason, shown
from components.corpus.sources import Source
from components.errors import UserError
from components.files import sha256_of

if TYPE_CHECKING:
    import requests

_CHUNK = 1 << 18


@dataclass(frozen=True)
class Fetcher:
    """Downloads into one cache folder.

    cache: files lie there as <sha256 of 16 digits>-<artifact>; a file with the right sha256 is never asked for again.
    tries: per address; timeout_s: to connect, and between two packets; pause_s: before the second try, then doubled.
    sleep: replaced in tests.
    """

    cache: Path
    places: Places
    tries: int = 4
    timeout_s: float = 30.0
    pause_s: float = 0.5
    workers: int = 4
    sleep: Callable[[float], None] = field(default=time.sleep)

    def fetch_all(self, sources: Iterable[Source], advance: Callable[[int], Any] = lambda count: None) -> list[Path]:
        """Fetch several archives at a time.

        Args:
            sources: what to fetch.
            advance: told of every byte that is there, downloaded or cached (for a progress bar).

        Returns:
            The files, in the order of `sources`.

        Raises:
            UserError: one could not be had; the first in order is reported.
        """
        with ThreadPoolExecutor(self.workers) as pool:
            futures = [pool.submit(self.fetch, source, advance) for source in sources]
            try:
                return [future.result() for future in futures]
            except BaseException:
                for future in futures:
                    future.cancel()
                raise

    def fetch(self, source: Source, advance: Callable[[int], Any] = lambda count: None) -> Path:
        """One archive, from the cache or from the first address that has it.

        Raises:
            UserError: not offered, not reachable, or not what was pinned.
        """
        path = self.cache / f"{source.sha256[:16]}-{source.artifact}"
        if path.is_file():
            if sha256_of(path) == source.sha256:
                advance(source.bytes)
                return path
            path.unlink()  # damaged on disk
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        problems: list[str] = []
        with _session(self.places) as session:
            try:
                urls = candidates(source, self.places, session, self.timeout_s)
            except Unreachable as error:
                urls, problems = [], [str(error)]
            for url in urls:
                problem = self._from(url, source, part, session, advance)
                if problem is None:
                    part.replace(path)
                    return path
                problems.append(f"{shown(url)}: {problem}")
        raise UserError(
            f"corpus: cannot get {source.artifact} of {source.package}: {'; '.join(problems)}; check the network, "
            "or name other packages in corpus.packages"
        )

    def _from(
        self, url: str, source: Source, part: Path, session: "requests.Session", advance: Callable[[int], Any]
    ) -> str | None:
        """Try one address until the file is whole; None when it is, else why not."""
        problem = ""
        told = 0
        for attempt in range(self.tries):
            if attempt:
                self.sleep(self.pause_s * 2 ** (attempt - 1))
            try:
                final = _download(url, part, source.bytes, session, self.timeout_s)
            except _Broken as error:
                problem = str(error)
                continue
            finally:
                have = min(_size(part), source.bytes)
                advance(have - told)
                told = have
            if final:
                advance(-told)
                part.unlink(missing_ok=True)
                return final
            digest = sha256_of(part)
            if digest == source.sha256:
                return None
            advance(-told)
            told = 0
            part.unlink()
            problem = f"sha256 is {digest}, expected {source.sha256}"
        advance(-told)
        return problem


class _Broken(Exception):
    """Worth another try; what has arrived stays in the .part file."""


def _download(url: str, part: Path, size: int, session: "requests.Session", timeout_s: float) -> str:
    """Append what is missing to `part`; returns why the address is of no use, or an empty text."""
    import requests
    import urllib3

    if url.startswith("file:"):
        shutil.copyfile(url2pathname(urlsplit(url).path), part)
        return "" if _size(part) == size else f"{_size(part)} bytes, expected {size}"
    if (have := _size(part)) >= size:
        part.unlink()
        have = 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        with session.get(url, headers=headers, stream=True, timeout=timeout_s) as answer:
            if answer.status_code == 429 or answer.status_code >= 500:
                raise _Broken(f"HTTP {answer.status_code}")
            if answer.status_code == 416:
                part.unlink(missing_ok=True)
                raise _Broken("HTTP 416")
            if answer.status_code not in (200, 206):
                return f"HTTP {answer.status_code}"
            offered = answer.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
            append = answer.status_code == 206 and offered == str(have)
            if answer.status_code == 206 and not append:
                part.unlink(missing_ok=True)
                raise _Broken("resumed at the wrong place")
            written = have if append else 0
            with part.open("ab" if append else "wb") as file:
                for chunk in answer.raw.stream(_CHUNK, decode_content=False):
                    written += len(chunk)
                    if written > size:
                        return f"more than the expected {size} bytes"
                    file.write(chunk)
    except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, ConnectionError) as error:
        raise _Broken(reason(error)) from None
    if written < size:
        raise _Broken(f"broke off after {written} of {size} bytes")
    return ""


def _session(places: Places) -> "requests.Session":
    import requests

    session = requests.Session()
    session.headers["User-Agent"] = "sparserl"
    if places.certificate:
        session.verify = places.certificate
    return session


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
