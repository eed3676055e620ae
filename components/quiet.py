"""No telemetry, no update checks, no walls of warnings: set before the libraries are imported."""

import os
import warnings

_SWITCHES = {
    "DO_NOT_TRACK": "true",  # exactly `true`: MLflow ignores 1
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SKIP_PIP_REQUIREMENTS_CHECK": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DVC_NO_ANALYTICS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "GX_ANALYTICS_ENABLED": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_WAIT_POLICY": "PASSIVE",  # threads that wait give their core away: two stages on one machine stay usable
    "GIT_PYTHON_REFRESH": "quiet",
}


def quiet_environment() -> None:
    """Set every switch that the user has not set; local addresses bypass proxies."""
    for name, value in _SWITCHES.items():
        os.environ.setdefault(name, value)
    for name in ("NO_PROXY", "no_proxy"):
        os.environ.setdefault(name, "127.0.0.1,localhost")
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"(transformers|mlflow|torch)\b")
