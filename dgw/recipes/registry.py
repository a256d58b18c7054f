"""Finds the recipes: every module of this folder that has a `RECIPE` of type Recipe."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from pathlib import Path

from dgw.recipes.recipe import Recipe


@functools.cache
def recipes() -> tuple[Recipe, ...]:
    """All of them, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    modules = [importlib.import_module(f"dgw.recipes.{name}") for name in names]
    found = [module.RECIPE for module in modules if isinstance(getattr(module, "RECIPE", None), Recipe)]
    return tuple(sorted(found, key=lambda recipe: recipe.name))


def needs() -> tuple[str, ...]:
    """Every metric that some recipe needs or looks at, each once."""
    return tuple(dict.fromkeys(name for recipe in recipes() for need in recipe.needs for name in need.split("|")))
