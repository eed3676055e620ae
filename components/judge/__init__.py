"""The only source of truth: parse, compile, convert, verify, time, re-verify; one `Verdict`."""
