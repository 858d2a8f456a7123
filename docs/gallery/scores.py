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
from manyway.sampling.embedded import load_glyphs

letters = load_glyphs()
drawings = letters.features.numpy().reshape(215, 40, -1)
names = np.array(letters.class_names)
classifier = LinearDiscriminantAnalysis().fit(np.concatenate(drawings[:, :20]), names.repeat(20))

# %%
# ## A batch with few classes
#
# Eight letters occur in the batch, with unequal frequencies. The classifier is too confident: the mean probability of
# its answers is higher than their accuracy.
generator = np.random.default_rng(3)
present = generator.choice(215, 8, replace=False)
chosen = generator.choice(present, 150, p=generator.dirichlet(np.full(8, 2.0)))
X_items = drawings[chosen, generator.integers(23, 40, 150)]
truth = names[chosen]
scores = classifier.predict_proba(X_items)
each = classifier.classes_[scores.argmax(1)]
print(f"{(each == truth).mean():.1%} correct, mean probability {scores.max(1).mean():.3f}, {len(set(each))} letters")

# %%
# ## All items together
#
# Without labelled items, the batch itself says how far the scores can be trusted: they are divided by a temperature
# before the classes that occur are inferred.


def show(result):
    confidence = result.probabilities.max(1).mean()
    print(f"{(result.labels == truth).mean():.1%} correct, mean probability {confidence:.3f}, ", end="")
    print(f"{len(set(result.labels))} letters, estimated {result.n_present:.1f} ± {result.n_present_sd:.1f}")


clf = EvidenceFromScores(classes=classifier.classes_)
show(clf.fit().infer(scores))

# %%
# ## Calibrated on labelled items
#
# Items that the classifier was not trained on calibrate its scores. Here these are three drawings per letter. Where
# there are some labelled items, use them: the labels are better, and so are the probabilities.
X_labelled, y_labelled = np.concatenate(drawings[:, 20:23]), names.repeat(3)
labelled = classifier.predict_proba(X_labelled)
result = clf.fit(labelled, y_labelled).infer(scores)
show(result)

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
# A table with one column per class is enough; labelled items have a column `label` as well. `manyway label --scores`
# also reads the output of SpeciesNet, MegaDetector and BirdNET; see [scores of a classifier](../scores.md).
table = pd.DataFrame(labelled, columns=classifier.classes_)
table.insert(0, "label", y_labelled)
table.to_csv("labelled.csv", index=False)
pd.DataFrame(scores, columns=classifier.classes_).to_csv("predictions.csv", index=False)
subprocess.run(["manyway", "label", "labelled.csv", "--scores", "predictions.csv", "-o", "labels.csv"], check=True)
