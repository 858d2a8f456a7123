"""What is written in several places because a tool wants it there is the same in all of them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

import manyway

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
LOCK = (ROOT / "requirements-lock.txt").read_text(encoding="utf-8")
NOT_LOCKED = {"fiftyone"}  # it wants versions of its own
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def split(requirement: str) -> tuple[str, str]:
    """The name and the version of a requirement; extras and markers are left out."""
    name, version = re.match(r"([\w.-]+)(?:\[[\w,-]+\])?\s*([^;]*)", requirement).groups()
    return normal(name), version.strip()


def pins(text: str) -> set[tuple[str, str]]:
    return {split(line.rstrip("\\ ")) for line in text.splitlines() if re.match(r"[\w.-]+==", line)}


CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
RECIPE = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8"))
PLUGIN = yaml.safe_load((ROOT / "plugins" / "fiftyone" / "fiftyone.yml").read_text(encoding="utf-8"))
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_everything_has_the_version_of_the_package():
    newest = re.search(r"^## (\S+)", CHANGELOG, flags=re.M)[1]
    versions = {
        "CITATION.cff": CITATION["version"],
        "recipe": RECIPE["context"]["version"],
        "plug-in": PLUGIN["version"],
        "CHANGELOG.md": newest,
    }
    assert set(versions.values()) == {manyway.__version__}, versions


def test_the_wheel_takes_its_version_from_the_package():
    assert "version" in PROJECT["dynamic"]
    source = (ROOT / PYPROJECT["tool"]["hatch"]["version"]["path"]).read_text(encoding="utf-8")
    assert f'__version__ = "{manyway.__version__}"' in source


def test_the_wheel_the_recipe_the_citation_and_the_site_say_the_same():
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert f"site_name: {PROJECT['name']}\nsite_description: {PROJECT['description']}\n" in site
    assert RECIPE["about"]["summary"] == PROJECT["description"]
    assert RECIPE["about"]["license"] == CITATION["license"] == PROJECT["license"]
    assert CITATION["title"] == RECIPE["context"]["name"] == PROJECT["name"]
    assert [author["name"] for author in CITATION["authors"]] == [author["name"] for author in PROJECT["authors"]]
    about = RECIPE["about"]
    addresses = {"Homepage": about["homepage"], "Source": about["repository"], "Documentation": about["documentation"]}
    assert {name: PROJECT["urls"][name] for name in addresses} == addresses


def test_the_changelog_takes_the_news_of_later_releases_at_its_top():
    marker = PYPROJECT["tool"]["towncrier"]["start_string"]
    before, found, after = CHANGELOG.partition(marker)
    assert found
    assert "\n## " not in before
    assert after.lstrip().startswith("## ")


def test_the_recipe_needs_what_the_package_needs():
    needed = dict(map(split, PROJECT["dependencies"]))
    needed["pytorch"] = needed.pop("torch")  # its name on conda-forge
    assert dict(map(split, RECIPE["requirements"]["run"])) == {**needed, "python": ">=${{ python_min }}"}
    assert RECIPE["context"]["python_min"] == PROJECT["requires-python"].removeprefix(">=")
    assert set(map(split, PYPROJECT["build-system"]["requires"])) <= set(map(split, RECIPE["requirements"]["host"]))


def test_the_lock_has_the_versions_of_the_constraints_and_every_dependency():
    locked = pins(LOCK)
    names = {name for name, _ in locked}
    assert pins((ROOT / "constraints.txt").read_text(encoding="utf-8")) - locked == set(), "run `make lock`"
    extras = {name: listed for name, listed in PROJECT["optional-dependencies"].items() if name not in NOT_LOCKED}
    listed = [*PROJECT["dependencies"], *(each for extra in extras.values() for each in extra)]
    assert {name for name, _ in map(split, listed)} - names - {"manyway"} == set(), "run `make lock`"


def test_every_locked_package_has_a_hash_and_no_address_of_an_index():
    packages = re.split(r"\n(?=[\w.-]+==)", LOCK)[1:]
    assert len(packages) > 100
    assert [package.split()[0] for package in packages if "--hash=sha256:" not in package] == []
    assert re.findall(r"\w+://|--(?:extra-)?index-url|--find-links", LOCK) == []


def test_every_python_that_is_tested_is_declared():
    tests = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]["tests"]
    declared = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert tests["strategy"]["matrix"]["python"] == declared
    assert PROJECT["requires-python"] == f">={declared[0]}"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_pin_their_actions_and_ask_for_few_permissions(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] in ({}, {"contents": "read"})
    steps = [step for job in workflow["jobs"].values() for step in job.get("steps", [])]
    actions = [step["uses"] for step in steps if "uses" in step]
    assert [action for action in actions if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)] == []


def test_only_the_publishing_jobs_can_identify_themselves():
    can = set()
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items():
            if "id-token" in job.get("permissions", {}):
                can.add((path.stem, name, job["environment"]["name"]))
    assert can == {("docs", "publish", "github-pages"), ("release", "publish", "pypi")}


def test_news_fragments_have_a_known_type():
    types = {each["directory"] for each in PYPROJECT["tool"]["towncrier"]["type"]}
    names = {path.name for path in (ROOT / "changes").iterdir()} - {"README.md", "template.md"}
    assert [name for name in names if not re.fullmatch(rf"\+?[\w-]+\.(?:{'|'.join(types)})\.md", name)] == []
