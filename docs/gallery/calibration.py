"""Calibration: can the probabilities be trusted?

A probability is calibrated if 80 % of the labels with a probability of 0.8 are correct. `Evidence` learns from the
labelled examples how far distances can be trusted; most other methods have a temperature that must be set.
"""

# %%
# ## 100 batches
#
# `solve` runs a method on many tasks at once. The tasks have 215 possible letters, of which five occur among 75
# items.
import matplotlib.pyplot as plt

from manyway import TaskSpec, plot_reliability, sample_tasks, solve
from manyway.sampling.embedded import load_glyphs

letters = load_glyphs()
tasks = sample_tasks(letters, TaskSpec(shots=5, k_eff=5, n_query=75), seed=0, count=100)
methods = {name: solve(name, tasks) for name in ("evidence", "simpleshot", "paddle")}
for name, solution in methods.items():
    accuracy = (solution.labels == tasks.query_labels).float().mean()
    confidence = solution.probabilities.amax(-1).mean()
    print(f"{name:11} accuracy {accuracy:.3f}   mean probability of the labels {confidence:.3f}")

# %%
# ## Reliability diagrams
#
# Points on the diagonal are calibrated. Above it, a method is more often right than it says; below it, less often.
figure, axes = plt.subplots(1, 3, figsize=(8.4, 3.0), sharey=True)
for ax, (name, solution) in zip(axes, methods.items(), strict=True):
    plot_reliability(solution, tasks.query_labels, n_bins=5, ax=ax).set_title(name)
for ax in axes[1:]:
    ax.get_legend().remove()
    ax.set_ylabel("")

# %%
# ## How many classes occur?
#
# `n_present` is the expected number of classes that occur, with a standard deviation. Here the true number is five.
evidence = methods["evidence"]
inside = ((evidence.n_present - 5).abs() <= 2 * evidence.n_present_sd + 0.5).sum()
print(
    f"mean of the estimates {evidence.n_present.mean():.1f}, mean standard deviation {evidence.n_present_sd.mean():.1f}"
)
print(f"the true number is within two standard deviations and half a class in {inside} of 100 batches")

# %%
# [Calibration](../results/calibration.md) and [number of classes](../results/quantification.md) have measurements
# on other data, and the cases in which the probabilities are too high or too low.
