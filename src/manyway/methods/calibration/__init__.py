"""What a distance or a score means, learned from labelled examples.

``representation`` says what is compared: rows in which columns count as much as they should.
``calibration`` is what a distance then means: ``coordinates`` say where it is measured,
``prototypes`` from what, and ``moments`` how samples lie around these. ``calibrating`` learns it:
``metric`` has the directions that count, ``left_out`` the answers for examples that are left out in
turn, which choose the metric (``metric_choice``) and the precision, ``wrong_labels`` the examples
that look mislabelled, and ``tuning`` prototypes that are moved to label better. ``transforms`` has
the feature transforms of all methods, and ``temperature_scaling`` the scale and the bias of logits.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
