"""Tiny random models for a real vLLM, made on the spot: ``python vllm_models.py KIND FOLDER``.

``qwen3`` is an attention model that serves on a CPU; ``hybrid`` has Gated DeltaNet layers in the
shape of Qwen3.6, whose start-up works there and whose first request kills the engine. Run by the
Python that has vLLM's torch and transformers.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n"
    "{% else %}<think>\n{% endif %}{% endif %}"
)
STAND_IN = '''
"""Stands where the real torchvision would not import beside a CPU torch; nothing here is called."""
import importlib.abc, importlib.machinery, sys, types


class Anything(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class Nothing(metaclass=Anything):
    pass


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.startswith("torchvision."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: getattr(Nothing, name)
        return module

    def exec_module(self, module):
        pass


sys.meta_path.append(Finder())
'''
TEXTS = ["the quick brown fox jumps over the lazy dog " * 20, "what a tiny tokenizer reads " * 20]


def make_tokenizer(folder: Path) -> Any:
    """Write a byte-level tokenizer of 512 tokens with Qwen's marks."""
    tokenizers, transformers = import_module("tokenizers"), import_module("transformers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=None))
    split = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = split
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    return fast


def make_model(kind: str, folder: Path) -> None:
    """Write configuration, tokenizer and random weights."""
    torch, transformers = import_module("torch"), import_module("transformers")
    tokenizer = make_tokenizer(folder)
    torch.manual_seed(0)
    common: dict[str, Any] = {
        "vocab_size": 512,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    if kind == "qwen3":
        config = transformers.Qwen3Config(num_hidden_layers=2, **common)
        model = transformers.Qwen3ForCausalLM(config)
    else:
        linear = {
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 32,
            "linear_value_head_dim": 32,
            "linear_conv_kernel_dim": 4,
        }
        layers = ["linear_attention"] * 3 + ["full_attention"]
        config = transformers.Qwen3_5TextConfig(
            num_hidden_layers=4, layer_types=layers, **linear, **common
        )
        model = transformers.Qwen3_5ForCausalLM(config)
    model.to(torch.bfloat16).save_pretrained(folder)


def write_stand_in(folder: Path) -> Path:
    """Write a torchvision that can be imported and no more; returns what goes on PYTHONPATH."""
    package = folder / "torchvision"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(STAND_IN)
    facts = folder / "torchvision-0.26.0.dist-info"
    facts.mkdir(exist_ok=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: torchvision\nVersion: 0.26.0\n")
    return folder


if __name__ == "__main__":
    make_model(sys.argv[1], Path(sys.argv[2]))
