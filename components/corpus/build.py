"""Stage `corpus`: pinned archives -> CUDA source that may be learned from -> one parquet file.

Run: python -m components.corpus.build
In:  params.yaml (corpus), data/corpus_sources.csv
Out: data/corpus/corpus.parquet, data/quality/corpus.json, data/metrics/corpus.json
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.corpus.archives import inner_path, members
from components.corpus.dedup import Deduplicator
from components.corpus.fetch import Fetcher
from components.corpus.filters import examine, is_source, is_vendored, sparse_score
from components.corpus.index import Places, configured_places
from components.corpus.sources import Source, read_sources, select
from components.errors import UserError
from components.files import replacing, sha256_text, write_json
from components.settings import CorpusSettings, Settings
from components.stage import run_stage

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("text", "package", "version", "path", "license", "sha256", "n_bytes", "sparse_score", "notice")
SPARSE = 3  # sparse_score from which a file is counted as sparse


def build(settings: Settings, places: Places | None = None) -> dict[str, Any]:
    """Run the stage; returns the metrics it wrote.

    Args:
        settings: params.yaml.
        places: where to download from; what pip and apt are set up with by default.

    Raises:
        UserError: an archive cannot be had or is not what was pinned, or the result breaks the quality suite.
    """
    from tqdm import tqdm

    from components.quality.rules import Limits
    from components.quality.suites import validate
    from components.tracking.runs import stage_run

    started = time.perf_counter()
    choice = settings.corpus
    sources = select(read_sources(settings.root / choice.sources), choice)
    with stage_run("corpus", settings, tags={"packages": str(len(sources))}) as run:
        total = sum(source.bytes for source in sources)
        # Half of the bar is downloading, half reading; both go through the same bytes.
        with tqdm(total=2 * total, desc="corpus", unit="B", unit_scale=True, disable=None) as bar:
            fetcher = Fetcher(settings.root / ".cache/downloads", places or configured_places())
            archives = fetcher.fetch_all(sources, _locked(bar.update))
            downloaded = time.perf_counter()
            dropped: Counter[str] = Counter()
            rows = list(_rows(zip(sources, archives, strict=True), choice, dropped, bar.update))
        if not rows:
            raise UserError(f"corpus: no file is left ({dict(dropped)}); see corpus in params.yaml")
        frame = _frame(rows)
        report = validate("corpus", frame, Limits(choice.licenses, choice.max_file_kb * 1024))
        write_parquet(frame, settings.root / "data/corpus/corpus.parquet")
        write_json(settings.root / "data/quality/corpus.json", report.to_dict())
        summary = summarise(frame, dropped)
        run.log_metrics(0, {name: float(summary[name]) for name in ("files", "bytes", "sparse_files", "sparse_bytes")})
    metrics = {
        "run_id": run.run_id,
        "seconds": round(time.perf_counter() - started, 2),
        "download_seconds": round(downloaded - started, 2),
        "archive_bytes": total,
        **summary,
    }
    write_json(settings.root / "data/metrics/corpus.json", metrics)
    return metrics


def collect(source: Source, archive: Path, choice: CorpusSettings, dropped: Counter[str]) -> Iterator[dict[str, Any]]:
    """The rows of one archive that pass the filters on single files; reasons for the others are counted."""
    limit = choice.max_file_kb * 1024
    found = []
    for member in members(archive, is_source, limit):
        path = inner_path(member.path)
        if path is None:
            dropped["unsafe path"] += 1
        elif is_vendored(path.partition("/")[2]):
            dropped["vendored"] += 1
        elif member.data is None:
            dropped["too large"] += 1
        else:
            judged = examine(path, member.data, choice.licenses)
            if judged.dropped:
                dropped[judged.dropped] += 1
            else:
                found.append((path, judged.text, judged.notice))
    for path, text, notice in sorted(found):  # the order inside an archive is nobody's promise
        yield {
            "text": text,
            "package": source.package,
            "version": source.version,
            "path": path,
            "license": source.license,
            "sha256": sha256_text(text),
            "n_bytes": len(text.encode()),
            "sparse_score": sparse_score(text),
            "notice": notice,
        }


def summarise(frame: "pd.DataFrame", dropped: Counter[str]) -> dict[str, Any]:
    """Counts for the metrics file."""

    def by(column: str) -> dict[str, dict[str, int]]:
        groups = frame.groupby(column)["n_bytes"].agg(["size", "sum"])
        return {
            str(name): {"files": int(size), "bytes": int(total)}
            for name, size, total in zip(groups.index, groups["size"], groups["sum"], strict=True)
        }

    sparse = frame[frame["sparse_score"] >= SPARSE]
    return {
        "files": len(frame),
        "bytes": int(frame["n_bytes"].sum()),
        "sparse_files": len(sparse),
        "sparse_bytes": int(sparse["n_bytes"].sum()),
        "packages": by("package"),
        "licenses": by("license"),
        "dropped": dict(sorted(dropped.items())),
    }


def write_parquet(frame: "pd.DataFrame", path: Path) -> None:
    """Write the corpus; the same rows give the same bytes."""
    with replacing(path) as temporary:
        frame.to_parquet(temporary, engine="pyarrow", compression="zstd", index=False, row_group_size=1024)


def _rows(
    pairs: Iterable[tuple[Source, Path]], choice: CorpusSettings, dropped: Counter[str], advance: Any
) -> Iterator[dict[str, Any]]:
    """Rows of all archives without copies; what an earlier source has is left out of a later one."""
    deduplicator = Deduplicator(choice.near_duplicate_similarity)
    for source, archive in pairs:
        for row in collect(source, archive, choice, dropped):
            reason = deduplicator.verdict(row["text"])
            if reason:
                dropped[reason] += 1
            else:
                yield row
        advance(source.bytes)


def _frame(rows: list[dict[str, Any]]) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame(rows, columns=list(COLUMNS)).sort_values(["package", "path"], ignore_index=True)


def _locked(update: Any) -> Any:
    """tqdm's update for several threads."""
    lock = threading.Lock()

    def call(count: int) -> None:
        with lock:
            update(count)

    return call


if __name__ == "__main__":
    sys.exit(run_stage(build, ("files", "bytes", "sparse_files", "seconds")))
