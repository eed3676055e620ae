"""How far a modelled time can be trusted, in words; apart from the model so that commands need not load it."""

CALIBRATED_ON = {"sm_90": "H200"}  # architectures with measurements behind their constants (benchmarks/model_fit.py)


def provenance(arch: str) -> str:
    """Where the model's constants for an architecture are from."""
    if arch in CALIBRATED_ON:
        return f"calibrated on {CALIBRATED_ON[arch]}"
    return "constants fitted on H200, never measured on this architecture"


def standing(arch: str) -> str:
    """What a modelled time of an architecture is called."""
    return f"modelled, {provenance(arch)}"
