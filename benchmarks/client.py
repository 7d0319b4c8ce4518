"""How far each client is from what the server really did, and what it costs.

    python benchmarks/client.py [--c 1,8,32] [--peers aiperf,guidellm,locust] [--json FILE]

The server is a process of its own with a fixed schedule and a log of its real send times; every
client's figures are compared with that log of the same run, never with nominal times. ``raw`` is
a plain socket reader on uvloop: the floor. ``httpx`` and peers run where they are installed; a
peer is a program on PATH or ``NAME=path`` in --peers. Peers that need a tokenizer get one made
here, if ``tokenizers`` and ``transformers`` are importable by the Python beside the program.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qwendeploy.verification.verifying import loop_factory
from qwendeploy.verification.wire.client import Client
from qwendeploy.verification.wire.target import Target

SERVER = Path(__file__).parent.parent / "tests" / "known_server.py"
TTFT_MS, STEP_MS, TOKENS, ROUNDS = 100.0, 10.0, 128, 4
"""128 tokens at 100 a second, each stream four times over."""


@dataclass(frozen=True)
class Row:
    """One client at one concurrency, against the server's log."""

    client: str
    concurrency: int
    requests: int
    ttft_error_ms: float
    tpot_error_ms: float
    cpu_s_per_1000_tokens: float
    load: float


@dataclass
class Seen:
    """What a client reported: means over its requests, and CPU seconds it used."""

    ttft_ms: float
    tpot_ms: float
    cpu_s: float


class Server:
    """The server of known timing with a fresh log for every run."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.log = folder / "server.jsonl"
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            [sys.executable, str(SERVER), "--port", str(self.port), "--log", str(self.log),
             "--ttft-ms", str(TTFT_MS), "--step-ms", str(STEP_MS)],
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def truth(self, since: int) -> tuple[int, float, float]:
        """Return requests, mean TTFT and TPOT in ms of the log's lines from ``since``."""
        rows = [json.loads(line) for line in self.lines()[since:]]
        rows = [row for row in rows if len(row["sent"]) > TOKENS // 2]
        if not rows:
            raise SystemExit("the client sent no request of the wanted length")
        ttft = [(row["sent"][0][0] - row["arrived"]) * 1e3 for row in rows]
        tpot = [
            (row["sent"][-1][0] - row["sent"][0][0]) * 1e3 / (sum(n for _, n in row["sent"]) - 1)
            for row in rows
        ]
        return len(rows), sum(ttft) / len(ttft), sum(tpot) / len(tpot)

    def lines(self) -> list[str]:
        """Return the log's lines, one a request, once it has been still for 0.3 s.

        The server logs a request after its last byte was sent, so a client may be done before.
        """
        before = None
        while (now := self.log.read_text() if self.log.exists() else "") != before:
            before = now
            time.sleep(0.3)
        return now.splitlines()


BODY = {
    "model": "known",
    "stream": True,
    "max_tokens": TOKENS,
    "stream_options": {"include_usage": True},
    "messages": [{"role": "user", "content": "word " * 64}],
}


def cpu_seconds(who: int = resource.RUSAGE_SELF) -> float:
    """Return user and system time."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


Timing = tuple[float, float]
"""TTFT and TPOT in seconds."""


def closed_loop(one: Callable[[], Awaitable[Timing]], concurrency: int) -> Callable[[], Any]:
    """Return a coroutine function that runs every stream ``ROUNDS`` times."""

    async def run() -> list[Timing]:
        async def stream() -> list[Timing]:
            return [await one() for _ in range(ROUNDS)]

        results = await asyncio.gather(*(stream() for _ in range(concurrency)))
        return [timing for result in results for timing in result]

    return run


def seen(timings: list[Timing], cpu: float) -> Seen:
    """Return the means in ms."""
    return Seen(
        sum(t for t, _ in timings) / len(timings) * 1e3,
        sum(t for _, t in timings) / len(timings) * 1e3,
        cpu,
    )


def ours(url: str, concurrency: int) -> Seen:
    """Return what our client reports."""

    async def main() -> list[Timing]:
        async with Client(Target(url)) as client:

            async def one() -> Timing:
                record = await client.stream(dict(BODY))
                return record.ttft or 0.0, record.tpot or 0.0

            found: list[Timing] = await closed_loop(one, concurrency)()
            return found

    before = cpu_seconds()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        timings = runner.run(main())
    return seen(timings, cpu_seconds() - before)


def raw(url: str, concurrency: int) -> Seen:
    """Return what a plain socket reader on the same loop reports: no HTTP library, no JSON."""
    port = int(url.rsplit(":", 1)[1])
    payload = json.dumps(BODY).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(payload)}\r\n\r\n"
    ).encode()

    async def one() -> Timing:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        begin = time.perf_counter()
        writer.write(head + payload)
        first = last = 0.0
        while True:
            piece = await reader.read(65536)
            now = time.perf_counter()
            if b'"content": "' in piece and b'"content": ""' not in piece:
                first, last = first or now, now
            if not piece or b"[DONE]" in piece:
                break
        writer.close()
        return first - begin, (last - first) / (TOKENS - 1)

    before = cpu_seconds()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        timings = runner.run(closed_loop(one, concurrency)())
    return seen(timings, cpu_seconds() - before)


def with_httpx(url: str, concurrency: int) -> Seen:
    """Return what a straightforward httpx client reports."""
    import httpx

    async def main() -> list[Timing]:
        limits = httpx.Limits(max_connections=concurrency)
        async with httpx.AsyncClient(timeout=120, limits=limits) as client:

            async def one() -> Timing:
                begin, first, last = time.perf_counter(), 0.0, 0.0
                async with client.stream("POST", f"{url}/v1/chat/completions", json=BODY) as answer:
                    async for line in answer.aiter_lines():
                        if line.startswith("data: {"):
                            choices = json.loads(line[6:])["choices"]
                            if choices and choices[0]["delta"].get("content"):
                                last = time.perf_counter()
                                first = first or last
                return first - begin, (last - first) / (TOKENS - 1)

            found: list[Timing] = await closed_loop(one, concurrency)()
            return found

    before = cpu_seconds()
    timings = asyncio.run(main())
    return seen(timings, cpu_seconds() - before)


def tokenizer_for(program: str, folder: Path) -> Path | None:
    """Make a small tokenizer with the Python beside a peer's program; ``None`` if it cannot."""
    target = folder / "tokenizer"
    python = Path(os.path.realpath(Path(program).parent)) / "python"
    script = Path(__file__).parent.parent / "tests" / "vllm_models.py"
    code = (
        f"import sys; sys.path.insert(0, {str(script.parent)!r}); import vllm_models, pathlib; "
        f"vllm_models.make_tokenizer(pathlib.Path({str(target)!r}))"
    )
    if not target.exists():
        done = subprocess.run([python, "-c", code], capture_output=True, check=False)
        if done.returncode:
            return None
    return target


def aiperf(program: str, url: str, concurrency: int, folder: Path) -> Seen:
    """Run aiperf and read its report."""
    tokenizer = tokenizer_for(program, folder)
    out = folder / f"aiperf-{concurrency}"
    cpu = run_peer(
        [program, "profile", "--model", "known", "--url", url, "--endpoint-type", "chat",
         "--streaming", "--tokenizer", str(tokenizer), "--use-server-token-count",
         "--concurrency", str(concurrency), "--request-count", str(concurrency * ROUNDS),
         "--isl", "64", "--osl", str(TOKENS), "--extra-inputs", "ignore_eos:true",
         "--ui", "none", "--no-gpu-telemetry", "--artifact-dir", str(out)]
    )  # fmt: skip
    (report,) = out.rglob("profile_export_aiperf.json")
    data = json.loads(report.read_text())
    metrics = data.get("records", data)
    return Seen(metrics["time_to_first_token"]["avg"], metrics["inter_token_latency"]["avg"], cpu)


def guidellm(program: str, url: str, concurrency: int, folder: Path) -> Seen:
    """Run guidellm and read its report."""
    tokenizer = tokenizer_for(program, folder)
    out = folder / f"guidellm-{concurrency}.json"
    cpu = run_peer(
        [program, "run", "--backend", f"kind=openai_http,target={url},model=known",
         "--profile", f"kind=concurrent,streams={concurrency}",
         "--constraint", f"kind=max_requests,count={concurrency * ROUNDS}",
         "--tokenizer", f"kind=hf_auto,model={tokenizer}",
         "--data", f"kind=synthetic_text,prompt_tokens=64,output_tokens={TOKENS}",
         "--output", f"kind=json,path={out}", "--disable-console-interactive"]
    )  # fmt: skip
    metrics = json.loads(out.read_text())["benchmarks"][0]["metrics"]
    return Seen(
        metrics["time_to_first_token_ms"]["successful"]["mean"],
        metrics["inter_token_latency_ms"]["successful"]["mean"],
        cpu,
    )


LOCUST = """
import json, os, time
from locust import HttpUser, task
class One(HttpUser):
    @task
    def stream(self):
        body = json.loads(os.environ["BODY"])
        begin, first, last, n = time.perf_counter(), 0.0, 0.0, 0
        answer = self.client.post("/v1/chat/completions", json=body, stream=True)
        for line in answer.iter_lines(chunk_size=1):
            if line.startswith(b"data: {") and b'"content": "' in line and b'""' not in line:
                last = time.perf_counter(); first = first or last; n += 1
        if n > 1:
            with open(os.environ["TIMES"], "a") as out:
                print(json.dumps([first - begin, (last - first) / (n - 1)]), file=out)
"""


def locust(program: str, url: str, concurrency: int, folder: Path) -> Seen:
    """Run locust with timings of our own in it, as its users write them."""
    script, times = folder / "locustfile.py", folder / f"locust-{concurrency}.jsonl"
    script.write_text(LOCUST)
    seconds = ROUNDS * (TTFT_MS + STEP_MS * TOKENS) / 1e3 + 1
    cpu = run_peer(
        [program, "-f", str(script), "--headless", "-u", str(concurrency), "-r",
         str(concurrency), "-t", f"{seconds:.0f}s", "--host", url, "--only-summary"],
        BODY=json.dumps(BODY),
        TIMES=str(times),
    )  # fmt: skip
    timings = [tuple(json.loads(line)) for line in times.read_text().splitlines()]
    return seen([(a, b) for a, b in timings], cpu)


def run_peer(command: list[str], **environment: str) -> float:
    """Run a peer and return the CPU seconds of it and its children."""
    before = cpu_seconds(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{command[0]} failed: {done.stderr[-800:] or done.stdout[-800:]}")
    return cpu_seconds(resource.RUSAGE_CHILDREN) - before


PEERS = {"aiperf": aiperf, "guidellm": guidellm, "locust": locust}


def clients(peers: str, folder: Path) -> dict[str, Callable[[str, int], Seen]]:
    """Return every client that can run here, by name."""
    found: dict[str, Callable[[str, int], Seen]] = {
        "raw socket": raw,
        "qwendeploy": ours,
        "httpx": with_httpx,
    }
    for entry in filter(None, peers.split(",")):
        name, _, path = entry.partition("=")
        program = path or shutil.which(name)
        if name not in PEERS:
            raise SystemExit(f"no such peer: {name}; known: {', '.join(PEERS)}")
        if program is None:
            print(f"{name} is not installed: left out", file=sys.stderr)
            continue
        found[name] = peer_client(PEERS[name], str(Path(program).absolute()), folder)
    return found


def peer_client(
    run: Callable[[str, str, int, Path], Seen], program: str, folder: Path
) -> Callable[[str, int], Seen]:
    """Return a peer as a client of the common form."""
    return lambda url, concurrency: run(program, url, concurrency, folder)


HEAD = "client          c     n   TTFT error   TPOT error  CPU s/1000 tok  load"


def line(row: Row) -> str:
    """Return a row for the terminal."""
    return (
        f"{row.client:12} {row.concurrency:4} {row.requests:5} {row.ttft_error_ms:+9.1f} ms"
        f" {row.tpot_error_ms:+9.3f} ms {row.cpu_s_per_1000_tokens:15.3f} {row.load:5.1f}"
    )


def main() -> None:
    """Print one line per client and concurrency."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--c", default="1,8,32")
    parser.add_argument("--peers", default="aiperf,guidellm,locust")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        server = Server(Path(name))
        try:
            print(HEAD)
            found = clients(options.peers, Path(name))
            for warm_up in (raw, ours, with_httpx):
                warm_up(server.url, 1)  # imports are paid once a process
            for concurrency in (int(part) for part in options.c.split(",")):
                for client, run in found.items():
                    rows.append(measure(server, client, run, concurrency))
                    print(line(rows[-1]), flush=True)
        finally:
            server.process.kill()
            server.process.wait()
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


def measure(server: Server, client: str, run: Callable[[str, int], Seen], concurrency: int) -> Row:
    """Return one client's error at one concurrency, against the log of the same requests."""
    since = len(server.lines())
    reported = run(server.url, concurrency)
    requests, ttft, tpot = server.truth(since)
    return Row(
        client=client,
        concurrency=concurrency,
        requests=requests,
        ttft_error_ms=reported.ttft_ms - ttft,
        tpot_error_ms=reported.tpot_ms - tpot,
        cpu_s_per_1000_tokens=reported.cpu_s / (requests * TOKENS) * 1000,
        load=os.getloadavg()[0],
    )


if __name__ == "__main__":
    main()
