"""The beginning of a run: everything before its first step, or before the first one after a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from experiments.data.packing import Dataset
from experiments.display.progress import Display
from experiments.failures.failure import Mistake
from experiments.files.digest import digest
from experiments.files.durable import replacing
from experiments.measure.cores import Neighbours, check_threads, long_wait, usable
from experiments.measure.hardware import compiler_turned_off, device_name, resolve_device, resolve_precision
from experiments.measure.memory import PeakMemory
from experiments.measure.throughput import Throughput
from experiments.measure.timing import seconds
from experiments.model.kernel_availability import set_kernel_cache, why_slower
from experiments.model.layers.build_attention import wrong_arguments
from experiments.record.checkpoint_file import Checkpoint
from experiments.record.code.digests import code_digests, import_code
from experiments.record.environment import describe, since_last_start
from experiments.record.errors import or_other_runs
from experiments.record.folder import TOKENIZER, RunFolder, configuration_digest
from experiments.record.mirrors.mirrors import Mirrors
from experiments.settings.run import Settings
from experiments.tasks.choose import task_of
from experiments.tasks.task import Task
from experiments.training.checkpoint_header import Header, Progress
from experiments.training.checkpoints import newest_checkpoint, resume_from, tensors, write_checkpoint
from experiments.training.evaluate import check_targets
from experiments.training.run import Run
from experiments.training.run_length import planned_steps
from experiments.training.step.compiling import TRIED, choose, compile_layers
from experiments.training.step.learner import Learner, learner_of
from experiments.training.step.micro_batches import split
from experiments.training.step.world import World
from experiments.training.usage import Usage

LONG_STEPS = 500  # a run with fewer steps ends soon anyway


def set_up(settings: Settings, folder: RunFolder, display: Display, neighbours: Neighbours, world: World) -> Run:
    """Do everything before the first step. Raises Mistake for settings that the user has to change."""
    device = prepare_process(settings, world, display.message)
    task = task_of(settings)
    dataset = task.prepare(display.stage)
    planned = planned_steps(settings, len(dataset.train.tokens))

    def say(message: str) -> None:
        folder.log(message)
        display.message(message)

    checkpoint = newest_checkpoint(settings, folder, dataset, say)
    # not before, because a run that is refused keeps the tokenizer of its weights
    with or_other_runs(), replacing(folder.path / TOKENIZER) as temporary:
        dataset.tokenizer.save(temporary)
    if checkpoint is None:
        precision: str = resolve_precision(settings.trainer.precision, device)
    else:
        # a run keeps the precision that it began with
        precision = Header.of(checkpoint).precision
    with world.together("set_up", identities(settings, dataset), precision):
        learner = build_learner(settings, task, dataset, device, precision, world)
    learner.say = say
    run = Run(
        settings=settings,
        folder=folder,
        mirrors=Mirrors(folder, settings.model_dump()),
        display=display,
        dataset=dataset,
        learner=learner,
        planned=planned,
        progress=Progress(),
        memory=PeakMemory(device),
        neighbours=neighbours,
        say=say,
    )
    begin(run, checkpoint)
    # the memory of the run is counted without it
    del checkpoint
    align(run)
    folder.go_on()
    record_environment(run)
    say_how_busy(run)
    for remark in (dataset.remark, task.remark(), why_slower(settings, device)):
        if remark:
            run.say(remark)
    if planned is not None and planned <= settings.schedule.warmup_steps:
        run.say(
            f"the learning rate only rises: schedule.warmup_steps={settings.schedule.warmup_steps} of the "
            f"{planned} steps are warm-up"
        )
    display.start(planned, run.progress.step)
    run.memory.reset()
    run.throughput.start()
    return run


def prepare_process(settings: Settings, world: World, say: Callable[[str], None] | None = None) -> torch.device:
    """Set torch's device, threads and kernels as in the settings, import the code of the run, and return this process's
    device. Raises Mistake.

    say: receives a line before the attention kernel is built and one after it.
    """
    trainer = settings.trainer
    import_code(settings.model_dump())
    device = resolve_device(trainer.device)
    if device.type == "cuda":
        if world.size > 1:
            device = torch.device("cuda", world.local_rank)
        if device.index is not None:
            torch.cuda.set_device(device)
    check_threads(trainer.threads)
    torch.set_num_threads(trainer.threads)
    set_kernel_cache(settings, say)
    return device


def build_learner(
    settings: Settings, task: Task, dataset: Dataset, device: torch.device, precision: str, world: World
) -> Learner:
    """The learner at the beginning of a run. precision: fp32 or bf16."""
    model = task.build_initialized_model(dataset.tokenizer.vocabulary_size)
    world.place(model, device)
    return learner_of(
        settings,
        model,
        task.objective(dataset.tokenizer),
        dataset.train,
        device=device,
        precision=precision,
        world=world,
    )


def identities(settings: Settings, dataset: Dataset) -> dict[str, str]:
    """Digests of everything that all processes of a run must share."""
    tree = settings.model_dump()
    return {
        "the settings": configuration_digest(tree),
        "trainer.sharded": str(settings.trainer.sharded),
        "the text": digest([dataset.identity, dataset.sequences]),
        "the code": digest(code_digests(tree, None)),
    }


def align(run: Run) -> None:
    """Make the other processes continue from the state of this one: weights, moments and kernels."""
    how = (run.learner.micro_batch, run.learner.evaluation_batch, run.backend, run.progress.compiled)
    with run.world.together("align", *how):
        run.world.spread([*tensors(run.learner).values()])


def record_environment(run: Run) -> None:
    """Write the conditions of the run, and say which of them have changed since its last start."""
    facts = describe(torch_facts(run), run.settings.seed, run.backend)
    before = run.folder.environment()
    if before is not None and (line := since_last_start(before, facts)):
        run.say(line)
    waited, code = run.neighbours.waited_share(), code_digests(run.settings.model_dump(), run.backend)
    run.folder.write_environment(facts | {"waited_for_cores": waited, "code": code})


def say_how_busy(run: Run) -> None:
    """Report if other processes use the cores of this run, and, for a long run on a CPU, if it leaves cores idle."""
    threads, cores = torch.get_num_threads(), len(usable())
    if waited := long_wait(run.neighbours.waited_share()):
        run.say(
            f"this machine is busy: so far the run waited {waited} of its time for a core that other processes used; "
            "this makes it slower, but does not change its numbers"
        )
    long = run.planned is None or run.planned >= LONG_STEPS
    if threads < cores and long and run.forward.device.type == "cpu":
        run.display.hint(f"on {threads} of {cores} cores; trainer.threads={cores} is faster, but makes another run")


def begin(run: Run, checkpoint: Checkpoint | None) -> None:
    """Continue from the checkpoint. Without one, write one of step 0, so that there always is one.

    Raises Mistake if the run cannot continue as it began.
    """
    if checkpoint is None:
        # before anything is written, because a first batch that can't be made is a mistake of the user
        check_targets(run.dataset.validation, run.objective, run.settings.trainer.evaluation_sequences)
        find_kernels(run)
        # a trial counts as part of the run's time
        run.earlier = Usage(wall_seconds=seconds(lambda: decide_to_compile(run), run.forward.device))
        run.throughput.start()
        run.memory.reset()
        run.folder.metrics.clear()
        write_checkpoint(run)
        return
    header = Header.of(checkpoint)
    if header.progress.compiled and run.world.sharded:
        raise Mistake(
            f"{run.folder.path} was begun with layers that torch.compile compiled, and compiled layers can't be "
            "divided among devices; set trainer.sharded=false"
        )
    find_kernels(run)
    if run.backend != header.backend:
        reason = why_slower(run.settings, run.forward.device)
        raise Mistake(
            f"{run.folder.path} was begun with the attention kernel {header.backend} and would continue with "
            f"{run.backend}, which rounds differently" + (f": {reason}" if reason else ""),
            f"make {header.backend} available again, or start again in another folder with runs=FOLDER",
        )
    resume_from(run, checkpoint)
    # speeds on other devices don't count
    here = (device_name(run.forward.device), run.world.size, run.world.sharded)
    alike = (header.device, header.devices, header.sharded) == here
    run.throughput = Throughput(header.rates if alike else None)
    # and neither does what those were measured beside
    counts = alike and header.rates
    run.earlier = header.usage if counts else replace(header.usage, cells_at_once=1, waited_for_cores=None)
    run.say(f"going on from step {run.progress.step}")
    if run.progress.compiled:
        check_compiler(f"{run.folder.path} was begun with layers that torch.compile compiled")
        compile_layers(run.model, lengths_vary=run.objective.lengths_vary)


def decide_to_compile(run: Run) -> None:
    """Compile the layers depending on the settings. With `auto`, a trial decides if one compilation is enough."""
    model, trainer, progress = run.settings.model, run.settings.trainer, run.progress
    if model.layers == 1:
        # of a stack, the last layer is not compiled
        return
    if trainer.compile is True:
        check_compiler("trainer.compile=true")
        progress.compiled = True
        compile_layers(run.model, lengths_vary=run.objective.lengths_vary)
    # sequences of other lengths are compiled again, and so are batch statistics over a varying number of tokens;
    # with attention dropout one compilation is enough, but whether it saves time has not been measured
    changing = run.objective.lengths_vary or run.settings.variant.get("dropout") or model.norms_by_batch
    if trainer.compile != "auto" or changing or run.world.sharded or compiler_turned_off():
        return
    if run.learner.graphs is not None:
        # replays are not compared with, and compiled layers would end them
        return
    batches = [batch for batch in map(run.learner.batch, range(TRIED)) if len(batch.targets)]
    if not batches:
        return
    limit = math.inf if trainer.max_minutes is None else 60 * trainer.max_minutes
    progress.compiled, why = choose(
        run.model, run.forward, batches, run.learner.micro_batch, steps=run.planned, limit=limit
    )
    if why:
        run.say(why)


def check_compiler(what: str) -> None:
    """Raises Mistake if torch.compile, on which `what` relies, compiles nothing."""
    if variable := compiler_turned_off():
        raise Mistake(f"{what}: {variable}=1 turns torch.compile off", f"take {variable} out of the environment")


def find_kernels(run: Run) -> None:
    """Record the attention kernels of the run. All processes find theirs at the same time."""
    with run.world.together("find_kernels"):
        run.backend = kernels(run.learner, run.settings)


def kernels(learner: Learner, settings: Settings) -> str:
    """The attention kernels of a run, joined by `+`. They are found by running one sequence in training and evaluation.

    Raises Mistake if there is nothing to predict in the whole training split, or if the kernel can't run.
    """
    steps = math.ceil(len(learner.sequences.tokens) / learner.batch_size)
    part = next((part for index in range(steps) for part in split(learner.batch(index), 1)), None)
    if part is None:
        raise Mistake(
            f"objective={settings.objective.kind} finds nothing to predict in the train split at "
            f"length={settings.length}: use a larger length or longer documents"
        )
    names: set[str] = set()
    for training in (False, True):
        learner.model.train(training)
        with wrong_arguments(settings.variant), learner.forward.world.passes():
            learner.forward.loss(part)
        names.update(learner.model.kernels())
    learner.model.train()
    return "+".join(sorted(names))


def torch_facts(run: Run) -> dict[str, Any]:
    """Facts about torch and its devices, for the record of a run's environment."""
    return {
        "device": device_name(run.forward.device),
        "threads": torch.get_num_threads(),
        # of the processor, which torch's kernels use
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "compiled": run.progress.compiled,
        "cuda": torch.version.cuda,
    }
