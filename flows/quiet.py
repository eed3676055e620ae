"""Prefect without telemetry or a wall of warnings; imported before prefect itself by every flow."""

import os

from components.quiet import quiet_environment

quiet_environment()
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_LOGGING_LEVEL", "INFO")
os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "ERROR")
