"""The page of supported operations says what the registries say."""

from __future__ import annotations

from importlib import import_module

import pytest

support = import_module("support")
DATA = support.read()


def test_the_page_is_what_the_script_makes_of_the_data():
    assert support.PAGE.read_text() == support.page(DATA)
    assert DATA.keys() == support.TITLES.keys()


@pytest.mark.parametrize("framework", support.installed())
def test_the_data_are_what_the_source_translates(framework: str):
    stated = {key: DATA[framework][key] for key in ("handled", "partly", "neutral")}
    assert stated == support.translated(framework), "run python benchmarks/support.py"


@pytest.mark.parametrize("framework", support.installed())
def test_every_translation_stands_in_a_family_of_the_page(framework: str):
    listed = [name for names in DATA[framework]["handled"].values() for name in names]
    assert len(listed) == len(set(listed))
    assert {*listed, *support.neutral(framework)} >= support.registry(framework).keys()


@pytest.mark.parametrize("framework", support.installed())
def test_nothing_that_is_called_opaque_or_followed_has_a_translation(framework: str):
    without = {*DATA[framework]["opaque"], *DATA[framework]["followed"]}
    assert without.isdisjoint({*support.registry(framework), *support.neutral(framework)})
    current = support.collected(framework)
    if current["version"] == DATA[framework]["version"]:
        assert current == DATA[framework]


@pytest.mark.parametrize("framework", support.installed())
def test_a_translation_that_is_not_on_the_page_is_found(framework: str, monkeypatch: pytest.MonkeyPatch):
    known = support.registry(framework)
    extra = {**known, "unheard_of": next(fn for fn in known.values() if fn.__module__.endswith("contract"))}
    monkeypatch.setattr(support, "registry", lambda _: extra)
    assert "unheard_of" in support.translated(framework)["handled"]["contract"]
    assert support.translated(framework) != {key: DATA[framework][key] for key in ("handled", "partly", "neutral")}
