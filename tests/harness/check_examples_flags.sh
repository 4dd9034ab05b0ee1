#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# examples/run --engine mpi: flags are looked at before mpirun starts anything. The program and mpirun are stand-ins.
set -u
wrong=0
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
mkdir -p "$room/examples" "$room/scripts" "$room/bin" "$room/build/examples/examples/train_gpt"
cp "$1/examples/run" "$room/examples/run"
cp "$1/scripts/mpi_process.sh" "$room/scripts/mpi_process.sh"
cat >"$room/scripts/setup.sh" <<SH
root=$room
needs_train_gpt= needs_plot= needs_mpi=
need() { :; }
mpi_option() { :; }
configure() { :; }
compile() { :; }
SH
cat >"$room/build/examples/examples/train_gpt/train_gpt" <<'SH'
#!/usr/bin/env bash
case "$*" in *bad*) echo "train_gpt: error: bad" >&2; exit 2 ;; esac
echo "program $*"
SH
cat >"$room/bin/mpirun" <<'SH'
#!/usr/bin/env bash
echo "mpirun ${*//*train_gpt/PROGRAM}"
SH
chmod +x "$room/bin/mpirun" "$room/build/examples/examples/train_gpt/train_gpt"
variables=()
expect() {  # exit status, output, flags
    local status=$1 output=$2 said
    shift 2
    said=$(env -u OMPI_COMM_WORLD_SIZE -u PMI_SIZE -u PMI_RANK -u PMIX_RANK -u SLURM_STEP_NUM_TASKS "${variables[@]}" \
        PATH="$room/bin:$PATH" "$room/examples/run" "$@" 2>&1)
    [ $? -eq "$status" ] && [ "$said" = "$output" ] || { echo "$*: expected $status '$output', it was '$said'"; wrong=1; }
}
expect 2 'train_gpt: error: bad' --engine mpi --mesh bad
expect 2 'train_gpt: error: bad' --engine=mpi --batch bad
expect 0 'mpirun -n 12 PROGRAM --engine mpi --mesh 2x2x3' --engine mpi --mesh 2x2x3
expect 0 'mpirun -n 3 PROGRAM --mesh=3x1x1 --engine=mpi' --mesh=3x1x1 --engine=mpi
expect 0 'mpirun -n 2 PROGRAM --engine mpi --steps 3 --mesh 2x1x1' --engine mpi --steps 3
expect 0 'program --engine mpi --plan' --engine mpi --plan
expect 0 'program --engine mpi --help' --engine mpi --help
expect 0 'program --steps 3' --steps 3
variables=(SLURM_STEP_NUM_TASKS=4)
expect 2 'error: one of 4 tasks of srun, without MPI between them: expected srun --mpi=pmix, or one task' --engine mpi
expect 0 'program --steps 3' --steps 3
variables=(SLURM_STEP_NUM_TASKS=4 PMIX_RANK=1)
expect 0 'program --engine mpi --mesh 4x1x1' --engine mpi --mesh 4x1x1
variables=(SLURM_STEP_NUM_TASKS=1)
expect 0 'mpirun -n 2 PROGRAM --engine mpi --mesh 2x1x1' --engine mpi
exit "$wrong"
