"""`metrics.jsonl`: a line for every logged step, and the copy of the lines from which a checkpoint can restore it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.files.digest import bytes_digest
from experiments.files.disk import open_regular, read_bytes, to_disk
from experiments.files.durable import number, replacing, to_json
from experiments.files.plain import from_json
from experiments.record.errors import RunFolderError, disk_errors_as_failures, or_other_runs

TAIL_BYTES = 1 << 14  # more than two lines
COPIED_BYTES = 1 << 23  # bytes of lines that a checkpoint copies; of more lines it has only the digest


@dataclass(frozen=True)
class HeldLines:
    """The facts that a checkpoint keeps about the lines before it."""

    lines: int
    bytes: int  # of these lines
    sha256: str  # hex, of these bytes
    text: str | None  # the lines; None where they are too many for a copy


class Metrics:
    """The lines of a run. Anyone may `read` them. Writing begins with `clear` or `return_to` and ends with `close`.

    check: called before every write; it raises RunFolderError if this process may not write.

    Every method raises RunFolderError: one line with the path, the reason, and a remedy.
    """

    def __init__(self, path: Path, check: Callable[[], None] = lambda: None) -> None:
        self.path = path
        self._check = check
        self._descriptor: int | None = None
        self._last_step = -1
        self._lines = self._size = 0
        self._hash = hashlib.sha256()
        self._copied: bytearray | None = None

    def clear(self) -> None:
        """Remove all lines, atomically, and prepare for the first one."""
        self._begin(b"")

    def return_to(self, held: HeldLines, say: Callable[[str], None]) -> None:
        """Go back to the lines that `held` of a checkpoint knows, atomically; report it if the file lacks one.

        Raises RunFolderError if a line is lost for good.
        """
        content = self._content()
        if bytes_digest([content[: held.bytes]]) != held.sha256:
            if held.text is None:
                raise RunFolderError(
                    f"{self.path}: its first {held.lines:,} lines have changed since the checkpoint, which has no copy "
                    "of so many; restore the original file, or start again in another folder with runs=FOLDER"
                )
            say(f"{self.path}: lines were lost or changed; the {held.lines:,} lines of the checkpoint were restored")
            content = held.text.encode()
        self._begin(content[: held.bytes])

    def held(self) -> HeldLines:
        """The facts about the lines so far, for a checkpoint."""
        text = None if self._copied is None else self._copied.decode()
        return HeldLines(self._lines, self._size, self._hash.hexdigest(), text)

    def append(self, metrics: dict[str, Any]) -> None:
        """Add the line of one step.

        `metrics["step"]` must be greater than in every line before. Readers see the line at once.
        """
        if self._descriptor is None:
            self._begin(b"".join(line for line, _ in self._whole_lines()))
        assert self._descriptor is not None
        assert metrics["step"] > self._last_step, f"step {metrics['step']} after step {self._last_step}"
        line = (to_json(metrics) + "\n").encode()
        self._check()
        with disk_errors_as_failures(self.path):
            size = os.fstat(self._descriptor).st_size
            left = line
            try:
                while left:
                    left = left[os.write(self._descriptor, left) :]
            except OSError:
                # a full disk may have written half of the line
                os.ftruncate(self._descriptor, size)
                raise
        self._last_step = metrics["step"]
        self._count(line)

    def persist(self) -> None:
        """Make all lines so far survive a power cut; to be called before a checkpoint that follows them."""
        self._check()
        if self._descriptor is not None:
            with disk_errors_as_failures(self.path):
                os.fsync(self._descriptor)

    def close(self) -> None:
        """End the writing; does nothing if there was none."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def digest(self) -> str | None:
        """Hex SHA-256 of the file, or of the lines that this object has written; None without a file."""
        if self._descriptor is not None:
            return self._hash.hexdigest()
        return bytes_digest([self._content()]) if self.path.exists() else None

    def read(self) -> list[dict[str, Any]]:
        """Every complete line, in order of `step`."""
        return [metrics for _, metrics in self._whole_lines()]

    def last_step(self) -> int:
        """The step of the last complete line, read from the end of the file; 0 if there is none."""
        with disk_errors_as_failures(self.path):
            try:
                file = open_regular(self.path)
            except FileNotFoundError:
                return 0
            with file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
                steps = re.findall(rb'"step": (\d{1,18})[^\n]*\n', file.read(TAIL_BYTES))
        return int(steps[-1]) if steps else 0

    @or_other_runs()
    def _begin(self, content: bytes) -> None:
        """Give the file this content of complete lines, and open it for further lines."""
        self.close()
        if not self.path.exists() or self._content() != content:
            with replacing(self.path) as temporary:
                temporary.write_bytes(content)
        with disk_errors_as_failures(self.path):
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
            to_disk(self.path.parent)
        lines = self._whole_lines()
        self._last_step = lines[-1][1]["step"] if lines else -1
        self._lines, self._size, self._hash, self._copied = 0, 0, hashlib.sha256(), bytearray()
        for line, _ in lines:
            self._count(line)

    def _count(self, line: bytes) -> None:
        self._lines += 1
        self._size += len(line)
        self._hash.update(line)
        if self._copied is not None:
            self._copied += line
            if self._size > COPIED_BYTES:
                self._copied = None

    def _content(self) -> bytes:
        with disk_errors_as_failures(self.path):
            try:
                return read_bytes(self.path)
            except FileNotFoundError:
                return b""

    def _whole_lines(self) -> list[tuple[bytes, dict[str, Any]]]:
        parsed = [(line, _parse(line)) for line in self._content().splitlines(keepends=True)]
        if parsed and parsed[-1][1] is None:
            # cut short by a kill
            parsed.pop()
        for index, (_, metrics) in enumerate(parsed, start=1):
            if metrics is None:
                raise RunFolderError(
                    f"{self.path}: damaged (line {index} can't be read); remove result.json, if there is one, and "
                    "repeat the command that made the run, which mends the file from a checkpoint"
                )
        return [(line, metrics) for line, metrics in parsed if metrics is not None]


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        metrics = from_json(line)
    except ValueError:
        return None
    step = metrics.get("step") if isinstance(metrics, dict) else None
    if not line.endswith(b"\n") or not isinstance(step, int) or isinstance(step, bool):
        return None
    return {key: number(value) for key, value in metrics.items()}
