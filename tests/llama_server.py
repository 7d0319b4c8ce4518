"""A real llama.cpp server on a tiny random model: ``python llama_server.py PORT FOLDER``.

The model is made on the spot (0.6 MB, two layers, byte-fallback vocabulary), so nothing is
downloaded. What it answers means nothing; how it answers is a real engine's.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

LAYERS, WIDTH, HEADS, FEED = 2, 64, 4, 128
WORDS = 252
CONTEXT = 4096


def make_model(path: Path) -> None:
    """Write a random Llama with a vocabulary of bytes and a few words."""
    import gguf
    import numpy as np

    random = np.random.default_rng(0)
    tokens = [b"<unk>", b"<s>", b"</s>"]
    tokens += [f"<0x{byte:02X}>".encode() for byte in range(256)]
    tokens += ["▁".encode()] + [f"▁w{number}".encode() for number in range(WORDS)]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny-random")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(0)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(number) for number in range(len(tokens))])
    writer.add_token_types(kinds)
    for name, number in (("bos", 1), ("eos", 2), ("unk", 0)):
        getattr(writer, f"add_{name}_token_id")(number)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")

    def tensor(name: str, *shape: int) -> None:
        writer.add_tensor(name, (random.standard_normal(shape) * 0.05).astype(np.float32))

    tensor("token_embd.weight", len(tokens), WIDTH)
    tensor("output.weight", len(tokens), WIDTH)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"{block}{norm}.weight", np.ones(WIDTH, np.float32))
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensor(f"{block}{part}.weight", WIDTH, WIDTH)
        for part in ("ffn_gate", "ffn_up"):
            tensor(f"{block}{part}.weight", FEED, WIDTH)
        tensor(f"{block}ffn_down.weight", WIDTH, FEED)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Serve until killed."""
    import xllamacpp

    port, folder = int(sys.argv[1]), Path(sys.argv[2])
    model = folder / "tiny.gguf"
    make_model(model)
    settings = xllamacpp.CommonParams()
    settings.model.path = str(model)
    settings.hostnames = ["127.0.0.1"]
    settings.port = port
    settings.n_ctx = 2 * CONTEXT
    settings.n_parallel = 4
    settings.endpoint_metrics = True
    settings.cpuparams.n_threads = 1
    settings.warmup = True
    server = xllamacpp.Server(settings)
    print("serving", server.listening_address, flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
