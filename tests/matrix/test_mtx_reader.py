"""What the Matrix Market reader accepts, and the line it names when it does not."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.errors import UserError
from components.matrix import mtx_body
from components.matrix.mtx_body import read_entries
from components.matrix.mtx_header import read_header
from components.matrix.mtx_reader import read_matrix_market
from components.matrix.text_blocks import TextBlocks
from components.matrix.types import SparseMatrix

REAL = "%%MatrixMarket matrix coordinate real general\n"
INTEGER = "%%MatrixMarket matrix coordinate integer general\n"
PATTERN = "%%MatrixMarket matrix coordinate pattern general\n"
COMPLEX = "%%MatrixMarket matrix coordinate complex general\n"


def banner(field: str, symmetry: str, layout: str = "coordinate") -> str:
    return f"%%MatrixMarket matrix {layout} {field} {symmetry}\n"


def read(text: str | bytes) -> SparseMatrix:
    data = text if isinstance(text, bytes) else text.encode()
    return read_matrix_market(data, where="A.mtx", name="A")


GOOD = {
    "one_entry": (REAL + "2 3 1\n2 3 -1.5e1\n", [[0, 0, 0], [0, 0, -15]]),
    "no_newline_at_end": (REAL + "1 2 1\n1 2 7", [[0, 7]]),
    "banner_case": ("%%matrixmarket MATRIX coordinate Real GENERAL\n1 1 1\n1 1 2\n", [[2]]),
    "banner_spaces": ("%%MatrixMarket   matrix\tcoordinate  real general  \n1 1 1\n1 1 2\n", [[2]]),
    "banner_indented": ("  %%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 2\n", [[2]]),
    "one_percent": ("%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 2\n", [[2]]),
    "byte_order_mark": (b"\xef\xbb\xbf" + (REAL + "1 1 1\n1 1 2\n").encode(), [[2]]),
    "latin1_comment": (b"%%MatrixMarket matrix coordinate real general\n% Universit\xe9\n1 1 1\n1 1 2\n", [[2]]),
    "comment_among_entries": (REAL + "2 2 2\n1 1 1\n% half way\n\n  % more\n2 2 2\n", [[1, 0], [0, 2]]),
    "old_mac_lines": ((REAL + "1 2 2\n1 1 1\n1 2 2\n").replace("\n", "\r"), [[1, 2]]),
    "crlf": ((REAL + "1 2 2\n1 1 1\n1 2 2\n").replace("\n", "\r\n"), [[1, 2]]),
    "trailing_blank_lines": (REAL + "1 1 1\n1 1 2\n\n \n\t\n", [[2]]),
    "fortran_exponent": (REAL + "1 2 2\n1 1 1.5D+02\n1 2 -2d-1\n", [[150, -0.2]]),
    "shapes_of_numbers": (REAL + "1 5 5\n1 1 .5\n1 2 5.\n1 3 +1\n1 4 -0\n1 5 1e-5\n", [[0.5, 5, 1, 0, 1e-5]]),
    "signed_leading_zero_index": (REAL + "2 2 1\n+1 02 3\n", [[0, 3], [0, 0]]),
    "double": (banner("double", "general") + "1 1 1\n1 1 0.5\n", [[0.5]]),
    "unsigned": (banner("unsigned-integer", "general") + "1 1 1\n1 1 18446744073709551615\n", [[2.0**64]]),
    "integer_signs": (INTEGER + "1 2 2\n1 1 -3\n1 2 +4\n", [[-3, 4]]),
    "symmetric_upper": (banner("real", "symmetric") + "2 2 2\n1 2 5\n2 2 1\n", [[0, 5], [5, 1]]),
    "symmetric_duplicate": (banner("real", "symmetric") + "2 2 2\n2 1 5\n2 1 1\n", [[0, 6], [6, 0]]),
    "pattern_symmetric": (banner("pattern", "symmetric") + "2 2 2\n1 1\n2 1\n", [[1, 1], [1, 0]]),
    "skew_zero_diagonal": (banner("real", "skew-symmetric") + "2 2 2\n1 1 0\n2 1 3\n", [[0, -3], [3, 0]]),
    "duplicates_beyond_shape": (REAL + "1 1 3\n1 1 1\n1 1 2\n1 1 3\n", [[6]]),
    "tiny_underflows": (REAL + "1 1 1\n1 1 1e-400\n", [[0]]),
    "array": (banner("real", "general", "array") + "2 3\n1\n2\n3\n4\n0\n6\n", [[1, 3, 0], [2, 4, 6]]),
    "array_integer": (banner("integer", "general", "array") + "1 2\n1\n-2\n", [[1, -2]]),
    "array_symmetric": (banner("real", "symmetric", "array") + "2 2\n1\n2\n3\n", [[1, 2], [2, 3]]),
    "array_complex": (banner("complex", "general", "array") + "1 2\n1 2\n3 -4\n", [[1 + 2j, 3 - 4j]]),
    "array_hermitian": (banner("complex", "hermitian", "array") + "2 2\n1 0\n2 5\n3 0\n", [[1, 2 - 5j], [2 + 5j, 3]]),
    "array_empty": (banner("real", "general", "array") + "0 3\n", np.zeros((0, 3))),
    "complex": (COMPLEX + "1 1 1\n1 1 1 -2\n", [[1 - 2j]]),
    "skew_complex": (banner("complex", "skew-symmetric") + "2 2 1\n2 1 1 2\n", [[0, -1 - 2j], [1 + 2j, 0]]),
    "no_columns": (REAL + "3 0 0\n", np.zeros((3, 0))),
    "no_shape": (REAL + "0 0 0\n", np.zeros((0, 0))),
}


@pytest.mark.parametrize("name", GOOD)
def test_reads(name: str) -> None:
    text, dense = GOOD[name]
    matrix = read(text)
    np.testing.assert_array_equal(matrix.to_scipy().toarray(), np.array(dense))
    assert matrix.row_ptr.dtype == np.int64
    assert matrix.col_idx.dtype == np.int32
    assert matrix.to_scipy().has_canonical_format


BAD = {
    "empty_file": ("", 1, "empty file"),
    "blank_file": ("\n\n\n", 1, "blank line"),
    "no_banner": ("2 2 1\n1 1 1\n", 1, "no banner"),
    "wrong_banner": ("%%Matrix Market matrix coordinate real general\n1 1 0\n", 1, "no banner"),
    "banner_cut": ("%%MatrixMarket matrix coordinate\n1 1 0\n", 1, "2 words"),
    "banner_extra": ("%%MatrixMarket matrix coordinate real general extra\n1 1 0\n", 1, "5 words"),
    "vector": ("%%MatrixMarket vector coordinate real general\n4 0\n", 1, "vector"),
    "layout": ("%%MatrixMarket matrix list real general\n1 1 0\n", 1, "list"),
    "field": ("%%MatrixMarket matrix coordinate quaternion general\n1 1 0\n", 1, "quaternion"),
    "symmetry": ("%%MatrixMarket matrix coordinate real triangular\n1 1 0\n", 1, "triangular"),
    "pattern_array": (banner("pattern", "general", "array") + "1 1\n", 1, "pattern"),
    "pattern_skew": (banner("pattern", "skew-symmetric") + "2 2 1\n2 1\n", 1, "pattern"),
    "real_hermitian": (banner("real", "hermitian") + "2 2 1\n2 1 1\n", 1, "hermitian"),
    "git_lfs": ("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", 1, "Git LFS"),
    "matlab": (b"MATLAB 5.0 MAT-file\x00\x01", 1, "MATLAB"),
    "gzip_named_mtx": (b"\x1f\x8b\x08\x00\x00", 1, "gzip"),
    "utf16": ("\ufeff%%MatrixMarket matrix".encode("utf-16-le"), 1, "UTF-16"),
    "binary": (b"\x7fELF\x00\x00\x01" * 9, 1, "binary"),
    "rutherford_boeing": ("title     |key\n 1 2 3 4\nrua  5 5 13 0\n", 1, "Harwell-Boeing"),
    "header_only": (REAL, 2, "before its size line"),
    "comments_only": (REAL + "% a\n%\n", 4, "before its size line"),
    "size_short": (REAL + "2 2\n1 1 1\n", 2, "size line"),
    "size_long": (REAL + "2 2 1 0\n1 1 1\n", 2, "size line"),
    "size_real": (REAL + "2.0 2 1\n1 1 1\n", 2, "size line"),
    "size_after_comment": (REAL + "% c\n\nx y z\n", 4, "size line"),
    "negative_rows": (REAL + "-2 2 0\n", 2, "negative"),
    "negative_entries": (REAL + "2 2 -1\n", 2, "negative"),
    "too_many_columns": (REAL + "1 2147483648 0\n", 2, "2147483647"),
    "dimension_past_int64": (REAL + "1 99999999999999999999 0\n", 2, "2147483647"),
    "dimension_of_50_digits": (REAL + f"1 {'9' * 50} 0\n", 2, "2147483647"),
    "entries_in_no_rows": (REAL + "0 5 1\n1 1 1\n", 2, "expected 0"),
    "symmetric_rectangular": (banner("real", "symmetric") + "2 3 0\n", 2, "square"),
    "array_symmetric_rectangular": (banner("real", "symmetric", "array") + "2 3\n1\n", 2, "square"),
    "array_size_with_count": (banner("real", "general", "array") + "1 1 1\n1\n", 2, "size line"),
    "promise_past_file": (REAL + "1000000 1000000 99999999999\n1 1 1\n", 2, "99999999999"),
    "short": (REAL + "9 9 3\n1 1 1\n2 2 2\n", 2, "after 2"),
    "long_after_comment": (REAL + "3 3 1\n1 1 1\n% c\n2 2 2\n", 5, "promises 1"),
    "entries_where_none_promised": (REAL + "3 3 0\n1 1 1\n", 3, "promises 0"),
    "row_negative": (REAL + "2 2 1\n-1 1 1\n", 3, "row -1"),
    "row_over": (REAL + "2 2 2\n1 1 1\n3 1 1\n", 4, "row 3"),
    "column_past_int64": (REAL + "2 2 1\n1 99999999999999999999 1\n", 3, "column"),
    "column_of_5000_digits": (REAL + f"2 2 1\n1 {'9' * 5000} 1\n", 3, "column"),
    "row_real": (REAL + "2 2 1\n1.0 1 1\n", 3, "row '1.0'"),
    "row_exponent": (REAL + "20 2 1\n1e1 1 1\n", 3, "row '1e1'"),
    "row_underscore": (REAL + "20 2 1\n1_0 1 1\n", 3, "row '1_0'"),
    "row_word": (REAL + "2 2 1\none 1 1\n", 3, "row 'one'"),
    "extra_token": (REAL + "2 2 2\n1 1 1\n2 2 1 5\n", 4, "4 tokens"),
    "comment_behind_entry": (REAL + "2 2 1\n1 1 1 % c\n", 3, "5 tokens"),
    "two_entries_a_line": (REAL + "2 2 2\n1 1 1 2 2 2\n", 3, "6 tokens"),
    "entry_over_two_lines": (REAL + "2 2 2\n1 1\n1\n2 2 2\n", 3, "2 tokens"),
    "comma": (REAL + "2 2 1\n1,1,1\n", 3, "1 tokens"),
    "decimal_comma": (REAL + "2 2 1\n1 1 1,5\n", 3, "'1,5'"),
    "value_word": (REAL + "2 2 1\n1 1 abc\n", 3, "'abc'"),
    "value_hex": (REAL + "2 2 1\n1 1 0x1p3\n", 3, "0x1p3"),
    "value_underscore": (REAL + "2 2 1\n1 1 1_0.5\n", 3, "1_0.5"),
    "value_half_exponent": (REAL + "2 2 1\n1 1 1e\n", 3, "'1e'"),
    "value_no_exponent_letter": (REAL + "2 2 1\n1 1 1.0-105\n", 3, "1.0-105"),
    "value_two_points": (REAL + "2 2 1\n1 1 1.5.2\n", 3, "1.5.2"),
    "value_sign_only": (REAL + "2 2 1\n1 1 -\n", 3, "'-'"),
    "value_point_only": (REAL + "2 2 1\n1 1 .\n", 3, "'.'"),
    "inf": (REAL + "2 2 1\n1 1 -inf\n", 3, "finite"),
    "infinity": (REAL + "2 2 1\n1 1 Infinity\n", 3, "finite"),
    "negative_overflow": (REAL + "2 2 2\n1 1 1\n1 2 -1D400\n", 4, "not finite"),
    "integer_with_point": (INTEGER + "2 2 1\n1 1 1.0\n", 3, "whole"),
    "integer_of_400_digits": (INTEGER + f"2 2 1\n1 1 {'9' * 400}\n", 3, "not finite"),
    "pattern_with_value": (PATTERN + "2 2 1\n1 1 1\n", 3, "3 tokens"),
    "complex_half": (COMPLEX + "2 2 1\n1 1 1\n", 3, "3 tokens"),
    "complex_nan": (COMPLEX + "2 2 1\n1 1 1 nan\n", 3, "finite"),
    "skew_diagonal": (banner("real", "skew-symmetric") + "2 2 2\n2 1 1\n2 2 3\n", 4, "diagonal value 3"),
    "hermitian_diagonal": (banner("complex", "hermitian") + "2 2 1\n1 1 3 1\n", 3, "diagonal value 3+1j"),
    "both_triangles": (banner("real", "symmetric") + "2 2 3\n2 2 1\n1 2 5\n\n2 1 5\n", 6, "mirror"),
    "array_short": (banner("real", "general", "array") + "2 2\n1.000000000000\n2.000000000000\n", 2, "after 2"),
    "array_long": (banner("real", "general", "array") + "1 1\n1\n2\n", 4, "one entry more"),
    "array_row_on_a_line": (banner("real", "general", "array") + "2 2\n1 2\n3 4\n", 3, "2 tokens"),
    "non_ascii_value": (REAL + "1 1 1\n1 1 \u0661\n", 3, "xd9"),
    "nul_in_entry": (REAL.encode() + b"1 1 1\n1 1 \x00\n", 3, "x00"),
    "mac_lines": (REAL.replace("\n", "\r") + "2 2 2\r1 1 1\r1 x 1\r", 4, "column 'x'"),
    "crlf_line": (REAL.replace("\n", "\r\n") + "2 2 2\r\n1 1 1\r\n1 x 1\r\n", 4, "column 'x'"),
}


@pytest.mark.parametrize("name", BAD)
def test_names_the_line(name: str) -> None:
    text, line, words = BAD[name]
    with pytest.raises(UserError) as caught:
        read(text)
    message = str(caught.value)
    assert message.startswith(f"A.mtx: line {line}: ")
    assert words in message
    assert "expected" in message
    assert "\n" not in message


def test_counts_duplicates_zeros_and_stored_entries() -> None:
    matrix = read(banner("integer", "symmetric") + "3 3 5\n1 1 2\n2 1 0\n3 2 4\n3 2 1\n1 1 -2\n")
    assert (matrix.nnz, matrix.nnz_stored, matrix.duplicates, matrix.explicit_zeros) == (5, 5, 2, 3)
    assert (matrix.field, matrix.symmetry) == ("integer", "symmetric")


def test_zeros_of_an_array_are_not_entries() -> None:
    matrix = read(banner("real", "general", "array") + "2 2\n1\n0\n0\n4\n")
    assert (matrix.nnz, matrix.nnz_stored, matrix.explicit_zeros) == (2, 4, 0)


def test_group_from_the_collections_comment() -> None:
    text = REAL + "% name: AG-Monien/A\n% kind: 2D/3D problem\n1 1 1\n1 1 1\n"
    assert read(text).group == "AG-Monien"
    assert read(text.replace("/A", "/other")).group == "local"


@pytest.mark.parametrize("line", [3, 1500, 2999])
def test_line_number_across_blocks(monkeypatch: pytest.MonkeyPatch, line: int) -> None:
    monkeypatch.setattr("components.matrix.text_blocks.TextBlocks.__init__.__defaults__", (1000,))
    lines = [f"{k % 50 + 1} {k % 7 + 1} 0.5" for k in range(3000)]
    good = REAL + "50 7 3000\n" + "\n".join(lines)
    assert read(good).duplicates == 3000 - 350
    lines[line - 3] = "51 1 0.5"
    with pytest.raises(UserError, match=f"line {line}: row 51"):
        read(REAL + "50 7 3000\n" + "\n".join(lines))


TOKENS = st.sampled_from(
    [
        "1",
        "2",
        "3",
        "0",
        "-1",
        "+2",
        "1.5",
        "-2.e1",
        ".5",
        "1e3",
        "1d2",
        "1E400",
        "nan",
        "x",
        "1_0",
        "%",
        "1.5.2",
        "-",
        "07",
    ]
)
LINES = st.lists(st.lists(TOKENS, max_size=5).map(" ".join), max_size=4)


@settings(max_examples=400, deadline=None)
@given(
    LINES,
    st.sampled_from(["real", "integer", "pattern", "complex"]),
    st.sampled_from(["general", "skew-symmetric", "hermitian"]),
    st.integers(0, 4),
    st.sampled_from(["coordinate", "array"]),
)
def test_fast_path_accepts_only_what_the_strict_one_does(
    body: list[str], field: str, symmetry: str, promised: int, layout: str
) -> None:
    if (symmetry == "hermitian") != (field == "complex") or (
        field == "pattern" and (symmetry, layout) != ("general", "coordinate")
    ):
        symmetry, layout = "general", "coordinate"
    size = f"3 3 {promised}" if layout == "coordinate" else "2 2"
    data = (banner(field, symmetry, layout) + size + "\n" + "\n".join(body) + "\n").encode()
    outcomes = []
    for fast in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not fast:
                patch.setattr(mtx_body, "_fast", lambda block, header: None)
            lines = TextBlocks(io.BytesIO(data), "A")
            header = read_header(lines, "A")
            try:
                entries = read_entries(lines, header, "A")
                outcomes.append((entries.i.tolist(), entries.j.tolist(), entries.values.tolist()))
            except UserError as error:
                outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]
