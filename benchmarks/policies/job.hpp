// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>

#include <shardkit/plan/time_model.hpp>

#include "links.hpp"
#include "options.hpp"
#include "row.hpp"

namespace benchmarks::policies {

/// Stands for a model's computation: a chain of dependent multiply-adds, so many that they take a given time on an
/// otherwise idle processor. It touches no memory, and takes longer when the processor is shared.
class BusyWork {
  public:
    /// `per_second`: links of the chain.
    explicit BusyWork(double per_second) noexcept : per_second_(per_second) {}

    /// Times the chain in this thread; the best of several, for about 40 ms.
    static BusyWork calibrate();

    double per_second() const noexcept { return per_second_; }
    std::uint64_t links_for(double seconds) const noexcept {
        return static_cast<std::uint64_t>(std::llround(seconds * per_second_));
    }
    /// Does the work; nothing of it is left out.
    static void run(std::uint64_t links) noexcept;
    /// Returns when work that is done elsewhere has taken so long: the processor is free meanwhile.
    static void wait(double seconds);

  private:
    double per_second_;
};

/// What is to be measured on one mesh.
struct Job {
    const Options& options;
    program::MeshExtents mesh;
    BusyWork busy;
    const shardkit::planner::TimeModel::Links* links = nullptr;  ///< null: nothing is predicted
};

/// Takes a policy's figures, where rank 0 is.
using RowSink = std::function<void(const Row&)>;

/// Measures a mesh with elements of type T: double, float or bf16.
/// @throws InputError when the program was built without the engine; what a rank throws
template <class T>
void run_in_process(const Job& job, const RowSink& sink);
template <class T>
void run_on_mpi(const Job& job, const RowSink& sink);

/// Links of the engine on a mesh, fitted to a few collectives; the same in every process. On threads the ranks make
/// them themselves, on MPI as in the steps that are measured.
FittedLinks fit_threads(const Options& options, const program::MeshExtents& mesh);
FittedLinks fit_mpi(const Options& options, const program::MeshExtents& mesh);

}  // namespace benchmarks::policies
