"""llama.cpp's server as an engine."""

from __future__ import annotations

from qwendeploy.engines.interface import Engine
from qwendeploy.engines.llama_cpp.metrics import METRICS

LLAMA_CPP = Engine(
    name="llama.cpp",
    served_name="--alias",
    path_flag="--model",
    repository_flag="--hf-repo",
    replicas_flag=None,
    api_key_variable="LLAMA_API_KEY",
    default_port=8080,
    owner="llamacpp",
    metrics=METRICS,
    lacks=frozenset({"--engine vllm", "--spec", "--util", "--capture-size", "--prefix-cache on"}),
)
