"""The parameters of UNEM: which come with the package, and one sentence for everything that is wrong with others."""

from __future__ import annotations

import json

import pytest

from manyway import InputError
from manyway.methods.unem.parameters import preset_names, read_parameters
from manyway.sampling.embedded import load_glyphs

GOOD = {"feature_scale": 1.0, "lam": [1.0, 0.0], "temperature": [1.0, 2.0]}


def test_the_sets_of_the_package_can_be_read_and_written_again():
    assert preset_names() == ["authors-cub-20shot", "authors-cub-5shot", "letters"]
    for name in preset_names():
        found = read_parameters(name)
        assert len(found.lam) == len(found.temperature) == 10
        assert read_parameters(found.to_json()) == found


def test_the_default_was_learned_on_the_validation_letters():
    training = read_parameters("letters").training
    features = load_glyphs("val")
    assert training["fingerprint"] == features.fingerprint
    assert training["n_classes"] == features.n_classes
    assert (training["shots"], training["k_eff"], training["n_query"]) == (5, 5, 75)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lam": [1.0]}, "lam has 1 values and temperature 2; give one per layer"),
        ({"layers": 10}, "layers is 10, but there are values for 2 layers"),
        ({"lam": []}, "lam is an empty list"),
        ({"lam": "ab"}, "lam is 'ab'; it must be a number"),
        ({"lam": [1.0, -1.0]}, "lam[2] is -1.0; it must be at least 0"),
        ({"temperature": [0.0, 1.0]}, "temperature[1] is 0.0; it must be greater than 0"),
        ({"temperature": [1.0, float("nan")]}, "temperature[2] is nan; it must be finite"),
        ({"temperature": [1.0, True]}, "temperature[2] is True; it must be a number"),
        ({"feature_scale": 10**400}, "feature_scale is 1000"),
        ({"feature_scale": None}, "feature_scale is None; it must be a number"),
        ({"format": 2}, "format is 2; it must be 1"),
        ({"method": "tim"}, "method is 'tim'"),
        ({"lamda": [1.0]}, "unknown key 'lamda'; did you mean 'lam'"),
        ({"scale": 3}, "scale is 3"),
        ({"training": [5]}, "training is [5]; it must be a table"),
        ({"training": {"shots": 0.5}}, "training.shots is 0.5; it must be a whole number of at least 1"),
    ],
)
def test_wrong_content_is_one_sentence_that_names_the_file(tmp_path, change, message):
    path = tmp_path / "unem.json"
    path.write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(InputError) as error:
        read_parameters(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)
    with pytest.raises(InputError, match="The table of parameters"):
        read_parameters({**GOOD, **change})


def test_a_missing_key_is_named():
    for key in GOOD:
        with pytest.raises(InputError, match=f"lacks the key '{key}'"):
            read_parameters({name: value for name, value in GOOD.items() if name != key})


def test_the_table_of_all_tuned_methods_is_not_a_file_of_parameters():
    with pytest.raises(InputError, match=r"has no parameters of unem; give the file unem-NAME\.json"):
        read_parameters({"created": "today", "birds": {"unem": {"parameters": "unem-birds.json"}}})


@pytest.mark.parametrize("content", [b"", b'{"lam": [1.0', b"\xff\xfe\x00", b"[" * 100_000, b"x" * 2**21])
def test_a_damaged_file_is_one_sentence(tmp_path, content):
    path = tmp_path / "unem.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not a file of parameters of unem, or it is damaged"):
        read_parameters(path)


def test_a_file_that_is_not_there_and_an_unknown_name(tmp_path):
    with pytest.raises(InputError, match=r"There is no file .*other\.json .* make one with `manyway tune`"):
        read_parameters(tmp_path / "other.json")
    with pytest.raises(InputError, match="did you mean 'letters'"):
        read_parameters("leters")
    with pytest.raises(InputError, match="There is no file xxx"):  # longer than the name of a file can be
        read_parameters("x" * 300)
    with pytest.raises(InputError, match="There is no file"):
        read_parameters(tmp_path)
