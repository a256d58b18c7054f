"""Reads what dgw needs from a cubin, which is an ELF file: sections, symbols, kernel attributes, a hash of the code.

The layout is that of the ELF specification (64 bit, little endian). Kernel attributes (EIATTR) are records of one
format byte, one attribute byte and two bytes that are the value, or the size of the payload that follows (format 4).
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from dgw.errors import CompileError

_NOBITS, _RELA = 8, 4
_KERNEL = 0x10  # STO_CUDA_ENTRY, in the st_other byte of a symbol
_CONTENT = (".text.", ".nv.constant", ".nv.global.init")  # machine code, constants, initialised globals
_SIZES = (".nv.shared.", ".nv.global", ".nv.local.")  # memory without content
_FRAME_SIZE, _REGISTERS = 0x11, 0x2F  # in .nv.info: symbol index, value
_MAX_THREADS, _REQUIRED_THREADS = 0x05, 0x10  # in .nv.info.KERNEL: x, y, z
_PARAMETERS_SIZE = 0x19  # in .nv.info.KERNEL: bytes of all parameters
_PARAMETER, _LARGE_PARAMETER = 0x17, 0x45  # in .nv.info.KERNEL: ordinal, offset, size; the second where they are large
_PARAMETER_SIZE_BIT = 18  # where the size begins in the last word of _PARAMETER


@dataclass(frozen=True)
class Section:
    """One section: `size` in bytes also where `content` is empty because the file holds none (NOBITS)."""

    name: str
    kind: int
    size: int
    content: bytes
    entry_size: int


@dataclass(frozen=True)
class KernelAttributes:
    """What the cubin says of one kernel: registers a thread, static shared and stack bytes, threads of launch bounds.

    `shared_bytes` includes what the architecture reserves per block from sm_90 on. `max_threads` 0: no launch bounds.
    """

    registers: int
    shared_bytes: int
    stack_bytes: int
    max_threads: int


class Cubin:
    """A parsed cubin; raises CompileError when the bytes are no 64-bit little-endian ELF file."""

    def __init__(self, image: bytes) -> None:
        if image[:6] != b"\x7fELF\x02\x01" or len(image) < 64:
            raise CompileError("the compiler's output is no cubin", hint="dgw doctor")
        try:
            self.sections = _sections(image)
            self.symbols, self._kernels = self._symbols()
        except (struct.error, IndexError, ValueError) as error:
            raise CompileError(f"the cubin is damaged: {error}", hint="dgw doctor") from error

    def section(self, name: str) -> Section | None:
        """The first section of that name."""
        return next((s for s in self.sections if s.name == name), None)

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the kernels, in the order of their code sections."""
        functions = (s.name.removeprefix(".text.") for s in self.sections if s.name.startswith(".text."))
        return tuple(name for name in functions if name in self._kernels)

    def attributes(self, entry: str) -> KernelAttributes:
        """The attributes of kernel `entry`; 0 where the cubin says nothing."""
        per_symbol = {kind: value for kind, symbol, value in self._per_symbol() if symbol == entry}
        threads = 0
        own = self.section(f".nv.info.{entry}")
        for kind, payload in _attributes(own.content if own else b""):
            if kind in (_MAX_THREADS, _REQUIRED_THREADS) and len(payload) >= 12:
                x, y, z = struct.unpack_from("<3I", payload)
                threads = x * y * z
        shared = self.section(f".nv.shared.{entry}")
        return KernelAttributes(
            registers=per_symbol.get(_REGISTERS, 0),
            shared_bytes=shared.size if shared else 0,
            stack_bytes=per_symbol.get(_FRAME_SIZE, 0),
            max_threads=threads,
        )

    def parameters(self, entry: str) -> tuple[int, ...] | None:
        """The size in bytes of each parameter of kernel `entry`, in order; None where the cubin does not list them."""
        own = self.section(f".nv.info.{entry}")
        sizes: dict[int, int] = {}
        together = 0
        for kind, payload in _attributes(own.content if own else b""):
            if kind == _PARAMETERS_SIZE:
                together = int.from_bytes(payload, "little")
            elif kind in (_PARAMETER, _LARGE_PARAMETER) and len(payload) == 12:
                _, ordinal, _, size = struct.unpack("<I2HI", payload)
                sizes[ordinal] = size >> _PARAMETER_SIZE_BIT if kind == _PARAMETER else size & 0xFFFF
        if (together and not sizes) or sorted(sizes) != list(range(len(sizes))):
            return None
        return tuple(sizes[ordinal] for ordinal in sorted(sizes))

    def code_hash(self) -> str:
        """SHA-256 of what executes: code, relocations, constants, memory sizes and registers.

        Line tables, file names and section order do not enter, so moving or renaming a source changes nothing.
        """
        parts: list[tuple[str, bytes]] = []
        for section in self.sections:
            if section.name.startswith(_CONTENT) and section.kind != _NOBITS:
                parts.append((section.name, section.content))
            elif section.name.startswith(_SIZES):
                parts.append((section.name, struct.pack("<Q", section.size)))
            elif section.name.startswith((".rel.text.", ".rela.text.")):
                parts.append((section.name, self._relocations(section)))
            elif section.name.startswith(".nv.info."):
                for kind, payload in _attributes(section.content):
                    if kind in (_MAX_THREADS, _REQUIRED_THREADS):
                        parts.append((f"{section.name} {kind}", payload))
        parts += [(f"{symbol} {kind}", struct.pack("<I", value)) for kind, symbol, value in self._per_symbol()]
        state = hashlib.sha256()
        for name, content in sorted(parts):
            state.update(f"{name}\0{len(content)}\0".encode())
            state.update(content)
        return state.hexdigest()

    def _symbols(self) -> tuple[tuple[str, ...], frozenset[str]]:
        """Names of all symbols (of its section where one has none), and of those that are kernels."""
        table, strings = self.section(".symtab"), self.section(".strtab")
        names, kernels = [], set()
        for offset in range(0, table.size - 23 if table and strings else 0, 24):
            assert table is not None
            assert strings is not None
            name, _, other, index = struct.unpack_from("<IBBH", table.content, offset)
            named = _text(strings.content, name)
            names.append(named or (self.sections[index].name if index < len(self.sections) else ""))
            if other & _KERNEL:
                kernels.add(named)
        return tuple(names), frozenset(kernels)

    def _per_symbol(self) -> list[tuple[int, str, int]]:
        """(attribute, symbol name, value) of the attributes in .nv.info that name a symbol and matter here."""
        info = self.section(".nv.info")
        found = []
        for kind, payload in _attributes(info.content if info else b""):
            if kind in (_FRAME_SIZE, _REGISTERS) and len(payload) == 8:
                symbol, value = struct.unpack("<2I", payload)
                found.append((kind, self.symbols[symbol] if symbol < len(self.symbols) else "", value))
        return found

    def _relocations(self, section: Section) -> bytes:
        size = 24 if section.kind == _RELA else 16
        text = []
        for offset in range(0, len(section.content) - size + 1, size):
            where, kind, symbol = struct.unpack_from("<QII", section.content, offset)
            addend = struct.unpack_from("<q", section.content, offset + 16)[0] if size == 24 else 0
            text.append(f"{where} {kind} {self.symbols[symbol] if symbol < len(self.symbols) else symbol} {addend}")
        return "\n".join(sorted(text)).encode()


def _sections(image: bytes) -> tuple[Section, ...]:
    (start,) = struct.unpack_from("<Q", image, 40)
    size, count, names_index = struct.unpack_from("<3H", image, 58)
    headers = [struct.unpack_from("<2I4Q2I2Q", image, start + i * size) for i in range(count)]
    names_at = headers[names_index][4]
    names = image[names_at : names_at + headers[names_index][5]]
    found = []
    for name, kind, _, _, offset, length, _, _, _, entry_size in headers:
        if kind not in (0, _NOBITS) and offset + length > len(image):
            raise ValueError("a section ends after the end of the file")
        content = b"" if kind in (0, _NOBITS) else image[offset : offset + length]
        found.append(Section(_text(names, name), kind, length, content, entry_size))
    return tuple(found)


def _text(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode("utf-8", "replace")


def _attributes(content: bytes) -> list[tuple[int, bytes]]:
    """(attribute, payload or two-byte value) of every record of an .nv.info section."""
    found, offset = [], 0
    while offset + 4 <= len(content):
        form, kind, value = struct.unpack_from("<BBH", content, offset)
        offset += 4
        if form == 4:
            found.append((kind, content[offset : offset + value]))
            offset += value
        else:
            found.append((kind, struct.pack("<H", value)))
    return found
