"""Which cells run side by side, and the cores and devices that each gets."""

from __future__ import annotations

import pytest

from experiments.cells import resources
from experiments.cells.resources import ResourcePool, Resources, pool_for
from experiments.failures.failure import Mistake
from experiments.measure.cores import can_be_pinned

PINNED = can_be_pinned()


def test_a_cell_has_as_many_cores_as_threads_for_itself(cell, four_cores):
    free = ResourcePool(4, pinned=True)
    one, two = cell(), cell("trainer.threads=2")
    first, second = free.acquire(one), free.acquire(two)
    assert (first, second) == (Resources((2,), PINNED), Resources((3, 5), PINNED))
    assert free.acquire(two) is None
    third = free.acquire(one)
    assert third == Resources((7,), PINNED) and free.acquire(one) is None
    free.release(first)
    assert free.acquire(two) is None
    free.release(third)
    assert free.acquire(two) == Resources((2, 7), PINNED)


def test_no_more_cells_run_at_once_than_are_wanted(cell, four_cores):
    free = ResourcePool(1)
    place = free.acquire(cell())
    assert free.acquire(cell()) is None
    free.release(place)
    assert free.acquire(cell()) == place


def test_cells_on_gpus_have_one_each_and_no_cores(cell, four_cores, two_gpus):
    free = ResourcePool(6)
    assert [free.acquire(cell()) for _ in range(3)] == [Resources(device="4"), Resources(device="6"), None]
    assert free.acquire(cell("seed=1")) == Resources((2,))
    free.release(Resources(device="4"))
    assert free.acquire(cell()) == Resources(device="4")
    assert pool_for([cell()] * 5, "auto").at_once == 2
    assert pool_for([cell(), cell("seed=1")] * 5, 6).at_once == 6


def test_as_many_cells_share_a_gpu_as_are_wanted(cell, two_gpus):
    pool = pool_for([cell()] * 9, "auto", per_device=2)
    assert pool.at_once == 4
    taken = [pool.acquire(cell()) for _ in range(5)]
    # spread over the GPUs before two share one
    assert [each and each.device for each in taken] == ["4", "6", "4", "6", None]
    pool.release(taken[1])
    assert pool.acquire(cell()).device == "6"
    assert pool_for([cell("trainer.devices=2")] * 9, "auto", per_device=3).at_once == 3
    for _ in range(2):
        pool.release(Resources(device="4,6"))
    both = pool_for([cell("trainer.devices=2")] * 9, "auto", per_device=2)
    assert both.acquire(cell("trainer.devices=2")).device == "4,6"
    with pytest.raises(Mistake, match="--per-device 2: these cells train on a CPU"):
        pool_for([cell("seed=1")] * 9, "auto", per_device=2)


def test_more_workers_than_gpus_share_them_evenly(cell, four_cores, two_gpus):
    pool = pool_for([cell()] * 9, 3)
    taken = [pool.acquire(cell()) for _ in range(4)]
    assert [each and each.device for each in taken] == ["4", "6", "4", None]
    pool.release(taken[1])
    assert pool.acquire(cell()).device == "6"
    # the last cell of another sweep shares them too
    last = pool_for([cell()], 3)
    assert last.at_once == 1 and last.acquire(cell()).device == "6"


def test_as_many_cells_as_cores_may_share_the_gpus(cell, four_cores, two_gpus):
    assert pool_for([cell()] * 9, 4).at_once == 4
    with pytest.raises(Mistake, match=r"--workers 5: .* room for 4 .* allowed: auto, 1 to 4"):
        pool_for([cell()] * 9, 5)
    # unless more are allowed on each
    assert pool_for([cell()] * 9, 6, per_device=3).at_once == 6
    assert pool_for([cell("trainer.devices=2")] * 9, 2).acquire(cell("trainer.devices=2")).device == "4,6"
    assert pool_for([cell("trainer.devices=3")] * 9, 2).at_once == 2


def on_device(settings, device):
    return settings.model_copy(update={"trainer": settings.trainer.model_copy(update={"device": device})})


def test_cells_on_one_gpu_by_its_number_take_turns(cell, two_gpus):
    on_first, on_second = (on_device(cell(), f"cuda:{number}") for number in (0, 1))
    assert pool_for([on_second] * 9, "auto").at_once == 1
    assert pool_for([on_first, on_second] * 9, "auto").at_once == 2
    pool = ResourcePool(9)
    first = pool.acquire(on_second)
    assert first.device == "6" and pool.acquire(on_second) is None
    assert [pool.acquire(cell()).device, pool.acquire(cell())] == ["4", None]
    pool.release(first)
    assert pool.acquire(on_second) == first


def test_a_cell_of_more_gpus_than_there_are_starts_and_says_so_itself(cell, two_gpus):
    assert ResourcePool(9).acquire(cell("trainer.devices=3")).device == "4,6"


@pytest.mark.parametrize(
    ("threads", "cells", "workers", "at_once"),
    [(1, 9, "auto", 4), (1, 3, "auto", 3), (2, 9, "auto", 2), (3, 9, "auto", 1), (1, 9, 3, 3), (1, 2, 4, 2)],
)
def test_auto_is_as_many_as_there_are_cores_for(cell, four_cores, threads, cells, workers, at_once):
    assert pool_for([cell(f"trainer.threads={threads}")] * cells, workers).at_once == at_once


def test_cells_are_kept_to_their_cores_only_where_all_are_taken(cell, four_cores):
    pinned = {workers: pool_for([cell()] * 9, workers).acquire(cell()).pinned for workers in ("auto", 4, 3, 1)}
    assert pinned == {"auto": PINNED, 4: PINNED, 3: False, 1: False}


def test_auto_is_no_more_than_fit_into_the_memory(cell, four_cores, monkeypatch):
    monkeypatch.setattr("experiments.training.predicted_memory.predict_peak_bytes", lambda *_: 400)
    monkeypatch.setattr(resources, "free_bytes", lambda: 1000)
    assert pool_for([cell()] * 9, "auto").at_once == 2
    monkeypatch.setattr(resources, "free_bytes", lambda: 100)
    assert pool_for([cell()] * 9, "auto").at_once == 1


def test_more_workers_than_there_is_room_for_are_refused(cell, four_cores):
    with pytest.raises(Mistake, match=r"--workers 5: .* room for 4 .* allowed: auto, 1 to 4"):
        pool_for([cell()] * 9, 5)
    with pytest.raises(Mistake, match=r"--workers 2: .* room for 1 .* allowed: auto, 1\n"):
        pool_for([cell("trainer.threads=4")] * 9, 2)
