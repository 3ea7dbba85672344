"""A pool whose workers find less room than it has slots, as on a cluster that lost a node."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lce_core.execution import Execution
from tasks.slots import Slot
from tasks.worker_process import Event, Worker
from tasks.workers import Pool
from tests.support.free_steps import free_step
from tests.support.studies import wait_until

STEP = free_step("rows", "toy", {}, {})
ENDED: Event = {"event": "step", "fingerprint": STEP.fingerprint, "status": "computed"}


class Room:
    def __init__(self, places: int) -> None:
        self.places, self.started, self.closed = places, 0, 0
        self.go = threading.Semaphore(0)

    def worker(self, slot: Slot) -> Worker:
        self.started += 1
        return Placed(self, len(slot.places))


class Placed(Worker):
    account, died_of_its_step = "", False

    def __init__(self, room: Room, width: int) -> None:
        self.room, self.width, self.has_place = room, width, False

    def is_placed(self, seconds: float) -> bool:
        if not self.has_place and self.room.places >= self.width:
            self.room.places -= self.width
            self.has_place = True
        elif not self.has_place:
            threading.Event().wait(0.01)
        return self.has_place

    def events(self, request: str) -> Iterator[Event]:
        assert self.has_place
        assert self.room.go.acquire(timeout=300)
        yield ENDED
        yield {"event": "end"}

    def ask_to_end(self) -> None:
        pass

    def close(self) -> None:
        self.room.places += self.width * self.has_place
        self.room.closed += 1


@pytest.fixture
def cluster(tmp_path) -> Iterator[Pool]:
    with Pool(Execution(home=tmp_path, slots=4, device="cpu")).open() as pool:
        yield pool


class Running(threading.Thread):
    def __init__(self, pool: Pool, *places: int) -> None:
        super().__init__(daemon=True)
        self.pool, self.slot = pool, Slot(places)
        self.said: list[Any] = []
        self.ended: list[Event] = []
        self.start()

    def run(self) -> None:
        self.ended = self.pool.run(self.slot, [STEP], self.say)

    def say(self, event: Event) -> None:
        self.said.append(event.get("stage"))

    def wait_for_room(self) -> None:
        wait_until(lambda: "waiting for a node" in self.said)


def test_a_unit_without_room_says_so_and_takes_over_the_worker_of_the_next_that_ends(cluster):
    room = Room(1)
    cluster._start = room.worker
    first = Running(cluster, 0)
    wait_until(lambda: not room.places)
    second = Running(cluster, 1)
    second.wait_for_room()
    room.go.release()
    first.join()
    again = Running(cluster, 0)  # the slot is free again, but the second has waited longer
    again.wait_for_room()
    assert not second.ended
    room.go.release()
    second.join()
    room.go.release()
    again.join()
    assert first.ended == second.ended == again.ended == [ENDED]
    # Three were asked for; the first, with its models, did all the work.
    assert (room.started, room.closed) == (3, 2)


def test_idle_workers_end_where_another_needs_their_room(cluster):
    room = Room(3)
    cluster._start = room.worker
    room.go.release(3)
    for place in (0, 1):
        Running(cluster, place).join()
    wide = Running(cluster, 2, 3)
    wide.join()
    assert wide.ended == [ENDED]
    assert room.closed == 1  # one of two was enough
