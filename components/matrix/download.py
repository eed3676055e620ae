"""One file over HTTP: resumed after a break, retried with growing pauses, never half written."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.errors import UserError

_CHUNK = 1 << 16
_LONGEST_PAUSE_S = 60.0


class TransientError(Exception):
    """Worth another try; `pause_s` is what the server asked for, if it did."""

    def __init__(self, message: str, pause_s: float | None = None) -> None:
        super().__init__(message)
        self.pause_s = pause_s


@dataclass(frozen=True)
class Downloader:
    """Limits of a download.

    retries: tries after the first that bring nothing new; a try that brings bytes starts the count again.
    timeout_s: to connect, and between two packets.
    sleep: replaced in tests.
    """

    retries: int
    timeout_s: float
    first_pause_s: float = 0.5
    sleep: Callable[[float], None] = time.sleep

    def fetch(self, url: str, path: Path, check: Callable[[Path], None]) -> None:
        """Download `url` to `path`, which appears only when whole and accepted by `check`.

        An interrupted download leaves `path.part` and goes on from there next time.

        Args:
            check: raises TransientError for a file damaged on the way, UserError for one that is not to be used.

        Raises:
            UserError: refused by the server or by `check`, or out of tries; one line with the address.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        failures = 0
        while True:
            before = _size(part)
            try:
                self._attempt(url, part)
                check(part)
                part.replace(path)
                _validator(part).unlink(missing_ok=True)
                return
            except UserError:
                _discard(part)
                raise
            except TransientError as error:
                failures = 1 if _size(part) > before else failures + 1
                if failures > self.retries:
                    raise UserError(
                        f"{url}: {error} ({failures} tries); check the network and matrices.collection.base_url, "
                        "or set matrices.source to bundled or directory"
                    ) from None
                usual = self.first_pause_s * 2.0 ** (failures - 1)
                self.sleep(min(usual if error.pause_s is None else error.pause_s, _LONGEST_PAUSE_S))

    def _attempt(self, url: str, part: Path) -> None:
        import requests
        import urllib3

        have = _size(part)
        headers = {"Accept-Encoding": "identity", "User-Agent": "sparserl"}
        if have:
            headers["Range"] = f"bytes={have}-"
            if _validator(part).exists():
                headers["If-Range"] = _validator(part).read_text()
        try:
            with requests.get(url, headers=headers, stream=True, timeout=self.timeout_s) as response:
                total = _expected_size(response, part, have, url)
                resumed = response.status_code == 206
                _remember(response, part)
                with part.open("ab" if resumed else "wb") as file:
                    for chunk in response.raw.stream(_CHUNK, decode_content=False):
                        file.write(chunk)
        except requests.exceptions.Timeout:
            raise TransientError(f"no answer within {self.timeout_s:g} s") from None
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, requests.exceptions.MissingSchema):
            raise UserError(f"{url}: not an http(s) address, expected matrices.collection.base_url to be one") from None
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, ConnectionError) as error:
            raise TransientError(_reason(error)) from None
        size = _size(part)
        if total is not None and size != total:
            if size > total:
                _discard(part)
            raise TransientError(f"broke off after {size} bytes, expected {total}")


def _expected_size(response: Any, part: Path, have: int, url: str) -> int | None:
    """Size of the whole file as the answer tells it; raises for an answer that brings no usable bytes."""
    status = response.status_code
    if status == 200:
        length = response.headers.get("Content-Length", "")
        return int(length) if length.isdigit() else None
    if status == 206:
        span, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        if span.partition("-")[0] != str(have):
            _discard(part)
            raise TransientError(f"resumed at the wrong place ({span or 'unknown'}), expected {have}")
        return int(total) if total.isdigit() else None
    if status == 416:
        _discard(part)
        raise TransientError("nothing left to resume; starting over")
    if status == 429 or status >= 500:
        after = response.headers.get("Retry-After", "")
        raise TransientError(f"HTTP {status}", float(after) if after.isdigit() else None)
    what = "no such file" if status in (404, 410) else str(response.reason)
    raise UserError(
        f"{url}: HTTP {status} {what}, expected the collection's layout (<base_url>/MM/<group>/<name>.tar.gz)"
    )


def _remember(response: Any, part: Path) -> None:
    """Keep what names this version of the file, so that two versions are never glued together."""
    etag = response.headers.get("ETag", "")
    mark = response.headers.get("Last-Modified", "") if not etag or etag.startswith("W/") else etag
    if mark:
        _validator(part).write_text(mark)
    else:
        _validator(part).unlink(missing_ok=True)


def _reason(error: Exception) -> str:
    text = str(error)
    if "NameResolution" in text or "getaddrinfo" in text:
        return "the host's name cannot be resolved (offline?)"
    if "refused" in text:
        return "connection refused"
    if "IncompleteRead" in text or "Connection broken" in text or "aborted" in text:
        return "the connection broke off"
    return " ".join(text.split())[:200]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _validator(part: Path) -> Path:
    return part.with_name(part.name + ".validator")


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _validator(part).unlink(missing_ok=True)
