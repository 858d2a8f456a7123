"""Parameters and constants: each can be changed by name, wrong ones are refused, and the search follows them."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from problems import make_tasks

from manyway import InputError, solve
from manyway.methods.evidence import schedule as schedule_module
from manyway.methods.evidence.prior import grid_of_alphas
from manyway.methods.evidence.schedule import Parameters, Schedule, agreement
import itertools


def test_constants_can_be_changed_by_name_and_unknown_ones_are_refused():
    tasks = make_tasks(3, n_classes=8, n_query=20, shots=4, spread=1.0)
    usual = solve("evidence", tasks)
    changed = solve("evidence", tasks, schedule={"shared_error": 0.9})
    assert not torch.equal(changed.probabilities, usual.probabilities)
    # A constant of the calibration, which other methods share.
    assert (usual.told["shortening"] < 0.9).all()
    assert (solve("evidence", tasks, schedule={"few_columns": 1e-3}).told["shortening"] > 0.99).all()
    with pytest.raises(InputError, match="did you mean 'shared_error'"):
        solve("evidence", tasks, schedule={"share_error": 0.9})
    with pytest.raises(InputError, match="has no constant 'sharpness'"):  # a method of the schedule
        solve("evidence", tasks, schedule={"sharpness": 1.0})
    with pytest.raises(InputError, match="anneal_steps is 'many'"):
        solve("evidence", tasks, schedule={"anneal_steps": "many"})


def test_the_sharpness_rises_geometrically_and_would_reach_one_with_the_next_update():
    schedule = Schedule(anneal_from=0.25, anneal_steps=4)
    found = [*schedule.annealing, 1.0]
    assert found[0] == 0.25
    assert len(found) == 5
    ratios = [later / one for one, later in itertools.pairwise(found)]
    assert ratios == pytest.approx([ratios[0]] * 4)
    assert Schedule(anneal_from=1.0).annealing == []


def test_agreement_is_one_minus_the_used_part_of_the_classes_that_could_be_used():
    """N is the exponential of the entropy: as many classes of equal size."""
    masses = torch.tensor([[6.0, 6.0, 0.0, 0.0], [3.0, 3.0, 3.0, 3.0], [1.0, 1.0, 0.0, 0.0]])
    expected = torch.tensor([1 - 2 / 4, 0.0, 0.0])  # the last: two queries can be of two classes at most
    torch.testing.assert_close(agreement(masses), expected, rtol=0, atol=1e-6)


def test_parameters_are_those_of_a_call_and_nothing_else():
    found = Parameters.of({"tol": 0.1, "tasks": None, "prepared": None, "schedule": {"anneal_steps": 3}})
    assert found == Parameters(tol=0.1, schedule={"anneal_steps": 3})
    assert found.constants.anneal_steps == 3
    assert Parameters().constants == Schedule()


def test_a_given_concentration_is_the_only_one_that_is_tried():
    counts = torch.ones(1, 6)
    assert Parameters(concentration=0.3).prior(20, counts).values.tolist() == pytest.approx([0.3])
    every = Parameters().prior(20, counts)
    torch.testing.assert_close(every.values, grid_of_alphas(20, 6).float())
    assert (every.n_query, every.n_classes, every.weighted) == (20, 6, False)
    assert Parameters().prior(20, counts, double=True).values.dtype == torch.float64
    assert Parameters().prior(20, counts, weighted=True).weighted


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ({"anneal_from": 0.0}, "anneal_from"),
        ({"anneal_from": 1.5}, "anneal_from is 1.5; it is at most 1"),
        ({"anneal_from": float("nan")}, "anneal_from"),
        ({"anneal_steps": 2.5}, "anneal_steps"),
        ({"anneal_steps": "many"}, "anneal_steps is 'many'"),
        ({"anneal_steps": None}, "anneal_steps"),
        ({"improbable": 0.6}, "improbable is 0.6; it is at most 0.5"),
        ({"near_copy": -0.1}, "near_copy is -0.1; it must not be negative"),
        ({"one_shot_power": 0.0}, "one_shot_power is 0.0; it must be positive"),
        ({"one_shot_power": (0.6, 0.1)}, "one_shot_power"),
        ({3: 1.0}, "no constant"),
    ],
)
def test_a_wrong_value_of_a_constant_is_one_sentence(schedule, said):
    with pytest.raises(InputError, match=said):
        Parameters(schedule=schedule)


@pytest.mark.parametrize("schedule", [3, "anneal_from", [("anneal_from", 0.5)], {"anneal_from"}])
def test_a_schedule_that_is_no_mapping_is_one_sentence(schedule):
    with pytest.raises(InputError, match="schedule"):
        Parameters(schedule=schedule)


@pytest.mark.parametrize("constant", fields(Schedule), ids=lambda constant: constant.name)
def test_every_constant_refuses_what_its_formula_cannot_use(constant):
    """Whatever passes the check gives an answer; what is refused is one sentence with its name."""
    tasks = make_tasks(1, n_classes=4, n_query=6, n_features=6)
    for value in (-1.0, 0.0, float("inf"), "a"):
        if is_refused({constant.name: value}):
            continue
        schedule = {"anneal_steps": 1, constant.name: value}
        for options in ({"adapt": True}, {"open_set": True, "adapt": False}):
            assert solve("evidence", tasks, schedule=schedule, max_iter=2, **options).labels.shape == (1, 6)


def is_refused(schedule: dict[str, object]) -> bool:
    try:
        Parameters(schedule=schedule)
    except InputError as error:
        return next(iter(schedule)) in str(error)
    return False


def test_limits_are_those_of_constants_that_there_are():
    names = {constant.name for constant in fields(Schedule)}
    assert names >= set(schedule_module._AT_MOST)
    assert names >= set(schedule_module._AT_LEAST)
    assert names >= schedule_module._NOT_ZERO
