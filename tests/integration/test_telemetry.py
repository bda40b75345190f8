"""What runs report to OpenTelemetry: the real SDK with exporters in memory, and a real collector over HTTP."""

import asyncio
import gzip
import http.server
import subprocess
import sys
import threading

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, StatusCode
from otel_here import Here
from run_fakes import FINALIZE, Model, asks, limits, says

from engine.clients.base import ModelError
from engine.core.ladders import Extend, Fallback, Retry
from engine.core.policy import Breaker, Detector, FailureRule, Limit, Policy, ToolRule
from engine.run.driver import Driver
from engine.store import MemoryStore
from engine.telemetry import Telemetry


def run(policy, clients, tools=(), **options):
    here = Here()

    async def main():
        driver = Driver(policy, clients, tools, telemetry=here.telemetry, **options)
        return await driver.run("secret question", run_id="r", thread="th")

    return asyncio.run(main()), here


async def look(q: str = "") -> str:
    return "secret result"


async def broken() -> str:
    raise ValueError("secret failure")


class TestSpans:
    def test_a_run_its_attempts_and_its_tools(self):
        _, here = run(limits(), Model(asks(("look", '{"q": "secret"}')), says("ok"), model="gpt-x"), [look])
        (agent,) = here.spans("invoke_agent")
        assert agent.name == "invoke_agent test"
        assert agent.attributes["gen_ai.operation.name"] == "invoke_agent"
        assert agent.attributes["gen_ai.agent.name"] == "test"
        assert agent.attributes["gen_ai.conversation.id"] == "th"
        assert agent.attributes["agent.run.id"] == "r"
        assert agent.attributes["agent.outcome.status"] == "completed"
        assert (agent.attributes["gen_ai.usage.input_tokens"], agent.attributes["gen_ai.usage.output_tokens"]) == (
            20,
            10,
        )
        first, second = here.spans("chat gpt-x")
        assert first.kind is SpanKind.CLIENT
        assert first.attributes["gen_ai.operation.name"] == "chat"
        assert first.attributes["gen_ai.request.model"] == "gpt-x"
        assert first.attributes["gen_ai.response.finish_reasons"] == ("tool_calls",)
        assert second.attributes["gen_ai.usage.output_tokens"] == 5
        (tool,) = here.spans("execute_tool look")
        assert tool.attributes["gen_ai.tool.name"] == "look"
        assert tool.attributes["gen_ai.tool.call.id"].startswith("call-")
        for span in (first, second, tool):
            assert span.parent.span_id == agent.context.span_id
        assert agent.start_time <= first.start_time <= first.end_time <= tool.start_time <= second.start_time

    def test_the_run_belongs_to_the_span_it_is_started_in(self):
        here = Here()

        async def main():
            tracer = here.tracers.get_tracer("mine")
            with tracer.start_as_current_span("request"):
                await Driver(limits(), Model(says("ok")), telemetry=here.telemetry).run("x")

        asyncio.run(main())
        (mine,), (agent,) = here.spans("request"), here.spans("invoke_agent")
        assert agent.parent.span_id == mine.context.span_id

    def test_failures_carry_their_reason(self):
        policy = Policy(name="t", failures=(FailureRule(reasons=("*",), then=(Retry(times=1, least=1, most=1),)),))
        _, here = run(policy, Model(ModelError("rate_limit", "secret"), asks("broken"), says("ok")), [broken])
        failed, *_ = here.spans("chat")
        assert failed.status.status_code is StatusCode.ERROR
        assert failed.attributes["error.type"] == "rate_limit"
        assert [s.attributes["agent.call.attempt"] for s in here.spans("chat")] == [1, 2, 1]
        (tool,) = here.spans("execute_tool")
        assert tool.attributes["error.type"] == "failed"

    def test_a_failed_run(self):
        _, here = run(limits(), Model(ModelError("auth", "no")))
        (agent,) = here.spans("invoke_agent")
        assert agent.status.status_code is StatusCode.ERROR
        assert agent.attributes["error.type"] == "auth"

    def test_each_execution_of_a_retried_tool_has_its_own(self):
        policy = Policy(name="t", tools=(ToolRule(glob="*", retry=Retry(times=1, least=1, most=1)),))
        _, here = run(policy, Model(asks("broken"), says("ok")), [broken])
        assert [s.attributes["agent.tool.attempt"] for s in here.spans("execute_tool")] == [1, 2]

    def test_nothing_of_the_contents_is_reported(self):
        _, here = run(limits(), Model(asks(("look", '{"q": "secret"}'), "broken"), says("secret")), [look, broken])
        for span in here.spans():
            assert "secret" not in span.to_json()

    def test_what_was_going_on_at_the_end_is_ended(self):
        here = Here()

        async def slow() -> str:
            await asyncio.sleep(60)

        async def main():
            handle = Driver(limits(), Model(asks("slow")), [slow], telemetry=here.telemetry).start("x")
            await asyncio.sleep(0.02)
            handle.cancel()
            await handle

        asyncio.run(main())
        assert here.spans("execute_tool")[0].attributes["error.type"] == "cancelled"
        assert here.spans("invoke_agent")[0].attributes["agent.outcome.status"] == "cancelled"

    def test_a_run_that_breaks_down_ends_its_spans(self):
        class Full(MemoryStore):
            def append(self, run, seq, event, decision):
                if seq == 2:
                    raise OSError("disk full")
                super().append(run, seq, event, decision)

        here = Here()

        async def main():
            with pytest.raises(OSError, match="disk full"):
                await Driver(limits(), Model(says("ok")), telemetry=here.telemetry, journal=Full()).run("x")

        asyncio.run(main())
        (agent,) = here.spans("invoke_agent")
        assert agent.attributes["error.type"] == "broken_down"
        assert len(here.spans("chat")) == 1


class TestMetrics:
    def test_a_breaker_that_skips_a_call(self):
        breaker = Breaker(glob="broken", trips=(Detector(kind="failures", n=1),))
        model = Model(asks("broken"), asks("broken", "broken"), says("ok"))
        _, here = run(Policy(name="t", breakers=(breaker,)), model, [broken])
        attributes = {"gen_ai.agent.name": "t", "gen_ai.tool.name": "broken"}
        assert here.metric("agent.tool.call.circuit_open") == [(attributes, 2)]

    def test_unknown_tools_without_the_names_a_model_made_up(self):
        _, here = run(limits(), Model(asks("made_up", "other"), says("ok")), [look])
        assert here.metric("agent.tool.call.unknown") == [({"gen_ai.agent.name": "test"}, 2)]

    def test_a_fallback_and_its_retries(self):
        steps = (Retry(times=2, least=1, most=1), Fallback(clients=("cheap",)))
        policy = Policy(name="t", failures=(FailureRule(reasons=("*",), then=steps),))
        clients = {"main": Model(then=ModelError("rate_limit", "no")), "cheap": Model(says("ok"))}
        _, here = run(policy, clients)
        ((attributes, count),) = here.metric("agent.llm.fallback")
        assert count == 1
        assert attributes == {
            "gen_ai.agent.name": "t",
            "agent.client.name": "cheap",
            "agent.client.failed": "main",
            "error.type": "rate_limit",
        }
        assert [count for _, count in here.metric("agent.llm.retry")] == [2]

    def test_a_limit_that_finalizes(self):
        _, here = run(limits(llm_calls=(2, FINALIZE)), Model(asks("look"), says("ok")), [look])
        assert [count for _, count in here.metric("agent.finalization")] == [1]
        ((attributes, count),) = here.metric("agent.limit.reached")
        assert (attributes["agent.limit.resource"], attributes["agent.limit.step"], count) == (
            "llm_calls",
            "finalize",
            1,
        )

    def test_a_limit_that_extends_and_then_stops(self):
        policy = Policy(name="t", limits=(Limit(resource="tool_iterations", max=1, then=(Extend(by=1),)),))
        _, here = run(policy, Model(asks("look"), asks("look"), asks("look")), [look])
        steps = [a["agent.limit.step"] for a, _ in here.metric("agent.limit.reached")]
        assert steps == ["extend", "stop"]
        assert here.metric("agent.finalization") == []

    def test_a_limit_that_refuses_calls_counts_once_a_run(self):
        model = Model(asks("look", "look", "look"), says("ok"))
        _, here = run(Policy(name="t", tools=(ToolRule(glob="look", limit=1),)), model, [look])
        ((attributes, count),) = here.metric("agent.limit.reached")
        assert (attributes["agent.limit.step"], count) == ("refuse", 1)

    def test_usage_and_duration_by_client(self):
        steps = (Fallback(clients=("cheap",)),)
        policy = Policy(name="t", failures=(FailureRule(reasons=("*",), then=steps),))
        clients = {"main": Model(ModelError("network", "no")), "cheap": Model(says("ok"), model="small")}
        _, here = run(policy, clients)
        usage = {
            (a["agent.client.name"], a["gen_ai.token.type"]): n for a, n in here.metric("gen_ai.client.token.usage")
        }
        assert usage == {("cheap", "input"): 10, ("cheap", "output"): 5}
        took = {a["agent.client.name"]: a.get("error.type") for a, _ in here.metric("gen_ai.client.operation.duration")}
        assert took == {"main": "network", "cheap": None}


def test_a_resumed_run_is_reported_from_where_it_goes_on():
    class Killed(BaseException):
        pass

    class Mortal(MemoryStore):
        def append(self, run, seq, event, decision):
            super().append(run, seq, event, decision)
            if seq == 4:
                raise Killed

    store, here = Mortal(), Here()

    async def killed():
        with pytest.raises(Killed):
            await Driver(limits(), Model(asks("look")), [look], journal=store).run("x", run_id="r")

    async def resumed():
        driver = Driver(limits(), Model(says("ok")), [look], journal=store, telemetry=here.telemetry)
        return await driver.resume("r")

    asyncio.run(killed())
    assert asyncio.run(resumed()).ok
    assert [s.name for s in here.spans()] == ["chat fake-1", "invoke_agent test"]


def test_a_fault_in_reporting_leaves_the_run_alone(caplog):
    class Bad:
        def of_run(self, *given):
            from engine.run.listeners import Guarded
            from engine.telemetry import _log

            class Listener:
                streams = True

                def __getattr__(self, name):
                    raise RuntimeError("no")

            return Guarded(Listener(), _log)

    async def main():
        return await Driver(limits(), Model(asks("look"), says("ok")), [look], telemetry=Bad()).run("x")

    assert asyncio.run(main()).ok
    assert caplog.text.count("a listener of runs failed") == 1


class Raising:
    """A provider, and a tracer, that cannot do what is asked of it."""

    def get_tracer(self, *given, **more):
        raise RuntimeError("no tracer today")

    def start_span(self, *given, **more):
        raise RuntimeError("no span today")


class TracersThatRaise:
    def get_tracer(self, *given, **more):
        return Raising()


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        (Raising(), "a provider failed, so nothing is reported: RuntimeError: no tracer today"),
        (TracersThatRaise(), "a span cannot be started, so this run is not reported: RuntimeError: no span today"),
    ],
)
def test_a_provider_that_raises_leaves_the_set_up_and_the_runs_alone(provider, said, caplog):
    telemetry = Telemetry(provider)

    async def main():
        driver = Driver(limits(), Model(says("ok"), says("ok")), telemetry=telemetry)
        return [await driver.run("x"), await driver.run("x")]

    assert all(result.ok for result in asyncio.run(main()))
    assert [record.message for record in caplog.records] == [said]


def test_an_exporter_that_hangs_holds_up_no_run_behind_a_batching_processor():
    free = threading.Event()

    class Hanging(SpanExporter):
        def export(self, spans):
            free.wait(30)
            return SpanExportResult.SUCCESS

    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(Hanging(), max_export_batch_size=1, schedule_delay_millis=1))
    driver = Driver(limits(), Model(then=says("ok")), telemetry=Telemetry(tracers))

    async def main():
        return [await driver.run("x") for _ in range(20)]

    try:
        assert all(result.ok for result in asyncio.run(asyncio.wait_for(main(), 10)))
    finally:
        free.set()
        tracers.shutdown()


class Collector:
    """An OTLP/HTTP collector on loopback that keeps what it receives."""

    def __enter__(self):
        received = self.received = {"/v1/traces": [], "/v1/metrics": []}
        kinds = {
            "/v1/traces": (ExportTraceServiceRequest, ExportTraceServiceResponse),
            "/v1/metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse),
        }

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                request, response = kinds[self.path]
                received[self.path].append(request.FromString(body))
                answer = response().SerializeToString()
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)


def test_a_collector_gets_spans_and_metrics_over_http():
    with Collector() as collector:
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{collector.url}/v1/traces")))
        exporter = OTLPMetricExporter(f"{collector.url}/v1/metrics")
        meters = MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=60_000)])
        telemetry = Telemetry(tracers, meters)
        policy = Policy(
            name="t",
            limits=(Limit(resource="llm_calls", max=2, then=FINALIZE),),
            breakers=(Breaker(glob="broken", trips=(Detector(kind="failures", n=1),)),),
        )
        model = Model(asks("broken", "made_up"), says("ok"))
        driver = Driver(policy, model, [broken], telemetry=telemetry)
        assert asyncio.run(driver.run("x")).status == "finalized"
        tracers.shutdown()
        meters.shutdown()
        spans = [
            span
            for request in collector.received["/v1/traces"]
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        metrics = {
            metric.name
            for request in collector.received["/v1/metrics"]
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }
    assert sorted(span.name for span in spans) == [
        "chat fake-1",
        "chat fake-1",
        "execute_tool broken",
        "invoke_agent t",
    ]
    root = next(span for span in spans if span.name == "invoke_agent t")
    assert {span.parent_span_id for span in spans if span is not root} == {root.span_id}
    assert len({span.trace_id for span in spans}) == 1
    assert metrics == {
        "agent.tool.call.unknown",
        "agent.finalization",
        "agent.limit.reached",
        "gen_ai.client.token.usage",
        "gen_ai.client.operation.duration",
    }


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_importing_it_imports_no_opentelemetry():
    done = python(
        "import sys, engine.telemetry, engine.run.driver\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_the_driver_does_not_import_it_unless_it_is_used():
    done = python("import sys, engine.run.driver; print('engine.telemetry' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr


def test_without_the_extra_nothing_happens_and_it_is_said():
    done = python(
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import asyncio\n"
        "from engine.core.messages import Message, Reply\n"
        "from engine.core.policy import Policy\n"
        "from engine.run.driver import Driver\n"
        "from engine.telemetry import Telemetry\n"
        "class Client:\n"
        "    name, model, wire = 'a', 'b', 'c'\n"
        "    async def complete(self, request, **more):\n"
        "        return Reply(Message('assistant', 'fine'))\n"
        "t = Telemetry()\n"
        "print(t.installed, asyncio.run(Driver(Policy(name='t'), Client(), telemetry=t).run('x')).text)"
    )
    assert done.stdout.strip() == "False fine", done.stderr
    assert "pip install 'policy-lang[otel]'" in done.stderr
