"""Known labels: what a few answers of a person are worth

A person looks at some items and confirms or corrects their labels. Every answer improves the labels of the other
items. `review_order` says which item to look at next.
"""

# %%
# ## A difficult batch
#
# Two labelled drawings per letter are few, and 25 letters occur. Many labels of this batch of 150 drawings are wrong.
import matplotlib.pyplot as plt
import numpy as np

from manyway import Evidence, TaskSpec, sample_tasks
from manyway.sampling.embedded import load_glyphs

letters = load_glyphs()
task = sample_tasks(letters, TaskSpec(shots=2, k_eff=25, n_query=150), seed=1, count=1)
X_support, y_support = task.support[0].numpy(), task.support_labels[0].numpy()
X_query, y_query = task.query[0].numpy(), task.query_labels[0].numpy()

clf = Evidence().fit(X_support, y_support)
print(f"{(clf.predict(X_query) != y_query).sum()} of {len(y_query)} labels are wrong")

# %%
# ## Answers in the recommended order
#
# `known` is a mapping of rows to labels. Known items keep their label, and the others are labelled again. Here the
# true labels play the person. After each answer, `review_order` has the remaining rows, those first whose answer is
# expected to repair most labels.
n_answers = 12


def errors_after_answers(next_row):
    known, errors = {}, []
    for _ in range(n_answers + 1):
        result = clf.infer(X_query, known=known)
        errors.append(int((result.labels != y_query).sum()))
        row = next_row(result, known)
        known[row] = int(y_query[row])
    return errors


recommended = errors_after_answers(lambda result, known: int(result.review_order[0]))
print("errors after each answer:", *recommended)

# %%
# ## Answers in other orders
#
# For comparison: the least certain item first, and items at random. Without labelling again, every answer could
# repair one label at most.


def least_certain(result, known):
    confidence = result.probabilities.max(1)
    confidence[list(known)] = 2
    return int(confidence.argmin())


generator = np.random.default_rng(0)
uncertain = errors_after_answers(least_certain)
at_random = errors_after_answers(lambda _, known: int(generator.choice([i for i in range(150) if i not in known])))

figure, ax = plt.subplots(figsize=(7, 3.2))
for name, errors in {"review_order": recommended, "least certain first": uncertain, "at random": at_random}.items():
    ax.plot(errors, marker="o", markersize=4, label=name)
ax.plot([recommended[0] - i for i in range(n_answers + 1)], ":", color="grey", label="one repaired label per answer")
ax.set(xlabel="answers of a person", ylabel="wrong labels", ylim=(0, None))
ax.legend(frameon=False)

# %%
# This is one batch. [How many labels must a person check?](../results/review.md) measures many. On the command line,
# `manyway review` shows items in this order on a local web page: see [review labels in the browser](../review.md).
