"""The measured steps on Temporal without a policy: a workflow and an activity as Temporal's own pages write them."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity, workflow

with workflow.unsafe.imports_passed_through():
    from benchmarks.engine_work import PLAIN


@activity.defn
async def step(number: int) -> str:
    return PLAIN[number]


@workflow.defn
class Plain:
    @workflow.run
    async def run(self) -> str:
        found = ""
        for number in range(len(PLAIN)):
            found = await workflow.execute_activity(step, number, start_to_close_timeout=timedelta(minutes=5))
        return found
