"""Which files are CUDA source that may and should be learned from; pure functions of path and text."""

import re
from dataclasses import dataclass

CUDA_SUFFIXES = (".cu", ".cuh")
MAYBE_SUFFIXES = (".h", ".hpp", ".hh", ".hxx", ".inl", ".hip", ".cpp", ".cc", ".c")

MIN_CHARACTERS = 80  # a file of two includes teaches nothing
MAX_LINE = 500  # characters; people wrap at 80 to 140, longer lines are data or generated
MAX_DIGIT_SHARE = 0.3  # of the characters: more is a table of numbers
HEAD = 2000  # characters at the top in which a generator signs

_DEVICE_CODE = ("__global__", "__device__", "__shared__", "__syncthreads", "__launch_bounds__", "__shfl_", "threadIdx.")
_KERNEL = ("__global__",)
_VENDORED = re.compile(
    r"(?:^|/)(?:third[-_]?party|3rd[-_]?party|vendor(?:ed)?|extern(?:als?)?|deps|submodules|node_modules|site-packages)/"
    r"|(?:^|/)(?:build|_skbuild|cmake-build-[^/]*|_cccl)/"
)
_GENERATED = re.compile(
    r"(?im)auto-?generated|this\s+(?:file|source|code)\s+(?:is|was|has\s+been)\s+(?:auto(?:matically)?[-\s]+)?generated"
    r"|^[\s/*#!]*(?:auto(?:matically)?[-\s]+)?generated\s+(?:by|from|using|with)\b|machine[- ]generated"
    r"|do\s+not\s+(?:edit|modify)\s+(?:this|by\s+hand|manually|directly|it)|^[\s/*#!]*do\s+not\s+edit\b|[.:!]\s*do\s+not\s+edit\b"
)
# Phrases are looked for in lower case, without comment signs and with single blanks, so that a line break hides none.
_COPYLEFT = (
    "gnu general public licen",
    "gnu lesser general public",
    "gnu affero general public",
    "gnu library general",
)
_PROPRIETARY = (
    "licensors retain all intellectual property",
    "nvidia intellectual property rights",
    "notice to licensee",
    "notice to user",
    "nvidia software license",
    "end user license agreement",
    "without an express license",
    "without express license",
    "is strictly prohibited",
    "proprietary and confidential",
    "confidential and proprietary",
    "licenseref-nvidia",
)
_OTHER_LICENSE = (
    "mozilla public license",
    "eclipse public license",
    "business source license",
    "creative commons",
    "non-commercial",
    "noncommercial",
    "research purposes only",
    "research use only",
)
_MARKS = str.maketrans("*/#!", "    ")
_SPDX = re.compile(r"SPDX-License-Identifier:[ \t]*([^\r\n*]+)")
_LEGAL = re.compile(r"(?i)copyright|licen[sc]e|spdx-|redistribut|all rights reserved|\(c\)\s*\d{4}")
_COMMENT = re.compile(r"\s*(/\*.*?\*/|(?://[^\n]*(?:\n[ \t]*|$))+)", re.DOTALL)

# Words of sparse linear algebra. A score counts how many different ones a file uses, not how often.
_SPARSE = tuple(
    re.compile(pattern)  # of text in lower case
    for pattern in (
        r"spar[sc]e",
        r"\bcsr|csr_|csrmv",
        r"\bcsc|csc_",
        r"\bcoo(?![lkpr])|coo_",
        r"\bell(?:pack)?\b|ell_|sliced_?ell|\bsell",
        r"\bhyb\b|hyb_",
        r"\bbsr|bsr_|\bbcsr|block_?sparse",
        r"spmv|spmat_?vec",
        r"spmm|csrmm",
        r"sddmm|spgemm|csrgemm",
        r"sptrsv|csrsv|ilu0?\b|\bic0\b",
        r"row_?(?:ptrs?|offsets?|pointers?)|indptr|csr_row|\browptr",
        r"col_?(?:idx|ind|inds|indices|index)\b|csr_col|colidx|column_ind",
        r"\bnnz|_nnz|non_?zeros?",
        r"adjacen",
    )
)


@dataclass(frozen=True)
class Judged:
    """A file after the filters: `dropped` says why it is left out, or is empty and the rest is filled.

    text: the source without its legal notice; notice: that notice, kept beside it.
    """

    dropped: str = ""
    text: str = ""
    notice: str = ""


def is_source(path: str) -> bool:
    """Whether a file of this name can hold CUDA source."""
    return path.endswith((*CUDA_SUFFIXES, *MAYBE_SUFFIXES))


def is_vendored(path: str) -> bool:
    """Whether the path (below the archive's top folder) is another project's code, or a build product."""
    return bool(_VENDORED.search(path))


def examine(path: str, data: bytes, licenses: tuple[str, ...]) -> Judged:
    """Apply every filter that looks at one file.

    Args:
        path: the file's path, for its suffix.
        data: its bytes.
        licenses: allowed SPDX expressions, for files that carry their own.
    """
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        return Judged("not UTF-8 text")
    if "\0" in text:
        return Judged("not UTF-8 text")
    if not is_cuda(path, text):
        return Judged("no CUDA in it")
    if reason := license_problem(text, licenses) or quality_problem(text):
        return Judged(reason)
    notice, rest = split_notice(text)
    if len(rest) < MIN_CHARACTERS:
        return Judged("too short")
    return Judged(text=rest, notice=notice)


def is_cuda(path: str, text: str) -> bool:
    """A .cu or .cuh file, a header with device code, or a C or C++ file with a kernel."""
    if path.endswith(CUDA_SUFFIXES):
        return True
    markers = _KERNEL if path.endswith((".cpp", ".cc", ".c")) else _DEVICE_CODE
    return any(word in text for word in markers)


def license_problem(text: str, licenses: tuple[str, ...]) -> str:
    """Why the file's own words forbid it although its package is allowed; empty if they do not."""
    plain = " ".join(text.lower().translate(_MARKS).split())
    for phrases, reason in (
        (_COPYLEFT, "GPL text"),
        (_PROPRIETARY, "proprietary text"),
        (_OTHER_LICENSE, "other licence text"),
    ):
        if any(phrase in plain for phrase in phrases):
            return reason
    for match in _SPDX.finditer(text):
        if not _allowed(match.group(1), licenses):
            return "GPL text" if "GPL" in match.group(1) else "other licence text"
    return ""


def quality_problem(text: str) -> str:
    """Why the file is not something a person wrote to be read; empty if it is."""
    if _GENERATED.search(text, 0, HEAD):
        return "generated"
    if max(map(len, text.split("\n"))) > MAX_LINE:
        return "long lines"
    digits = sum(text.count(digit) for digit in "0123456789")
    if digits > MAX_DIGIT_SHARE * len(text):
        return "table of numbers"
    return ""


def split_notice(text: str) -> tuple[str, str]:
    """(legal notice, source): comments at the top that speak of copyright or licence, and what follows them."""
    end = 0
    while (match := _COMMENT.match(text, end)) and _LEGAL.search(match.group(1)):
        end = match.end()
    return text[:end].strip(), text[end:].strip() + "\n"


def sparse_score(text: str) -> int:
    """How many different words of sparse linear algebra occur, 0 to 15; 3 and more is nearly always a sparse kernel."""
    lower = text.lower()
    return sum(1 for pattern in _SPARSE if pattern.search(lower))


def _allowed(expression: str, licenses: tuple[str, ...]) -> bool:
    """Whether an SPDX expression can be satisfied by allowed licences; an exception (WITH) only adds permissions."""
    plain = re.sub(r"\s+WITH\s+[\w.-]+", "", expression.strip().rstrip("/").strip())
    if plain in licenses:
        return True
    singles = {part for allowed in licenses for part in allowed.split(" OR ")}
    plain = plain.replace("(", " ").replace(")", " ")
    return any(
        all(part.strip() in singles for part in option.split(" AND ")) for option in re.split(r"\s+OR\s+", plain)
    )
