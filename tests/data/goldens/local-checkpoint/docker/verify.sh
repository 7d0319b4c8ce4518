#!/usr/bin/env bash
# Measures the running server and compares it with the prediction of plan a1b2c3d4e5f60718.
# Exit code: 0 confirmed, 1 refuted, 3 inconclusive, 4 the server does not answer.
# Arguments are passed to `qwendeploy verify`; QWENDEPLOY sets another program.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# the key is passed through the environment, not on the command line
if [[ -e "${here}/secrets.env" ]]; then
  while IFS='=' read -r name value; do
    case ${name} in
      VLLM_API_KEY) export QWENDEPLOY_API_KEY="${value}" ;;
      *) ;;
    esac
  done <"${here}/secrets.env"
fi

program=${QWENDEPLOY:-qwendeploy}
if ! command -v "${program}" >/dev/null; then
  echo "${program} is not on the PATH: activate its environment or set QWENDEPLOY to its path" >&2
  exit 4
fi
exec "${program}" verify "${here}/plan.yaml" --base-url http://127.0.0.1:8000 "$@"
