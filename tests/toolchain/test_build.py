from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from dgw.errors import CompileError, DgwError, Missing, UsageError
from dgw.model import Source
from dgw.toolchain import build as build_module
from dgw.toolchain import nvrtc, toolkit
from dgw.toolchain.build import Build, Request, build, build_many, parse_log
from dgw.toolchain.cache import CompileCache, Recipe
from dgw.toolchain.elf import Cubin

CUDA = Path(__file__).parents[1] / "data" / "cuda"
ROOT = Path(__file__).parents[2]
INCLUDES = [CUDA / "include"]


def made(source: str, arch: str = "sm_80", cache: CompileCache | None = None, **fields: object) -> Build:
    return build(Source(path=source, **fields), CUDA, INCLUDES, arch, cache)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def spill() -> Build:
    return made("spill.cu")


@pytest.mark.parametrize("arch", nvrtc.ARCHITECTURES)
def test_a_kernel_with_half_and_mma_compiles_for_every_architecture_without_a_driver(arch: str) -> None:
    compiled = made("mma.cu", arch)
    assert f".target {arch}" in compiled.ptx
    assert "mma.sync.aligned.m16n8k16" in compiled.ptx
    assert compiled.ptx.rstrip().endswith("}")
    assert ".loc" in compiled.ptx
    assert compiled.entries == ("mma",)
    resources = compiled.resources("mma")
    assert 8 <= resources.registers <= 64
    assert resources.shared_bytes == 2048
    assert (resources.local_bytes, resources.spill_store_bytes, resources.spill_load_bytes) == (0, 0, 0)
    assert resources.max_threads == 128
    assert resources.barriers == 1
    assert compiled.remarks == ()


def test_the_resources_of_the_log_equal_those_of_the_cubin(spill: Build) -> None:
    used = parse_log(spill.log)
    for entry in spill.entries:
        attributes = Cubin(spill.cubin).attributes(entry)
        assert attributes.registers == used[entry].registers
        assert attributes.stack_bytes == used[entry].local_bytes


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_the_parameters_of_a_kernel_are_told_by_their_sizes_also_where_they_are_large_or_not_used(
    arch: str, tmp_path: Path
) -> None:
    (tmp_path / "taken.cu").write_text(
        "struct Large { char x[20000]; };\n"
        'extern "C" __global__ void large(Large s, int* p, char c) { *p = s.x[3] + c; }\n'
        'extern "C" __global__ void plain(int unused, int* p, short t) { *p = t; }\n'
        'extern "C" __global__ void none() {}\n'
    )
    found = build(Source(path="taken.cu"), tmp_path, [], arch)
    told = {entry: found.parameters(entry) for entry in found.entries}
    assert told == {"large": (20000, 8, 1), "plain": (4, 8, 2), "none": ()}


def test_parameters_that_a_cubin_does_not_list_are_unknown_and_not_none(
    spill: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spill.parameters("spill")
    monkeypatch.setattr("dgw.toolchain.elf._PARAMETER", -1)
    assert spill.parameters("spill") is None


def test_spills_are_counted_per_kernel_and_remarked(spill: Build) -> None:
    resources = spill.resources("spill")
    assert resources.registers == 64  # 65536 / 1024
    assert resources.max_threads == 1024
    assert resources.local_bytes > 400
    assert resources.spill_store_bytes is not None
    assert resources.spill_store_bytes > 400
    assert resources.spill_load_bytes is not None
    assert resources.spill_load_bytes > 400
    clean = spill.resources("copy")
    assert (clean.spill_store_bytes, clean.spill_load_bytes, clean.local_bytes) == (0, 0, 0)
    assert any("spilled" in remark for remark in spill.remarks)


def test_spills_are_unknown_and_not_zero_without_a_log(spill: Build) -> None:
    silent = Build(spill.source, spill.arch, spill.ptx, spill.cubin, "", spill.seconds, cached=True)
    resources = silent.resources("spill")
    assert resources.spill_store_bytes is None
    assert resources.spill_load_bytes is None
    assert resources.registers == 64
    assert resources.local_bytes == spill.resources("spill").local_bytes


def test_the_static_shared_memory_of_a_hopper_cubin_leaves_out_what_is_reserved() -> None:
    full = made("mma.cu", "sm_90a")
    silent = Build(full.source, full.arch, full.ptx, full.cubin, "", full.seconds, cached=True)
    assert full.resources("mma").shared_bytes == silent.resources("mma").shared_bytes == 2048


def test_serialised_wgmma_gives_a_coded_remark() -> None:
    remarks = made("serialised.cu", "sm_90a").coded_remarks
    assert remarks
    assert all("C75" in remark for remark in remarks)


def test_warnings_are_remarks_with_file_names_relative_to_the_root(tmp_path: Path) -> None:
    (tmp_path / "w.cu").write_text('extern "C" __global__ void w(float* p) { int unused; p[0] = 1; }\n')
    (remark,) = build(Source(path="w.cu"), tmp_path, [], "sm_80").remarks
    assert remark.startswith("w.cu(1): warning")


def test_an_unknown_kernel_is_a_usage_error_with_the_nearest_name(spill: Build) -> None:
    with pytest.raises(UsageError, match=r"no kernel 'spil'; it has spill"):
        spill.resources("spil")


def test_a_compile_error_names_the_first_error_line_and_keeps_the_log(tmp_path: Path) -> None:
    (tmp_path / "bad.cu").write_text('extern "C" __global__ void f(float* p) {\n  p[0] = nothing;\n  p[1] = more;\n}\n')
    with pytest.raises(CompileError) as caught:
        build(Source(path="bad.cu"), tmp_path, [], "sm_90a")
    assert caught.value.message.startswith("bad.cu(2): error:")
    assert "nothing" in caught.value.message
    assert "more" in caught.value.log
    assert str(tmp_path) not in caught.value.message + caught.value.hint + caught.value.log
    assert caught.value.hint


def test_an_error_of_ptxas_is_a_compile_error(tmp_path: Path) -> None:
    (tmp_path / "bad.cu").write_text('extern "C" __global__ void f() { asm volatile("mma.sink;"); }\n')
    with pytest.raises(CompileError, match=r"error.*\.sink"):
        build(Source(path="bad.cu"), tmp_path, [], "sm_80")


@pytest.mark.parametrize(("arch", "flags"), [("sm_3", ()), ("sm_80", ("--no-such-option",))])
def test_an_impossible_architecture_or_flag_is_a_compile_error(arch: str, flags: tuple[str, ...]) -> None:
    with pytest.raises(CompileError, match="nvrtc: error"):
        made("mma.cu", arch, flags=flags)


def test_a_missing_source_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="cannot read the source"):
        made("absent.cu")


def test_defines_and_include_flags_reach_the_compiler() -> None:
    source = Source(path="mma.cu", defines=(("TILE", 2048),), flags=("-Iinclude",))
    assert build(source, CUDA, [], "sm_80").resources("mma").shared_bytes == 4096
    split = Source(path="mma.cu", defines=(("TILE", 512),), flags=("-I", "include"))
    assert build(split, CUDA, [], "sm_80").resources("mma").shared_bytes == 1024


def test_a_later_language_standard_replaces_the_default() -> None:
    options = nvrtc.compile_options("sm_80", (), (), ("--std=c++20",))
    assert [option for option in options if "std" in option] == ["--std=c++20"]
    assert "--std=c++17" in nvrtc.compile_options("sm_80", (), (), ())


def test_the_drivers_cache_which_drops_the_remarks_is_switched_off() -> None:
    assert "--no-cache" in nvrtc.compile_options("sm_80", (), (), ())


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_the_code_hash_ignores_lines_and_paths_but_not_code(arch: str, tmp_path: Path) -> None:
    text = (CUDA / "mma.cu").read_text()
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    (moved / "renamed.cu").write_text("// one more line\n\n" + text)
    (moved / "changed.cu").write_text(text.replace("scaled(c[0])", "c[0]"))
    (moved / "bounds.cu").write_text(text.replace("__launch_bounds__(128)", "__launch_bounds__(256)"))
    original = made("mma.cu", arch)
    renamed, changed, bounds = (
        build(Source(path=f"{name}.cu"), moved, INCLUDES, arch) for name in ("renamed", "changed", "bounds")
    )
    assert renamed.sha256 != original.sha256
    assert renamed.code_hash == original.code_hash
    assert changed.code_hash != original.code_hash
    assert bounds.code_hash != original.code_hash
    assert original.sha256 == hashlib.sha256(original.cubin).hexdigest()


def test_the_code_hash_sees_constants_and_shared_memory_sizes(tmp_path: Path) -> None:
    template = (
        "__constant__ float t[2] = {{1.0f, {value}}};\n__shared__ char s[{size}];\n"
        'extern "C" __global__ void k(float* p, int i) {{ p[i] = t[i] + s[i]; }}\n'
    )
    hashes = set()
    for value, size in (("2.0f", 64), ("3.0f", 64), ("2.0f", 128)):
        (tmp_path / "k.cu").write_text(template.format(value=value, size=size))
        hashes.add(build(Source(path="k.cu"), tmp_path, [], "sm_90a").code_hash)
    assert len(hashes) == 3


@pytest.mark.parametrize("image", [b"", b"no ELF file at all", b"\x7fELF\x02\x01" + bytes(100)])
def test_bytes_that_are_no_cubin_are_refused(image: bytes) -> None:
    with pytest.raises(CompileError):
        Cubin(image)


def test_a_truncated_cubin_is_refused(spill: Build) -> None:
    with pytest.raises(CompileError, match=r"damaged|no cubin"):
        Cubin(spill.cubin[: len(spill.cubin) // 2])


def test_many_builds_keep_their_order_and_a_failure_stays_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "bad.cu").write_text("nonsense\n")
    good = [
        Request(Source(path="mma.cu", defines=(("TILE", t),)), CUDA, (CUDA / "include",), "sm_80") for t in (512, 1024)
    ]
    bad = Request(Source(path="bad.cu"), tmp_path, (), "sm_80")
    seen: list[Request] = []
    results = build_many([good[0], bad, good[1], good[0]], workers=2, on_done=lambda request, _: seen.append(request))
    assert isinstance(results[1], CompileError)
    sizes = [result.resources("mma").shared_bytes for result in results if isinstance(result, Build)]
    assert sizes == [1024, 2048, 1024]
    assert results[0] is results[3]
    assert len(seen) == 3


def test_many_sources_are_compiled_into_the_cache_by_processes_and_a_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dgw.toolchain import compilers

    monkeypatch.setattr(compilers, "WORTH_PROCESSES", 2)
    for name, text in (("a", "{ *p = 1; }"), ("b", "{ *p = 2; }"), ("c", "{ oops }")):
        (tmp_path / f"{name}.cu").write_text(f'extern "C" __global__ void {name}(int* p) {text}')
    requests = [Request(Source(path=f"{name}.cu"), tmp_path, (), "sm_80") for name in "abc"]
    first, second, failed = build_many(requests, CompileCache(tmp_path / "kept"), workers=2)
    assert isinstance(first, Build)
    assert isinstance(second, Build)
    assert first.cached
    assert second.cached
    assert first.entries == ("a",)
    assert isinstance(failed, CompileError)
    assert "oops" in failed.message

    def never(folder: Path) -> subprocess.Popen[bytes]:
        raise AssertionError("a process was started for what is in the cache")

    monkeypatch.setattr(compilers, "_start", never)
    assert [built.cubin for built in build_many(requests[:2], CompileCache(tmp_path / "kept"), workers=2)] == [  # type: ignore[union-attr]
        first.cubin, second.cubin,
    ]  # fmt: skip


def test_a_program_that_is_not_in_the_cache_is_looked_up_there_once_whether_it_compiles_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dgw.toolchain import compilers

    missed = tmp_path / "missed"
    real = CompileCache.get

    def get(cache: CompileCache, recipe: Recipe) -> object:
        found = real(cache, recipe)
        if found is None:
            with missed.open("a") as file:
                file.write(f"{recipe.source}\n")
        return found

    def serving(folder: Path) -> subprocess.Popen[bytes]:
        """A compiler process that says what it looked up in vain, as this one does."""
        code = (
            f"import sys; from pathlib import Path; sys.path[:0] = [{str(ROOT)!r}]\n"
            "from dgw.toolchain import cache, compilers\n"
            "def get(self, recipe):\n"
            f"    Path({str(missed)!r}).open('a').write(f'{{recipe.source}} again\\n')\n"
            "cache.CompileCache.get = get\n"
            f"compilers.serve(Path({str(tmp_path / 'kept')!r}), sys.stdin.buffer, sys.stdout.buffer)\n"
        )
        return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(compilers, "WORTH_PROCESSES", 2)
    monkeypatch.setattr(compilers, "_start", serving)
    monkeypatch.setattr(CompileCache, "get", get)
    for name, text in (("a", "{ *p = 1; }"), ("b", "{ oops }")):
        (tmp_path / f"{name}.cu").write_text(f'extern "C" __global__ void {name}(int* p) {text}')
    requests = [Request(Source(path=f"{name}.cu"), tmp_path, (), "sm_80") for name in "ab"]
    found, failed = build_many(requests, CompileCache(tmp_path / "kept"), workers=2)
    assert isinstance(found, Build)
    assert found.cached  # a process compiled it
    assert isinstance(failed, CompileError)
    assert sorted(missed.read_text().splitlines()) == ["a.cu", "b.cu"]


def test_a_compiler_process_that_dies_leaves_the_work_to_the_one_who_asked(tmp_path: Path) -> None:
    from dgw.toolchain.compilers import Compilers, Task

    def dead(folder: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def never(folder: Path) -> subprocess.Popen[bytes]:
        raise FileNotFoundError

    for start in (dead, never):
        with Compilers(tmp_path, 1, start) as pool:
            for _ in range(2):
                assert not pool.compile(Task(Source(path="spill.cu"), str(CUDA), (), "sm_80"))


def test_what_a_run_built_lately_is_not_read_again_and_a_failure_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = build_module.build, list[str]()

    def counted(source: Source, *rest: object) -> Build:
        asked.append(source.path)
        return real(source, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(build_module, "build", counted)
    for name in "ab":
        (tmp_path / f"{name}.cu").write_text(f'extern "C" __global__ void {name}(int* p) {{ *p = 1; }}')
    recent = build_module.Recent(most=1)
    first = recent.build(Source(path="a.cu"), tmp_path, (), "sm_80")
    assert recent.build(Source(path="a.cu"), tmp_path, (), "sm_80") is first
    recent.build(Source(path="b.cu"), tmp_path, (), "sm_80")
    recent.build(Source(path="a.cu"), tmp_path, (), "sm_80")
    assert asked == ["a.cu", "b.cu", "a.cu"]
    for _ in range(2):
        with pytest.raises(UsageError):
            recent.build(Source(path="none.cu"), tmp_path, (), "sm_80")
    assert asked[3:] == ["none.cu"] * 2


def test_without_nvrtc_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(Missing) as caught:
        made("mma.cu")
    assert "pip install" in caught.value.hint


def test_without_headers_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "_package_roots", lambda: iter(()))
    monkeypatch.setattr(toolkit, "_toolkit_roots", lambda: iter(()))
    toolkit.include_folder.cache_clear()
    try:
        with pytest.raises(Missing) as caught:
            toolkit.include_folder()
    finally:
        toolkit.include_folder.cache_clear()
    assert caught.value.hint == "pip install nvidia-cuda-runtime"


def test_the_version_of_nvrtc_agrees_with_the_library() -> None:
    assert toolkit.nvrtc_version().startswith(nvrtc.library_version())


def test_importing_the_toolchain_and_a_warm_hit_do_not_import_cuda(tmp_path: Path) -> None:
    made("mma.cu", cache=CompileCache(tmp_path))
    code = (
        "import sys; from pathlib import Path\n"
        "from dgw.model import Source\n"
        "from dgw.toolchain import build, cache, devices, elf, headers, limits, nvrtc, occupancy, sass, toolkit\n"
        f"made = build.build(Source(path='mma.cu'), Path({str(CUDA)!r}), [Path({str(INCLUDES[0])!r})], 'sm_80', "
        f"cache.CompileCache(Path({str(tmp_path)!r})))\n"
        "assert made.cached and made.resources('mma').registers\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('cuda', 'torch', 'numpy')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_build_error_is_the_only_kind_that_many_builds_catch(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Build:
        raise ZeroDivisionError

    monkeypatch.setattr(build_module, "build", broken)
    with pytest.raises(ZeroDivisionError):
        build_many([Request(Source(path="mma.cu"), CUDA, (), "sm_80")])
    assert issubclass(CompileError, DgwError)
