// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/watch_thread.hpp>

namespace shardkit::mpi::detail {

/// Ends the process if its scope takes longer than a limit. It stands around those calls of MPI that block until
/// other ranks make them too and have no form that does not: a rank cannot leave them with an exception. The launcher
/// then ends the job, or the other ranks see the end of this one.
/// Cost:    a thread
class BlockingCall : shardkit::detail::WatchThread {
  public:
    BlockingCall(std::string_view mpi_call, std::string_view doing, std::chrono::milliseconds limit,
                 SourceLocation where)
        : WatchThread(
              [limit, text = shardkit::detail::concat("shardkit: mpi: ", doing, " at ", where.file, ":", where.line,
                                                      ": ", mpi_call, " is not over after ", limit.count(),
                                                      " ms: a rank has not made this call, or its process has "
                                                      "ended; this process ends\n")](const auto& sleep) {
                  if (!sleep(limit)) { return; }
                  std::fflush(stdout);
                  std::fputs(text.c_str(), stderr);
                  std::fflush(stderr);
                  // A launcher may drop text that it has not read when the job ends.
                  std::this_thread::sleep_for(std::chrono::milliseconds(200));
                  std::_Exit(EXIT_FAILURE);
              }) {}
};

}  // namespace shardkit::mpi::detail
