#!/usr/bin/env bash
# Made by qwendeploy 0.0.0 from plan a1b2c3d4e5f60718.
# Change the plan and generate again rather than editing this file.
# Why this and not another:
# 1. FP8 weights keep the near class and leave 45 GiB a card for the cache
# 2. three drafted tokens are the fastest measured at 32 streams
# 3. tensor parallel over both cards holds the 256k context
# The image ghcr.io/ggml-org/llama.cpp:server-cuda is named by tag, since no digest is known:
#    `qwendeploy up` prints the digest that it pulled; put it into the plan to pin it.
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
  --gpus '"device=0"'
  --publish 127.0.0.1:8000:8000
  --ulimit memlock=-1
  --ulimit stack=67108864
  --ulimit nofile=65536
  --security-opt no-new-privileges
  --read-only
  --tmpfs '/tmp:exec,mode=1777'
  --tmpfs '/home/engine:exec,mode=0700'
  --mount 'type=volume,source=qwendeploy-llama-cpp,target=/home/engine/.cache/llama.cpp'
  --mount 'type=bind,source=/srv/models/Qwen3.6-27B-Q4_K_M.gguf,target=/srv/models/Qwen3.6-27B-Q4_K_M.gguf,readonly'
  --health-cmd 'curl -fsS -o /dev/null -m 4 http://127.0.0.1:8000/health'
  --health-interval 10s
  --health-timeout 5s
  --health-retries 6
  --health-start-period 360s
  --stop-timeout 60
  --log-driver json-file
  --log-opt max-size=50m
  --log-opt max-file=4
  --env HOME=/home/engine
  --env HF_HOME=/home/engine/.cache/huggingface
  --env HF_HUB_OFFLINE=1
  --mount "type=bind,\"source=${hub}\",target=/home/engine/.cache/huggingface"
  --env-file "${here}/secrets.env"
)

engine_arguments=(
  --model /srv/models/Qwen3.6-27B-Q4_K_M.gguf
  --host 0.0.0.0
  --port 8000
  --alias qwen3.6-27b
  --ctx-size 131072
  --n-gpu-layers 999
  --parallel 4
  --flash-attn on
)

exec docker run "${docker_options[@]}" ghcr.io/ggml-org/llama.cpp:server-cuda "${engine_arguments[@]}"
