"""Labels that contain a taxonomy, as SpeciesNet and MegaDetector write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from manyway.files.scores import SCIENTIFIC, Pair, Scores, from_pairs

_RANKS = {"genus": 3, "family": 2, "order": 1, "taxonomic class": 0}


def _ranks(label: str) -> list[str] | None:
    """Class, order, family, genus, species and common name of a label such as 'ID;mammalia;…;leo;lion', or None.

    >>> _ranks("animalia;chordata;mammalia;carnivora;canidae;vulpes vulpes")
    ['mammalia', 'carnivora', 'canidae', 'vulpes', 'vulpes', '']
    """
    parts = [part.strip() for part in label.split(";")]
    if parts[0].casefold() == "animalia":  # kingdom, phylum, class, order, family, and often a name in two words
        genus, _, species = parts[5].partition(" ") if len(parts) > 5 else ("", "", "")
        return [*(parts[2:5] + 3 * [""])[:3], *((genus, species) if species else ("", "")), ""]
    return parts[-6:] if len(parts) in (6, 7) else None


def short_name(label: str) -> str:
    """The common name in a label, or the finest name that it has."""
    ranks = _ranks(label)
    if ranks is None:
        return label
    return ranks[5] or " ".join(filter(None, ranks[3:5])) or next(filter(None, reversed(ranks[:3])), label)


def taxonomy(labels: Mapping[str, str]) -> dict[str, Any]:
    """The levels that some label has, and scientific names: what `Scores` takes. ``labels``: class -> label."""
    ranks = {name: found for name, label in labels.items() if (found := _ranks(label))}
    levels = {level: {name: r[at] for name, r in ranks.items() if r[at]} for level, at in _RANKS.items()}
    finest = {name: " ".join(filter(None, r[3:5])) or r[2] or r[1] or r[0] for name, r in ranks.items()}
    scientific = {name: found[0].upper() + found[1:] for name, found in finest.items() if found}
    return {
        "levels": {level: groups for level, groups in levels.items() if groups},
        "described": {SCIENTIFIC: scientific} if scientific else {},
    }


def shown_names(labels: Mapping[str, str]) -> dict[str, str]:
    """What classes are called, by the program's own keys: their common names, with the key where two have the same."""
    shown = {key: short_name(label) for key, label in labels.items()}
    names = list(shown.values())
    twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    return {key: f"{name} ({key})" if name in twice else name for key, name in shown.items()}


def named_scores(
    path: Path, pairs: Sequence[Pair], labels: Mapping[str, str], shown: Mapping[str, str], **more: Any
) -> Scores:
    """Scores of classes that have keys in ``pairs`` and labels with a taxonomy, by their shown names."""
    named = ((place, item, shown[key], score) for place, item, key, score in pairs)
    return from_pairs(
        path, named, shown.values(), **taxonomy({shown[key]: label for key, label in labels.items()}), **more
    )
