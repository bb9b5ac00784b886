"""Change one line of the attention core at a time, and check that the tests notice it.

    python scripts/mutations.py            run every mutant; exit code 1 if one survives
    python scripts/mutations.py 3 7        run only these
    python scripts/mutations.py --table    print the list for docs/testing.md

A mutant is made in a copy of the tree. Its test file must fail there, and pass in a copy without a mutant. The rest of
the suite isn't run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("attention", "conf", "tests", "experiments", "pyproject.toml", "cli.py")


class Mutation(NamedTuple):
    """A change in one place, and the test file that has to notice it."""

    file: str  # in attention/
    old: str  # must occur once
    new: str
    tests: str  # a file of tests/attention/


MUTATIONS = [
    Mutation("kernels/problem.py", ".tril(first_row)", ".tril(first_row + 1)", "test_variants.py"),
    Mutation("kernels/problem.py", 'self.bias != float("-inf")', 'self.bias == float("-inf")', "test_kernels.py"),
    Mutation("kernels/problem.py", "if not 0 <= dropout < 1", "if not 0 <= dropout <= 1", "test_kernels.py"),
    Mutation("kernels/problem.py", "query.shape[-1] ** -0.5 if", "1.0 if", "test_kernels.py"),
    Mutation("kernels/problem.py", "projection.query + projection.static", "projection.query", "test_papers.py"),
    Mutation("kernels/reference.py", "weights.masked_fill(empty, 0.0)", "weights", "test_kernels.py"),
    Mutation("kernels/dropout.py", "* kept * keep_scale(problem.dropout)", "* kept", "test_kernels.py"),
    Mutation("kernels/dropout.py", "(example * heads +", "(example +", "test_kernels.py"),
    Mutation("kernels/dropout.py", "& (2**17 - 1)", "& (2**16 - 1)", "test_kernels.py"),
    Mutation("kernels/sdpa.py", "problem.causal and mask is None", "False", "test_kernels.py"),
    Mutation("kernels/blocked.py", "min(M, stop) if", "min(M, start) if", "test_kernels.py"),
    Mutation(
        "kernels/blocked.py", "part.key.transpose(1, 2)) * part.scale", "part.key.transpose(1, 2))", "test_kernels.py"
    ),
    Mutation(
        "kernels/blocked.py", "torch.promote_types(tensor.dtype, torch.float32)", "tensor.dtype", "test_kernels.py"
    ),
    Mutation("kernels/compiled.py", "[0 if size == 1 else stride for", "[stride for", "test_kernels.py"),
    Mutation(
        "kernels/cpu/tile.h", "int64_t m = n + 1; m < attended", "int64_t m = n + 2; m < attended", "test_compiled.py"
    ),
    Mutation("kernels/cpu/keys_values.h", "group * key_heads, key_size)", "0, key_size)", "test_kernels.py"),
    Mutation(
        "kernels/cpu/tile.h",
        "map_stride(rows_per_tile * padded_memory + WIDTH)",
        "map_stride(padded_memory)",
        "test_compiled.py",
    ),
    Mutation(
        "kernels/cpu/softmax.h", "(vector_at(grad + m) - weighted_sum)", "vector_at(grad + m)", "test_compiled.py"
    ),
    Mutation("kernels/cpu/attend.cpp", "begin += tiles.size())", "begin += tiles.size() + 1)", "test_compiled.py"),
    Mutation("kernels/cpu/dropout.h", "0x846ca68bu", "0x846ca68du", "test_kernels.py"),
    Mutation("kernels/triton_programs.py", "(columns <= rows)", "(columns < rows)", "test_triton.py"),
    Mutation("layers/attend.py", "problem.key.shape[1] < 256", "problem.key.shape[1] < 25", "test_kernels.py"),
    Mutation("layers/projected.py", "memory = x if to_itself else cast(memory)", "memory = x", "test_variants.py"),
    Mutation("layers/projected.py", "keep_columns(self.output, heads, self.value_size)", "pass", "test_variants.py"),
    Mutation("layers/cost.py", "max(int(static), (query_size", "(int(static) + (query_size", "test_cost.py"),
    Mutation("layers/rotary.py", "[-angle.sin()", "[angle.sin()", "test_rotary.py"),
    Mutation("layers/rotary.py", "gradients[0], cos, -sin", "gradients[0], cos, sin", "test_rotary.py"),
    Mutation(
        "talking_heads.py",
        'memory_size=self.key.in_features if "m2l"',
        'memory_size=hidden_size if "m2l"',
        "test_papers.py",
    ),
    Mutation("talking_heads.py", "DYNAMIC_VARIANCE / (self.heads * size)", "DYNAMIC_VARIANCE / size", "test_papers.py"),
    Mutation("sigmoid.py", "logits - attended.log()", "logits", "test_follow_ups.py"),
]


def passes(tests: str, mutation: Mutation | None) -> bool:
    """Whether a file of tests/attention/ passes in a copy of the tree with the mutation, or without any."""
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, Path(folder) / name)
        if mutation is not None:
            apply(mutation, Path(folder) / "attention")
        command = [sys.executable, "-m", "pytest", "-n", "0", "-x", f"tests/attention/{tests}"]
        environment = os.environ | {"PYTHONPATH": folder}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
        # 1 means that tests failed; other codes, such as for no tests found, say nothing about the mutant
        if done.returncode not in (0, 1):
            raise RuntimeError(done.stdout.decode(errors="replace")[-2000:])
        return done.returncode == 0


def apply(mutation: Mutation, attention: Path) -> None:
    """Make the change in `attention`, a copy of the folder. Raises ValueError unless the old text occurs once."""
    path = attention / mutation.file
    source = path.read_text(encoding="utf-8")
    if (count := source.count(mutation.old)) != 1:
        raise ValueError(f"{mutation.file}: {mutation.old!r} occurs {count} times, must occur once")
    path.write_text(source.replace(mutation.old, mutation.new), encoding="utf-8")


def table() -> str:
    """The list of mutants in Markdown."""
    lines = ["| | file | line | mutant | caught by |", "|---:|---|---|---|---|"]
    for number, each in enumerate(MUTATIONS, 1):
        lines.append(f"| {number} | `{each.file}` | `{each.old}` | `{each.new}` | `{each.tests}` |")
    return "\n".join(lines) + "\n"


def main(words: list[str]) -> int:
    """Run the mutants with these numbers, or all, and return the exit code."""
    if words == ["--table"]:
        print(table(), end="")
        return 0
    numbers, survivors = [int(word) for word in words] or range(1, len(MUTATIONS) + 1), 0
    for tests in sorted({MUTATIONS[number - 1].tests for number in numbers}):
        if not passes(tests, None):
            raise SystemExit(f"{tests} fails without a mutant")
    for number in numbers:
        mutation = MUTATIONS[number - 1]
        survives = passes(mutation.tests, mutation)
        survivors += survives
        verdict = "SURVIVES" if survives else "caught by"
        print(f"{number:>3} {mutation.file}: {mutation.new!r} {verdict} {mutation.tests}", flush=True)
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
