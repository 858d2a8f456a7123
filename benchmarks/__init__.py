"""Measurements. Run one with ``python -m benchmarks.NAME``; ``--help`` says what it measures.

Speed: ``cpu`` (``make bench``), ``gpu``, ``large``, ``threads``, ``training``. Answers: ``reference`` (recorded runs of
the original methods), ``golden`` (writes the answers that tests compare with), ``labels`` (the published algorithm in
float64).
"""
