"""Methods that train a linear classifier by gradient steps: Baseline, TIM, TIM-ADM, α-TIM."""

DECAY, SQUARE_DECAY, EPS = 0.9, 0.999, 1e-8  # of Adam: the authors' defaults
