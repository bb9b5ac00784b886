"""What a compiled program needs of a GPU, read from the binary, an ELF file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

SECTION, SYMBOL = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")
# attributes in the section .nv.info: records of a format, an attribute, the size of the rest, a symbol, a number
FORMAT, REGISTERS, STACK = 4, 0x2F, 0x11


class Needs(NamedTuple):
    """What a program needs."""

    registers: int  # of a thread
    stack_bytes: int  # of a thread; registers that are spilled, among others
    static_bytes: int  # of shared memory, beside what it is launched with


def needs(binary: bytes) -> dict[str, Needs]:
    """What each program of the binary needs."""
    sections = dict(_sections(binary))
    names, symbols = sections[".strtab"], sections[".symtab"]
    functions = [_text(names, SYMBOL.unpack_from(symbols, at)[0]) for at in range(0, len(symbols), SYMBOL.size)]
    found = {name.removeprefix(".text."): {} for name in sections if name.startswith(".text.")}
    for attribute, symbol, number in _records(sections[".nv.info"]):
        found.get(functions[symbol], {})[attribute] = number
    return {
        name: Needs(numbers[REGISTERS], numbers[STACK], len(sections.get(f".nv.shared.{name}", b"")))
        for name, numbers in found.items()
    }


def _sections(binary: bytes) -> Iterator[tuple[str, bytes]]:
    """The name and the content of each section; of one without content in the file, as many zeros as it is long."""
    (first,) = struct.unpack_from("<Q", binary, 0x28)
    size, count, names = struct.unpack_from("<HHH", binary, 0x3A)
    headers = [SECTION.unpack_from(binary, first + number * size) for number in range(count)]
    start, length = headers[names][4:6]
    for name, kind, _, _, offset, length_of, *_ in headers:
        content = bytes(length_of) if kind == 8 else binary[offset : offset + length_of]
        yield _text(binary[start : start + length], name), content


def _records(info: bytes) -> Iterator[tuple[int, int, int]]:
    """The attribute, the symbol and the number of the records that have these."""
    at = 0
    while at < len(info):
        kind, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if kind == FORMAT:
            if size == 8:
                yield attribute, *struct.unpack_from("<II", info, at)
            at += size


def _text(names: bytes, start: int) -> str:
    return names[start : names.index(b"\0", start)].decode()
