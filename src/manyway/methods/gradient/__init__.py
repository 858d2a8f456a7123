"""Methods that train a linear classifier by gradient steps: Baseline, TIM, TIM-ADM, α-TIM."""
