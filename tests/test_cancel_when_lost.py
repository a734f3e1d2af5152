"""`acquire(on_lost=…)`: the body of a block does not outlive its lease."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

import holdfast
from holdfast import BadOption, LeaseLost, aio

Body = Callable[[aio.Locks], Awaitable[Any]]


def play(body: Body) -> Any:
    """Run a body with locks of its own."""

    async def main() -> Any:
        async with aio.connect("memory:") as locks, asyncio.timeout(60):
            return await body(locks)

    return asyncio.run(main())


async def lose(locks: aio.Locks, lease: aio.Lease) -> None:
    """Have a lease lost, and noticed at once."""
    await locks.evict(lease.key)
    with suppress(LeaseLost):
        await lease.renew()


async def lose_and_wait(locks: aio.Locks, lease: aio.Lease) -> None:
    """Have a lease lost by another task, and wait for ever."""
    losing = asyncio.create_task(lose(locks, lease))
    try:
        await asyncio.Event().wait()
    finally:
        await losing


def test_the_body_is_cancelled_and_the_block_raises_the_loss() -> None:
    """A loss ends the body where it waits; outside of the block it is LeaseLost."""

    async def body(locks: aio.Locks) -> list[str]:
        seen = []

        async def work() -> None:
            async with locks.acquire("k", on_lost="cancel") as lease:
                try:
                    await lose_and_wait(locks, lease)
                except asyncio.CancelledError:
                    seen.append("cancelled")
                    raise

        with pytest.raises(LeaseLost) as caught:
            await work()
        assert isinstance(caught.value.__cause__, asyncio.CancelledError)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)  # no cancellation is left over
        return seen

    assert play(body) == ["cancelled"]


def test_a_lease_that_was_awaited_first_is_entered_later() -> None:
    """`async with lease` of an awaited lease does the same."""

    async def body(locks: aio.Locks) -> None:
        lease = await locks.acquire("k", on_lost="cancel")

        async def work() -> None:
            async with lease:
                await lose_and_wait(locks, lease)

        with pytest.raises(LeaseLost):
            await work()

    play(body)


def test_a_lease_that_is_lost_before_its_block_cancels_nobody() -> None:
    """A block that cannot begin raises the loss itself."""

    async def body(locks: aio.Locks) -> None:
        lease = await locks.acquire("k", on_lost="cancel")
        await lose(locks, lease)
        with pytest.raises(LeaseLost):
            async with lease:
                raise AssertionError("the block must not begin")
        await asyncio.sleep(0.01)

    play(body)


def test_the_bodys_own_exception_is_not_replaced() -> None:
    """A body that answers its cancellation with an error of its own is believed."""

    async def body(locks: aio.Locks) -> None:
        async def work() -> None:
            async with locks.acquire("k", on_lost="cancel") as lease:
                try:
                    await lose_and_wait(locks, lease)
                except asyncio.CancelledError:
                    raise KeyError("mine") from None

        with pytest.raises(KeyError):
            await work()
        await asyncio.sleep(0)

    play(body)


def test_a_body_that_swallows_its_cancellation_is_told_at_the_end() -> None:
    """The end of the block raises LeaseLost all the same."""

    async def body(locks: aio.Locks) -> None:
        async def work() -> None:
            async with locks.acquire("k", on_lost="cancel") as lease:
                with suppress(asyncio.CancelledError):
                    await lose_and_wait(locks, lease)

        with pytest.raises(LeaseLost):
            await work()
        await asyncio.sleep(0)

    play(body)


@pytest.mark.parametrize("outer", [True, False])
def test_nested_blocks(outer: bool) -> None:
    """The block whose lease was lost raises; the other one is left as by any exception."""

    async def body(locks: aio.Locks) -> str:
        keys = []
        with suppress(LeaseLost):
            async with locks.acquire("outer", on_lost="cancel") as first:
                try:
                    async with locks.acquire("inner", on_lost="cancel") as second:
                        await lose_and_wait(locks, first if outer else second)
                except LeaseLost as lost:
                    keys.append(lost.key)
                    raise
        assert (await locks.show("outer")).free
        assert (await locks.show("inner")).free
        return ",".join(map(str, keys))

    assert play(body) == ("" if outer else "inner")


def test_both_of_two_nested_leases_are_lost() -> None:
    """The outer block raises its own loss, and no cancellation is left over."""

    async def body(locks: aio.Locks) -> None:
        async def work() -> None:
            async with locks.acquire("outer", on_lost="cancel") as first:
                async with locks.acquire("inner", on_lost="cancel") as second:
                    await lose(locks, first)
                    await lose_and_wait(locks, second)

        with pytest.raises(LeaseLost) as caught:
            await work()
        assert caught.value.key == "outer"
        await asyncio.sleep(0)

    play(body)


def test_a_cancellation_from_outside_at_the_same_moment_wins() -> None:
    """Whoever cancels the task gets a cancelled task, whatever happens to the lease."""

    async def body(locks: aio.Locks) -> None:
        inside = asyncio.Event()
        taken: list[aio.Lease] = []

        async def work() -> None:
            async with locks.acquire("k", on_lost="cancel") as lease:
                taken.append(lease)
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await inside.wait()
        await lose(locks, taken[0])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    play(body)


def test_a_timeout_around_the_block_is_a_timeout() -> None:
    """`asyncio.timeout` outside of the block still raises TimeoutError."""

    async def body(locks: aio.Locks) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), locks.acquire("k", on_lost="cancel"):
                await asyncio.Event().wait()
        assert (await locks.show("k")).free

    play(body)


def test_a_task_group_inside_ends_with_the_lease() -> None:
    """The group cancels its tasks, and the block raises the loss."""

    async def body(locks: aio.Locks) -> int:
        ended = 0

        async def child() -> None:
            nonlocal ended
            try:
                await asyncio.Event().wait()
            finally:
                ended += 1

        async def work() -> None:
            async with locks.acquire("k", on_lost="cancel") as lease:
                async with asyncio.TaskGroup() as group:
                    group.create_task(child())
                    group.create_task(child())
                    await lose(locks, lease)

        with pytest.raises(LeaseLost):
            await work()
        return ended

    assert play(body) == 2


def test_a_guarded_function() -> None:
    """A guard passes the option on."""

    async def body(locks: aio.Locks) -> None:
        @locks.guard("k", on_lost="cancel")
        async def work() -> None:
            await lose(locks, holdfast.current_lease())
            await asyncio.Event().wait()

        with pytest.raises(LeaseLost):
            await work()

    play(body)


def test_several_leases() -> None:
    """The loss of one of several cancels the block, and frees the others."""

    async def body(locks: aio.Locks) -> None:
        async def work() -> None:
            async with locks.acquire_all(["a", "b"], on_lost="cancel") as leases:
                await lose_and_wait(locks, leases["b"])

        with pytest.raises(LeaseLost):
            await work()
        assert (await locks.show("a")).free

    play(body)


def test_a_function_is_called() -> None:
    """In both faces, `on_lost` may be a function that gets the lease."""
    lost: list[str] = []
    told = threading.Event()

    def note(lease: Any) -> None:
        lost.append(lease.key)
        told.set()

    with holdfast.connect("memory:") as locks:
        lease = locks.acquire("k", on_lost=note)
        locks.evict("k")
        with pytest.raises(LeaseLost):
            lease.renew()
        assert told.wait(60)
    assert lost == ["k"]


def test_a_thread_cannot_be_cancelled() -> None:
    """The blocking face says so, and locks nothing."""
    with holdfast.connect("memory:") as locks:
        with pytest.raises(BadOption, match="asyncio"):
            locks.acquire("k", on_lost="cancel")
        with pytest.raises(BadOption, match="a function"):
            locks.acquire("k", on_lost="stop")  # type: ignore[arg-type]
        assert locks.show("k").free
