#!/usr/bin/env bash
# Made by qwendeploy 0.0.0 from plan a1b2c3d4e5f60718.
# Change the plan and generate again rather than editing this file.
# Why this and not another:
# 1. FP8 weights keep the near class and leave 45 GiB a card for the cache
# 2. three drafted tokens are the fastest measured at 32 streams
# 3. tensor parallel over both cards holds the 256k context
# 2 replicas run in one process (--data-parallel-size), since one command is started here: they
#    share its port and metrics, and end together. The prediction adds up independent servers, which
#    `generate -f compose` starts behind nginx.
# The image vllm/vllm-openai:v0.22.0 is named by tag, since no digest is known: `qwendeploy up`
#    prints the digest that it pulled; put it into the plan to pin it.
# Runs vllm of the active virtual environment, vLLM 0.22.0.
# Set VLLM to use another one.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# key and token come from the file beside this one, not from the command line
if [[ -e "${here}/secrets.env" ]]; then
  while IFS='=' read -r name value; do
    case ${name} in
      VLLM_API_KEY | HF_TOKEN) export "${name}=${value}" ;;
      *) ;;
    esac
  done <"${here}/secrets.env"
fi

# indices as in nvidia-smi
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export CUDA_VISIBLE_DEVICES=0,1
export VLLM_SKIP_P2P_CHECK=0
export NCCL_P2P_LEVEL=SYS

engine_arguments=(
  Qwen/Qwen3.6-27B-FP8
  --host 127.0.0.1
  --port 8000
  --served-model-name qwen3.6-27b
  --tensor-parallel-size 1
  --gpu-memory-utilization 0.85
  --max-model-len 262144
  --max-num-seqs 32
  --max-num-batched-tokens 16384
  --no-enable-prefix-caching
  --reasoning-parser qwen3
  --enable-auto-tool-choice
  --tool-call-parser qwen3_coder
  --speculative-config '{"method":"mtp","num_speculative_tokens":3}'
  --shutdown-timeout 50
  --data-parallel-size 2
)

# stack and file limits as in the containers; a lower hard limit is not an error
ulimit -S -s 65536 2>/dev/null || true
ulimit -S -n 65536 2>/dev/null || true

exec "${VLLM:-vllm}" serve "${engine_arguments[@]}"
