"""A judge that can be asked for a fresh measurement of what it has judged before, and of its machine."""

from collections.abc import Sequence
from typing import Any

from components.campaign.sizes import Machine
from components.judge.judge import Judge
from components.judge.model_time import LAUNCH_US, architecture
from components.judge.request import JudgeRequest
from components.judge.verdict import Verdict


class RemeasuringJudge(Judge):
    """A judge whose `measure_again` times anew, in the same process and on the same residents.

    Without its cache on disk a judge still answers a repeated question from memory, and a second judge beside it would
    share the device while both time: hence this one steps around both for the requests that ask for it.
    """

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self._fresh: set[JudgeRequest] = set()  # by identity

    def measure_again(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        """As `judge_many`, with the target verified and timed anew; compiled code and the gate are reused."""
        self._fresh.update(requests)
        try:
            return self.judge_many(requests)
        finally:
            self._fresh.difference_update(requests)

    @property
    def gpu(self) -> dict[str, Any]:
        """`gpu` (its name), `driver` and more of the device; empty with the interpreter."""
        return {} if self._gpu is None else dict(self._gpu.device)

    @property
    def machine(self) -> Machine:
        """What the device was measured to do, or what its architecture is modelled as."""
        if self._gpu is not None:
            facts = self._gpu.facts
            l2_bytes = int(self._gpu.device["l2_bytes"])
            return Machine(facts["copy_bandwidth"], facts["l2_bandwidth"], l2_bytes, facts["launch_us"])
        model = architecture(self.arch)
        return Machine(model.dram_gbps * 1e3, model.l2_gbps * 1e3, int(model.l2_mb * 1e6), LAUNCH_US)

    def gpu_seconds(self) -> float | None:
        """Seconds that the executor has worked; None with the interpreter."""
        return None if self._gpu is None else float(self._gpu.spent_s["all"])

    def _judge(self, request: JudgeRequest, key: str) -> Verdict:
        return self._judge_anew(request)[0] if request in self._fresh else super()._judge(request, key)

    def _checked_code(
        self, request: JudgeRequest, compiled: dict[str, Any], key: str
    ) -> tuple[dict[str, Any], bool, bool, str]:
        if request not in self._fresh:
            return super()._checked_code(request, compiled, key)
        answer, lasting = self._checked(request, compiled)
        return answer, lasting, False, request.source
