"""``python -m benchmarks.evidence_constants RESULTS``: what each constant of evidence is worth.

Run the suite first: ``manyway bench evidence-constants --results RESULTS``, and once more with ``--features`` for each
other half of the classes. This command reads the stored results, runs nothing, and prints one row per changed constant:
the difference of accuracy from the default on the same tasks (mean, lowest and highest over feature sets, shots and
K_eff), and the mean calibration error. One shot and more shots are shown apart.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from statistics import mean

from manyway.bench.records import Record
from manyway.bench.store import Store


def changed(record: Record) -> str:
    """The constant that was changed, in words."""
    return str(record.axis("schedule")) if "schedule" in record.special_params else "as it is"


def rows(records: list[Record]) -> list[str]:
    """The rows of the table, as Markdown."""
    default = {record.stream: record for record in records if changed(record) == "as it is"}
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        groups[changed(record)].append(record)
    found = []
    for name, members in groups.items():
        cells = []
        for few in (True, False):
            part = [record for record in members if (record.task["shots"] == 1) == few]
            gains = [100 * (record.value().mean - default[record.stream].value().mean) for record in part]
            error = 100 * mean(record.value("calibration").mean for record in part)
            cells.append(f"{mean(gains):+.2f} ({min(gains):+.1f} … {max(gains):+.1f}) | {error:.1f}")
        found.append(f"| `{name}` | {' | '.join(cells)} |")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder of results of the suite evidence-constants")
    keys = {
        experiment["key"]
        for plan in Store(parser.parse_args().results).plans()
        if plan.suite == "evidence-constants"
        for experiment in plan.experiments
    }
    records = [record for record in Store(parser.parse_args().results).records() if record.key in keys]
    print("| changed | one shot | calibration error | 5 and 20 shots | calibration error |\n|:---|---:|---:|---:|---:|")
    print("\n".join(sorted(rows(records), key=lambda row: ("as it is" not in row, row))))


if __name__ == "__main__":
    main()
