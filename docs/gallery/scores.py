"""Scores: the output of a classifier of your own

A classifier over all possible classes labels each item on its own. `EvidenceFromScores` takes its scores for a whole
batch, finds out which classes occur, and corrects labels and probabilities. It needs no features and no training.
"""

# %%
# ## A classifier over all classes
#
# Linear discriminant analysis for 215 letters, trained on 20 drawings per letter. Any classifier will do.
import subprocess

import numpy as np
import pandas as pd
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from manyway import EvidenceFromScores
from manyway.data.embedded import load_glyphs

letters = load_glyphs()
drawings = letters.features.numpy().reshape(215, 40, -1)
names = np.array(letters.class_names)
classifier = LinearDiscriminantAnalysis().fit(np.concatenate(drawings[:, :20]), names.repeat(20))

# %%
# ## A batch with few classes
#
# Eight letters occur in the batch, with unequal frequencies.
generator = np.random.default_rng(3)
present = generator.choice(215, 8, replace=False)
chosen = generator.choice(present, 150, p=generator.dirichlet(np.full(8, 2.0)))
X_items = drawings[chosen, generator.integers(20, 40, 150)]
truth = names[chosen]
scores = classifier.predict_proba(X_items)
each = classifier.classes_[scores.argmax(1)]
print(f"each item on its own: {(each == truth).mean():.1%} correct, mean probability {scores.max(1).mean():.2f}")
print(f"{len(set(each))} different letters; {len(set(truth))} occur")

# %%
# ## All items together
#
# The batch itself says how far the scores can be trusted: they are divided by a temperature before the classes that
# occur are inferred. Labelled items, where there are some, can be given to `fit`.
clf = EvidenceFromScores(classes=classifier.classes_).fit()
result = clf.infer(scores)
confidence = result.probabilities.max(1).mean()
print(f"all items together: {(result.labels == truth).mean():.1%} correct, mean probability {confidence:.2f}")
print(
    f"{len(set(result.labels))} different letters; estimated number {result.n_present:.1f} ± {result.n_present_sd:.1f}"
)

# %%
# How often each letter was answered, before and after, and how often it occurs:
counts = pd.DataFrame({"each on its own": each, "all together": result.labels, "truth": truth})
counts = counts.apply(lambda column: column.value_counts()).fillna(0).sort_values(["truth", "each on its own"])
ax = counts.rename(lambda name: name[:1]).plot.bar(figsize=(7, 3.2), width=0.8, rot=0)
ax.set(ylabel="items", xlabel="answered letter")
ax.legend(frameon=False)

# %%
# ## On the command line
#
# A table with one column per class is enough. `manyway label --scores` also reads the output of SpeciesNet,
# MegaDetector and BirdNET; see [scores of a classifier](../scores.md).
table = pd.DataFrame(scores, columns=classifier.classes_)
table.insert(0, "item", [f"item-{i:03}" for i in range(len(table))])
table.to_csv("predictions.csv", index=False)
subprocess.run(["manyway", "label", "--scores", "predictions.csv", "-o", "labels.csv"], check=True)
