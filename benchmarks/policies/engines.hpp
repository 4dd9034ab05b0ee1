// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fit_link.hpp"
#include "job.hpp"

namespace benchmarks::policies {

/// Measures a mesh with elements of type T: double, float or bf16.
/// @throws InputError when the program was built without the engine; what a rank throws
template <class T>
void run_in_process(const Job& job, const RowSink& sink);
template <class T>
void run_on_mpi(const Job& job, const RowSink& sink);

/// Links of the engine on a mesh, fitted to a few collectives; the same in every process.
FittedLinks fit_threads(const program::MeshExtents& mesh, bool pin);
FittedLinks fit_mpi(const program::MeshExtents& mesh, bool pin);

}  // namespace benchmarks::policies
