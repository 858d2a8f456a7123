"""Speed and scale, against a dense reference in the same run; ``benchmarks.cpu`` and ``benchmarks.gpu``."""
