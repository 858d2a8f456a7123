"""Methods that train a linear classifier by gradient steps: Baseline, TIM, TIM-ADM, α-TIM."""

# of Adam: the authors' defaults
DECAY = 0.9
SQUARE_DECAY = 0.999
EPS = 1e-8
