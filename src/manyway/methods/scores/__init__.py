"""Labels from the scores of a classifier that somebody else has trained.

docs/scores.md states the model. The steps are modules: `kinds` reads scores as log-posteriors, and then

    calibrate → search → gate → confidence → count,

which `solver` puts together. `several` is the model of items that may have several classes. `constants` has every
number that changes an answer.
"""
