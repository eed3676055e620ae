"""What the policy is told in words: operator, width, number type and architecture; the matrix comes as a prefix."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """What a kernel is wanted for, apart from the matrix."""

    operator: str = "spmv"
    width: int = 1  # dense columns; 1 for spmv
    dtype: str = "float32"
    arch: str = "sm_90"


def render(task: Task) -> str:
    """The prompt: one comment line, so that prompt and program together are one valid CUDA file.

    >>> render(Task("spmm", 8))
    '// task: spmm width=8 dtype=float32 arch=sm_90\\n'
    """
    return f"// task: {task.operator} width={task.width} dtype={task.dtype} arch={task.arch}\n"
