"""Constants of evidence, calibration and scores that limit memory and time, and twice of each."""

CALIBRATION = "manyway.methods.calibration"
EVIDENCE = "manyway.methods.evidence"
SCORES = "manyway.methods.scores"
DOUBLED = {
    f"{CALIBRATION}.calibrating": {"_MOST_FOR_METRIC": 512},
    f"{CALIBRATION}.metric_choice": {"_LESS": 1 - 2e-5, "_EXACT_FEATURES": 128, "_NO_LOSS": 2e-30},
    f"{CALIBRATION}.moments": {"_LEAST_SCATTER": 2e-6, "_LEAST_FREEDOM": 8},
    f"{CALIBRATION}.prototypes": {"_MOMENT_STEPS": 6, "_LEAST_FACTOR": 0.01, "_FARTHEST": 2e12},
    f"{CALIBRATION}.distances": {"_FEW_FEATURES": 8},
    f"{CALIBRATION}.left_out": {
        "MOST_SAMPLES": 1024, "_NEWTON_STEPS": 16, "_REFIT_STEPS": 6, "_LEAST_NOISE": 2e-3, "_LEAST_WEIGHT": 2e-9,
        "_LEAST_OTHERS": 0.2,
    },
    f"{CALIBRATION}.representation": {
        "_MOST_ROWS": 1024, "_MOST_COMPARED": 256, "_ROUNDS": 6, "_ROUNDING": 8, "_CONSTANT": 2e-10,
        "_LOG_PRECISIONS": (-2.0, 12.0, 57),
    },
    f"{CALIBRATION}.temperature_scaling": {"_NEWTON_STEPS": 16, "_SMALLEST_SCALE": 0.2},
    f"{CALIBRATION}.tuning": {
        "_POWER_STEPS": 6, "_MOST_SAMPLES": 1024, "_MOST_LEVERAGE": 0.95, "_SHORTEST": 2e-30, "_LEAST_STEEPNESS": 0.02,
    },
    f"{CALIBRATION}.wrong_labels": {
        "_LOG_RATES": (-4.6, -0.7, 14), "_LOG_PRECISIONS": (-1.0, 5.0, 26), "_LEAST_WEIGHT": 2e-3,
        "_MOST_NUMBERS": 1 << 25,
    },
    f"{EVIDENCE}.shift": {"_ROUNDS": 6},
    f"{EVIDENCE}.blocks": {
        "_MOST_REMEMBERED": 1 << 25, "_REMEMBER_FOR_COST": 2e-4, "_REMEMBER": 2e-3, "_REMEMBER_IN_ANNEALING": 4e-2,
        "_MOST_LOG_ABSENT": 20.0, "_ALMOST_EMPTY": 2e-3, "_FEW": 0.2, "_STEADY": 2e-5, "_MIN_IDLE": 64,
        "_MIN_IDLE_PART": 0.5,
    },
    f"{EVIDENCE}.dense": {"_PIECE": 2**20, "_MATTERS": 2e-5},
    f"{EVIDENCE}.group": {"_GROUPS_AT_ONCE": 2048, "_NEGLIGIBLE": 2e-18},
    f"{EVIDENCE}.likelihood": {"_LEAST_SCATTER": 2e-30},
    f"{EVIDENCE}.loop": {"_AHEAD": 20, "_FAR": 2000},
    f"{EVIDENCE}.review": {"_MOST_PAIRS": 1 << 26, "_SHORTEST": 2e-30},
    f"{EVIDENCE}.adapt": {"_MOST_KEPT": 1 << 29},
    f"{EVIDENCE}.separation": {"_LEAST_WEIGHT": 2e-9, "_MOST_EXAMPLES": 1024},
    f"{EVIDENCE}.streams": {"MOST_ITEMS": 2048},
    f"{EVIDENCE}.copies": {"_MOST_COMPARED": 4096, "_MOST_PAIRS": 1 << 26, "_EQUAL": 2e-5},
    f"{EVIDENCE}.missing": {"_NUMBERS_AT_ONCE": 1 << 25, "_RIDGE": 2e-10},
    f"{EVIDENCE}.rehearse": {"_LOG_POWERS": (-5.0, 0.0, 201), "_FEWEST": 2e-9, "_EQUAL": 2e-9},
    f"{EVIDENCE}.confidence": {"_LOG_POWERS": (-3.0, 1.5, 181), "_FEWEST": 2e-9},
    f"{EVIDENCE}.judge": {
        "_PROPORTIONS": 80, "MOST_JUDGED": 4096, "_LEAST_JUDGED": 512, "_NO_DISTANCE": 2e-30, "_LEAST_WIDER": 2e-3,
    },
    f"{EVIDENCE}.neighbourhood": {"_MOST_EXAMPLES": 1024, "MOST_NUMBERS": 1 << 25},
    f"{EVIDENCE}.queries": {"_LEAST_COUNTED": 2e-3, "_MOST_QUERIES": 1024, "EXCLUDED": -2e30},
    f"{SCORES}.kinds": {"_LEAST_MISSING": 2e-3, "_SLACK": 0.04, "_LARGEST_SIGMOID": 0.9998},
    f"{SCORES}.calibrate": {"_EM_STEPS": 100, "_BISECTIONS": 48, "_STEEPEST": 12.0},
    f"{SCORES}.search": {"_AHEAD": 2000},
    f"{SCORES}.items": {"_MATTERS": 2e-6, "_EXCLUDED": -2e30},
    f"{SCORES}.review": {"_MOST_PAIRS": 1 << 26},
    f"{SCORES}.unknown": {"_EM_STEPS": 200, "_LEAST": 2e-9},
    f"{SCORES}.solver": {"_MOST_ITEMS": 1024, "_LEAST_ITEMS": 256, "_POSSIBLE": -80.0},
    f"{SCORES}.several": {"_EM_STEPS": 120, "_LEAST_PART": 2e-6},
    f"{EVIDENCE}.prior": {"SURE": 1 - 2e-6, "_NODES": 512, "_BEFORE_THE_LAST": 2e-3},
    "manyway.core.presence": {"_CERTAIN": 2e-6, "_NOTHING": 0.2},
}  # fmt: skip
