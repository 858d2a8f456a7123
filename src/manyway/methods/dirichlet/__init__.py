"""EM for mixtures of Dirichlet distributions,
on features that are points of the probability simplex.
"""
