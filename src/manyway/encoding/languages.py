"""Which languages texts are in, by their script, and by small words and letters of a few.

No library is needed, and single words may be taken wrongly: it is enough to choose an encoder.
"""

import json
import re
import unicodedata
from collections import Counter
from importlib import resources

ENGLISH = "English"
# Scripts of one language, and frequent words of others: without those that English has too, and with letters that few
# other languages have.
_KNOWN = json.loads(
    (resources.files("manyway") / "encoding" / "languages.json").read_text(encoding="utf-8")
)
_SCRIPTS = _KNOWN["scripts"]
_WORDS = {name: words.split() for name, words in _KNOWN["words"].items()}
_OF = {
    word: {name for name in _WORDS if word in _WORDS[name]}
    for words in _WORDS.values()
    for word in words
}
_TOKEN = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?|[¿¡]")
# An encoder of many languages loses 2 to 6 of 100 English texts (CLINC150, 5 examples and 1) and wins 94 of 100 others.
ENOUGH = 0.04


def language(text: str) -> str:
    """The language that a text seems to be in; English where nothing speaks for another.

    >>> language("Wo ist meine Karte?"), language("where is my café"), language("где моя карта")
    ('German', 'English', 'Russian')
    """
    found: Counter[str] = Counter()
    for word in _TOKEN.findall(text.lower().replace("’", "'")):
        # The last letter, as Japanese words end in a script of their own.
        found[_SCRIPTS.get(unicodedata.name(word[-1], "").partition(" ")[0], "")] += 1
        for name in set().union(
            _OF.get(word, ()), *(_OF[letter] for letter in word if letter > "z" and letter in _OF)
        ):
            found[name] += 1
    del found[""]
    if found:
        return max(found, key=lambda name: (found[name], name == ENGLISH))
    return ENGLISH
