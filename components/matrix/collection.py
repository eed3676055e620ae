"""Client of the SuiteSparse Matrix Collection: <base_url>/files/ssstats.csv and <base_url>/MM/<group>/<name>.tar.gz.

The sha256 of everything downloaded is recorded in data/collection_pins.json, which belongs in git; from then on other
content is an error. The collection is distributed under CC-BY 4.0.

References:
    Davis, Hu. The University of Florida Sparse Matrix Collection. ACM TOMS 38(1), 2011.
"""

import dataclasses
import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from components.errors import UserError
from components.files import project_root, read_json, sha256_of, write_json
from components.matrix.collection_index import IndexRow, parse_index, select
from components.matrix.download import Downloader, TransientError
from components.matrix.load import load_matrix
from components.matrix.types import SparseMatrix
from components.settings import CollectionSettings

__all__ = ["CollectionClient", "pull", "select"]

PINS = Path("data/collection_pins.json")
CACHE = Path(".cache/collection")
INDEX = "files/ssstats.csv"


@dataclass(frozen=True)
class CollectionClient:
    """Downloads into `cache`, laid out as on the server; `pins` is the JSON file of recorded hashes."""

    base_url: str
    cache: Path
    pins: Path
    downloader: Downloader

    @classmethod
    def of_project(cls, settings: CollectionSettings, root: Path, cache: Path | None = None) -> "CollectionClient":
        """The client that params.yaml describes."""
        downloader = Downloader(settings.retries, settings.timeout_s)
        return cls(settings.base_url.rstrip("/"), cache or root / CACHE, root / PINS, downloader)

    def index(self) -> list[IndexRow]:
        """Every matrix of the collection.

        Raises:
            UserError: it cannot be downloaded, is not an index, or differs from the one recorded.
        """
        path = self._fetch(INDEX)
        return parse_index(path.read_text(encoding="utf-8", errors="replace"), str(path))

    def fetch(self, matrix_id: str) -> Path:
        """The archive of `group/name`, downloaded unless a copy with the recorded hash is there.

        Raises:
            UserError: it cannot be downloaded, or its content is not what was recorded.
        """
        return self._fetch(f"MM/{matrix_id}.tar.gz")

    def load(self, row: IndexRow) -> SparseMatrix:
        """Fetch and read one matrix, and hold it against the index.

        Raises:
            UserError: as `fetch`; the archive is malformed; shape or number of entries differ from the index.
        """
        path = self.fetch(row.id)
        matrix = load_matrix(path, name=row.name, group=row.group)
        if (matrix.rows, matrix.cols) != (row.rows, row.cols) or matrix.nnz not in (row.nnz, row.entries):
            seen = f"{matrix.rows} x {matrix.cols} with {matrix.nnz} entries"
            raise UserError(f"{path}: {seen}, expected {row.rows} x {row.cols} with {row.entries} as the index says")
        return dataclasses.replace(matrix, source=self._url(f"MM/{row.id}.tar.gz"))

    def _url(self, relative: str) -> str:
        return f"{self.base_url}/{relative}"

    def _fetch(self, relative: str) -> Path:
        path = self.cache / relative
        pin = self._pins().get(relative)
        if path.is_file() and pin == sha256_of(path):
            return path

        def check(part: Path) -> None:
            _check_index(part) if relative == INDEX else _check_archive(part)
            seen = sha256_of(part)
            if pin not in (None, seen):
                raise UserError(
                    f"{self._url(relative)}: content changed (sha256 {seen}), expected {pin} as recorded; "
                    f"to accept it, remove its line from {self.pins}"
                )

        self.downloader.fetch(self._url(relative), path, check)
        if pin is None:
            write_json(self.pins, dict(sorted({**self._pins(), relative: sha256_of(path)}.items())))
        return path

    def _pins(self) -> dict[str, str]:
        pins = read_json(self.pins) if self.pins.exists() else {}
        if not isinstance(pins, dict) or not all(isinstance(value, str) for value in pins.values()):
            raise UserError(f"{self.pins}: expected a JSON object of file: sha256")
        return pins


def pull(names: Sequence[str], settings: CollectionSettings, out: Path) -> list[Path]:
    """Download the archives of `names` (`group/name`) to `out`/<group>/<name>.tar.gz.

    Raises:
        UserError: a name that the index does not hold, or as `CollectionClient.fetch`.
    """
    import shutil

    from tqdm import tqdm

    client = CollectionClient.of_project(settings, project_root())
    rows = client.index()
    select(rows, dataclasses.replace(settings, names=tuple(names)), 0)
    paths = []
    for name in tqdm(names, desc="matrices", unit="file", disable=None):
        target = out / f"{name}.tar.gz"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(client.fetch(name), target)
        paths.append(target)
    return paths


def _check_index(path: Path) -> None:
    try:
        parse_index(path.read_text(encoding="utf-8", errors="replace"), "index")
    except UserError as error:
        path.unlink(missing_ok=True)
        raise TransientError(f"not a whole index ({error})") from None


def _check_archive(path: Path) -> None:
    """Read a gzip file to its end, checksum included: a damaged download must not be recorded."""
    try:
        with gzip.open(path) as file:
            while file.read(1 << 22):
                pass
    except (OSError, EOFError, zlib.error) as error:
        path.unlink(missing_ok=True)
        raise TransientError(f"damaged archive ({error})") from None
