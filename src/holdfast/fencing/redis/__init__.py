"""Commands to Redis that a stale holder cannot give: they run in one script behind the check.

with fencing.redis.pipeline(client, lease) as p:
    p.set("total", 12)
    p.hset("report", "state", "done")
"""

from holdfast.extras import needed

with needed("holdfast.fencing.redis", "redis"):
    from holdfast.fencing.redis.pipeline import Pipeline, admit, pipeline

__all__ = ["Pipeline", "admit", "pipeline"]
