# Sourced by what starts mpirun.
# shellcheck shell=bash

# Whether this is one of the processes of mpirun, or of srun with MPI. Tasks of srun without MPI know nothing of each
# other, and each would start a job of its own.
is_mpi_process() {
    [ -z "${OMPI_COMM_WORLD_SIZE-}${PMI_SIZE-}${PMI_RANK-}${PMIX_RANK-}" ] || return 0
    if [ "${SLURM_STEP_NUM_TASKS:-1}" -gt 1 ]; then
        echo "error: one of $SLURM_STEP_NUM_TASKS tasks of srun, without MPI between them: expected srun --mpi=pmix, or" \
            "one task" >&2
        exit 2
    fi
    return 1
}
