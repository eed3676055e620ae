"""A verdict as text: everything that is known, and nothing that could be misread."""

from components.judge.render import format_verdict
from components.judge.verdict import Status, Verdict


def test_a_failure_says_what_and_where() -> None:
    wrong = Verdict(
        Status.WRONG, "row 3: got 0, expected 1", line=2, block=(7, 0, 0), thread=33, failed_on="adversarial/mixed",
        arch="sm_90",
    )  # fmt: skip
    assert format_verdict(wrong, "// format: csr\n  y[r] = 0.f;\n").splitlines() == [
        "wrong: wrong answer",
        "  what       row 3: got 0, expected 1",
        "  where      line 2, block 7,0,0, thread 33, on matrix adversarial/mixed",
        "  source     2: y[r] = 0.f;",
        "  compiled   sm_90",
    ]
    assert "source" not in format_verdict(wrong.with_(line=99), "one line")


def test_a_modelled_time_names_its_model_and_its_baseline() -> None:
    right = Verdict(
        Status.CORRECT, timing="modelled", time_us=4.0, baseline="reference:csr_vector", baseline_us=6.0, speedup=1.5,
        convert_us=100.0, break_even=50.0, format="csr index=i32", registers=32, spill_bytes=0, shared_bytes=0,
        bytes_moved=4_000_000, compiler="nvrtc 13.5", arch="sm_90", compile_ms=45.0,
    )  # fmt: skip
    assert format_verdict(right).splitlines() == [
        "correct: right on this pattern (its values redrawn) and on the adversarial patterns",
        "  time       4.00 us on sm_90, L2 warm, modelled, calibrated on H200",
        "  baseline   6.00 us reference:csr_vector, speed-up 1.50 (no interval: modelled)",
        "  traffic    4000000 bytes, 1000 GB/s",
        "  convert    csr index=i32: 100 us on the host, pays after 50 products",
        "  resources  32 registers, 0 bytes spilled, 0 bytes shared",
        "  compiled   nvrtc 13.5, sm_90, 45 ms",
    ]
    other = format_verdict(right.with_(arch="sm_80"))
    assert "modelled, constants fitted on H200, never measured on this architecture" in other


def test_a_measured_time_comes_with_gpu_cache_state_interval_and_limit() -> None:
    measured = Verdict(
        Status.CORRECT, timing="measured", time_us=4.0, p10_us=3.9, p90_us=4.2, baseline="cusparse:csr_alg2",
        baseline_us=6.0, speedup=1.5, speedup_interval=(1.48, 1.52), samples=16, time_cold_us=9.0, speedup_cold=1.2,
        speedup_cold_interval=(1.1, 1.3), baselines={"torch:csr_matmul": 30.0, "cusparse:csr_alg2": 6.0}, floor_us=1.0,
        reliable=False, unreliable_because="clocks held down: power cap", bytes_moved=4_000_000, gpu="NVIDIA H200",
        arch="sm_90", convert_us=10.0, format="dia",
        clocks={"sm_mhz": 1980, "memory_mhz": 3201, "temperature_c": 40, "throttle": "power cap"},
    )  # fmt: skip
    assert format_verdict(measured).splitlines()[1:] == [
        "  time       4.00 us on NVIDIA H200, L2 warm, measured (p10 3.90, p90 4.20)",
        "  baseline   6.00 us cusparse:csr_alg2, speed-up 1.50 (1.48 to 1.52, 95 %), 16 samples",
        "  cold       9.00 us on NVIDIA H200, L2 cold, measured, "
        "speed-up 1.20 (1.10 to 1.30, 95 %) over cusparse:csr_alg2",
        "  libraries  cusparse:csr_alg2 6.00, torch:csr_matmul 30.00 us, L2 warm",
        "  caution    do not quote these times: clocks held down: power cap",
        "  traffic    4000000 bytes, 1000 GB/s, 25% of the physical limit (1.00 us)",
        "  convert    dia: 10 us on the host, never pays",
        "  clocks     SM 1980 MHz, memory 3201 MHz, 40 C, held down: power cap",
        "  compiled   sm_90, NVIDIA H200",
    ]


def test_a_measured_speedup_without_its_interval_is_not_printed() -> None:
    bare = Verdict(
        Status.CORRECT, timing="measured", time_us=4.0, baseline="cusparse:csr_alg2", baseline_us=6.0, speedup=1.5,
        time_cold_us=9.0, speedup_cold=1.2, gpu="NVIDIA H200", arch="sm_90",
    )  # fmt: skip
    assert format_verdict(bare).splitlines()[1:4] == [
        "  time       4.00 us on NVIDIA H200, L2 warm, measured",
        "  baseline   6.00 us cusparse:csr_alg2",
        "  cold       9.00 us on NVIDIA H200, L2 cold, measured",
    ]


def test_what_has_no_time_claims_none() -> None:
    empty = Verdict(Status.CORRECT, "nothing to time: the matrix has no entries", arch="sm_90")
    assert format_verdict(empty).splitlines() == [
        "correct: right on this pattern (its values redrawn) and on the adversarial patterns",
        "  note       nothing to time: the matrix has no entries",
        "  compiled   sm_90",
    ]
