from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.failures.failure import Mistake
from experiments.measure import cores, memory, throughput
from experiments.measure.cores import BUSY, Neighbours, check_threads, long_wait, usable
from experiments.measure.hardware import device_name, resolve_device, resolve_precision
from experiments.measure.memory import PeakMemory
from experiments.measure.mfu import mfu, peak_flops
from experiments.measure.quality import bits_per_byte, perplexity, unigram_loss
from experiments.measure.throughput import WARMUP_STEPS, Throughput, spread

CPU = torch.device("cpu")


def test_perplexity_and_its_overflow():
    assert perplexity(math.log(50)) == pytest.approx(50)
    assert perplexity(1e4) == math.inf


def test_bits_per_byte_by_hand():
    # 8 bits a token, 4 bytes a token: 2 bits a byte
    assert bits_per_byte(8 * math.log(2), tokens=100, text_bytes=400) == pytest.approx(2)


def test_the_guesses_from_frequencies_are_a_distribution():
    unigram, special = np.array([0, 0, 7, 2, 0]), frozenset({0, 1})
    guesses = [math.exp(-unigram_loss(np.eye(5, dtype=np.int64)[token], unigram, special)) for token in (2, 3, 4)]
    assert guesses == pytest.approx([8 / 12, 3 / 12, 1 / 12])
    # a quarter of the targets is special
    with_end = unigram_loss(np.array([0, 1, 3, 0, 0]), unigram, special)
    assert with_end == pytest.approx(-(math.log(1 / 4) + 3 * math.log(3 / 4 * 8 / 12)) / 4)


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(throughput.time, "perf_counter", lambda: now[0])
    # of two threads
    monkeypatch.setattr(throughput.time, "process_time", lambda: 2 * now[0])
    return now


def steps(meter, clock, seconds, tokens=100):
    for each in seconds:
        with meter.step() as counted:
            clock[0] += each
            counted.tokens = tokens


def test_the_median_of_the_steady_steps(clock):
    meter = Throughput()
    # slow first steps are left out, and one slow step among many doesn't count
    steps(meter, clock, [50.0] * WARMUP_STEPS + [1.0, 1.0, 1.0, 10.0, 1.0])
    speed = meter.steady()
    assert speed.tokens_per_second == 100
    assert "median of 5 steps" in speed.meaning and f"first {WARMUP_STEPS} steps" in speed.meaning


def test_the_spread_is_between_the_quartiles(clock):
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == 2 and spread([3.0]) == 0
    meter = Throughput([10.0, 20.0, 30.0])
    assert meter.steady()[:2] == (20.0, 10.0)
    # never more than from the lowest to the highest
    assert Throughput([1.0, 2.0]).steady()[:2] == (1.5, 0.5)


def test_what_lies_between_steps_is_no_part_of_the_rate(clock):
    meter = Throughput()
    steps(meter, clock, [1.0])
    clock[0] += 1000.0
    steps(meter, clock, [3.0])
    assert meter.recent() == 50.0
    assert meter.recent() is None
    assert meter.elapsed() == 1004.0


def test_a_pause_is_no_part_of_the_time(clock):
    meter = Throughput()
    steps(meter, clock, [1.0])
    # also one that ends in an error
    with suppress(ValueError), meter.paused():
        clock[0] += 1000.0
        raise ValueError
    steps(meter, clock, [3.0])
    assert meter.recent() == 50.0
    assert (meter.elapsed(), meter.processor_seconds()) == (4.0, 8.0)


def test_too_few_steps_are_said(clock):
    meter = Throughput()
    steps(meter, clock, [1.0] * (WARMUP_STEPS + 1))
    assert meter.steady()[:2] == (None, None) and "not measured" in meter.steady().meaning


def test_a_step_that_fails_is_not_counted(clock):
    meter = Throughput()
    with pytest.raises(ZeroDivisionError), meter.step():
        clock[0] += 1.0
        raise ZeroDivisionError
    assert meter.recent() is None


def test_the_peak_is_seen_after_the_memory_is_free_again():
    peak = PeakMemory(CPU)
    block = torch.ones(50 << 18)
    del block
    assert 40 << 20 < peak.peak_bytes() - peak.baseline_bytes < 100 << 20
    peak.reset()
    assert peak.peak_bytes() - peak.baseline_bytes < 10 << 20
    assert "from the start of training on" in peak.meaning


def test_where_the_mark_cannot_be_reset_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "CLEAR_REFS", tmp_path / "none" / "clear_refs")
    assert "since the process began" in PeakMemory(CPU).meaning


def test_memory_is_in_bytes_and_without_mapped_files(monkeypatch, tmp_path):
    status = tmp_path / "status"
    monkeypatch.setattr(memory, "STATUS", status)
    status.write_text("VmHWM:\t    3000 kB\nVmRSS:\t    2000 kB\nRssFile:\t     500 kB\n")
    peak = PeakMemory(CPU)
    assert (peak.baseline_bytes, peak.peak_bytes()) == (1500 * 1024, 2500 * 1024)


def test_without_proc_the_peak_is_that_of_getrusage(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "STATUS", tmp_path / "none")
    assert PeakMemory(CPU).peak_bytes() == memory.process_peak_bytes()


@pytest.mark.parametrize(
    ("name", "bf16", "fp32"),
    [
        ("NVIDIA H200", 989e12, 67e12),
        ("NVIDIA H100 80GB HBM3", 989e12, 67e12),
        ("NVIDIA H100 PCIe", 756e12, 51e12),
        ("NVIDIA A100-SXM4-80GB", 312e12, 19.5e12),
        ("NVIDIA L4", 121e12, 30.3e12),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None, None),
        ("NVIDIA GeForce RTX 3090", 71e12, 35.6e12),
        ("NVIDIA GeForce RTX 3090 Ti", None, None),
        ("NVIDIA GeForce RTX 4090 D", None, None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None, None),
        ("GRID A100-10C", None, None),
        ("NVIDIA A40-8Q", None, None),
        ("NVIDIA L40S-12C", None, None),
        ("Tesla K80", None, None),
    ],
)
def test_peaks_of_known_gpus(name, bf16, fp32):
    assert (peak_flops(name, "bf16"), peak_flops(name, "fp32")) == (bf16, fp32)


def test_the_utilisation_is_the_share_of_the_peak_of_the_precision(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA L4")
    # 121e12 FLOP/s in bf16, 30.3e12 in float32
    assert mfu(1000.0, 30.25e9, torch.device("cuda"), "bf16") == pytest.approx(0.25)
    assert mfu(1000.0, 30.3e9, torch.device("cuda"), "fp32") == pytest.approx(1.0)
    assert mfu(1000.0, 30.3e9, CPU, "fp32") is None
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla K80")
    assert mfu(1000.0, 30.3e9, torch.device("cuda"), "fp32") is None


def test_device_and_precision(monkeypatch):
    assert resolve_device("cpu") == CPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == CPU
    with pytest.raises(Mistake, match=r"trainer\.device=cuda"):
        resolve_device("cuda")
    assert resolve_precision("fp32", CPU) == "fp32" and resolve_precision("bf16", CPU) == "bf16"
    assert device_name(CPU).endswith(", 1 thread")


def test_more_threads_than_cores_are_refused():
    check_threads(len(usable()))
    with pytest.raises(Mistake, match=rf"trainer\.threads=9999: .* allowed: 1 to {len(usable())}"):
        check_threads(9999)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="needs what Linux's scheduler counts")
def test_the_time_in_which_others_have_the_core_is_known():
    cores = usable()
    busy = f"import os; os.sched_setaffinity(0, {cores[:1]}); print(flush=True)\nwhile True: pass"
    others = [subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE) for _ in range(3)]
    try:
        assert [each.stdout.readline() for each in others] == [b"\n"] * 3
        os.sched_setaffinity(0, {cores[0]})
        neighbours, end = Neighbours(), time.monotonic() + 0.5
        while time.monotonic() < end:
            pass
        waited = neighbours.waited_share()
    finally:
        os.sched_setaffinity(0, cores)
        for each in others:
            each.kill()
            each.communicate()
    assert waited > BUSY


def test_the_waited_share_is_that_of_the_time_in_which_the_threads_were_ready(monkeypatch, tmp_path):
    def count(**threads):
        for name, (worked, waited) in threads.items():
            folder = tmp_path / name.removeprefix("t")
            folder.mkdir(exist_ok=True)
            (folder / "schedstat").write_text(f"{worked} {waited} 7\n")

    monkeypatch.setattr(cores, "TASKS", tmp_path)
    first = f"t{os.getpid()}"
    count(**{first: (1000, 500), "t1": (200, 0)})
    neighbours = Neighbours()
    assert neighbours.waited_share() == 0.0
    # 50 + 250 more on a core, 70 + 30 more in the queue
    count(**{first: (1050, 570), "t1": (450, 30)})
    assert neighbours.waited_share() == pytest.approx(0.25)


def test_a_wait_is_said_where_it_is_long():
    assert long_wait(0.52) == "52%"
    assert long_wait(BUSY) == long_wait(0.0) == long_wait(None) == ""


def test_where_the_scheduler_counts_nothing_the_waiting_is_not_known(monkeypatch, tmp_path):
    monkeypatch.setattr("experiments.measure.cores.TASKS", tmp_path)
    assert Neighbours().waited_share() is None


@pytest.mark.parametrize(
    ("flags", "precision"),
    [("fpu amx_bf16 sse", "bf16"), ("fpu avx512_bf16", "bf16"), ("fpu avx512f", "fp32"), ("", "fp32")],
)
def test_auto_is_bf16_where_the_cpu_has_units_for_it(monkeypatch, flags, precision):
    monkeypatch.setattr("experiments.measure.hardware.cpu_field", lambda field: flags)
    assert resolve_precision("auto", CPU) == precision


@pytest.mark.parametrize(("capability", "precision"), [((7, 5), "fp32"), ((8, 0), "bf16"), ((9, 0), "bf16")])
def test_auto_is_bf16_on_gpus_from_capability_8(monkeypatch, capability, precision):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert resolve_precision("auto", torch.device("cuda")) == precision
