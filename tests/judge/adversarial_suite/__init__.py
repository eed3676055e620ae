"""Programs of every kind that the judge must not let pass, and honest ones that it must.

Plain data: nothing here needs a test runner, so benchmarks/judge_tamper.py can judge them on a GPU host as well.
"""
