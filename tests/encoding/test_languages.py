"""Languages by script and small words."""

from __future__ import annotations

import pytest

from manyway.encoding.languages import language


@pytest.mark.parametrize(
    ("name", "texts"),
    {
        "English": [
            "where is my card",
            "no thanks",
            "visa",
            "the café is naïve",
            "is it a die or das boot",
            "12 34",
            "",
        ],
        "German": ["Ich möchte stornieren", "Wann wird mein Geld erstattet?"],
        "French": ["Mot de passe oublié", "Ma commande n’est pas arrivée", "Où est mon colis ?"],
        "Spanish": ["El pedido no ha llegado", "¿Dónde está mi paquete?"],
        "Italian": ["Il pacco non è arrivato"],
        "Portuguese": ["O pedido não chegou"],
        "Dutch": ["Mijn pakket is niet aangekomen"],
        "Polish": ["Paczka nie dotarła"],
        "Turkish": ["Şifremi unuttum"],
        "Japanese": ["荷物が届きません"],
        "Chinese": ["我忘记了密码"],
        "Russian": ["где моя карта"],
        "Greek": ["πού είναι"],
    }.items(),
)
def test_a_text_tells_its_language(name, texts):
    assert [language(text) for text in texts] == [name] * len(texts)
