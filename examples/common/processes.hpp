// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "place.hpp"

namespace program {

/// The processes that belong to this run, from here to the end of the scope: those of the MPI job with --engine mpi,
/// those of a launcher's job with --engine nccl (see Place), else this one; only MPI is initialised.
class Processes {
  public:
    /// @throws InputError when the flags ask for mpi and this program was built without, or when a launcher's
    /// variables
    ///         make no sense; CommError when MPI fails
    Processes(int count, const char* const* arguments);
    Processes(const Processes&) = delete;
    Processes& operator=(const Processes&) = delete;
    ~Processes();

    std::size_t count() const;
    /// How many processes of an MPI job each host has, in their order; 0 where there is one host, or another order.
    std::size_t ranks_per_host() const;
    /// Whether, in an MPI job, every process has a second processor, and every host one that is none of its
    /// processes' first; false without a job. The same on every process.
    bool spare_processor() const;
    /// The process that prints and writes files.
    bool reports() const;

    /// Where a launcher put this process; alone without one.
    const Place& place() const noexcept { return place_; }

    /// What their MPI calls itself; empty without one.
    std::string mpi_version() const;

    /// Tells all processes how far this one came: 0, or an exit code. Collective. A launcher's processes are not
    /// told: it ends them all when one fails. They were given the same flags, so that one of each machine speaks for
    /// all.
    struct Agreement {
        int code;     ///< the largest of all
        bool speaks;  ///< whether this process is the lowest of those that failed
    };
    Agreement agree(int code) const;

  private:
    struct Environment;
    std::unique_ptr<Environment> environment_;
    Place place_;
};

}  // namespace program
