// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <thread>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/not_copied.hpp>
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

namespace shardkit::mpi {

/// Which threads of a process may call MPI, by MPI's constants of MPI_Init_thread. Each level includes the ones
/// before.
enum class ThreadLevel : int {
    single = MPI_THREAD_SINGLE,
    funneled = MPI_THREAD_FUNNELED,
    serialized = MPI_THREAD_SERIALIZED,
    multiple = MPI_THREAD_MULTIPLE
};

/// Returns the level's name in MPI.
constexpr std::string_view name(ThreadLevel level) noexcept {
    return level == ThreadLevel::multiple     ? "MPI_THREAD_MULTIPLE"
           : level == ThreadLevel::serialized ? "MPI_THREAD_SERIALIZED"
           : level == ThreadLevel::funneled   ? "MPI_THREAD_FUNNELED"
                                              : "MPI_THREAD_SINGLE";
}

namespace detail {

/// Prints what happened to this rank, and ends the job, as its peers may wait forever.
[[noreturn]] inline void end_job(std::size_t rank, std::size_t ranks, const char* became, const char* why) noexcept {
    std::fflush(stdout);
    std::fprintf(stderr, "shardkit: rank %zu of %zu%s: %s\n", rank, ranks, became, why);
    std::fflush(stderr);
    // A launcher forwards the text with a delay, and may drop unread text when the job is aborted, as MPICH's does.
    // The ranks abort one after the other: Open MPI's launcher (4.1.4) reads freed memory if two abort at once.
    const std::size_t turn = std::min<std::size_t>(rank, 20);
    std::this_thread::sleep_for(std::chrono::milliseconds(200 + 50 * turn));
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    std::_Exit(EXIT_FAILURE);
}

/// Ends the job likewise, with the exception that is being handled.
[[noreturn]] inline void abort_job(std::size_t rank, std::size_t ranks) noexcept {
    constexpr const char* failed = " failed";
    try {
        if (const std::exception_ptr error = std::current_exception()) { std::rethrow_exception(error); }
        end_job(rank, ranks, failed, "std::terminate was called");
    } catch (const std::exception& error) { end_job(rank, ranks, failed, error.what()); } catch (...) {
        end_job(rank, ranks, failed, "an exception that is no std::exception");
    }
}

}  // namespace detail

/// Initialises MPI, and finalises it at the end of the scope. Make one first in main(), in a program that does not
/// initialise MPI itself. Nothing else in the library initialises or finalises MPI. MPI can be initialised only once
/// in a process.
/// While it lives, an uncaught exception ends the job with its text, like an exception on a rank; std::terminate
/// would make MPI print a stack trace for every process.
class Environment : shardkit::detail::NotCopied {
  public:
    /// Initialises MPI. The process ends with a message if that, or the end of MPI, takes longer than `timeout`: both
    /// wait until every process of the job comes, and MPI offers no way to leave them.
    /// @throws CommError when MPI is or was initialised already, or offers a lower thread level than `wanted`
    explicit Environment(ThreadLevel wanted = ThreadLevel::serialized,
                         std::chrono::milliseconds timeout = std::chrono::minutes(10),
                         SourceLocation where = SourceLocation::current())
        : timeout_(timeout), where_(where) {
        int initialized = 0;
        detail::check(MPI_Initialized(&initialized), "MPI_Initialized", doing, where);
        if (initialized != 0) {
            throw CommError("mpi", doing, "MPI is initialised already; leave mpi::Environment out", where);
        }
        int provided = 0;
        {
            const detail::BlockingCall bounded("MPI_Init_thread", doing, timeout_, where);
            detail::check(MPI_Init_thread(nullptr, nullptr, static_cast<int>(wanted), &provided), "MPI_Init_thread",
                          doing, where);
        }
        if (provided < static_cast<int>(wanted)) {
            MPI_Finalize();
            throw CommError("mpi", doing,
                            shardkit::detail::concat("this MPI offers ", name(ThreadLevel(provided)), ", asked for ",
                                                     name(wanted)),
                            where);
        }
        before_ = std::set_terminate([] { detail::abort_job(rank(), size()); });
    }
    ~Environment() {
        std::set_terminate(before_);
        const detail::BlockingCall bounded("MPI_Finalize", "the end of the mpi::Environment", timeout_, where_);
        MPI_Finalize();
    }

    /// Returns this process's number in MPI_COMM_WORLD.
    static std::size_t rank() noexcept {
        int rank = 0;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        return static_cast<std::size_t>(rank);
    }
    static std::size_t size() noexcept {
        int size = 1;
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        return static_cast<std::size_t>(size);
    }

  private:
    static constexpr const char* doing = "initialisation";

    std::chrono::milliseconds timeout_;
    SourceLocation where_;
    std::terminate_handler before_ = nullptr;
};

}  // namespace shardkit::mpi
