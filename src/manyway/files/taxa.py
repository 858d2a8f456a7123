"""What readers of other programs' files share: labels that contain a taxonomy, and what they collect."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manyway.files.scores import FILE, SCIENTIFIC, Answers, Origin, Pair, Scores, from_pairs

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


@dataclass
class Collected:
    """What the reader of a file has found so far."""

    path: Path
    pairs: list[Pair] = field(default_factory=list)  # by the program's own keys of classes
    about: dict[str, dict[str, Any]] = field(default_factory=dict)  # item -> carried column -> cell
    skipped: list[tuple[str, str]] = field(default_factory=list)
    others: list[dict[str, Any]] = field(default_factory=list)
    places: list[Any] = field(default_factory=list)  # where the answer of each item goes
    n_listed: int = 0

    def skip(self, item: str, why: str, **cells: Any) -> None:
        """An item without scores."""
        self.skipped.append((item, why))
        self.others.append({FILE: item, **cells})

    def scores(
        self,
        labels: Mapping[str, str],
        shown: Mapping[str, str],
        form: str,
        rewrite: Callable[[Answers, float], str],
        **more: Any,
    ) -> Scores:
        """All of it. ``labels`` and ``shown`` have the label with a taxonomy, and the shown name, of each key."""
        named = ((place, item, shown[key], score) for place, item, key, score in self.pairs)
        names = taxonomy({shown[key]: label for key, label in labels.items()})
        origin = Origin(self.path, len({item for _, item, *_ in self.pairs}), self.n_listed, form, rewrite)
        collected = {"skipped": tuple(self.skipped), "others": tuple(self.others), "origins": (origin,)}
        return from_pairs(self.path, named, shown.values(), self.about, **names, **{**collected, **more})
