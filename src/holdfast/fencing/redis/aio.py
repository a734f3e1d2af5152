"""The same with a client of `redis.asyncio`: `async with`, or `await p.execute()`."""

from holdfast.fencing.redis.pipeline_async import Pipeline, admit, pipeline

__all__ = ["Pipeline", "admit", "pipeline"]
