"""EM for mixtures of Dirichlet distributions, on points of the probability simplex."""
