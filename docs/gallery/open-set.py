"""Open set: unknown items

Some items may be of none of the classes. `Evidence(open_set=True)` gives each item the probability that it is unknown,
and says which of the unknown items belong together.
"""

# %%
# ## The data
#
# The examples are of 212 letters. The batch has drawings of five of these letters, and of three letters that have no
# examples.
import matplotlib.pyplot as plt
import numpy as np

from manyway import Evidence
from manyway.sampling.embedded import load_glyphs
from manyway.training.glyphs import draw

letters = load_glyphs()
drawings = letters.features.numpy().reshape(215, 40, -1)
names = np.array(letters.class_names)
missing = [60, 130, 180]
known = np.setdiff1d(np.arange(215), missing)
X_examples, y_examples = np.concatenate(drawings[known, :10]), names[known].repeat(10)

present = [5, 47, 77, 101, 160]
rows = [(k, i) for k in present for i in range(10, 35)] + [(k, i) for k in missing for i in range(15)]
X_items = np.stack([drawings[k, i] for k, i in rows])
truth = np.array([names[k] for k, _ in rows])
is_new = np.array([k in missing for k, _ in rows])
print(f"{len(X_items)} items, {is_new.sum()} of them of the letters without examples: {', '.join(names[missing])}")

# %%
# ## Without the option
#
# Every item gets one of the known labels. The drawings of the three letters are labelled as letters that look similar.
closed = Evidence().fit(X_examples, y_examples).predict(X_items)
for name, number in zip(*np.unique(closed[is_new], return_counts=True), strict=True):
    print(f"{number:3} {name}")

# %%
# ## With the option
#
# `unknown` is the probability that an item is of none of the classes. An item is answered as `"unknown"` where this
# probability is above one half.
result = Evidence(open_set=True).fit(X_examples, y_examples).infer(X_items)
answered = result.labels == "unknown"
print(f"{answered[is_new].sum()} of {is_new.sum()} unknown items were found")
print(f"{answered[~is_new].sum()} of {(~is_new).sum()} items of known classes were answered as unknown")
print(f"accuracy on items of known classes: {(result.labels == truth)[~is_new].mean():.2f}")

# %%
# The probability of being unknown, for items of known classes and for those of the three letters:
figure, ax = plt.subplots(figsize=(7, 2.6))
bins = np.linspace(0, 1, 21)
ax.hist([result.unknown[~is_new], result.unknown[is_new]], bins=bins, label=["of a known class", "unknown"])
ax.set(xlabel="probability of being unknown", ylabel="items")
ax.legend(frameon=False)

# %%
# ## Groups
#
# Unknown items that look alike are one group, probably one new class. The medoid is the item in the middle of its
# group: the one to look at first. Here each row shows a group, its medoid first.
groups = [np.flatnonzero(result.unknown_groups == g) for g in range(len(result.unknown_medoids))]
figure, axes = plt.subplots(len(groups), 11, figsize=(7, 0.75 * len(groups)), squeeze=False)
for line, members, medoid in zip(axes, groups, result.unknown_medoids, strict=True):
    print(f"group of {len(members)}: " + ", ".join(sorted(set(truth[members]))))
    order = [medoid, *members[members != medoid]]
    for ax in line:
        ax.axis("off")
    for ax, row in zip(line, order[:11], strict=False):
        k, i = rows[row]
        ax.imshow(draw(names[k], range(i, i + 1))[0])
