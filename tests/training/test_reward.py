import dataclasses
import math

import pytest

from components.judge.verdict import Status, Verdict
from components.training.reward import group_advantages, level, reward, violation
from tests.policy.micro import params

SETTINGS = params().rl.reward  # compile 0.5, test 0.5, efficiency 1, clipped log in [-1.5, 1.5], penalty 0.1


def correct(speedup=1.0, **changes):
    return Verdict(Status.CORRECT, time_us=10.0, baseline_us=10.0 * speedup, registers=32, spill_bytes=0).with_(
        **changes
    )


@pytest.mark.parametrize("status", [Status.UNPARSABLE, Status.CONTRACT, Status.COMPILE_ERROR])
def test_what_does_not_compile_earns_minus_the_compile_reward(status):
    assert reward(Verdict(status), SETTINGS) == -0.5
    assert level(Verdict(status)) == "rejected"


@pytest.mark.parametrize("status", [s for s in Status if s.compiled and s is not Status.CORRECT])
def test_what_compiles_and_fails_earns_the_compile_and_loses_the_test_reward(status):
    assert reward(Verdict(status, registers=32), SETTINGS) == 0.0
    assert level(Verdict(status)) == "compiled"


def test_what_is_correct_earns_the_log_of_its_speedup():
    assert reward(correct(1.0), SETTINGS) == 1.0
    assert reward(correct(2.0), SETTINGS) == pytest.approx(1 + math.log(2))
    assert reward(correct(0.5), SETTINGS) == pytest.approx(1 - math.log(2))
    assert level(correct()) == "correct"


def test_the_log_is_clipped_on_both_sides():
    assert reward(correct(100.0), SETTINGS) == 2.5
    assert reward(correct(0.01), SETTINGS) == -0.5


def test_other_shapes_are_parameters():
    ratio = dataclasses.replace(SETTINGS, shape="ratio")
    assert reward(correct(3.0), ratio) == 3.0
    assert reward(correct(0.5), ratio) == 0.5
    assert reward(correct(3.0), dataclasses.replace(SETTINGS, shape="none")) == 1.0
    assert reward(correct(3.0), dataclasses.replace(ratio, efficiency=0.25)) == 1.5


@pytest.mark.parametrize(("changes", "broken"), [({}, 0.0), ({"spill_bytes": 4}, 1.0), ({"registers": 129}, 1.0)])
def test_spills_and_too_many_registers_cost_the_penalty(changes, broken):
    assert violation(correct(**changes)) == broken
    assert reward(correct(**changes), SETTINGS) == pytest.approx(1.0 - 0.1 * broken)


def test_every_constant_comes_from_the_settings():
    other = dataclasses.replace(SETTINGS, compile=0.3, test=0.2, efficiency=2.0, resource_penalty=0.7)
    assert reward(Verdict(Status.CONTRACT), other) == -0.3
    assert reward(Verdict(Status.WRONG), other) == pytest.approx(0.1)
    assert reward(correct(math.e, spill_bytes=8), other) == pytest.approx(0.3 + 0.2 + 2.0 - 0.7)


def test_the_better_program_never_earns_less():
    ladder = [Verdict(Status.CONTRACT), Verdict(Status.WRONG), correct(0.5), correct(1.0), correct(3.0)]
    earned = [reward(verdict, SETTINGS) for verdict in ladder]
    assert earned == sorted(earned)


def test_advantages_of_a_group_are_centred_and_scaled():
    assert group_advantages([0.0, 2.0], True).tolist() == [-1.0, 1.0]
    assert group_advantages([0.0, 4.0], False).tolist() == [-2.0, 2.0]
    assert group_advantages([1.5, 1.5, 1.5], True).tolist() == [0.0, 0.0, 0.0]
