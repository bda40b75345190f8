"""One run in a list, as Temporal's server knows it."""

from __future__ import annotations

from typing import Final, Literal

from temporalio.api.common.v1 import WorkflowExecution as Execution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus

from engine.runtimes.listing import Listed

_STATUS: Final[dict[WorkflowExecutionStatus, Literal["running", "ended"]]] = {
    WorkflowExecutionStatus.RUNNING: "running",
    WorkflowExecutionStatus.COMPLETED: "ended",
}
_RECENT: Final = 5


async def listed(client: Client, run: WorkflowExecution, *, look: bool) -> Listed:
    """A run in one line, with what is wrong where it does not go on. ``look``: ask whether it is stuck."""
    began = round(run.start_time.timestamp() * 1000)
    status = _STATUS.get(run.status) if run.status is not None else None
    if status == "ended":
        return Listed(run.id, "ended", began)
    if status == "running" and not (look and await _stuck(client, run)):
        return Listed(run.id, "running", began)
    return Listed(run.id, "waiting" if status else "failed", began, await _failure(client, run))


async def _stuck(client: Client, run: WorkflowExecution) -> bool:
    """Have workers tried in vain to go on with it?"""
    described = await client.get_workflow_handle(run.id, run_id=run.run_id).describe()
    return described.raw_description.pending_workflow_task.attempt > 1


async def _failure(client: Client, run: WorkflowExecution) -> str:
    """What the last failure in the record says."""
    record = await client.workflow_service.get_workflow_execution_history_reverse(
        GetWorkflowExecutionHistoryReverseRequest(
            namespace=client.namespace,
            execution=Execution(workflow_id=run.id, run_id=run.run_id),
            maximum_page_size=_RECENT,
        )
    )
    for event in record.history.events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
            return event.workflow_execution_failed_event_attributes.failure.message
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            return event.workflow_task_failed_event_attributes.failure.message
    return "" if run.status is None else run.status.name.lower().replace("_", " ")
