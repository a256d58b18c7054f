"""Compiles a Source, through the cache, and says what the machine code needs: registers, memory, spills, remarks."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from dgw.errors import CompileError, DgwError, UsageError
from dgw.model import Source, sm
from dgw.toolchain import compilers
from dgw.toolchain.cache import CompileCache, Recipe
from dgw.toolchain.elf import Cubin
from dgw.toolchain.headers import project_headers
from dgw.toolchain.nvrtc import Compiled, compile_program
from dgw.toolchain.occupancy import register_thread_limit
from dgw.toolchain.toolkit import compiler_identity, include_folder
from dgw.toolchain.triton_compiler import compile_kernel, identity

RESERVED_SHARED_BYTES = 1024  # part of a kernel's shared section from sm_90 on, and not the kernel's own
_REMARK = re.compile(r"\bC75\d\d\b|\bwarning\s*[:#]")
_CODED = re.compile(r"\bC75\d\d\b")
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_BARRIERS = re.compile(r"used (\d+) barriers")
_CUMULATIVE = re.compile(r"(\d+) bytes cumulative stack size")
_SHARED = re.compile(r"(\d+) bytes smem")
_INCLUDE_FLAGS = ("-I", "--include-path=", "-include-path=")
_FIRST_FLAGS = ("--pre-include=", "-include=")


@dataclass(frozen=True)
class Resources:
    """What one kernel needs: registers and local (stack) bytes a thread, static shared bytes and barriers a block.

    Spills are bytes of spill instructions a thread, as ptxas counts them; None when the log does not say. `max_threads`
    is what a block may have at most: the launch bounds, or what the registers allow.
    """

    registers: int
    shared_bytes: int
    local_bytes: int
    spill_store_bytes: int | None
    spill_load_bytes: int | None
    max_threads: int
    barriers: int = 0


@dataclass(frozen=True)
class _Usage:
    registers: int = 0
    shared_bytes: int = 0
    local_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    barriers: int = 0


@dataclass(frozen=True)
class Build:
    """A compiled Source. `seconds` is what the compiler took, also when the program came from the cache (`cached`)."""

    source: Source
    arch: str
    ptx: str
    cubin: bytes
    log: str
    seconds: float
    cached: bool
    key: str = ""

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the whole cubin, line tables and paths included."""
        return hashlib.sha256(self.cubin).hexdigest()

    @cached_property
    def code_hash(self) -> str:
        """SHA-256 of what executes (elf.Cubin.code_hash): the same wherever and with whatever line numbers compiled."""
        return self._parsed.code_hash()

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """Lines of the log that are warnings or carry a C75xx code of ptxas, each once."""
        lines = (line.strip() for line in self.log.splitlines())
        return tuple(dict.fromkeys(line for line in lines if _REMARK.search(line)))

    @property
    def coded_remarks(self) -> tuple[str, ...]:
        """The remarks with a C75xx code: ptxas serialised wgmma, or had too few registers for it."""
        return tuple(line for line in self.remarks if _CODED.search(line))

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the kernels in the cubin."""
        return self._parsed.entries

    def parameters(self, entry: str) -> tuple[int, ...] | None:
        """Bytes of each parameter of kernel `entry`, in order; None where the cubin does not say."""
        return self._parsed.parameters(entry)

    def resources(self, entry: str) -> Resources:
        """What kernel `entry` needs; UsageError with the nearest names when the cubin has no such kernel."""
        if entry not in self._known:
            self._known[entry] = self._resources(entry)
        return self._known[entry]

    def _resources(self, entry: str) -> Resources:
        if entry not in self.entries:
            near = difflib.get_close_matches(entry, self.entries, n=3, cutoff=0.0)
            raise UsageError(
                f"{self.source.path} has no kernel {entry!r}; it has {', '.join(near) or 'none'}",
                hint='declare the kernel as extern "C" __global__ and name it in the plan',
            )
        attributes = self._parsed.attributes(entry)
        used = parse_log(self.log).get(entry)
        registers = attributes.registers or (used.registers if used else 0)
        limit = register_thread_limit(registers)
        reserved = RESERVED_SHARED_BYTES if sm(self.arch) >= 90 else 0
        return Resources(
            registers=registers,
            shared_bytes=used.shared_bytes if used else max(0, attributes.shared_bytes - reserved),
            local_bytes=max(attributes.stack_bytes, used.local_bytes if used else 0),
            spill_store_bytes=used.spill_store_bytes if used else None,
            spill_load_bytes=used.spill_load_bytes if used else None,
            max_threads=min(attributes.max_threads or limit, limit),
            barriers=used.barriers if used else 0,
        )

    @cached_property
    def _parsed(self) -> Cubin:
        return Cubin(self.cubin)

    @cached_property
    def _known(self) -> dict[str, Resources]:
        return {}


def parse_log(log: str) -> dict[str, _Usage]:
    """Per kernel, what `ptxas -v` prints; spills of functions that are called and not inlined count to their kernel."""
    found: dict[str, _Usage] = {}
    blocks = _ENTRY.split(log)
    for entry, block in zip(blocks[1::2], blocks[2::2], strict=True):
        stacks = [tuple(map(int, match)) for match in _STACK.findall(block)]
        found[entry] = _Usage(
            registers=_number(_USED, block),
            shared_bytes=_number(_SHARED, block),
            local_bytes=max([_number(_CUMULATIVE, block), *(stack for stack, _, _ in stacks)]),
            spill_store_bytes=sum(stores for _, stores, _ in stacks),
            spill_load_bytes=sum(loads for _, _, loads in stacks),
            barriers=_number(_BARRIERS, block),
        )
    return found


@dataclass(frozen=True)
class _Asked:
    """A program to build: its file and text, its recipe, and whether that names all that it is made of."""

    path: Path
    recipe: Recipe
    folders: list[Path]
    flags: list[str]
    complete: bool


def _asked(source: Source, root: Path, includes: Sequence[Path], arch: str) -> _Asked:
    path = root / source.path
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read the source {path}: {reason}", hint="dgw list") from error
    flags, folders = _split_flags(source.flags, root)
    folders = [path.parent, *includes, *folders]
    triton = source.language == "triton"
    first = [flag.partition("=")[2] for flag in flags if flag.startswith(_FIRST_FLAGS)]
    headers = () if triton else project_headers(text, path.parent, folders, first)
    recipe = Recipe(
        source=source.path,
        text=text,
        headers=headers or (),
        defines=source.defines,
        flags=source.flags,
        arch=arch,
        compiler=identity() if triton else compiler_identity(),
    )
    return _Asked(path, recipe, folders, flags, complete=headers is not None)


def build(source: Source, root: Path, includes: Sequence[Path], arch: str, cache: CompileCache | None = None) -> Build:
    """Compile `root / source.path` for `arch`, or take it from `cache`.

    Headers are searched in the source's folder, in `includes`, and in the folders of -I flags (relative ones start at
    `root`). UsageError when there is no such file, CompileError when it does not compile, Missing without NVRTC.
    """
    asked = _asked(source, root, includes, arch)
    return _found(source, asked, cache) or _compiled(source, root, asked, cache)


def build_anew(source: Source, root: Path, includes: Sequence[Path], arch: str, cache: CompileCache) -> Build:
    """As `build`, for what is known not to be in `cache`: nothing is looked up there, and what is compiled is kept."""
    return _compiled(source, root, _asked(source, root, includes, arch), cache)


def _compiled(source: Source, root: Path, asked: _Asked, cache: CompileCache | None) -> Build:
    path, recipe, folders, arch = asked.path, asked.recipe, asked.folders, asked.recipe.arch
    start = time.perf_counter()
    try:
        if source.language == "triton":
            compiled = compile_kernel(path, source, arch)
        else:
            compiled = compile_program(
                recipe.text, str(path.absolute()), arch, source.defines, _existing(folders), asked.flags
            )
    except CompileError as error:
        shown = [_without_folders(part, [root, *folders]) for part in (error.message, error.hint, error.log)]
        raise CompileError(shown[0], shown[1], log=shown[2]) from error
    seconds = time.perf_counter() - start
    compiled = replace(compiled, log=_without_folders(compiled.log, [root, *folders]))
    if cache and asked.complete:
        cache.put(recipe, compiled, seconds)
    return _built(source, recipe, compiled, seconds, cached=False)


def _found(source: Source, asked: _Asked, cache: CompileCache | None) -> Build | None:
    found = cache.get(asked.recipe) if cache and asked.complete else None
    return _built(source, asked.recipe, *found, cached=True) if found else None


@dataclass(frozen=True)
class Request:
    """The arguments of one `build`."""

    source: Source
    root: Path
    includes: tuple[Path, ...]
    arch: str


class Recent:
    """Builds of one run: while it lives no file is read again for what is `known`, or was built among the last `most`.

    Thousands of cases share a few hundred programs, and to find one in `cache` its sources have to be read and hashed.
    """

    def __init__(
        self, cache: CompileCache | None = None, known: Mapping[Request, Build] | None = None, most: int = 256
    ) -> None:
        self._cache, self._known, self._most = cache, known or {}, most
        self._builds: OrderedDict[Request, Build] = OrderedDict()

    def build(self, source: Source, root: Path, includes: tuple[Path, ...], arch: str) -> Build:
        """As the function `build`, and raises what it raises."""
        request = Request(source, root, includes, arch)
        if request in self._known:
            return self._known[request]
        found = self._builds.pop(request, None) or build(source, root, includes, arch, self._cache)
        self._builds[request] = found
        if len(self._builds) > self._most:
            self._builds.popitem(last=False)
        return found


def build_many(
    requests: Iterable[Request],
    cache: CompileCache | None = None,
    workers: int | None = None,
    on_done: Callable[[Request, Build | DgwError], None] | None = None,
) -> list[Build | DgwError]:
    """Build all requests at the same time (default: as many as there are CPU cores); equal ones are compiled once.

    Many CUDA sources for a cache are compiled in processes of their own (compilers.py), anything else in threads.
    The results come in the order of the requests, and a source that does not compile gives its error in its place.
    `on_done` is called from a worker thread after each distinct build.
    """
    ordered = list(requests)
    distinct = list(dict.fromkeys(ordered))
    count = workers or len(os.sched_getaffinity(0))
    slow = sum(request.source.language == "cuda" for request in distinct)
    worth = cache is not None and count > 1 and slow >= compilers.WORTH_PROCESSES

    def one(request: Request) -> Build | DgwError:
        result: Build | DgwError
        source, root, includes, arch = request.source, request.root, request.includes, request.arch
        try:
            if not worth or source.language != "cuda":
                result = build(source, root, includes, arch, cache)
            else:
                asked = _asked(source, root, includes, arch)
                kept = _found(source, asked, cache)
                task = compilers.Task(source, str(root), tuple(map(str, includes)), arch)
                # a process is started only for what is to be compiled, and can be fetched from the cache
                if kept is None and asked.complete and pool.compile(task):
                    kept = _found(source, asked, cache)
                result = kept or _compiled(source, root, asked, cache)
        except DgwError as error:
            result = error
        if on_done:
            on_done(request, result)
        return result

    count = min(count, compilers.MOST_PROCESSES)
    with compilers.Compilers(cache.folder if cache else Path(), count) as pool, ThreadPoolExecutor(count) as threads:
        results = dict(zip(distinct, threads.map(one, distinct), strict=True))
    return [results[request] for request in ordered]


def _built(source: Source, recipe: Recipe, compiled: Compiled, seconds: float, *, cached: bool) -> Build:
    return Build(
        source=source,
        arch=recipe.arch,
        ptx=compiled.ptx,
        cubin=compiled.cubin,
        log=compiled.log,
        seconds=seconds,
        cached=cached,
        key=recipe.key,
    )


def _number(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.search(text)
    return int(match[1]) if match else 0


def _split_flags(flags: Sequence[str], root: Path) -> tuple[list[str], list[Path]]:
    """Flags without the include folders, and those folders with relative ones placed under `root`."""
    rest, folders = [], []
    given = iter(flags)
    for flag in given:
        if flag in ("-I", "--include-path", "-include-path"):
            folders.append(root / next(given, "."))
            continue
        prefix = next((p for p in _INCLUDE_FLAGS if flag.startswith(p)), "")
        if prefix:
            folders.append(root / flag.removeprefix(prefix))
        else:
            rest.append(flag)
    return rest, folders


def _without_folders(text: str, folders: Sequence[Path]) -> str:
    """`text` with file names relative to `folders`, because logs are kept in records that leave this machine."""
    for folder in (*folders, include_folder()):
        if folder.absolute() != Path("/"):
            text = text.replace(f"{folder.absolute()}/", "")
    return text


def _existing(folders: Sequence[Path]) -> list[Path]:
    return [folder.absolute() for folder in dict.fromkeys(folders) if folder.is_dir()]
