"""Change one line of the code at a time, and check that the tests notice it.

    python scripts/mutations.py            run every mutant; exit code 1 if one survives
    python scripts/mutations.py 3 7        run only these
    python scripts/mutations.py --table    print the list

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
COPIED = ("attention", "conf", "tests", "experiments", "pyproject.toml", "conftest.py", "cli.py")


class Mutation(NamedTuple):
    """A change in one place, and the test file that has to notice it."""

    file: str  # below the root
    old: str  # must occur once
    new: str
    tests: str  # a file below tests/


MUTATIONS = [
    Mutation("attention/kernels/problem.py", ".tril(first_row)", ".tril(first_row + 1)", "attention/test_variants.py"),
    Mutation(
        "attention/kernels/problem.py",
        'self.bias != float("-inf")',
        'self.bias == float("-inf")',
        "attention/kernels/test_kernels.py",
    ),
    Mutation(
        "attention/kernels/problem.py",
        "if not 0 <= dropout < 1",
        "if not 0 <= dropout <= 1",
        "attention/kernels/test_kernels.py",
    ),
    Mutation("attention/kernels/problem.py", "float(key_size**-0.5)", "1.0", "attention/kernels/test_kernels.py"),
    Mutation(
        "attention/kernels/problem.py",
        "projection.query + projection.static",
        "projection.query",
        "attention/test_equations.py",
    ),
    Mutation(
        "attention/kernels/reference.py",
        "weights.masked_fill(empty, 0.0)",
        "weights",
        "attention/kernels/test_kernels.py",
    ),
    Mutation(
        "attention/kernels/dropout.py",
        "* kept * keep_scale(problem.dropout)",
        "* kept",
        "attention/kernels/test_kernels.py",
    ),
    Mutation("attention/kernels/dropout.py", "(example * heads +", "(example +", "attention/kernels/test_kernels.py"),
    Mutation("attention/kernels/dropout.py", "& (2**17 - 1)", "& (2**16 - 1)", "attention/kernels/test_kernels.py"),
    Mutation(
        "attention/kernels/sdpa.py", "problem.causal and mask is None", "False", "attention/kernels/test_kernels.py"
    ),
    Mutation(
        "attention/kernels/blocked.py", "min(M, stop) if", "min(M, start) if", "attention/kernels/test_kernels.py"
    ),
    Mutation(
        "attention/kernels/blocked.py",
        "part.key.transpose(1, 2)) * part.scale",
        "part.key.transpose(1, 2))",
        "attention/kernels/test_kernels.py",
    ),
    Mutation(
        "attention/kernels/blocked.py",
        "torch.promote_types(tensor.dtype, torch.float32)",
        "tensor.dtype",
        "attention/kernels/test_blocked.py",
    ),
    Mutation(
        "attention/kernels/compiled/kernel.py",
        "[0 if size == 1 else stride for",
        "[stride for",
        "attention/kernels/test_kernels.py",
    ),
    Mutation(
        "attention/kernels/compiled/tile.h",
        "int64_t m = n + 1; m < attended",
        "int64_t m = n + 2; m < attended",
        "attention/kernels/compiled/test_kernel.py",
    ),
    Mutation(
        "attention/kernels/compiled/keys_values.h",
        "group * key_heads, key_size)",
        "0, key_size)",
        "attention/kernels/test_kernels.py",
    ),
    Mutation(
        "attention/kernels/compiled/tile.h",
        "map_stride(rows_per_tile * padded_memory + WIDTH)",
        "map_stride(padded_memory)",
        "attention/kernels/compiled/test_kernel.py",
    ),
    Mutation(
        "attention/kernels/compiled/softmax.h",
        "(vector_at(grad + m) - weighted_sum)",
        "vector_at(grad + m)",
        "attention/kernels/compiled/test_kernel.py",
    ),
    Mutation(
        "attention/kernels/compiled/attend.cpp",
        "begin += tiles.size())",
        "begin += tiles.size() + 1)",
        "attention/kernels/compiled/test_kernel.py",
    ),
    Mutation("attention/kernels/compiled/dropout.h", "0x846ca68bu", "0x846ca68du", "attention/kernels/test_kernels.py"),
    Mutation(
        "attention/kernels/cuda/block.h",
        "place_y <= place_x",
        "place_y < place_x",
        "attention/kernels/cuda/test_programs.py",
    ),
    Mutation(
        "attention/kernels/cuda/library.py",
        "_options(constants, capability), compiler_version()))",
        "_options(constants, capability)))",
        "attention/kernels/cuda/test_library.py",
    ),
    Mutation(
        "attention/kernels/building/kernel_cache.py",
        "(stat.S_IWGRP | stat.S_IWOTH)",
        "stat.S_IWOTH",
        "attention/kernels/cuda/test_library.py",
    ),
    Mutation(
        "attention/layers/attend.py",
        "problem.key.shape[1] < 256",
        "problem.key.shape[1] < 25",
        "attention/kernels/test_kernels.py",
    ),
    Mutation(
        "attention/layers/attention_layer.py",
        "memory = x if to_itself else cast(memory)",
        "memory = x",
        "attention/test_variants.py",
    ),
    Mutation(
        "attention/layers/projected.py",
        "keep_columns(self.output, heads, self.value_size)",
        "pass",
        "attention/test_variants.py",
    ),
    Mutation(
        "attention/layers/cost.py",
        "max(int(static), (query_size",
        "(int(static) + (query_size",
        "attention/test_cost.py",
    ),
    Mutation("attention/layers/rotary.py", "[-angle.sin()", "[angle.sin()", "attention/test_rotary.py"),
    Mutation(
        "attention/layers/rotary.py", "gradients[0], cos, -sin", "gradients[0], cos, sin", "attention/test_rotary.py"
    ),
    Mutation(
        "attention/talking_heads.py",
        'memory_size=self.key.in_features if "m2l"',
        'memory_size=hidden_size if "m2l"',
        "attention/test_equations.py",
    ),
    Mutation(
        "attention/talking_heads.py",
        "DYNAMIC_VARIANCE / (self.heads * size)",
        "DYNAMIC_VARIANCE / size",
        "attention/test_equations.py",
    ),
    Mutation(
        "attention/sinks.py",
        "kept(self.sink.logit, heads)",
        "kept(self.sink.logit, range(len(heads)))",
        "attention/test_variants.py",
    ),
    Mutation("attention/sigmoid.py", "logits - attended.log()", "logits", "attention/test_mechanisms.py"),
    Mutation("experiments/statistics/holm.py", "            break", "            continue", "statistics/test_holm.py"),
    Mutation(
        "experiments/statistics/comparison.py",
        "share = level / len(comparisons)",
        "share = level",
        "statistics/test_comparison.py",
    ),
    Mutation(
        "experiments/statistics/comparison.py",
        "len(p_values) * contradicted",
        "contradicted",
        "statistics/test_comparison.py",
    ),
    Mutation(
        "experiments/statistics/comparison.py",
        "replace(each, evidence=Anytime(), marks=[",
        "replace(each, marks=[",
        "statistics/test_comparison.py",
    ),
    Mutation(
        "experiments/tables/verdict.py",
        "in compared.items() if comparisons]",
        "in compared.items()]",
        "tables/test_verdict.py",
    ),
    Mutation(
        "experiments/tables/verdict.py",
        "{seed: contrast + part.constant for",
        "{seed: contrast for",
        "tables/test_verdict.py",
    ),
    Mutation(
        "experiments/tables/seed_plan.py",
        "in ENDED for cell",
        "in ENDED[:1] for cell",
        "tables/test_seed_plan.py",
    ),
    Mutation(
        "experiments/tables/until_resolved.py",
        "in failures.items() if count >= MAX_FAILURES",
        "in failures.items() if count > MAX_FAILURES",
        "tables/test_until_resolved.py",
    ),
    Mutation("experiments/tables/seeds.py", "-(-least // BLOCK)", "0", "tables/test_seeds.py"),
    Mutation(
        "experiments/statistics/marks.py",
        "distance = compared.distance(outcome)",
        "distance = abs(compared.mean or 0.0)",
        "tables/test_verdict.py",
    ),
    Mutation(
        "experiments/statistics/comparison.py",
        '1.0 if p_values["holds"] <= ALPHA else p_values["no difference"]',
        'p_values["no difference"]',
        "statistics/test_comparison.py",
    ),
    Mutation(
        "experiments/cells/fork_server.py",
        "while self._read():",
        "while False:",
        "cells/test_fork_server.py",
    ),
    Mutation(
        "experiments/tables/until_resolved.py",
        "max(1, needed - len(self.comparison.values))",
        "max(1, needed)",
        "tables/test_until_resolved.py",
    ),
    Mutation(
        "experiments/tables/until_resolved.py",
        ' or verdict.claim.of != "score"',
        "",
        "tables/test_until_resolved.py",
    ),
    Mutation(
        "experiments/cells/resources.py", "self._taken.difference_update(names)", "pass", "cells/test_resources.py"
    ),
    Mutation(
        "experiments/cells/reservations.py", "shared=len(parts) > 1", "shared=False", "cells/test_reservations.py"
    ),
    Mutation("experiments/results/index.py", "for name in beside)])", "for name in ())])", "results/test_index.py"),
    Mutation(
        "experiments/record/checkpoint_file.py",
        "if file > path:",
        "if file < path:",
        "training/test_checkpoint.py",
    ),
    Mutation(
        "experiments/tasks/finetuning/windows.py",
        "(offsets_C2[:, 0] < last)",
        "(offsets_C2[:, 0] <= last)",
        "tasks/finetuning/test_windows.py",
    ),
    Mutation(
        "experiments/tasks/finetuning/squad.py",
        'ARTICLES.sub(" ", bare)',
        'ARTICLES.sub("", bare)',
        "tasks/finetuning/test_squad.py",
    ),
    Mutation(
        "experiments/results/differences.py",
        "if len(comparison.values) > 1]",
        "if len(comparison.values) > 0]",
        "results/test_differences.py",
    ),
    Mutation(
        "experiments/dashboard/curves.py",
        "if len(numbers) < len(values):",
        "if not numbers:",
        "dashboard/test_curves.py",
    ),
    Mutation(
        "experiments/results/configurations.py",
        "key=lambda key: -counts[key])",
        "key=lambda key: counts[key])",
        "results/test_configurations.py",
    ),
    Mutation(
        "experiments/commands/frame/options.py",
        '"--plan": "--budget --claim --seeds --runs"',
        '"--plan": "--budget --claim --seeds --runs --out"',
        "commands/frame/test_modes.py",
    ),
    Mutation("experiments/files/durable.py", "to_disk(temporary)", "pass", "files/test_durable.py"),
    Mutation("experiments/record/metrics.py", "os.fsync(self._descriptor)", "pass", "record/test_metrics.py"),
    Mutation(
        "experiments/config/recorded.py",
        '("device", "devices", "sharded")',
        '("device",)',
        "commands/test_evaluate.py",
    ),
    Mutation("experiments/training/guard.py", "if progress.ended:", "if False:", "training/test_non_finite_and_oom.py"),
    Mutation(
        "experiments/training/step/learner.py",
        "if self.clip is not None:",
        "if False:",
        "training/step/test_learner.py",
    ),
    Mutation(
        "experiments/training/step/micro_batches.py",
        "dropout_seed(self.seed, step, index)",
        "dropout_seed(self.seed, step, 0)",
        "training/step/test_micro_batches.py",
    ),
    Mutation(
        "experiments/training/evaluate.py",
        "objective.evaluation_seed, index)",
        "objective.evaluation_seed, 0)",
        "training/test_evaluate.py",
    ),
    Mutation(
        "experiments/training/decoding/beam.py",
        "penalty(limit, length_penalty) > best_of",
        "penalty(count, length_penalty) > best_of",
        "training/decoding/test_beam.py",
    ),
    Mutation(
        "experiments/bench/side_by_side.py",
        "[reference / measured for",
        "[measured / reference for",
        "bench/test_timing.py",
    ),
    Mutation(
        "experiments/commands/frame/usage.py",
        'source.endswith("COMMANDLINE")',
        "source",
        "commands/frame/test_modes.py",
    ),
]


def failure(tests: str, mutation: Mutation | None) -> str:
    """The end of pytest's output if a file of tests fails in a copy of the tree with the mutation; empty if it passes.

    Without a mutation, the copy is as the tree. Raises RuntimeError if the tests did not run.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, Path(folder) / name)
        if mutation is not None:
            apply(mutation, Path(folder))
        # shared, so that the kernel is built only for mutants of its sources
        cache = f"cache_dir={ROOT / '.pytest_cache' / 'mutants'}"
        command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-o", cache, f"tests/{tests}"]
        environment = os.environ | {"PYTHONPATH": folder}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
        said = done.stdout.decode(errors="replace")[-2000:]
        # 1 means that tests failed; other codes, such as for no tests found, say nothing about the mutant
        if done.returncode not in (0, 1):
            raise RuntimeError(said)
        return said if done.returncode else ""


def apply(mutation: Mutation, root: Path) -> None:
    """Make the change in a copy of the tree. Raises ValueError unless the old text occurs once."""
    path = root / mutation.file
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
        if said := failure(tests, None):
            raise SystemExit(f"{tests} fails without a mutant\n{said}")
    for number in numbers:
        mutation = MUTATIONS[number - 1]
        survives = not failure(mutation.tests, mutation)
        survivors += survives
        verdict = "SURVIVES" if survives else "caught by"
        print(f"{number:>3} {mutation.file}: {mutation.new!r} {verdict} {mutation.tests}", flush=True)
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
