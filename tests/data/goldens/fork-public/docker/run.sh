#!/usr/bin/env bash
# Made by qwendeploy 0.0.0 from plan a1b2c3d4e5f60718.
# Change the plan and generate again rather than editing this file.
# The image is a third-party fork without public source.
# Why this and not another:
# 1. FP8 weights keep the near class and leave 45 GiB a card for the cache
# 2. three drafted tokens are the fastest measured at 32 streams
# 3. tensor parallel over both cards holds the 256k context
# The image repne/vllm:v17 is named by tag, since no digest is known: `qwendeploy up` prints the
#    digest that it pulled; put it into the plan to pin it.
# Listens on 0.0.0.0, in plain HTTP: the key guards /v1 only, so put a proxy with TLS in front.
# A failed start is retried 3 times. After the first start, enable restarts after every crash
# and reboot:
#   docker update --restart unless-stopped qwendeploy
# Stop it with: docker stop qwendeploy; docker rm qwendeploy
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
hub=${HF_HOME:-${HOME:?}/.cache/huggingface}
mkdir -p "${hub}"

docker_options=(
  --detach
  --name qwendeploy
  --label org.qwendeploy.plan=a1b2c3d4e5f60718
  # counts over the container's life, so that a configuration error does not loop; see above
  --restart on-failure:3
  --gpus '"device=GPU-00000000-1111-2222-3333-444444444444,GPU-00000001-1111-2222-3333-444444444444"'
  --publish 0.0.0.0:8123:8000
  --ipc host
  --ulimit memlock=-1
  --ulimit stack=67108864
  --ulimit nofile=65536
  --security-opt no-new-privileges
  --mount 'type=volume,source=qwendeploy-vllm,target=/root/.cache/vllm'
  --mount 'type=volume,source=qwendeploy-flashinfer,target=/root/.cache/flashinfer'
  --mount 'type=volume,source=qwendeploy-triton,target=/root/.triton'
  --health-cmd "python3 -c 'import sys, urllib.request as r; r.urlopen(sys.argv[1], timeout=4)' http://127.0.0.1:8000/health"
  --health-interval 10s
  --health-timeout 5s
  --health-retries 6
  --health-start-period 1560s
  --stop-timeout 60
  --log-driver json-file
  --log-opt max-size=50m
  --log-opt max-file=4
  --env VLLM_SKIP_P2P_CHECK=0
  --env NCCL_P2P_LEVEL=SYS
  --mount "type=bind,\"source=${hub}\",target=/root/.cache/huggingface"
  --env-file "${here}/secrets.env"
)

engine_arguments=(
  Qwen/Qwen3.6-27B-FP8
  --host 0.0.0.0
  --port 8000
  --served-model-name qwen3.6-27b
  --tensor-parallel-size 2
  --gpu-memory-utilization 0.85
  --max-model-len 262144
  --max-num-seqs 32
  --max-num-batched-tokens 16384
  --no-enable-prefix-caching
  --reasoning-parser qwen3
  --enable-auto-tool-choice
  --tool-call-parser qwen3_coder
  --speculative-config '{"method":"mtp","num_speculative_tokens":3}'
)

exec docker run "${docker_options[@]}" repne/vllm:v17 "${engine_arguments[@]}"
