// SPDX-License-Identifier: Apache-2.0
#pragma once

// The C interface only: the C++ one left the standard in MPI 3.0, costs compile time and needs a library of its own.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif

#include <mpi.h>
