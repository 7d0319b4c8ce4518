"""A server of known timing for ``verify --self-test``: streams on a fixed schedule, logs the truth.

Runs as a process of its own, standard library only: ``python -m
qwendeploy.verification.reference_server TTFT_MS STEP_MS TOKENS``. Prints its port, then serves
until its standard input closes; each finished stream is one JSON line on standard output.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time


async def serve(ttft: float, step: float, tokens: int) -> None:
    """Serve until standard input ends."""

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readline():
                length = 0
                while (line := await reader.readline()) not in (b"\r\n", b""):
                    name, _, value = line.partition(b":")
                    if name.lower() == b"content-length":
                        length = int(value)
                await reader.readexactly(length)
                await stream(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def stream(writer: asyncio.StreamWriter) -> None:
        arrived = time.perf_counter()
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        sent = []
        for number in range(1, tokens + 1):
            due = arrived + ttft + step * (number - 1)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            usage = {"prompt_tokens": 8, "completion_tokens": number}
            finish = "length" if number == tokens else None
            choice = {"index": 0, "delta": {"content": " word"}, "finish_reason": finish}
            data = json.dumps({"choices": [choice], "usage": usage}).encode()
            sent.append(time.perf_counter())
            writer.write(b"%x\r\ndata: %b\n\n\r\n" % (len(data) + 8, data))
            await writer.drain()
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        await writer.drain()
        print(json.dumps({"arrived": arrived, "first": sent[0], "last": sent[-1]}), flush=True)

    server = await asyncio.start_server(connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]) / 1e3, float(sys.argv[2]) / 1e3, int(sys.argv[3])))
