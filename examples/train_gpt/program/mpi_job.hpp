// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include <shardkit/plan/engine_traits.hpp>

#include "job.hpp"

namespace train_gpt {

/// The MPI job that this process belongs to, from here to the end of the scope; without --engine mpi a job of one
/// process, which initialises nothing.
class MpiJob {
  public:
    /// @throws InputError when the flags ask for mpi and this program was built without; CommError when MPI fails
    MpiJob(int count, const char* const* arguments);
    MpiJob(const MpiJob&) = delete;
    MpiJob& operator=(const MpiJob&) = delete;
    ~MpiJob();

    std::size_t processes() const;
    /// The process that prints and writes files.
    bool reports() const;

    /// Tells all processes how far this one came: 0, or an exit code. Collective.
    struct Agreement {
        int code;     ///< the largest of all
        bool speaks;  ///< whether this process is the lowest of those that failed
    };
    Agreement agree(int code) const;

  private:
    struct Environment;
    std::unique_ptr<Environment> environment_;
};

/// train() with ranks as processes: explicit instantiations in train_mpi_fp64.cpp and its siblings.
template <class T>
Results train_mpi(const Job& job);

/// What the planner must know of the engine behind train_mpi.
shardkit::EngineTraits mpi_traits();

}  // namespace train_gpt
