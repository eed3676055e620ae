"""Prefect flows: time and machines; the only code that imports prefect.

Importing this package comes before any import of prefect and switches off its telemetry and warnings.
"""

import os

from components.quiet import quiet_environment

quiet_environment()
os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "ERROR")
