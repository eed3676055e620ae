"""How far a modelled time can be trusted, in words; apart from the model so that commands need not load it."""

CALIBRATED_ON = {"sm_90": "H200"}  # architectures with measurements behind their constants (benchmarks/model_fit.py)


def standing(arch: str) -> str:
    """`modelled, calibrated on H200` or that the constants are another GPU's."""
    if arch in CALIBRATED_ON:
        return f"modelled, calibrated on {CALIBRATED_ON[arch]}"
    return "modelled with constants fitted on H200, never measured here"
