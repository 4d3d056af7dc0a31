#!/usr/bin/env bash
# Installs SLURM from Debian's packages where it is missing and may be; else says what is missing. Starts no service.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin
missing=()
for program in munged slurmctld slurmd sbatch srun; do
    command -v "$program" >/dev/null || missing+=("$program")
done
((${#missing[@]})) || exit 0

if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
    echo "make test-cluster: expected SLURM's programs, found no ${missing[*]}." \
        "Install slurmctld, slurmd, slurm-client and munge, or run this on Debian as root." >&2
    exit 2
fi
# RUNLEVEL=1: no package starts its daemon; the tests start their own.
timeout 300 apt-get update -qq
RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive timeout 600 \
    apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client munge
