"""Pretrain, label, fine-tune, reinforce; every stage resumes and keeps to its budget."""
