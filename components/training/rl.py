"""Stage `rl`: reinforcement learning on what the compiler, the checker and the clock say.

Each step samples programs for a few training problems, judges them, and updates adapters and prefix (PPO with a critic,
or GRPO). The validation split is looked at before, on the way and at the end, always with the same seeds; the best step
is kept, and at the end compared with the SFT policy on fresh seeds: what is no better is not shipped.

Run: python -m components.training.rl
In:  data/matrices, data/models/sft
Out: data/models/rl, data/metrics/{rl.json,rl_curve.csv}
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from components.errors import UserError
from components.files import write_json
from components.judge.judge import Judge, JudgeRequest, resolve_backend
from components.matrix.manifest import load_by_id, read_manifest
from components.policy.model import Policy, pick_device
from components.policy.prefix import collate
from components.policy.storage import load_adapted, save_adapted
from components.settings import Settings, to_dict
from components.training.checkpoint import Budget, Checkpoint, fingerprint, learning_rate
from components.training.loop import BAR, restore, snapshot, unmoved
from components.training.ppo import Critic, Rollout, gae, update
from components.training.reward import LEVELS, group_advantages, level, reward
from components.training.rollout import Problem, Views, prompt_ids, sample
from components.training.session import run_stage, write_curve

if TYPE_CHECKING:
    from components.judge.verdict import Verdict
    from components.policy.sampling import Sample
    from components.tracking.runs import StageRun

_SELECT, _COMPARE = 11, 12  # seed streams of the validation that chooses the step and of the final comparison


@dataclass(frozen=True, eq=False)
class Drawn:
    """Programs that were sampled for problems, and what the judge said; one inner list a problem."""

    problems: Sequence[Problem]
    samples: "list[list[Sample]]"
    verdicts: "list[list[Verdict]]"
    rewards: np.ndarray[Any, np.dtype[np.float64]]  # [problem, sample]

    def summary(self) -> dict[str, float]:
        """Means over all programs: reward, share per level, length, duplicates within a problem, speed-up."""
        flat = [verdict for group in self.verdicts for verdict in group]
        levels = [level(verdict) for verdict in flat]
        logs = [np.log(v.baseline_us / v.time_us) for v in flat if v.correct and v.time_us and v.baseline_us]
        distinct = sum(len({item.text for item in group}) for group in self.samples)
        return {
            "reward": float(self.rewards.mean()),
            **{f"share_{name}": levels.count(name) / len(levels) for name in LEVELS},
            "length": float(np.mean([len(item.tokens) for group in self.samples for item in group])),
            "duplicates": 1 - distinct / len(flat),
            "speedup_correct": float(np.exp(np.mean(logs))) if logs else 0.0,
        }


class Trainer:
    """Policy, critic, optimiser and judge of one run of the stage."""

    def __init__(self, settings: Settings, policy: Policy, judge: Judge, arch: str):
        self.settings, self.chosen = settings, settings.rl
        self.policy, self.judge, self.arch = policy, judge, arch
        self.views = Views(policy.settings.prefix)
        self.reference = policy.merged()
        torch.manual_seed(settings.seed + 2)
        self.critic = Critic(policy.width).to(policy.device) if self.chosen.algorithm == "ppo" else None
        self.weights = dict(policy.trainable())
        groups: list[dict[str, Any]] = [{"params": list(self.weights.values()), "peak": self.chosen.learning_rate}]
        if self.critic is not None:
            groups.append({"params": list(self.critic.parameters()), "peak": self.chosen.critic_learning_rate})
        self.optimiser = torch.optim.AdamW(groups, lr=self.chosen.learning_rate, betas=(0.9, 0.95), weight_decay=0.0)

    def draw(self, problems: Sequence[Problem], samples: int, seed: int, policy: Policy | None = None) -> Drawn:
        """Sample programs for problems and judge them."""
        drawn = sample(
            policy or self.policy.merged(),
            problems,
            self.views,
            samples=samples,
            temperature=self.chosen.temperature,
            max_tokens=self.settings.policy.max_tokens,
            arch=self.arch,
            seed=seed,
        )
        requests = [
            JudgeRequest(item.text, problem.matrix, problem.operator, problem.width)
            for problem, group in zip(problems, drawn, strict=True)
            for item in group
        ]
        flat = self.judge.judge_many(requests)
        verdicts = [flat[start : start + samples] for start in range(0, len(flat), samples)]
        rewards = np.array([[reward(verdict, self.chosen.reward) for verdict in group] for group in verdicts])
        return Drawn(problems, drawn, verdicts, rewards)

    def step(self, step: int, problems: Sequence[Problem], progress: float) -> dict[str, float]:
        """One step of reinforcement; returns what to log."""
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(group["peak"], self.chosen.warmup_steps, step, progress)
        began = time.perf_counter()
        drawn = self.draw(problems, self.chosen.samples_per_problem, _seed(self.settings, 10, step))
        judged = time.perf_counter()
        row = drawn.summary()
        rollout = self._rollout(drawn)
        if rollout is not None:
            self.policy.train()
            row |= update(self.policy, self.critic, rollout, self.optimiser, self.chosen, seed=step)
        row |= {"rollout_s": judged - began, "update_s": time.perf_counter() - judged}
        return row

    @torch.no_grad()
    def _rollout(self, drawn: Drawn) -> Rollout | None:
        """The step's training data; None when no group has anything to teach."""
        chosen = self.chosen
        scaled = np.stack([group_advantages(row, chosen.reward.normalise) for row in drawn.rewards])
        equal = np.ptp(drawn.rewards, axis=1) < 1e-9
        if self.critic is None or chosen.reward.normalise:
            target, kept = scaled, np.flatnonzero(~equal)
        else:
            target, kept = drawn.rewards, np.arange(len(drawn.problems))
        if len(kept) == 0:
            return None
        rows = [(int(p), s) for p in kept for s in range(drawn.rewards.shape[1])]
        views = collate([self.views.of(drawn.problems[p].matrix) for p, _ in rows], self.policy.device)
        prompts = [prompt_ids(self.policy, drawn.problems[p], self.arch) for p, _ in rows]
        tokens = [drawn.samples[p][s].tokens for p, s in rows]
        self.policy.eval()
        scores = self.policy.score(views, prompts, tokens, chosen.temperature)
        reference = self.reference.score(views, prompts, tokens, chosen.temperature).logprobs
        earned = torch.tensor([target[p, s] for p, s in rows], dtype=torch.float32, device=self.policy.device)
        if self.critic is None:
            values = torch.zeros_like(scores.mask)
            advantages = earned[:, None] * scores.mask
        else:
            values = self.critic(scores.hidden) * scores.mask
            advantages = gae(values, scores.mask, earned, chosen.gae_lambda)
        return Rollout(views, prompts, tokens, scores.logprobs, reference, advantages, advantages + values, values)


def rl(settings: Settings) -> dict[str, Any]:
    """Run the stage; returns the metrics it wrote.

    Raises:
        UserError: an earlier stage has not run, or a split is empty.
    """
    from components.tracking.runs import stage_run

    started = time.perf_counter()
    root = settings.root
    folder = root / "data/models/sft"
    inputs = [root / "data/matrices/manifest.csv", folder]
    key = fingerprint(settings, ("seed", "policy", "rl", "label"), inputs)
    checkpoint = Checkpoint(root, "rl", key, settings.rl.checkpoint_s)
    state = checkpoint.load()
    backend, arch = resolve_backend(settings.judge)
    problems = {split: _problems(settings, split) for split in ("train", "validation")}
    tags = {"arch": arch, "algorithm": settings.rl.algorithm, "profile": settings.policy.profile}
    policy = load_adapted(folder, settings.policy, trainable=True).to(pick_device())
    with (
        stage_run("rl", settings, tags=tags, resume_run_id=state["run_id"] if state else None) as run,
        Judge(settings.judge, arch, backend) as judge,
    ):
        trainer = Trainer(settings, policy, judge, arch)
        initial = snapshot(trainer.weights)
        progress = _reinforce(trainer, problems, checkpoint, state, run)
        last = snapshot(trainer.weights)
        metrics = {
            "run_id": run.run_id,
            "arch": arch,
            "algorithm": settings.rl.algorithm,
            **progress.metrics(),
            "unmoved_parameters": unmoved(initial, last) if progress.steps else [],
            **_compare(trainer, problems["validation"], progress, initial),
        }
        save_adapted(policy.cpu(), root / "data/models/rl", folder, _about(settings, metrics))
        metrics["seconds"] = round(time.perf_counter() - started, 2)
        write_curve(root / "data/metrics/rl_curve.csv", progress.curve or [{"step": 0, "reward": progress.first}])
        run.log_metrics(progress.steps, {k: v for k, v in metrics.items() if isinstance(v, int | float)})
        run.log_artifact(root / "data/metrics/rl_curve.csv")
    write_json(root / "data/metrics/rl.json", metrics)
    checkpoint.clear()
    return metrics


@dataclass
class Progress:
    """How far reinforcement came; `best` holds the weights of the best step on the validation split."""

    steps: int
    spent_s: float
    stopped_by: str
    first: float  # the SFT policy's reward on the validation split
    pass_rate: float  # and the share of its programs that are correct
    best: dict[str, Any]
    curve: list[dict[str, float]]

    def metrics(self) -> dict[str, Any]:
        """Plain numbers for the metrics file."""
        return {
            "steps": self.steps,
            "train_seconds": round(self.spent_s, 2),
            "stopped_by": self.stopped_by,
            "sft_pass_rate_validation": self.pass_rate,
            "selection_reward_before": self.first,
            "selection_reward_best": self.best["reward"],
            "best_step": self.best["step"],
        }


def _reinforce(
    trainer: Trainer,
    problems: dict[str, list[Problem]],
    checkpoint: Checkpoint,
    state: dict[str, Any] | None,
    run: "StageRun",
) -> Progress:
    from tqdm import tqdm

    chosen, settings = trainer.chosen, trainer.settings
    budget = Budget(chosen.budget_s, chosen.max_steps, state["spent_s"] if state else 0.0)
    if state:
        restore(trainer.weights, state["weights"])
        trainer.optimiser.load_state_dict(state["optimiser"])
        if trainer.critic is not None:
            trainer.critic.load_state_dict(state["critic"])
        step = state["step"]
        done = Progress(step, 0.0, "", state["first"], state["pass_rate"], state["best"], state["curve"])
    else:
        seen = _validate(trainer, problems["validation"])
        best = {"reward": seen["reward"], "step": 0, "weights": snapshot(trainer.weights)}
        step, done = 0, Progress(0, 0.0, "", seen["reward"], seen["share_correct"], best, [])
    if done.pass_rate < chosen.min_pass_rate:
        print(
            f"rl: {done.pass_rate:.2f} of the SFT policy's programs for the validation split are correct; expected at "
            f"least rl.min_pass_rate = {chosen.min_pass_rate}: the SFT policy is kept as it is; train `sft` longer",
            file=sys.stderr,
        )
        done.stopped_by = "pass_rate"
        return done
    with tqdm(total=100, desc="rl", unit="%", disable=None, bar_format=BAR) as bar:
        while not budget.over(step):
            rng = np.random.default_rng([settings.seed, 4, step])
            count = min(chosen.problems_per_step, len(problems["train"]))
            batch = [problems["train"][i] for i in rng.choice(len(problems["train"]), count, replace=False)]
            row: dict[str, float] = {"step": step + 1, **trainer.step(step, batch, budget.progress(step))}
            step += 1
            if step % chosen.validate_every == 0 or budget.over(step):
                seen = _validate(trainer, problems["validation"])
                row |= {f"validation_{name}": seen[name] for name in ("reward", "share_correct", "speedup_correct")}
                if seen["reward"] > done.best["reward"]:
                    done.best = {"reward": seen["reward"], "step": step, "weights": snapshot(trainer.weights)}
            row["seconds"] = budget.spent_s
            done.curve.append(row)
            run.log_metrics(step, {name: value for name, value in row.items() if name != "step"})
            bar.set_postfix(step=step, reward=f"{row['reward']:.3f}", refresh=False)
            bar.update(round(100 * budget.progress(step)) - bar.n)
            if checkpoint.due():
                checkpoint.save(_state(trainer, step, done, budget, run.run_id))
    done.steps, done.spent_s, done.stopped_by = step, budget.spent_s, budget.stopped_by(step)
    return done


def _validate(trainer: Trainer, problems: Sequence[Problem]) -> dict[str, float]:
    """The current policy on the validation split; the same seeds at every call."""
    seed = _seed(trainer.settings, _SELECT, 0)
    return trainer.draw(problems, trainer.chosen.validation_samples, seed).summary()


def _compare(
    trainer: Trainer, problems: Sequence[Problem], progress: Progress, initial: dict[str, torch.Tensor]
) -> dict[str, Any]:
    """SFT policy and best step on fresh seeds; loads the better one into the policy."""
    samples, seed = trainer.chosen.validation_samples, _seed(trainer.settings, _COMPARE, 0)
    sft = trainer.draw(problems, samples, seed, trainer.reference).summary()
    best = sft
    if progress.best["step"] > 0:
        restore(trainer.weights, progress.best["weights"])
        best = trainer.draw(problems, samples, seed).summary()
    shipped = "rl" if best["reward"] > sft["reward"] else "sft"
    if shipped == "sft":
        restore(trainer.weights, initial)
    return {
        "shipped": shipped,
        "validation_programs": len(problems) * samples,
        **{f"validation_{name}_sft": value for name, value in sft.items()},
        **{f"validation_{name}_rl": value for name, value in best.items()},
    }


def _problems(settings: Settings, split: str) -> list[Problem]:
    manifest = read_manifest(settings.root)
    names = sorted(manifest.loc[manifest["split"] == split, "matrix"].astype(str))
    if not names:
        raise UserError(f"data/matrices/manifest.csv: no matrix in the {split} split; expected at least one")
    matrices = [load_by_id(settings.root, name) for name in names]
    return [Problem(matrix, choice.name, choice.width) for matrix in matrices for choice in settings.label.operators]


def _seed(settings: Settings, stream: int, step: int) -> int:
    return int(np.random.default_rng([settings.seed, stream, step]).integers(2**31))


def _about(settings: Settings, metrics: dict[str, Any]) -> dict[str, Any]:
    return {"seed": settings.seed, "rl": to_dict(settings.rl), "shipped": metrics["shipped"]}


def _state(trainer: Trainer, step: int, done: Progress, budget: Budget, run_id: str) -> dict[str, Any]:
    return {
        "step": step,
        "first": done.first,
        "pass_rate": done.pass_rate,
        "best": done.best,
        "curve": done.curve,
        "weights": snapshot(trainer.weights),
        "critic": trainer.critic.state_dict() if trainer.critic is not None else None,
        "optimiser": trainer.optimiser.state_dict(),
        "spent_s": budget.spent_s,
        "run_id": run_id,
    }


if __name__ == "__main__":
    sys.exit(run_stage(rl))
