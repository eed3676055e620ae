"""From text to a policy: tokenizer, pretrain, label, sft, rl; each stage resumes and keeps to a wall-clock budget.

Run one with `python -m components.training.<stage>`.
"""
