"""What a run on Temporal has of its jobs when ends and decisions cross, and how jobs travel."""

import pytest
from engine_worlds import driver_of, order_of

pytest.importorskip("temporalio", reason="no Temporal SDK: pip install 'policy-lang[temporal]'")

from msgspec import structs

from engine.core.decisions import Call, Continue, Execute, Resolve
from engine.core.events import ModelFailed, ModelReplied, Resolved, RunStarted
from engine.core.messages import ToolCall
from engine.core.transcript import Transcript
from engine.run.deadlines import Cut
from engine.run.effects import ModelCall, ResolverRun, ToolRun
from engine.runtimes.environment import Job
from engine.runtimes.records import Cancel, Ended, decode, encode
from engine.runtimes.temporal.wire import Task, Work, bare, job_of, needed, with_contents, work_of
from engine.runtimes.temporal.workflow import TemporalEnvironment
from engine.runtimes.texts import Texts

ORDER = order_of("plain", driver_of("plain", "http://127.0.0.1:9"), "run")


def environment(*inbox):
    held = list(inbox)
    return TemporalEnvironment(Task(ORDER, 500, 5_000), Texts(), held), held


def test_a_job_whose_end_is_about_to_be_given_out_can_be_asked_to_end():
    here, inbox = environment(Ended(ModelReplied(1, "1", 1, ref="r")))
    here.cancel("call:1.1")
    assert len(inbox) == 1


def test_the_next_job_of_a_key_does_not_get_the_end_of_one_that_was_left():
    cancel, other = Cancel(1), Ended(ModelReplied(1, "1", 1, ref="r"))
    here, inbox = environment(Ended(Resolved(1, "text", "ok")), cancel, other)
    here.leave("resolver:text")
    assert inbox == [cancel, other]


def said(*refs):
    return Transcript().apply(RunStarted(at=0, run="run", refs=refs), Continue())


JOBS = (
    Job(
        ModelCall("call:1.1", Call(1, "1", 1, "main", 2, instruction_ref="i"), said("a", "b"), 1, "run:1"),
        1,
        2,
        Cut("t", "b"),
        "d",
    ),
    Job(ToolRun("tool:1.0", Execute(2, 0, "1.0", 1, 2), ToolCall("c", "search", "{}"), "run:1.0"), 1, 2, None, "d"),
    Job(
        ResolverRun(
            "resolver:x", Resolve(3, "x", "llm_calls", 1, 2, 2), said("a"), ModelFailed(1, "1", 1, "server", ref="f")
        ),
        1,
        2,
        None,
        "d",
    ),
)


@pytest.mark.parametrize(
    ("job", "refs"), list(zip(JOBS, (["a", "b", "i"], [], ["a", "f"]), strict=True)), ids=["model", "tool", "resolver"]
)
def test_a_job_is_the_same_when_it_has_travelled(job, refs):
    ref, _ = bare(ORDER)
    work = decode(encode(work_of(ref, job)), Work)
    arrived = job_of(work)
    assert list(needed(work)) == [ref, *refs]
    if hasattr(job.effect, "transcript"):
        assert arrived.effect.transcript.entries() == job.effect.transcript.entries()
        arrived = structs.replace(arrived, effect=structs.replace(arrived.effect, transcript=job.effect.transcript))
    assert arrived == job


def test_a_job_is_sent_along_with_what_a_worker_does_not_have():
    ref, text = bare(ORDER)
    work = work_of(ref, JOBS[0])
    assert with_contents(work, {ref: text, "a": "1", "b": "2", "i": "3", "z": "4"}).inline == {
        ref: text,
        "a": "1",
        "b": "2",
        "i": "3",
    }
    with pytest.raises(KeyError):
        with_contents(work, {})


def test_what_jobs_know_of_their_run_is_the_same_in_all_of_its_executions():
    later = structs.replace(ORDER, contents={}, held=(Cancel(1),), trail=None)
    assert bare(later) == bare(ORDER)
