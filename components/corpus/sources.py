"""The pinned artifacts of the corpus: data/corpus_sources.csv, one row each."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from components.errors import UserError
from components.settings import CorpusSettings

COLUMNS = ("package", "version", "kind", "artifact", "sha256", "bytes", "license", "default")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]*")
_ARCHIVE = re.compile(r"\.(whl|zip|tar\.gz|tgz|tar\.xz|tar\.bz2)$")


@dataclass(frozen=True)
class Source:
    """One archive.

    kind: "pypi" (a wheel or sdist of the Python index) or "debian" (an upstream source archive in Debian's pool).
    sha256, bytes: of the archive; anything else that arrives is refused.
    license: SPDX expression of the package, looked up by a person when the row was written.
    default: part of the corpus when params.yaml names no packages.
    """

    package: str
    version: str
    kind: Literal["pypi", "debian"]
    artifact: str
    sha256: str
    bytes: int
    license: str
    default: bool


def read_sources(path: Path) -> tuple[Source, ...]:
    """Read the source list.

    Raises:
        UserError: missing file, wrong columns, or a row that does not say exactly what is to be fetched.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) != COLUMNS:
                raise UserError(f"{path.name}: line 1: expected the columns {','.join(COLUMNS)}")
            sources = tuple(_row(row, f"{path.name}: line {reader.line_num}") for row in reader)
    except FileNotFoundError:
        raise UserError(f"{path}: not found; corpus.sources in params.yaml names the list of artifacts") from None
    except UnicodeDecodeError:
        raise UserError(f"{path.name}: not UTF-8 text") from None
    seen: set[str] = set()
    for source in sources:
        if source.package in seen:
            raise UserError(f"{path.name}: {source.package}: listed twice, expected one version of each package")
        seen.add(source.package)
    return sources


def select(sources: tuple[Source, ...], settings: CorpusSettings) -> tuple[Source, ...]:
    """The sources that params.yaml asks for: the named packages, or those marked default.

    Raises:
        UserError: an unknown package, a licence outside `corpus.licenses`, or more bytes than `max_download_mb`.
    """
    known = {source.package: source for source in sources}
    for package in settings.packages:
        if package not in known:
            raise UserError(f"corpus.packages: {package!r} is not in {settings.sources}; it has {', '.join(known)}")
    chosen = tuple(s for s in sources if (s.package in settings.packages if settings.packages else s.default))
    if not chosen:
        raise UserError(f"corpus: no source chosen; {settings.sources} marks none as default")
    for source in chosen:
        if source.license not in settings.licenses:
            allowed = ", ".join(settings.licenses)
            raise UserError(
                f"corpus: {source.package}: licence {source.license!r} is not allowed (corpus.licenses: {allowed})"
            )
    megabytes = sum(source.bytes for source in chosen) / 1e6
    if megabytes > settings.max_download_mb:
        raise UserError(
            f"corpus: {len(chosen)} packages are {megabytes:.1f} MB, more than corpus.max_download_mb = "
            f"{settings.max_download_mb:g}; name fewer in corpus.packages or raise the limit"
        )
    return chosen


def _row(row: dict[str, str | None], where: str) -> Source:
    if None in row or None in row.values():
        raise UserError(f"{where}: expected {len(COLUMNS)} fields")
    text = {name: (value or "").strip() for name, value in row.items()}

    def expect(name: str, good: bool, what: str) -> str:
        if not good:
            raise UserError(f"{where}: {name}: expected {what}, found {text[name]!r}")
        return text[name]

    expect("package", bool(_NAME.fullmatch(text["package"])), "a package name")
    expect("version", bool(_NAME.fullmatch(text["version"])), "a version")
    expect("kind", text["kind"] in ("pypi", "debian"), "pypi or debian")
    artifact = text["artifact"]
    expect("artifact", bool(_NAME.fullmatch(artifact) and _ARCHIVE.search(artifact)), "an archive's file name")
    expect("sha256", bool(re.fullmatch("[0-9a-f]{64}", text["sha256"])), "64 lower-case hex digits")
    expect("bytes", text["bytes"].isdigit() and int(text["bytes"]) > 0, "a positive integer")
    expect("license", bool(text["license"]), "an SPDX licence expression")
    expect("default", text["default"] in ("yes", "no"), "yes or no")
    return Source(
        package=text["package"],
        version=text["version"],
        kind=cast(Literal["pypi", "debian"], text["kind"]),
        artifact=artifact,
        sha256=text["sha256"],
        bytes=int(text["bytes"]),
        license=text["license"],
        default=text["default"] == "yes",
    )
