from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dgw.errors import DgwError, UsageError
from dgw.kernels import loader
from dgw.kernels.loader import FAMILY_ORDER, load, select
from dgw.toolchain.devices import device

DECLARATION = """
from dgw.model import Plan, Variant
VARIANT = Variant(id="{id}", version=1, idea="test", dtypes=("f16",), plan=lambda p, c, d: Plan())
"""


def declare(folder: Path, name: str, text: str | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(text if text is not None else DECLARATION.format(id=f"{folder.name}/{name}"))
    return path


def test_the_ladder_and_the_baselines_load_in_order_of_stage() -> None:
    variants = load()
    assert [i for i in variants if i.startswith("cuda/")][:3] == ["cuda/naive", "cuda/tiled", "cuda/swizzled"]
    assert variants["baselines/cublas"].bind is not None


def test_the_families_are_listed_in_one_place_which_has_every_ladder() -> None:
    assert {v.family for v in load().values() if v.stage is not None} == set(FAMILY_ORDER)
    package = Path(loader.__file__).parents[1]
    naming = [path.name for path in package.rglob("*.py") if '"hopper"' in path.read_text(encoding="utf-8")]
    assert naming == ["loader.py"]


def test_loading_imports_neither_torch_nor_cuda() -> None:
    code = (
        "import sys; from dgw.kernels.loader import load; load();"
        "bad = {'torch', 'triton', 'cuda.core', 'cuda.bindings'} & set(sys.modules); sys.exit(', '.join(bad) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stderr == ""


def test_a_folder_of_declarations_adds_a_family_named_after_it(tmp_path: Path) -> None:
    path = declare(tmp_path / "mine", "fast")
    variant = load([tmp_path / "mine"])["mine/fast"]
    assert variant.root == path.parent
    assert any((include / "dgw" / "types.cuh").is_file() for include in variant.includes)


def test_a_cu_file_brings_the_declaration_beside_it(tmp_path: Path) -> None:
    path = declare(tmp_path / "mine", "fast")
    source = path.with_suffix(".cu")
    source.write_text("")
    assert "mine/fast" in load([source])


def test_a_cu_file_without_a_declaration_is_an_error_that_says_what_to_type(tmp_path: Path) -> None:
    source = tmp_path / "mine.cu"
    source.write_text("")
    with pytest.raises(UsageError) as error:
        load([source])
    assert "mine.py" in error.value.message
    assert error.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "this is no Python",
        "import a_module_that_is_nowhere",
        "VARIANT = 3",
        "",
        DECLARATION.format(id="no-family"),
        DECLARATION.format(id="mine/x").replace("plan=lambda p, c, d: Plan()", ""),
        DECLARATION.format(id="mine/x").replace(", plan", ', space=(Tunable(name="BM", default=1, values=(2,), '
        'meaning=""),), plan').replace("Variant\n", "Tunable, Variant\n"),
        DECLARATION.format(id="cuda/naive"),
    ],
)  # fmt: skip
def test_a_broken_declaration_is_an_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    path = declare(tmp_path / "mine", "broken", text)
    with pytest.raises(DgwError) as error:
        load([path])
    assert "broken.py" in error.value.message
    assert "\n" not in error.value.message


def test_a_tunable_that_lacks_a_field_is_one_line_that_says_which_and_where(tmp_path: Path) -> None:
    space = ', space=(\n    Tunable(name="BM", default=2, values=(2,)),), plan'
    text = DECLARATION.format(id="mine/x").replace(", plan", space).replace("Variant\n", "Tunable, Variant\n", 1)
    with pytest.raises(UsageError) as error:
        load([declare(tmp_path / "mine", "broken", text)])
    assert error.value.message == "broken.py: line 4: Tunable lacks meaning="


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        load([tmp_path])


def test_a_bare_name_means_the_family_that_device_and_engine_can_run(tmp_path: Path) -> None:
    text = DECLARATION.format(id="hopper/tiled").replace(", plan", ', architectures=("sm_90a",), plan')
    declare(tmp_path / "hopper", "tiled", text)
    variants = load([tmp_path / "hopper"])
    assert select(variants, "tiled", device("h200"), "gpu").id == "hopper/tiled"
    assert select(variants, "tiled", device("h200"), "emulator").id == "cuda/tiled"
    assert select(variants, "tiled", device("a100"), "gpu").id == "cuda/tiled"
    assert select(variants, "triton/tiled", device("a100"), "gpu").id == "triton/tiled"


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(UsageError) as error:
        select(load(), "swizled", None, "none")
    assert "swizzled" in error.value.message
