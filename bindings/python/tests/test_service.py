# SPDX-License-Identifier: MIT
"""moe.Service: requests in the shapes of HTTP APIs, answered together."""

import asyncio
import gc
import json
import subprocess
import sys
import threading

import moe
import pytest
from conftest import PROMPT, STORIES

REQUEST = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0}


def endless(**other):
    """Takes seconds, so that on a busy machine too it has not ended when a test cancels it."""
    return {"prompt": PROMPT, "max_tokens": 400, "temperature": 1, "ignore_eos": True, "n": 16, **other}


@pytest.fixture
def service(model):
    with moe.Service(model, slots=2, chat_template="plain") as s:
        yield s


@pytest.fixture(scope="module")
def story(model):
    with model.session() as session:
        return session.generate(PROMPT, max_tokens=24).text()


def test_an_answer_is_the_text_of_generate(service, story):
    answer = service.answer("completions", REQUEST)
    assert answer["choices"][0]["text"] == story
    assert answer["usage"]["completion_tokens"] == 24


@pytest.mark.parametrize("endpoint", ["completions", "/v1/completions", moe.Endpoint.COMPLETIONS, 2])
@pytest.mark.parametrize("form", [dict, json.dumps, lambda r: json.dumps(r).encode()])
def test_forms_of_endpoints_and_requests(service, story, endpoint, form):
    assert service.answer(endpoint, form(REQUEST))["choices"][0]["text"] == story


def test_a_stream_has_the_same_text(service, story):
    parts = list(service.stream("completions", REQUEST))
    assert len(parts) > 2
    assert "".join(p["choices"][0]["text"] for p in parts if p["choices"]) == story


def test_names_of_events(service):
    request = {"messages": [{"role": "user", "content": "The dog"}], "max_tokens": 2, "seed": 1, "stream": True}
    answer = service.submit("messages", request)
    events = list(answer)
    assert answer.streamed
    assert [e.name for e in events][:2] == ["message_start", "content_block_start"]
    assert [e.last for e in events] == [False] * (len(events) - 1) + [True]
    assert next(answer, None) is None


def test_many_at_once(service, story):
    texts = [None] * 8

    def ask(i):
        texts[i] = service.answer("completions", REQUEST)["choices"][0]["text"]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert texts == [story] * 8
    assert service.drain(10)  # an answer is counted after its last event
    assert service.stats().n_answered == 8


def test_a_refused_request(service):
    with pytest.raises(moe.RequestError, match="400: unknown field 'temprature'") as e:
        service.answer("completions", {"prompt": "a", "temprature": 0})
    assert e.value.code == 400 and e.value.body["error"]["param"] == "temprature"
    assert e.value.status == moe.Status.ERR_ARGUMENT
    with pytest.raises(moe.RequestError, match="400: "):
        service.answer("chat", b"{")
    with pytest.raises(moe.RequestError, match="400: "):
        list(service.stream("chat", {}))


def test_wrong_arguments(service):
    with pytest.raises(moe.ArgumentError, match="endpoint: expected one of chat, .*, found '/v1/nothing'"):
        service.submit("/v1/nothing", {})
    with pytest.raises(TypeError, match="request: expected a mapping, str or bytes, found list"):
        service.submit("chat", [])
    with pytest.raises(moe.ArgumentError, match='use stream\\(\\) or submit\\(\\)'):
        service.answer("completions", {**REQUEST, "stream": True})


@pytest.mark.parametrize("options, error", [
    ({"slots": -1}, moe.RangeError), ({"slots": 1 << 40}, moe.RangeError), ({"router": "topk:x"}, moe.ArgumentError),
    ({"kv": "int9"}, moe.ArgumentError), ({"cache_folder": STORIES}, moe.FileError),
    ({"chat_template": "{{"}, moe.MoeError)])
def test_wrong_parameters(model, options, error):
    with pytest.raises(error):
        moe.Service(model, **options)


def test_cancel(service):
    answer = service.submit("completions", endless(stream=True))
    next(answer)
    answer.cancel()
    events = list(answer)
    assert events[-1].status == 499 and events[-1].last
    answer.cancel()  # it has ended


def test_a_dropped_stream_frees_its_slot(service):
    streams = [service.stream("completions", endless(n=1)) for _ in range(2)]
    for stream in streams:
        next(stream)
    del streams, stream
    gc.collect()
    assert service.answer("completions", REQUEST)["usage"]["completion_tokens"] == 24
    assert service.drain(10)
    assert service.stats().n_cancelled == 2


def test_async(service, story):
    async def ask():
        answer = service.submit("completions", {**REQUEST, "stream": True})
        return "".join([e.value["choices"][0]["text"] async for e in answer if e.value["choices"]])

    async def both():
        return await asyncio.gather(ask(), ask())

    assert asyncio.run(both()) == [story, story]


def test_async_answers_beyond_the_threads_of_an_executor(model):
    """A short stream ends first, however many answers are awaited."""
    ended = []

    async def whole(service):
        async for event in service.submit("completions", endless(n=1)):
            ended.append(event.status)

    async def short(service):
        await asyncio.sleep(0)
        async for _ in service.submit("completions", {**REQUEST, "max_tokens": 2, "stream": True}):
            pass
        ended.append("short")

    async def all_of(service):
        waiting = [asyncio.create_task(whole(service)) for _ in range(60)]
        await short(service)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    with moe.Service(model, slots=61) as service:
        asyncio.run(all_of(service))
        assert ended == ["short"]
        assert service.drain(20)
        assert service.stats().n_cancelled == 60


def test_an_interrupted_submit_cancels_the_request(service, monkeypatch):
    raised = []
    monkeypatch.setattr(sys, "unraisablehook", lambda u: raised.append(u.exc_type))
    module = sys.modules["moe.service"]

    def interrupted(*arguments):
        moe._library.call(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        service.submit("completions", endless(stream=True))
    monkeypatch.undo()
    assert service.drain(20)
    assert (service.stats().n_cancelled, raised, module._events) == (1, [], {})


def test_an_async_task_that_is_cancelled(service):
    async def run():
        async def ask():
            async for _ in service.submit("completions", endless(stream=True)):
                begun.set()

        begun = asyncio.Event()
        task = asyncio.create_task(ask())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert service.drain(10)
    assert service.stats().n_cancelled == 1


def test_close_ends_requests(model):
    service = moe.Service(model, slots=1)
    running = service.submit("completions", endless(stream=True))
    waiting = service.submit("completions", endless())
    next(running)
    service.close()
    assert [list(a)[-1].status for a in (running, waiting)] == [503, 503]
    running.close()
    with pytest.raises(moe.StateError, match="the service is closed"):
        service.stats()


def test_drain(service):
    assert service.drain(0)
    with pytest.raises(moe.RequestError) as e:
        service.answer("completions", REQUEST)
    assert e.value.code == 503
    assert service.drain()


def test_drain_waits(model, story):
    with moe.Service(model) as service:
        answer = service.submit("completions", REQUEST)
        assert service.drain()
        assert next(answer).value["choices"][0]["text"] == story


def test_a_queue_that_is_full(model):
    with moe.Service(model, slots=1, max_waiting=1) as service:
        answers = [service.submit("completions", endless(stream=True, n=1)) for _ in range(2)]
        with pytest.raises(moe.RequestError) as e:
            service.answer("completions", REQUEST)
        assert e.value.code == 429 and e.value.retry_after > 0
        for a in answers:
            a.close()


def test_receipts(model, story):
    receipts = []
    with moe.Service(model, receipt=receipts.append) as service:
        answer = service.answer("completions", REQUEST)
    assert [r["request"]["prompt"] for r in receipts] == [PROMPT]
    assert receipts[0]["system_fingerprint"] == answer["system_fingerprint"]


def test_a_receipt_callback_that_raises(model, story, monkeypatch):
    raised = []
    monkeypatch.setattr(sys, "unraisablehook", lambda u: raised.append(u.exc_type))

    def receipt(_):
        raise KeyError

    with moe.Service(model, receipt=receipt) as service:
        assert service.answer("completions", REQUEST)["choices"][0]["text"] == story
    assert raised == [KeyError]


def test_a_cache_folder(model, tmp_path):
    prompt = " ".join([PROMPT] * 30)
    for reused in (False, True):
        with moe.Service(model, cache_folder=tmp_path) as service:
            answer = service.answer("completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0})
            assert (answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0) == reused
            assert service.drain(10)


def test_the_model_may_be_closed_first(story):
    model = moe.Model(STORIES)
    service = moe.Service(model)
    model.close()
    assert service.answer("completions", REQUEST)["choices"][0]["text"] == story
    service.close()


def test_a_name_and_statistics(model):
    with moe.Service(model, name="tales", context=64) as service:
        assert repr(service) == "<moe.Service 0 running, 0 waiting, 8 slots>"
        assert service.stats().context == 64
        assert service.answer("completions", {**REQUEST, "model": "tales"})["model"] == "tales"
        statistics = service.answer("statistics", {})
        assert [len(layer["tokens_per_expert"]) for layer in statistics["layers"]] == [16] * 4
    assert repr(service) == "<moe.Service closed>"


def test_it_cannot_be_copied(service):
    with pytest.raises(TypeError, match="a service cannot be copied or pickled"):
        service.__reduce_ex__(2)


def test_a_program_that_ends_with_requests_in_progress():
    program = f"""
import moe
service = moe.Service(moe.Model({str(STORIES)!r}))
answers = [service.submit("completions", {endless(stream=True)!r}) for _ in range(4)]
next(answers[0])
print("ended")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")
