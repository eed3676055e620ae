"""What flows are made of: plain Python, importable and testable alone; never imports flows."""
