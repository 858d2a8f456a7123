"""A study of methods: accuracy against the number of present classes

Transductive methods differ in what they assume about the batch. This study compares five of them for 3 to 40 present
letters out of 215, on the same tasks, with a paired comparison.
"""

# %%
# ## Many tasks
#
# `evaluate` draws tasks, runs a method on them and counts correct labels. Task i depends on the seed and on i only,
# so all methods solve the same tasks.
from manyway import TaskSpec, evaluate, plot_k_eff
from manyway.evaluation.statistics import paired
from manyway.sampling.embedded import load_glyphs

letters = load_glyphs()
methods = ["evidence", "paddle", "laplacianshot", "simpleshot", "bd-cspn"]
found = {
    method: {
        k_eff: evaluate(method, letters, TaskSpec(shots=5, k_eff=k_eff, n_query=75), n_tasks=100)
        for k_eff in (3, 5, 10, 20, 40)
    }
    for method in methods
}
for method, by_k_eff in found.items():
    print(f"{method:14}", *(f"{100 * e.accuracy:5.1f} ± {100 * e.ci95:.1f}" for e in by_k_eff.values()), sep="  ")

# %%
# PADDLE is accurate where few letters occur, and merges letters where many occur: these features have 96 dimensions
# only. BD-CSPN assumes that all classes occur equally often, which is never so here.
ax = plot_k_eff(found)
ax.set(xscale="log", xticks=[3, 5, 10, 20, 40], xticklabels=[3, 5, 10, 20, 40], ylim=(0, 100))
ax.legend(frameon=False, ncols=2, loc="lower left")
ax.figure.set_size_inches(7, 3.6)

# %%
# ## Is the difference real?
#
# Tasks differ in difficulty. As both methods solved the same tasks, the interval of their difference is narrower than
# the intervals of the two accuracies suggest.
for k_eff in (3, 5, 10, 20, 40):
    a, b = found["evidence"][k_eff], found["laplacianshot"][k_eff]
    result = paired(a.correct, b.correct, a.n_query)
    points = f"{100 * result.difference.mean:+5.1f} ± {100 * result.difference.half:.1f} points"
    print(f"K_eff = {k_eff:2}: {points}, better in {result.wins} and worse in {result.losses} of 100 tasks")

# %%
# ## As a suite
#
# The command line runs such studies as suites, stores the results and makes tables, plots and a report of them: see
# [experiments](../experiments.md). To compare a method of your own, see [add a method](../tutorials/add-a-method.md).
