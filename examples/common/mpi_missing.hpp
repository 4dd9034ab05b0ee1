// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "input_error.hpp"

namespace program {

/// What a program that was built without MPI says to --engine mpi.
[[noreturn]] inline void throw_mpi_missing() {
    throw InputError(
        "--engine mpi: this program was built without MPI; expected one at build time (Debian: libopenmpi-dev "
        "openmpi-bin)");
}

}  // namespace program
