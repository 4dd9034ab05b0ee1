// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace program {

/// The processes that belong to this run, from here to the end of the scope: those of the MPI job with --engine mpi,
/// else this one, and nothing is initialised.
class Processes {
  public:
    /// @throws InputError when the flags ask for mpi and this program was built without; CommError when MPI fails
    Processes(int count, const char* const* arguments);
    Processes(const Processes&) = delete;
    Processes& operator=(const Processes&) = delete;
    ~Processes();

    std::size_t count() const;
    /// The process that prints and writes files.
    bool reports() const;

    /// What their MPI calls itself; empty without one.
    std::string mpi_version() const;

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

}  // namespace program
