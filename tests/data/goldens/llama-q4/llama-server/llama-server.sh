#!/usr/bin/env bash
# Made by qwendeploy 0.0.0 from plan a1b2c3d4e5f60718.
# Change the plan and generate again rather than editing this file.
# Why this and not another:
# 1. FP8 weights keep the near class and leave 45 GiB a card for the cache
# 2. three drafted tokens are the fastest measured at 32 streams
# 3. tensor parallel over both cards holds the 256k context
# The image ghcr.io/ggml-org/llama.cpp:server-cuda is named by tag, since no digest is known:
#    `qwendeploy up` prints the digest that it pulled; put it into the plan to pin it.
# Runs llama-server of the active virtual environment.
# Set LLAMA_SERVER to use another one.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# key and token come from the file beside this one, not from the command line
if [[ -e "${here}/secrets.env" ]]; then
  while IFS='=' read -r name value; do
    case ${name} in
      LLAMA_API_KEY | HF_TOKEN) export "${name}=${value}" ;;
      *) ;;
    esac
  done <"${here}/secrets.env"
fi

# indices as in nvidia-smi
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export CUDA_VISIBLE_DEVICES=0
export HF_HUB_OFFLINE=1

engine_arguments=(
  --model /srv/models/Qwen3.6-27B-Q4_K_M.gguf
  --host 127.0.0.1
  --port 8000
  --alias qwen3.6-27b
  --ctx-size 131072
  --n-gpu-layers 999
  --parallel 4
  --flash-attn on
)

# stack and file limits as in the containers; a lower hard limit is not an error
ulimit -S -s 65536 2>/dev/null || true
ulimit -S -n 65536 2>/dev/null || true

exec "${LLAMA_SERVER:-llama-server}" "${engine_arguments[@]}"
