"""What `mlflow.pyfunc.load_model` gives: programs for a table of problems."""

from pathlib import Path
from typing import Any

from mlflow.pyfunc.model import PythonModel


class PolicyModel(PythonModel):
    """A policy as an MLflow model.

    Input: a table with `matrix` (a file, or group/name), and optionally `operator`, `width` and `arch`. Output: one
    program's text a row.
    """

    def load_context(self, context: Any) -> None:
        """Read the policy; its profile is what it was trained with."""
        from components.files import read_json
        from components.policy.storage import load_adapted
        from components.settings import policy_from_dict

        folder = Path(context.artifacts["policy"])
        self.policy = load_adapted(folder, policy_from_dict(read_json(folder / "manifest.json")["policy"], str(folder)))

    def predict(self, context: Any, model_input: Any, params: dict[str, Any] | None = None) -> list[str]:
        """One program for each row."""
        from components.matrix.load import load_matrix
        from components.training.rollout import Problem, sample_programs

        chosen = params or {}
        programs = []
        for row in model_input.to_dict("records"):
            problem = Problem(
                load_matrix(str(row["matrix"])), str(row.get("operator", "spmv")), int(row.get("width", 1))
            )
            programs += sample_programs(
                self.policy,
                [problem],
                samples=1,
                temperature=float(chosen.get("temperature", 0.0)),
                max_tokens=self.policy.settings.max_tokens,
                arch=str(row.get("arch", "sm_90")),
                seed=int(chosen.get("seed", 0)),
            )[0]
        return programs
