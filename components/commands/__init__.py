"""What the `sparserl` commands do; one module each, imported only when the command runs."""
