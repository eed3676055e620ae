"""MLflow: one run per stage execution, the registry, the promotion gate."""
