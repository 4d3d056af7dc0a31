#!/usr/bin/env bash
# Starts train.py: in a SLURM job one process per task through srun, elsewhere one process. The batch files and
# the sweeps call it from the checkout: bash configs/cluster/launch.sh fit --config configs/train/X.yaml ...
set -euo pipefail
PYTHON=${PYTHON:-.venv/bin/python}

if [[ -z ${SLURM_JOB_ID:-} ]]; then
    exec "$PYTHON" train.py "$@"
fi

tasks=${SLURM_NTASKS_PER_NODE:-1}
nodes=${SLURM_JOB_NUM_NODES:-1}
processes=()
if [[ " $* " != *" --trainer.devices"* ]]; then
    processes=(--trainer.devices "$tasks" --trainer.num_nodes "$nodes")
    if ((tasks * nodes > 1)); then
        processes+=(--trainer.strategy ddp)
    fi
fi
# Without GPUs torch would start a thread per core in every task.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}
exec srun "$PYTHON" train.py "$@" "${processes[@]}"
