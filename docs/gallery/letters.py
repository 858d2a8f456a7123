"""Letters: which of 215 letters occur in a batch?

There are five labelled drawings of each of 215 letters, and 75 new drawings of five letters. Labelling all drawings
together is more accurate than labelling each on its own, and it tells which letters are present.
"""

# %%
# ## The data
#
# The package contains features of drawn letters: 215 letters of the Georgian, Cyrillic and Armenian alphabets, 40
# drawings per letter. `TaskSpec` says what a task looks like, and `sample_tasks` draws tasks: here one task, with all
# 215 letters possible (`n_ways=None`, the default).
import matplotlib.pyplot as plt
import numpy as np

from manyway import Evidence, SimpleShot, TaskSpec, plot_presence, sample_tasks, solve
from manyway.sampling.embedded import load_glyphs
from manyway.training.glyphs import draw

letters = load_glyphs()
task = sample_tasks(letters, TaskSpec(shots=5, k_eff=5, n_query=75), seed=4, count=1)
X_support, y_support = task.support[0].numpy(), task.support_labels[0].numpy()
X_query, y_query = task.query[0].numpy(), task.query_labels[0].numpy()
names = np.array(letters.class_names)
print(f"{X_support.shape[0]} examples of {len(names)} letters, {X_query.shape[0]} items, {X_query.shape[1]} features")

# %%
# The encoder, a small network, was trained on other alphabets. It sees distorted drawings like these, one of each of
# 40 letters:
figure, axes = plt.subplots(4, 10, figsize=(7, 2.9))
for ax, name in zip(axes.flat, names[::5][:40], strict=True):
    ax.imshow(draw(name, range(1))[0])
    ax.axis("off")

# %%
# ## Label each drawing on its own
#
# The nearest class mean (`SimpleShot`) looks at one drawing at a time. It uses many letters that are not in the
# batch.
each = SimpleShot().fit(X_support, names[y_support])
print(f"accuracy {each.score(X_query, names[y_query]):.2f}, {len(set(each.predict(X_query)))} different letters")

# %%
# ## Label all drawings together
#
# `Evidence` labels the batch as a whole, with as few letters as the drawings give evidence for. No number of letters
# is given.
clf = Evidence().fit(X_support, names[y_support])
result = clf.infer(X_query)
print(f"accuracy {(result.labels == names[y_query]).mean():.2f}, {len(set(result.labels))} different letters")
print("number of letters that occur: {} to {}".format(*result.n_present_interval))

# %%
# `presence` is the probability per class that it occurs in the batch. Dark bars are the list
# `result.present()`, of which at most 5 % are absent on average. The letters that do occur are marked.
top = 9
ax = plot_presence(result, top=top, truth=set(names[y_query]))
ax.figure.set_size_inches(7, 3)

# %%
# The number of letters comes with an interval. Tasks with 3 to 30 letters: bars are the estimate and its interval, the
# line is the truth.
figure, ax = plt.subplots(figsize=(7, 3))
for k_eff in (3, 6, 10, 15, 20, 30):
    found = solve("evidence", sample_tasks(letters, TaskSpec(shots=5, k_eff=k_eff, n_query=75), seed=4, count=3))
    places = k_eff + np.array([-0.5, 0, 0.5])
    ends = (found.n_present_interval.T - found.n_present).abs()
    ax.errorbar(places, found.n_present, yerr=ends, fmt="o", color="C0", capsize=3)
ax.plot([0, 31], [0, 31], "k:")
ax.set(xlabel="letters that occur", ylabel="estimated number")

# %%
# ## Look at single drawings
#
# `to_frame` has one row per item with its label, the probability and the second choice.
table = result.to_frame()
table["truth"] = names[y_query]
columns = ["label", "probability", "label_2", "truth"]
print(table.sort_values("probability")[columns].head(6).to_string(max_colwidth=34, float_format="%.2f"))
