"""What the server is and offers, asked before anything is measured.

Nothing is assumed: a page that is not there is noted as not offered, and one short request finds
out which fields the server takes and whether it counts tokens on every chunk.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from qwendeploy.documents import ServerFacts
from qwendeploy.engines.llama_cpp.engine import LLAMA_CPP
from qwendeploy.engines.metrics import Metrics
from qwendeploy.engines.vllm.engine import VLLM
from qwendeploy.errors import EnvironmentProblem, UserError
from qwendeploy.verification.loads.prompts import PromptMaker
from qwendeploy.verification.wire.client import Client, Page
from qwendeploy.verification.wire.places import find_pages
from qwendeploy.verification.wire.records import Ratio, Record, ratio_of
from qwendeploy.verification.wire.replicas import counts_for_others, replicas_seen, scrape

EXTRA_FIELDS = ("ignore_eos", "min_tokens")
"""Fields outside the standard that keep a generation from ending early."""
STREAM_OPTIONS = ("continuous_usage_stats", "include_usage")
OPTIONAL_FIELDS = ("continuous_usage_stats", "min_tokens", "ignore_eos", "include_usage")
"""What is left out of requests in turn, the field that a refusal names first."""
COUNTING_FIELD = "timings_per_token"
"""Makes llama.cpp say on every chunk how many tokens it has generated."""
SHORTEST_SAMPLE = 64
SEVERAL = 1.5
"""Tokens a chunk of a lone stream from which absent draft counters do not show that none drafts."""
CHUNKED_TOKENS, CHUNKED_S = 256, 15.0
"""Longest answer from which tokens per chunk are learnt, and for how long at most."""


@dataclass(frozen=True)
class Surface:
    """The facts of a server together with how to talk to it."""

    facts: ServerFacts
    fields: dict[str, bool]
    """Which of the extra fields may be sent."""
    stream_options: dict[str, bool]
    prompts: PromptMaker
    per_chunk: Ratio | None = None
    """Tokens of a chunk; used only where chunks do not say how many tokens they hold. ``None``
    where the server never tells how many tokens it made."""
    user_tps: float | None = None
    """Tokens per second of the trial request, one stream alone."""

    def without(self, *names: str) -> Surface:
        """Return the surface without some fields or stream options."""
        return replace(
            self,
            fields={key: value for key, value in self.fields.items() if key not in names},
            stream_options={k: v for k, v in self.stream_options.items() if k not in names},
        )

    def body(
        self, messages: list[dict[str, Any]], tokens: int, *, until_limit: bool = True
    ) -> dict[str, Any]:
        """Return a streaming request of ``tokens`` output tokens, not ending before if possible."""
        body: dict[str, Any] = {
            "model": self.facts.model,
            "messages": messages,
            "max_tokens": tokens,
            "temperature": 0,
            "stream": True,
        }
        if self.fields.get(COUNTING_FIELD):
            body[COUNTING_FIELD] = True
        if self.stream_options:
            body["stream_options"] = dict(self.stream_options)
        if until_limit:
            if self.fields.get("ignore_eos"):
                body["ignore_eos"] = True
            if self.fields.get("min_tokens"):
                body["min_tokens"] = tokens
        return body


async def _page(client: Client, path: str, body: Any = None) -> Page | None:
    try:
        page = await client.page(path, body=body, timeout=60)
    except (OSError, TimeoutError):
        return None
    return page if page.status == 200 else None


async def read_facts(client: Client, replicas: int = 1) -> ServerFacts:
    """Return what the server says of itself; the model is checked against what is served.

    Metrics of one of several ``replicas`` count as not offered.

    Raises:
        UserError: the key is refused, or the wanted model is not served.
        EnvironmentProblem: the server cannot be read.
    """
    target = client.target
    cards = await _model_cards(client)
    model, card = _choose_model(target.model, cards, target.base_url)
    served = [str(one.get("id")) for one in cards]
    client.serves = tuple(dict.fromkeys([model, *served, *(str(c["root"]) for c in cards if
                                                           c.get("root"))]))  # fmt: skip
    await find_pages(client)
    serving, told = await replicas_seen(client, await scrape(client), replicas)
    client.last_metrics, client.restarted = None, False
    metrics = await scrape(client)
    version = await _page(client, "/version")
    tokenize = await _page(client, "/tokenize", {"model": model, "prompt": "one two"})
    count = tokenize.json() if tokenize else None
    config = metrics.cache_config if metrics else {}
    tokens = config.get("kv_cache_size_tokens", "")
    number = version.json() if version else None
    meta = card.get("meta") or {}
    length = card.get("max_model_len") or meta.get("n_ctx") or meta.get("n_ctx_train")
    engine = _engine(metrics, card)
    drafts = metrics.get("drafts") if metrics else None
    facts = ServerFacts(
        base_url=target.base_url,
        model=model,
        root=card.get("root"),
        served_models=tuple(served),
        version=str(number["version"])
        if isinstance(number, dict) and "version" in number
        else None,
        engine=engine,
        max_model_len=int(length) if length else None,
        boot_id=metrics.boot_id if metrics else None,
        cache_config=config,
        kv_pool_blocks=metrics.blocks() if metrics else None,
        kv_pool_tokens=int(float(tokens)) if tokens.replace(".", "", 1).isdigit() else None,
        drafting=_drafting(engine, metrics, drafts),
        metrics=bool(metrics and metrics.values) and told >= serving,
        replicas=serving,
        replicas_told=told,
        tokenize=isinstance(count, dict) and isinstance(count.get("count"), int),
    )
    return facts.model_copy(update={"not_offered": _not_offered(facts)})


async def _model_cards(client: Client) -> list[dict[str, Any]]:
    """Return what the server lists as served. Raises as ``read_facts``."""
    where = client.target.base_url
    try:
        models = await client.page("/v1/models")
    except (OSError, TimeoutError) as problem:
        raise EnvironmentProblem(f"cannot read the model list: {problem}", where=where) from None
    if models.status in (401, 403):
        raise UserError(
            f"the server rejects the API key ({models.status})",
            where=where,
            hint="set QWENDEPLOY_API_KEY or pass --api-key-file",
        )
    if models.status != 200 and client.target.model is None:
        raise EnvironmentProblem(
            f"/v1/models returns {models.status}: not an OpenAI-compatible server?",
            where=where,
            hint="--base-url is the part before /v1; use --model if the model is not listed",
        )
    body = models.json()
    if not isinstance(body, dict) and client.target.model is None:
        raise EnvironmentProblem(
            "/v1/models returns no list of models: not an OpenAI-compatible server?",
            where=where,
            hint="--base-url is the part before /v1; use --model if the model is not listed",
        )
    data = body.get("data") if isinstance(body, dict) else None
    return [card for card in data or [] if isinstance(card, dict) and card.get("id")]


def _choose_model(
    wanted: str | None, cards: list[dict[str, Any]], where: str
) -> tuple[str, dict[str, Any]]:
    names = [str(card["id"]) for card in cards]
    if wanted is None:
        if not names:
            raise UserError("the server lists no models", where=where, hint="pass it with --model")
        return names[0], cards[0]
    if wanted in names:
        return wanted, cards[names.index(wanted)]
    if names:
        raise UserError(
            f"the server serves {', '.join(names)}, not {wanted!r}",
            where=where,
            hint=f"--model {names[0]}",
        )
    return wanted, {}


def _engine(
    metrics: Metrics | None, card: dict[str, Any]
) -> Literal["vllm", "llama.cpp", "unknown"]:
    if card.get("owned_by") == LLAMA_CPP.owner:
        return LLAMA_CPP.name
    if metrics and (metrics.cache_config or metrics.get("generation_tokens") is not None):
        return "vllm" if metrics.cache_config else "unknown"
    return "vllm" if card.get("owned_by") == VLLM.owner else "unknown"


def _drafting(engine: str, metrics: Metrics | None, drafts: float | None) -> bool | None:
    """Return whether the server drafts; vLLM shows the counters only then, others always."""
    if metrics is None or not metrics.values:
        return None
    if engine == "vllm":
        return drafts is not None
    return True if drafts else None


def _not_offered(facts: ServerFacts) -> tuple[str, ...]:
    offered = {
        "/version": facts.version is not None,
        "/metrics": facts.metrics or facts.replicas_told > 0,
        "/metrics of all replicas": facts.metrics or not facts.replicas_told,
        "/tokenize": facts.tokenize,
        "max_model_len in /v1/models": facts.max_model_len is not None,
        "KV block count in /metrics": facts.kv_pool_blocks is not None,
    }
    return tuple(name for name, there in offered.items() if not there)


async def survey(
    client: Client, prompts: PromptMaker, *, sample: int = 1500, replicas: int = 1
) -> Surface:
    """Return the facts and what the server accepts, after short trial requests.

    Raises:
        UserError: the key or the model is refused.
        EnvironmentProblem: no generation works; carries what the server said.
    """
    facts = await read_facts(client, replicas)
    before = client.last_metrics
    if facts.max_model_len:
        sample = min(sample, facts.max_model_len // 2)
    fields = dict.fromkeys(EXTRA_FIELDS, True)
    if facts.engine == "llama.cpp":
        fields[COUNTING_FIELD] = True
    options = dict.fromkeys(STREAM_OPTIONS, True)
    surface = Surface(facts, fields, options, prompts)
    kind = prompts.kinds[0]
    text = prompts.text(sample, "survey", kind)
    record = await _trial(client, surface, text)
    while record.status == 400 and _too_long(record.message) and sample > SHORTEST_SAMPLE:
        sample //= 4  # a tokenizer of single bytes makes four times as many tokens
        text = prompts.text(sample, "survey", kind)
        record = await _trial(client, surface, text)
    left = list(OPTIONAL_FIELDS)
    while left and record.status in (400, 422):
        named = [name for name in left if name in record.message] or left[:1]
        if "stream_options" in record.message and not set(named) & set(STREAM_OPTIONS):
            named = [name for name in left if name in STREAM_OPTIONS] or named
        left = [name for name in left if name not in named]
        surface = surface.without(*named)
        record = await _trial(client, surface, text)
    if record.failure is not None or record.first_at is None:
        _refuse(client, surface, record)
    if facts.metrics and await counts_for_others(client, before):
        facts = await read_facts(client, replicas)
    if facts.drafting is False and _tokens_a_chunk(record) >= SEVERAL:
        facts = facts.model_copy(update={"drafting": None})
    facts = facts.model_copy(
        update={
            "continuous_usage": record.continuous,
            "accepted_fields": tuple(name for name, on in surface.fields.items() if on),
        }
    )
    surface = replace(surface, facts=facts)
    if record.held_chunks > 1 and abs(record.tokens - record.text_chunks) <= 1:
        client.held_tokens = False  # as many tokens as chunks with text: the empty ones hold none
        record = await _trial(client, surface, text)
    return replace(
        surface,
        prompts=await _calibrated(client, surface, text, record.prompt_tokens, sample),
        user_tps=1 / record.tpot if record.tpot else None,
        per_chunk=await _ratio(client, surface, record),
    )


def _tokens_a_chunk(record: Record) -> float:
    """Return the tokens of a chunk after the first."""
    return (record.tokens - 1) / max(1, len(record.chunk_times) - 1)


async def _ratio(client: Client, surface: Surface, trial: Record) -> Ratio | None:
    """Return the tokens of a chunk where chunks do not count, from one longer answer per kind."""
    if surface.facts.continuous_usage or trial.output_tokens is None:
        return None
    tokens = CHUNKED_TOKENS
    if trial.tpot:
        tokens = max(48, min(tokens, int(CHUNKED_S / trial.tpot)))
    texts = [surface.prompts.text(SHORTEST_SAMPLE, f"ratio-{k}", k) for k in surface.prompts.kinds]
    return ratio_of([trial, *[await _trial(client, surface, text, tokens) for text in texts]])


async def _calibrated(
    client: Client, surface: Surface, text: str, count: int | None, sample: int
) -> PromptMaker:
    """Return the prompt maker with the server's tokens of each kind of text.

    ``text`` is of the first kind; ``count`` are its tokens where an answer told them.
    """
    prompts = surface.prompts
    empty = await _count(client, surface, "a")
    if empty:
        prompts = replace(prompts, overhead=max(0.0, empty - 1.0))
    kind, *others = prompts.kinds
    count = count or await _tokenized(client, surface.facts, text)
    if count:
        prompts = prompts.calibrated(kind, len(text), count)
    for other in others:
        text = prompts.text(sample if prompts.counted else SHORTEST_SAMPLE, "survey", other)
        count = await _count(client, surface, text)
        if count:
            prompts = prompts.calibrated(other, len(text), count)
    return prompts


async def _count(client: Client, surface: Surface, text: str) -> int | None:
    """Return the prompt tokens of a message, by the tokenizer or by a short request."""
    count = await _tokenized(client, surface.facts, text)
    if count is None:
        count = (await _trial(client, surface, text, tokens=2)).prompt_tokens
    return count


def _too_long(message: str) -> bool:
    return "context" in message and ("length" in message or "size" in message)


async def _tokenized(client: Client, facts: ServerFacts, text: str) -> int | None:
    """Return the prompt tokens of a message by the server's tokenizer, if it offers one."""
    if not facts.tokenize:
        return None
    messages = [{"role": "user", "content": text}]
    page = await _page(client, "/tokenize", {"model": facts.model, "messages": messages})
    answer = page.json() if page else None
    count = answer.get("count") if isinstance(answer, dict) else None
    return count if isinstance(count, int) else None


async def _trial(client: Client, surface: Surface, text: str, tokens: int = 48) -> Record:
    body = surface.body([{"role": "user", "content": text}], tokens)
    return await client.ask(body)


def _refuse(client: Client, surface: Surface, record: Record) -> None:
    """Raise what a failed trial request means."""
    where = client.target.base_url
    if record.status in (401, 403):
        raise UserError(
            f"the server rejects the API key: {record.message}",
            where=where,
            hint="set QWENDEPLOY_API_KEY or pass --api-key-file",
        )
    if record.status == 404 and not surface.facts.served_models:
        raise EnvironmentProblem(
            "/v1/models and chat completions return 404: not an OpenAI-compatible server?",
            where=where,
            hint="--base-url is the part before /v1",
        )
    if record.status == 404:
        raise UserError(f"the server rejects the model: {record.message}", where=where)
    reason = record.message or "the response had no tokens"
    raise EnvironmentProblem(
        f"a trial request fails ({record.failure or 'empty'}): {reason}",
        where=where,
        hint="see the server log or `qwendeploy logs`",
    )
