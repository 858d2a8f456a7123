"""Measurements. Run one with ``python -m benchmarks.NAME``; ``--help`` says what it measures.

Speed: ``cpu`` (``make bench``), ``gpu``, ``large``, ``threads``, ``training``, ``evidence_cost`` and ``encoders``.
Answers: ``reference`` (recorded runs of the original methods) and ``golden`` (writes the answers that tests compare
with). Studies that no suite can express: ``scores``, ``unknown`` and ``glyph_recipes``. ``fuzz`` damages files, and
``results`` fills the results pages.
"""
