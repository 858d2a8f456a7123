"""A plug-in of FiftyOne with one operator: label the samples of a view that have no label yet."""

import fiftyone as fo
import fiftyone.operators as foo
from fiftyone.operators import types
from manyway import Evidence, InputError, from_fiftyone, to_fiftyone


class LabelWithManyway(foo.Operator):
    """Labels samples without a label from those with one, all of a view jointly."""

    @property
    def config(self):
        return foo.OperatorConfig(
            name="label_with_manyway",
            label="Label with manyway",
            description="Label all samples of the view that have no label from those that have one",
            dynamic=True,
            execute_as_generator=True,
            allow_immediate_execution=True,
            allow_delegated_execution=True,
        )

    def resolve_input(self, ctx):
        inputs = types.Object()
        vectors = _fields(ctx.dataset, fo.VectorField)
        labels = _fields(ctx.dataset, fo.Classification)
        if not vectors or not labels:
            lacking = "a field of vectors (dataset.compute_embeddings)" if not vectors else "a field of classifications"
            inputs.view("lacking", types.Error(label=f"This data set has no {lacking}."), invalid=True)
            return types.Property(inputs)
        inputs.enum("embeddings", vectors, default=vectors[0], required=True, label="Field of embeddings")
        inputs.enum("label", labels, default=labels[0], required=True, label="Field of known labels")
        inputs.str("field", default="manyway", required=True, label="Field for the answers")
        inputs.bool("open_set", default=False, label="Samples may be of none of the classes")
        return types.Property(inputs, view=types.View(label="Label with manyway"))

    def execute(self, ctx):
        label = ctx.params["label"]
        view = ctx.view if ctx.view is not None else ctx.dataset
        known = view.exists(label)
        pile = view.exists(label, False)
        if not len(known) or not len(pile):
            raise InputError(
                f"{len(known)} samples have a label in '{label}' and {len(pile)} have none; both are needed."
            )
        yield _progress(ctx, 0.1, f"reading {len(known)} labelled samples")
        embeddings = ctx.params["embeddings"]
        estimator = Evidence(likelihood="auto", open_set=bool(ctx.params.get("open_set")))
        estimator.fit(*from_fiftyone(known, embeddings=embeddings, label=label))
        yield _progress(ctx, 0.4, f"labelling {len(pile)} samples")
        result = estimator.infer(from_fiftyone(pile, embeddings=embeddings)[0])
        yield _progress(ctx, 0.9, "writing the answers")
        to_fiftyone(pile, result, field=ctx.params.get("field") or "manyway")
        yield _progress(ctx, 1.0, "done")
        if not ctx.delegated:
            yield ctx.trigger("reload_dataset")


def _fields(dataset, kind):
    """The fields of a data set that hold vectors, or labels of a kind."""
    if issubclass(kind, fo.Field):
        return list(dataset.get_field_schema(ftype=kind))
    return list(dataset.get_field_schema(embedded_doc_type=kind))


def _progress(ctx, progress, label):
    """Moves the bar, of the app or of a run in the background."""
    if ctx.delegated:
        return ctx.set_progress(progress=progress, label=label)
    return ctx.trigger("set_progress", {"progress": progress, "label": label})


def register(plugin):
    """What FiftyOne calls when it loads the plug-in."""
    plugin.register(LabelWithManyway)
